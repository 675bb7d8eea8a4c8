"""The files that keep blocks of keys and values: a header, and the bytes of the blocks.

A file is written aside and put in its place when it is whole. What is read of it is held against
checksums, so nothing is lost if it never reached the disk: it is then found damaged.
"""

import hashlib
import math
import os
import struct
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

#: Ends with the version of the format.
_MAGIC = b"antikv\x00\x01"
_HEADER = struct.Struct("<8s32s16sdQ32s")
_DIGEST_BYTES = 32
HEADER_BYTES = _HEADER.size + _DIGEST_BYTES

SUFFIX = ".kv"
PARTIAL_SUFFIX = ".partial"


class DamagedFile(Exception):
    """The file is not what was written, or of another version."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of its content.

    `layout` [32 bytes] stands for the model and the form of its blocks, `name` [16 bytes] for the
    tokens. `size` is that of the content, in bytes, and `digest` its SHA-256. From `expires_at` on
    (seconds since 1970) it is not to be used.
    """

    layout: bytes
    name: bytes
    expires_at: float
    size: int
    digest: bytes

    @classmethod
    def of(cls, layout: bytes, name: bytes, expires_at: float, content: Bytes) -> "Header":
        """The header of some content."""
        return cls(layout, name, expires_at, content.nbytes, hashlib.sha256(content.data).digest())

    @classmethod
    def unpack(cls, data: bytes) -> "Header":
        """A header from its bytes. Raises `DamagedFile`."""
        fields = data[: _HEADER.size]
        if len(data) != HEADER_BYTES or hashlib.sha256(fields).digest() != data[_HEADER.size :]:
            raise DamagedFile("its header is damaged")
        magic, layout, name, expires_at, size, digest = _HEADER.unpack(fields)
        if magic != _MAGIC or math.isnan(expires_at):
            raise DamagedFile("its header is of another version")
        return cls(layout, name, expires_at, size, digest)

    def pack(self) -> bytes:
        """The header as bytes."""
        fields = _HEADER.pack(
            _MAGIC, self.layout, self.name, self.expires_at, self.size, self.digest
        )
        return fields + hashlib.sha256(fields).digest()

    @property
    def file_name(self) -> str:
        """What the file is called. It shows neither what is in it nor of which model it is."""
        return file_name(self.layout, self.name)

    @property
    def file_size(self) -> int:
        """Bytes of the whole file."""
        return HEADER_BYTES + self.size


def file_name(layout: bytes, name: bytes) -> str:
    """What a file is called. Files of two layouts never take each other's place."""
    return hashlib.blake2b(layout + name, digest_size=16).hexdigest() + SUFFIX


def write(folder: Path, header: Header, content: Bytes, now: float) -> None:
    """Keep content, for nobody but this user; it counts as used `now`. Raises `OSError`."""
    file, partial = tempfile.mkstemp(PARTIAL_SUFFIX, dir=folder)
    try:
        with open(file, "wb") as opened:
            opened.write(header.pack())
            opened.write(content.data)
            opened.flush()
            os.utime(opened.fileno(), (now, now))
        os.replace(partial, folder / header.file_name)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def read_header(path: Path) -> Header:
    """What a file says of its content. Raises `DamagedFile` and `OSError`."""
    with open(path, "rb", buffering=0) as opened:
        return _header_of(opened.fileno(), path)


def read(path: Path, into: Bytes) -> Header:
    """Read content that is as long as `into`. Raises `DamagedFile` and `OSError`."""
    with open(path, "rb", buffering=0) as opened:
        header = _header_of(opened.fileno(), path)
        if header.size != into.nbytes:
            raise DamagedFile(f"it holds {header.size} bytes and not {into.nbytes}")
        opened.seek(HEADER_BYTES)
        done = 0
        while done < into.nbytes:
            count = opened.readinto(into.data[done:])
            if not count:
                raise DamagedFile("it ends too early")
            done += count
    if hashlib.sha256(into.data).digest() != header.digest:
        raise DamagedFile("its content is damaged")
    return header


def use(path: Path, expires_at: float, now: float) -> None:
    """Note that a file was used, and that it may be used until `expires_at` if it was not allowed
    for longer already. Raises `DamagedFile` and `OSError`."""
    with open(path, "r+b", buffering=0) as opened:
        header = _header_of(opened.fileno(), path)
        if expires_at > header.expires_at:
            os.pwrite(opened.fileno(), replace(header, expires_at=expires_at).pack(), 0)
        os.utime(opened.fileno(), (now, now))


def _header_of(file: int, path: Path) -> Header:
    header = Header.unpack(os.pread(file, HEADER_BYTES, 0))
    if os.fstat(file).st_size != header.file_size:
        raise DamagedFile("it is not as long as it says")
    if path.name != header.file_name:
        raise DamagedFile("it is not in its place")
    return header
