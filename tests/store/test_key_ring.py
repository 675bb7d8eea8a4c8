"""Master keys: the file, rotation, and what remains when a data key is gone."""

import stat

import pytest
from sqlalchemy import create_engine, delete, insert, select, update

from antiphon.store.failures import Corrupt
from antiphon.store.keyring import (
    KeyRingError,
    MasterKeyFile,
    MasterKeys,
    count_wrapped,
    master_key_of,
    rewrap,
)
from antiphon.store.schema import metadata, owners
from antiphon.store.sealing import AesSealer

PLACE = "item:msg_1"


@pytest.fixture
def file(tmp_path) -> MasterKeyFile:
    return MasterKeyFile(tmp_path / "deep" / "encryption.toml")


@pytest.fixture
def connection():
    engine = create_engine("sqlite://")
    metadata.create_all(engine, [owners])
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def add_owner(connection, name: str, data_key: bytes | None) -> None:
    connection.execute(insert(owners).values(id=name, data_key=data_key))


def data_key_of(connection, name: str) -> bytes:
    return connection.scalar(select(owners.c.data_key).where(owners.c.id == name))


def test_a_new_ring_is_read_back_and_is_its_owners_alone(file):
    key = file.create()
    assert file.read().keys == (key,)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert len(key.secret) == 32
    assert list(file.path.parent.iterdir()) == [file.path]


def test_a_ring_is_never_written_over(file):
    key = file.create()
    with pytest.raises(KeyRingError, match="already"):
        file.create()
    assert file.read().active == key


def test_an_added_key_is_active_and_the_others_stay(file):
    first = file.create()
    second = file.add()
    assert file.read().keys == (second, first)
    assert file.read().active == second


def test_a_key_that_is_shown_hides_its_secret(file):
    key = file.create()
    assert repr(key.secret) not in repr(key)
    assert "secret" not in repr(key)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "holds no key"),
        ("keys = [", "no TOML"),
        ("[[keys]]\nid = 'a'", "is damaged"),
        ("keys = 7", "is damaged"),
        ("keys = [7]", "is damaged"),
        ("[[keys]]\nid = 'a'\nsecret = 7", "is damaged"),
        ("[[keys]]\nid = 'a'\nsecret = '!!'", "is damaged"),
        ("[[keys]]\nid = 'a'\nsecret = 'é'", "is damaged"),
        ("[[keys]]\nid = 'a'\nsecret = 'AAAA'", "32 bytes"),
        (f"[[keys]]\nid = 'ä'\nsecret = '{'A' * 43}='", "no id"),
        (f"[[keys]]\nid = 'a'\nsecret = '{'A' * 43}='\n" * 2, "twice"),
    ],
)
def test_a_file_that_is_no_ring_is_told_what_to_do(file, text, advice):
    file.path.parent.mkdir()
    file.path.write_text(text, encoding="utf-8")
    file.path.chmod(0o600)
    with pytest.raises(KeyRingError, match=advice) as caught:
        file.read()
    assert str(file.path) in str(caught.value)


def test_a_missing_ring_is_told_how_to_make_one(file):
    with pytest.raises(KeyRingError, match="there is no key ring"):
        file.read()


def test_a_ring_that_others_may_read_is_refused(file):
    file.create()
    file.path.chmod(0o640)
    with pytest.raises(KeyRingError, match="chmod 600"):
        file.read()


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(KeyRingError, match="cannot be written"):
        MasterKeyFile(tmp_path / "taken" / "ring.toml").create()


def test_data_keys_name_their_master_key(file):
    file.create()
    wrapped = file.read().wrap(b"k" * 32)
    assert master_key_of(wrapped) == file.read().active.id
    assert file.read().unwrap(wrapped) == b"k" * 32


def test_a_damaged_data_key_is_corrupt(file):
    file.create()
    keys = file.read()
    wrapped = keys.wrap(b"k" * 32)
    for position in range(len(wrapped)):
        damaged = bytearray(wrapped)
        damaged[position] ^= 1
        with pytest.raises(Corrupt):
            keys.unwrap(bytes(damaged))
        with pytest.raises(Corrupt):
            keys.unwrap(wrapped[:position])


def test_a_data_key_of_an_unknown_master_key_says_which(file, tmp_path):
    file.create()
    other = MasterKeyFile(tmp_path / "other.toml")
    other.create()
    wrapped = other.read().wrap(b"k" * 32)
    with pytest.raises(Corrupt, match=other.read().active.id):
        file.read().unwrap(wrapped)


def test_after_a_rotation_everything_opens_and_the_old_key_can_go(file, connection):
    first = file.create()
    sealer = AesSealer(file.read())
    add_owner(connection, "a", sealer.new_data_key())
    add_owner(connection, "b", sealer.new_data_key())
    add_owner(connection, "before encryption", None)
    sealed = sealer.box(data_key_of(connection, "a")).seal(b"content", PLACE)

    second = file.add()
    add_owner(connection, "c", AesSealer(file.read()).new_data_key())
    assert count_wrapped(connection) == {first.id: 2, second.id: 1}
    assert AesSealer(file.read()).box(data_key_of(connection, "a")).open(sealed, PLACE)
    with pytest.raises(KeyRingError, match="still seals 2 data keys"):
        file.remove(first.id, count_wrapped(connection))

    assert rewrap(connection, file.read()) == 2
    assert rewrap(connection, file.read()) == 0
    assert count_wrapped(connection) == {second.id: 3}
    file.remove(first.id, count_wrapped(connection))
    assert file.read().keys == (second,)
    box = AesSealer(file.read()).box(data_key_of(connection, "a"))
    assert box.open(sealed, PLACE) == b"content"


def test_a_rewrap_that_fails_changes_nothing(file, connection):
    file.create()
    add_owner(connection, "a", file.read().wrap(b"k" * 32))
    file.add()
    add_owner(connection, "b", b"\x01\x01xnonsense")
    before = connection.scalars(select(owners.c.data_key)).all()
    with pytest.raises(Corrupt):
        rewrap(connection, file.read())
    assert connection.scalars(select(owners.c.data_key)).all() == before


def test_a_rewrap_leaves_a_data_key_that_somebody_changed_meanwhile(file, connection):
    file.create()
    add_owner(connection, "a", file.read().wrap(b"k" * 32))
    file.add()
    theirs = file.read().wrap(b"t" * 32)

    class Meanwhile(MasterKeys):
        def unwrap(self, wrapped: bytes) -> bytes:
            connection.execute(update(owners).values(data_key=theirs))
            return super().unwrap(wrapped)

    rewrap(connection, Meanwhile(file.read().keys))
    assert data_key_of(connection, "a") == theirs


def test_the_active_and_unknown_keys_are_not_removed(file):
    key = file.create()
    with pytest.raises(KeyRingError, match="active"):
        file.remove(key.id, {})
    with pytest.raises(KeyRingError, match="no key 'mk_other'"):
        file.remove("mk_other", {})


def test_without_its_data_key_what_an_owner_sealed_is_shredded(file, connection):
    file.create()
    sealer = AesSealer(file.read())
    add_owner(connection, "a", sealer.new_data_key())
    sealed = sealer.box(data_key_of(connection, "a")).seal(b"content", PLACE)
    connection.execute(delete(owners).where(owners.c.id == "a"))
    # The same key comes back and has a row once more: with another data key.
    add_owner(connection, "a", sealer.new_data_key())
    add_owner(connection, "b", sealer.new_data_key())
    for data_key in connection.scalars(select(owners.c.data_key)):
        with pytest.raises(Corrupt):
            AesSealer(file.read()).box(data_key).open(sealed, PLACE)
    # Nor do the master keys open it by themselves.
    for key in file.read().keys:
        with pytest.raises(Corrupt):
            AesSealer(file.read()).box(file.read().wrap(key.secret)).open(sealed, PLACE)
