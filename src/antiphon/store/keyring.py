"""The master keys that seal the data keys of owners, and the file that holds them.

Losing the file loses everything that was encrypted. A new key is put first and seals from then on;
the older ones still open what they sealed, until `rewrap` has sealed it anew and they can go.
"""

import base64
import binascii
import os
import re
import secrets
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, select, update

from antiphon.errors import StartError
from antiphon.store.failures import Corrupt
from antiphon.store.schema import owners

_FORM = b"\x01"
_NONCE_BYTES = 12
_KEY_BYTES = 32
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: How long making a ring may take another process.
_BEGUN_SECONDS = 5
_BACKUP = (
    "Keep a copy of the file in a safe place: without it nothing that is encrypted can be read."
)


class KeyRingError(StartError):
    """The file of master keys is not usable, or a key cannot be removed. The message says how."""


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A key of 32 random bytes, its name and when it was made (ISO 8601)."""

    id: str
    created: str
    secret: bytes = field(repr=False)


class MasterKeys:
    """Some master keys; the first one seals. There is at least one."""

    def __init__(self, keys: Sequence[MasterKey]) -> None:
        self._keys = tuple(keys)
        self._ciphers = {key.id: AESGCM(key.secret) for key in keys}

    @property
    def keys(self) -> Sequence[MasterKey]:
        """All of them, the active one first."""
        return self._keys

    @property
    def active(self) -> MasterKey:
        """The one that seals."""
        return self._keys[0]

    def wrap(self, data_key: bytes) -> bytes:
        """Seal a data key with the active key, whose id stands before it."""
        head = _head(self.active.id)
        nonce = os.urandom(_NONCE_BYTES)
        return b"".join((head, nonce, self._ciphers[self.active.id].encrypt(nonce, data_key, head)))

    def unwrap(self, wrapped: bytes) -> bytes:
        """Open a data key. Raises `Corrupt`, also if its master key is not among these."""
        name = master_key_of(wrapped)
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise Corrupt(f"the encryption key {name!r} is not in the key ring")
        head = _head(name)
        begin = len(head) + _NONCE_BYTES
        try:
            return cipher.decrypt(wrapped[len(head) : begin], wrapped[begin:], head)
        except (InvalidTag, ValueError):  # The second where it is cut off.
            raise Corrupt(f"a data key does not open with the encryption key {name!r}") from None


class MasterKeyFile:
    """Master keys in a TOML file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> MasterKeys:
        """All keys. Raises `KeyRingError` if there is no such file, or none that can be used."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise KeyRingError(
                f"there is no key ring {self.path}. Bring it back from a copy; or, if nothing was "
                f"encrypted yet, make a new one with `antiphon store keys new`"
            ) from None
        except (OSError, ValueError) as error:
            raise KeyRingError(f"the key ring {self.path} cannot be read: {error}") from error
        if self.path.stat().st_mode & 0o077:
            raise KeyRingError(
                f"others may read the key ring {self.path}: run `chmod 600 {self.path}`"
            )
        try:
            content = tomllib.loads(text)
        except ValueError as error:
            raise KeyRingError(f"the key ring {self.path} is no TOML: {error}") from None
        return MasterKeys(self._parsed(content))

    def create(self) -> MasterKey:
        """Begin a new ring with one key. Raises `KeyRingError` if there is a file already."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Of two that do this at once one must lose, not its key.
            self.path.touch(mode=0o600, exist_ok=False)
        except OSError as error:
            if not self.path.exists():
                raise self._not_written(error) from error
            raise KeyRingError(
                f"there is a key ring {self.path} already: add a key to it, or move it away"
            ) from None
        key = _new_key()
        self._write([key])
        return key

    def read_or_create(self) -> MasterKeys:
        """All keys, one new one if there is no file. Raises `KeyRingError`."""
        if not self.path.exists():
            try:
                self.create()
            except KeyRingError:
                if not self.path.exists():
                    raise
        # Another process may just have begun it.
        deadline = time.monotonic() + _BEGUN_SECONDS
        while not self.path.stat().st_size and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.read()

    def add(self) -> MasterKey:
        """Make a key that seals from now on. Raises `KeyRingError`."""
        key = _new_key()
        self._write([key, *self.read().keys])
        return key

    def remove(self, name: str, in_use: Mapping[str, int]) -> None:
        """Forget a key that seals no data key any more. `in_use` is what `count_wrapped` says.

        Raises `KeyRingError` if it still seals some, is the active one, or is not there.
        """
        keys = self.read().keys
        if all(key.id != name for key in keys):
            raise KeyRingError(f"there is no key {name!r} in {self.path}")
        if name == keys[0].id:
            raise KeyRingError(f"the key {name!r} is the active one: add another one first")
        if in_use.get(name):
            raise KeyRingError(
                f"the key {name!r} still seals {in_use[name]} data keys: seal them with the active "
                f"key first, with `antiphon store keys rewrap`"
            )
        self._write([key for key in keys if key.id != name])

    def _parsed(self, content: Mapping[str, Any]) -> Sequence[MasterKey]:
        keys = []
        try:
            for entry in content.get("keys", []):
                secret = base64.b64decode(entry["secret"], validate=True)
                keys.append(MasterKey(str(entry["id"]), str(entry.get("created", "")), secret))
        except (TypeError, KeyError, AttributeError, binascii.Error, ValueError):
            raise KeyRingError(
                f"the key ring {self.path} is damaged: a key needs id, created and secret, in "
                f"base64. Bring the file back from a copy"
            ) from None
        for key in keys:
            if not _ID.fullmatch(key.id) or len(key.secret) != _KEY_BYTES:
                raise KeyRingError(
                    f"the key ring {self.path} is damaged: {key.id!r} is no id, or its secret is "
                    f"not of {_KEY_BYTES} bytes. Bring the file back from a copy"
                )
        if len({key.id for key in keys}) != len(keys):
            raise KeyRingError(f"the key ring {self.path} names a key twice")
        if not keys:
            raise KeyRingError(f"the key ring {self.path} holds no key. Bring it back from a copy")
        return keys

    def _write(self, keys: Sequence[MasterKey]) -> None:
        lines = ["# Encryption keys of antiphon; the first one is active.", f"# {_BACKUP}"]
        for key in keys:
            lines += ["", "[[keys]]", f'id = "{key.id}"', f'created = "{key.created}"']
            lines += [f'secret = "{base64.b64encode(key.secret).decode()}"']
        try:
            # Replaced as a whole and synced before, as half a ring would lose what is encrypted;
            # 0600 from mkstemp.
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise self._not_written(error) from error

    def _not_written(self, error: OSError) -> KeyRingError:
        return KeyRingError(f"the key ring {self.path} cannot be written: {error.strerror}")


def master_key_of(wrapped: bytes) -> str:
    """The id of the master key that sealed a data key. Raises `Corrupt`."""
    if len(wrapped) < 2 or wrapped[:1] != _FORM or len(wrapped) < 2 + wrapped[1]:
        raise Corrupt("a data key is damaged")
    return wrapped[2 : 2 + wrapped[1]].decode("ascii", "replace")


def count_wrapped(connection: Connection) -> Mapping[str, int]:
    """How many data keys each master key seals, by its id. Raises `Corrupt`."""
    rows = connection.scalars(select(owners.c.data_key).where(owners.c.data_key.is_not(None)))
    return Counter(master_key_of(wrapped) for wrapped in rows)


def rewrap(connection: Connection, master_keys: MasterKeys) -> int:
    """Seal every data key with the active master key. Returns how many were not yet.

    What they seal stays as it is. Raises `Corrupt` if one does not open, and then none changed.
    """
    stale = [
        (key, wrapped)
        for key, wrapped in connection.execute(
            select(owners.c.key, owners.c.data_key).where(owners.c.data_key.is_not(None))
        )
        if master_key_of(wrapped) != master_keys.active.id
    ]
    fresh = [(key, old, master_keys.wrap(master_keys.unwrap(old))) for key, old in stale]
    for key, old, new in fresh:
        # Somebody may have given the owner another data key, or forgotten them, in between.
        unchanged = (owners.c.key == key) & (owners.c.data_key == old)
        connection.execute(update(owners).where(unchanged).values(data_key=new))
    return len(fresh)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _new_key() -> MasterKey:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return MasterKey(f"mk_{secrets.token_hex(4)}", created, os.urandom(_KEY_BYTES))


def _head(name: str) -> bytes:
    raw = name.encode("ascii", "replace")
    return b"".join((_FORM, bytes([len(raw)]), raw))
