"""Large items outside the database: in a folder, in an S3 bucket, or in memory.

    memory:                                          lost on restart
    /folder or file:///folder                        made if missing, for its owner alone
    s3://bucket/prefix?endpoint=http://host:9000&region=eu-1    or another server that speaks S3

Credentials, and what the URL does not say, are taken from the environment as by other programs:
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` and so on. Where
these name no credentials the instance's own are asked for.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, ObjectStore, S3Store

from antiphon.errors import StartError
from antiphon.store.base import Blobs
from antiphon.store.failures import Corrupt, StoreUnavailable

_NAME = re.compile(r"[0-9a-f]{8,128}")
_S3_OPTIONS = {"endpoint", "region"}
# A thread of the store waits, and perhaps a transaction.
_RETRIES: Mapping[str, Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_TIMEOUTS = {"connect_timeout": "5s", "timeout": "60s"}


class BlobsError(StartError):
    """The place for blobs cannot be used. The message says why."""


class ObjectBlobs:
    """Blobs in an object store, spread over 256 folders by the first two digits of their names."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def put(self, name: str, data: bytes) -> None:
        with _failures(name):
            obstore.put(self._objects, path_of(name), data)

    def get(self, name: str) -> bytes:
        with _failures(name):
            try:
                return bytes(obstore.get(self._objects, path_of(name)).bytes())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                raise Corrupt(f"blob {name} is missing") from None

    def delete(self, name: str) -> None:
        with _failures(name):
            try:
                obstore.delete(self._objects, path_of(name))
            except FileNotFoundError:
                return


class FolderBlobs(ObjectBlobs):
    """Blobs in a folder. What was put is on disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalStore(folder))
        self._folder = folder

    def put(self, name: str, data: bytes) -> None:
        self._look()  # The library would make it, for everybody to read.
        super().put(name, data)
        file = self._folder / path_of(name)
        with _failures(name):
            for path in (file, file.parent, self._folder):
                _sync(path)

    def get(self, name: str) -> bytes:
        self._look()
        return super().get(name)

    def _look(self) -> None:
        if not self._folder.is_dir():
            raise StoreUnavailable(f"the folder {self._folder} is gone")


def open_blobs(url: str, **options: Any) -> Blobs:
    """The blobs in the place that a URL names.

    `options` go before the URL and the environment; they are those of obstore's `S3Config`, such as
    `access_key_id`. Raises `BlobsError`.
    """
    if url in ("memory:", "memory://"):
        return ObjectBlobs(MemoryStore())
    parts = urlsplit(url)
    if parts.scheme == "s3":
        return _bucket(url, options)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return _folder(Path(unquote(parts.path)))
    if "://" not in url and url:
        return _folder(Path(url))
    raise BlobsError(f"{url!r} is no place for blobs: give a folder, s3://bucket or memory:")


def path_of(name: str) -> str:
    """Where in the object store a blob lies. Raises `ValueError` if the name is not hexadecimal."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a blob")
    return f"{name[:2]}/{name}"


def _folder(folder: Path) -> Blobs:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The library's files are readable to all, so the folder must not be.
        folder.chmod(0o700)
        return FolderBlobs(folder.resolve())
    except (BaseError, OSError) as error:
        raise BlobsError(f"the folder {folder} cannot be used: {_reason(error)}") from error


def _bucket(url: str, options: Mapping[str, Any]) -> Blobs:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if unknown := sorted(set(query) - _S3_OPTIONS):
        raise BlobsError(f"{parts.scheme}://{parts.netloc}: there is no option {unknown[0]!r}")
    # Not every server knows how to delete many at once.
    config = {"disable_bulk_delete": True, **query, **options}
    endpoint = config.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
    client: Any = {**_TIMEOUTS, "allow_http": str(endpoint).startswith("http://")}
    retries: Any = _RETRIES
    try:
        return ObjectBlobs(
            S3Store(
                parts.netloc,
                prefix=unquote(parts.path).strip("/") or None,
                client_options=client,
                retry_config=retries,
                **config,
            )
        )
    except (BaseError, OSError, ValueError) as error:
        raise BlobsError(
            f"{parts.scheme}://{parts.netloc} cannot be used: {_reason(error)}"
        ) from error


@contextmanager
def _failures(name: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        raise StoreUnavailable(f"blob {name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The library's messages go on for lines."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
