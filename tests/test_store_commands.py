"""The commands `antiphon store`, beside a running server."""

import json
import sqlite3

import pytest
from click.testing import CliRunner
from serving import scripted
from structlog.testing import capture_logs

from antiphon.cli import main
from antiphon.keys import KeyFile, KeyRing
from antiphon.store_commands import duration


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "antiphon.toml"
    file.write_text(
        f'data_dir = "{tmp_path}/data"\n'
        f'keys_file = "{tmp_path}/keys.toml"\n'
        f'encryption_keys_file = "{tmp_path}/ring.toml"\n'
    )
    return file


@pytest.fixture
def plain_config(tmp_path, config):
    """Settings without encryption."""
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(lines[:2]))
    return config


@pytest.fixture
def keys(tmp_path):
    """The secrets of two keys, by name."""
    file = KeyFile(tmp_path / "keys.toml")
    return {name: file.add(name) for name in ("anna", "bert")}


@pytest.fixture
def served(server, tmp_path, keys):
    """Starts a server on the storage of the commands."""

    def start(*steps, **settings):
        return server(
            scripted(*(steps or ({"text": "A secret answer."},))),
            keys=KeyRing(KeyFile(tmp_path / "keys.toml")),
            state="sqlite",
            data_dir=tmp_path / "data",
            **settings,
        )

    return start


def store(config, *arguments, **options):
    given = ["store", *map(str, arguments), "--config", str(config)]
    # A server in another thread must not write its log into the command's output.
    with capture_logs():
        return CliRunner().invoke(main, given, **options)


def refused(result):
    """The sentence that a command ends with."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.stderr.startswith("antiphon: ")
    return result.stderr


def as_key(key):
    return {"authorization": f"Bearer {key}"}


def test_what_is_stored_is_counted(served, plain_config, keys):
    running = served()
    running.create({"input": "Hi"}, headers=as_key(keys["anna"]))
    result = store(plain_config, "stats", "--json")
    counts = json.loads(result.stdout)
    assert (counts["responses"], counts["items"], counts["workers"]) == (1, 2, 1)
    table = dict(line.rsplit("  ", 1) for line in store(plain_config, "stats").stdout.splitlines())
    assert {name.strip(): value for name, value in table.items()}["responses"] == "1"


def test_everything_or_what_is_one_keys_is_exported_as_lines(served, plain_config, keys, tmp_path):
    running = served()
    for name in ("anna", "bert"):
        running.create({"input": f"I am {name}"}, headers=as_key(keys[name]))
    everything = [json.loads(line) for line in store(plain_config, "export").stdout.splitlines()]
    assert [entry["input"][0]["content"][0]["text"] for entry in everything] == [
        "I am anna",
        "I am bert",
    ]
    owner = everything[1]["owner"]
    for who in ("bert", owner):
        output = tmp_path / f"{who}.jsonl"
        assert store(plain_config, "export", "--key", who, "--output", output).exit_code == 0
        assert [json.loads(line) for line in output.read_text().splitlines()] == everything[1:]
        assert output.stat().st_mode & 0o077 == 0


def test_what_cannot_be_read_is_told_and_the_rest_exported(served, plain_config, keys, tmp_path):
    running = served()
    ids = [running.create({"input": "Hi"}, headers=as_key(keys["anna"]))["id"] for _ in range(2)]
    with sqlite3.connect(tmp_path / "data" / "antiphon.db") as connection:
        connection.execute("UPDATE responses SET body = x'00ff' WHERE id = ?", (ids[0],))
    connection.close()
    result = store(plain_config, "export")
    assert result.exit_code == 1
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["object"], first["id"]) == ("unreadable", ids[0])
    assert second["response"]["id"] == ids[1]
    assert "1 could not be read" in result.stderr


def test_a_keys_data_is_forgotten_and_others_stay(served, plain_config, keys):
    running = served()
    ids = {name: running.create({"input": "Hi"}, headers=as_key(keys[name]))["id"] for name in keys}
    assert store(plain_config, "forget", "anna", input="n\n").exit_code == 1
    assert store(plain_config, "forget", "anna", input="y\n").exit_code == 0

    def status(name):
        answer = running.http.get(f"/v1/responses/{ids[name]}", headers=as_key(keys[name]))
        return answer.status_code

    assert (status("anna"), status("bert")) == (404, 200)
    assert "nothing is stored for" in refused(store(plain_config, "forget", "anna", "--yes"))


def test_what_is_being_made_is_forgotten_by_force_only(served, plain_config, keys):
    running = served({"text": "Once"}, {"delay": 60}, shutdown_grace_seconds=0)
    body = {"input": "Hi", "background": True}
    made = running.create(body, headers=as_key(keys["anna"]))
    sentence = refused(store(plain_config, "forget", "anna", "--yes"))
    assert made["id"] in sentence and "--force" in sentence
    assert store(plain_config, "forget", "anna", "--yes", "--force").exit_code == 0
    assert json.loads(store(plain_config, "stats", "--json").stdout)["responses"] == 0


def test_those_without_a_key_have_a_name_that_no_key_may_have_beside_them(
    server, plain_config, tmp_path
):
    running = server(scripted({"text": "ok"}), state="sqlite", data_dir=tmp_path / "data")
    running.create({"input": "Hi"})
    KeyFile(tmp_path / "keys.toml").add("anonymous")
    assert "its id key_" in refused(store(plain_config, "forget", "anonymous", "--yes"))
    KeyFile(tmp_path / "keys.toml").remove("anonymous")
    assert "1 responses" in store(plain_config, "forget", "anonymous", "--yes").stdout


def test_old_responses_are_pruned(served, plain_config, keys):
    running = served()
    made = running.create({"input": "Hi"}, headers=as_key(keys["anna"]))
    assert "0 responses" in store(plain_config, "prune", "--older-than", "1d").stdout
    assert "1 responses" in store(plain_config, "prune", "--older-than", "0s").stdout
    url = f"/v1/responses/{made['id']}"
    assert running.http.get(url, headers=as_key(keys["anna"])).status_code == 404


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1.5h", 5400), ("30d", 30 * 86400)]
)
def test_times_have_a_unit(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1w", "1 d", "1d2h", ""])
def test_what_is_no_time_is_refused(plain_config, text):
    assert "is no time" in refused(store(plain_config, "prune", f"--older-than={text}"))


def test_keys_that_encrypt_are_made_added_rewrapped_and_removed(served, config, keys, tmp_path):
    first = store(config, "keys", "new").stdout.strip()
    assert "already" in refused(store(config, "keys", "new"))
    running = served(encryption_keys_file=tmp_path / "ring.toml")
    made = running.create({"input": "Hi"}, headers=as_key(keys["anna"]))
    second = store(config, "keys", "add").stdout.strip()

    def listed():
        rows = [line.split() for line in store(config, "keys", "list").stdout.splitlines()]
        return [(row[0], "active" in row, int(row[-1])) for row in rows]

    assert listed() == [(second, True, 0), (first, False, 1)]
    assert "rewrap" in refused(store(config, "keys", "remove", first))
    assert store(config, "keys", "rewrap").stdout == f"1 sealed anew with {second}.\n"
    assert "0 sealed" in store(config, "keys", "rewrap").stdout
    assert "active" in refused(store(config, "keys", "remove", second))
    assert store(config, "keys", "remove", first).exit_code == 0
    assert listed() == [(second, True, 1)]
    (line,) = store(config, "export").stdout.splitlines()
    assert json.loads(line)["response"]["id"] == made["id"]


def test_keys_are_listed_before_anything_is_stored(config):
    made = store(config, "keys", "new").stdout.strip()
    assert store(config, "keys", "list").stdout.split()[0] == made


def test_without_a_file_for_them_there_are_no_keys(plain_config):
    assert "encryption_keys_file" in refused(store(plain_config, "keys", "new"))


@pytest.mark.parametrize("state", ["memory", "off"])
def test_a_storage_that_nobody_else_sees_is_refused(plain_config, state):
    plain_config.write_text(f'state = "{state}"\n{plain_config.read_text()}')
    for command in (["stats"], ["export"], ["prune", "--older-than", "1d"], ["forget", "x"]):
        assert f"state is {state}" in refused(store(plain_config, *command))


def test_what_was_never_stored_is_not_made(plain_config, tmp_path):
    assert "nothing was ever stored" in refused(store(plain_config, "stats"))
    assert not (tmp_path / "data").exists()


def test_a_file_that_cannot_be_written_is_one_sentence(served, plain_config, tmp_path):
    served()
    output = tmp_path / "missing" / "export.jsonl"
    assert "cannot be written" in refused(store(plain_config, "export", "--output", output))


def test_the_commands_do_the_same_on_postgresql(server, plain_config, postgres_url, tmp_path):
    plain_config.write_text(
        f'state = "postgres"\ndatabase_url = "{postgres_url}"\n{plain_config.read_text()}'
    )
    running = server(
        scripted({"text": "ok"}),
        state="postgres",
        database_url=postgres_url,
        data_dir=tmp_path / "data",
    )
    made = running.create({"input": "Hi"})
    assert json.loads(store(plain_config, "stats", "--json").stdout)["responses"] == 1
    (line,) = store(plain_config, "export", "--key", "anonymous").stdout.splitlines()
    assert json.loads(line)["response"]["id"] == made["id"]
    assert store(plain_config, "forget", "anonymous", "--yes").exit_code == 0
    assert running.http.get(f"/v1/responses/{made['id']}").status_code == 404
