"""URLs into the Frontier, however many there are, so that the crawl beside it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.models import Candidate, Lease, Verdict, VerdictKind

#: Candidates that are sent at a time: 12 ms of the event loop, and a few more when they are durable.
CHUNK = 500


async def schedule_all(
    frontier: AsyncFrontier, candidates: Sequence[Candidate], found_on: Lease | None = None
) -> list[Verdict]:
    """Schedule all, in chunks; the verdicts in the order of the candidates, none of them BUSY.

    The next chunk waits until the one before is durable, so the store is never behind because of us, and what becomes known
    at once is never much. `found_on` is the page they were found on. Raises: StoreUnavailable.
    """
    verdicts: list[Verdict] = []
    for start in range(0, len(candidates), CHUNK):
        if start:
            await frontier.flush()
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
