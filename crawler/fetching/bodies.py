"""The bytes of an answer: in memory while they are few, in a file without a name when they are many.

A crawl has hundreds of bodies at a time, and sites decide how large they are. So a body above `MEMORY_BYTES` moves into a file
of the job's scratch folder, and so does any body while all together hold more than the scratch allows. The file has no name: it
is gone with the process, however that ends. Its bytes go to the page cache at once, so that a write waits for a disk only
if the kernel has too much to write already.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from anabranch.crawler.outcomes.errors import storage_errors

#: The largest body in memory.
MEMORY_BYTES = 128 * 1024
#: What all bodies of one scratch together hold in memory.
SHARED_BYTES = 32 << 20

CHUNK_BYTES = 64 * 1024


class Scratch:
    """Where large bodies go, and how much memory the small ones share. It belongs to one thread (the loop's)."""

    def __init__(
        self, folder: Path | None, *, memory_bytes: int = MEMORY_BYTES, shared_bytes: int = SHARED_BYTES
    ) -> None:
        """Without a folder all stays in memory."""
        self.folder = folder
        self.held_bytes = 0  #: in memory now, all bodies together
        self._memory_bytes = memory_bytes
        self._shared_bytes = shared_bytes

    def body(self) -> Body:
        """A new body, empty."""
        return Body(self)

    def has_room(self, size_bytes: int, held_bytes: int) -> bool:
        """A body that holds so much may hold so much in all, in memory."""
        if self.folder is None:
            return True
        grown = self.held_bytes - held_bytes + size_bytes
        return size_bytes <= self._memory_bytes and grown <= self._shared_bytes

    def file(self) -> IO[bytes]:
        """A file without a name. Raises: StorageError."""
        assert self.folder is not None
        with storage_errors(self.folder):
            return tempfile.TemporaryFile(dir=self.folder, buffering=0)


class Body:
    """Bytes that were received one after the other. They are read as often as one likes, until `close`.

    Reading moves nothing, so another thread may read while the body stands still.
    """

    __slots__ = ("_file", "_hash", "_held_bytes", "_is_sealed", "_parts", "_scratch", "_size")

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._parts: list[bytes] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._hash = hashlib.sha1(usedforsecurity=False)
        self._size = 0
        self._is_sealed = False

    @classmethod
    def of(cls, data: bytes) -> Body:
        """A body of these bytes, in memory whatever its size."""
        body = cls(Scratch(None))
        body.append(data)
        return body

    def __repr__(self) -> str:
        return f"<Body {self.size} bytes {'in memory' if self._file is None else 'in a file'}>"

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self._size

    @property
    def digest(self) -> bytes:
        """SHA-1 of all bytes: 20 bytes. It was computed while they came."""
        return self._hash.digest()

    @property
    def is_in_memory(self) -> bool:
        """No file holds it."""
        return self._file is None

    @property
    def is_closed(self) -> bool:
        """Its bytes are gone; an empty body has none to lose."""
        return self.size > 0 and not self._parts if self._file is None else self._file.closed

    def append(self, chunk: bytes) -> None:
        """Take the next bytes. Raises: StorageError (a full disk, a lost folder); the body is of no use then.

        Raises ValueError if it is sealed.
        """
        if self._is_sealed:
            raise ValueError("the body is complete, and takes no more bytes")
        self._hash.update(chunk)
        self._size += len(chunk)
        if self._file is None:
            held = self._held_bytes + len(chunk)
            if self._scratch.has_room(held, self._held_bytes):
                self._hold(held)
                self._parts.append(chunk)
                return
            self._move()
        self._write(chunk)

    def seal(self) -> None:
        """It is complete: from now on it can be read and closed, not changed."""
        self._is_sealed = True

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """All bytes, in pieces of at most `size`. Raises: StorageError."""
        if self._file is None:
            for part in self._parts:
                for start in range(0, len(part), size):
                    yield part[start : start + size]
            return
        start = 0
        while piece := self._at(start, size):
            start += len(piece)
            yield piece

    def read(self, limit: int | None = None) -> bytes:
        """The first `limit` bytes; all without a limit. Raises: StorageError."""
        if self._file is None and (limit is None or limit >= self.size):
            if len(self._parts) > 1:
                self._parts = [b"".join(self._parts)]
            return self._parts[0] if self._parts else b""
        wanted, found = self.size if limit is None else limit, bytearray()
        for piece in self.chunks():
            found += piece[: wanted - len(found)]
            if len(found) >= wanted:
                break
        return bytes(found)

    def file(self) -> io.BufferedReader | io.BytesIO:
        """A file to read them from, at its beginning. Files of one body do not disturb each other; end them before `close`."""
        if self._file is None:
            return io.BytesIO(self.read())
        return io.BufferedReader(_Reader(self), CHUNK_BYTES)

    def close(self) -> None:
        """Give back memory and file; a second time does nothing. Size and digest stay."""
        self._hold(0)
        self._parts = []
        if self._file is not None:
            self._file.close()

    def _hold(self, size_bytes: int) -> None:
        self._scratch.held_bytes += size_bytes - self._held_bytes
        self._held_bytes = size_bytes

    def _move(self) -> None:
        """From memory into a file."""
        self._file = self._scratch.file()
        for part in self._parts:
            self._write(part)
        self._parts = []
        self._hold(0)

    def _write(self, chunk: bytes) -> None:
        assert self._file is not None
        assert self._scratch.folder is not None
        left = memoryview(chunk)
        with storage_errors(self._scratch.folder):
            while left:
                left = left[self._file.write(left) :]

    def _at(self, start: int, size: int) -> bytes:
        """Up to `size` bytes from there on, without moving the file."""
        assert self._file is not None
        assert self._scratch.folder is not None
        with storage_errors(self._scratch.folder):
            return os.pread(self._file.fileno(), size, start)


class _Reader(io.RawIOBase):
    """A position of its own in a body's file."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # the stubs' Buffer has no len
        found = self._body._at(self._position, len(buffer))  # noqa: SLF001 - the two are one
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._body.size}[whence]
        self._position = max(base + offset, 0)
        return self._position
