"""`anabranch compare --filters`: the filters are asked for the links of a crawl, one after the other, and judged by a set.

The links are those that an exact crawl meets, page by page: of a generated web, of the web of a crawl.log, or a list of URLs in
batches. A page's links count once. Every filter gets the same ones, whatever it lost before. Each has a process of its own
(`asking.py`); the truth, a dict of all URLs, is in this one.
"""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from anabranch.crawler.lab.filters.asking import ANSWERS, LINKS, POINTS
from anabranch.crawler.lab.filters.compare_report import (
    FilterComparison,
    FilterEnding,
    FilterPoint,
    FilterRun,
    judged,
    report_of,
)
from anabranch.crawler.lab.filters.contestants import CONTESTANTS, FilterSize, opener_of, uniq_parameters
from anabranch.crawler.lab.report import LabReport, OnProgress
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
    false_positive: float = 1e-3  #: of the DSBF's leaves, of the similarity filter and of rbloom
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
    for name in options.filters:
        opener_of(name)
    _ = uniq_parameters("both", _size(options, 1)).format


def _size(options: FilterOptions, urls: int) -> FilterSize:
    return FilterSize(expected=options.expected or urls, false_positive=options.false_positive)


def run(options: FilterOptions, on_progress: OnProgress) -> LabReport:
    """Compare. The links and one filter at a time lie in a temporary folder.

    Cost: some 100 bytes a URL, 10 µs a link and the filters. Raises: UsageError, BadParameters, CrawlerError if a filter
    breaks, OSError.
    """
    check(options)
    steps = 1 + POINTS * len(options.filters)
    source, pages = _pages(options)
    with TemporaryDirectory(prefix="anabranch-lab-") as name:
        folder = Path(name)
        links = _written(folder / LINKS, pages, lambda words: on_progress(0, steps, words))
        size = _size(options, len(links.urls))
        runs = []
        for number, contestant in enumerate(options.filters):

            def on_point(points: int, name: str = contestant, done: int = 1 + POINTS * number) -> None:
                on_progress(done + points, steps, f"{name}, {len(links.numbers):,} links")

            runs.append(_measured(contestant, folder, links, size, on_point))
    compared = FilterComparison(
        source=source,
        pages=links.pages,
        links=len(links.numbers),
        urls=len(links.urls),
        expected=size.expected,
        false_positive=size.false_positive,
        runs=tuple(runs),
    )
    asked = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
    return report_of(compared, asked)


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


def _measured(name: str, folder: Path, links: Links, size: FilterSize, on_point: Callable[[int], None]) -> FilterRun:
    """Ask the filter in a process and judge its answers. Raises: CrawlerError if it breaks."""
    on_point(0)
    points: list[FilterPoint] = []
    ending: FilterEnding | None = None
    with TemporaryDirectory(dir=folder) as place:
        own = Path(place)
        (own / LINKS).symlink_to(folder / LINKS)
        arguments = (name, place, str(len(links.numbers)), json.dumps(asdict(size)))
        with ExitStack() as ends:
            with (own / _LOG_FILE).open("wb") as log:
                streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": log}
                process = ends.enter_context(child_process(child_command(_PROGRAM, *arguments), **streams))
            assert process.stdout is not None
            for line in process.stdout:
                value: Any = json.loads(line)
                if isinstance(value, list):
                    points.append(FilterPoint(*value))
                    on_point(len(points))
                else:
                    ending = FilterEnding(**value)
            code = process.wait()
        if ending is None or code:
            kind = DiskFull if code == ExitCode.DISK_FULL else CrawlerError
            raise kind(f"--filters: {name} broke: {_last_line(own / _LOG_FILE) or f'exit code {code}'}")
        answers = np.fromfile(own / ANSWERS, dtype=np.uint8) != 0
    if len(answers) != len(links.numbers):
        raise CrawlerError(
            f"--filters: {name} broke: it gave {len(answers):,} answers for {len(links.numbers):,} links"
        )
    losses, dropped = judged(
        links.numbers,
        answers,
        [point.links for point in points],
        lambda number: links.urls[number].decode("utf-8", "backslashreplace"),
    )
    return FilterRun(name=name, points=tuple(points), dropped=dropped, losses=losses, ending=ending)


def _last_line(log: Path) -> str:
    lines = log.read_bytes().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
