"""Installs clients, each Python one by itself, so that what one needs cannot break another."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from client_harness.clients import DRIVERS, Client

_JS_FILES = ("package.json", "package-lock.json")


class Environments:
    """Folders below `folder` with what clients need. They are used again while it is the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, client: Client) -> list[str]:
        """What runs a client's driver. Raises `CalledProcessError` if it cannot be installed."""
        if client.is_python and client.packages:
            return [str(self._python(client)), str(client.driver)]
        packages = self._javascript()
        if client.is_python:
            return [sys.executable, str(client.driver)]
        for file in client.driver.parent.glob("*.mjs"):  # Packages are found beside a script.
            shutil.copy(file, packages)
        return [str(packages / "node_modules/.bin/node"), str(packages / client.driver.name)]

    @property
    def javascript(self) -> Path:
        """Where npm's packages and drivers are."""
        return self._folder / "js"

    def _python(self, client: Client) -> Path:
        place = self._folder / client.id
        python = place / "bin" / "python"
        if not _is_current(place, "\n".join(client.packages)):
            _run(sys.executable, "-m", "venv", "--clear", str(place))
            _run(str(python), "-m", "pip", "install", "--quiet", *client.packages)
            _mark(place, "\n".join(client.packages))
        return python

    def _javascript(self) -> Path:
        source = DRIVERS / "js"
        state = "\n".join((source / name).read_text("utf-8") for name in _JS_FILES)
        if not _is_current(self.javascript, state):
            self.javascript.mkdir(parents=True, exist_ok=True)
            for name in _JS_FILES:
                shutil.copy(source / name, self.javascript)
            _run("npm", "ci", "--loglevel=error", "--no-audit", "--no-fund", folder=self.javascript)
            _mark(self.javascript, state)
        return self.javascript


def _run(*command: str, folder: Path | None = None) -> None:
    # What antiphon is held to need not suit its clients.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    subprocess.run(command, check=True, cwd=folder, env=environment, stdout=sys.stderr)


def _is_current(place: Path, state: str) -> bool:
    stamp = place / ".installed"
    return stamp.is_file() and stamp.read_text("utf-8") == _digest(state)


def _mark(place: Path, state: str) -> None:
    (place / ".installed").write_text(_digest(state), "utf-8")


def _digest(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()
