"""One WARC file that grows, with its index beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.archiving.compressing import gzip_member
from anabranch.crawler.archiving.exchanges import Exchange, Place
from anabranch.crawler.archiving.members import HEAD_BYTES, Member, index_line
from anabranch.crawler.archiving.records import Record, exchange_records, warcinfo_record
from anabranch.crawler.jobs.durablefiles import AppendOnlyFile

WARC = ".warc.gz"
INDEX = ".cdxj"
#: Ending of the files that grow.
OPEN = ".open"

_WRITE_BYTES = 1 << 18


class _Begun(NamedTuple):
    """A record whose digests are known."""

    head: bytes  #: what stands before a body
    rest: Iterator[bytes]
    size_bytes: int  #: of both


def _begun(record: Record) -> _Begun:
    pieces = record.stream()
    head = next(pieces)
    return _Begun(head, pieces, len(head) + record.body_bytes)


class OpenWarc:
    """One file that grows, with its index. What is added is written by `sync`, or before that if it is much.

    Raises OSError wherever it writes.
    """

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
        self._ready, self._ready_lines = bytearray(), bytearray()  # of both files, not yet written

    @property
    def path(self) -> Path:
        """The file, as it is called now."""
        return self._file.path

    @property
    def size_bytes(self) -> int:
        """What is added, whether it counts or not."""
        return self._file.written_bytes + len(self._ready)

    @property
    def is_empty(self) -> bool:
        """Nothing in it counts."""
        return not self._file.kept_bytes

    def begin(self) -> None:
        """Cut what an earlier failure left."""
        self._forget()
        self._index.begin()
        self._file.begin()

    def add_info(self, made_s: float, facts: Mapping[str, str]) -> None:
        """Add the first record."""
        self.info = warcinfo_record(self.filename, made_s, facts)
        self._add(_begun(self.info))

    def add(self, exchanges: Sequence[Exchange], full_bytes: int) -> list[Place]:
        """Add the records of visits, and the lines of index for their answers, until the file has so many bytes; where the
        answers stand that were added, one at least.

        Step by step for all of them: each step then finds its code in the processor's caches, which a visit at a time does not.
        """
        visits = [
            [_begun(record) for record in records] for records in exchange_records(exchanges, self.info.record_id)
        ]
        answers: list[Member] = []
        for answer, *others in visits:
            answers.append(self._add(answer))
            for record in others:
                self._add(record)
            if self.size_bytes >= full_bytes:
                break
        for line in [index_line(member, self.filename) for member in answers]:
            assert line is not None, "it is an answer"
            self._ready_lines += line.to_bytes()
        return [Place(self.filename, member.offset) for member in answers]

    def sync(self) -> None:
        """Return when the records are durable. The index is not synced: opening finds what it lacks in the records."""
        self._write()
        self._index.write(self._ready_lines)
        self._ready_lines = bytearray()
        self._file.sync()

    def keep(self) -> None:
        """What is written counts."""
        self._file.keep()
        self._index.keep()

    def take_back(self) -> None:
        """Cut what does not count, the index first: it must not know more than the file has."""
        self._forget()
        self._index.take_back()
        self._file.take_back()

    def close(self) -> None:
        """Close both files."""
        self._file.close()
        self._index.close()

    def _add(self, begun: _Begun) -> Member:
        """Append a record as one gzip member; of its head, what stands before a body."""
        offset, deflate = self.size_bytes, gzip_member(begun.size_bytes)
        if begun.size_bytes <= _WRITE_BYTES:
            self._ready += deflate.compress(b"".join((begun.head, *begun.rest)))
        else:
            self._ready += deflate.compress(begun.head)
            for piece in begun.rest:
                self._ready += deflate.compress(piece)
                self._write_much()
        self._ready += deflate.flush()
        self._write_much()
        return Member(offset, self.size_bytes - offset, begun.head[:HEAD_BYTES])

    def _write_much(self) -> None:
        if len(self._ready) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.write(self._ready)
        self._ready = bytearray()

    def _forget(self) -> None:
        self._ready, self._ready_lines = bytearray(), bytearray()


def _all_of_it(fd: int) -> int:
    return os.fstat(fd).st_size
