"""The command line, as a user meets it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from tiny_models import CHATML, save

from antiphon import __version__
from antiphon.cli import main
from antiphon.formats.dialects.families import DIALECTS
from antiphon.keys import KeyFile

CONFIG = """
port = 0
log_format = "json"
shutdown_grace_seconds = 0.2

[models.demo]
kind = "scripted"
[[models.demo.scenes]]
match = "slow"
steps = [{ text = "Once upon a time" }, { delay = 60 }]
[[models.demo.scenes]]
steps = [{ text = "Hello from a script.", pieces = 4 }]
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "antiphon.toml"
    file.write_text(f'keys_file = "{tmp_path}/keys.toml"\ndata_dir = "{tmp_path}"\n{CONFIG}')
    return file


def antiphon(*arguments, **options):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


class Process:
    """`antiphon serve` in a process of its own."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "serve", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.banner = ""
        for line in self.process.stdout:
            self.banner += line
            if line.startswith("  curl"):
                break
        else:
            raise AssertionError(self.process.stderr.read())
        self.base_url = re.search(r"base URL +(\S+)/v1", self.banner)[1]

    def stop(self):
        """Tell it to stop; its status and the lines of its log."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=30)
        return self.process.returncode, log.splitlines()


@pytest.fixture
def serve():
    running = []

    def start(*arguments):
        running.append(Process(*arguments))
        return running[-1]

    yield start
    for process in running:
        process.process.kill()
        process.process.communicate()


def test_the_printed_curl_works(serve, config):
    process = serve("--config", config)
    command = process.banner.splitlines()[-1]
    answer = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    response = json.loads(answer.stdout)
    assert response["output"][0]["content"][0]["text"] == "Hello from a script."
    assert "demo" in process.banner
    assert "none needed" in process.banner


@pytest.mark.parametrize(
    ("store", "code"), [(True, "server_restarted"), (False, "server_shutting_down")]
)
def test_sigterm_ends_open_streams_properly(serve, config, store, code):
    process = serve("--config", config)
    body = {"input": "slow", "stream": True, "store": store}
    with httpx.stream("POST", f"{process.base_url}/v1/responses", json=body, timeout=30) as answer:
        text = answer.iter_text()
        seen = ""
        while "Once upon a time" not in seen:
            seen += next(text)
        status, log = process.stop()
        seen += "".join(text)
    kinds = re.findall(r"^event: (.*)$", seen, re.MULTILINE)
    assert kinds[-2:] == ["error", "response.failed"]
    assert f'"code":"{code}"' in seen
    assert seen.endswith("data: [DONE]\n\n")
    assert status == 128 + signal.SIGTERM
    assert not any('"level": "error"' in line for line in log)


def test_prompts_and_answers_stay_out_of_the_log_unless_asked(serve, config):
    for flags, stored, shown in (
        ((), True, False),
        (("--log-content",), True, True),
        (("--log-content",), False, False),
    ):
        process = serve("--config", config, *flags)
        body = {"input": "a private matter", "store": stored}
        httpx.post(f"{process.base_url}/v1/responses", json=body)
        _, log = process.stop()
        lines = [json.loads(line) for line in log if line.startswith("{")]
        response = next(line for line in lines if line["event"] == "response")
        assert response["model"] == "demo"
        assert response["outcome"] == "completed"
        assert response["request_id"].startswith("req_")
        text = "\n".join(log)
        assert ("a private matter" in text) is shown
        assert ("Hello from a script" in text) is shown


def test_beyond_this_machine_a_key_is_needed(config):
    result = antiphon("serve", "--config", config, "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "antiphon keys new" in result.output
    assert "--insecure" in result.output


def test_with_a_key_it_may_be_reached_from_elsewhere(serve, config, tmp_path):
    key = KeyFile(tmp_path / "keys.toml").add("laptop")
    process = serve("--config", config, "--host", "0.0.0.0")
    assert "Authorization: Bearer $ANTIPHON_KEY" in process.banner
    command = process.banner.splitlines()[-1]
    answer = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ANTIPHON_KEY": key},
    )
    assert json.loads(answer.stdout)["status"] == "completed"


def test_a_taken_port_is_one_sentence(config):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = antiphon("serve", "--config", config, "--port", taken.getsockname()[1])
    assert result.exit_code == 2
    assert "in use" in result.output
    assert "--port" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--port", "abc"], "setting port (flag)"),
        (["serve", "--model", "./missing.gguf", "--port", "0"], "missing.gguf does not exist"),
        (["serve", "--aliases", "a=nope", "--port", "0"], "'nope', which is not served"),
        (["serve", "--config", "missing.toml"], "missing.toml"),
    ],
)
def test_what_keeps_it_from_starting_is_one_sentence(arguments, said, config):
    if "--config" not in arguments and "--model" not in arguments:
        arguments = [*arguments, "--config", str(config)]
    result = antiphon(*arguments)
    assert result.exit_code == 2
    assert "antiphon: " in result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_keys_are_made_listed_and_revoked(config):
    made = antiphon("keys", "new", "--name", "laptop", "--config", config)
    key = made.stdout.strip()
    assert key.startswith("sk-antiphon-")
    listed = antiphon("keys", "list", "--config", config).output
    assert "laptop" in listed and key not in listed
    hashed = antiphon("keys", "hash", input=f"{key}\n").output.strip()
    assert hashed.startswith("sha256:")
    assert antiphon("keys", "revoke", "laptop", "--config", config).exit_code == 0
    assert antiphon("keys", "list", "--config", config).output == ""
    again = antiphon("keys", "revoke", "laptop", "--config", config)
    assert again.exit_code == 2
    assert "no key named 'laptop'" in again.output


def test_settings_are_printed_with_their_origin(config):
    output = antiphon("settings", "--config", config, "--strict").output
    lines = {line.split()[0]: line.split()[1:] for line in output.splitlines()}
    assert lines["strict"] == ["true", "flag"]
    assert lines["port"] == ["0", "file", str(config)]
    assert lines["host"] == ["127.0.0.1", "default"]
    assert lines["models"][0] == "demo"


def test_the_document_is_printed_in_every_form(tmp_path):
    assert json.loads(antiphon("spec", "--format", "json").output)["openapi"] == "3.1.1"
    assert antiphon("spec").output.startswith("openapi: 3.1.1")
    page = tmp_path / "site" / "index.html"
    antiphon("spec", "--format", "html", "--output", page)
    assert "<title>antiphon: API reference</title>" in page.read_text()


def test_served_models_are_listed_with_how_they_are_understood(tmp_path, config):
    model = save(tmp_path / "tiny", template=CHATML)
    with config.open("a") as file:
        file.write(f'[models.tiny]\npath = "{model}"\n')
    lines = antiphon("models", "list", "--config", config).output.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["demo", "-", "its", "scenes", "any"],
        ["tiny", "generic", "a", "text", "-"],
    ]


def test_a_dialect_that_there_is_not_is_refused_with_those_that_there_are(tmp_path, config):
    model = save(tmp_path / "tiny", template=CHATML)
    with config.open("a") as file:
        file.write(f'[models.tiny]\npath = "{model}"\ndialect = "martian"\n')
    for command in (["models", "list"], ["serve"]):
        result = antiphon(*command, "--config", config)
        assert result.exit_code == 2
        assert "there is no dialect 'martian'; it is one of hermes," in result.output


def test_dialects_are_listed_with_an_example_each():
    lines = dict(
        line.split(maxsplit=1) for line in antiphon("models", "dialects").output.splitlines()
    )
    assert set(lines) == set(DIALECTS)
    assert lines["mistral-v13"] == '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo", "days": 3}'


def test_the_version_is_told():
    assert __version__ in antiphon("--version").output


def test_commands_are_explained():
    for command in ([], ["serve"], ["keys", "new"], ["models", "list"], ["settings"], ["spec"]):
        result = antiphon(*command, "--help")
        assert result.exit_code == 0
        assert "Usage:" in result.output


def test_readme_and_settings_agree():
    readme = Path(__file__).parent.parent / "README.md"
    assert antiphon("settings", "--markdown").output in readme.read_text()
