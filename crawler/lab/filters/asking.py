"""One filter is asked for the links of all pages, in a process of its own, so that filters do not share a heap.

`compare.py` starts the process in a folder that holds the file `links`: a URL a line, an empty line after each page. For each
page the filter is asked once and the new URLs are marked, as a crawl does. The answers are in the file `answers`, a byte for
each link: 1 where the filter called it new. Progress and results go to standard output, one JSON value a line: a list for
each point of the curves, and in the end an object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import compress
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import BinaryIO

from anabranch.crawler.lab.filters.compare_report import FilterEnding, FilterPoint
from anabranch.crawler.lab.filters.contestants import FilterSize, Opener, opener_of
from anabranch.crawler.outcomes.errors import STORAGE_ERRORS, CrawlerError, DiskFull, ExitCode
from anabranch.crawler.report.progress_log import ProcessMemory, memory_of_process
from anabranch.dedup.errors import DedupError
from anabranch.frontier import SeenFilter

#: In the folder of the process.
LINKS, ANSWERS, FILTER = "links", "answers", "filter"

#: Points of each curve, one for each share of the links, and shares between two syncs: a crawl syncs at its checkpoints.
POINTS = 20
SHARES_A_SYNC = 5
#: URLs that are asked for again after the reopening.
_ASKED_AGAIN = 1000


def main(arguments: Sequence[str]) -> int:
    """Measure one filter: its name, the folder, the number of links, and its size as JSON. Returns the exit code."""
    name, folder, links, size = arguments
    stream, sys.stdout = sys.stdout, sys.stderr  # a user's filter may print
    say = partial(print, file=stream, flush=True)
    try:
        ending = measured(opener_of(name), Path(folder), int(links), FilterSize(**json.loads(size)), say)
    except (DedupError, CrawlerError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - for the parent process
        is_full = isinstance(error, OSError) and STORAGE_ERRORS.get(error.errno or 0) is DiskFull
        return ExitCode.DISK_FULL if is_full else ExitCode.STORE_OR_JOB_IN_USE
    say(json.dumps(asdict(ending)))
    return ExitCode.DONE


def measured(opener: Opener, folder: Path, links: int, size: FilterSize, say: Callable[[str], object]) -> FilterEnding:
    """Ask for all links, close the filter, open it again. `say` gets each point as JSON."""
    place = folder / FILTER
    place.mkdir()
    base = memory_of_process()
    with (folder / LINKS).open("rb") as pages, (folder / ANSWERS).open("wb") as answers:
        seen = opener(place, size)
        accepted, sync_ns = _asked(seen, pages_in(pages), answers, _Curve(links, base, say))
    facts = seen.facts()
    close_ns = _elapsed_ns(seen.close)
    disk_bytes = sum(file.stat().st_blocks * 512 for file in place.rglob("*"))
    begun_ns = perf_counter_ns()
    again = opener(place, size)
    open_ns = perf_counter_ns() - begun_ns
    forgotten = sum(again.unseen(accepted)) if accepted else 0
    again.close()
    return FilterEnding(
        disk_bytes=disk_bytes,
        sync_s=sync_ns / 1e9,
        close_s=close_ns / 1e9,
        open_s=open_ns / 1e9,
        expected_lost=None if (lost := facts.get("expected_lost")) is None else float(lost),
        forgotten=int(forgotten),
    )


class _Curve:
    """Reports a point each time that another share of the links is asked, and after the last one."""

    def __init__(self, links: int, base: ProcessMemory, say: Callable[[str], object]) -> None:
        self._links, self._base, self._say = links, base, say
        self._step = -(-links // POINTS)
        self._shares = 0  # of the links, that are asked

    def is_due(self, links: int) -> bool:
        """Whether a point is due after so many links."""
        return links >= (self._shares + 1) * self._step or links == self._links

    def report(self, links: int, wall_ns: int, cpu_ns: int) -> bool:
        """Report a point, with the times of all links so far. True: a sync is due."""
        now = memory_of_process()
        point = FilterPoint(
            links,
            wall_ns / 1000,
            cpu_ns / 1000,
            (now.anonymous - self._base.anonymous) << 10,
            (now.resident - self._base.resident) << 10,
        )
        syncs = self._shares // SHARES_A_SYNC
        self._shares = links // self._step
        self._say(json.dumps(point))
        return self._shares // SHARES_A_SYNC > syncs


def _asked(seen: SeenFilter, pages: Iterable[list[bytes]], answers: BinaryIO, curve: _Curve) -> tuple[list[bytes], int]:
    """Ask for every page: the first URLs that the filter accepted, and the time of its syncs."""
    links = wall_ns = cpu_ns = sync_ns = 0
    accepted: list[bytes] = []
    for urls in pages:
        begun_ns, cpu_begun_ns = perf_counter_ns(), thread_time_ns()
        new = seen.unseen(urls)
        fresh = list(compress(urls, new))
        if fresh:
            seen.mark(fresh)
        cpu_ns += thread_time_ns() - cpu_begun_ns
        wall_ns += perf_counter_ns() - begun_ns
        answers.write(bytes(map(bool, new)))
        accepted += fresh[: _ASKED_AGAIN - len(accepted)]
        links += len(urls)
        if curve.is_due(links) and curve.report(links, wall_ns, cpu_ns):
            sync_ns += _elapsed_ns(seen.sync)
    return accepted, sync_ns


def pages_in(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The pages of a file of links."""
    page: list[bytes] = []
    for line in lines:
        if line != b"\n":
            page.append(line[:-1])
            continue
        yield page
        page = []


def _elapsed_ns(work: Callable[[], object]) -> int:
    begun_ns = perf_counter_ns()
    work()
    return perf_counter_ns() - begun_ns
