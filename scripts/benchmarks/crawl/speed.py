"""The product beside the bare loop and the peers: on one host, on 200, and in two processes."""

from __future__ import annotations

from collections.abc import Iterable

from scripts.benchmarks.crawl.contestants import ALL
from scripts.benchmarks.crawl.race import Compared, raced, rows
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import Site

HOSTS = 200

_ONE_HOST = (
    Compared(name="durable", over="scrapy", target=20.0),
    Compared(name="durable", over="crawlee", target=10.0),
    Compared(name="durable", over="crawlee-parsel", target=10.0),
    Compared(name="durable", over="bare", target=0.45),
    Compared(name="memory", over="bare", target=0.55),
    Compared(name="warc", over="durable", target=1.4, is_cost=True),
)
_MANY_HOSTS = (
    Compared(name="durable", over="scrapy"),
    Compared(name="durable", over="crawlee"),
    Compared(name="durable", over="crawlee-parsel"),
    Compared(name="durable", over="bare", target=0.4),
    Compared(name="memory", over="bare"),
    Compared(name="warc", over="durable", is_cost=True),
)


def one_host(setting: Setting) -> Iterable[Row]:
    """60 links a page, nearly all of them known."""
    yield from rows("one-host", ALL, _ONE_HOST, raced(Site(pages=setting.pages), ALL, setting))


def many_hosts(setting: Setting) -> Iterable[Row]:
    """The same pages on 200 names."""
    site = Site(pages=setting.pages, hosts=HOSTS, is_named=True)
    yield from rows("many-hosts", ALL, _MANY_HOSTS, raced(site, ALL, setting))
