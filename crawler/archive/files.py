"""WARC files: records are appended group by group, full files are finished, torn ones are repaired at the next opening.

    PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST.warc.gz.open    the file that grows, one member per record; or ….warc.zst.open
    PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST.cdxj.open       its index, as it grows; it can be rebuilt from the records
    ….warc.gz, ….cdxj                                   a finished file, and its sorted index

A file's index is written before the file gets its final name, so no finished file lacks one. It gets that name only when all of
it counts, so no finished file is ever changed. `records.py` makes the records, `compression.py` their members, `cdxj.py` the
lines of the index.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import structlog

from anabranch.crawler.archive.cdxj import (
    HEAD_BYTES,
    Member,
    ends_group,
    index_line,
    place_of,
    whole_members,
    write_sorted,
)
from anabranch.crawler.archive.compression import (
    ENDINGS,
    GZIP_FILE,
    ZSTD_FILE,
    BrokenMember,
    Compression,
    Gzip,
    MemberReader,
)
from anabranch.crawler.archive.records import (
    END_OF_RECORD,
    Exchange,
    NameRecord,
    Record,
    RecordIds,
    RecordLocation,
    exchange_records,
    name_record,
    warcinfo_record,
)
from anabranch.crawler.archive.sink import JournalEntry, JournalSink
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.dedup.files.durable import (
    UNFINISHED,
    AppendOnlyFile,
    FileMark,
    cut_back,
    descriptor,
    errors_named,
    sync_file,
    sync_folder,
    write_all,
)

log = structlog.get_logger(__name__)

INDEX = ".cdxj"
#: Ending of the files that grow.
OPEN = ".open"

_WRITE_BYTES = 1 << 18
#: Response or revisit, request, metadata.
_RECORDS_OF_VISIT = 3
#: The field of a file's first record that has the file's name.
_INFO_NAME = re.compile(rb"\A(WARC/1\.1\r\nWARC-Type: warcinfo\r\n(?:[^\r\n]+\r\n)*WARC-Filename: )[^\r\n]+")
_UNFIT_IN_NAME = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarcOptions:
    """Names, size and warcinfo of WARC files."""

    prefix: str
    size_bytes: int  #: a file of this size is finished
    facts: Mapping[str, str]  #: the fields of warcinfo
    is_alone: bool = True  #: no other job writes to the folder; otherwise only files with this prefix are ours
    compression: Compression = field(default_factory=Gzip)


class WarcFiles(JournalSink):
    """The journal's sink for exchanges. Opening makes the folder and finishes files that a killed process left.

    The records of one visit are in one file. Their location goes into the entry for the next sinks, and by `note` into its line
    of crawl.log. `recorded`: see `finish_left_over`. Opening raises StorageError, `append` OSError.
    """

    def __init__(
        self,
        folder: Path,
        options: WarcOptions,
        clock: Callable[[], float],
        note: Callable[[bytes, RecordLocation], bytes] = lambda line, _: line,
        recorded: Mapping[str, FileMark] | None = None,
    ) -> None:
        self._folder = folder
        self._options = options
        self._clock = clock
        self._note = note
        with storage_errors(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
            finish_left_over(folder, "*" if options.is_alone else f"{options.prefix}-*", recorded)
            self._serial = len(finished_files(folder))
        self._current: OpenWarc | None = None
        self._touched: list[OpenWarc] = []  # of this group, in order
        self._full: list[OpenWarc] = []  # to be finished before the next group
        self._left: list[OpenWarc] = []  # could not be finished

    @property
    def path(self) -> Path:
        """The file that grows, or the folder."""
        return self._touched[-1].path if self._touched else self._current.path if self._current else self._folder

    def marks(self) -> Mapping[str, FileMark]:
        """By the names that the files will have."""
        growing = (*self._left, *self._full, *self._touched, *filter(None, [self._current]))
        return {warc.filename: warc.mark() for warc in growing}

    def append(self, entries: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
        """Write the records of a group, with one sync per file (mostly one); returns the entries with their places."""
        while self._full:
            self._finish(self._full[0])
            del self._full[0]
        placed = []
        for entry in entries:
            if entry.name is not None:
                self._writable().add_name(entry.name)
            if entry.exchange is not None:
                place = self._writable().add(entry.exchange)
                line = None if entry.crawl_log is None else self._note(entry.crawl_log, place)
                entry = entry._replace(crawl_log=line, place=place)  # noqa: PLW2901 - the same entry, completed
            placed.append(entry)
        for warc in self._touched:
            warc.sync()
        return placed

    def keep(self) -> None:
        """Keep the records of the group. Full files are finished with the next group."""
        for warc in self._touched:
            warc.keep()
            if warc is not self._current:
                self._full.append(warc)
        self._touched.clear()

    def take_back(self) -> None:
        """Cut the records of the group, and remove files that have no others."""
        if self._touched:
            self._current = None if self._touched[0].is_empty else self._touched[0]
        for warc in self._touched:
            warc.take_back()
            if warc.is_empty:
                warc.close()
                with suppress(OSError):
                    remove(warc.path)
        self._touched.clear()

    def close(self) -> None:
        """Finish the files. The next opening finishes those that cannot be finished now, and those of an unsettled group."""
        left = [*self._full, *(warc for warc in (self._current,) if warc and warc not in self._touched)]
        for warc in self._touched:  # whether they count is not known
            warc.close()
        self._full, self._current, self._touched = [], None, []
        for warc in left:
            try:
                self._finish(warc)
            except OSError as error:
                self._left.append(warc)
                log.warning(
                    "a WARC file is left open; the next run finishes it", path=str(warc.path), reason=str(error)
                )

    def _writable(self) -> OpenWarc:
        """The file for the next exchange, ready for this group."""
        warc = self._current
        if warc is not None and warc not in self._touched:
            warc.begin()
        if warc is not None and warc.size_bytes >= self._options.size_bytes:
            if warc not in self._touched:  # otherwise `keep` does it
                self._full.append(warc)
            warc = self._current = None
        if warc is None:
            warc = self._current = self._new_file()
        if warc not in self._touched:
            self._touched.append(warc)
        return warc

    def _new_file(self) -> OpenWarc:
        """Make a file with a name that no other has. After an error nothing of it is left; the next try takes another name."""
        now_s = self._clock()
        made = datetime.fromtimestamp(now_s, UTC)
        stamp = f"{made:%Y%m%d%H%M%S}{made.microsecond // 1000:03}"
        host = _UNFIT_IN_NAME.sub("-", socket.gethostname()) or "localhost"
        name = f"{self._options.prefix}-{stamp}-{self._serial:05}-{host}"
        while any(
            (self._folder / (name + ending)).exists() for ending in ENDINGS
        ):  # a clock was set back, and some serials have no file
            self._serial += 1
            name = f"{self._options.prefix}-{stamp}-{self._serial:05}-{host}"
        self._serial += 1
        try:
            return OpenWarc(self._folder, name, now_s, self._options)
        except OSError:
            with suppress(OSError):
                remove(self._folder / (name + self._options.compression.ending + OPEN))
            raise

    def _finish(self, warc: OpenWarc) -> None:
        warc.begin()  # a torn record must not get the name of a whole file
        warc.close()
        finish(warc.path)


class OpenWarc:
    """One file that grows, with its index. Records are buffered until `sync` or a full buffer. Raises: OSError."""

    def __init__(self, folder: Path, name: str, made_s: float, options: WarcOptions) -> None:
        self._compression = options.compression
        self.filename = name + self._compression.ending  #: of the finished file
        self._ready, self._ready_lines = bytearray(), bytearray()  # of both files, not yet written
        self._file = AppendOnlyFile(folder / (self.filename + OPEN), lambda fd: os.fstat(fd).st_size)
        try:
            self._index = AppendOnlyFile(index_beside(self._file.path))
        except OSError:
            self._file.close()
            raise
        self._ids = RecordIds()
        info = warcinfo_record(self.filename, made_s, options.facts, self._ids)
        self._info_id = info.record_id
        self._ready += self._compression.beginning
        self._add(info)

    @property
    def path(self) -> Path:
        """The file under its present name."""
        return self._file.path

    def mark(self) -> FileMark:
        """The end of all that was written to the file. Raises: OSError."""
        return self._file.mark()

    @property
    def size_bytes(self) -> int:
        """All that was added, kept or not."""
        return self._file.written_bytes + len(self._ready)

    @property
    def is_empty(self) -> bool:
        """Nothing in it was kept."""
        return not self._file.kept_bytes

    def begin(self) -> None:
        """Cut what an earlier failure left behind."""
        self._ready, self._ready_lines = bytearray(), bytearray()
        self._index.begin()
        self._file.begin()

    def add(self, exchange: Exchange) -> RecordLocation:
        """Add the records of a visit and the index line of its response; returns where the response is."""
        response, *others = exchange_records(exchange, self._info_id, self._ids)
        member = self._add(response)
        for record in others:
            self._add(record)
        line = index_line(member, self.filename)
        assert line is not None, "it is a response or a revisit"
        self._ready_lines += line.to_bytes()
        return RecordLocation(self.filename, member.offset)

    def add_name(self, name: NameRecord) -> None:
        """Add the record of a name that was looked up. It has no line in the index: nobody replays it."""
        self._add(name_record(name, self._info_id, self._ids))

    def sync(self) -> None:
        """Make the records durable. The index is not synced: opening completes it from the records."""
        self._write()
        self._index.write(self._ready_lines)
        self._ready_lines = bytearray()
        self._file.sync()

    def keep(self) -> None:
        """Count what was written."""
        self._file.keep()
        self._index.keep()

    def take_back(self) -> None:
        """Cut what was not kept, the index first: it must not know more than the file has."""
        self._ready, self._ready_lines = bytearray(), bytearray()
        self._index.take_back()
        self._file.take_back()

    def close(self) -> None:
        """Close both files."""
        self._file.close()
        self._index.close()

    def _add(self, record: Record) -> Member:
        """Append a record as one member. Of the member's head, only what precedes the body is filled in."""
        pieces = record.stream()
        head = next(pieces)
        size_bytes = len(head) + record.body_bytes + len(END_OF_RECORD)
        offset = self.size_bytes
        if size_bytes <= _WRITE_BYTES:
            self._ready += self._compression.member(b"".join((head, *pieces)))
        else:
            packer = self._compression.packer(size_bytes)
            self._ready += packer.compress(head)
            for piece in pieces:
                self._ready += packer.compress(piece)
                self._write_full()
            self._ready += packer.flush()
        self._write_full()
        return Member(offset, self.size_bytes - offset, head[:HEAD_BYTES])

    def _write_full(self) -> None:
        if len(self._ready) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.write(self._ready)
        self._ready = bytearray()


def finished_files(folder: Path) -> list[Path]:
    """The finished files, of either compression, by name: the oldest first."""
    return sorted(path for ending in ENDINGS for path in folder.glob(f"*{ending}"))


def open_files(folder: Path, names: str = "*") -> list[Path]:
    """Files that grow, or were left by a killed crawl; the next run finishes them."""
    return sorted(path for ending in ENDINGS for path in folder.glob(f"{names}{ending}{OPEN}"))


def index_beside(warc: Path) -> Path:
    """The index of a file, which is finished or grows. Pure."""
    is_open = warc.name.endswith(OPEN)
    return warc.with_name(_stem(warc) + INDEX + (OPEN if is_open else ""))


def _stem(warc: Path) -> str:
    """The name of a file without its endings."""
    name = warc.name.removesuffix(OPEN)
    return name.removesuffix(GZIP_FILE).removesuffix(ZSTD_FILE)


def finish(left: Path) -> None:
    """Sort the index of a whole file, then give both their final names. May be repeated after a crash. Raises: OSError."""
    growing, finished = index_beside(left), left.with_name(left.name.removesuffix(OPEN))
    with growing.open("rb") as lines:
        write_sorted(iter(lines), index_beside(finished))
    with suppress(FileNotFoundError):  # renamed before the crash
        left.replace(finished)
    sync_folder(left.parent)
    growing.unlink()


def finish_left_over(folder: Path, names: str = "*", recorded: Mapping[str, FileMark] | None = None) -> None:
    """Cut each open file of the pattern after its last visit that counts and finish it; remove files without one.

    `recorded` has the ends of the files behind the last group of visits that counts; None: unknown, and every whole visit
    counts. The URL of a visit that is cut is fetched again, since it was not acknowledged. No process may be writing to the
    files. Cost: the records after the last index line of each file are decompressed. Raises: OSError; UsageError without the
    library that reads a file.
    """
    for left in open_files(folder, names):
        if _counts(left, recorded) and _repair(left):
            finish(left)
        else:
            remove(left)
    for stray in (*folder.glob(f"{names}{INDEX}{OPEN}"), *folder.glob(f"{names}{INDEX}{UNFINISHED}")):
        stray.unlink()


def _counts(left: Path, recorded: Mapping[str, FileMark] | None) -> bool:
    """Cut an open file to what was recorded of it; False if nothing was. Raises: OSError."""
    if recorded is None:
        return True
    mark = recorded.get(left.name.removesuffix(OPEN))
    surplus = left.stat().st_size if mark is None else cut_back(left, mark)
    if surplus is None:
        log.warning("a WARC file is not as it was recorded; its whole visits are kept", path=str(left))
    elif surplus:
        log.info("the records of a group that was not complete are cut", path=str(left), bytes=surplus)
    return mark is not None


def _repair(left: Path) -> bool:
    """Cut the torn end, complete the index; False if no record is whole."""
    index, filename = index_beside(left), left.name.removesuffix(OPEN)
    with descriptor(index, os.O_RDWR | os.O_CREAT, 0o666) as lines, left.open("r+b") as file:
        members = MemberReader(file, filename)
        known = _known(index, left.stat().st_size)
        # The first record of the last visit. Its line is written again if the visit is whole.
        last = next(whole_members(members, known.last), None)
        if last is None or last.end != known.end:
            known = _Known(0, 0, 0)
        os.ftruncate(lines, known.index_bytes)
        end, of_visit = known.last, b""
        for member in whole_members(members, known.last):
            line = index_line(member, filename)
            of_visit += b"" if line is None else line.to_bytes()
            if ends_group(member):
                write_all(lines, of_visit, os.lseek(lines, 0, os.SEEK_END))
                end, of_visit = member.end, b""
        file.truncate(end)
        sync_file(file.fileno())
    return end > 0


class _Known(NamedTuple):
    """How far an unsorted index can be trusted."""

    index_bytes: int  #: its lines but the last one, as far as they are whole, in order and within the file
    last: int  #: offset of the record of the last line
    end: int  #: its end


def _known(index: Path, size: int) -> _Known:
    """After a power failure the newer part of the index may hold anything."""
    known, read = _Known(0, 0, 0), 0
    with index.open("rb") as lines:
        for line in lines:
            place = place_of(line)
            if place is None or place[0] < known.end or sum(place) > size:
                break
            known = _Known(read, place[0], sum(place))
            read += len(line)
    return known


def remove(left: Path) -> None:
    """Remove an open file and its index. Raises: OSError."""
    for path in (left, index_beside(left)):
        path.unlink(missing_ok=True)


class Indexed(NamedTuple):
    """A file that was indexed, or made by a conversion."""

    source: Path  #: the file that was read
    path: Path  #: the file of the index
    answers: int  #: lines of its index
    damaged_from: int | None  #: offset of the first record that is not whole; None if all are


def reindex(folder: Path) -> Iterator[Indexed]:
    """Write the index of each finished file anew; yields each.

    Decompresses the files once. Raises: OSError; UsageError without the library that reads a file.
    """
    return map(_reindex, finished_files(folder))


def _reindex(path: Path) -> Indexed:
    answers = end = 0

    def lines() -> Iterator[bytes]:
        nonlocal answers, end
        with path.open("rb") as file:
            for member in whole_members(MemberReader(file, path.name)):
                end = member.end
                line = index_line(member, path.name)
                if line is not None:
                    answers += 1
                    yield line.to_bytes()

    write_sorted(lines(), index_beside(path))
    return Indexed(path, path, answers, None if end == path.stat().st_size else end)


def convert(folder: Path, target: Path) -> Iterator[Indexed]:
    """Write each finished zstd file of a folder as gzip, with its index, into another one; yields each that was not there.

    Decompresses the files once. A file that is not whole is converted up to the damage. Raises: OSError; UsageError without the
    library of zstd.
    """
    for source in sorted(folder.glob(f"*{ZSTD_FILE}")):
        if not (target / (_stem(source) + GZIP_FILE)).exists():
            yield _converted(source, target)


def _converted(source: Path, target: Path) -> Indexed:
    made = target / (_stem(source) + GZIP_FILE)
    unfinished = made.with_name(made.name + UNFINISHED)
    answers = end = 0

    def lines() -> Iterator[bytes]:
        nonlocal answers, end
        with source.open("rb") as file, errors_named(unfinished), unfinished.open("wb") as out:
            members = MemberReader(file, source.name)
            while (member := _copied(members, end, out, made.name)) is not None:
                end = members.end
                line = index_line(member, made.name)
                if line is not None:
                    answers += 1
                    yield line.to_bytes()
            out.flush()
            sync_file(out.fileno())

    try:
        write_sorted(lines(), index_beside(made))
        unfinished.replace(made)
    except BaseException:  # also without the library
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    sync_folder(target)
    return Indexed(source, made, answers, None if end == source.stat().st_size else end)


def _copied(members: MemberReader, start: int, out: BinaryIO, filename: str) -> Member | None:
    """Add the record at an offset to a gzip file of this name; None if it is not whole. Raises: OSError, UsageError."""
    offset, head, packer = out.tell(), bytearray(), Gzip().packer(_WRITE_BYTES)
    try:
        for piece in members.pieces(start):
            renamed = piece if head else _INFO_NAME.sub(rb"\g<1>" + filename.encode(), piece)
            head += renamed[: HEAD_BYTES - len(head)]
            out.write(packer.compress(renamed))
    except BrokenMember:
        out.seek(offset)
        out.truncate()
        return None
    if head:  # it is no skippable frame
        out.write(packer.flush())
    return Member(offset, out.tell() - offset, bytes(head))


#: Of a job's visits, so many are samples for a dictionary. zstd advises a hundred times its size, 11 MB.
_SAMPLED_VISITS, _SAMPLED_FILES = 1_000, 200
#: The part of a record that is a sample: more makes no better dictionary of pages.
_SAMPLE_BYTES = 1 << 15


def sampled_records(folder: Path) -> list[bytes]:
    """The records of about 1,000 visits, spread over up to 200 finished files and, by their indexes, over the sites in them.

    Raises: OSError; UsageError without the library that reads a file.
    """
    files = finished_files(folder)
    files = files[:: len(files) // _SAMPLED_FILES + 1]
    found = []
    for path in files:
        places = [place for place in map(place_of, _lines_of(index_beside(path))) if place is not None]
        step = max(len(places) * len(files) // _SAMPLED_VISITS, 1)
        with path.open("rb") as file:
            members = MemberReader(file, path.name)
            for offset, _ in places[::step]:
                found += [
                    member.head[:_SAMPLE_BYTES] for member in islice(whole_members(members, offset), _RECORDS_OF_VISIT)
                ]
    return found


def _lines_of(index: Path) -> list[bytes]:
    with index.open("rb") as lines:
        return list(lines)
