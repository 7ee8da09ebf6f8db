"""Queues failed URLs again, for an operator: after an outage, or when a site is back.

A failure leaves the table `done` in the transaction that queues its URL as a new row, with its hops, its page, its payload and
its precedence, and with no tries. The filter knows its key and is not asked. Whatever holds a URL back holds it back again:
budgets of queues, blocks, limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from anabranch.frontier.parts import Parts, Steps, asked, flushed
from anabranch.frontier.stores.contract import FailedRecord, FrontierStore, LaneId, Standing

#: Failures that are read, and queued in one transaction, at a time; and pages of one call, so that it takes a second at most.
PAGE = 1000
PAGES = 10


class RetryReport(NamedTuple):
    """The results of one call."""

    queued: int = 0  #: failures that are queued again
    unknown_hops: int = 0  #: of these, those whose hops are not known
    retired: int = 0  #: of these, those in retired queues
    paused: int = 0  #: of these, those in paused queues
    blocked: int = 0  #: of these, those of gates that are blocked now
    before_s: float = 0.0  #: only what failed up to then was looked at
    more: int | None = None  #: the number to go on behind with the next call; None: all failures were looked at

    def and_then(self, later: RetryReport) -> RetryReport:
        """With those of the next call."""
        sums = {name: getattr(self, name) + getattr(later, name) for name in _COUNTS}
        return self._replace(**sums, more=later.more)


_COUNTS = ("queued", "unknown_hops", "retired", "paused", "blocked")


class Retrying:
    """Retries the failures of one Frontier; of several workers one does it for all of them."""

    def __init__(self, store: FrontierStore, parts: Parts, clock: Callable[[], float]) -> None:
        self._store = store
        self._parts = parts
        self._clock = clock

    def steps(
        self,
        matches: Callable[[FailedRecord], bool],
        after: int = 0,
        before_s: float | None = None,
        payload_of: Callable[[bytes | None], bytes | None] = lambda payload: payload,
    ) -> Steps[RetryReport]:
        """Queue the failures that match again, from the number `after` on, durably.

        Only what failed up to `before_s` (now): what fails again meanwhile stays. `payload_of` gives each its payload.
        Cost: 50 µs a failure, with its commit.
        Raises: PolicyError of a user's assignment or precedence; StoreUnavailable.
        """
        before_s = self._clock() if before_s is None else before_s
        yield from flushed(self._parts, self._store)
        before, lanes, unknown = self._parts.store_link.retried, list[LaneId](), 0
        page: Sequence[FailedRecord] = ()
        for _ in range(PAGES):
            page = yield from asked(self._store.retry_reads.failed_after, after, PAGE)
            found = [one for one in page if (one.ended_s is None or one.ended_s <= before_s) and matches(one)]
            self._parts.store_link.drain()
            lanes += self._parts.admission.requeue(found, payload_of)
            unknown += sum(one.hops is None for one in found)
            yield from flushed(self._parts, self._store)
            if len(page) < PAGE:
                break
            after = page[-1].ordinal
        # A URL that another command has queued meanwhile is not queued twice.
        queued = min(self._parts.store_link.retried - before, len(lanes))
        more = after if len(page) == PAGE else None
        if not queued:
            return RetryReport(before_s=before_s, more=more)
        retired = yield from self._in_queues(Standing.RETIRED, lanes)
        paused = yield from self._in_queues(Standing.PAUSED, lanes)
        blocked = yield from asked(self._store.retry_reads.blocked, self._clock())
        return RetryReport(queued, unknown, retired, paused, sum(gate in blocked for _, gate in lanes), before_s, more)

    def _in_queues(self, standing: Standing, lanes: Sequence[LaneId]) -> Steps[int]:
        """How many of these rows are in queues that stand so. Costs a look at all such queues."""
        queues: set[int] = set()
        after: int | None = None
        while page := (yield from asked(self._store.queues, standing, after, PAGE)):
            after = page[-1].row.id
            queues.update(facts.row.id for facts in page)
        return sum(queue in queues for queue, _ in lanes)
