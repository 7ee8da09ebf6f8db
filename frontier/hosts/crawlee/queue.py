"""A queue of Crawlee's requests in a Frontier: how they come in, go out, and end.

`FrontierQueue` is behind `storage` and `manager`. Tasks that find nothing to do wait for a `ChangeSignal`. `hosts` keeps what
Crawlee reports about hosts, `requests` translates.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from crawlee import Request, RequestState
from crawlee.storage_clients.models import AddRequestsResponse, ProcessedRequest

from anabranch.frontier.cancellation import or_closed
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.hosts.crawlee.hosts import Hosts
from anabranch.frontier.hosts.crawlee.requests import (
    RequestInProgress,
    Runs,
    candidate_of,
    current_run,
    handled_request,
    key_of,
    request_of,
)
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.records import Candidate, Lease, Outcome, OutcomeKind, UrlState, Verdict, VerdictKind, WaitsFor

logger = logging.getLogger(__name__)

#: Requests that are queued at a time: this blocks the loop for some ten milliseconds.
AT_ONCE = 200
#: Crawlee's pool asks this often; it can wait by itself for gates that open later.
_POLL_S = 0.55
_FOREIGN = Outcome(OutcomeKind.FAILED)


class FrontierQueue:
    """An open Frontier with Crawlee's requests; it belongs to the event loop that uses it.

    A request is handled when its handling succeeded or was given up; a request that is reclaimed is queued again. A host's rest
    is counted from the end of handling. What was handled is durable when `until_durable` or `close` returns.
    """

    def __init__(self, job: EmbeddedJob, changes: ChangeSignal, settings: Mapping[str, object]) -> None:
        self._job = job
        self._changes = changes
        self._flights: dict[str, RequestInProgress] = {}
        self._runs = Runs()
        self._lookouts: dict[int, set[bytes]] = {}  # keys that were leased while queued requests are looked up
        self.hosts = Hosts(lambda: self._frontier, self._flights.values, settings)
        self._is_closed = False
        self._process = os.getpid()
        atexit.register(self._close_at_exit)

    @classmethod
    async def open(cls, folder: Path | None, settings: Mapping[str, object]) -> FrontierQueue:
        """Open it off the loop; None: in memory. `settings` are the Frontier's, see `frontier.hosts.embedding.settings`.

        `delay_factor` is 0 by default, since Crawlee does not report how long a fetch took without its handler.
        Raises: PolicyError, FormatMismatch, StoreInUse, StoreUnavailable.
        """
        given = {"delay_factor": 0.0, **settings}
        changes = ChangeSignal()
        changes.enter()
        opening = partial(EmbeddedJob, folder, given, on_change=changes.wake_from_thread)
        job = await or_closed(asyncio.to_thread(opening))
        return cls(job, changes, given)

    def __repr__(self) -> str:
        return f"<FrontierQueue {self.pending} pending, {len(self._flights)} in progress, {self.handled} handled>"

    @property
    def handled(self) -> int:
        """Requests that were handled; one that was reclaimed counts once, when it is handled."""
        counts = self._frontier.counts()
        return counts.done + counts.failed

    @property
    def pending(self) -> int:
        """Requests that are not handled yet, those in progress included."""
        counts = self._frontier.counts()
        return counts.pending + counts.retired + counts.in_flight

    @property
    def is_finished(self) -> bool:
        """Whether nothing is queued and nothing in progress; requests of retired queues do not count."""
        self._take_back_abandoned()
        return self._frontier.is_done

    async def is_empty(self) -> bool:
        """Whether no request may be fetched now. Waits for one that may be soon: the pool would ask again too late."""
        self._changes.enter()
        self._take_back_abandoned()
        frontier = self._frontier
        while not frontier.can_lease():
            wake = frontier.wake()
            if WaitsFor.STORE in wake.waits_for:
                await self._changes.change(None)
                continue
            if wake.at_s is None:
                return True
            wait_s = wake.at_s - frontier.now_s()
            if wait_s <= 0.0:
                return False
            if wait_s > _POLL_S:
                return True
            await self._changes.change(wait_s)
        return False

    async def add(self, requests: Sequence[Request], *, front: bool) -> AddRequestsResponse:
        """Queue new requests; `front` moves queued ones to the front. Waits while the store is behind.

        A request that can never be queued is logged, and is in neither list of the answer: Crawlee would send unprocessed
        requests again, five times in fifteen seconds.
        """
        answer = AddRequestsResponse(processed_requests=[], unprocessed_requests=[])
        for first in range(0, len(requests), AT_ONCE):
            some = requests[first : first + AT_ONCE]
            candidates = [candidate_of(request, front=front) for request in some]
            verdicts = await self._scheduled(candidates)
            seen = [one for one, verdict in zip(candidates, verdicts, strict=True) if verdict.kind is VerdictKind.SEEN]
            # A key names its latest row, so one that was reclaimed has not ended.
            keys = [one.dedup_key() for one in seen]
            handled = set(await asyncio.to_thread(self._frontier.operations.ended, keys)) if keys else set()
            queued = [one for one in seen if one.dedup_key() not in handled]
            if front and queued:
                await self._advance(queued)
            answer.processed_requests.extend(_processed(some, verdicts, handled))
            await asyncio.sleep(0)
        return answer

    async def fetch(self) -> Request | None:
        """The next request that may be fetched now. Waits for the store, but not for a host."""
        self._changes.enter()
        while True:
            lease = self._frontier.lease()
            if lease is not None:
                if (request := self._taken(lease)) is not None:
                    return request
            elif WaitsFor.STORE in self._frontier.wake().waits_for:
                await self._changes.change(None)
            else:
                return None

    async def get(self, unique_key: str) -> Request | None:
        """The request with this key; of a handled one only URL, key and end. Scans the queued rows for a queued one."""
        if (flight := self._flights.get(unique_key)) is not None:
            return flight.request
        record = await asyncio.to_thread(self._frontier.operations.get, key_of(unique_key))
        if record is None:
            return None
        if record.state is UrlState.ENDED:
            return handled_request(record, unique_key)
        return request_of(record.url, key_of(unique_key), record.payload)

    def mark_handled(self, request: Request) -> ProcessedRequest | None:
        """It is handled, or given up. None if it is not in progress."""
        flight = self._flights.get(request.unique_key)
        if flight is None:
            return None
        flight.changed(request)
        kind = OutcomeKind.FAILED if request.state is RequestState.ERROR else OutcomeKind.DONE
        self._end(flight, kind, ())
        if request.handled_at is None:
            request.handled_at = datetime.now(UTC)
        self.hosts.handled(flight)
        return ProcessedRequest(unique_key=request.unique_key, was_already_present=True, was_already_handled=True)

    def reclaim(self, request: Request, *, front: bool) -> ProcessedRequest | None:
        """Queue it again, as it is now, behind the others or in front of them. None if it is not in progress."""
        flight = self._flights.get(request.unique_key)
        if flight is None:
            return None
        flight.changed(request)
        request.handled_at = None
        self._end(flight, OutcomeKind.DISREGARDED, (candidate_of(request, front=front, force=True),))
        return ProcessedRequest(unique_key=request.unique_key, was_already_present=True, was_already_handled=False)

    async def until_durable(self) -> None:
        """Return when all changes so far are durable. Raises: StoreUnavailable."""
        self._changes.enter()
        frontier, last = self._frontier, self._frontier.hurry()
        while frontier is self._frontier and not self._is_closed:
            frontier.take_answers()
            if frontier.unacknowledged.durable >= last:
                return
            await self._changes.change(None)

    async def purge(self) -> None:
        """Forget all requests, handled ones, too."""
        self._flights.clear()
        await asyncio.to_thread(self._job.empty)
        self.hosts.clear()

    async def drop(self) -> None:
        """Close it and remove it."""
        self._closed()
        await asyncio.to_thread(self._job.remove)

    async def close(self) -> None:
        """Write all and release the folder; requests in progress are queued again. Idempotent."""
        self._closed()
        await asyncio.to_thread(self._job.close)

    @property
    def _frontier(self) -> Frontier:
        return self._job.frontier

    async def _scheduled(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        while True:
            verdicts = self._frontier.schedule(candidates)
            self._changes.wake()
            if not any(verdict.kind is VerdictKind.BUSY for verdict in verdicts):
                return verdicts
            await asyncio.to_thread(self._frontier.wait_until_durable)

    async def _advance(self, queued: Sequence[Candidate]) -> None:
        """Move queued requests to the front."""
        frontier, taken = self._frontier, set[bytes]()
        question = frontier.advancing.rows(queued)
        self._lookouts[id(taken)] = taken
        try:
            rows = await asyncio.to_thread(question)
        finally:
            del self._lookouts[id(taken)]
        if frontier is self._frontier:
            frontier.advancing.advance([row for row in rows if row.dedup_key() not in taken])

    def _taken(self, lease: Lease) -> Request | None:
        for keys in self._lookouts.values():  # it may be handled before the store has answered where it is queued
            keys.add(lease.key)
        try:
            request = request_of(lease.url, lease.key, lease.payload)
        except ValueError:
            logger.exception("%s is given up: what is queued is no request of this version of Crawlee", lease.url)
            self._frontier.finish(lease, _FOREIGN)
            return None
        self._flights[request.unique_key] = RequestInProgress(lease, request, current_run())
        return request

    def _take_back_abandoned(self) -> None:
        """Queue the requests of runs that are over again, at their old place; their hosts rest as after a fetch."""
        over = self._runs.over()
        abandoned = [flight for flight in self._flights.values() if flight.run in over] if over else []
        for flight in abandoned:
            self._end(flight, OutcomeKind.DEFERRED, ())
        if abandoned:
            logger.warning("%d requests were in progress when a run ended; they are queued again", len(abandoned))

    def _end(self, flight: RequestInProgress, kind: OutcomeKind, successors: Sequence[Candidate]) -> None:
        self._frontier.finish(flight.lease, flight.outcome(kind, self._frontier.now_s()), successors)
        del self._flights[flight.request.unique_key]
        self._changes.wake()

    def _closed(self) -> None:
        self._is_closed = True
        self._changes.wake()
        self._flights.clear()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        """For a program that has not closed it. A forked child does nothing: it has none of the threads."""
        if os.getpid() == self._process:
            self._job.close()


def _processed(
    requests: Sequence[Request], verdicts: Sequence[Verdict], handled: set[bytes]
) -> Iterator[ProcessedRequest]:
    for request, verdict in zip(requests, verdicts, strict=True):
        key = request.unique_key
        if verdict.kind is VerdictKind.REFUSED:
            logger.warning("%r cannot be queued: %s", request.url, verdict.reason)
            continue
        is_seen, is_handled = verdict.kind is VerdictKind.SEEN, key_of(key) in handled
        yield ProcessedRequest(unique_key=key, was_already_present=is_seen, was_already_handled=is_handled)


class ChangeSignal:
    """Wakes tasks after a change: the store has answered, or a request came in or came back.

    A task that finds nothing to do waits for `change` and looks again. No change is missed if `enter` was called before the
    look and no `await` lies between look and wait.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    def enter(self) -> None:
        """Wake this loop from now on: a queue that Crawlee keeps may be used by several loops, one after the other."""
        self._loop = asyncio.get_running_loop()

    async def change(self, longest_s: float | None) -> None:
        """Return at the next change, or after so many seconds."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=longest_s)
        finally:
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Wake all waiting tasks."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wake_from_thread(self) -> None:
        """Wake all waiting tasks, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.wake)
