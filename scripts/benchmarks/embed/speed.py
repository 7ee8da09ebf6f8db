"""Pages per second of one spider: Scrapy's own scheduler against the Frontier's, in turns.

Of each round the ratio is taken, and of the ratios the median and its interval, since a disturbance of the machine falls on one
round. Where the processor is the limit, the ratio is of CPU times of a page.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.crawler.lab.report import LEAST_ROUNDS, in_turns
from scripts.benchmarks.rows import Row, Setting, rounds_row
from scripts.benchmarks.site.pages import Site, addresses
from scripts.benchmarks.site.process import served

_ROUNDS = LEAST_ROUNDS
_HOSTS = 200
_DELAY_S = 0.2
#: Time limit of crawls of endless sites.
_LIMIT_S = 15

_FRONTIER = {"ADDONS": {"anabranch.frontier.hosts.scrapy.FrontierAddon": 1}}
_ONE_HOST = {"CONCURRENT_REQUESTS": 64, "CONCURRENT_REQUESTS_PER_DOMAIN": 64}
_BKDR = {"FRONTIER": {"policy": "bkdr:64", "max_connections": 64}}
#: Between the requests of a host, not randomized.
_POLITE = {"DOWNLOAD_DELAY": _DELAY_S, "DOWNLOAD_DELAY_JITTER": 0}
_SLOW = {"DOWNLOAD_SLOTS": {host: {"delay": 5.0, "jitter": 0} for host in addresses(Site(pages=0, hosts=_HOSTS))[::3]}}

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A site and its settings."""

    name: str
    site: Site
    settings: Settings  #: of both
    ours: Settings  #: of the Frontier's alone
    target: float | None = None  #: of the ratio
    is_durable: bool = False
    by_cpu: bool = False  #: the ratio is of the CPU times of a page, not of pages a second


class Crawled(NamedTuple):
    """One crawl."""

    pages_per_s: float
    cpu_us: float  #: of a page


def one_host(setting: Setting) -> Iterable[Row]:
    """60 links a page, nearly all of them known: the cost of a request."""
    site = Site(pages=setting.count(2_000))
    return _rows(Race(name="one-host", site=site, settings=_ONE_HOST, ours=_BKDR, target=1.0, by_cpu=True), setting)


def durable(setting: Setting) -> Iterable[Row]:
    """Scrapy's own queue is on disk, too, but its `active.json` is only written at the end."""
    site = Site(pages=setting.count(2_000))
    return _rows(Race(name="durable", site=site, settings=_ONE_HOST, ours=_BKDR, is_durable=True, by_cpu=True), setting)


def many_hosts(setting: Setting) -> Iterable[Row]:
    """Hosts of equal size: since 2.14 Scrapy's queue alternates between them."""
    site = Site(pages=setting.count(3_000), hosts=_HOSTS, links=10)
    return _rows(Race(name="many-hosts", site=site, settings=_POLITE, ours={}), setting)


def slow_hosts(setting: Setting) -> Iterable[Row]:
    """Requests of slow hosts wait in the downloader, where they are counted, until all of CONCURRENT_REQUESTS wait."""
    site = Site(pages=setting.count(40_000), hosts=_HOSTS, links=10)
    limited = {**_POLITE, **_SLOW, "CLOSESPIDER_TIMEOUT": _LIMIT_S}
    yield from _rows(Race(name="slow-hosts", site=site, settings=limited, ours={}, target=3.0), setting)
    more = {**limited, "CONCURRENT_REQUESTS": 64}
    yield from _rows(Race(name="slow-hosts/64", site=site, settings=more, ours={}, target=3.0), setting)


def _rows(race: Race, setting: Setting) -> Iterable[Row]:
    """Both speeds, and the ratio."""
    crawls = _crawls(race, setting)
    for kind, each in crawls.items():
        speed, cpu_us = (statistics.median(figures) for figures in zip(*each, strict=True))
        yield Row(
            name=f"{race.name}/{kind}",
            what=_WHAT[kind],
            measured=speed,
            unit="pages/s",
            note=f"{cpu_us:,.0f} µs of CPU a page",
        )
    pairs = list(zip(*crawls.values(), strict=True))
    speeds = [ours.pages_per_s / stock.pages_per_s for stock, ours in pairs]
    costs = [stock.cpu_us / ours.cpu_us for stock, ours in pairs]
    chosen, other = (costs, speeds) if race.by_cpu else (speeds, costs)
    yield rounds_row(
        f"{race.name}/ratio",
        "Scrapy's CPU time of a page / the Frontier's" if race.by_cpu else "Frontier's pages/s / Scrapy's",
        chosen,
        "",
        target=race.target,
        note=f"by {'the clock' if race.by_cpu else 'CPU time'} {statistics.median(other):.3g}",
    )


def _crawls(race: Race, setting: Setting) -> dict[str, list[Crawled]]:
    """The crawl of each round, first Scrapy's, then the Frontier's."""
    kinds = {"stock": race.settings, "frontier": {**race.settings, **_FRONTIER, **race.ours}}
    crawls: dict[str, list[Crawled]] = {kind: [] for kind in kinds}
    with served(race.site) as seed:
        for number, kind in in_turns(list(kinds), 1 if setting.is_quick else _ROUNDS):
            place = setting.folder / f"{race.name}-{kind}-{number}"
            crawls[kind].append(crawled(seed, {**kinds[kind], **({"JOBDIR": str(place)} if race.is_durable else {})}))
            setting.say(f"{kind} {crawls[kind][-1].pages_per_s:.0f} pages/s")
    return crawls


_WHAT = {"stock": "Scrapy's own scheduler", "frontier": "FrontierScheduler"}


def crawled(seed: str, settings: Settings) -> Crawled:
    """One crawl in a separate process. Raises: RuntimeError with its output if it failed or fetched nothing."""
    command = [sys.executable, "-m", "scripts.benchmarks.embed.spider", seed, json.dumps(settings)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode or not (done := json.loads(ended.stdout))["pages"]:
        raise RuntimeError(f"the crawl failed: {ended.stderr.strip()[-2_000:] or 'no page came'}")
    return Crawled(done["pages"] / done["took_s"], 1e6 * done["cpu_s"] / done["pages"])
