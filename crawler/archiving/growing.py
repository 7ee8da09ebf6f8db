"""One WARC file that grows, with its index beside it."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from crawler.archiving.exchanges import Exchange, Place
from crawler.archiving.members import HEAD_BYTES, Member, index_line
from crawler.archiving.records import Record, exchange_records, warcinfo_record
from crawler.jobs.durablefiles import AppendOnlyFile

WARC = ".warc.gz"
INDEX = ".cdxj"
#: Ending of the files that grow.
OPEN = ".open"

_LEVEL = 6  # zlib's own compromise; 9 takes twice the time for 1 % less
_GZIP = 31  # zlib: gzip with its header
_WRITE_BYTES = 1 << 18


class OpenWarc:
    """One file that grows, with its index. Raises OSError wherever it writes."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.filename = name + WARC  #: as it is called when it is finished
        self.info = warcinfo_record("", 0.0, {})
        self._file = AppendOnlyFile(folder / (name + WARC + OPEN), _all_of_it)
        try:
            self._index = AppendOnlyFile(folder / (name + INDEX + OPEN))
        except OSError:
            self._file.close()
            raise

    @property
    def path(self) -> Path:
        """The file, as it is called now."""
        return self._file.path

    @property
    def size_bytes(self) -> int:
        """What is written, whether it counts or not."""
        return self._file.written_bytes

    @property
    def is_empty(self) -> bool:
        """Nothing in it counts."""
        return not self._file.kept_bytes

    def begin(self) -> None:
        """Cut what an earlier failure left."""
        self._index.begin()
        self._file.begin()

    def add_info(self, made_s: float, facts: Mapping[str, str]) -> None:
        """Write the first record."""
        self.info = warcinfo_record(self.filename, made_s, facts)
        self._add(self.info)

    def add(self, exchange: Exchange) -> Place:
        """Write the records of a visit, and the line of index for its answer; where that stands."""
        answer, *others = exchange_records(exchange, self.info.record_id)
        member = self._add(answer)
        for record in others:
            self._add(record)
        line = index_line(member, self.filename)
        assert line is not None, "it is an answer"
        self._index.write(line.to_bytes())
        return Place(self.filename, member.offset)

    def sync(self) -> None:
        """Return when the records are durable. The index is not synced: opening finds what it lacks in the records."""
        self._file.sync()

    def keep(self) -> None:
        """What is written counts."""
        self._file.keep()
        self._index.keep()

    def take_back(self) -> None:
        """Cut what does not count, the index first: it must not know more than the file has."""
        self._index.take_back()
        self._file.take_back()

    def close(self) -> None:
        """Close both files."""
        self._file.close()
        self._index.close()

    def _add(self, record: Record) -> Member:
        """Append a record as one gzip member; of its head, what stands before a body."""
        offset, pieces = self._file.written_bytes, record.stream()
        head = next(pieces)
        for piece in _gzipped(chain((head,), pieces)):
            self._file.write(piece)
        return Member(offset, self._file.written_bytes - offset, head[:HEAD_BYTES])


def _gzipped(record: Iterable[bytes]) -> Iterator[bytes]:
    """A record as one gzip member, in pieces that are worth a write."""
    deflate, ready = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP), bytearray()
    for piece in record:
        ready += deflate.compress(piece)
        if len(ready) >= _WRITE_BYTES:
            yield bytes(ready)
            ready.clear()
    yield bytes(ready) + deflate.flush()


def _all_of_it(fd: int) -> int:
    return os.fstat(fd).st_size
