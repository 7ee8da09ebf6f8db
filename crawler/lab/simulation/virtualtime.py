"""A crawl in virtual time: workers that share one Frontier, a clock that jumps to the next event, and the visits.

Nothing waits, so a crawl of days costs the processor time of the Frontier's own work and no more. The Frontier is the real
one; `VirtualCrawl` leases from it, and `Visits` decides what happens between a lease and its end: robots.txt on the first visit
to a host, the fetch, the crawler's processor (`Processor`), the outcome.

The rules are those of the crawl's own chain. The first visit to a host fetches its robots.txt instead of the page and is
deferred; visits to this host that are in flight meanwhile wait for robots.txt and continue, or are released if the host has a
Crawl-delay. A 429 or 503 is retried as often as a crawl retries it. A fetch ends, and its slot rests from then on, before the
processor has the page.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

from anabranch.crawler.lab.web.ledger import HostAccount, HostAccounts
from anabranch.crawler.lab.web.model import Web, WebHost, WebPage
from anabranch.crawler.outcomes.failures import retry_after
from anabranch.crawler.robots.cache import LIFETIME_S, CrawlDelays
from anabranch.frontier import Candidate, Frontier, HostTrouble, Lease, Outcome, OutcomeKind, WaitsFor
from anabranch.frontier.completion import HOST_BUSY
from anabranch.frontier.policies.hosts import host_of

#: What happens at an event's time.
Happen = Callable[..., None]


class VirtualClock:
    """Epoch seconds that stand still until they are moved."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The time."""
        return self.now_s

    def time_s(self) -> float:
        """The time; half the price of calling the clock itself."""
        return self.now_s

    def advance_to(self, at_s: float) -> None:
        """Move to this time, if it is later."""
        self.now_s = max(self.now_s, at_s)


class VirtualCrawl:
    """Workers over a Frontier with this clock. Each lease is passed to `begin`, which must end it.

    The store must answer within the call. Cost: O(log leases out) an event.
    """

    def __init__(self, core: Frontier, clock: VirtualClock, workers: int, begin: Callable[[Lease], None]) -> None:
        self.core = core
        self.clock = clock
        self.workers = workers
        self.active = 0  #: workers that hold a URL
        self.leases = 0  #: that were handed out so far
        self._begin = begin
        self._events: list[tuple[float, int, Happen, tuple[Any, ...]]] = []
        self._numbers = count()
        self._was_full = True  # all workers were busy, or at the start
        self._has_changed = True  # something happened since the last `wake`
        self._wakes_s: float | None = None  # the answer of `wake`

    # What a visit may do

    def after(self, seconds: float, happen: Happen, *facts: Any) -> None:
        """Call `happen(*facts)` this much later; events of the same time happen in the order of the calls."""
        heappush(self._events, (self.clock.now_s + seconds, next(self._numbers), happen, facts))

    def end(self, lease: Lease, outcome: Outcome, discovered: Sequence[Candidate] = ()) -> None:
        """The visit ends; its worker is free."""
        self.core.finish(lease, outcome, discovered)
        self.active -= 1
        self._has_changed = True

    def give_back(self, lease: Lease) -> None:
        """The lease goes back unprocessed; its worker is free."""
        self.core.release(lease)
        self.active -= 1
        self._has_changed = True

    # How time goes by

    def lease_all(self) -> None:
        """Hand out every available lease, as long as a worker is free.

        A gate opens at its time or by an event; until one of these comes, the Frontier is not asked again. If all workers were
        busy until now, a gate is probably open.
        """
        now_s = self.clock.now_s
        while self.active < self.workers:
            if self._was_full:
                self._was_full = False
            else:
                if self._has_changed:
                    self._ask()
                wakes_s = self._wakes_s
                if wakes_s is None or wakes_s > now_s:
                    return
            if self.lease() is None:
                return
        self._was_full = True

    def lease(self) -> Lease | None:
        """The next lease for a free worker; None if all are busy or no lease is available now."""
        if self.active == self.workers:
            return None
        lease = self.core.lease()
        if lease is None:
            self._wakes_s, _ = self.core.wake()
            self._has_changed = False
        else:
            self.active += 1
            self.leases += 1
            self._has_changed = True
            self._begin(lease)
        return lease

    def next_s(self) -> float | None:
        """The time of the next event, or of the next lease for a free worker; None: nothing more will happen.

        As of the last `lease` or `lease_all`.
        """
        events, wakes_s = self._events, self._wakes_s
        if wakes_s is None or self.active == self.workers:
            return events[0][0] if events else None
        return wakes_s if not events or wakes_s < events[0][0] else events[0][0]

    def go_on(self, at_s: float) -> None:
        """Move to this time, and call the events that are due."""
        self.clock.advance_to(at_s)
        now_s, events = self.clock.now_s, self._events
        while events and events[0][0] <= now_s:
            _, _, happen, facts = heappop(events)
            happen(*facts)

    def _ask(self) -> None:
        """Update when a lease is available: now, if the Frontier still has to query its store."""
        self._wakes_s, waits_for = self.core.wake()
        if self._wakes_s is None and waits_for & WaitsFor.STORE:
            self._wakes_s = self.clock.now_s
        self._has_changed = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The processor time of the crawler itself.

    Its event loop runs in turns: each polls sockets and timers, lets the store commit, and serves every page that came during
    the turn before. So a page is expensive while the processor is idle, and cheap under load.
    """

    page_s: float = 0.0  #: of the processor, for a page
    turn_s: float = 0.0  #: for a turn, however many pages it serves


class Processor:
    """Serves first come, first served, in turns. Cost: O(1) a page."""

    def __init__(self, speed: Speed) -> None:
        self.busy_s = 0.0  #: total, when all pages are served
        self._speed = speed
        self._start_s = -math.inf  #: of the last turn
        self._pages = 0  #: of the last turn, so far

    def serve(self, now_s: float) -> float:
        """Queue a page; returns the time until it is done."""
        page_s, turn_s = self._speed.page_s, self._speed.turn_s
        if now_s > self._start_s:  # that turn is running or has ended
            self._start_s = max(now_s, self._start_s + turn_s + self._pages * page_s)
            self._pages = 0
            self.busy_s += turn_s
        self._pages += 1
        self.busy_s += page_s
        return self._start_s + turn_s + self._pages * page_s - now_s


class _Host:
    """The state of a visited host."""

    __slots__ = ("account", "known_until_s", "site", "waiting")

    def __init__(self, site: WebHost, account: HostAccount) -> None:
        self.site = site
        self.account = account
        self.known_until_s = 0.0  #: its robots.txt is fetched again then
        self.waiting: list[Lease] | None = None  #: visits that wait for its robots.txt, while it is fetched


class Visits:
    """A crawl of a web in virtual time: every lease of its engine (`crawl`) becomes a visit."""

    def __init__(
        self, web: Web, accounts: HostAccounts, speed: Speed, *, core: Frontier, clock: VirtualClock, workers: int
    ) -> None:
        self.crawl = VirtualCrawl(core, clock, workers, self.begin)
        self.urls = 0  #: that have ended
        self.bytes = 0  #: of bodies
        self.queues: Counter[str] = Counter()  #: queue -> URLs that have ended
        self.processor = Processor(speed)
        self._web = web
        self._accounts = accounts
        self._takes_time = speed.page_s > 0
        self._sites = {site.host: site for site in web.sites}
        self._hosts: dict[str, _Host] = {}  # those that were visited, by name and port
        self._delays = CrawlDelays()

    def begin(self, lease: Lease) -> None:
        """A worker has this URL now."""
        name = lease.url.split("/", 3)[2]
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = self._host(name)
        if host.known_until_s > lease.since_s:
            self._fetch(host, lease)
        elif host.waiting is not None:
            host.waiting.append(lease)
        else:
            host.waiting = []
            self._fetch_robots(host, lease)

    def _host(self, name: str) -> _Host:
        """The host of this name, whatever its port."""
        site = self._sites[host_of(name)]
        return self._hosts.setdefault(site.host, _Host(site, self._accounts.of(site.host)))

    # robots.txt

    def _fetch_robots(self, host: _Host, lease: Lease) -> None:
        start_s = self.crawl.clock.now_s
        host.account.begin(start_s, is_robots=True)
        self.crawl.after(host.site.latency_s, self._robots_fetched, host, lease, start_s)

    def _robots_fetched(self, host: _Host, lease: Lease, start_s: float) -> None:
        now_s = self.crawl.clock.now_s
        host.account.end(start_s, now_s, 0)
        self._work(self._robots_read, host, lease, start_s, now_s)

    def _robots_read(self, host: _Host, lease: Lease, start_s: float, end_s: float) -> None:
        host.known_until_s = self.crawl.clock.now_s + LIFETIME_S
        waiting, host.waiting = host.waiting or [], None
        delay_s = host.site.crawl_delay_s or 0.0
        if delay_s:
            self.crawl.core.set_delay(lease.gate, self._delays.learn(lease.gate, host.site.host, delay_s))
        self.crawl.end(lease, Outcome(OutcomeKind.DEFERRED, 0, start_s, end_s))
        for other in waiting:
            if delay_s:
                self.crawl.give_back(other)
            else:
                self._fetch(host, other)

    # Pages

    def _fetch(self, host: _Host, lease: Lease) -> None:
        page = self._web.page(lease.url) or WebPage(404, "text/plain", 0, host.site.latency_s, 0.0, (), ())
        start_s = self.crawl.clock.now_s
        host.account.begin(start_s)
        self.crawl.after(page.latency_s + page.transfer_s, self._fetched, host, lease, page, start_s)

    def _fetched(self, host: _Host, lease: Lease, page: WebPage, start_s: float) -> None:
        now_s = self.crawl.clock.now_s
        host.account.end(start_s, now_s, page.size)
        self.bytes += page.size
        if self._takes_time:
            self._work(self._end, lease, page, start_s, now_s)
        else:
            self._end(lease, page, start_s, now_s)

    def _end(self, lease: Lease, page: WebPage, start_s: float, end_s: float) -> None:
        outcome = _outcome(page.status, lease.attempts, start_s, end_s)
        found = [Candidate(url) for url in page.links + page.embeds]
        self.crawl.end(lease, outcome, found)
        if outcome.kind is not OutcomeKind.RETRY:
            self.urls += 1
            self.queues[lease.queue] = self.queues.get(lease.queue, 0) + 1

    def _work(self, done: Happen, *facts: Any) -> None:
        """Queue the page for the processor, then call `done`."""
        if self._takes_time:
            self.crawl.after(self.processor.serve(self.crawl.clock.now_s), done, *facts)
        else:
            done(*facts)


def _outcome(status: int, attempts: int, start_s: float, end_s: float) -> Outcome:
    """Return the outcome with which a crawl ends a visit that got this status."""
    trouble = HOST_BUSY.get(status, HostTrouble.NONE)
    if trouble is HostTrouble.NONE:
        return Outcome(OutcomeKind.DONE, status, start_s, end_s)
    again_s = retry_after(status, attempts)
    if again_s is None:
        return Outcome(OutcomeKind.DONE, status, start_s, end_s, trouble=trouble)
    return Outcome(OutcomeKind.RETRY, status, start_s, end_s, after_s=again_s, trouble=trouble)
