"""What becomes of a lease in virtual time: robots.txt if it is the host's first, the fetch, the processor, the end.

The rules are those of the crawl's own chain. The first visit to a host fetches its robots.txt in the page's place and goes back
deferred; visits to it that are under way meanwhile wait for that and go on, or go back if the host has a Crawl-delay. A 429 or
503 is tried again as often as a crawl does. A fetch ends, and its slot rests from then on, before the processor has the page.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from anabranch.crawler.lab.simulation.processor import Processor, Speed
from anabranch.crawler.lab.simulation.virtualtime import Happen, VirtualCrawl
from anabranch.crawler.lab.web.ledger import Books, HostBooks
from anabranch.crawler.lab.web.model import Page, Site, Web
from anabranch.crawler.outcomes.failures import retry_after
from anabranch.crawler.robots.cache import LIFETIME_S
from anabranch.crawler.robots.delays import CrawlDelays
from anabranch.frontier.hosttroubles import HOST_BUSY
from anabranch.frontier.models import Candidate, HostTrouble, Lease, Outcome, OutcomeKind
from anabranch.frontier.policies.authority import host_of

_new: Final = tuple.__new__
_DONE: Final = OutcomeKind.DONE
_RETRY: Final = OutcomeKind.RETRY
_NO_TROUBLE: Final = HostTrouble.NONE


class _Host:
    """What is known of a host that was visited."""

    __slots__ = ("books", "known_until_s", "site", "waiting")

    def __init__(self, site: Site, books: HostBooks) -> None:
        self.site = site
        self.books = books
        self.known_until_s = 0.0  #: its robots.txt is asked for again then
        self.waiting: list[Lease] | None = None  #: visits that wait for its robots.txt, while that is under way


class Visits:
    """The visits of one crawl. `begin` is what its engine is made with, `crawl` that engine."""

    crawl: VirtualCrawl

    def __init__(self, web: Web, books: Books, speed: Speed) -> None:
        self.urls = 0  #: that have ended
        self.bytes = 0  #: of bodies
        self.queues: Counter[str] = Counter()  #: queue -> URLs that have ended
        self.processor = Processor(speed)
        self._web = web
        self._books = books
        self._takes_time = speed.page_s > 0
        self._sites = {site.host: site for site in web.sites}
        self._hosts: dict[str, _Host] = {}  # those that were visited, by name and port
        self._delays = CrawlDelays()

    def begin(self, lease: Lease) -> None:
        """A worker has this URL now."""
        name = lease[1].split("/", 3)[2]
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
        return self._hosts.setdefault(site.host, _Host(site, self._books.of(site.host)))

    # robots.txt

    def _fetch_robots(self, host: _Host, lease: Lease) -> None:
        start_s = self.crawl.clock.now_s
        host.books.begin(start_s, is_robots=True)
        self.crawl.after(host.site.latency_s, self._robots_fetched, host, lease, start_s)

    def _robots_fetched(self, host: _Host, lease: Lease, start_s: float) -> None:
        now_s = self.crawl.clock.now_s
        host.books.end(start_s, now_s, 0)
        self._work(self._robots_read, host, lease, start_s, now_s)

    def _robots_read(self, host: _Host, lease: Lease, start_s: float, end_s: float) -> None:
        host.known_until_s = self.crawl.clock.now_s + LIFETIME_S
        delay_s = host.site.crawl_delay_s or 0.0
        if delay_s:  # none is ever taken back
            self.crawl.core.set_delay(lease.gate, self._delays.learn(lease.gate, host.site.host, delay_s))
        waiting, host.waiting = host.waiting or (), None
        self.crawl.end(lease, Outcome(OutcomeKind.DEFERRED, 0, start_s, end_s))
        for other in waiting:
            if delay_s:
                self.crawl.give_back(other)
            else:
                self._fetch(host, other)

    # Pages

    def _fetch(self, host: _Host, lease: Lease) -> None:
        page = self._web.page(lease[1]) or Page(404, "text/plain", 0, host.site.latency_s, 0.0, (), ())
        start_s = self.crawl.clock.now_s
        host.books.begin(start_s)
        self.crawl.after(page[3] + page[4], self._fetched, host, lease, page, start_s)

    def _fetched(self, host: _Host, lease: Lease, page: Page, start_s: float) -> None:
        now_s, size = self.crawl.clock.now_s, page[2]
        host.books.end(start_s, now_s, size)
        self.bytes += size
        if self._takes_time:
            self._work(self._end, lease, page, start_s, now_s)
        else:
            self._end(lease, page, start_s, now_s)

    def _end(self, lease: Lease, page: Page, start_s: float, end_s: float) -> None:
        status, _, _, _, _, links, embeds = page
        outcome = _outcome(status, lease.attempts, start_s, end_s)
        # Half the price of Candidate(...): one is made for every link.
        found = [_new(Candidate, (url, None, "", None, False, False, None)) for url in links + embeds]
        self.crawl.end(lease, outcome, found)
        if outcome[0] is not _RETRY:
            self.urls += 1
            self.queues[lease.queue] = self.queues.get(lease.queue, 0) + 1

    def _work(self, done: Happen, *facts: Any) -> None:
        """Let the processor have the page, then let it be done."""
        if self._takes_time:
            self.crawl.after(self.processor.serve(self.crawl.clock.now_s), done, *facts)
        else:
            done(*facts)


def _outcome(status: int, attempts: int, start_s: float, end_s: float) -> Outcome:
    """As a crawl ends a visit that got this status."""
    trouble = HOST_BUSY.get(status, _NO_TROUBLE)
    if trouble is _NO_TROUBLE:
        return _new(Outcome, (_DONE, status, start_s, end_s, 0.0, trouble, 0.0))
    again_s = retry_after(status, attempts)
    if again_s is None:
        return Outcome(_DONE, status, start_s, end_s, trouble=trouble)
    return Outcome(OutcomeKind.RETRY, status, start_s, end_s, after_s=again_s, trouble=trouble)
