"""The shares' logs as the job's: what they have written since the last time is added to the job's own files.

How far each was read, and how long the job's file was then, stands in one small file that is replaced when the job's file is
synced. So a process that is killed meanwhile leaves lines that the next one cuts, and gathers again: no line is lost, none is
there twice. Lines of crawl.log stand in the order of their times, as far as they were gathered together.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crawler.jobs.durablefiles import AppendOnlyFile, end_of_last_line, replace_file
from crawler.outcomes.errors import storage_errors

#: The job's files that shares have parts of; the first is ordered by time.
CRAWL_LOG = "logs/crawl.log"
GATHERED = (CRAWL_LOG, "logs/errors.jsonl", "pages.jsonl", "links.jsonl")
_PLACES = "gathered.json"
#: Characters of the time at the beginning of a line of crawl.log, and bytes that are written at a time.
_TIME_CHARS = 24
_CHUNK_BYTES = 1 << 20


def gather(job: Path, shares: Sequence[Path], added: Callable[[bytes], None] = lambda _: None) -> None:
    """Bring the job's files up to date (blocks). `added` gets what crawl.log got, in whole lines. Raises: StorageError."""
    place = job / "state" / _PLACES
    with storage_errors(place):
        places: dict[str, Any] = json.loads(place.read_bytes()) if place.exists() else {}
        for name in GATHERED:
            if any((share / name).exists() for share in shares):
                got = _gathered(job / name, [share / name for share in shares], places.get(name, {}))
                places[name] = got.place
                replace_file(place, json.dumps(places).encode())
                if name == CRAWL_LOG:
                    got.tell(added)


class _Gathered:
    """What one file has got."""

    def __init__(self, path: Path, begin: int, place: Mapping[str, Any]) -> None:
        self.place = place
        self._path = path
        self._begin = begin

    def tell(self, added: Callable[[bytes], None]) -> None:
        """Hand over what was added."""
        with self._path.open("rb", buffering=_CHUNK_BYTES) as lines:
            lines.seek(self._begin)
            for chunk in _chunks(iter(lines)):
                added(chunk)


def _gathered(path: Path, sources: Sequence[Path], place: Mapping[str, Any]) -> _Gathered:
    size, read = int(place.get("size", 0)), dict(place.get("read", {}))
    if size > (path.stat().st_size if path.exists() else 0):
        size, read = 0, {}  # somebody removed it, or a part of it: all comes again
    file = AppendOnlyFile(path, lambda _: size)
    try:
        begins = [int(read.get(str(number), 0)) for number in range(len(sources))]
        ends = [_end(source) for source in sources]
        lines = [_lines(source, begin, end) for source, begin, end in zip(sources, begins, ends, strict=True)]
        by_time = path.name == Path(CRAWL_LOG).name
        for chunk in _chunks(heapq.merge(*lines, key=_time) if by_time else _one_after_another(lines)):
            file.write(chunk)
        file.sync()
        file.keep()
        now = {str(number): max(begin, end) for number, (begin, end) in enumerate(zip(begins, ends, strict=True))}
        return _Gathered(path, size, {"size": file.kept_bytes, "read": now})
    finally:
        file.close()


def _end(source: Path) -> int:
    """Bytes of whole lines."""
    if not source.exists():
        return 0
    with source.open("rb") as file:
        return end_of_last_line(file.fileno())


def _lines(source: Path, begin: int, end: int) -> Iterator[bytes]:
    if end <= begin:
        return
    with source.open("rb", buffering=_CHUNK_BYTES) as file:
        file.seek(begin)
        while begin < end:
            line = file.readline()
            begin += len(line)
            yield line


def _one_after_another(lines: Sequence[Iterator[bytes]]) -> Iterator[bytes]:
    for of_share in lines:
        yield from of_share


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
