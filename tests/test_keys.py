"""Making, keeping and revoking keys."""

import os
import stat

import pytest

from antiphon import keys as keys_module
from antiphon.keys import KeyFile, KeyFileError, KeyRing, hash_key
from antiphon.principal import ANONYMOUS


@pytest.fixture
def file(tmp_path):
    return KeyFile(tmp_path / "deep" / "keys.toml")


@pytest.fixture
def clock(monkeypatch):
    """Makes every look at a ring the first in a long time."""
    monkeypatch.setattr(keys_module, "_CHECK_SECONDS", 0.0)


def test_a_key_is_kept_as_a_hash_that_only_the_owner_can_read(file):
    key = file.add("laptop")
    text = file.path.read_text()
    assert key not in text
    assert hash_key(key) in text
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600


def test_keys_are_told_apart_and_never_repeat(file):
    made = [file.add(f"key-{n}") for n in range(5)]
    assert len(set(made)) == 5
    ring = KeyRing(file)
    owners = [ring.identify(key) for key in made]
    assert len({owner.id for owner in owners}) == 5
    assert ring.identify(made[0]) == owners[0]


def test_a_wrong_key_is_nobody(file):
    key = file.add("laptop")
    ring = KeyRing(file)
    for wrong in (None, "", key[:-1], key + "x", key.upper(), "é"):
        assert ring.identify(wrong) is None


def test_without_any_key_everybody_is_let_in(file):
    ring = KeyRing(file)
    assert ring.open
    assert ring.identify(None) is ANONYMOUS
    assert ring.identify("whatever") is ANONYMOUS


def test_a_revoked_key_stops_working_without_a_restart(file, clock):
    first, second = file.add("first"), file.add("second")
    ring = KeyRing(file)
    file.remove("first")
    assert ring.identify(first) is None
    assert ring.identify(second) is not None


def test_revoking_the_last_key_does_not_open_the_server(file, clock):
    key = file.add("only")
    ring = KeyRing(file)
    file.remove("only")
    assert ring.identify(key) is None
    assert ring.identify(None) is None


def test_the_first_key_closes_an_open_server(file, clock):
    ring = KeyRing(file)
    assert ring.identify(None) is ANONYMOUS
    key = file.add("first")
    assert ring.identify(None) is None
    assert ring.identify(key) is not None
    file.path.unlink()
    assert ring.identify(None) is None


def test_names_are_checked_and_unique(file):
    file.add("a")
    with pytest.raises(KeyFileError, match="already"):
        file.add("a")
    for bad in ("", "two words", 'quote"', "x" * 65, "-x"):
        with pytest.raises(KeyFileError, match="no name"):
            file.add(bad)
    with pytest.raises(KeyFileError, match="no key named 'b'"):
        file.remove("b")


@pytest.mark.parametrize(
    "content",
    ["not toml =", '[[keys]]\nname = "a"\n', '[[keys]]\nname = "a"\nhash = "x"\ncreated = ""\n'],
)
def test_a_damaged_file_is_an_error_that_names_it(file, content):
    file.path.parent.mkdir()
    file.path.write_text(content)
    with pytest.raises(KeyFileError, match=r"keys\.toml"):
        KeyRing(file)


def test_a_file_that_breaks_while_serving_keeps_the_last_keys(file, clock):
    key = file.add("laptop")
    ring = KeyRing(file)
    file.path.write_text("not toml =")
    assert ring.identify(key) is not None
    assert ring.identify("wrong") is None
