"""Sealed reasoning: what was sealed comes back to its owner, and nothing else is taken."""

import base64
import os
import zlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidEncryptedContent
from antiphon.principal import Principal
from antiphon.responses.sealing import ReasoningSealer, SealedReasoning

ANNA, BERT = Principal("key_anna"), Principal("key_bert")


@dataclass(frozen=True)
class Key:
    secret: bytes


KEYS = [Key(os.urandom(32)) for _ in range(3)]
SEALER = ReasoningSealer(KEYS[:1])


def refused(
    sealer: ReasoningSealer, sealed: str, owner: Principal = ANNA
) -> InvalidEncryptedContent:
    with pytest.raises(InvalidEncryptedContent) as caught:
        sealer.open(owner, sealed, param="input[1].encrypted_content")
    assert caught.value.param == "input[1].encrypted_content" and caught.value.status == 400
    return caught.value


@given(st.text(), st.text(max_size=20))
def test_what_was_sealed_comes_back(text: str, family: str):
    sealed = SEALER.seal(ANNA, family, text)
    assert SEALER.open(ANNA, sealed, param="x") == SealedReasoning(text, family)


def test_no_two_seals_are_the_same_and_none_tells_anything():
    sealed = {SEALER.seal(ANNA, "qwen3", "my secret thought") for _ in range(100)}
    assert len(sealed) == 100
    assert not any(b"secret" in base64.urlsafe_b64decode(each) for each in sealed)


def test_rsn_04_another_owner_gets_nothing():
    refused(SEALER, SEALER.seal(ANNA, "qwen3", "thought"), BERT)


def test_rotated_keys_still_open_and_removed_ones_do_not():
    sealed = SEALER.seal(ANNA, "qwen3", "thought")
    rotated = ReasoningSealer([KEYS[1], KEYS[0]])
    assert rotated.open(ANNA, sealed, param="x").text == "thought"
    refused(SEALER, rotated.seal(ANNA, "qwen3", "thought"))
    refused(ReasoningSealer(KEYS[1:]), sealed)


def test_every_changed_byte_is_noticed():
    data = base64.urlsafe_b64decode(SEALER.seal(ANNA, "qwen3", "thought"))
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        refused(SEALER, base64.urlsafe_b64encode(changed).decode())


@pytest.mark.parametrize("sealed", ["", "x", "gAAAAABpAGzY", "=", "é", "AQ==", "A" * 1000])
def test_what_was_never_sealed_is_refused(sealed):
    refused(SEALER, sealed)


@given(st.text())
def test_any_text_is_refused_and_nothing_breaks(sealed: str):
    refused(SEALER, sealed)


def test_what_would_grow_without_bound_is_refused():
    from antiphon.responses import sealing

    head = b"\x01" + sealing._id_of(KEYS[0].secret)
    nonce = os.urandom(12)
    bomb = zlib.compress(b" " * (9 * 2**20))
    cipher = SEALER._ciphers[sealing._id_of(KEYS[0].secret)]
    data = head + nonce + cipher.encrypt(nonce, bomb, sealing._bound(head, ANNA))
    refused(SEALER, base64.urlsafe_b64encode(data).decode())


def test_long_sealed_texts_are_not_repeated_in_the_message():
    sealed = "Q" * 500
    assert len(refused(SEALER, sealed).message) < 100
