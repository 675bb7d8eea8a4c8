"""What the server says of its models."""

from typing import Any

import pytest
from serving import scripted, serve

from antiphon import __version__
from antiphon.keys import KeyFile, KeyRing
from antiphon.models.base import ModelDefaults
from antiphon.models.on_demand import OnDemandModel
from antiphon.spec import Contract

STATUS = "#/components/schemas/ServerStatus"


def later(name: str = "later") -> OnDemandModel:
    """A model that is not loaded before it is asked."""
    return OnDemandModel(
        name, lambda: scripted({"text": "ok"}, name=name), defaults=ModelDefaults()
    )


def test_every_model_is_told_in_order_with_its_state(server: Any, contract: Contract):
    served = server(scripted({"text": "ok"}, name="first"), later())
    answer = served.http.get("/v1/status")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    status = answer.json()
    assert contract.accepts(STATUS, status)
    assert (status["object"], status["version"]) == ("server.status", __version__)
    assert [(m["id"], m["state"]) for m in status["models"]] == [
        ("first", "loaded"),
        ("later", "unloaded"),
    ]
    served.create({"model": "later", "input": "hi"})
    (_, model) = served.http.get("/v1/status").json()["models"]
    assert model["state"] == "loaded"


def test_a_model_that_runs_elsewhere_has_no_engine(plain):
    (model,) = plain.http.get("/v1/status").json()["models"]
    assert model == {"id": "test-model", "state": "loaded", "engine": None}


def test_every_answer_has_the_id_of_its_request(plain):
    assert plain.http.get("/v1/status").headers["x-request-id"]


def test_a_key_is_needed_where_there_are_keys(tmp_path):
    file = KeyFile(tmp_path / "keys.toml")
    key = file.add("laptop")
    with serve(scripted({"text": "ok"}), keys=KeyRing(file)) as served:
        answer = served.http.get("/v1/status")
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "missing_api_key"
        headers = {"authorization": f"Bearer {key}"}
        answer = served.http.get("/v1/status", headers=headers)
        assert answer.status_code == 200
        assert key not in answer.text


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_it_is_only_read(plain, method):
    answer = plain.http.request(method, "/v1/status")
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    "changes",
    [
        {"object": "status"},
        {"models": [{"id": "a", "state": "sleeping", "engine": None}]},
        {"models": [{"id": "a", "state": "loaded"}]},
        {"more": 1},
    ],
    ids=str,
)
def test_the_document_knows_what_a_status_is(contract: Contract, changes):
    assert not contract.accepts(STATUS, {"object": "server.status", "models": [], **changes})
