"""Crawlers in other languages beside the product: Colly (Go), spider (Rust), wget2 (C) and Heritrix (Java).

All follow the links of one host with 64 requests at once, without robots.txt and delays. Colly and spider keep no files; wget2
keeps the pages as files and no queue; Heritrix keeps both, and WARC files where that is said.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts.benchmarks.crawl.contestants import CONCURRENCY, DURABLE, WARC, Contestant, Task
from scripts.benchmarks.crawl.peers import PeerMissing
from scripts.benchmarks.crawl.race import Compared, raced
from scripts.benchmarks.crawl.size import rows
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import Site

PAGES = 30_000


def _built(peer: str) -> Contestant:
    def command(task: Task) -> Sequence[str]:
        return [str(task.peers.program(peer)), task.server.seed, str(CONCURRENCY)]

    return Contestant(name=peer, what=f"{peer}, visited URLs in memory", command=command, strays=True)


def _wget2(task: Task) -> Sequence[str]:
    program = shutil.which("wget2")
    if program is None:
        raise PeerMissing("wget2 is not installed")
    options = ("--recursive", "--level=inf", f"--max-threads={CONCURRENCY}", "--quiet", "-e", "robots=off")
    return [program, *options, f"--directory-prefix={task.folder}", task.server.seed]


def _heritrix(*more: str) -> Contestant:
    def command(task: Task) -> Sequence[str]:
        program = Path(__file__).parent / "programs" / "heritrix.py"
        words = (str(task.peers.program("heritrix")), str(task.folder), task.server.seed, str(CONCURRENCY), *more)
        return [sys.executable, str(program), *words]

    with_files = " with WARC files" if more else ""
    name = "-".join(("heritrix", *more))
    return Contestant(name=name, what=f"Heritrix 3.13, 64 toe threads{with_files}", command=command, strays=True)


COLLY = _built("colly")
SPIDER = _built("spider")
WGET2 = Contestant(name="wget2", what="wget2, pages as files", command=_wget2, strays=True)
HERITRIX = _heritrix()
HERITRIX_WARC = _heritrix("warc")

_RATIOS = (
    Compared(name="durable", over="spider", target=1.8, by_cpu=True),
    Compared(name="durable", over="colly", target=3.3, by_cpu=True),
    Compared(name="durable", over="wget2", by_cpu=True),
    Compared(name="durable", over="heritrix", target=6.0, by_cpu=True),
    Compared(name="warc", over="heritrix-warc", target=5.0, by_cpu=True),
)


def strangers(setting: Setting) -> Iterable[Row]:
    """All on a site of 30,000 pages, in so many rounds as are asked for."""
    contestants = (DURABLE, WARC, COLLY, SPIDER, WGET2, HERITRIX, HERITRIX_WARC)
    site = Site(pages=setting.count(PAGES))
    yield from rows("strangers", contestants, _RATIOS, raced(site, contestants, setting))
