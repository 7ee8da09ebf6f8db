"""Seeds in, seeds accounted for: what is scheduled at the start of a run, and how each seed fared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from crawler.jobs.seeds import Seed, SeedBook
from crawler.jobs.sourcetags import SourceTags
from crawler.outcomes.status import FetchStatus
from crawler.reporting.reports import SeedFact
from crawler.reporting.statistics import CrawlStatistics
from crawler.scope.ruling import Scope
from frontier.aio import AsyncFrontier
from frontier.cancellation import to_the_end
from frontier.models import Candidate, OutcomeKind, UrlRecord, Verdict, VerdictKind

#: Seeds that are scheduled at a time.
CHUNK = 1000


class Seeding:
    """The seeds of a job: those given, and the targets of their redirects."""

    def __init__(self, book: SeedBook, scope: Scope, frontier: AsyncFrontier, tags: SourceTags | None = None) -> None:
        self._book = book
        self._scope = scope
        self._frontier = frontier
        self._tags = SourceTags() if tags is None else tags
        self._writing = asyncio.Lock()

    async def begin(self, given: Iterable[Seed]) -> None:
        """Note the given seeds, open the scope for all, schedule what is new or was never answered."""
        self._book.add_all(given)
        seeds = list(self._book)
        self._tags.note(seeds)
        for seed in seeds:
            self._scope.add_seed(seed.url)
        ended = await self._ended(seeds)
        again = [(seed, ended.get(seed.url)) for seed in seeds]
        candidates = [self._candidate(seed, record) for seed, record in again if _is_due(seed, record)]
        for start in range(0, len(candidates), CHUNK):
            await self._schedule(candidates[start : start + CHUNK])

    async def add(self, given: Sequence[Seed]) -> list[Verdict]:
        """Add seeds while the crawl runs: noted durably, their places opened, scheduled durably. What became of each."""
        async with self._writing:
            new = await to_the_end(asyncio.to_thread(self._book.add_all, given))
            self._tags.note(new)
        for seed in given:
            self._scope.add_seed(seed.url)
        ended = await self._ended(given)
        candidates = [self._candidate(seed, ended.get(seed.url)) for seed in given]
        verdicts = [
            verdict
            for start in range(0, len(candidates), CHUNK)
            for verdict in await self._schedule(candidates[start : start + CHUNK])
        ]
        await self._frontier.flush()
        return verdicts

    async def redirected(self, url: str, via: str) -> None:
        """The target of a seed's redirect is a seed too. Durable before the page is finished."""
        seed = Seed(url=url, source="redirect", via=via)
        async with self._writing:
            if await to_the_end(asyncio.to_thread(self._book.add, seed)):
                self._tags.note([seed])
        self._scope.add_seed(url)

    async def facts(self, statistics: CrawlStatistics) -> list[SeedFact]:
        """How each seed given by the operator fared."""
        seeds = list(self._book)
        targets = {seed.via: seed.url for seed in seeds if seed.via is not None}
        given = [seed.url for seed in seeds if seed.via is None]
        ended = await self._ended(seeds)
        return [
            SeedFact(
                url, ended[url].status if url in ended else 0, statistics.seed_failures.get(url, ""), targets.get(url)
            )
            for url in given
        ]

    async def _ended(self, seeds: Iterable[Seed]) -> dict[str, UrlRecord]:
        """What is known of the seeds that have ended, by URL; one question, off the loop."""
        keys = [seed.url.encode() for seed in seeds]
        ended = await asyncio.to_thread(self._frontier.core.ended, keys)
        return {key.decode(): record for key, record in ended.items()}

    def _candidate(self, seed: Seed, ended: UrlRecord | None) -> Candidate:
        return candidate_again(seed, ended, self._tags)

    async def _schedule(self, candidates: list[Candidate]) -> list[Verdict]:
        """Schedule, again and again what the store is too busy for; the verdicts in the order of the candidates."""
        verdicts = self._frontier.schedule(candidates)
        while busy := [number for number, verdict in enumerate(verdicts) if verdict.kind is VerdictKind.BUSY]:
            await self._frontier.flush()
            again = self._frontier.schedule([candidates[number] for number in busy])
            for number, verdict in zip(busy, again, strict=True):
                verdicts[number] = verdict
        return verdicts


def unanswered(record: UrlRecord) -> bool:
    """An ended URL was given up without an HTTP answer: worth another try, the site or the order may have changed."""
    failed = record.outcome == OutcomeKind.FAILED.value and record.status <= 0
    return failed or record.status == FetchStatus.BLOCKED


def candidate_again(seed: Seed, ended: UrlRecord | None, tags: SourceTags) -> Candidate:
    """What to schedule for a seed that the operator names: one that was never answered is tried again."""
    is_again = ended is not None and unanswered(ended)
    return Candidate(url=seed.url, payload=tags.payload_of(seed.url), force=is_again)


def _is_due(seed: Seed, ended: UrlRecord | None) -> bool:
    """Whether a seed is scheduled; the target of a redirect comes with its page, so only if it was never answered."""
    return seed.via is None or (ended is not None and unanswered(ended))
