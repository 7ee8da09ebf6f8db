"""The compression of WARC files: each record is one member, a gzip member or a zstd frame, so that it can be read alone.

gzip follows WARC 1.1, zstd https://iipc.github.io/warc-specifications/specifications/warc-zstd/: a file may begin with a
skippable frame that holds the dictionary of all other frames. zstd needs `compression.zstd` (Python 3.14) or `backports.zstd`,
which is imported for such files only.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from anabranch.crawler.outcomes.errors import CrawlerError, OrderError, UsageError
from anabranch.extras import install_command

#: Endings of finished files.
GZIP_FILE, ZSTD_FILE = ".warc.gz", ".warc.zst"
ENDINGS = (GZIP_FILE, ZSTD_FILE)

#: The library that compresses gzip members.
Deflate = Literal["isal", "zlib"]


class Packer(Protocol):
    """Compresses one record in pieces."""

    def compress(self, data: bytes, /) -> bytes:
        """Take more data; return what is ready."""

    def flush(self) -> bytes:
        """End the member; return the rest."""


class Compression(Protocol):
    """Makes members of records. One thread at a time uses it."""

    @property
    def ending(self) -> str:
        """The ending of a finished file."""

    @property
    def beginning(self) -> bytes:
        """The bytes of a file before its first record."""

    def member(self, record: bytes) -> bytes:
        """Compress a whole record."""

    def packer(self, size_bytes: int) -> Packer:
        """Compress a record of exactly `size_bytes` that comes in pieces."""


try:  # a quarter of zlib's time, for members that are 1 to 10 % larger; there are no wheels of it for some machines
    from isal import isal_zlib

    _HAS_ISAL = True
except ImportError:
    _HAS_ISAL = False

_ZLIB_LEVEL = 6  # zlib's own compromise; 9 takes twice the time for 1 % less
_ISAL_LEVEL = 3  # the highest: 1 % smaller than 2, and a third slower
_GZIP = 16  # zlib: gzip with its header; it is added to the bits of the window
_LEAST_WINDOW, _LARGEST_WINDOW = 9, 15
_LOOK_AHEAD = 262  # zlib: bytes of its window that it does not look back to


class Gzip:
    """Makes gzip members by isal, or by zlib where isal is not installed or not wanted."""

    ending = GZIP_FILE
    beginning = b""

    def __init__(self, deflate: Deflate = "isal") -> None:
        self._is_isal = _HAS_ISAL and deflate == "isal"

    def member(self, record: bytes) -> bytes:
        """Compress a whole record."""
        packer = self.packer(len(record))
        return packer.compress(record) + packer.flush()

    def packer(self, size_bytes: int) -> Packer:
        """Compress a record in pieces; zlib gets a small window for a small one, because it clears its tables each time."""
        if self._is_isal:
            compressor: Packer = isal_zlib.compressobj(_ISAL_LEVEL, zlib.DEFLATED, _GZIP + _LARGEST_WINDOW)
            return compressor
        window = min(max((size_bytes + _LOOK_AHEAD).bit_length(), _LEAST_WINDOW), _LARGEST_WINDOW)
        return zlib.compressobj(_ZLIB_LEVEL, zlib.DEFLATED, _GZIP + window, (window + 1) // 2)


_ZSTD_LEVEL = 3  # zstd's own compromise
_DICTIONARY_FRAME = (0x184D2A5D).to_bytes(4, "little")
_DICTIONARY_MAGIC, _ZSTD_MAGIC = b"\x37\xa4\x30\xec", b"\x28\xb5\x2f\xfd"
_SIZE_BYTES = 4  # of the size of a skippable frame
#: The size of a trained dictionary: that of the command `zstd --train`.
_TRAINED_BYTES = 112_640
#: The largest dictionary that every reader takes.
_LARGEST_DICTIONARY = 8 << 20


class Zstd:
    """Makes zstd frames, each with its size, its checksum and the id of the dictionary, if there is one."""

    ending = ZSTD_FILE

    def __init__(self, dictionary: bytes = b"") -> None:
        """`dictionary` is the content of one, which each file then holds.

        Raises: OrderError without the library; ValueError for bytes that are no dictionary.
        """
        self._library = _zstd(OrderError, "[write] compression 'zstd'")
        size = len(dictionary).to_bytes(_SIZE_BYTES, "little")
        self.beginning = _DICTIONARY_FRAME + size + dictionary if dictionary else b""  #: the dictionary as it is
        try:
            # Digested: loaded once, and not for each frame.
            self._dictionary = self._library.ZstdDict(dictionary).as_digested_dict if dictionary else None
            self._small = self._compressor()
        except self._library.ZstdError as error:
            raise ValueError(str(error)) from error

    def member(self, record: bytes) -> bytes:
        """Compress a whole record: one call, so that the compressor can be used again, which saves 11 µs."""
        packed: bytes = self._small.compress(record, self._small.FLUSH_FRAME)
        return packed

    def packer(self, size_bytes: int) -> Packer:
        """Compress a record in pieces, with a compressor of its own, since a record that breaks off leaves it half done."""
        compressor: Any = self._compressor()
        compressor.set_pledged_input_size(size_bytes)
        packer: Packer = compressor
        return packer

    def _compressor(self) -> Any:
        key = self._library.CompressionParameter
        options = {key.compression_level: _ZSTD_LEVEL, key.checksum_flag: 1}
        return self._library.ZstdCompressor(options=options, zstd_dict=self._dictionary)


def compression_of(name: Literal["gzip", "zstd"], deflate: Deflate, dictionary: str) -> Compression:
    """The compression that an order names; `dictionary` is a path, or empty. Raises: OrderError without what it needs."""
    if name == "gzip":
        return Gzip(deflate)
    try:
        return Zstd(dictionary_at(dictionary) if dictionary else b"")
    except ValueError as error:
        raise _no_dictionary(dictionary) from error


def dictionary_at(path: str) -> bytes:
    """Read the dictionary of an order. Raises: OrderError for a file that cannot be read or is no dictionary."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_DICTIONARY + 1)
    except OSError as error:
        raise OrderError(f"[write] zstd_dictionary {path!r}: {(error.strerror or str(error)).lower()}") from error
    if not content.startswith(_DICTIONARY_MAGIC) or len(content) > _LARGEST_DICTIONARY:
        raise _no_dictionary(path)
    return content


def _zstd(error: type[CrawlerError], needed_by: str) -> Any:
    """The library. Raises: the error, in one line."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise error(f"{needed_by}: needs backports.zstd; {install_command('zstd')}")


def _no_dictionary(path: str) -> OrderError:
    return OrderError(
        f"[write] zstd_dictionary {path!r}: is no dictionary of zstd of at most 8 MiB; "
        "`anabranch archive dictionary JOB FILE` makes one"
    )


def trained_dictionary(samples: Sequence[bytes]) -> bytes:
    """Make a dictionary for records like these. Cost: 1 s per 25 MB of samples. Raises: UsageError if they are too few."""
    library = _zstd(UsageError, "a dictionary")
    try:
        content: bytes = library.train_dict(samples, _TRAINED_BYTES).dict_content
    except (library.ZstdError, ValueError) as error:
        raise UsageError(
            f"{len(samples):,} records are too few for a dictionary, or too short; take a job with more pages"
        ) from error
    return content


_BLOCK_BYTES = 1 << 14
#: The most bytes of a record that come at once, since a member of zeros grows a thousandfold.
PIECE_BYTES = 1 << 16


class _Unpacker(Protocol):
    """Decompresses one member."""

    @property
    def needs_input(self) -> bool:
        """Whether it can go on with new data only."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def unused_data(self) -> bytes:
        """The bytes after its end."""

    def decompress(self, data: bytes, most: int, /) -> bytes:
        """Return at most so many bytes; the rest comes with further calls."""


class BrokenMember(Exception):
    """There is no whole member at this place."""


class MemberReader:
    """Reads the members of a file, one after the other or at any offset. `name` is the name of the finished file."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._dictionary: bytes | None = None  # None: not looked for yet
        self._error: type[Exception] = zlib.error  # of the library
        self._ahead = b""  # what was read beyond `end`
        self.end = -1  #: where the last member ended that was read to its end; -1 while one is read

    def pieces(self, offset: int) -> Iterator[bytes]:
        """The record at an offset, in pieces; nothing for a skippable frame.

        Raises: OSError; BrokenMember if it is torn or none, perhaps after some pieces; UsageError without the library of zstd.
        """
        unpacker = self._unpacker()
        if offset == self.end:
            data = self._ahead
        else:
            self._file.seek(offset)
            data = b""
        self._ahead, self.end, read = b"", -1, len(data)
        while not unpacker.eof:
            if not data and unpacker.needs_input:
                data = self._file.read(_BLOCK_BYTES)
                read += len(data)
                if not data:
                    raise BrokenMember("its end is missing")
            try:
                piece = unpacker.decompress(data, PIECE_BYTES)
            except self._error as error:
                raise BrokenMember(str(error)) from error
            data = b""
            if piece:
                yield piece
        self._ahead = unpacker.unused_data
        self.end = offset + read - len(self._ahead)

    def _unpacker(self) -> _Unpacker:
        if not self._name.endswith(ZSTD_FILE):
            return _Inflate()
        library = _zstd(UsageError, self._name)
        self._error = library.ZstdError
        if self._dictionary is None:
            self._dictionary = _dictionary_in(self._file)
        try:
            dictionary = _loaded(library, self._dictionary) if self._dictionary else None
            unpacker: _Unpacker = library.ZstdDecompressor(zstd_dict=dictionary)
        except (library.ZstdError, ValueError) as error:
            raise BrokenMember(f"the dictionary of the file is broken: {error}") from error
        return unpacker


def _dictionary_in(file: BinaryIO) -> bytes:
    """The dictionary that a file begins with, as it is stored; empty without one. Raises: OSError, BrokenMember."""
    file.seek(0)
    if file.read(len(_DICTIONARY_FRAME)) != _DICTIONARY_FRAME:
        return b""
    size = int.from_bytes(file.read(_SIZE_BYTES), "little")
    content = file.read(size) if size <= _LARGEST_DICTIONARY else b""
    if len(content) != size:
        raise BrokenMember("the dictionary of the file is cut or too large")
    return content


@lru_cache(maxsize=4)  # one for each file that is read; loading it costs more than reading a record
def _loaded(library: Any, stored: bytes) -> Any:
    """A dictionary as a file stores it: perhaps compressed, in files of other programs."""
    if stored.startswith(_ZSTD_MAGIC):
        stored = library.ZstdDecompressor().decompress(stored, _LARGEST_DICTIONARY)
    return library.ZstdDict(stored)


class _Inflate:
    """Decompresses one gzip member, with the interface of zstd's decompressor."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP + _LARGEST_WINDOW)

    def decompress(self, data: bytes, most: int, /) -> bytes:
        """Return at most so many bytes; the rest comes with further calls."""
        return self._member.decompress(self._member.unconsumed_tail + data, most)

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data
