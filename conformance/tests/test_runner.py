"""Cases are run, and come out as they should."""

import contextlib
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from listening import listening
from made_server import Answer, answering
from replays import ASK, TRANSCRIPTS, case, replayed

from responses_conformance.config import Config, ConfigError
from responses_conformance.exchange import Client, OutOfTime, Unreachable
from responses_conformance.recording import record
from responses_conformance.reports.files import write
from responses_conformance.results import Verdict
from responses_conformance.runner import run
from responses_conformance.transcripts import load


def outcome(one, transcript="valid/text", **options):
    """How a case comes out against a transcript: the verdict, and the reasons."""
    with replayed(transcript) as url:
        config = Config(base_url=url, model="m", claims=("core",), **options)
        result = run(config, [one]).cases[0]
    return result.verdict, " ".join(result.reasons)


def rule(transcript, name, **options):
    with replayed(transcript) as url:
        report = run(Config(base_url=url, model="m", claims=("core",), **options), [case(ASK)])
    return next(result for result in report.rules if result.rule.id == name), report


def test_what_is_as_expected_passes():
    expected = {"response": {"status": "completed", "output[0].type": "message"}}
    assert outcome(case({**ASK, "expect": expected})) == (Verdict.PASS, "")


def test_what_is_not_as_expected_fails_with_what_was_seen_and_required():
    verdict, reasons = outcome(case({**ASK, "expect": {"response": {"status": "failed"}}}))
    assert verdict is Verdict.FAIL
    assert '"completed"' in reasons and '"failed"' in reasons


def test_a_wrong_status_fails():
    verdict, reasons = outcome(case({"request": "GET /responses/none"}))
    assert verdict is Verdict.FAIL
    assert "answered with 404" in reasons


def test_a_premise_that_does_not_hold_skips_the_case():
    step = {**ASK, "premise": {"response": {"output": []}}}
    assert outcome(case(step))[0] is Verdict.SKIP
    assert outcome(case(step), model_follows_script=True)[0] is Verdict.FAIL


def test_what_an_earlier_step_did_wrong_is_no_matter_of_a_later_premise():
    wrong = {**ASK, "expect": {"response": {"status": "failed"}}}
    later = {**ASK, "premise": {"response": {"output": []}}}
    verdict, reasons = outcome(case(wrong, later))
    assert verdict is Verdict.FAIL
    assert "failed" in reasons and "the model did not do" in reasons


def test_what_a_case_needs_and_is_not_configured_skips_it():
    verdict, reasons = outcome(case(ASK, needs=("second_key",)))
    assert (verdict, reasons) == (Verdict.SKIP, "needs second key")
    assert outcome(case(ASK, needs=("second_key",)), second_api_key="k")[0] is Verdict.PASS


def test_a_profile_that_is_not_claimed_is_not_judged():
    assert outcome(case(ASK, profile="background"))[0] is Verdict.NOT_CLAIMED


def test_a_case_that_cannot_be_understood_is_an_error_of_the_suite():
    verdict, reasons = outcome(case({**ASK, "expect": {"response": {"id": {"$odd": 1}}}}))
    assert verdict is Verdict.ERROR
    assert "$odd" in reasons


def test_a_rule_that_the_case_names_fails_it_and_another_does_not():
    name = "invalid/TEXT-1-lost-delta"
    assert outcome(case(ASK, rules=("TEXT-1",)), name)[0] is Verdict.FAIL
    assert outcome(case(ASK, rules=("SEQ-3",)), name)[0] is Verdict.PASS


def test_a_broken_rule_is_told_once_with_its_places_and_fails_the_run():
    result, report = rule("invalid/TEXT-1-lost-delta", "TEXT-1")
    assert (result.verdict, result.broken) == (Verdict.FAIL, 1)
    assert result.kept[0][0].case == "T-1"
    assert report.failed


def test_rules_that_hold_pass_and_those_that_were_not_judged_are_skipped():
    assert rule("valid/text", "TEXT-1")[0].verdict is Verdict.PASS
    assert rule("valid/text", "FAULT-1")[0].verdict is Verdict.SKIP
    assert rule("valid/text", "SHAPE-2")[0].verdict is Verdict.NOT_CLAIMED


@pytest.mark.parametrize(
    ("transcript", "passed", "skipped"),
    [
        ("valid/text", {"TEXT-1", "PART-3", "ITEM-7", "TOKENS-1", "FOLD-2"}, {"ARGS-1", "TEXT-8"}),
        ("valid/call", {"ARGS-1", "ARGS-7", "ITEM-7"}, {"TEXT-1", "PART-1", "FAULT-5", "LIFE-8"}),
        ("valid/failure", {"FAULT-5", "LIFE-12", "LIFE-11"}, {"ARGS-1"}),
        ("valid/made_annotation", {"TEXT-8"}, {"TEXT-7"}),
        ("valid/made_queued", {"LIFE-8"}, {"LIFE-12"}),
        ("invalid/LIFE-3-nothing", {"FRAME-1"}, {"LIFE-1", "SEQ-1", "ITEM-1", "SHAPE-1", "FOLD-1"}),
    ],
)
def test_a_rule_passes_only_where_there_was_something_to_judge(transcript, passed, skipped):
    _, report = rule(transcript, "FRAME-1")
    verdicts = {result.rule.id: result.verdict for result in report.rules}
    assert {verdicts[name] for name in passed} == {Verdict.PASS}
    assert {verdicts[name] for name in skipped} <= {Verdict.SKIP}


def test_expected_failures_are_no_failures_and_their_passes_are(tmp_path):
    file = tmp_path / "expected.yaml"
    file.write_text("T-1: not yet\n", encoding="utf-8")
    wrong = case({**ASK, "expect": {"response": {"status": "failed"}}})
    verdict, reasons = outcome(wrong, expected_failures=file)
    assert verdict is Verdict.EXPECTED and reasons.startswith("not yet")
    assert outcome(case(ASK), expected_failures=file)[0] is Verdict.UNEXPECTED


def test_an_expected_failure_of_a_rule_is_none(tmp_path):
    file = tmp_path / "expected.yaml"
    file.write_text("TEXT-1: not yet\n", encoding="utf-8")
    result, report = rule("invalid/TEXT-1-lost-delta", "TEXT-1", expected_failures=file)
    assert result.verdict is Verdict.EXPECTED
    assert not report.failed


def test_a_server_that_is_not_there_is_told_at_once():
    with pytest.raises(Unreachable):
        run(Config(base_url="http://127.0.0.1:9/v1", model="m"), [case(ASK)])


def test_without_a_model_the_first_that_is_listed_is_asked():
    with replayed("valid/text") as url:
        assert run(Config(base_url=url), []).model == "scripted"


def test_a_response_that_is_stored_is_asked_for_again_if_storing_is_claimed():
    with replayed("invalid/FOLD-3-no-output") as url:
        for claims, broken in ((("core",), 0), (("core", "stored"), 0)):
            report = run(Config(base_url=url, model="m", claims=claims), [case(ASK)])
            result = next(r for r in report.rules if r.rule.id == "FOLD-3")
            assert result.broken == broken  # It does not say that it was stored.
    with replayed("valid/text") as url:
        report = run(Config(base_url=url, model="m", claims=("core", "stored")), [case(ASK)])
        result = next(r for r in report.rules if r.rule.id == "FOLD-3")
        assert (result.checked, result.verdict) == (1, Verdict.PASS)


def test_each_value_is_tried_and_named_where_it_fails():
    step = {"each": {"kind": ["message", "reasoning"]}, **ASK}
    step["expect"] = {"response": {"output[0].type": "{{kind}}"}}
    verdict, reasons = outcome(case(step))
    assert verdict is Verdict.FAIL
    assert reasons.startswith('with kind "reasoning"') and "message" in reasons


def test_a_step_sees_what_an_earlier_one_told():
    again = {"request": "GET /responses/{{answer.id}}", "expect": {"body": {"id": "{{answer.id}}"}}}
    assert outcome(case(ASK, again)) == (Verdict.PASS, "")
    missing = {"request": "GET /responses/{{answer.output[9].id}}"}
    assert outcome(case(ASK, missing))[0] is Verdict.FAIL


def test_a_stream_that_the_suite_leaves_is_not_judged_by_its_end():
    with replayed("valid/text") as url:
        step = {**ASK, "leave_after": {"events": 3}}
        report = run(Config(base_url=url, model="m", claims=("core",)), [case(step)])
    assert report.cases[0].verdict is Verdict.PASS
    assert not report.failed


def test_expected_failures_that_are_no_map_are_refused(tmp_path):
    file = tmp_path / "expected.yaml"
    file.write_text("- T-1\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        run(Config(base_url="http://127.0.0.1:9/v1", model="m", expected_failures=file), [])


def plain(one, body, media="text/html"):
    """What a run of a case comes to where every answer is this body."""
    with answering(lambda *_: Answer(body, media=media)) as url:
        return run(Config(base_url=url, model="m", claims=("core",)), [one])


@pytest.mark.parametrize("looked_at", [{"expect": {"stream": {"terminal": True}}}, {}])
def test_what_is_no_stream_fails_a_case_that_asks_for_one(looked_at):
    result = plain(case({**ASK, **looked_at}), b"<html></html>").cases[0]
    assert result.verdict is Verdict.FAIL
    assert "no stream, but text/html" in result.reasons[0]


def test_what_is_no_json_is_no_premise_that_does_not_hold():
    step = {"request": "POST /responses", "body": {"input": "hi"}}
    result = plain(
        case({**step, "premise": {"response": {"status": "completed"}}}), b"<html>"
    ).cases[0]
    assert result.verdict is Verdict.FAIL
    assert "no JSON, but text/html" in result.reasons[0]


def test_streams_with_other_line_ends_are_left_after_as_many_events():
    body = load(TRANSCRIPTS / "valid/made_crlf.sse").body
    step = {**ASK, "leave_after": {"events": 3}, "expect": {"stream": {"numbers": [0, 1, 2]}}}
    result = plain(case(step), body, "text/event-stream").cases[0]
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())


@pytest.mark.parametrize("stream", [True, False])
def test_answers_may_be_compressed_on_their_way(stream):
    recorded = load(TRANSCRIPTS / "valid/text.sse")
    body = recorded.body if stream else json.dumps(recorded.retrieved).encode()
    media = "text/event-stream" if stream else "application/json"
    told = Answer(gzip.compress(body), media=media, headers={"content-encoding": "gzip"})
    step = {**ASK, "body": {"input": "hi", "stream": stream}}
    step["expect"] = {"response": {"status": "completed"}}
    with answering(lambda *_: told) as url:
        report = run(Config(base_url=url, model="m", claims=("core",)), [case(step)])
    assert report.cases[0].verdict is Verdict.PASS
    assert not report.failed


@pytest.mark.parametrize("form", ["html", "json", "xml"])
def test_an_answer_with_half_a_character_in_it_can_be_reported(form, tmp_path):
    told = b'{"object": "response", "id": "\\ud800"}'
    step = {"request": "POST /responses", "body": {}, "expect": {"body": {"id": "x"}}}
    report = plain(case(step), told, "application/json")
    assert report.cases[0].verdict is Verdict.FAIL
    write(report, tmp_path / f"report.{form}")
    assert "ud800" in (tmp_path / f"report.{form}").read_text(encoding="utf-8")


class Stalling(BaseHTTPRequestHandler):
    """Answers with the first `count` events of a stream. After them it is silent, or only shows
    that it lives, until it is let go."""

    protocol_version = "HTTP/1.1"
    body = load(TRANSCRIPTS / "valid/text.sse").body

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        events = self.body.split(b"\n\n")[: self.server.count]
        if events:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(b"\n\n".join(events) + b"\n\n")
        with contextlib.suppress(OSError):
            while not self.server.let.wait(0.01):
                if events and self.server.lives:
                    self.wfile.write(b": here\n\n")
        self.close_connection = True

    def log_message(self, *_):
        pass


def stalled(count, *, lives=False):
    """How a case comes out against a server that stalls, and the rules that it broke."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stalling)
    server.count, server.lives, server.let = count, lives, threading.Event()
    with listening(server) as url:
        report = run(Config(base_url=url, model="m", claims=("core",), timeout=2), [case(ASK)])
        server.let.set()
    return report.cases[0], [r.rule.id for r in report.rules if r.verdict is Verdict.FAIL]


def test_what_does_not_end_in_time_is_not_recorded():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stalling)
    server.count, server.lives, server.let = 3, True, threading.Event()
    with listening(server) as url:
        client = Client(url, timeout=0.2)
        with pytest.raises(OutOfTime, match="own limit"):
            record(client, {"input": "hi", "stream": True}, None)
        client.close()
        server.let.set()


@pytest.mark.parametrize(("count", "said"), [(0, "no answer within"), (3, "did not end within")])
def test_what_takes_longer_than_the_suite_waits_is_an_error_of_the_suite(count, said):
    result, broken = stalled(count, lives=True)
    assert result.verdict is Verdict.ERROR
    assert said in result.reasons[0] and "--timeout" in result.reasons[0]
    assert not broken


def test_a_stream_that_falls_silent_has_no_end():
    assert stalled(3)[1] == ["LIFE-3"]
