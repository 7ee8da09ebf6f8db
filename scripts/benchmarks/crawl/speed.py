"""The product, the bare loop and the peers, on one host and on 200; two processes; and the speed of the server."""

from __future__ import annotations

import os
from collections.abc import Iterable

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
from scripts.benchmarks.crawl.race import Compared, raced, rows
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import Site

HOSTS = 200

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
    ratios = (Compared(name="2", over="1", target=1.0), Compared(name="2", over="durable"))
    outcome = raced(site, contestants, setting, pinned_to=(everywhere, everywhere))
    yield from rows("processes", contestants, ratios, outcome)
