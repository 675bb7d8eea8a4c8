"""Who may call."""

import pytest
from serving import scripted, serve

from antiphon.keys import KeyFile, KeyRing, hash_key


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with one key, and the key."""
    file = KeyFile(tmp_path_factory.mktemp("keys") / "keys.toml")
    key = file.add("laptop")
    with serve(scripted({"text": "ok"}), keys=KeyRing(file)) as served:
        yield served, key


def test_either_header_is_taken(guarded):
    served, key = guarded
    for headers in (
        {"authorization": f"Bearer {key}"},
        {"authorization": f"bearer   {key}"},
        {"x-api-key": key},
        {"authorization": "Bearer wrong", "x-api-key": key},
        {"authorization": "Basic Zm9v", "x-api-key": key},
    ):
        assert served.post({"input": "x"}, headers=headers).status_code == 200, headers


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "missing_api_key"),
        ({"authorization": ""}, "missing_api_key"),
        ({"authorization": "Bearer"}, "missing_api_key"),
        ({"authorization": "Bearer wrong"}, "invalid_api_key"),
        ({"authorization": "Basic Zm9vOmJhcg=="}, "missing_api_key"),
        ({"x-api-key": "wrong"}, "invalid_api_key"),
        ({"authorization": "Bearer sk-\xff".encode("latin-1")}, "invalid_api_key"),
    ],
)
def test_without_a_right_key_there_is_a_401(guarded, headers, code):
    served, _ = guarded
    answer = served.post({"input": "x"}, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == code
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_wrong_key_is_told_before_a_wrong_body(guarded):
    served, _ = guarded
    assert served.post(b"not json").status_code == 401


def test_only_health_and_the_reference_are_open(guarded, contract):
    served, key = guarded
    open_paths = {"/health", "/ready", "/openapi.json", "/openapi.yaml", "/docs"}
    for path, item in contract.document["paths"].items():
        if "get" in item and "{" not in path:
            answer = served.http.get(path)
            assert (answer.status_code != 401) == (path in open_paths), path
    headers = {"authorization": f"Bearer {key}"}
    assert served.http.get("/metrics", headers=headers).status_code == 200


def test_a_key_from_the_settings_is_taken(server, tmp_path):
    keys = KeyRing(KeyFile(tmp_path / "none.toml"), [hash_key("sk-from-settings")])
    served = server(scripted({"text": "ok"}), keys=keys)
    assert served.post({"input": "x"}).status_code == 401
    headers = {"authorization": "Bearer sk-from-settings"}
    assert served.post({"input": "x"}, headers=headers).status_code == 200


def test_a_server_without_keys_takes_any(plain):
    headers = {"authorization": "Bearer anything"}
    assert plain.post({"input": "x"}, headers=headers).status_code == 200
    assert plain.post({"input": "x"}).status_code == 200


def test_keys_never_show_in_metrics(guarded):
    served, key = guarded
    headers = {"authorization": f"Bearer {key}"}
    served.post({"input": "x"}, headers=headers)
    text = served.http.get("/metrics", headers=headers).text
    assert key not in text
    assert hash_key(key)[7:23] not in text
