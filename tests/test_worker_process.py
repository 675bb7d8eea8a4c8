"""`antiphon worker` and `antiphon serve --no-engine` as processes of their own."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest
from click.testing import CliRunner
from said import SaidGeneration, SaidModel
from serving import parse_stream

from antiphon.cli import main
from antiphon.turn import TextDelta

CONFIG = """
port = 0
log_format = "json"
shutdown_grace_seconds = 0.2
"""
HANGS = '[models.demo]\nkind = "scripted"\n[[models.demo.scenes]]\nsteps = [{ delay = 60 }]\n'
SPEAKS = (
    '[models.demo]\nkind = "scripted"\n[[models.demo.scenes]]\n'
    'steps = [{ text = "Hello from a worker.", pieces = 4 }]\n'
)


class Configs:
    """Settings files on one storage, with leases of so many seconds."""

    def __init__(self, folder):
        self._folder = folder
        self.lease_seconds = 2

    def __call__(self, name, text):
        file = self._folder / f"{name}.toml"
        file.write_text(
            f'keys_file = "{self._folder}/keys.toml"\ndata_dir = "{self._folder}/data"\n'
            f"lease_seconds = {self.lease_seconds}\n{CONFIG}{text}"
        )
        return file


@pytest.fixture
def configs(tmp_path):
    return Configs(tmp_path)


class Process:
    """`antiphon` in a process of its own, once it has said what it is."""

    def __init__(self, *arguments, last="  at once"):
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # Its log must not fill the pipe.
        self.log = []
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self._reader.start()
        self.banner = ""
        for line in self.process.stdout:
            self.banner += line
            if line.startswith(last):
                break

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        status = self.process.wait(timeout=30)
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


@pytest.fixture
def start():
    running = []

    def start(*arguments, **options):
        running.append(Process(*arguments, **options))
        return running[-1]

    yield start
    for process in running:
        if process.process.returncode is None:
            process.end()


@pytest.fixture
def worker(start):
    return lambda config, *flags: start("-m", "antiphon", "worker", "--config", config, *flags)


@pytest.fixture
def front(start, configs):
    """The address of a front."""

    def serve():
        given = ("-m", "antiphon", "serve", "--no-engine", "--config", configs("front", ""))
        return re.search(r"base URL +(\S+)/v1", start(*given, last="  curl").banner)[1]

    return serve


def test_a_front_and_a_worker_answer_together(worker, front, configs):
    process = worker(configs("speaks", SPEAKS))
    assert "demo" in process.banner
    assert "antiphon.db" in process.banner
    assert "32 responses" in process.banner
    url = f"{front()}/v1/responses"
    answer = httpx.post(url, json={"input": "Hi"}, timeout=30).json()
    assert answer["output"][0]["content"][0]["text"] == "Hello from a worker."
    stream = parse_stream(httpx.post(url, json={"input": "Hi", "stream": True}, timeout=30))
    assert stream.text() == "Hello from a worker."
    assert stream.done
    assert process.end(signal.SIGTERM) == 128 + signal.SIGTERM
    ended = [line for line in map(json.loads, process.log) if line["event"] == "response"]
    assert [line["outcome"] for line in ended] == ["completed", "completed"]
    # Processes on one file hear of one another within a second.
    models = url.replace("/responses", "/models")
    deadline = time.monotonic() + 30
    while httpx.get(models).json()["data"]:
        assert time.monotonic() < deadline
    assert httpx.post(url, json={"input": "Hi"}, timeout=30).status_code == 503


def test_what_a_killed_worker_had_not_begun_to_say_another_makes(worker, front, configs):
    first = worker(configs("hangs", HANGS))
    body = {"input": "Hi", "stream": True, "background": True}
    with httpx.stream("POST", f"{front()}/v1/responses", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        while next(lines) != "event: response.in_progress":
            pass
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        worker(configs("speaks", SPEAKS))
        rest = list(lines)
    assert rest.count("event: response.completed") == 1
    assert "event: response.failed" not in rest
    numbers = [json.loads(line[6:])["sequence_number"] for line in rest if line[:7] == "data: {"]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_worker_that_is_told_to_stop_leaves_its_work_to_others_at_once(worker, front, configs):
    configs.lease_seconds = 600
    first = worker(configs("hangs", HANGS))
    url = f"{front()}/v1/responses"
    body = {"input": "Hi", "stream": True, "background": True}
    with httpx.stream("POST", url, json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        while next(lines) != "event: response.in_progress":
            pass
        assert first.end(signal.SIGTERM) == 128 + signal.SIGTERM
        worker(configs("speaks", SPEAKS))
        assert list(lines).count("event: response.completed") == 1


STUBBORN = """
from test_worker_process import StubbornModel
import antiphon.models.build
antiphon.models.build.build_models = lambda *_: [StubbornModel()]
from antiphon.cli import main
main()
"""


class StubbornModel(SaidModel):
    """Says something, and never lets go."""

    def __init__(self):
        super().__init__(name="demo")

    async def prepare(self, turn):
        return StubbornGeneration([TextDelta("Once "), asyncio.Event()])


class StubbornGeneration(SaidGeneration):
    async def released(self):
        await asyncio.Event().wait()


def test_the_exit_status_tells_that_a_model_did_not_let_go(start, front, configs, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    config = configs("stubborn", "")
    process = start("-c", STUBBORN, "worker", "--config", config)
    body = {"input": "Hi", "stream": True, "background": True}
    with httpx.stream("POST", f"{front()}/v1/responses", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        while next(lines) != "event: response.output_text.delta":
            pass
        assert process.end(signal.SIGTERM) == 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--state", "memory"], "state memory nothing is shared"),
        (["--state", "off"], "state off nothing is shared"),
        (["--no-engine"], "a worker has an engine"),
        (["--aliases", "a=nope"], "'nope', which is not served"),
    ],
)
def test_a_worker_that_could_do_nothing_does_not_start(configs, flags, said):
    given = ["worker", "--config", str(configs("speaks", SPEAKS)), *flags]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_worker_makes_as_many_at_once_as_it_is_told(worker, configs):
    process = worker(configs("speaks", SPEAKS), "--background-workers", "5")
    assert "5 responses" in process.banner
