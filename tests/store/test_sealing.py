"""What is sealed opens in its place only, and tells a stranger nothing."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.store.failures import Corrupt
from antiphon.store.keyring import MasterKey, MasterKeys
from antiphon.store.sealing import AesSealer, Box, PlainSealer

PLAIN = b'event: response.output_text.delta\ndata: {"delta":"a secret"}\n\n'
PLACE = "event:resp_1:7"


def master_key(name: str = "mk_1") -> MasterKey:
    return MasterKey(name, "2026-01-01T00:00:00+00:00", os.urandom(32))


@pytest.fixture
def sealer() -> AesSealer:
    return AesSealer(MasterKeys([master_key()]))


@pytest.fixture(params=["plain", "encrypted"])
def box(request, sealer) -> Box:
    chosen = sealer if request.param == "encrypted" else PlainSealer()
    return chosen.box(chosen.new_data_key())


@given(plain=st.binary(max_size=300), place=st.text(max_size=40).filter(str.isprintable))
def test_what_was_sealed_is_what_opens(plain, place):
    for sealer in (PlainSealer(), AesSealer(MasterKeys([master_key()]))):
        box = sealer.box(sealer.new_data_key())
        assert box.open(box.seal(plain, place), place) == plain


def test_damage_to_any_byte_is_noticed(box):
    sealed = box.seal(PLAIN, PLACE)
    for position in range(len(sealed)):
        for flipped in (0x01, 0x80):
            damaged = bytearray(sealed)
            damaged[position] ^= flipped
            with pytest.raises(Corrupt, match=PLACE):
                box.open(bytes(damaged), PLACE)


def test_bytes_that_are_cut_off_are_noticed(box):
    sealed = box.seal(PLAIN, PLACE)
    for length in range(len(sealed)):
        with pytest.raises(Corrupt, match=PLACE):
            box.open(sealed[:length], PLACE)


def test_nothing_opens_in_another_place(box):
    sealed = box.seal(PLAIN, PLACE)
    with pytest.raises(Corrupt):
        box.open(sealed, "event:resp_1:8")


def test_an_unknown_form_is_refused(box):
    with pytest.raises(Corrupt, match="no form that is known"):
        box.open(b"\x07" + bytes(40), PLACE)


def test_encrypted_bytes_hold_nothing_of_the_content_and_never_repeat(sealer):
    box = sealer.box(sealer.new_data_key())
    sealed = [box.seal(PLAIN, PLACE) for _ in range(20)]
    assert len(set(sealed)) == 20
    for one in sealed:
        assert not any(PLAIN[i : i + 4] in one for i in range(len(PLAIN) - 3))
        assert len(one) == len(PLAIN) + 29


def test_another_owners_box_opens_nothing(sealer):
    sealed = sealer.box(sealer.new_data_key()).seal(PLAIN, PLACE)
    with pytest.raises(Corrupt, match="another key"):
        sealer.box(sealer.new_data_key()).open(sealed, PLACE)


def test_what_was_stored_before_encryption_still_opens(sealer):
    sealed = PlainSealer().box(None).seal(PLAIN, PLACE)
    assert sealer.box(sealer.new_data_key()).open(sealed, PLACE) == PLAIN
    assert sealer.box(None).open(sealed, PLACE) == PLAIN


def test_an_owner_from_before_encryption_wants_a_key_and_others_do_not(sealer):
    assert sealer.wants_key(None)
    assert not sealer.wants_key(sealer.new_data_key())
    assert not PlainSealer().wants_key(None)


def test_without_keys_what_is_encrypted_says_that_they_are_missing(sealer):
    data_key = sealer.new_data_key()
    sealed = sealer.box(data_key).seal(PLAIN, PLACE)
    for box in (PlainSealer().box(data_key), sealer.box(None)):
        with pytest.raises(Corrupt, match="no encryption key"):
            box.open(sealed, PLACE)


def test_a_data_key_is_only_kept_sealed(sealer, monkeypatch):
    made = []
    monkeypatch.setattr(os, "urandom", lambda size: made.append(bytes(range(size))) or made[-1])
    data_key = sealer.new_data_key()
    assert made[0] not in data_key


def test_digests_are_the_same_for_one_owner_only(sealer):
    first, second = (sealer.box(sealer.new_data_key()) for _ in range(2))
    plain = PlainSealer().box(None)
    assert first.digest(PLAIN) == first.digest(bytes(PLAIN))
    assert first.digest(PLAIN) != first.digest(PLAIN + b" ")
    assert len({box.digest(PLAIN) for box in (first, second, plain)}) == 3
    assert {len(box.digest(PLAIN)) for box in (first, plain)} == {32}


def test_digests_outlive_the_process():
    keys = MasterKeys([master_key()])
    data_key = AesSealer(keys).new_data_key()
    assert AesSealer(keys).box(data_key).digest(PLAIN) == AesSealer(keys).box(data_key).digest(
        PLAIN
    )
