"""URLs into the Frontier, however many there are: what it is too busy for is sent again when it has written what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from frontier.aio import AsyncFrontier
from frontier.models import Candidate, Lease, Verdict, VerdictKind

#: Candidates that are sent at a time: some 10 ms of the event loop.
CHUNK = 1000


async def schedule_all(
    frontier: AsyncFrontier, candidates: Sequence[Candidate], found_on: Lease | None = None
) -> list[Verdict]:
    """Schedule all, in chunks between which the loop gets its turn; the verdicts in the order of the candidates, none BUSY.

    `found_on` is the page they were found on. Raises: StoreUnavailable.
    """
    verdicts: list[Verdict] = []
    for start in range(0, len(candidates), CHUNK):
        await asyncio.sleep(0)
        verdicts += await _schedule(frontier, candidates[start : start + CHUNK], found_on)
    return verdicts


async def _schedule(frontier: AsyncFrontier, candidates: Sequence[Candidate], found_on: Lease | None) -> list[Verdict]:
    verdicts = frontier.schedule(candidates, found_on)
    while busy := [number for number, verdict in enumerate(verdicts) if verdict.kind is VerdictKind.BUSY]:
        await frontier.flush()
        again = frontier.schedule([candidates[number] for number in busy], found_on)
        for number, verdict in zip(busy, again, strict=True):
            verdicts[number] = verdict
    return verdicts
