"""How bytes of clients are written down, and told from damaged ones when they are read.

Sealed bytes begin with a byte that tells their form:

    0  CRC-32 of place and data, data                 without encryption
    1  nonce (12 bytes), AES-256-GCM of data, its tag  (16 bytes); the place is authenticated too

Every owner has a data key of their own, and what is kept of it is sealed by a master key. So who
forgets an owner's data key makes all that it sealed unreadable, in every copy of the database.
Whoever can write to the database can still put form 0 where form 1 was: encryption keeps what is
stored secret, it does not make the database trustworthy.
"""

import hashlib
import hmac
import os
import zlib
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.store.failures import Corrupt
from antiphon.store.keyring import MasterKeys

_PLAIN = 0
_ENCRYPTED = 1
_PLAIN_HEAD = b"\x00"
_ENCRYPTED_HEAD = b"\x01"
_CRC_BYTES = 4
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_BYTES = 32


class Box(Protocol):
    """Seals and opens the bytes of one owner. Safe to use from several threads.

    `place` says where sealed bytes belong, such as `item:msg_1`: they open nowhere else.
    """

    def seal(self, plain: bytes, place: str) -> bytes: ...

    def open(self, sealed: bytes, place: str) -> bytes:
        """What was sealed. Raises `Corrupt` if it is damaged, from elsewhere or of another key."""
        ...

    def digest(self, plain: bytes) -> bytes:
        """32 bytes that are the same for the same content, and tell strangers nothing of it."""
        ...


class Sealer(Protocol):
    """Makes data keys, and boxes of them."""

    def new_data_key(self) -> bytes | None:
        """A data key for a new owner, itself sealed. None if owners have none."""
        ...

    def wants_key(self, data_key: bytes | None) -> bool:
        """Whether an owner with this one should be given a new one before anything is written:
        they stored something before there was encryption."""
        ...

    def box(self, data_key: bytes | None) -> Box:
        """The box of an owner. Raises `Corrupt` if the data key cannot be opened."""
        ...


class PlainSealer:
    """Does not encrypt. What earlier was encrypted does not open."""

    def new_data_key(self) -> bytes | None:
        return None

    def wants_key(self, data_key: bytes | None) -> bool:
        return False

    def box(self, data_key: bytes | None) -> Box:
        return _PlainBox()


class AesSealer:
    """Encrypts with AES-256-GCM under data keys that `master_keys` seal.

    Nonces are random, so a data key should seal no more than 2^32 times, as NIST SP 800-38D has it.
    """

    def __init__(self, master_keys: MasterKeys) -> None:
        self._master_keys = master_keys

    def new_data_key(self) -> bytes | None:
        return self._master_keys.wrap(os.urandom(_KEY_BYTES))

    def wants_key(self, data_key: bytes | None) -> bool:
        return data_key is None

    def box(self, data_key: bytes | None) -> Box:
        """The box of an owner; for one without data key, one that seals without encryption."""
        if data_key is None:
            return _PlainBox()
        return _AesBox(self._master_keys.unwrap(data_key))


class _PlainBox:
    def seal(self, plain: bytes, place: str) -> bytes:
        return b"".join((_PLAIN_HEAD, _checksum(plain, place), plain))

    def open(self, sealed: bytes, place: str) -> bytes:
        form = sealed[0] if sealed else None
        if form == _ENCRYPTED:
            raise Corrupt(f"{place} is encrypted and there are no encryption keys")
        return _open_plain(sealed, place)

    def digest(self, plain: bytes) -> bytes:
        return hashlib.sha256(plain).digest()


class _AesBox:
    def __init__(self, data_key: bytes) -> None:
        self._aes = AESGCM(hmac.digest(data_key, b"antiphon seal", "sha256"))
        self._digest_key = hmac.digest(data_key, b"antiphon digest", "sha256")

    def seal(self, plain: bytes, place: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return b"".join((_ENCRYPTED_HEAD, nonce, self._aes.encrypt(nonce, plain, place.encode())))

    def open(self, sealed: bytes, place: str) -> bytes:
        if not sealed or sealed[0] != _ENCRYPTED:
            return _open_plain(sealed, place)
        begin = 1 + _NONCE_BYTES
        if len(sealed) < begin + _TAG_BYTES:
            raise Corrupt(f"{place} is cut off")
        try:
            return self._aes.decrypt(sealed[1:begin], sealed[begin:], place.encode())
        except InvalidTag:
            raise Corrupt(f"{place} is damaged, or sealed by another key") from None

    def digest(self, plain: bytes) -> bytes:
        return hmac.digest(self._digest_key, plain, "sha256")


def _open_plain(sealed: bytes, place: str) -> bytes:
    begin = 1 + _CRC_BYTES
    if len(sealed) < begin:
        raise Corrupt(f"{place} is cut off")
    if sealed[0] != _PLAIN:
        raise Corrupt(f"{place} is in no form that is known")
    plain = sealed[begin:]
    if sealed[1:begin] != _checksum(plain, place):
        raise Corrupt(f"{place} is damaged")
    return plain


def _checksum(plain: bytes, place: str) -> bytes:
    return zlib.crc32(plain, zlib.crc32(place.encode())).to_bytes(_CRC_BYTES, "big")
