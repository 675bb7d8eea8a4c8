"""Reasoning that only this server can read, to be carried by its clients.

The sealed form is base64url of: version 1, the first 4 bytes of the SHA-256 of the key, a random
nonce of 12 bytes, and the AES-256-GCM of a deflated JSON object. Version, key and owner are bound
to it as associated data. It is of no use to another owner, and says of which family of models the
reasoning is, as others cannot go on from it. Items' ids are not bound: clients leave them out.
"""

import base64
import binascii
import hashlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.errors import InvalidEncryptedContent
from antiphon.principal import Principal

#: Sealing is done between two events: three times as fast as usual, for some more bytes.
_FAST = 1
_VERSION = b"\x01"
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12
_HEAD_BYTES = len(_VERSION) + _KEY_ID_BYTES
#: What a sealed text may grow to when it is opened. It comes from clients.
_MAX_BYTES = 8 * 2**20


class SealingKey(Protocol):
    """A key of 32 bytes."""

    @property
    def secret(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class SealedReasoning:
    """What was sealed: the text, and the family of the model that thought it."""

    text: str
    family: str


class ReasoningSealer:
    """Seals with the first of `keys`, and opens with any of them."""

    def __init__(self, keys: Sequence[SealingKey]) -> None:
        self._ciphers = {_id_of(key.secret): AESGCM(key.secret) for key in keys}
        self._active = _id_of(keys[0].secret)

    def seal(self, principal: Principal, family: str, text: str) -> str:
        """The sealed form of an item's reasoning."""
        head = _VERSION + self._active
        nonce = os.urandom(_NONCE_BYTES)
        content = zlib.compress(orjson.dumps({"family": family, "text": text}), _FAST)
        sealed = self._ciphers[self._active].encrypt(nonce, content, _bound(head, principal))
        return base64.urlsafe_b64encode(head + nonce + sealed).decode()

    def open(self, principal: Principal, sealed: str, *, param: str) -> SealedReasoning:
        """What was sealed. Raises `InvalidEncryptedContent` for whatever was not sealed here for
        this owner; `param` is where it stands."""
        try:
            data = base64.b64decode(sealed.encode("ascii"), b"-_", validate=True)
            head, rest = data[:_HEAD_BYTES], data[_HEAD_BYTES:]
            cipher = self._ciphers[head[len(_VERSION) :]]
            nonce, content = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
            plain = cipher.decrypt(nonce, content, _bound(head, principal))
            found = orjson.loads(_inflated(plain))
            return SealedReasoning(found["text"], found["family"])
        except (
            *(KeyError, InvalidTag, zlib.error, orjson.JSONDecodeError),
            *(binascii.Error, UnicodeEncodeError, ValueError),
        ) as error:
            raise InvalidEncryptedContent(
                f"The encrypted content {_shown(sealed)} could not be verified.", param=param
            ) from error


def _bound(head: bytes, principal: Principal) -> bytes:
    return head + b"|" + principal.id.encode()


def _id_of(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()[:_KEY_ID_BYTES]


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    content = inflater.decompress(data, _MAX_BYTES)
    if not inflater.eof:
        raise ValueError("too large, or cut off")
    return content


def _shown(sealed: str) -> str:
    return sealed if len(sealed) <= 16 else f"{sealed[:4]}...{sealed[-4:]}"
