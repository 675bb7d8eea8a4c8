"""Where the keys that seal reasoning come from, and the commands that change them."""

import stat
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from click.testing import CliRunner

from antiphon.cli import main
from antiphon.errors import InvalidEncryptedContent, StartError
from antiphon.principal import ANONYMOUS
from antiphon.reasoning_keys import reasoning_policy
from antiphon.responses.sealing import ReasoningSealer
from antiphon.settings import Settings
from antiphon.store.keyring import MasterKeyFile


def sealer(tmp_path, **settings: Any) -> ReasoningSealer:
    policy = reasoning_policy(Settings(**{"data_dir": tmp_path / "data", **settings}))
    assert policy.sealer is not None
    return policy.sealer


def opens(one: ReasoningSealer, sealed: str) -> bool:
    try:
        return one.open(ANONYMOUS, sealed, param="x").text == "thought"
    except InvalidEncryptedContent:
        return False


def seal(one: ReasoningSealer) -> str:
    return one.seal(ANONYMOUS, "f", "thought")


@pytest.fixture
def run(tmp_path):
    """Runs a command with settings: `run("add", reasoning_keys_file=…)`."""

    def invoke(*arguments: str, **settings: Any) -> Any:
        config = tmp_path / "antiphon.toml"
        settings = {"data_dir": tmp_path / "data", **settings}
        config.write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()))
        return CliRunner().invoke(main, ["reasoning-keys", *arguments, "--config", str(config)])

    return invoke


@pytest.mark.parametrize("state", ["sqlite", "postgres"])
def test_a_key_is_made_once_and_is_its_owner_s_alone(tmp_path, state: str):
    settings = {"state": state, "database_url": "postgresql://localhost/x"}
    assert opens(sealer(tmp_path, **settings), seal(sealer(tmp_path, **settings)))
    file = tmp_path / "data" / "reasoning-keys.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(MasterKeyFile(file).read().keys) == 1


def test_processes_that_start_together_agree_on_one_key(tmp_path):
    for number in range(10):
        files = [MasterKeyFile(tmp_path / f"keys-{number}.toml") for _ in range(8)]
        with ThreadPoolExecutor(8) as threads:
            rings = threads.map(MasterKeyFile.read_or_create, files)
            assert len({ring.active for ring in rings}) == 1


@pytest.mark.parametrize("state", ["memory", "off"])
def test_where_nothing_is_stored_no_file_is_made(tmp_path, state: str):
    one = sealer(tmp_path, state=state)
    assert opens(one, seal(one)) and not opens(sealer(tmp_path, state=state), seal(one))
    assert list(tmp_path.iterdir()) == []


def test_keys_made_of_others_are_none_of_them_and_change_with_them(tmp_path):
    ring = MasterKeyFile(tmp_path / "ring.toml")
    ring.create()
    settings = {"encryption_keys_file": ring.path}
    old = seal(sealer(tmp_path, **settings))
    assert not opens(ReasoningSealer(ring.read().keys), old)
    ring.add()
    assert opens(sealer(tmp_path, **settings), old)
    assert not opens(ReasoningSealer(ring.read().keys), seal(sealer(tmp_path, **settings)))
    ring.remove(ring.read().keys[1].id, {})
    assert not opens(sealer(tmp_path, **settings), old)
    assert not (tmp_path / "data").exists()


def test_a_file_of_its_own_goes_before_the_others(tmp_path):
    MasterKeyFile(tmp_path / "ring.toml").create()
    named = {"reasoning_keys_file": tmp_path / "deep" / "own.toml"}
    one = sealer(tmp_path, encryption_keys_file=tmp_path / "ring.toml", **named)
    assert opens(sealer(tmp_path, state="off", **named), seal(one))


@pytest.mark.parametrize("content", ["", "keys = 1", "[[keys]]\nid = 'a'\nsecret = 'eA=='\n"])
def test_a_file_that_is_damaged_stops_the_start(tmp_path, monkeypatch, content: str):
    monkeypatch.setattr("antiphon.store.keyring._BEGUN_SECONDS", 0)
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    path.write_text(content)
    with pytest.raises(StartError, match=r"keys\.toml"):
        sealer(tmp_path, reasoning_keys_file=path)


def test_a_place_that_cannot_be_written_stops_the_start(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="cannot be written"):
        sealer(tmp_path, reasoning_keys_file=tmp_path / "file" / "keys.toml")


def test_keys_are_added_listed_and_removed(run, tmp_path):
    first = run("add").stdout.strip()
    second = run("add").stdout.strip()
    lines = run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [second, first]
    assert [line.endswith("active") for line in lines] == [True, False]
    assert run("remove", second).exit_code == 2
    assert run("remove", first).exit_code == 0
    assert run("list").stdout.split()[0] == second
    keys = MasterKeyFile(tmp_path / "data" / "reasoning-keys.toml").read().keys
    assert [key.id for key in keys] == [second]


def test_commands_say_where_keys_are_if_they_have_no_file_of_their_own(run, tmp_path):
    refused = run("add", encryption_keys_file=tmp_path / "ring.toml")
    assert refused.exit_code == 2 and "antiphon store keys" in refused.output
    refused = run("list", state="off")
    assert refused.exit_code == 2 and "reasoning_keys_file" in refused.output


def test_hiding_and_showing_at_once_is_refused():
    with pytest.raises(ValueError, match="hide_reasoning"):
        Settings(hide_reasoning=True, reasoning_summary="raw")
