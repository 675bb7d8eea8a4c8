"""Parameters of the resource endpoints, over a real socket.

No response and no conversation of these ids exists, so what passes the checks is answered with 404.
"""

import pytest

RESPONSE = "/v1/responses/resp_none"
INPUT = f"{RESPONSE}/input_items"
ITEMS = "/v1/conversations/conv_none/items"

WRONG = [
    (INPUT, "limit=0", "integer_below_min_value", "limit"),
    (INPUT, "limit=101", "integer_above_max_value", "limit"),
    (INPUT, "limit=ten", "invalid_type", "limit"),
    (INPUT, "limit=1.5", "invalid_type", "limit"),
    (INPUT, "limit=", "invalid_type", "limit"),
    (INPUT, "limit=5&limit=0", "integer_below_min_value", "limit"),
    (INPUT, "order=sideways", "invalid_value", "order"),
    (INPUT, "include[]=everything", "invalid_value", "include[][0]"),
    (INPUT, "include=reasoning.encrypted_content,x", "invalid_value", "include[1]"),
    (ITEMS, "limit=0", "integer_below_min_value", "limit"),
    (ITEMS, "order=ASC", "invalid_value", "order"),
    (RESPONSE, "stream=maybe", "invalid_type", "stream"),
    (RESPONSE, "stream=true&starting_after=-1", "integer_below_min_value", "starting_after"),
    (RESPONSE, "stream=true&starting_after=x", "invalid_type", "starting_after"),
    (
        RESPONSE,
        f"stream=true&starting_after={2**63}",
        "integer_above_max_value",
        "starting_after",
    ),
    (RESPONSE, "starting_after=3", "invalid_value", "starting_after"),
    (RESPONSE, "stream=false&starting_after=3", "invalid_value", "starting_after"),
    (RESPONSE, "include_obfuscation=perhaps", "invalid_type", "include_obfuscation"),
]


@pytest.mark.parametrize(("path", "query", "code", "param"), WRONG)
def test_err_01_a_wrong_parameter_is_named_in_the_envelope(plain, path, query, code, param):
    answer = plain.http.get(f"{path}?{query}")
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        code,
        param,
    )


@pytest.mark.parametrize(
    ("path", "query"),
    [
        (INPUT, "limit=1&order=asc&after=msg_1"),
        (INPUT, "limit=100&order=desc"),
        (INPUT, "include[]=reasoning.encrypted_content&include[]=message.output_text.logprobs"),
        (INPUT, "include%5B%5D=reasoning.encrypted_content"),
        (INPUT, "include=reasoning.encrypted_content"),
        (ITEMS, "include[]=file_search_call.results&limit=7"),
        (f"{ITEMS}/msg_none", "include[]=web_search_call.results"),
        (RESPONSE, "include[]=reasoning.encrypted_content&include_obfuscation=false"),
        (RESPONSE, "stream=true&starting_after=0&include_obfuscation=true"),
        (RESPONSE, "stream=True"),
        (RESPONSE, "stream=false"),
        (RESPONSE, "beta=true&client_version=0.169.0"),
    ],
)
def test_what_clients_send_passes(plain, path, query):
    answer = plain.http.get(f"{path}?{query}")
    assert answer.status_code == 404, answer.text
    kind = "response" if path.startswith(RESPONSE) else "conversation"
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (f"{kind}_not_found", f"{kind}_id")


@pytest.mark.parametrize("strange", ["%00", "%ff", "%F0%9F%98%80", "a%20b", "x" * 5000, "'--"])
def test_sta_13_an_id_that_can_be_none_is_unknown_like_any_other(plain, strange):
    for method, path, code in (
        ("GET", f"/v1/responses/{strange}", "response_not_found"),
        ("GET", f"/v1/responses/{strange}?stream=true", "response_not_found"),
        ("DELETE", f"/v1/responses/{strange}", "response_not_found"),
        ("POST", f"/v1/responses/{strange}/cancel", "response_not_found"),
        ("GET", f"/v1/responses/{strange}/input_items?after={strange}", "response_not_found"),
        ("GET", f"/v1/conversations/{strange}", "conversation_not_found"),
        ("GET", f"/v1/conversations/{strange}/items/{strange}", "conversation_not_found"),
        ("DELETE", f"/v1/conversations/{strange}", "conversation_not_found"),
    ):
        answer = plain.http.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, code), path


@pytest.mark.parametrize("strange", ["%00", "%ff", "x" * 5000, ""])
def test_sta_13_an_item_that_can_be_none_is_unknown_in_what_is_there(plain, strange):
    made = plain.post({}, "/v1/conversations").json()
    items = f"/v1/conversations/{made['id']}/items"
    answer = plain.http.get(f"{items}?after={strange}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "after")
    if strange:
        answer = plain.http.get(f"{items}/{strange}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "item_not_found")


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_an_idempotency_key_has_a_length(plain, key):
    error = plain.error({"input": "x"}, headers={"idempotency-key": key})
    assert error["param"] == "Idempotency-Key"
    assert error["code"].startswith("string_")


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"content-type": "application/json"}, b"", 404, "response_not_found"),
        ({}, b"", 404, "response_not_found"),
        ({"content-type": "application/json"}, b"{}", 404, "response_not_found"),
        ({"content-type": "application/json"}, b'{"why": "late"}', 404, "response_not_found"),
        ({"content-type": "application/json"}, b"{", 400, "invalid_json"),
        ({"content-type": "application/json"}, b"[]", 400, "invalid_type"),
        ({"content-type": "text/plain"}, b"stop", 415, "unsupported_media_type"),
    ],
)
def test_cancelling_needs_no_body_and_refuses_a_broken_one(plain, headers, body, status, code):
    answer = plain.http.post(f"{RESPONSE}/cancel", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", RESPONSE, "DELETE, GET, HEAD"),
        ("PUT", RESPONSE, "DELETE, GET, HEAD"),
        ("GET", f"{RESPONSE}/cancel", "POST"),
        ("POST", INPUT, "GET, HEAD"),
        ("GET", "/v1/conversations", "POST"),
        ("PATCH", "/v1/conversations/conv_none", "DELETE, GET, HEAD, POST"),
        ("DELETE", ITEMS, "GET, HEAD, POST"),
        ("POST", f"{ITEMS}/msg_none", "DELETE, GET, HEAD"),
    ],
)
def test_the_resource_endpoints_name_their_methods(plain, method, path, allowed):
    answer = plain.http.request(method, path, json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["error"]["code"] == "method_not_allowed"


def test_counting_input_tokens_is_no_response_of_that_name(plain):
    answer = plain.post({"input": "hi"}, "/v1/responses/input_tokens")
    assert answer.json()["object"] == "response.input_tokens"
