"""Fuzzing tells what it found, and keeps it as a case."""

import json
import sys

import pytest
import yaml
from click.testing import CliRunner
from made_server import Answer, answering

from responses_conformance.cli import main
from responses_conformance.config import Config
from responses_conformance.fuzzing.command import FuzzingUnavailable, Job, NothingTried, fuzz

pytest.importorskip("schemathesis", reason="the extra fuzz is not installed")

ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}}
#: How long a phase takes: the first ends by itself, the other when it is told to.
SECONDS = {"coverage": "60", "fuzzing": "4", "stateful": "12"}
#: One operation, whose body is so small that this is enough.
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Counting", "version": "1"},
    "paths": {
        "/v1/count": {
            "post": {
                "operationId": "count",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["number"],
                                "properties": {"number": {"type": "integer", "maximum": 1000}},
                                "additionalProperties": False,
                            }
                        }
                    },
                },
                "responses": {
                    "200": {
                        "description": "The number.",
                        "content": {"application/json": {"schema": {"type": "object"}}},
                    },
                    **{
                        status: {
                            "description": "No.",
                            "content": {"application/json": {"schema": ERROR}},
                        }
                        for status in ("400", "404", "405")
                    },
                },
            }
        }
    },
}


def refused(status, param=None):
    error = {"message": "No.", "type": "invalid_request_error", "param": param}
    headers = {"allow": "POST"} if status == 405 else {}
    return Answer({"error": {**error, "code": "invalid_value"}}, status, headers=headers)


def sound(method, path, body):
    """Counts."""
    if path.partition("?")[0] != "/v1/count":
        return refused(404)
    if method != "POST":
        return refused(405)
    try:
        asked = json.loads(body)
    except ValueError:
        return refused(400)
    right = isinstance(asked, dict) and set(asked) == {"number"}
    number = asked["number"] if right else None
    whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
    if not whole or isinstance(number, bool) or number > 1000:
        return refused(400)
    return Answer({"number": 1})


def broken(method, path, body):
    """Counts, but breaks at numbers of three digits."""
    answer = sound(method, path, body)
    return refused(500) if answer.status == 200 and abs(json.loads(body)["number"]) > 99 else answer


def fuzzed(tmp_path, answer, phase, *options, content=DOCUMENT):
    """What the command says of a server that answers so."""
    document = tmp_path / "document.json"
    document.write_text(json.dumps(content), encoding="utf-8")
    with answering(answer) as url:
        command = ["fuzz", "--base-url", url, "--phase", phase, "--seconds", SECONDS[phase]]
        return CliRunner().invoke(main, [*command, "--document", str(document), *options])


@pytest.mark.parametrize("phase", ["coverage", "fuzzing"])
def test_a_sound_server_passes(tmp_path, phase, capfd):
    said = fuzzed(tmp_path, sound, phase, "--reports", str(tmp_path / "r"))
    assert said.exit_code == 0, capfd.readouterr().out
    assert not list((tmp_path / "r").glob("*.yaml"))


def test_a_server_that_breaks_is_told_of_with_the_seed_and_how_to_ask_again(tmp_path, capfd):
    said = fuzzed(tmp_path, broken, "coverage", "--seed", "7", "--reports", str(tmp_path / "r"))
    assert said.exit_code == 1
    told = capfd.readouterr().out
    assert "no_server_error" in told and "Seed: 7" in told and "curl -X POST" in told
    assert "--cases" in said.output


def test_what_was_found_is_a_small_case_that_fails_until_it_is_mended(tmp_path):
    reports = tmp_path / "r"
    fuzzed(tmp_path, broken, "coverage", "--reports", str(reports))
    cases = yaml.safe_load((reports / "fuzz-coverage.yaml").read_text(encoding="utf-8"))
    [case] = [case for case in cases if "no server error" in case["title"]]
    assert json.loads(case["steps"][0]["raw"])["number"] in (999, 1000)
    for answer, status in ((broken, 1), (sound, 0)):
        with answering(answer) as url:
            options = ["--base-url", url, "--model", "m", "--claim", "core"]
            options += ["--cases", str(reports), "--only", case["id"]]
            assert CliRunner().invoke(main, ["run", *options]).exit_code == status


REFUSED = {
    status: {
        "description": "No.",
        "content": {"application/json": {"schema": ERROR}},
    }
    for status in ("400", "404", "405")
}
MADE = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
TOLD = {"description": "A thing.", "content": {"application/json": {"schema": MADE}}}
LINK = {"operationId": "get", "parameters": {"thing_id": "$response.body#/id"}}
ID = {"name": "thing_id", "in": "path", "required": True, "schema": {"type": "string"}}
#: Things are made by one operation, and told by another, which needs their ids.
THINGS = {
    **DOCUMENT,
    "paths": {
        "/v1/things": {
            "post": {
                "operationId": "make",
                "responses": {"200": {**TOLD, "links": {"get": LINK}}, **REFUSED},
            }
        },
        "/v1/things/{thing_id}": {
            "get": {
                "operationId": "get",
                "parameters": [ID],
                "responses": {"200": TOLD, **REFUSED},
            }
        },
    },
}


class Keeping:
    """A server that makes things, and breaks when it is asked for one again."""

    def __init__(self, *, mended):
        self.mended = mended
        self.made = []

    def __call__(self, method, path, body):
        if path == "/v1/things" and method == "POST":
            self.made.append(f"thing_{len(self.made) + (9000 if self.mended else 1000)}")
            return Answer({"id": self.made[-1]})
        identity = path.removeprefix("/v1/things/")
        if method != "GET" and (path == "/v1/things" or identity != path):
            return refused(405)
        if identity not in self.made:
            return refused(405 if path == "/v1/things" else 404)
        return Answer({"id": identity}) if self.mended else refused(500)


def test_what_needs_an_earlier_request_is_found_and_kept_with_it(tmp_path):
    reports = tmp_path / "r"
    options = ("stateful", "--reports", str(reports))
    said = fuzzed(tmp_path, Keeping(mended=False), *options, content=THINGS)
    assert said.exit_code == 1
    cases = yaml.safe_load((reports / "fuzz-stateful.yaml").read_text(encoding="utf-8"))
    [case] = [case for case in cases if "no server error" in case["title"]]
    asked = [step["request"] for step in case["steps"]]
    assert asked == ["POST /things", "GET /things/{{step1.id}}"]
    for mended, status in ((False, 1), (True, 0)):
        with answering(Keeping(mended=mended)) as url:
            run = ["run", "--base-url", url, "--model", "m", "--claim", "core"]
            run += ["--cases", str(reports), "--only", case["id"]]
            assert CliRunner().invoke(main, run).exit_code == status


def test_a_folder_and_a_document_are_found_from_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counting.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    with answering(sound) as url:
        options = ["--base-url", url, "--phase", "coverage", "--seconds", SECONDS["coverage"]]
        options += ["--document", "counting.json", "--reports", "here"]
        assert CliRunner().invoke(main, ["fuzz", *options]).exit_code == 0
    assert [file.name for file in (tmp_path / "here").glob("*.xml")] == ["fuzz-coverage.xml"]


def test_an_operation_that_is_not_there_is_no_success(tmp_path):
    said = fuzzed(tmp_path, sound, "fuzzing", "--operation", "cuont")
    assert said.exit_code == 1
    assert "no operation with the operationId cuont" in said.output


def test_a_job_that_asked_nothing_is_no_success(tmp_path):
    (tmp_path / "empty.json").write_text(json.dumps({**DOCUMENT, "paths": {}}), encoding="utf-8")
    with answering(sound) as url:
        job = Job("fuzzing", 1, document=str(tmp_path / "empty.json"))
        with pytest.raises(NothingTried):
            fuzz(Config(base_url=url), job)


def test_a_server_that_is_not_there_is_told():
    options = ["--base-url", "http://127.0.0.1:9/v1", "--phase", "coverage"]
    said = CliRunner().invoke(main, ["fuzz", *options])
    assert said.exit_code == 1
    assert "ConnectError" in said.output


def test_a_document_may_be_at_an_address_and_leave_the_base_out_of_its_paths():
    paths = {"/count": DOCUMENT["paths"]["/v1/count"]}
    asked = set()

    def answer(method, path, body):
        if path == "/openapi.json":
            return Answer({**DOCUMENT, "paths": paths})
        asked.add(path.partition("?")[0])
        return sound(method, path, body)

    with answering(answer) as url:
        document = url.removesuffix("/v1") + "/openapi.json"
        options = ["--base-url", url, "--phase", "coverage", "--document", document]
        said = CliRunner().invoke(main, ["fuzz", *options])
    assert said.exit_code == 0
    assert "/v1/count" in asked and "/count" not in asked


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file"), ("nonsense: [", "no OpenAPI document"), ("[]", "no OpenAPI")],
)
def test_a_document_that_cannot_be_read_is_no_success(tmp_path, content, said):
    document = tmp_path / "document.yaml"
    if content is not None:
        document.write_text(content, encoding="utf-8")
    with answering(sound) as url:
        options = ["--base-url", url, "--phase", "coverage", "--document", str(document)]
        result = CliRunner().invoke(main, ["fuzz", *options])
    assert result.exit_code != 0 and said in result.output
    assert isinstance(result.exception, SystemExit)


def test_without_schemathesis_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FuzzingUnavailable, match="fuzz"):
        fuzz(Config(), Job("fuzzing", 1))
