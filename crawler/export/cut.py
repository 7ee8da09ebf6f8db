"""Cuts a job at one moment: the lines of its logs, and the records in its WARC files, also while it runs.

The journal records how far each file counts (`accounts.journal`), for all files of a worker at once. What is read here ends
there, so a page that is exported has its records, and a record its page. Files only grow: what counted once stays as it is.
Nothing is locked, and the crawl does not wait.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO, NamedTuple

from anabranch.crawler.accounts.journal import JOURNAL_FILE, recorded_files
from anabranch.crawler.archive.cdxj import index_line, whole_members, write_sorted
from anabranch.crawler.archive.compression import MemberReader
from anabranch.crawler.archive.files import OPEN, finished_files, index_beside
from anabranch.crawler.job.journal import warcs_of
from anabranch.crawler.job.workerfolders import worker_folders
from anabranch.crawler.outcomes.errors import CrawlerError, storage_errors
from anabranch.crawler.processes.gathering import (
    GATHERED,
    LogPart,
    counted_parts,
    is_gathered,
    lines_of,
    recorded_part,
    whole_lines,
)
from anabranch.dedup.files.durable import FileMark, has_end

CRAWL_LOG, ERRORS, PAGES, LINKS = GATHERED

#: How often the files of a job that runs are looked at until they do not change meanwhile.
_MOST_LOOKS = 100
#: Indexes that are merged at once; each is an open file.
_MOST_OPEN = 100


class JobChanging(CrawlerError):
    """Files of the job got other names again and again while they were listed."""


class CutWarc(NamedTuple):
    """A WARC file, or the part of it that counts."""

    path: Path  #: where it was; a file that grows gets its final name meanwhile
    name: str  #: of the finished file
    size: int  #: bytes that count
    is_finished: bool

    def opened(self) -> BinaryIO:
        """Open the file under the name that it has now. Raises: OSError."""
        try:
            return self.path.open("rb")
        except FileNotFoundError:
            return self.path.with_name(self.name).open("rb")

    def is_as_recorded(self, mark: FileMark) -> bool:
        """Whether the file is there, and has the end that was recorded. Raises: OSError."""
        for path in (self.path, self.path.with_name(self.name)):
            with suppress(FileNotFoundError):
                return has_end(path, mark)
        return False

    def index_lines(self) -> Iterator[bytes]:
        """The lines of its index, from the records that count, in their order. Raises: OSError; UsageError without zstd."""
        with self.opened() as file:
            for member in whole_members(MemberReader(file, self.name)):
                if member.end > self.size:
                    return
                line = index_line(member, self.name)
                if line is not None:
                    yield line.to_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCut:
    """The part of a job that counts at one moment. Reading raises StorageError."""

    directory: Path
    parts: Mapping[str, Sequence[Sequence[LogPart]]]  #: of the logs, by their names in the job
    warcs: Sequence[CutWarc]
    damaged: Counter[str] = field(default_factory=Counter)  #: lines that could not be read, by the name of their file

    @property
    def name(self) -> str:
        """The job's name."""
        return self.directory.resolve().name

    def has(self, name: str) -> bool:
        """Whether a log has lines."""
        return any(part.end > part.begin for of_one in self.parts[name] for part in of_one)

    def lines(self, name: str) -> Iterator[bytes]:
        """The lines of a log of all workers; crawl.log's are ordered by time."""
        with storage_errors(self.directory / name, "JOB"):
            yield from lines_of(name, self.parts[name])

    def index(self, scratch: Path) -> Iterator[bytes]:
        """The lines of one sorted index of all WARC files; `scratch` is a folder for parts of it. Raises: UsageError, too."""
        with storage_errors(scratch, "--out"):
            files = [self._sorted_index(warc, scratch) for warc in self.warcs]
            for number in count():
                if len(files) <= _MOST_OPEN:
                    break
                merged = scratch / f"merged-{number}"
                with merged.open("wb") as out:
                    out.writelines(_merged(files[:_MOST_OPEN]))
                files = [*files[_MOST_OPEN:], merged]
            yield from _merged(files)

    @staticmethod
    def _sorted_index(warc: CutWarc, scratch: Path) -> Path:
        """The index beside a finished file, else one that is made of the records."""
        beside = index_beside(warc.path)
        if warc.is_finished and beside.exists():
            return beside
        made = scratch / beside.name
        write_sorted(warc.index_lines(), made)
        return made


def _merged(files: Sequence[Path]) -> Iterator[bytes]:
    with ExitStack() as opened:
        yield from heapq.merge(*(opened.enter_context(file.open("rb")) for file in files))


def cut_of(directory: Path, warcs: Path | None = None) -> JobCut:
    """Find what counts of a job now. `warcs` is a folder of finished WARC files in the place of the job's.

    Cost: the journals are read, mostly less than 1 MB each. Raises: StorageError, AccountsDamaged, GatheringDamaged,
    JobChanging.
    """
    workers = worker_folders(directory)
    of_several = bool(workers) or is_gathered(directory)
    folder = directory / "warc"
    with storage_errors(directory, "JOB"):
        for _ in range(_MOST_LOOKS):
            finished = finished_files(folder)
            recorded = {one: recorded_files(one / "state" / JOURNAL_FILE) or {} for one in workers or [directory]}
            marks = {name: mark for of_one in recorded.values() for name, mark in of_one.items()}
            # One that was finished since is in the marks. If it is not, it was finished before the marks were read.
            if set(map(_name, finished_files(folder))) <= {*map(_name, finished), *marks}:
                break
        else:
            raise JobChanging(f"{directory}: its WARC files change too fast; ask again in a moment")
        if of_several:
            parts = counted_parts(directory, {worker: recorded[worker] for worker in workers})
        else:
            parts = _own_parts(directory, marks)
        if warcs is not None:
            finished, marks = finished_files(warcs), {}
        return JobCut(directory=directory, parts=parts, warcs=_cut_warcs(folder, finished, marks))


def _name(path: Path) -> str:
    return path.name


def _cut_warcs(folder: Path, finished: Sequence[Path], marks: Mapping[str, FileMark]) -> list[CutWarc]:
    """The finished files, and what was recorded of those that grew then, by name."""
    found = {path.name: CutWarc(path, path.name, path.stat().st_size, is_finished=True) for path in finished}
    for name, mark in warcs_of(marks).items():
        growing = CutWarc(folder / (name + OPEN), name, mark.size, is_finished=False)
        if name not in found and growing.is_as_recorded(mark):
            found[name] = growing
    return [found[name] for name in sorted(found)]


def _own_parts(directory: Path, marks: Mapping[str, FileMark]) -> dict[str, list[list[LogPart]]]:
    """The parts of the logs of a job that one process crawls."""
    found: dict[str, list[list[LogPart]]] = {}
    for name in GATHERED:
        with suppress(FileNotFoundError):
            found[name] = [[recorded_part(whole_lines(directory / name), marks)]]
        found.setdefault(name, [])
    return found


def write_files(cut: JobCut, file_of: Callable[[str], Path], scratch: Path) -> list[str]:
    """Write the logs of all workers as one of each, and one index of the WARC files; returns their names.

    Raises: StorageError; UsageError without the library that reads a WARC file.
    """
    names = [Path(name).name for name in GATHERED if cut.has(name)]
    sources = [cut.lines(name) for name in GATHERED if cut.has(name)]
    if cut.warcs:
        names.append("index.cdxj")
        sources.append(cut.index(scratch))
    for name, lines in zip(names, sources, strict=True):
        path = file_of(name)
        with storage_errors(path, "--out"), path.open("wb") as out:
            out.writelines(lines)
    return names
