"""One filter is asked for the links of all pages, in a process of its own, so that filters do not share a heap.

`compare.py` starts the process in a folder that holds the file `links`: a URL a line, an empty line after each page. The
processes of all filters take turns: each waits for a word on its standard input, works, and answers by a line of JSON.

- `fill`: for each page of the next share of the links the filter is asked once and the new URLs are marked, as a crawl does; a
  static filter is built of all URLs. The answer is a point of the curves, a list. The filter's own answers are in the file
  `answers`, a byte for each link: 1 where it called the link new.
- `ask`: the filter is asked for the next share again, when it knows all of them: links and CPU time.
- `end`: URLs that nobody marked, then closing and opening. The answer is an object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain, compress, islice
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Self

from anabranch.crawler.lab.filters.compare_report import FilterEnding, FilterPoint
from anabranch.crawler.lab.filters.contestants import CONTESTANTS, FilterSize, Opener, opener_of
from anabranch.crawler.lab.report import LEAST_ROUNDS
from anabranch.crawler.outcomes.errors import STORAGE_ERRORS, CrawlerError, DiskFull, ExitCode
from anabranch.crawler.report.progress_log import memory_of_process
from anabranch.dedup.errors import DedupError

#: In the folder of the process.
LINKS, ANSWERS, FILTER = "links", "answers", "filter"

#: Points of each curve, one for each share of the links, and shares between two syncs: a crawl syncs at its checkpoints.
POINTS = 20
SHARES_A_SYNC = 5
#: Rounds in which all links are known.
ASKINGS = LEAST_ROUNDS
#: URLs that are asked for again after the reopening.
_ASKED_AGAIN = 1000
#: URLs that were never marked, and how many of them are asked for at a time.
_PROBES, _PROBES_AT_ONCE = 400_000, 10_000


def main(arguments: Sequence[str]) -> int:
    """Measure one filter: its name, the folder, the number of links, and its size as JSON. Returns the exit code."""
    name, folder, links, size = arguments
    stream, sys.stdout = sys.stdout, sys.stderr  # a user's filter may print
    try:
        is_static = name in CONTESTANTS and CONTESTANTS[name].is_static
        with FilterTrial(
            opener_of(name), Path(folder), int(links), FilterSize(**json.loads(size)), is_static=is_static
        ) as trial:
            for word in sys.stdin:
                answer = {"fill": trial.fill, "ask": trial.ask, "end": trial.end}[word.strip()]()
                print(json.dumps(answer), file=stream, flush=True)
    except (DedupError, CrawlerError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - for the parent process
        is_full = isinstance(error, OSError) and STORAGE_ERRORS.get(error.errno or 0) is DiskFull
        return ExitCode.DISK_FULL if is_full else ExitCode.STORE_OR_JOB_IN_USE
    return ExitCode.DONE


class FilterTrial:
    """A filter that is filled and asked in shares. Leave it as a context manager, which closes the files."""

    def __init__(self, opener: Opener, folder: Path, links: int, size: FilterSize, *, is_static: bool = False) -> None:
        self._opener, self._size, self._is_static = opener, size, is_static
        self._place = folder / FILTER
        self._place.mkdir()
        self._base = memory_of_process()
        self._files = ExitStack()
        self._answers = self._files.enter_context((folder / ANSWERS).open("wb"))
        self._links_file = folder / LINKS
        self._seen = opener(self._place, size)
        self._filling, self._again = self._pages(), self._pages()
        self._filled, self._asked = _Shares(links), _Shares(links)
        self._accepted: list[bytes] = []  # the first ones
        self._marked = 0
        self._wall_ns = self._cpu_ns = self._sync_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _pages(self) -> Iterator[list[bytes]]:
        return pages_in(self._files.enter_context(self._links_file.open("rb")))

    def fill(self) -> FilterPoint:
        """Ask for the pages of the next share, and mark what is new; times are of all shares so far."""
        if self._is_static:
            return self._built()
        for urls in self._filling:
            begun_ns, cpu_begun_ns = perf_counter_ns(), thread_time_ns()
            new = self._seen.unseen(urls)
            fresh = list(compress(urls, new))
            if fresh:
                self._seen.mark(fresh)
                self._marked += len(fresh)
            self._cpu_ns += thread_time_ns() - cpu_begun_ns
            self._wall_ns += perf_counter_ns() - begun_ns
            self._answers.write(bytes(map(bool, new)))
            self._accepted += fresh[: _ASKED_AGAIN - len(self._accepted)]
            if self._filled.is_over(len(urls)):
                break
        point = self._point()
        if self._filled.is_sync_due:
            self._sync_ns += _elapsed_ns(self._seen.sync)
        return point

    def _built(self) -> FilterPoint:
        """Build the filter of the URLs of all pages."""
        urls = list(dict.fromkeys(url for page in self._filling for url in page))
        begun_ns, cpu_begun_ns = perf_counter_ns(), thread_time_ns()
        self._seen.mark(urls)
        self._marked = len(urls)
        self._cpu_ns += thread_time_ns() - cpu_begun_ns
        self._wall_ns += perf_counter_ns() - begun_ns
        self._accepted = urls[:_ASKED_AGAIN]
        self._filled.count(len(urls))
        return self._point()

    def _point(self) -> FilterPoint:
        now = memory_of_process()
        return FilterPoint(
            self._filled.links,
            self._wall_ns / 1000,
            self._cpu_ns / 1000,
            (now.anonymous - self._base.anonymous) << 10,
            (now.resident - self._base.resident) << 10,
        )

    def ask(self) -> tuple[int, float]:
        """Ask for the pages of the next share, all known: links, and CPU microseconds. The first share follows the last."""
        links = cpu_ns = 0
        for urls in self._again:
            begun_ns = thread_time_ns()
            self._seen.unseen(urls)
            cpu_ns += thread_time_ns() - begun_ns
            links += len(urls)
            if self._asked.is_over(len(urls)):
                break
        if self._asked.is_done:
            self._again, self._asked = self._pages(), _Shares(self._asked.all_links)
        return links, cpu_ns / 1000

    def end(self) -> dict[str, object]:
        """Ask for URLs that were never marked; close the filter, and open it again."""
        self._answers.flush()  # the parent process reads them after this
        probes = self._probes()
        hits = sum(
            len(some) - sum(map(bool, self._seen.unseen(some)))
            for some in (probes[start : start + _PROBES_AT_ONCE] for start in range(0, len(probes), _PROBES_AT_ONCE))
        )
        facts = self._seen.facts()
        close_ns = _elapsed_ns(self._seen.close)
        disk_bytes = sum(file.stat().st_blocks * 512 for file in self._place.rglob("*"))
        begun_ns = perf_counter_ns()
        again = self._opener(self._place, self._size)
        open_ns = perf_counter_ns() - begun_ns
        forgotten = sum(again.unseen(self._accepted)) if self._accepted else 0
        again.close()
        return asdict(
            FilterEnding(
                disk_bytes=disk_bytes,
                sync_s=self._sync_ns / 1e9,
                close_s=close_ns / 1e9,
                open_s=open_ns / 1e9,
                expected_lost=None if (lost := facts.get("expected_lost")) is None else float(lost),
                forgotten=int(forgotten),
                probes=len(probes),
                false_hits=hits,
                filter_bits=None if (bits := _bits(facts)) is None else float(bits),
                urls=self._marked,
            )
        )

    def _probes(self) -> list[bytes]:
        """URLs that are like the links, and none of them."""
        links = chain.from_iterable(self._pages())
        return [b"%b?no-link=%d" % (url, number) for number, url in enumerate(islice(links, _PROBES))]


def _bits(facts: Mapping[str, float | str]) -> float | str | None:
    """The size of the filter by its own account; of a DSBF that of its leaves."""
    size = facts.get("dsbf_memory_bytes") if facts.get("filter") == "dsbf" else None
    return facts.get("filter_bits") if size is None else 8 * float(size)


class _Shares:
    """Tells when another share of the links is over: after a page, and at the end."""

    def __init__(self, links: int) -> None:
        self.all_links, self.links = links, 0
        self._step = -(-links // POINTS)
        self._shares = 0  # that are over
        self.is_sync_due = False

    @property
    def is_done(self) -> bool:
        """Whether there are no more."""
        return self.links >= self.all_links

    def count(self, more: int) -> None:
        """Count more links."""
        self.links += more

    def is_over(self, more: int) -> bool:
        """Count more links; True at the end of a share."""
        self.count(more)
        if self.links < (self._shares + 1) * self._step and not self.is_done:
            return False
        before, self._shares = self._shares, self.links // self._step
        self.is_sync_due = self._shares // SHARES_A_SYNC > before // SHARES_A_SYNC
        return True


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
