"""How a visit ends: decided by tables, recorded, then reported to the Frontier. It runs after every chain.

`recorder` makes the visit's log lines and exchange durable before the Frontier finishes the URL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from anabranch.crawler.fetch.response import Response
from anabranch.crawler.outcomes.failures import NAME_RETRIES_S, TROUBLES, UNTRIED, retry_after, trouble_of
from anabranch.crawler.outcomes.status import StatusClass, class_of
from anabranch.crawler.processors.recorder import Recorder
from anabranch.crawler.processors.seen_urls import SeenUrls
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.visit import ChainDecision, Visit
from anabranch.frontier import AsyncFrontier
from anabranch.frontier.errors import LeaseLost
from anabranch.frontier.records import ENDING, HostTrouble, Outcome, OutcomeKind

log = structlog.get_logger(__name__)

#: How the class of a final status ends a URL.
_KINDS: dict[StatusClass, OutcomeKind] = {
    StatusClass.SUCCESS: OutcomeKind.DONE,
    StatusClass.FAILED: OutcomeKind.FAILED,
    StatusClass.DISREGARDED: OutcomeKind.DISREGARDED,
}


@dataclass(frozen=True, slots=True)
class Disposition:
    """Ends visits: records, finishes and counts them. `seen` learns which of a page's links the Frontier has."""

    frontier: AsyncFrontier
    recorder: Recorder
    statistics: CrawlStatistics
    clock: Callable[[], float]
    seen: SeenUrls | None = None
    name_retries_s: Sequence[float] = NAME_RETRIES_S  #: waits of a name that only times out

    async def __call__(self, visit: Visit) -> OutcomeKind | None:
        """End the visit and return how; None if its lease was given back or lost: then the URL comes again."""
        outcome = decide(visit, self.clock(), self.name_retries_s)
        try:
            if outcome is None:
                self.frontier.release(visit.lease)
                return None
            await self.recorder.end(visit, outcome.kind)
            verdicts = self.frontier.finish(visit.lease, outcome, visit.discovered, visit.prepared)
        except LeaseLost:
            log.warning("lease lost: the URL is fetched again; a longer [frontier] lease helps", url=visit.lease.url)
            return None
        if self.seen is not None:
            self.seen.learn(visit.discovered, verdicts)
        self.statistics.count(visit, outcome.kind)
        now_s = self.clock()
        again_s = None
        if outcome.kind not in ENDING:  # tried again when it is due and its host's gate is open
            opens_s = self.frontier.core.operations.opens_s(visit.lease.gate)
            again_s = max(now_s + outcome.after_s, now_s if opens_s is None else opens_s)
        self.statistics.troubles.record(visit, outcome.kind, now_s, again_s)
        return outcome.kind

    def prepare(self, visit: Visit) -> None:
        """Ask the queue policies before anything of the visit is written. Raises: PolicyError."""
        outcome = decide(visit, self.clock(), self.name_retries_s)
        if outcome is not None:
            with suppress(LeaseLost):  # the end of the visit reports it
                visit.prepare(self.frontier.core.prepare(visit.lease, outcome.kind, visit.discovered))

    async def record_robots(self, visit: Visit, url: str, response: Response) -> None:
        """A robots.txt was fetched in a page's place."""
        await self.recorder.robots(visit, url, response)
        self.statistics.count_robots()


def decide(visit: Visit, now_s: float, name_retries_s: Sequence[float] = NAME_RETRIES_S) -> Outcome | None:
    """The outcome of a visit; None to release its lease unprocessed. Pure."""
    if visit.decision is ChainDecision.RELEASED:
        return None
    if visit.broken is not None and visit.fetch_times is None:
        times: tuple[float | None, float | None] = (visit.lease.since_s, now_s)  # a fetch may have been under way
    else:
        times = visit.fetch_times or (None, None)
    kind, after_s = _kind_of(visit, name_retries_s)
    return Outcome(kind, visit.status, *times, after_s, *_host_trouble(visit, now_s))


def _kind_of(visit: Visit, name_retries_s: Sequence[float]) -> tuple[OutcomeKind, float]:
    """How the URL ends, and for a retry after how many seconds."""
    is_deferred = visit.decision in (ChainDecision.DEFERRED, ChainDecision.NO_RULES)
    if is_deferred or isinstance(visit.failure, UNTRIED):
        return OutcomeKind.DEFERRED, 0.0
    failure = visit.status if visit.is_busy else visit.failure
    if failure is None:
        return _KINDS[class_of(visit.status)], 0.0
    again_s = retry_after(failure, visit.lease.attempts, name_retries_s)
    if again_s is not None:
        return OutcomeKind.RETRY, again_s
    return (OutcomeKind.FAILED if visit.is_busy else _KINDS[class_of(visit.status)]), 0.0


def _host_trouble(visit: Visit, now_s: float) -> tuple[HostTrouble, float]:
    """The trouble of the host, and the rest that it asks for in seconds. An unavailable robots.txt is trouble, too."""
    if visit.decision is ChainDecision.DEFERRED or visit.fetch_times is None:
        return HostTrouble.NONE, 0.0
    if visit.response is None:
        troubles = (trouble for kind, trouble in TROUBLES.items() if isinstance(visit.failure, kind))
        return next(troubles, HostTrouble.NONE), 0.0
    trouble, rest_s = trouble_of(visit.response.status, visit.response.headers, now_s)
    if trouble is HostTrouble.NONE and visit.decision is ChainDecision.NO_RULES:
        trouble = HostTrouble.UNAVAILABLE
    return trouble, rest_s
