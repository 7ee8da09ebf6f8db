"""WARC files: appended group by group, full ones closed under their name, torn ones finished at the next opening.

    PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST.warc.gz.open    the file that grows, one gzip member per record
    PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST.cdxj.open       its index, as it grows; says nothing that the records do not
    ….warc.gz, ….cdxj                                   a finished file, and its sorted index

A file's index is written before the file gets its name, so that no finished file is without one.
"""

from __future__ import annotations

import os
import re
import socket
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import structlog

from crawler.archiving.cdxj import IndexLine, place_of, write_sorted
from crawler.archiving.members import index_line, whole_members
from crawler.archiving.records import Exchange, Place, Record, digest_text, exchange_records, warcinfo_record
from crawler.jobs.durablefiles import UNFINISHED, AppendOnlyFile, descriptor, sync_file, sync_folder
from crawler.jobs.journal import Entry
from crawler.outcomes.errors import storage_errors

log = structlog.get_logger(__name__)

WARC = ".warc.gz"
INDEX = ".cdxj"
#: Ending of the files that grow.
OPEN = ".open"

_LEVEL = 6  # zlib's own compromise; 9 takes twice the time for 1 % less
_GZIP = 31  # zlib: gzip with its header
_WRITE_BYTES = 1 << 18
_UNFIT_IN_NAME = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarcOptions:
    """How WARC files are named, how large they get, what they say of the crawl."""

    prefix: str
    size_bytes: int  #: a file that has reached it is finished
    facts: Mapping[str, str]  #: the fields of warcinfo


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
        offset, length = self._add(answer)
        for record in others:
            self._add(record)
        self._index.write(_line(exchange, offset, length, self.filename).to_bytes())
        return Place(self.filename, offset)

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

    def _add(self, record: Record) -> tuple[int, int]:
        """Append a record as one gzip member; its offset and length."""
        offset = self._file.written_bytes
        for piece in _gzipped(record):
            self._file.write(piece)
        return offset, self._file.written_bytes - offset


class WarcFiles:
    """The journal's sink for exchanges. Opening makes the folder and finishes what a killed process left in it.

    A file is made with the first exchange that needs it. The records of one visit stand in one file. The sinks behind are told
    where: in the entry, and by `note` in its line of crawl.log. Raises: StorageError from opening, OSError from `append`.
    """

    def __init__(
        self,
        folder: Path,
        options: WarcOptions,
        clock: Callable[[], float],
        note: Callable[[bytes, Place], bytes] = lambda line, _: line,
    ) -> None:
        self._folder = folder
        self._options = options
        self._clock = clock
        self._note = note
        with storage_errors(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
            finish_left_over(folder)
            self._serial = sum(1 for _ in folder.glob(f"*{WARC}"))
        self._current: OpenWarc | None = None
        self._touched: list[OpenWarc] = []  # of this group, in order
        self._full: list[OpenWarc] = []  # to be finished before the next group

    @property
    def path(self) -> Path:
        """The file that grows, or else the folder."""
        return self._touched[-1].path if self._touched else self._current.path if self._current else self._folder

    def append(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Write the records of a group, with one sync per file (mostly: one); the entries with their places."""
        while self._full:
            self._finish(self._full[0])
            del self._full[0]
        placed = [self._placed(entry) for entry in entries]
        for warc in self._touched:
            warc.sync()
        return placed

    def keep(self) -> None:
        """The records count; full files are finished with the next group."""
        for warc in self._touched:
            warc.keep()
            if warc is not self._current:
                self._full.append(warc)
        self._touched.clear()

    def take_back(self) -> None:
        """Cut the records that do not count, and remove files that have no others."""
        if self._touched:
            self._current = None if self._touched[0].is_empty else self._touched[0]
        for warc in self._touched:
            warc.take_back()
            if warc.is_empty:
                warc.close()
                with suppress(OSError):
                    _remove(self._folder, warc.name)
        self._touched.clear()

    def close(self) -> None:
        """Finish the files. What cannot be finished now is finished by the next opening."""
        left = [*self._full, *filter(None, [self._current])]
        self._full, self._current = [], None
        for warc in left:
            try:
                self._finish(warc)
            except OSError as error:
                log.warning(
                    "a WARC file is left open; the next run finishes it", path=str(warc.path), reason=str(error)
                )

    def _placed(self, entry: Entry) -> Entry:
        if entry.exchange is None:
            return entry
        place = self._writable().add(entry.exchange)
        line = None if entry.crawl_log is None else self._note(entry.crawl_log, place)
        return replace(entry, place=place, crawl_log=line)

    def _writable(self) -> OpenWarc:
        """The file for the next exchange, ready for this group."""
        warc = self._current
        if warc is not None and warc.size_bytes >= self._options.size_bytes:
            if warc not in self._touched:  # else `keep` does it
                self._full.append(warc)
            warc = self._current = None
        if warc is None:
            warc = self._current = self._opened()
        elif warc not in self._touched:
            warc.begin()
            self._touched.append(warc)
        return warc

    def _opened(self) -> OpenWarc:
        now_s = self._clock()
        warc = OpenWarc(self._folder, _name(self._options.prefix, now_s, self._serial))
        self._serial += 1
        self._touched.append(warc)
        warc.add_info(now_s, self._options.facts)
        return warc

    def _finish(self, warc: OpenWarc) -> None:
        warc.begin()  # a torn record must not get the name of a whole file
        warc.close()
        finish(self._folder, warc.name)


def finish(folder: Path, name: str) -> None:
    """Sort the index of a whole file, then give both their names. May be repeated after a crash. Raises: OSError."""
    growing = folder / (name + INDEX + OPEN)
    with growing.open("rb") as lines:
        write_sorted(iter(lines), folder / (name + INDEX))
    with suppress(FileNotFoundError):  # renamed before the crash
        (folder / (name + WARC + OPEN)).replace(folder / (name + WARC))
    sync_folder(folder)
    growing.unlink()


def finish_left_over(folder: Path) -> None:
    """Cut each open file after its last whole record and finish it; remove what means nothing. Raises: OSError.

    Only for a folder that nobody writes to. Cost: what follows the last line of a file's index is decompressed.
    """
    for left in sorted(folder.glob(f"*{WARC}{OPEN}")):
        name = left.name.removesuffix(WARC + OPEN)
        if _repair(folder, name):
            finish(folder, name)
        else:
            _remove(folder, name)
    for stray in (*folder.glob(f"*{INDEX}{OPEN}"), *folder.glob(f"*{INDEX}{UNFINISHED}")):
        stray.unlink()


def _repair(folder: Path, name: str) -> bool:
    """Cut what is torn, complete the index; False if no record is whole."""
    warc, index = folder / (name + WARC + OPEN), folder / (name + INDEX + OPEN)
    with descriptor(index, os.O_RDWR | os.O_CREAT) as lines, warc.open("r+b") as file:
        known = _known(index, warc.stat().st_size)
        last = next(whole_members(file, known.last), None)
        if last is None or last.end != known.end:
            known = _Known(0, 0, 0)
        os.ftruncate(lines, known.index_bytes)
        os.lseek(lines, 0, os.SEEK_END)
        end = known.end
        for member in whole_members(file, known.end):
            end = member.end
            line = index_line(member, name + WARC)
            if line is not None:
                os.write(lines, line.to_bytes())
        file.truncate(end)
        sync_file(file.fileno())
    return end > 0


class _Known(NamedTuple):
    """How far an index that grew tells about its file."""

    index_bytes: int  #: whole lines, in order and within the file
    last: int  #: offset of the last record it has
    end: int  #: where that record ends


def _known(index: Path, size: int) -> _Known:
    """A power failure may have left anything behind the lines that were written long ago."""
    known = _Known(0, 0, 0)
    with index.open("rb") as lines:
        for line in lines:
            place = place_of(line)
            if place is None or place[0] < known.end or sum(place) > size:
                break
            known = _Known(known.index_bytes + len(line), place[0], sum(place))
    return known


def _gzipped(record: Record) -> Iterator[bytes]:
    """A record as one gzip member, in pieces that are worth a write."""
    deflate, ready = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP), bytearray()
    for piece in record.stream():
        ready += deflate.compress(piece)
        if len(ready) >= _WRITE_BYTES:
            yield bytes(ready)
            ready.clear()
    yield bytes(ready) + deflate.flush()


def _line(exchange: Exchange, offset: int, length: int, filename: str) -> IndexLine:
    answer, revisit = exchange.response, exchange.revisit
    types = (value for name, value in answer.raw_headers if name.lower() == b"content-type")
    return IndexLine(
        url=exchange.url,
        date=exchange.date,
        mime=next(types, b"").decode("utf-8", "replace"),
        status=answer.status,
        digest=digest_text(answer.body.digest if revisit is None else revisit.original.digest),
        length=length,
        offset=offset,
        filename=filename,
        is_revisit=revisit is not None,
    )


def _name(prefix: str, made_s: float, serial: int) -> str:
    """`PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST`."""
    made = datetime.fromtimestamp(made_s, UTC)
    host = _UNFIT_IN_NAME.sub("-", socket.gethostname()) or "localhost"
    return f"{prefix}-{made:%Y%m%d%H%M%S}{made.microsecond // 1000:03}-{serial:05}-{host}"


def _remove(folder: Path, name: str) -> None:
    for ending in (WARC + OPEN, INDEX + OPEN):
        (folder / (name + ending)).unlink(missing_ok=True)


def _all_of_it(fd: int) -> int:
    return os.fstat(fd).st_size
