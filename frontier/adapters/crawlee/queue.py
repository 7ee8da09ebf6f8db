"""A queue of Crawlee's requests in a Frontier: in, out, and how they end."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from crawlee import Request, RequestState
from crawlee.storage_clients.models import AddRequestsResponse, ProcessedRequest

from anabranch.frontier.adapters.crawlee import runs
from anabranch.frontier.adapters.crawlee.hosts import Hosts
from anabranch.frontier.adapters.crawlee.incoming import Incoming
from anabranch.frontier.adapters.crawlee.requests import Flight, candidate_of, handled_request, key_of, request_of
from anabranch.frontier.adapters.crawlee.waiting import Waiting
from anabranch.frontier.cancellation import or_closed
from anabranch.frontier.core import Frontier
from anabranch.frontier.embedding.job import EmbeddedJob
from anabranch.frontier.models import Candidate, Lease, Outcome, OutcomeKind, UrlState, WaitsFor

logger = logging.getLogger(__name__)

#: Crawlee's pool asks again so often, so what opens later than this may be waited for by it.
_POLL_S = 0.55
_FOREIGN = Outcome(OutcomeKind.FAILED)


class FrontierQueue:
    """An open Frontier that speaks of Crawlee's requests; it belongs to the loop that uses it.

    Handled are requests whose handling ended, by success or for good; a request that is reclaimed is queued anew. A host's
    rest is counted from the end of handling. What is handled is durable when `until_durable` returns, or `close`.
    """

    def __init__(self, job: EmbeddedJob, waiting: Waiting, settings: Mapping[str, object]) -> None:
        self._job = job
        self._waiting = waiting
        self._flights: dict[str, Flight] = {}
        self._runs = runs.Runs()
        self._incoming = Incoming(lambda: self._frontier, waiting.wake)
        self.hosts = Hosts(lambda: self._frontier, self._flights.values, settings)  #: what Crawlee says of hosts
        self._is_closed = False
        self._process = os.getpid()
        atexit.register(self._close_at_exit)

    @classmethod
    async def open(cls, folder: Path | None, settings: Mapping[str, object]) -> FrontierQueue:
        """Open it off the loop; None: in memory. `settings` are the Frontier's, see `frontier.embedding.settings`.

        `delay_factor` is 0 unless said, for Crawlee does not tell how long a fetch took, only how long with its handler.
        Raises: PolicyError, FormatMismatch, StoreInUse, StoreUnavailable.
        """
        given = {"delay_factor": 0.0, **settings}
        waiting = Waiting()
        waiting.enter()
        opening = partial(EmbeddedJob, folder, given, on_change=waiting.wake_from_thread)
        job = await or_closed(asyncio.to_thread(opening))
        return cls(job, waiting, given)

    def __repr__(self) -> str:
        return f"<FrontierQueue {self.pending} pending, {len(self._flights)} in progress, {self.handled} handled>"

    # Counts

    @property
    def handled(self) -> int:
        """Requests that were handled. One that was reclaimed counts once, when it is handled."""
        counts = self._frontier.counts()
        return counts.done + counts.failed

    @property
    def pending(self) -> int:
        """Requests that are not handled yet, those in progress included."""
        counts = self._frontier.counts()
        return counts.pending + counts.retired + counts.in_flight

    @property
    def is_finished(self) -> bool:
        """Nothing is queued and nothing in progress; a retired queue keeps what it has."""
        self._take_back_abandoned()
        return self._frontier.is_done

    async def is_empty(self) -> bool:
        """Whether no request may be fetched now. One that may be soon is waited for: the pool would ask too late again."""
        self._waiting.enter()
        self._take_back_abandoned()
        frontier = self._frontier
        while not frontier.can_lease():
            wake = frontier.wake()
            if WaitsFor.STORE in wake.waits_for:
                await self._waiting.change(None)
                continue
            if wake.at_s is None:
                return True
            wait_s = wake.at_s - frontier.now_s()
            if wait_s <= 0.0:
                return False
            if wait_s > _POLL_S:
                return True
            await self._waiting.change(wait_s)
        return False

    # Requests

    async def add(self, requests: Sequence[Request], *, front: bool) -> AddRequestsResponse:
        """As `Incoming.add`."""
        return await self._incoming.add(requests, front=front)

    async def fetch(self) -> Request | None:
        """The next request that may be fetched now. Waits for the store, but for no host."""
        self._waiting.enter()
        while True:
            lease = self._frontier.lease()
            if lease is not None:
                if (request := self._taken(lease)) is not None:
                    return request
            elif WaitsFor.STORE in self._frontier.wake().waits_for:
                await self._waiting.change(None)
            else:
                return None

    async def get(self, unique_key: str) -> Request | None:
        """The request with this key. Of one that was handled the URL and the key are known, and that it was handled.

        Costs a scan of what is queued, if it is queued.
        """
        if (flight := self._flights.get(unique_key)) is not None:
            return flight.request
        record = await asyncio.to_thread(self._frontier.get, key_of(unique_key))
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
        flight.request = request
        kind = OutcomeKind.FAILED if request.state is RequestState.ERROR else OutcomeKind.DONE
        self._end(flight, kind, ())
        if request.handled_at is None:
            request.handled_at = datetime.now(UTC)
        self.hosts.handled(flight)
        return ProcessedRequest(unique_key=request.unique_key, was_already_present=True, was_already_handled=True)

    def reclaim(self, request: Request, *, front: bool) -> ProcessedRequest | None:
        """Queue it again, as it is now, behind the others or in front. None if it is not in progress."""
        flight = self._flights.get(request.unique_key)
        if flight is None:
            return None
        flight.request = request
        request.handled_at = None
        self._end(flight, OutcomeKind.DISREGARDED, (candidate_of(request, front=front, force=True),))
        return ProcessedRequest(unique_key=request.unique_key, was_already_present=True, was_already_handled=False)

    async def until_durable(self) -> None:
        """Return when all that was said so far outlives the process. Raises: StoreUnavailable."""
        self._waiting.enter()
        frontier, said = self._frontier, self._frontier.hurry()
        while frontier is self._frontier and not self._is_closed:
            frontier.take_answers()
            if frontier.durable >= said:
                return
            await self._waiting.change(None)

    # The whole

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
        """Write all and let go of the folder; what is in progress is queued again. A second call is harmless."""
        self._closed()
        await asyncio.to_thread(self._job.close)

    # Inside

    @property
    def _frontier(self) -> Frontier:
        return self._job.frontier

    def _taken(self, lease: Lease) -> Request | None:
        self._incoming.taken(lease.key)
        try:
            request = request_of(lease.url, lease.key, lease.payload)
        except ValueError:
            logger.exception("%s is given up: what is queued is no request of this version of Crawlee", lease.url)
            self._frontier.finish(lease, _FOREIGN)
            return None
        self._flights[request.unique_key] = Flight(lease, request, runs.current())
        return request

    def _take_back_abandoned(self) -> None:
        """What was in progress in a run that is over is queued again, at its old place; its host rests as after a fetch."""
        over = self._runs.over()
        abandoned = [flight for flight in self._flights.values() if flight.run in over] if over else []
        for flight in abandoned:
            self._end(flight, OutcomeKind.DEFERRED, ())
        if abandoned:
            logger.warning("%d requests were in progress when a run ended; they are queued again", len(abandoned))

    def _end(self, flight: Flight, kind: OutcomeKind, successors: Sequence[Candidate]) -> None:
        self._frontier.finish(flight.lease, flight.outcome(kind, self._frontier.now_s()), successors)
        del self._flights[flight.request.unique_key]
        self._waiting.wake()

    def _closed(self) -> None:
        self._is_closed = True
        self._waiting.wake()
        self._flights.clear()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        """A program that forgot to close it; a child that was forked has none of its threads."""
        if os.getpid() == self._process:
            self._job.close()
