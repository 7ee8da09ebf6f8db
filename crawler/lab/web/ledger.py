"""A server's record of the requests of each host, which shows whether a politeness rule was kept. Memory: per host only.

A request takes a slot of its host from its start (its head was read) to its end (just before its last bytes are sent), and the
slot then rests. With k slots a start is allowed if a slot is free: if m others are in service and of the ended requests at most
k - m - 1 still rest. That holds for every start if and only if the requests fit into k slots without overlap. The server sees a
request for a shorter time than the client (it starts later and ends earlier), and a rest grows with the fetch time, so a client
that keeps the rule by its own clock keeps it here. A lag of the server (`longest_lag_s`) can hide a breach of that size, but
never cause one.

If a client goes away early, the server notices it a little later, so the request seems longer than it was. The next start
may then be early by the effect of 20 ms on the rest, at most a tenth of the rest; Crawl-delays and the number of slots have no
such tolerance. (Measured delays of the notice on loopback with 2 busy cores: 0.3 ms, one in a hundred 3 ms, at most 20 ms of
1,800. With a rest of 50 ms, 7 of 500 starts just after a notice were wrongly counted as early.)
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.crawler.lab.report import Cell, Table

#: Epoch seconds are exact to a quarter of a microsecond, and a timer may be early by its resolution.
_SLACK_S = 1e-4
#: How much later a client that goes away is noticed, and the tolerance for it, as a share of the rest.
_GONE_S = 0.02
_GONE_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PolitenessRule:
    """The politeness rule for a host."""

    slots: int = 1  #: requests at once
    delay_factor: float = 0.0  #: a slot rests for this times its last request's time …
    min_delay_s: float = 0.0  #: … but at least this
    max_delay_s: float = 0.0  #: … and at most this, if that is more

    def rest_s(self, took_s: float) -> float:
        """How long a slot rests after a request that took so long."""
        return max(self.min_delay_s, min(self.delay_factor * took_s, self.max_delay_s))

    def excuse_s(self, took_s: float) -> float:
        """How much shorter a rest may seem after a request of this duration with a client that went away early."""
        rest_s = self.rest_s(took_s)
        return min(_GONE_S + rest_s - self.rest_s(took_s - _GONE_S), _GONE_SHARE * rest_s)


class HostEntry(NamedTuple):
    """The record of one host."""

    host: str
    requests: int
    most_at_once: int
    #: From the end that freed a slot to the start that took it; None if no slot was taken twice.
    shortest_gap_s: float | None
    shortest_start_gap_s: float | None  #: between starts of two pages, robots.txt left out
    starts_per_s: float | None  #: from the first start to the last; None with one request
    size_bytes: int  #: of the bodies sent
    gone: int  #: requests with a client that went away before the end
    crawl_delay_s: float | None  #: that its robots.txt asks for
    too_many: int  #: starts while all slots were taken
    too_early: int  #: starts while a slot was free but still at rest, or too soon for the Crawl-delay


@dataclass(frozen=True, slots=True, kw_only=True)
class PolitenessLedger:
    """The records of all hosts at one moment."""

    rule: PolitenessRule
    hosts: tuple[HostEntry, ...]  #: that had a request, the busiest first
    strangers: int  #: requests for hosts that the web does not have
    wall_s: float  #: since the ledger was begun
    cpu_s: float  #: that the server's process took meanwhile
    longest_lag_s: float  #: the latest that an answer was sent after its time

    @property
    def requests(self) -> int:
        """The number of requests for all hosts of the web."""
        return sum(entry.requests for entry in self.hosts)

    @property
    def busy(self) -> float:
        """The share of one core that the server used; near 1 the server is the limit, not its client."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def broken(self) -> tuple[HostEntry, ...]:
        """The hosts with a broken rule."""
        return tuple(entry for entry in self.hosts if entry.too_many or entry.too_early)

    @property
    def is_kept(self) -> bool:
        """No start broke the rule."""
        return not self.broken

    def verdict(self) -> str:
        """One sentence: kept, with the worst case; or broken, where and how often."""
        rule = f"at most {self.rule.slots} at once, each slot at rest for {_rest_words(self.rule)}, Crawl-delays"
        if not self.broken:
            gaps = [entry.shortest_gap_s for entry in self.hosts if entry.shortest_gap_s is not None]
            shortest = f"the shortest gap was {min(gaps) * 1000:.1f} ms" if gaps else "no slot was used twice"
            most = max((entry.most_at_once for entry in self.hosts), default=0)
            return f"kept on {len(self.hosts)} hosts ({rule}): the most at once was {most}, {shortest}"
        worst = max(self.broken, key=lambda entry: entry.too_many + entry.too_early)
        many = sum(entry.too_many for entry in self.broken)
        early = sum(entry.too_early for entry in self.broken)
        return (
            f"BROKEN on {len(self.broken)} of {len(self.hosts)} hosts ({rule}): {many:,} starts too many at once, {early:,} too"
            f" early; worst {worst.host} with {worst.most_at_once} at once and {worst.too_early:,} too early"
        )


class HostAccount:
    """The running record of one host. Cost of a request: O(slots), some microseconds."""

    __slots__ = (
        "_delay_s",
        "_ends",
        "_first_s",
        "_frees",
        "_host",
        "_last_page_s",
        "_last_s",
        "_rule",
        "gone",
        "in_service",
        "most",
        "requests",
        "shortest_gap_s",
        "shortest_start_gap_s",
        "size_bytes",
        "too_early",
        "too_many",
    )

    def __init__(self, host: str, rule: PolitenessRule, crawl_delay_s: float | None) -> None:
        self._host, self._rule, self._delay_s = host, rule, crawl_delay_s
        self._ends: list[float] = []  # the latest ends, rising, as many as there are slots
        self._frees: list[float] = []  # the latest moments at which a slot's rest ends, likewise
        self._first_s = self._last_s = 0.0
        self._last_page_s: float | None = None
        self.requests = self.in_service = self.most = self.size_bytes = self.gone = self.too_many = self.too_early = 0
        self.shortest_gap_s: float | None = None
        self.shortest_start_gap_s: float | None = None

    def begin(self, now_s: float, *, is_robots: bool = False) -> None:
        """A request starts."""
        others = self.in_service
        free = self._rule.slots - others
        is_early = False
        if free <= 0:
            self.too_many += 1
        elif free <= len(self._ends):
            # It takes the slot that has been free for longest.
            gap_s = now_s - self._ends[-free]
            if self.shortest_gap_s is None or gap_s < self.shortest_gap_s:
                self.shortest_gap_s = gap_s
            is_early = now_s < self._frees[-free] - _SLACK_S
        if not is_robots and self._is_page_early(now_s):
            is_early = True
        if is_early:
            self.too_early += 1
        if not self.requests:
            self._first_s = now_s
        self._last_s = now_s
        self.requests += 1
        self.in_service = others + 1
        if others >= self.most:
            self.most = others + 1

    def _is_page_early(self, now_s: float) -> bool:
        """A page's start is too soon after the page before, for the Crawl-delay."""
        before_s, self._last_page_s = self._last_page_s, now_s
        if before_s is None:
            return False
        gap_s = now_s - before_s
        if self.shortest_start_gap_s is None or gap_s < self.shortest_start_gap_s:
            self.shortest_start_gap_s = gap_s
        return self._delay_s is not None and gap_s < self._delay_s - _SLACK_S

    def end(self, start_s: float, now_s: float, size_bytes: int, *, is_gone: bool = False) -> None:
        """The request that started then ends; its client may have gone away before."""
        self.in_service -= 1
        self.size_bytes += size_bytes
        rule = self._rule
        free_s = now_s + rule.rest_s(now_s - start_s)
        if is_gone:
            self.gone += 1
            free_s -= rule.excuse_s(now_s - start_s)
        ends, frees = self._ends, self._frees
        insort(ends, now_s)
        insort(frees, free_s)
        if len(ends) > rule.slots:
            del ends[0], frees[0]

    def entry(self) -> HostEntry:
        """The present record."""
        lasted_s = self._last_s - self._first_s
        return HostEntry(
            host=self._host,
            requests=self.requests,
            most_at_once=self.most,
            shortest_gap_s=self.shortest_gap_s,
            shortest_start_gap_s=self.shortest_start_gap_s,
            starts_per_s=(self.requests - 1) / lasted_s if lasted_s > 0 else None,
            size_bytes=self.size_bytes,
            gone=self.gone,
            crawl_delay_s=self._delay_s,
            too_many=self.too_many,
            too_early=self.too_early,
        )


class HostAccounts:
    """The records of all hosts of a web since one moment. A host takes memory after its first request."""

    def __init__(self, delays: dict[str, float | None], rule: PolitenessRule, clock: Callable[[], float]) -> None:
        self._delays = delays  # host -> its Crawl-delay
        self._rule = rule
        self._clock = clock
        self._began_s, self._began_cpu_s = clock(), time.process_time()
        self._hosts: dict[str, HostAccount] = {}
        self.strangers = 0  #: requests for hosts that the web does not have
        self.longest_lag_s = 0.0  #: an answer was sent so long after its time

    def of(self, host: str) -> HostAccount:
        """The account of a host of the web; O(1)."""
        account = self._hosts.get(host)
        if account is None:
            account = self._hosts[host] = HostAccount(host, self._rule, self._delays.get(host))
        return account

    def note_lag(self, lag_s: float) -> None:
        """Note that an answer was sent so long after its time."""
        self.longest_lag_s = max(self.longest_lag_s, lag_s)

    def ledger(self) -> PolitenessLedger:
        """The present records. Cost: some microseconds a host."""
        entries = [account.entry() for account in self._hosts.values()]
        return PolitenessLedger(
            rule=self._rule,
            hosts=tuple(sorted(entries, key=lambda entry: (-entry.requests, entry.host))),
            strangers=self.strangers,
            wall_s=self._clock() - self._began_s,
            cpu_s=time.process_time() - self._began_cpu_s,
            longest_lag_s=self.longest_lag_s,
        )


def _rest_words(rule: PolitenessRule) -> str:
    if not rule.delay_factor:
        return f"{rule.min_delay_s * 1000:g} ms"
    return f"{rule.delay_factor:g} x its request, {rule.min_delay_s * 1000:g} to {rule.max_delay_s * 1000:g} ms"


#: Hosts that have a row; the others share one.
ROWS = 40

_COLUMNS = (
    "host",
    "requests",
    "most at once",
    "shortest gap ms",
    "between starts ms",
    "starts/s",
    "KB",
    "client gone",
    "too many",
    "too early",
)


def ledger_table(ledger: PolitenessLedger, rows: int = ROWS) -> Table:
    """The requests of each host. A gap is from the end that freed a slot to the start that took it."""
    entries = sorted(ledger.hosts, key=lambda entry: -(entry.too_many + entry.too_early))
    shown, others = entries[:rows], entries[rows:]
    cells = [_cells(entry.host, (entry,)) for entry in shown]
    if others:
        cells.append(_cells(f"{len(others):,} others", others))
    rule = ledger.rule
    strangers = f" {ledger.strangers:,} requests were for hosts that the web does not have." if ledger.strangers else ""
    return Table(
        title=f"What the server saw of {len(ledger.hosts):,} hosts in {ledger.wall_s:,.1f} s",
        columns=_COLUMNS,
        rows=tuple(cells),
        note=(
            f"Gaps: a slot's end to its next start, with {rule.slots} slot{'s' * (rule.slots > 1)} a host. The server took"
            f" {ledger.busy:.0%} of a core and was at worst {ledger.longest_lag_s * 1000:.1f} ms late.{strangers}"
        ),
    )


def _cells(name: str, entries: Sequence[HostEntry]) -> tuple[Cell, ...]:
    """A row: sums, and the worst of the others."""
    return (
        name,
        sum(entry.requests for entry in entries),
        max(entry.most_at_once for entry in entries),
        _milliseconds(entry.shortest_gap_s for entry in entries),
        _milliseconds(entry.shortest_start_gap_s for entry in entries),
        max((entry.starts_per_s for entry in entries if entry.starts_per_s is not None), default=None),
        round(sum(entry.size_bytes for entry in entries) / 1000),
        sum(entry.gone for entry in entries),
        sum(entry.too_many for entry in entries),
        sum(entry.too_early for entry in entries),
    )


def _milliseconds(seconds: Iterable[float | None]) -> float | None:
    """The least of those that are known."""
    known = [each for each in seconds if each is not None]
    return round(min(known) * 1000, 1) if known else None
