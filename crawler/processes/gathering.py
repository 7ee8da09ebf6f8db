"""The workers' logs as the job's: what they have written since the last time is added to the job's own files.

One small file records how far each was read, and how long the job's file was then. It is replaced when the job's file is
synced. If the process is killed in between, the next one cuts the lines behind that length and gathers them again, so each
line is there once. Before a worker's file is read it is cut to the last group that the worker has recorded (`roll_back`), for
what is behind that does not count. A file that an operator has moved is recognised by its inode: a worker's moved files are
read to their end if they are in the same folder and not compressed; the job's own is begun anew, which is recorded first.
Lines of crawl.log that are gathered together are sorted by time.
"""

from __future__ import annotations

import errno
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.accounts.journal import JOURNAL_FILE, recorded_files
from anabranch.crawler.archive.files import finish_left_over
from anabranch.crawler.job.journal import roll_back
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, storage_errors
from anabranch.dedup.files.durable import (
    AppendOnlyFile,
    FileMark,
    checked_json,
    checked_line,
    end_of_last_line,
    has_end,
    replace_file,
)

#: The job's files that workers have parts of; the first is ordered by time.
CRAWL_LOG = "logs/crawl.log"
GATHERED = (CRAWL_LOG, "logs/errors.jsonl", "pages.jsonl", "links.jsonl")
_PLACES = "gathered.json"
#: Characters of the time at the beginning of a line of crawl.log, and bytes that are written at a time.
_TIME_CHARS = 24
_CHUNK_BYTES = 1 << 20
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


class GatheringDamaged(CrawlerError):
    """It is unknown which lines of the workers' logs the job's own logs have, so nothing is cut and nothing is added."""

    exit_code: ExitCode = ExitCode.BAD_ORDER

    def __init__(self, note: Path, what: str, files: Sequence[Path]) -> None:
        names = ", ".join(str(file) for file in files if file.exists())
        super().__init__(
            f"{note}: {what}; restore it from a copy, or remove it and move {names} away: "
            "these are gathered anew then, from what the workers have"
        )


def gather(job: Path, workers: Sequence[Path]) -> None:
    """Bring the job's files up to date, while no worker writes (blocks).

    Raises: StorageError, GatheringDamaged, AccountsDamaged.
    """
    note = job / "state" / _PLACES
    with storage_errors(note):
        _roll_back(workers)
        places = _noted(note, [job / name for name in GATHERED])
        for name in GATHERED:
            sources = {worker.name: worker / name for worker in workers}
            if any(source.exists() for source in sources.values()):
                for place in _gathered(job, name, sources, places.get(name, {})):
                    places[name] = place
                    _note(note, places)
            elif places.get(name, {}).get("read") and not any(worker.is_dir() for worker in workers):
                # The workers' folders were removed: what comes there is new.
                job_inode = {of: inode for of, inode in places[name].get("inodes", {}).items() if of == "job"}
                places[name] = {"size": places[name].get("size", 0), "read": {}, "inodes": job_inode}
                _note(note, places)


def is_gathered(job: Path) -> bool:
    """Whether the job's files have lines of workers, or are to get them."""
    return (job / "state" / _PLACES).exists()


def counted_parts(job: Path, recorded: Mapping[Path, Mapping[str, FileMark]]) -> dict[str, list[list[LogPart]]]:
    """Find what counts of each of `GATHERED` now: the job's part, then of each worker the parts that are not gathered yet.

    `recorded` has the workers' folders, each with the ends of its files. Changes nothing, and workers may write meanwhile.
    Raises: OSError, GatheringDamaged.
    """
    places = _places(job / "state" / _PLACES, [job / name for name in GATHERED]) or {}
    found: dict[str, list[list[LogPart]]] = {}
    for name in GATHERED:
        place = places.get(name, {})
        inodes = _inodes(job / name, place)
        size = _kept(job / name, int(place.get("size", 0)), inodes.get("job"))
        found[name] = [[]]
        if (job / name).exists():
            found[name] = [[whole_lines(job / name) if size is None else LogPart(job / name, 0, size)]]
        for worker, marks in recorded.items():
            begin, inode = int(place.get("read", {}).get(worker.name, 0)), inodes.get(worker.name)
            found[name].append([recorded_part(part, marks) for part in _parts(worker / name, begin, inode)])
    return found


def whole_lines(file: Path) -> LogPart:
    """The file up to its last newline. Raises: OSError."""
    return LogPart(file, 0, _end(file))


def recorded_part(part: LogPart, marks: Mapping[str, FileMark]) -> LogPart:
    """The part up to the end that was recorded of its file; as it is if the file was moved or replaced since."""
    mark = marks.get(part.file.name)
    if mark is None or not has_end(part.file, mark):
        return part
    return part._replace(end=max(part.begin, min(part.end, mark.size)))


def lines_of(name: str, parts: Sequence[Sequence[LogPart]]) -> Iterator[bytes]:
    """The lines of the parts of a file that has this name in the job; those of crawl.log by time."""
    lines = [_one_after_another([_lines(part) for part in of_one]) for of_one in parts]
    return heapq.merge(*lines, key=_time) if name == CRAWL_LOG else _one_after_another(lines)


def finish_warcs(folder: Path, prefix: str, workers: Sequence[Path]) -> None:
    """Finish the WARC files that killed workers left in the job's folder, while no worker writes (blocks).

    Raises: StorageError, AccountsDamaged.
    """
    with storage_errors(folder):
        for worker in workers:
            finish_left_over(folder, f"{prefix}-{worker.name}-*", recorded_files(worker / "state" / JOURNAL_FILE))


def _roll_back(workers: Sequence[Path]) -> None:
    """Cut the logs of workers that were killed to what counts."""
    for worker in workers:
        roll_back(worker, recorded_files(worker / "state" / JOURNAL_FILE))


def _noted(note: Path, files: Sequence[Path]) -> dict[str, Any]:
    """The places by file; where nothing was ever gathered, this is noted first. Raises: OSError, GatheringDamaged."""
    places = _places(note, files)
    if places is None:
        _note(note, {})
        return {}
    return places


def _places(note: Path, files: Sequence[Path]) -> dict[str, Any] | None:
    """The places by file; None if nothing was ever gathered. Raises: OSError, GatheringDamaged."""
    if not note.exists():
        if any(file.exists() and file.stat().st_size for file in files):
            raise GatheringDamaged(note, "missing", files)
        return None
    written = note.read_bytes()
    try:
        places: dict[str, Any] = checked_json(written)
    except (ValueError, RecursionError) as error:
        raise GatheringDamaged(note, "damaged", files) from error
    return places


def _note(note: Path, places: Mapping[str, Any]) -> None:
    replace_file(note, checked_line(json.dumps(places).encode()))


class LogPart(NamedTuple):
    """A part of a file that is to be read."""

    file: Path
    begin: int
    end: int


def begin_anew(job: Path) -> None:
    """Record the job's files as they are; from now on workers' files are gathered behind these lines. Raises: StorageError."""
    note = job / "state" / _PLACES
    with storage_errors(note):
        files = {name: job / name for name in GATHERED}
        _note(
            note,
            {
                name: {"size": _end(file), "inodes": {"job": file.stat().st_ino}}
                for name, file in files.items()
                if file.exists()
            },
        )


def _gathered(job: Path, name: str, sources: Mapping[str, Path], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Add what is new; the place afterwards, and before anything is written to another file than that of the last time, that of
    its end. Each is noted before the next step. `inodes` are missing in a place of an earlier version.
    """
    path = job / name
    inodes = _inodes(path, place)
    size = _kept(path, int(place.get("size", 0)), inodes.get("job"))
    file = AppendOnlyFile(path, end_of_last_line if size is None else lambda _: size)
    try:
        if size is None:
            yield {**place, "size": file.kept_bytes, "inodes": inodes | {"job": path.stat().st_ino}}
        parts = {
            of: list(_parts(source, int(place.get("read", {}).get(of, 0)), inodes.get(of)))
            for of, source in sources.items()
        }
        for chunk in _chunks(lines_of(name, list(parts.values()))):
            file.write(chunk)
        file.sync()
        file.keep()
        now = {name: of_worker[-1] for name, of_worker in parts.items() if of_worker}
        yield {
            "size": file.kept_bytes,
            "read": {number: part.end for number, part in now.items()},
            "inodes": {"job": path.stat().st_ino} | {number: part.file.stat().st_ino for number, part in now.items()},
        }
    finally:
        file.close()


def _inodes(path: Path, place: Mapping[str, Any]) -> dict[str, int]:
    """Those of the last time; none if the whole job was copied: a file in the place of one that was moved begins empty."""
    inodes = dict(place.get("inodes", {}))
    is_copy = (
        path.exists() and path.stat().st_size >= place.get("size", 0) > 0 and path.stat().st_ino != inodes.get("job")
    )
    return {} if is_copy else inodes


def _kept(path: Path, size: int, inode: int | None) -> int | None:
    """How much of the job's file counts; None if it is another file than that of the last time, or was cut."""
    if not path.exists():
        return None
    stat = path.stat()
    return size if stat.st_size >= size and inode in {None, stat.st_ino} else None


def _parts(source: Path, begin: int, inode: int | None) -> Iterator[LogPart]:
    """Yield the new parts of a worker's file, oldest first: the rest of the file that was read last, and the files after it."""
    files = sorted(_rotated(source), key=lambda file: (file.stat().st_mtime_ns, file == source))
    last = [number for number, file in enumerate(files) if file.stat().st_ino == inode]
    if last:
        files = files[last[0] :]
    elif (
        inode is not None or begin
    ):  # that file is gone, or the place is one of an earlier version, which knew no other
        files = [source] if source in files else []
        begin = begin if inode is None else 0
    for file in files:
        end = _end(file)
        yield LogPart(file, begin if begin <= end else 0, end)  # one that was cut has only what came later
        begin = 0


def _rotated(source: Path) -> Iterator[Path]:
    """The file and what was moved away from its name, apart from what is compressed."""
    for file in source.parent.glob(f"{source.name}*"):
        if file.suffix not in _COMPRESSED:
            yield file


def _end(source: Path) -> int:
    """Bytes of whole lines."""
    with source.open("rb") as file:
        return end_of_last_line(file.fileno())


def _lines(part: LogPart) -> Iterator[bytes]:
    source, begin, end = part
    if end <= begin:
        return
    with source.open("rb", buffering=_CHUNK_BYTES) as file:
        file.seek(begin)
        while begin < end:
            line = file.readline()
            if not line:
                raise OSError(errno.ESTALE, "was moved or cut while it was read", str(source))
            begin += len(line)
            yield line


def _one_after_another(lines: Sequence[Iterator[bytes]]) -> Iterator[bytes]:
    for of_worker in lines:
        yield from of_worker


def _time(line: bytes) -> bytes:
    return line[:_TIME_CHARS]


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size >= _CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)
