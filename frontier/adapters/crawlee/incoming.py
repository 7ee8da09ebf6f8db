"""Requests into the Frontier, and what Crawlee is told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from crawlee import Request
from crawlee.storage_clients.models import AddRequestsResponse, ProcessedRequest

from anabranch.frontier.adapters.crawlee.requests import candidate_of, key_of
from anabranch.frontier.core import Frontier
from anabranch.frontier.models import Candidate, Verdict, VerdictKind

logger = logging.getLogger(__name__)

#: Requests that are queued in one go: the loop stands still meanwhile, some ten milliseconds.
AT_ONCE = 200


class Incoming:
    """The way in of one queue. `frontier` answers the queue's Frontier, `wake` wakes those who wait for requests."""

    def __init__(self, frontier: Callable[[], Frontier], wake: Callable[[], None]) -> None:
        self._frontier = frontier
        self._wake = wake
        self._lookouts: dict[int, set[bytes]] = {}  # keys that were taken while queued requests are looked up

    async def add(self, requests: Sequence[Request], *, front: bool) -> AddRequestsResponse:
        """Queue what is new; of what is queued, `front` only changes the place. Waits while the store is behind.

        What can never be queued is logged and in neither list of the answer: what is unprocessed would be sent again, five
        times in fifteen seconds.
        """
        answer = AddRequestsResponse(processed_requests=[], unprocessed_requests=[])
        for first in range(0, len(requests), AT_ONCE):
            some = requests[first : first + AT_ONCE]
            candidates = [candidate_of(request, front=front) for request in some]
            verdicts = await self._scheduled(candidates)
            seen = [one for one, verdict in zip(candidates, verdicts, strict=True) if verdict.kind is VerdictKind.SEEN]
            handled = await self._handled_of(seen)
            if front:
                await self._advance([one for one in seen if one.dedup_key() not in handled])
            answer.processed_requests += _processed(some, verdicts, handled)
            await asyncio.sleep(0)
        return answer

    def taken(self, key: bytes) -> None:
        """A request was fetched: it may be handled before the store has answered where it is queued."""
        for keys in self._lookouts.values():
            keys.add(key)

    async def _scheduled(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        while True:
            verdicts = self._frontier().schedule(candidates)
            self._wake()
            if not any(verdict.kind is VerdictKind.BUSY for verdict in verdicts):
                return verdicts
            await asyncio.to_thread(self._frontier().wait_until_durable)

    async def _handled_of(self, seen: Sequence[Candidate]) -> set[bytes]:
        """The keys of those that were handled before."""
        # A key stands for its latest row, so one that was reclaimed has not ended.
        keys = [one.dedup_key() for one in seen]
        return set(await asyncio.to_thread(self._frontier().ended, keys)) if keys else set()

    async def _advance(self, queued: Sequence[Candidate]) -> None:
        """Those that are queued go to the front."""
        if not queued:
            return
        frontier, taken = self._frontier(), set[bytes]()
        question = frontier.advancing.rows(queued)
        self._lookouts[id(taken)] = taken
        try:
            rows = await asyncio.to_thread(question)
        finally:
            del self._lookouts[id(taken)]
        if frontier is self._frontier():
            frontier.advancing.advance([row for row in rows if row.dedup_key() not in taken])


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
