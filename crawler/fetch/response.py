"""The raw answer of a server: the head, and a body in memory while it is small, in an unnamed file when it is large.

A crawl has hundreds of bodies at a time. So a body above `MEMORY_BYTES` moves into a file of the job's scratch folder, and so
does every body that grows while all together exceed `SHARED_BYTES`. The file has no name: it disappears with the process. A
write waits for the disk only if the kernel has too much to write already.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from anabranch.crawler.fetch.decoding import codings_in, decoded
from anabranch.crawler.fetch.mime import BINARY_BYTE, MAX_CHARS, SNIFFED_BYTES, mime_type
from anabranch.crawler.outcomes.errors import storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multidict import CIMultiDictProxy

    from anabranch.crawler.fetch.repairs import Repair

    Headers = CIMultiDictProxy[str]

#: The largest body in memory.
MEMORY_BYTES = 128 * 1024
#: The most that all bodies of one scratch hold in memory.
SHARED_BYTES = 32 << 20

CHUNK_BYTES = 64 * 1024
#: A Content-Length of more digits is none.
_MOST_DIGITS = 18


class Cut(Enum):
    """Reasons for a cut answer. The value is the annotation in `crawl.log`, as in Heritrix."""

    LENGTH = "lenTrunc"  #: the body exceeded its limit
    TIME = "timeTrunc"  #: the time limit passed, or the body came too slowly, after its first byte
    DISCONNECT = "midFetchTrunc"  #: the connection ended before the body did, or a bad chunk came
    HEADERS = "headerTrunc"  #: too many headers; if they had no end, there is no body
    ABORT = "midFetchAbort"  #: a rule before the body did not want it
    DECODED = "decTrunc"  #: the content coding is broken, or its content exceeds what is read


class PageHead(NamedTuple):
    """An answer before its body is read: what a rule before the body decides by."""

    url: str  #: as requested
    status: int  #: HTTP status
    headers: Headers  #: names in any case, several values by `getall`
    address: str = ""  #: IP address of the other end; empty behind a proxy, which alone knows it
    hops: str = ""  #: how the URL was found: the path from its seed, one letter a hop
    seed: str = ""  #: the seed that led to it; empty if it is not known

    @property
    def media_type(self) -> str:
        """Content-Type without parameters, lower case; empty without one."""
        return media_type_of(self.headers)

    @property
    def length(self) -> int | None:
        """The Content-Length: the size of the body as it comes; None without a valid one."""
        text = self.headers.get("Content-Length", "").strip()
        digits = text.lstrip("0") if text.isascii() and text.isdigit() else "x"
        return int(digits or 0) if len(digits) <= _MOST_DIGITS and digits != "x" else None


#: A user's rule of `[fetch] body_rules`: False leaves the body unread, True reads it, None leaves it to the rules before it.
BodyRule = Callable[[PageHead], bool | None]


class Response(NamedTuple):
    """The answer of a server. The holder owns the body and closes it."""

    url: str  #: as requested
    status: int  #: HTTP status, 101 or 200..999
    reason: str  #: as sent; may be empty
    version: str  #: of HTTP: "1.1"
    headers: CIMultiDictProxy[str]  #: names in any case, several values by `getall`; odd bytes as surrogates
    raw_headers: tuple[tuple[bytes, bytes], ...]  #: as received, in order
    sent: Callable[[], bytes]  #: makes `request`
    body: Body  #: the payload: transfer coding removed, content coding kept
    address: str  #: IP address of the other end; empty behind a proxy, which alone knows it
    start_s: float  #: epoch seconds, when the fetch began (before DNS)
    end_s: float  #: epoch seconds, when the body was read
    cuts: tuple[Cut, ...] = ()  #: where it was cut
    has_surplus: bool = False  #: bytes came behind it; they are no part of it
    received: tuple[bytes, ...] = ()  #: the lines behind the status line of a repaired head; else empty
    repairs: tuple[Repair, ...] = ()  #: what was read as browsers read it
    #: Values that no archive may show, as none of Set-Cookie; None: it shows all.
    secrets: frozenset[bytes] | None = None

    @property
    def request(self) -> bytes:
        """Request line and headers as sent, without credentials, ending in an empty line. Made anew each time."""
        return self.sent()

    def content(self, limit: int) -> tuple[bytes, bool]:
        """The body with its content codings undone, at most `limit` bytes; True if there is more, or the coding is broken.

        Cost: at most `limit` bytes and some hundred KiB for each coding; about 5 ms for a MiB, so decode large bodies in a
        thread. Broken codings give the bytes before the fault. Plain text that is labelled as coded is returned as it is.
        """
        coded = self.headers.getall("Content-Encoding", None)
        codings = codings_in(coded) if coded else ()
        if not codings:
            return self.body.read(limit), self.body.size > limit
        found, is_more = decoded(self.body.chunks(), codings, limit)
        if is_more and not found and BINARY_BYTE.search(self.body.read(SNIFFED_BYTES)) is None:
            return self.body.read(limit), self.body.size > limit  # it is text, so it was never coded
        return found, is_more

    @property
    def media_type(self) -> str:
        """Content-Type without parameters, lower case; empty without one."""
        return media_type_of(self.headers)

    @property
    def location(self) -> str | None:
        """The Location of a redirect, as sent; None if this is no redirect."""
        return self.headers.get("Location") if 300 <= self.status < 400 else None


def content_type_of(headers: Headers) -> str:
    """The `Content-Type` fields as one text, as the standards combine them, up to `MAX_CHARS`; empty without one."""
    fields = headers.getall("Content-Type", ())
    return (fields[0] if len(fields) == 1 else ", ".join(fields))[:MAX_CHARS]


def media_type_of(headers: Headers) -> str:
    """Content-Type without parameters, lower case; empty without one. A text that is no MIME type stays as sent."""
    text = content_type_of(headers)
    return mime_type(text).essence or text.partition(";")[0].strip().lower()


def header_fields(raw: Iterable[tuple[bytes, bytes]]) -> CIMultiDictProxy[str]:
    """Raw fields, by name; odd bytes become surrogates, as in aiohttp."""
    from multidict import CIMultiDict, CIMultiDictProxy  # noqa: PLC0415 - help must be fast

    return CIMultiDictProxy(
        CIMultiDict(
            (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")) for name, value in raw
        )
    )


class Scratch:
    """Keeps bodies: the folder of the large ones, and the shared memory of the small ones. Used by one thread."""

    def __init__(
        self, folder: Path | None, *, memory_bytes: int = MEMORY_BYTES, shared_bytes: int = SHARED_BYTES
    ) -> None:
        """Without a folder all bodies stay in memory."""
        self.folder = folder
        self.held_bytes = 0  #: in memory now, all bodies together
        self._memory_bytes = memory_bytes
        self._shared_bytes = shared_bytes

    def body(self) -> Body:
        """A new body, empty."""
        return Body(self)

    def has_room(self, size_bytes: int, held_bytes: int) -> bool:
        """Whether a body that holds `held_bytes` in memory may grow to `size_bytes` there."""
        if self.folder is None:
            return True
        grown = self.held_bytes - held_bytes + size_bytes
        return size_bytes <= self._memory_bytes and grown <= self._shared_bytes

    def hold(self, change_bytes: int) -> None:
        """A body in memory has grown by so much, or has given memory back."""
        self.held_bytes += change_bytes

    def file(self) -> IO[bytes]:
        """A file without a name. Raises: StorageError."""
        assert self.folder is not None
        with storage_errors(self.folder):
            return tempfile.TemporaryFile(dir=self.folder, buffering=0)


class Body:
    """Bytes that are appended, and can be read repeatedly until `close`, also by another thread while none are appended."""

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
        """SHA-1 of all bytes: 20 bytes. Computed while they are appended."""
        return self._hash.digest()

    @property
    def is_in_memory(self) -> bool:
        """It has not been moved into a file."""
        return self._file is None

    @property
    def is_closed(self) -> bool:
        """Its bytes are gone. An empty body has none, so it counts as open."""
        return self.size > 0 and not self._parts if self._file is None else self._file.closed

    def append(self, chunk: bytes) -> None:
        """Append bytes. Raises: StorageError (a full disk, a lost folder); the body is unusable then. ValueError if sealed."""
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
            self._file = self._scratch.file()
            for part in self._parts:
                self._write(part)
            self._parts = []
            self._hold(0)
        self._write(chunk)

    def seal(self) -> None:
        """Mark as complete: from now on it can be read and closed, not changed."""
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
        """A file object at the first byte, with a position of its own. Close it before the body."""
        if self._file is None:
            return io.BytesIO(self.read())
        return io.BufferedReader(_BodyFile(self), CHUNK_BYTES)

    def close(self) -> None:
        """Release memory and file; size and digest stay. Idempotent."""
        self._hold(0)
        self._parts = []
        if self._file is not None:
            self._file.close()

    def _hold(self, size_bytes: int) -> None:
        self._scratch.hold(size_bytes - self._held_bytes)
        self._held_bytes = size_bytes

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


class _BodyFile(io.RawIOBase):
    """A position in a body's file."""

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
