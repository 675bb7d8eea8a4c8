"""Damaged bodies over a real socket: whatever comes in, the answer is a good one."""

from collections import Counter

from damage import campaign, kind_of_place, violations
from serving import scripted

CREATE = "#/components/schemas/CreateResponse"


def test_damaged_bodies_are_answered_in_the_envelope_and_never_with_a_5xx(server, contract):
    served = server(scripted({"text": "Hello there", "pieces": 4}), aliases={"*": "test-model"})
    statuses: Counter[int] = Counter()
    places = set()
    wrong = []
    for sent in campaign(300, 1, lambda body: contract.accepts(CREATE, body)):
        headers = {} if sent.media_type is None else {"content-type": sent.media_type}
        answer = served.http.post(
            "/v1/responses", content=sent.content, headers=headers, timeout=10
        )
        statuses[answer.status_code] += 1
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        found = violations(sent, answer.status_code, media_type, answer.text)
        wrong += [(problem, sent.content[:500]) for problem in found]
        if answer.status_code == 400 and not found:
            error = answer.json()["error"]
            places.add((kind_of_place(error["param"]), error["code"]))
    assert wrong == []
    assert set(statuses) == {200, 400, 415}
    assert statuses[400] > 200
    assert len(places) > 50


def test_a_body_that_nests_too_deep_is_refused_and_the_server_lives_on(server):
    served = server()
    for opening in (b"[", b'{"a":'):
        error = served.error(b'{"input": ' + opening * 100_000)
        assert (error["code"], error["param"]) == ("invalid_json", None)
    assert served.create({"input": "hi"})["status"] == "completed"


def test_fields_of_other_kinds_of_items_are_the_clients_own_and_do_no_harm(server):
    served = server()
    message = {
        "role": "user",
        "content": [{"type": "input_text", "text": "hi", "refusal": 5}],
        "output": [1, {"type": "strange"}],
    }
    assert served.create({"input": [message]})["status"] == "completed"


def test_err_05_limits_beyond_64_bits_are_as_good_as_none(server):
    served = server()
    for limit in (2**31, 2**63, 2**64, 1e300):
        body = {"input": "hi", "max_output_tokens": limit, "max_tool_calls": limit}
        assert served.create(body)["status"] == "completed"
