"""The product, the bare loop and the peers, on one host and on 200; two processes; and the speed of the server."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence

from scripts.benchmarks.crawl.contestants import (
    BARE,
    CRAWLEE,
    DURABLE,
    ONE_PROCESS,
    OURS,
    RAW,
    SCRAPY,
    TUNED,
    TWO_PROCESSES,
)
from scripts.benchmarks.crawl.race import Compared, Result, raced, rows
from scripts.benchmarks.rows import Row, Setting, rounds_row
from scripts.benchmarks.site.pages import Site

HOSTS = 200
#: Times as fast two processes are on two cores, the server of the site included.
_TWO_OVER_ONE = 1.5

_ONE_HOST = (
    Compared(name="durable", over="scrapy", target=20.0),
    Compared(name="durable", over="scrapy-tuned", target=20.0),
    Compared(name="durable", over="crawlee", target=10.0),
    Compared(name="durable", over="crawlee-tuned", target=10.0),
    Compared(name="durable", over="crawlee-parsel", target=10.0),
    Compared(name="durable", over="bare", target=0.45),
    Compared(name="memory", over="bare", target=0.55),
    Compared(name="warc", over="durable", target=0.6),  # WARC may cost 40 % of the rate
)
_MANY_HOSTS = (
    *(Compared(name="durable", over=one.name) for one in TUNED),
    Compared(name="durable", over="bare", target=0.4),
    Compared(name="memory", over="bare"),
    Compared(name="warc", over="durable"),
)


def one_host(setting: Setting) -> Iterable[Row]:
    """60 links a page, nearly all of them known."""
    contestants = (BARE, *OURS, SCRAPY, CRAWLEE, *TUNED)
    yield from rows("one-host", contestants, _ONE_HOST, raced(Site(pages=setting.pages), contestants, setting))


def many_hosts(setting: Setting) -> Iterable[Row]:
    """The pages of `one_host` on 200 host names."""
    site, contestants = Site(pages=setting.pages, hosts=HOSTS, is_named=True), (BARE, *OURS, *TUNED)
    yield from rows("many-hosts", contestants, _MANY_HOSTS, raced(site, contestants, setting))


def server(setting: Setting) -> Iterable[Row]:
    """The server must not be the limit of the others."""
    ratios = (Compared(name="raw", over="bare", target=3.0),)
    contestants = (RAW, BARE)
    yield from rows("server", contestants, ratios, raced(Site(pages=setting.pages), contestants, setting))


def processes(setting: Setting) -> Iterable[Row]:
    """All processes share all cores, the server included."""
    site, everywhere = Site(pages=setting.pages, hosts=HOSTS, is_named=True), os.sched_getaffinity(0)
    contestants = (BARE, DURABLE, ONE_PROCESS, TWO_PROCESSES)
    ratios = (Compared(name="2", over="1", target=_TWO_OVER_ONE), Compared(name="2", over="durable"))
    outcome = raced(site, contestants, setting, pinned_to=(everywhere, everywhere))
    yield from rows("processes", contestants, ratios, outcome)
    if not outcome.faults:
        yield on_two_cores(outcome.results["1"], outcome.results["2"])


def on_two_cores(one: Sequence[Result], two: Sequence[Result]) -> Row:
    """The gain on two cores that are idle, by CPU times alone: one process fills a core, two and the server fill both."""
    gains = [2 * alone.cpu_us / (both.cpu_us + both.server_us) for alone, both in zip(one, two, strict=True)]
    server_us = statistics.median(result.server_us for result in two)
    return rounds_row(
        "processes/cores-x", "pages/s of two idle cores, 2 / 1, by CPU time", gains, "x", target=_TWO_OVER_ONE,
        note=f"the site's server takes {server_us:,.0f} µs a page",
    )  # fmt: skip
