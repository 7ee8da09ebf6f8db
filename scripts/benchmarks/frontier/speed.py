"""URLs per second through schedule, lease and finish: in memory, and in a file of SQLite.

A round schedules its URLs in batches of 60, then leases and finishes them all. Two slots a host, usual delays, virtual time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.frontier.composition import FrontierOrder
from anabranch.frontier.scheduling.gates import Politeness
from scripts.benchmarks.frontier.host import Host, Rounds, both
from scripts.benchmarks.frontier.links import BATCH, SAME_HOST, Web
from scripts.benchmarks.rows import Row, Setting

POLITENESS = Politeness(slots=2)

#: URLs that were queued before the pages come.
_KNOWN = 10_000
_PAGES = 5000
_PAGE_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: who spreads the URLs, over how many hosts, and what is wanted."""

    name: str
    policy: str
    hosts: int
    urls: int  #: of a round
    rounds: int
    target: float | None

    @property
    def order(self) -> FrontierOrder:
        """The order: two slots, with delays."""
        return FrontierOrder(policy=self.policy, politeness=POLITENESS)


MEMORY = (
    Case(name="memory-hosts", policy="host", hosts=1000, urls=40_000, rounds=5, target=100_000.0),
    Case(name="memory-bkdr", policy="bkdr:100", hosts=50, urls=40_000, rounds=5, target=100_000.0),
    Case(name="memory-lanes", policy="bkdr:997", hosts=1000, urls=40_000, rounds=3, target=None),
)
SQLITE = (
    Case(name="sqlite-100", policy="host", hosts=100, urls=100_000, rounds=5, target=30_000.0),
    Case(name="sqlite-100-bkdr", policy="bkdr:100", hosts=50, urls=100_000, rounds=3, target=None),
    Case(name="sqlite-100000", policy="host", hosts=100_000, urls=500_000, rounds=2, target=15_000.0),
)


def in_memory(setting: Setting) -> Iterator[Row]:
    """The cost of the core."""
    for case in MEMORY:
        yield _measured(setting, case, None)
    yield _linked(setting, "memory-links", None)


def in_sqlite(setting: Setting) -> Iterator[Row]:
    """Durable: every round ends when all changes are committed and synced."""
    for case in SQLITE:
        yield _measured(setting, case, setting.folder / case.name)
    yield _linked(setting, "sqlite-links", setting.folder / "links")


def _measured(setting: Setting, case: Case, folder: Path | None) -> Row:
    web = Web(_scaled(setting, case.hosts))
    count = max(setting.count(case.urls), SAME_HOST * web.hosts)  # every host has some
    scheduling, fetching = Rounds(), Rounds()
    setting.say(f"{case.name}: {case.rounds} x {count:,} URLs")
    with Host(folder, case.order, web.hosts) as host:
        for number in range(case.rounds):
            batches = web.batches(range(number * count, (number + 1) * count))
            scheduling.time(count, lambda todo=batches: (host.schedule(todo), host.flush()))
            fetching.time(count, lambda: (host.fetch(count), host.flush()))
        vain = host.nones / (case.rounds * count)
    rates = [both(*pair) for pair in zip(scheduling.rates, fetching.rates, strict=True)]
    return Row(
        name=case.name,
        what=f"schedule + lease + finish, policy {case.policy}, {web.hosts:,} hosts",
        measured=both(scheduling.median, fetching.median),
        unit="URLs/s",
        target=case.target,
        note=f"schedule {scheduling.median:,.0f}/s, lease + finish {fetching.median:,.0f}/s; {case.rounds} rounds of "
        f"{count:,} URLs, {min(rates):,.0f} to {max(rates):,.0f}/s; {vain:.2f} leases in vain per URL",
    )


def _linked(setting: Setting, name: str, folder: Path | None) -> Row:
    """Pages of 60 links of which one is new, as in most of a crawl."""
    web, count, rates = Web(1000), setting.count(_PAGES), Rounds()
    setting.say(f"{name}: {_PAGE_ROUNDS} x {count:,} pages")
    with Host(folder, FrontierOrder(policy="host", politeness=POLITENESS), web.hosts) as host:
        host.schedule(web.batches(range(_KNOWN)))
        host.flush()
        for number in range(_PAGE_ROUNDS):
            first = _KNOWN + number * count
            todo = list(web.pages(range(first, first + count), _KNOWN))
            rates.time(count, lambda pages=todo: (host.fetch_pages(pages), host.flush()))
    return Row(
        name=name,
        what=f"lease + finish with {BATCH} links, one of them new",
        measured=rates.median,
        unit="pages/s",
        note=f"{_PAGE_ROUNDS} rounds of {count:,} pages, {min(rates.rates):,.0f} to {max(rates.rates):,.0f}/s",
    )


def _scaled(setting: Setting, hosts: int) -> int:
    """The number of hosts: fewer in the small version, if there are very many."""
    return max(setting.count(hosts), min(hosts, 1000))
