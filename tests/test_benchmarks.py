"""What the benchmarks make of what they measure. Servers here are imitations on the loopback."""

import asyncio
import json
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

import loads
import peers
import report
from client import (
    Answer,
    Client,
    RequestFailed,
    connected,
    decode_rate,
    message,
    percentile,
    read_answer,
    read_part,
    throughput,
)
from report import METRICS, Metric, Visit

TEXT = ("Der ", "Fluß", " 河")


def event(kind: str, *, named: bool = True, **fields: Any) -> bytes:
    """A frame of a stream, with or without an `event` line."""
    head = f"event: {kind}\n" if named else ""
    return f"{head}data: {json.dumps({'type': kind, **fields})}\n\n".encode()


def ending(kind: str, usage: dict[str, Any], **options: Any) -> bytes:
    return event(kind, response={"status": "any", "usage": usage}, **options)


def deltas(**options: Any) -> bytes:
    return b"".join(event("response.output_text.delta", delta=t, **options) for t in TEXT)


_USAGE = {"input_tokens": 12, "output_tokens": 6, "total_tokens": 18}

#: A stream as each server writes it.
STREAMS = {
    "antiphon": event("response.created", response={"usage": None})
    + deltas(item_id="msg", logprobs=[])
    + event("response.output_text.done", text="".join(TEXT))
    + ending("response.incomplete", {**_USAGE, "input_tokens_details": {"cached_tokens": 8}})
    + b"data: [DONE]\n\n",
    "llama-server": event("response.in_progress", response={"status": "in_progress"})
    + event("response.output_text.delta", delta="")
    + deltas(item_id="msg")
    + ending("response.completed", {**_USAGE, "input_tokens_details": {"cached_tokens": 8}}),
    "transformers": event("response.created", named=False, response={"output": []})
    + deltas(named=False)
    + ending("response.completed", {**_USAGE, "input_tokens_details": None}, named=False),
}
CACHED = {"antiphon": 8, "llama-server": 8, "transformers": 0}


def answer(*arrivals: float, sent: float = 0.0, tokens: int = 0) -> Answer:
    return Answer(sent, arrivals, max(arrivals, default=sent), "", 0, 0, tokens or len(arrivals))


@pytest.mark.parametrize("server", STREAMS)
@given(cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_a_stream_says_the_same_however_the_network_cuts_it(server: str, cuts: list[int]) -> None:
    stream = STREAMS[server]
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [
        (float(number), stream[start:end])
        for number, (start, end) in enumerate(pairwise(places), 1)
    ]
    read = read_answer(0.0, chunks)
    assert read.text == "".join(TEXT)
    assert (read.input_tokens, read.cached_tokens, read.output_tokens) == (12, CACHED[server], 6)
    assert len(read.arrivals) == len(TEXT)
    assert list(read.arrivals) == sorted(read.arrivals)


def test_a_piece_arrives_with_its_last_byte() -> None:
    frame = event("response.output_text.delta", delta="word")
    end = ending("response.completed", _USAGE)
    read = read_answer(1.0, [(2.0, frame[:30]), (3.0, frame[30:] + end[:5]), (4.0, end[5:])])
    assert (read.first_token_seconds, read.ended) == (2.0, 4.0)


def test_an_answer_without_text_counts_from_its_end() -> None:
    read = read_answer(1.0, [(4.0, ending("response.completed", _USAGE))])
    assert read.first_token_seconds == 3.0


@pytest.mark.parametrize("end", [b"", event("error", message="out of memory")])
def test_a_stream_that_fails_or_breaks_off_is_no_answer(end: bytes) -> None:
    with pytest.raises(RequestFailed):
        read_answer(0.0, [(1.0, deltas() + end)])


def test_a_stream_that_was_left_still_has_its_arrivals() -> None:
    read = read_part(0.0, [(1.0, deltas()), (2.0, b"event: response.output_t")])
    assert (read.arrivals, read.text) == ((1.0, 1.0, 1.0), "".join(TEXT))


def test_streams_are_compared_while_all_of_them_decode() -> None:
    # From 2.0 to 4.0 both decode: two pieces of one token, and one piece of two.
    rate = decode_rate([answer(1.0, 2.0, 3.0, 4.0), answer(2.0, 4.0, 5.0, tokens=6)])
    assert rate == pytest.approx((2 + 2) / 2.0)


def test_streams_that_never_decode_at_once_have_no_rate() -> None:
    with pytest.raises(RequestFailed):
        decode_rate([answer(1.0, 2.0), answer(3.0, 4.0)])


def test_throughput_counts_from_the_first_request_to_the_last_end() -> None:
    assert throughput([answer(2.0, sent=1.0, tokens=10), answer(5.0, sent=3.0, tokens=6)]) == 4.0


def test_pieces_of_one_read_have_no_gap_between_them() -> None:
    assert answer(1.0, 1.0, 2.0, 4.0).gaps() == [1.0, 2.0]


def test_a_gap_counts_if_it_touches_the_time_looked_at() -> None:
    assert answer(1.0, 3.0, 4.0, 5.0, 9.0).gaps(2.0, 4.5) == [2.0, 1.0, 1.0]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 2), (0.51, 3), (0.99, 4), (1, 4)])
def test_a_percentile_is_the_least_value_that_enough_do_not_exceed(
    share: float, expected: int
) -> None:
    assert percentile([3, 1, 4, 2], share) == expected


# --- over the loopback ---


@contextmanager
def imitation(stream: bytes, status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers every request with one stream, and the bodies it was sent."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.send_header("content-length", str(len(stream)))
            self.end_headers()
            self.wfile.write(stream)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", bodies
        finally:
            server.shutdown()
            thread.join()


def asked(url: str, ask: Callable[[Client], Any]) -> Any:
    async def run() -> Any:
        async with connected(url, "the-model") as client:
            return await ask(client)

    return asyncio.run(run())


@pytest.mark.parametrize("server", STREAMS)
def test_every_servers_answers_are_read(server: str) -> None:
    with imitation(STREAMS[server]) as (url, bodies):
        answers = asked(url, lambda client: client.ask_all(["one", "two"], 16))
    assert [read.text for read in answers] == ["".join(TEXT)] * 2
    assert all(read.first_token_seconds > 0 for read in answers)
    assert {body["input"][0]["content"][0]["text"] for body in bodies} == {"one", "two"}
    assert all(body["temperature"] == 0 and body["stream"] for body in bodies)


def test_a_refused_request_says_what_the_server_said() -> None:
    with imitation(b'{"error": "no such model"}', 400) as (url, _):
        with pytest.raises(RequestFailed, match=r"400.*no such model"):
            asked(url, lambda client: client.ask("hello", 16))


def test_a_conversation_repeats_what_the_model_said() -> None:
    with imitation(STREAMS["llama-server"]) as (url, bodies):
        figures = asked(url, lambda client: loads.long(client, random.Random(1)))
    assert {"cold_first", "second_first", "third_first"} <= set(figures)
    first, second, third = (body["input"] for body in bodies)
    assert second[: len(first)] == first and third[: len(second)] == second
    assert second[1] == message("assistant", "".join(TEXT))


# --- servers as processes ---

_SMALL_SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def python(*arguments: str) -> peers.Server:
    return peers.Server("small", "model", "none", [sys.executable, "-c", *arguments])


def test_a_server_is_weighed_while_it_runs_and_gone_afterwards() -> None:
    with peers.running(python(_SMALL_SERVER, "{port}")) as served:
        assert served.resident_bytes() > 1_000_000
        assert served.cpu_seconds() > 0
    assert served.resident_bytes() == 0


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(peers.ServerFailed, match="no weights here"):
        with peers.running(python("print('no weights here'); print('----')")):
            pass


def test_a_program_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    assert peers.find(["no-program-is-called-this"], None) is None
    assert peers.find(["python3"], str(tmp_path / "absent")) is None
    assert peers.find_llama_server(str(tmp_path / "absent")) is None


def test_the_server_behind_a_wrapping_script_is_found(tmp_path: Path) -> None:
    binary, script = tmp_path / "llama-server", tmp_path / "llama-cpp-server"
    binary.touch()
    script.write_text(f"#!/bin/sh\necho Build info:\necho '  binary_path: {binary}'\n")
    script.chmod(0o755)
    assert peers.find_llama_server(str(script)) == binary


# --- the report ---


def visit(number: int, server: str, **figures: float) -> Visit:
    return Visit(number, server, "Q4_1", figures)


VISITS = [
    visit(0, "antiphon", decode_1=100, second_first=0.1, start=5),
    visit(0, "llama-server", decode_1=80, second_first=0.2),
    visit(1, "llama-server", decode_1=20, second_first=0.2),
    visit(1, "antiphon", decode_1=50, second_first=0.1, start=9),
    visit(2, "antiphon", decode_1=90, start=7),
]


def test_a_ratio_compares_rounds_within_themselves() -> None:
    assert report.ratio(VISITS, "llama-server", "decode_1") == pytest.approx((1.25 + 2.5) / 2)
    assert report.median(VISITS, "antiphon", "decode_1") == 90
    assert report.ratio(VISITS, "transformers", "decode_1") is None


def test_the_table_says_which_targets_are_met() -> None:
    shown = report.table(VISITS)
    [decode] = [line for line in shown.splitlines() if "decode, one stream" in line]
    assert [cell.strip() for cell in decode.split("|")][2:-1] == [
        "90.0",
        "50.0",
        "1.88 (≥ 1.2: met)",
    ]
    [turn] = [line for line in shown.splitlines() if "second turn" in line]
    assert "0.500 (≤ 0.45: MISSED)" in turn
    [start] = [line for line in shown.splitlines() if "start to first answer" in line]
    assert "7.00 (≤ 8: met)" in start
    assert "short prompt" not in shown
    assert len({len(line) for line in shown.splitlines()}) == 1


def test_a_target_bounds_from_the_side_that_is_worse() -> None:
    more = Metric("any", "any", "s", more_is_better=True)
    less = Metric("any", "any", "s")
    assert [more.met(value, 2.0) for value in (1.0, 2.0, 3.0)] == [False, True, True]
    assert [less.met(value, 2.0) for value in (1.0, 2.0, 3.0)] == [True, True, False]


def test_a_missing_figure_is_shown_as_a_dash() -> None:
    shown = report.table([visit(0, "antiphon", decode_1=1), visit(0, "transformers", start=2)])
    [decode] = [line for line in shown.splitlines() if "decode, one stream" in line]
    assert [cell.strip() for cell in decode.split("|")][2:-1] == ["1.00", "–", "–"]


def test_figures_keep_three_digits() -> None:
    assert [report.shown(value) for value in (0.01234, 1.2345, 12.345, 1234.5)] == [
        "0.012",
        "1.23",
        "12.3",
        "1,234",
    ]


def test_metrics_have_keys_of_their_own() -> None:
    assert len({metric.key for metric in METRICS}) == len(METRICS)


def test_gguf_rows_are_put_back_into_halves() -> None:
    pytest.importorskip("safetensors")
    import numpy as np
    from weights import _unpermuted

    # A head of four rows: GGUF pairs the first half with the second, row by row.
    interleaved = np.array([[0.0], [2.0], [1.0], [3.0]], np.float32)
    assert _unpermuted(interleaved, 1)[:, 0].tolist() == [0, 1, 2, 3]
