"""The end of a WARC file: its index is sorted and it loses its `.open`; what a killed process left is mended first."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.archiving.cdxj import place_of, write_sorted
from anabranch.crawler.archiving.growing import INDEX, OPEN, WARC
from anabranch.crawler.archiving.members import LAST_OF_GROUP, index_line, kind_of, whole_members
from anabranch.crawler.jobs.durablefiles import UNFINISHED, descriptor, sync_file, sync_folder


def finish(folder: Path, name: str) -> None:
    """Sort the index of a whole file, then give both their names. May be repeated after a crash. Raises: OSError."""
    growing = folder / (name + INDEX + OPEN)
    with growing.open("rb") as lines:
        write_sorted(iter(lines), folder / (name + INDEX))
    with suppress(FileNotFoundError):  # renamed before the crash
        (folder / (name + WARC + OPEN)).replace(folder / (name + WARC))
    sync_folder(folder)
    growing.unlink()


def finish_left_over(folder: Path, names: str = "*") -> None:
    """Cut each open file after its last whole visit and finish it; remove what means nothing. Raises: OSError.

    `names` is a pattern: others are left alone. The records of a visit end with its metadata; a visit that is cut was not
    acknowledged, so its URL comes again. Only for files that nobody writes to. Cost: what follows the last line of a file's
    index is decompressed.
    """
    for left in sorted(folder.glob(f"{names}{WARC}{OPEN}")):
        name = left.name.removesuffix(WARC + OPEN)
        if _repair(folder, name):
            finish(folder, name)
        else:
            remove(folder, name)
    for stray in (*folder.glob(f"{names}{INDEX}{OPEN}"), *folder.glob(f"{names}{INDEX}{UNFINISHED}")):
        stray.unlink()


def _repair(folder: Path, name: str) -> bool:
    """Cut what is torn, complete the index; False if no record is whole."""
    warc, index = folder / (name + WARC + OPEN), folder / (name + INDEX + OPEN)
    with descriptor(index, os.O_RDWR | os.O_CREAT) as lines, warc.open("r+b") as file:
        known = _known(index, warc.stat().st_size)
        # The first record of the last visit: the line of that comes again if it is whole.
        last = next(whole_members(file, known.last), None)
        if last is None or last.end != known.end:
            known = _Known(0, 0, 0)
        os.ftruncate(lines, known.index_bytes)
        os.lseek(lines, 0, os.SEEK_END)
        end, of_visit = known.last, b""
        for member in whole_members(file, known.last):
            line = index_line(member, name + WARC)
            of_visit += b"" if line is None else line.to_bytes()
            if kind_of(member) in LAST_OF_GROUP:
                os.write(lines, of_visit)
                end, of_visit = member.end, b""
        file.truncate(end)
        sync_file(file.fileno())
    return end > 0


class _Known(NamedTuple):
    """How far an index that grew tells about its file."""

    index_bytes: int  #: whole lines but the last one, in order and within the file
    last: int  #: offset of the last record it has
    end: int  #: where that record ends


def _known(index: Path, size: int) -> _Known:
    """A power failure may have left anything behind the lines that were written long ago."""
    known, read = _Known(0, 0, 0), 0
    with index.open("rb") as lines:
        for line in lines:
            place = place_of(line)
            if place is None or place[0] < known.end or sum(place) > size:
                break
            known = _Known(read, place[0], sum(place))
            read += len(line)
    return known


def remove(folder: Path, name: str) -> None:
    """Remove an open file and its index. Raises: OSError."""
    for ending in (WARC + OPEN, INDEX + OPEN):
        (folder / (name + ending)).unlink(missing_ok=True)
