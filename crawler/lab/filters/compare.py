"""`anabranch compare --filters`: the filters are asked for the links of a crawl, in turns, and judged by a set.

The links are those that an exact crawl meets, page by page: of a generated web, of the web of a crawl.log, or a list of URLs in
batches. A page's links count once. Every filter gets the same ones, whatever it lost before. Each has a process of its own
(`asking.py`); the truth, a dict of all URLs, is in this one. First all are made for the same rate, then, those that can be, for
the same memory.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from anabranch.crawler.lab.filters.asking import ANSWERS, ASKINGS, LINKS, POINTS
from anabranch.crawler.lab.filters.compare_report import (
    NONE_LOST,
    AskedShare,
    FilterComparison,
    FilterEnding,
    FilterPoint,
    FilterRun,
    Losses,
    judged,
    report_of,
)
from anabranch.crawler.lab.filters.contestants import CONTESTANTS, FilterSize, opener_of, uniq_parameters
from anabranch.crawler.lab.report import LabReport, OnProgress, in_turns
from anabranch.crawler.lab.urls import STDIN, urls_of_file
from anabranch.crawler.lab.web.model import Web, WebOptions
from anabranch.crawler.lab.web.replay import replayed_file
from anabranch.crawler.lab.web.shape import make_web, require_sound
from anabranch.crawler.outcomes.errors import CrawlerError, DiskFull, ExitCode, UsageError
from anabranch.crawler.runtime import child_command, child_process
from anabranch.dedup.keys import IntArray

#: URLs of a list that are asked for at a time, as if a page had so many links.
LIST_BATCH = 20

#: What the child runs.
_PROGRAM = "from anabranch.crawler.lab.filters.asking import main; sys.exit(main(sys.argv[1:]))"
_LOG_FILE = "log"
_PAGES_A_STEP = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """Options of `anabranch compare --filters`, with its defaults."""

    filters: tuple[str, ...] = tuple(CONTESTANTS)
    expected: int | None = None  #: URLs that the filters are made for; None: as many as there are
    false_positive: float = 1e-3  #: of the DSBF's leaves, of the similarity filter and of the peers
    #: Of memory for each expected URL, of the filters that are compared at equal memory; 0: none are.
    bits: float = 20.0
    kinds: tuple[str, ...] = ("portals",)  #: of the generated web, just one
    pages: int = 50_000
    hosts: int = 40
    seed: int = 1
    replay: Path | None = None  #: a crawl.log, in place of a generated web
    urls: Path | None = None  #: a list of URLs, in place of a generated web

    @property
    def web(self) -> WebOptions:
        """The generated web."""
        return WebOptions(pages=self.pages, kind=self.kinds[0], hosts=self.hosts, seed=self.seed)


_DEFAULTS = FilterOptions()
#: Options of the generated web.
_OF_THE_WEB = {"kinds": "--kind", "pages": "--pages", "hosts": "--hosts", "seed": "--seed"}


def check(options: FilterOptions) -> None:
    """Raises: UsageError, BadParameters for the first invalid option, before anything is started."""
    if len(set(options.filters)) < len(options.filters):
        raise UsageError(f"--filters: {','.join(options.filters)} names one of them twice")
    if len(options.kinds) != 1:
        raise UsageError(f"--kind: --filters takes one web, not {','.join(options.kinds)}")
    sources = {"--urls": options.urls, "--replay": options.replay}
    given = [option for option, path in sources.items() if path is not None]
    if len(given) > 1:
        raise UsageError("--urls and --replay name other links; leave one of them out")
    unused = [flag for name, flag in _OF_THE_WEB.items() if getattr(options, name) != getattr(_DEFAULTS, name)]
    if given and unused:
        raise UsageError(f"{given[0]}: {', '.join(unused)} would make another web; leave it out")
    require_sound(options.web)
    if options.bits < 0:
        raise UsageError(f"--bits {options.bits:g}: it must be 0, or the bits of memory for each URL")
    for name in options.filters:
        opener_of(name)
    _ = uniq_parameters("both", _size(options, 1)).format


def _size(options: FilterOptions, urls: int) -> FilterSize:
    return FilterSize(expected=options.expected or urls, false_positive=options.false_positive)


def run(options: FilterOptions, on_progress: OnProgress) -> LabReport:
    """Compare. The links and all filters lie in a temporary folder.

    Cost: some 100 bytes a URL, 10 µs a link and the filters. Raises: UsageError, BadParameters, CrawlerError if a filter
    breaks, OSError.
    """
    check(options)
    sized = [
        name for name in options.filters if options.bits and name in CONTESTANTS and CONTESTANTS[name].can_be_sized
    ]
    steps = 1 + STEPS * (len(options.filters) + len(sized))
    source, pages = _pages(options)
    with TemporaryDirectory(prefix="anabranch-lab-") as name:
        folder = Path(name)
        links = _written(folder / LINKS, pages, lambda words: on_progress(0, steps, words))
        done = count(1)

        def on_step(words: str) -> None:
            on_progress(next(done), steps, f"{words}, {len(links.numbers):,} links")

        size = _size(options, len(links.urls))
        runs = _measured(options.filters, folder, links, size, on_step)
        too_large, at_memory = _at_memory(sized, folder, links, replace(size, bits=options.bits), on_step)
    compared = FilterComparison(
        source=source,
        pages=links.pages,
        links=len(links.numbers),
        urls=len(links.urls),
        expected=size.expected,
        false_positive=size.false_positive,
        runs=tuple(runs),
        bits=options.bits,
        at_memory=tuple(at_memory),
        too_large=tuple(too_large),
    )
    asked = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
    return report_of(compared, asked)


def _at_memory(
    names: Sequence[str], folder: Path, links: Links, size: FilterSize, on_step: Callable[[str], None]
) -> tuple[list[str], list[FilterRun]]:
    """The filters that no rate makes small enough, and the runs of the others."""
    too_large = []
    for name in names:
        with TemporaryDirectory(dir=folder) as place:
            try:
                opener_of(name)(Path(place), size).close()
            except UsageError:
                too_large.append(name)
    return too_large, _measured([name for name in names if name not in too_large], folder, links, size, on_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links in the file, and the truth about them."""

    pages: int
    urls: Sequence[bytes]  #: distinct ones, by first appearance
    numbers: IntArray  #: of each link its place in `urls`


def _pages(options: FilterOptions) -> tuple[str, Iterable[list[bytes]]]:
    """The source of the links in words, and the links of each page."""
    if options.urls is not None:
        place = "standard input" if options.urls == STDIN else options.urls
        return f"the URLs of {place}", batches(urls_of_file(options.urls))
    if options.replay is not None:
        replayed = replayed_file(options.replay)
        notes = f" ({'; '.join(replayed.notes)})" if replayed.notes else ""
        return f"the URLs of {options.replay}{notes}", pages_of(replayed)
    return f"a generated web ({options.kinds[0]}, {options.hosts} hosts)", pages_of(make_web(options.web))


def pages_of(web: Web) -> Iterator[list[bytes]]:
    """The seeds, then the links and embeds of each page, each once, in the order of a crawl in breadth."""
    waiting = deque(web.seeds)
    met = set(waiting)
    yield [url.encode() for url in waiting]
    while waiting:
        page = web.page(waiting.popleft())
        if page is not None and (found := list(dict.fromkeys((*page.links, *page.embeds)))):
            yield [url.encode() for url in found]
            new = [url for url in found if url not in met]
            met.update(new)
            waiting.extend(new)


def batches(urls: Sequence[bytes]) -> Iterator[list[bytes]]:
    """A list of URLs as pages of `LIST_BATCH` links; one that repeats within its page counts once."""
    rest = iter(urls)
    while page := list(dict.fromkeys(islice(rest, LIST_BATCH))):
        yield page


def _written(file: Path, pages: Iterable[list[bytes]], on_step: Callable[[str], None]) -> Links:
    """Write the links as `asking.pages_in` reads them."""
    places: dict[bytes, int] = {}
    numbers: list[int] = []
    count = 0
    on_step("making the links")
    with file.open("wb") as out:
        for count, page in enumerate(pages, 1):
            out.write(b"\n".join((*page, b"", b"")))
            numbers += [places.setdefault(url, len(places)) for url in page]
            if count % _PAGES_A_STEP == 0:
                on_step(f"making the links: {len(numbers):,}")
    return Links(pages=count, urls=list(places), numbers=np.array(numbers, dtype=np.int64))


#: Steps of each filter: the shares of its filling, those of its asking, and its end.
STEPS = POINTS + ASKINGS + 1


def _measured(
    names: Sequence[str], folder: Path, links: Links, size: FilterSize, on_step: Callable[[str], None]
) -> list[FilterRun]:
    """Ask the filters in turns and judge their answers. Raises: CrawlerError if one breaks."""
    with ExitStack() as ends:
        filters = [ends.enter_context(_started(name, folder, links, size)) for name in names]
        for _, one in in_turns(filters, POINTS):
            on_step(one.name)
            one.fill()
        for _, one in in_turns(filters, ASKINGS):
            on_step(one.name)
            one.ask()
        runs = []
        for one in filters:
            on_step(one.name)
            runs.append(one.end())
        return runs


@contextmanager
def _started(name: str, folder: Path, links: Links, size: FilterSize) -> Iterator[_Asked]:
    """A filter in a process of its own, which is ended after the block."""
    with ExitStack() as ends:
        own = Path(ends.enter_context(TemporaryDirectory(dir=folder)))
        (own / LINKS).symlink_to(folder / LINKS)
        arguments = (name, str(own), str(len(links.numbers)), json.dumps(asdict(size)))
        with (own / _LOG_FILE).open("wb") as log:
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            process = ends.enter_context(child_process(child_command(_PROGRAM, *arguments), **streams))
        yield _Asked(name, own, links, process)


class _Asked:
    """A filter in a process of its own. Every method raises CrawlerError if it breaks."""

    def __init__(self, name: str, folder: Path, links: Links, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self._folder, self._links, self._process = folder, links, process
        self._points: list[FilterPoint] = []
        self._asked: list[AskedShare] = []
        self._is_static = name in CONTESTANTS and CONTESTANTS[name].is_static

    def fill(self) -> None:
        """Ask for another share and mark it. Nothing after the last one, or if a static filter is built."""
        is_filled = self._points and (self._is_static or self._points[-1].links == len(self._links.numbers))
        if not is_filled:
            self._points.append(FilterPoint(*self._answer("fill")))

    def ask(self) -> None:
        """Ask for another share, all of it known."""
        self._asked.append(AskedShare(*self._answer("ask")))

    def end(self) -> FilterRun:
        """Close it, and judge what it answered."""
        ending = FilterEnding(**self._answer("end"))
        losses, dropped = (NONE_LOST, ()) if self._is_static else self._judged()
        return FilterRun(
            name=self.name,
            points=tuple(self._points),
            dropped=dropped,
            losses=losses,
            ending=ending,
            asked=tuple(self._asked),
        )

    def _judged(self) -> tuple[Losses, tuple[int, ...]]:
        numbers = self._links.numbers
        answers = np.fromfile(self._folder / ANSWERS, dtype=np.uint8) != 0
        if len(answers) != len(numbers):
            raise CrawlerError(
                f"--filters: {self.name} broke: it gave {len(answers):,} answers for {len(numbers):,} links"
            )
        return judged(
            numbers,
            answers,
            [point.links for point in self._points],
            lambda number: self._links.urls[number].decode("utf-8", "backslashreplace"),
        )

    def _answer(self, word: str) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with suppress(BrokenPipeError):  # then there is no answer
            os.write(stdin.fileno(), f"{word}\n".encode())
        if line := stdout.readline():
            return json.loads(line)
        code = self._process.wait()
        kind = DiskFull if code == ExitCode.DISK_FULL else CrawlerError
        raise kind(f"--filters: {self.name} broke: {_last_line(self._folder / _LOG_FILE) or f'exit code {code}'}")


def _last_line(log: Path) -> str:
    lines = log.read_bytes().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
