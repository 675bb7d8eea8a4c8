"""Opens the keys that seal reasoning, and says what the settings have done with it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from antiphon.responses.reasoning import ReasoningPolicy
from antiphon.responses.sealing import ReasoningSealer, SealingKey
from antiphon.settings import Settings
from antiphon.store.keyring import MasterKeyFile

_KEY_BYTES = 32
_PURPOSE = b"antiphon sealed reasoning"


@dataclass(frozen=True, slots=True)
class _Key:
    secret: bytes = field(repr=False)


def reasoning_policy(settings: Settings) -> ReasoningPolicy:
    """What is done with reasoning. Raises `StartError` if there are no keys, nor can be made."""
    return ReasoningPolicy(
        ReasoningSealer(_keys(settings)),
        hides=settings.hide_reasoning,
        summarises=settings.reasoning_summary == "raw",
    )


def reasoning_keys_file(settings: Settings) -> MasterKeyFile | None:
    """The file of keys that seal reasoning, None where they are in none of their own."""
    if settings.reasoning_keys_file is not None:
        return MasterKeyFile(settings.reasoning_keys_file)
    if settings.encryption_keys_file is not None or settings.state in ("memory", "off"):
        return None
    return MasterKeyFile(settings.data_dir / "reasoning-keys.toml")


def _keys(settings: Settings) -> Sequence[SealingKey]:
    file = reasoning_keys_file(settings)
    if file is not None:
        return file.read_or_create().keys
    if settings.encryption_keys_file is not None:
        return _derived(settings.encryption_keys_file)
    return [_Key(os.urandom(_KEY_BYTES))]


def _derived(path: Path) -> Sequence[SealingKey]:
    """Keys of their own, made of others, so that whoever has those has these."""
    return [
        _Key(HKDF(SHA256(), _KEY_BYTES, salt=None, info=_PURPOSE).derive(key.secret))
        for key in MasterKeyFile(path).read().keys
    ]
