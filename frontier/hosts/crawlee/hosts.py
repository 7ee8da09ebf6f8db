"""Records Crawlee's reports about hosts: 429 with Retry-After, and Crawl-delay.

The gates keep the times. This module keeps what no gate shows: which hosts were throttled just now, which Crawl-delays are
known, and since when every answer was a 429.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from anabranch.frontier.frontier import Frontier
from anabranch.frontier.hosts.crawlee.requests import RequestInProgress, host_of
from anabranch.frontier.hosts.embedding.settings import order_of
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.records import GateKey, HostTrouble

#: Hosts that are remembered; the oldest are forgotten.
_MOST = 65_536
#: A host that answered 429 counts as throttled for at least so long, since the crawler asks at once.
_LEAST_COOLDOWN_S = 1.0


class Hosts:
    """The hosts of one queue. `frontier` returns the queue's Frontier, `flights` the requests in progress."""

    def __init__(
        self,
        frontier: Callable[[], Frontier],
        flights: Callable[[], Iterable[RequestInProgress]],
        settings: Mapping[str, object],
    ) -> None:
        order = order_of(settings)
        self._frontier = frontier
        self._flights = flights
        self._backoff = order.backoff
        self._have_gates = order.scope is PolitenessScope.HOST
        self._until_s: dict[str, float] = {}
        self._delays: dict[str, float] = {}
        self._refused_since_s: float | None = None

    def throttle(self, url: str, retry_after: timedelta | None) -> bool:
        """The URL's host answered 429: its gate closes when the request comes back. False if the URL has no host."""
        host = host_of(url)
        if host is None:
            return False
        frontier = self._frontier()
        now_s = frontier.now_s()
        asked_s = 0.0 if retry_after is None else max(retry_after.total_seconds(), 0.0)
        asked_s = min(asked_s, self._backoff.longest_retry_after_s)
        until_s = now_s + max(asked_s, self._backoff.base_s)
        out = [flight for flight in self._flights() if flight.request.url == url]
        for flight in out:
            flight.throttled(asked_s)
        if not out and self._have_gates:
            frontier.block(GateKey(host), until_s)
        _remember(self._until_s, host, max(until_s, now_s + _LEAST_COOLDOWN_S, self._until_s.get(host, 0.0)))
        self._refused_since_s = now_s if self._refused_since_s is None else self._refused_since_s
        return True

    def is_throttled(self, url: str) -> bool:
        """Whether its host answered 429 and is not requested now."""
        host = host_of(url)
        return host is not None and self._until_s.get(host, 0.0) > self._frontier().now_s()

    def set_crawl_delay(self, url: str, delay_s: float) -> None:
        """Start fetches of the URL's host at least so far apart. The first call for a host counts, as in Crawlee."""
        host = host_of(url)
        if host is not None and self._have_gates and host not in self._delays:
            _remember(self._delays, host, delay_s)
            self._frontier().set_delay(GateKey(host), delay_s)

    def handled(self, flight: RequestInProgress) -> None:
        """A request has ended; unless by a 429, the crawl makes progress."""
        if flight.trouble is HostTrouble.NONE:
            self._refused_since_s = None

    def refused(self, longest_s: float) -> tuple[float, Sequence[str]] | None:
        """For how many seconds every request was answered by 429, and by which hosts.

        None if that is shorter than `longest_s`, if a request may be fetched now, or if one is in progress: it may add others.
        """
        frontier = self._frontier()
        refused_s = 0.0 if self._refused_since_s is None else frontier.now_s() - self._refused_since_s
        if refused_s <= longest_s or frontier.in_flight or frontier.is_done or frontier.can_lease():
            return None
        return refused_s, list(self._until_s)

    def clear(self) -> None:
        """Forget all but the Crawl-delays."""
        self._until_s.clear()
        self._refused_since_s = None
        for host, delay_s in self._delays.items():
            self._frontier().set_delay(GateKey(host), delay_s)


def _remember(table: dict[str, float], host: str, number: float) -> None:
    table.pop(host, None)
    table[host] = number
    if len(table) > _MOST:
        del table[next(iter(table))]
