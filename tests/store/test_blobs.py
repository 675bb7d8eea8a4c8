"""Blobs are the same in a folder, in memory and in a bucket."""

import logging
import stat
from collections.abc import Iterator

import httpx
import pytest
from moto.server import ThreadedMotoServer

from antiphon.store.base import Blobs
from antiphon.store.blobs import BlobsError, open_blobs, path_of
from antiphon.store.failures import Corrupt, StoreUnavailable

NAME = "0f" * 32
OTHER = "a1" * 32
#: What must not be looked for on this machine or its network.
CREDENTIALS = {"access_key_id": "id", "secret_access_key": "secret"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of an empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    httpx.put(f"{endpoint}/antiphon").raise_for_status()
    yield f"s3://antiphon/some/prefix?endpoint={endpoint}&region=us-east-1"
    server.stop()


@pytest.fixture(params=["memory", "folder", "s3"])
def blobs(request, tmp_path) -> Blobs:
    if request.param == "memory":
        return open_blobs("memory:")
    if request.param == "folder":
        return open_blobs(str(tmp_path / "blobs"))
    return open_blobs(request.getfixturevalue("bucket"), **CREDENTIALS)


def test_what_was_put_is_what_is_got(blobs):
    contents = {NAME: b"", OTHER: bytes(range(256)) * 10}
    for name, data in contents.items():
        blobs.put(name, data)
    assert {name: blobs.get(name) for name in contents} == contents


def test_large_ones_are_whole(blobs):
    data = b"0123456789abcdef" * 400_000
    blobs.put(NAME, data)
    assert blobs.get(NAME) == data


def test_putting_twice_keeps_the_last(blobs):
    blobs.put(NAME, b"first, a longer one")
    blobs.put(NAME, b"second")
    assert blobs.get(NAME) == b"second"


def test_what_is_deleted_is_missing_and_deleting_again_does_nothing(blobs):
    blobs.put(NAME, b"one")
    blobs.put(OTHER, b"other")
    blobs.delete(NAME)
    blobs.delete(NAME)
    with pytest.raises(Corrupt, match="missing"):
        blobs.get(NAME)
    assert blobs.get(OTHER) == b"other"


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "ABCDEF0123456789", "0f", "0f" * 32 + "/"]
)
def test_only_hexadecimal_names_are_taken(blobs, name):
    for call in (blobs.get, blobs.delete, lambda name: blobs.put(name, b"")):
        with pytest.raises(ValueError, match="no name of a blob"):
            call(name)


def test_the_folder_is_its_owners_alone_and_files_are_spread(tmp_path):
    folder = tmp_path / "deep" / "blobs"
    blobs = open_blobs(folder.as_uri())
    blobs.put(NAME, b"one")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [file for file in folder.rglob("*") if file.is_file()] == [folder / "0f" / NAME]
    assert path_of(NAME) == f"0f/{NAME}"


def test_an_existing_folder_is_made_private(tmp_path):
    folder = tmp_path / "blobs"
    folder.mkdir(mode=0o755)
    open_blobs(str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_outlives_the_process(tmp_path):
    open_blobs(str(tmp_path / "blobs")).put(NAME, b"one")
    assert open_blobs(str(tmp_path / "blobs")).get(NAME) == b"one"


def test_a_folder_that_is_gone_is_no_corruption(tmp_path):
    folder = tmp_path / "blobs"
    blobs = open_blobs(str(folder))
    folder.rmdir()
    with pytest.raises(StoreUnavailable, match="gone"):
        blobs.get(NAME)
    with pytest.raises(StoreUnavailable, match="gone"):
        blobs.put(NAME, b"one")
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path):
    folder = tmp_path / "blobs"
    blobs = open_blobs(str(folder))
    (folder / "0f").write_text("in the way")
    with pytest.raises(StoreUnavailable) as caught:
        blobs.put(NAME, b"one")
    assert "\n" not in str(caught.value)


def test_a_missing_bucket_is_no_corruption(bucket):
    blobs = open_blobs(bucket.replace("antiphon", "elsewhere"), **CREDENTIALS)
    for call in (lambda: blobs.get(NAME), lambda: blobs.put(NAME, b"one")):
        with pytest.raises(StoreUnavailable):
            call()


def test_a_server_that_does_not_answer_is_unavailable():
    # Port 9 of this machine: nobody listens.
    url = "s3://antiphon?endpoint=http://127.0.0.1:9&region=us-east-1"
    with pytest.raises(StoreUnavailable, match=NAME):
        open_blobs(url, **CREDENTIALS).get(NAME)


def test_the_endpoint_may_come_from_the_environment(bucket, monkeypatch):
    url, _, endpoint = bucket.partition("?endpoint=")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.partition("&")[0])
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    open_blobs(url).put(NAME, b"from the environment")
    assert open_blobs(bucket, **CREDENTIALS).get(NAME) == b"from the environment"


@pytest.mark.parametrize(
    "url",
    ["", "gs://bucket", "https://example.com/", "file://elsewhere/folder", "s3://b?secret=1"],
)
def test_other_places_are_refused(url):
    with pytest.raises(BlobsError):
        open_blobs(url, **CREDENTIALS)


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BlobsError, match="cannot be used"):
        open_blobs(str(tmp_path / "file"))
