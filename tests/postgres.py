"""A PostgreSQL server for tests, in a folder of its own and gone with it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

#: Who runs it where the tests are run by root, whom PostgreSQL refuses.
_USERS = ("postgres", "nobody")
_OPTIONS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
    # Nobody needs the data after a crash of the machine.
    "fsync": "off",
    "full_page_writes": "off",
}

_INITDB = ("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")


class NoPostgres(Exception):
    """There is none on this machine."""


class Postgres:
    """A running server. Its databases are used through a socket in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._admin = psycopg.connect(host=str(folder), user="antiphon", dbname="postgres")
        self._admin.autocommit = True

    def url(self, name: str) -> str:
        """A database's URL."""
        return f"postgresql://antiphon@/{name}?host={self._folder}"

    def create(self, template: str = "template1") -> str:
        """The name of a new database, a copy of `template`, to which nobody may be connected."""
        name = f"test_{next(self._numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return name

    def drop(self, name: str) -> None:
        """Delete a database, whoever is connected."""
        self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def disconnect(self, name: str) -> int:
        """Close all connections to a database, as a restart does. Returns their number."""
        return self._admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        ).rowcount

    def close(self) -> None:
        self._admin.close()


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a server. Raises `NoPostgres`."""
    bin_folder = _bin_folder()
    who = _who()
    folder = Path(tempfile.mkdtemp(prefix="antiphon-pg-"))
    data = folder / "data"
    try:
        if who:
            shutil.chown(folder, who["user"], who["group"])
        _run(
            [bin_folder / "initdb", "-D", data, "-U", "antiphon", *_INITDB],
            who,
        )
        options = " ".join(f"-c {name}='{value}'" for name, value in _OPTIONS.items())
        control = [bin_folder / "pg_ctl", "-D", data, "-s", "-w"]
        _run([*control, "-l", folder / "log", "-o", f"-k {folder} {options}", "start"], who)
        try:
            server = Postgres(folder)
            try:
                yield server
            finally:
                server.close()
        finally:
            _run([*control, "-m", "immediate", "stop"], who)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bin_folder() -> Path:
    """Where the server's programs are."""
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if all((place / name).exists() for name in ("postgres", "initdb", "pg_ctl")):
            return place
    raise NoPostgres("PostgreSQL is not installed (Debian: apt-get install postgresql)")


def _who() -> dict[str, Any]:
    """What makes a subprocess somebody else's, if it must be."""
    if os.geteuid() != 0:
        return {}
    for name in _USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NoPostgres(f"PostgreSQL does not run as root, and there is no user {_USERS[-1]}")


def _run(command: list[Any], who: dict[str, Any]) -> None:
    # Not captured: the server would hold the pipe open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, stdout=output, stderr=output, cwd="/", **who)
        output.seek(0)
        assert done.returncode == 0, output.read().decode(errors="replace")
