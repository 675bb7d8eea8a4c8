"""Starts servers without the second that importing takes, and has them die at marked points.

As a program it reads one command a line, as JSON, and answers each with a line. `start` forks a
process that becomes what `antiphon` with the same arguments would be; `wait` says how one ended.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import marks


class Process:
    """A server that the launcher started."""

    def __init__(self, launcher: "Launcher", pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self._launcher = launcher
        self._pidfd = os.pidfd_open(pid)
        self._status: int | None = None

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._status is not None or bool(select.select([self._pidfd], [], [], 0)[0])

    def signal(self, number: int) -> None:
        """Send it a signal, unless it is gone."""
        if not self.ended:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = 30) -> int:
        """Its exit status, negative where a signal ended it."""
        if self._status is None:
            assert select.select([self._pidfd], [], [], seconds)[0], "it does not end"
            os.close(self._pidfd)
            self._status = self._launcher.ask({"wait": self.pid})
        return self._status


class Launcher:
    """Starts servers. Ends those that are left when it is closed."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("ANTIPHON_")},
        )
        self._started: list[Process] = []

    def start(self, *arguments: str, log: Path, mark: str | None = None, after: int = 1) -> Process:
        """Start `antiphon` with these arguments. It dies when it comes to `mark` for the
        `after`th time."""
        command = {"start": arguments, "log": str(log), "mark": mark, "after": after}
        process = Process(self, self.ask(command), log)
        self._started.append(process)
        return process

    def ask(self, command: dict[str, Any]) -> int:
        """Have the program do something."""
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.write(json.dumps(command) + "\n")
        self._program.stdin.flush()
        return int(self._program.stdout.readline())

    def close(self) -> None:
        """End everything."""
        for process in self._started:
            process.kill()
        self._program.communicate()


def _main() -> None:
    # What a server imports; it starts no threads, which would not survive a fork.
    import antiphon.app
    import antiphon.cli
    import antiphon.console
    import antiphon.models.build
    import antiphon.server
    import antiphon.storage  # noqa: F401
    from antiphon.spec import packaged_contract

    packaged_contract()
    with suppress(ImportError):
        import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            _, status = os.waitpid(command["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                _become(command["start"], command["log"], command["mark"], command["after"])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _become(arguments: Sequence[str], log: str, mark: str | None, after: int) -> None:
    """Be a server, and end."""
    status = 1
    try:
        _redirect(os.devnull, os.O_RDONLY, 0)
        for number in (1, 2):
            _redirect(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, number)
        if mark is not None:
            marks.set_up(mark, after)
        from antiphon.cli import main

        main(list(arguments), prog_name="antiphon")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    finally:
        sys.stdout.flush()
        os._exit(status)


def _redirect(path: str, flags: int, number: int) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, number)
    os.close(opened)


if __name__ == "__main__":
    _main()
