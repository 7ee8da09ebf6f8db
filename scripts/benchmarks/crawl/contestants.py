"""The contestants: the bare loop, the peers, and the product in several settings.

All fetch with 64 requests at once and follow all links from page 0, without robots.txt and delays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.benchmarks.crawl.peers import Peers
from scripts.benchmarks.site.pages import NAMED_ADDRESS, host_names
from scripts.benchmarks.site.process import Server

CONCURRENCY = 64
#: The job's folder in the task's.
JOB = "job"
REPOSITORY = Path(__file__).resolve().parents[3]
_PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One crawl of one contestant."""

    server: Server
    loop: str  #: asyncio or uvloop
    folder: Path  #: empty; for what is kept
    peers: Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A contestant."""

    name: str
    what: str
    #: The command line of a crawl. Raises: PeerMissing.
    command: Callable[[Task], Sequence[str]]
    environment: dict[str, str] = field(default_factory=dict)
    strays: bool = False  #: it may request other paths, such as robots.txt, and a page more than once


def _program(name: str, peer: str = "", *options: str) -> Callable[[Task], Sequence[str]]:
    def command(task: Task) -> Sequence[str]:
        python = str(task.peers.python(peer)) if peer else sys.executable
        return [python, str(_PROGRAMS / name), task.server.seed, str(CONCURRENCY), task.loop, *options]

    return command


def _crawlee_on_disk() -> Callable[[Task], Sequence[str]]:
    """Crawlee with its defaults, and its files in the task's folder."""
    made = _program("crawlee_links.py", "crawlee", "plain")
    return lambda task: ["env", f"CRAWLEE_STORAGE_DIR={task.folder / 'storage'}", *made(task)]


def ours(*options: str) -> Callable[[Task], Sequence[str]]:
    """`anabranch crawl` of the seed with these options and those that the task needs."""
    return lambda task: crawl_command(task, [task.server.seed], options)


def crawl_command(task: Task, sources: Iterable[str], options: Iterable[str] = ()) -> Sequence[str]:
    """`anabranch crawl` of these seeds, with the job in the task's folder."""
    return [sys.executable, "-m", "anabranch", "crawl", *sources, *_needed(task), *options]


def _needed(task: Task) -> Iterator[str]:
    order = task.folder / "order.toml"
    order.write_text(order_text(task), encoding="utf-8")
    yield from ("--order", str(order), "--job", str(task.folder / JOB))
    yield from ("--policy", "bkdr:64", "--max-connections", "64", "--workers", str(CONCURRENCY))
    yield from ("--delay-factor", "0", "--min-delay", "0s", "--max-delay", "0s", "--robots", "ignore")
    yield from ("--allow-private", "--scope", "any")
    yield from ("--loop", task.loop)  # its default is uvloop where installed, that of the others asyncio


def order_text(task: Task) -> str:
    """Settings without a flag: the contact, and the addresses of the names."""
    names = "".join(f'"{name}" = "{NAMED_ADDRESS}"\n' for name in host_names(task.server.site))
    return f'[agent]\ncontact = "https://bench.test/"\n\n[dns.hosts]\n{names}'


CLONE = {"PYTHONPATH": str(REPOSITORY)}


def _raw(task: Task) -> Sequence[str]:
    return [*_program("raw.py")(task), str(task.server.site.pages)]


RAW = Contestant(name="raw", what="plain sockets that look at nothing: what the server can do", command=_raw)
BARE = Contestant(name="bare", what="the bare loop: aiohttp GET, selectolax links, a set", command=_program("bare.py"))
SCRAPY = Contestant(
    name="scrapy", what="Scrapy as it comes, css() and follow()", command=_program("scrapy_links.py", "scrapy", "plain")
)
SCRAPY_TUNED = Contestant(
    name="scrapy-tuned",
    what="Scrapy, what settings can switch off is off",
    command=_program("scrapy_links.py", "scrapy", "tuned"),
)
CRAWLEE = Contestant(
    name="crawlee",
    what="Crawlee as it comes, HttpCrawler, selectolax links",
    command=_crawlee_on_disk(),
)
CRAWLEE_TUNED = Contestant(
    name="crawlee-tuned",
    what="the same in memory, what settings can switch off is off",
    command=_program("crawlee_links.py", "crawlee", "tuned"),
)
CRAWLEE_PARSEL = Contestant(
    name="crawlee-parsel",
    what="the same, ParselCrawler, enqueue_links()",
    command=_program("crawlee_links.py", "crawlee", "parsel"),
)
MEMORY = Contestant(
    name="memory", what="anabranch, in memory", command=ours("--set", "frontier.store=memory"), environment=CLONE
)
DURABLE = Contestant(name="durable", what="anabranch, durable (the default)", command=ours(), environment=CLONE)
WARC = Contestant(name="warc", what="anabranch, durable with WARC", command=ours("--warc"), environment=CLONE)

ONE_PROCESS = Contestant(name="1", what="anabranch --processes 1", command=ours("--processes", "1"), environment=CLONE)
TWO_PROCESSES = Contestant(
    name="2", what="anabranch --processes 2", command=ours("--processes", "2"), environment=CLONE
)

OURS = (MEMORY, DURABLE, WARC)
TUNED = (SCRAPY_TUNED, CRAWLEE_TUNED, CRAWLEE_PARSEL)
