"""API keys: made once, shown once, kept as hashes.

A key holds 256 random bits, so a plain SHA-256 of it cannot be turned back, and a fast hash costs
nothing in safety. The file is TOML so that a person can read it, and is read again when it changes,
so that a revoked key stops working without a restart.
"""

import hashlib
import hmac
import os
import re
import secrets
import tempfile
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from antiphon.errors import StartError
from antiphon.principal import ANONYMOUS, Principal

_logger = structlog.get_logger("antiphon.keys")

_PREFIX = "sk-antiphon-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_CHECK_SECONDS = 1.0  # How long a change of the file may go unnoticed.


class KeyFileError(StartError):
    """The key file, or a name given for a key, is not usable. The message says how."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What is kept of a key: a name, its hash as `sha256:…` and when it was made."""

    name: str
    hash: str
    created: str = ""

    @property
    def principal(self) -> Principal:
        """The owner of what the key's holder stores. Named after the hash, which never changes."""
        return Principal(f"key_{self.hash.removeprefix('sha256:')[:16]}")


def hash_key(key: str) -> str:
    """The form that keys are kept in."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def is_hash(value: str) -> bool:
    """Whether a string is the form that keys are kept in."""
    return _HASH.fullmatch(value) is not None


class KeyFile:
    """The keys in a file. A file that does not exist holds none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[StoredKey]:
        """All keys. Raises `KeyFileError` if the file is not what this class writes."""
        try:
            content = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise KeyFileError(f"{self.path} cannot be read: {error}") from error
        try:
            keys = [StoredKey(**entry) for entry in content.get("keys", [])]
        except TypeError as error:
            raise KeyFileError(f"{self.path}: a key needs exactly name, hash, created") from error
        for key in keys:
            if not is_hash(key.hash):
                raise KeyFileError(f"{self.path}: the hash of key {key.name!r} is no SHA-256")
        return keys

    def add(self, name: str) -> str:
        """Make a key, keep its hash under `name` and return the key itself."""
        if not _NAME.fullmatch(name):
            raise KeyFileError(f"{name!r} is no name for a key: use letters, digits, '.', '_', '-'")
        keys = self.read()
        if any(key.name == name for key in keys):
            raise KeyFileError(f"there is already a key named {name!r}")
        key = _PREFIX + secrets.token_urlsafe(32)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        self._write([*keys, StoredKey(name, hash_key(key), created)])
        return key

    def remove(self, name: str) -> None:
        """Forget a key."""
        keys = self.read()
        kept = [key for key in keys if key.name != name]
        if len(kept) == len(keys):
            raise KeyFileError(f"there is no key named {name!r}")
        self._write(kept)

    def _write(self, keys: Iterable[StoredKey]) -> None:
        lines = ["# Keys of antiphon, as SHA-256 hashes. Written by `antiphon keys`."]
        for key in keys:
            lines += ["", "[[keys]]", f'name = "{key.name}"', f'hash = "{key.hash}"']
            lines += [f'created = "{key.created}"']
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Replaced as a whole, so that a server never reads half a file; 0600 from mkstemp.
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        Path(name).replace(self.path)


class KeyRing:
    """Decides who a caller is: by the key file and by hashes from the settings.

    A server without any key is open to everybody, until it has one.
    """

    def __init__(self, file: KeyFile, hashes: Iterable[str] = ()) -> None:
        self._file = file
        self._fixed = [StoredKey("settings", value) for value in hashes]
        self._keys: list[StoredKey] = []
        self._stamp: tuple[int, int] | None = None
        self._checked = 0.0
        self._load()
        self._ever_closed = not self.open

    @property
    def open(self) -> bool:
        """Whether callers need no key."""
        return not self._keys

    def identify(self, key: str | None) -> Principal | None:
        """Who holds `key`; None if nobody does. A wrong key takes as long as a right one."""
        self._refresh()
        if self.open and not self._ever_closed:
            return ANONYMOUS
        if key is None:
            return None
        presented = hash_key(key)
        found = None
        for stored in self._keys:
            if hmac.compare_digest(stored.hash, presented):
                found = stored
        return found.principal if found else None

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            if self._stat() != self._stamp:
                try:
                    self._load()
                except KeyFileError as error:
                    # Half-written by hand, perhaps. The keys that were good a moment ago stay.
                    _logger.error("keys not read", reason=str(error))
                # Revoking the last key must not open the server.
                self._ever_closed = self._ever_closed or not self.open

    def _load(self) -> None:
        self._stamp = self._stat()
        self._keys = [*self._fixed, *self._file.read()]

    def _stat(self) -> tuple[int, int] | None:
        try:
            stat = self._file.path.stat()
        except FileNotFoundError:
            return None
        return stat.st_mtime_ns, stat.st_ino
