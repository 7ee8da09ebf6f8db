"""How a visit ends: decided by tables, recorded, then said to the Frontier. It always runs."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from anabranch.crawler.fetching.response import Response
from anabranch.crawler.outcomes.failures import TROUBLES, KeptConnectionClosed, retry_after, told_by
from anabranch.crawler.outcomes.status import StatusClass, class_of
from anabranch.crawler.processors.known import Known
from anabranch.crawler.processors.recorder import Recorder
from anabranch.crawler.reporting.statistics import CrawlStatistics
from anabranch.crawler.visit import Ending, Visit
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.errors import LeaseLost
from anabranch.frontier.models import ENDING, HostTrouble, Outcome, OutcomeKind

log = structlog.get_logger(__name__)

#: How the class of a final status ends a URL.
_KINDS: dict[StatusClass, OutcomeKind] = {
    StatusClass.SUCCESS: OutcomeKind.DONE,
    StatusClass.FAILED: OutcomeKind.FAILED,
    StatusClass.DISREGARDED: OutcomeKind.DISREGARDED,
}


class Disposition:
    """Ends visits: has them written, counts and finishes them. `known` hears what the Frontier has of a page's links."""

    def __init__(
        self,
        frontier: AsyncFrontier,
        recorder: Recorder,
        statistics: CrawlStatistics,
        clock: Callable[[], float],
        known: Known | None = None,
    ) -> None:
        self._frontier = frontier
        self._recorder = recorder
        self._statistics = statistics
        self._clock = clock
        self._known = known

    async def __call__(self, visit: Visit) -> OutcomeKind | None:
        """End the visit; answers how, or None if its lease was only given back, or was lost: then the URL comes again."""
        try:
            return await self._end(visit)
        except LeaseLost:
            log.warning("lease lost: the URL is fetched again; a longer [frontier] lease helps", url=visit.lease.url)
            return None

    async def _end(self, visit: Visit) -> OutcomeKind | None:
        outcome = decide(visit, self._clock())
        if outcome is None:
            self._frontier.release(visit.lease)
            return None
        await self._recorder.end(visit, outcome.kind)
        verdicts = self._frontier.finish(visit.lease, outcome, visit.discovered)
        if self._known is not None:
            self._known.learn(visit.discovered, verdicts)
        self._statistics.count(visit, outcome.kind)
        now_s = self._clock()
        again_s = None if outcome.kind in ENDING else self._again_s(visit, now_s + outcome.after_s)
        self._statistics.troubles.note(visit, outcome.kind, now_s, again_s)
        return outcome.kind

    def _again_s(self, visit: Visit, due_s: float) -> float:
        """When the URL may be tried again: when it is due, and its host's gate is open."""
        opens_s = self._frontier.core.opens_s(visit.lease.gate)
        return due_s if opens_s is None else max(due_s, opens_s)

    async def note_robots(self, visit: Visit, url: str, response: Response) -> None:
        """A robots.txt was fetched in a page's place."""
        await self._recorder.robots(visit, url, response)
        self._statistics.robots += 1


def decide(visit: Visit, now_s: float) -> Outcome | None:
    """The outcome of a visit; None to release its lease unprocessed. Pure."""
    if visit.ending is Ending.RELEASED:
        return None
    if visit.broken is not None and visit.fetched is None:
        times: tuple[float | None, float | None] = (visit.lease.since_s, now_s)  # a fetch may have been under way
    else:
        times = visit.fetched or (None, None)
    kind, after_s = _kind_of(visit)
    return Outcome(kind, visit.status, *times, after_s, *_told_of_host(visit, now_s))


def _kind_of(visit: Visit) -> tuple[OutcomeKind, float]:
    """How the URL ends, and for a retry after how many seconds."""
    if visit.ending in (Ending.DEFERRED, Ending.UNRULED) or isinstance(visit.failure, KeptConnectionClosed):
        return OutcomeKind.DEFERRED, 0.0
    failure = visit.status if visit.is_busy else visit.failure
    if failure is None:
        return _KINDS[class_of(visit.status)], 0.0
    again_s = retry_after(failure, visit.lease.attempts)
    if again_s is not None:
        return OutcomeKind.RETRY, again_s
    return (OutcomeKind.FAILED if visit.is_busy else _KINDS[class_of(visit.status)]), 0.0


def _told_of_host(visit: Visit, now_s: float) -> tuple[HostTrouble, float]:
    """What was fetched tells of the host, and the seconds that the host asks for; a visit that fetched nothing tells nothing.

    A robots.txt that cannot be had is trouble whatever its status, until it has been asked for often enough.
    """
    if visit.ending is Ending.DEFERRED or visit.fetched is None:
        return HostTrouble.NONE, 0.0
    if visit.response is None:
        return next((told for kind, told in TROUBLES.items() if isinstance(visit.failure, kind)), HostTrouble.NONE), 0.0
    trouble, asked_s = told_by(visit.response.status, visit.response.headers, now_s)
    if trouble is HostTrouble.NONE and visit.ending is Ending.UNRULED:
        trouble = HostTrouble.UNAVAILABLE
    return trouble, asked_s
