"""The catalogue of models for Codex."""

import pytest
from serving import scripted

from antiphon.errors import StartError
from antiphon.http.codex import codex_prompt
from antiphon.models.scripted import ScriptedModel
from antiphon.settings import SceneSettings


def catalog(served):
    answer = served.http.get("/v1/codex/models?client_version=0.169.0")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_name_is_in_the_catalogue_with_its_tools_and_a_short_prompt(server, contract):
    served = server(
        scripted({"text": "ok"}, name="coder", context_window=16_000),
        aliases={"gpt-5.5": "coder", "*": "coder"},
    )
    body = catalog(served)
    assert contract.accepts("#/components/schemas/CodexCatalog", body)
    own, alias = body["models"]
    assert (own["slug"], own["priority"], own["context_window"]) == ("coder", 0, 16_000)
    assert (own["shell_type"], own["apply_patch_tool_type"]) == ("unified_exec", "freeform")
    assert own["truncation_policy"] == {"mode": "tokens", "limit": 2000}
    assert "*** Begin Patch" in own["base_instructions"]
    assert len(own["base_instructions"]) < 2000
    assert (alias["slug"], alias["description"]) == ("gpt-5.5", "Stands for coder.")


def test_a_model_of_unknown_length_gets_outputs_of_the_usual_one(server):
    (entry,) = catalog(server(scripted({"text": "ok"})))["models"]
    assert entry["truncation_policy"]["limit"] == 10_000


def test_the_efforts_in_the_catalogue_are_those_that_the_model_tells_apart(server):
    class Thinker(ScriptedModel):
        def effort(self, asked):
            return {"none": "none", "low": "low", "minimal": "low"}.get(asked)

    model = Thinker("test-model", [SceneSettings(steps=({"text": "ok"},))])
    (entry,) = catalog(server(model))["models"]
    levels = entry["supported_reasoning_levels"]
    assert [level["effort"] for level in levels] == ["none", "low"]
    assert entry["default_reasoning_level"] is None


def test_the_prompt_may_be_ones_own(server, tmp_path):
    file = tmp_path / "prompt.md"
    file.write_text("Mind the gap.", encoding="utf-8")
    served = server(scripted({"text": "ok"}), codex_prompt_file=file)
    assert catalog(served)["models"][0]["base_instructions"] == "Mind the gap."


def test_a_prompt_that_cannot_be_read_keeps_the_server_from_starting(tmp_path):
    with pytest.raises(StartError, match="codex_prompt_file"):
        codex_prompt(tmp_path / "none.md")


def test_the_catalogue_can_be_turned_off(server):
    served = server(scripted({"text": "ok"}), codex_catalog=False)
    answer = served.http.get("/v1/codex/models")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_url"
