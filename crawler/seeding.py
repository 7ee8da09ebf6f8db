"""Seeds in, seeds accounted for: what is scheduled at the start of a run, and how each seed fared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from crawler.reports import SeedFact
from crawler.scope import Scope
from crawler.seeds import Seed, SeedBook
from crawler.statistics import CrawlStatistics
from frontier.aio import AsyncFrontier
from frontier.models import Candidate, OutcomeKind, UrlRecord, UrlState, VerdictKind

#: Seeds that are scheduled at a time.
CHUNK = 1000


class Seeding:
    """The seeds of a job: those given, and the targets of their redirects."""

    def __init__(self, book: SeedBook, scope: Scope, frontier: AsyncFrontier) -> None:
        self._book = book
        self._scope = scope
        self._frontier = frontier

    async def begin(self, given: Iterable[Seed]) -> None:
        """Note the given seeds, open the scope for all, schedule what is new or was never answered."""
        self._book.add_all(given)
        seeds = list(self._book)
        for seed in seeds:
            self._scope.add_seed(seed.url)
        candidates = [self._candidate(seed) for seed in seeds if seed.via is None]
        for start in range(0, len(candidates), CHUNK):
            await self._schedule(candidates[start : start + CHUNK])

    async def redirected(self, url: str, via: str) -> None:
        """The target of a seed's redirect is a seed too. Durable before the page is finished."""
        self._book.add(Seed(url=url, source="redirect", via=via))
        self._scope.add_seed(url)

    async def facts(self, statistics: CrawlStatistics) -> list[SeedFact]:
        """How each seed given by the operator fared."""
        seeds = list(self._book)
        targets = {seed.via: seed.url for seed in seeds if seed.via is not None}
        found = []
        for seed in seeds:
            if seed.via is None:
                record = await asyncio.to_thread(self._frontier.core.get, seed.url.encode())
                status = record.status if record is not None else 0
                reason = statistics.seed_failures.get(seed.url, "")
                found.append(SeedFact(seed.url, status, reason, targets.get(seed.url)))
        return found

    def _candidate(self, seed: Seed) -> Candidate:
        record = self._frontier.core.get(seed.url.encode())
        return Candidate(url=seed.url, force=record is not None and unanswered(record))

    async def _schedule(self, candidates: list[Candidate]) -> None:
        while candidates:
            verdicts = self._frontier.schedule(candidates)
            candidates = [
                candidate
                for candidate, verdict in zip(candidates, verdicts, strict=True)
                if verdict.kind is VerdictKind.BUSY
            ]
            if candidates:
                await self._frontier.flush()


def unanswered(record: UrlRecord) -> bool:
    """The URL was given up without an HTTP answer, so it is worth another try."""
    return record.state is UrlState.ENDED and record.outcome == OutcomeKind.FAILED.value and record.status <= 0
