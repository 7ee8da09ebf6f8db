"""Seeds in, seeds accounted for: what is scheduled at the start of a run, and how each seed fared.

The Frontier knows a seed by its key for dedup, as it knows every URL; the book knows it as it was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from anabranch.crawler.extracting.links import MANIFEST
from anabranch.crawler.jobs.scheduling import schedule_all
from anabranch.crawler.jobs.seeds import Book, Seed
from anabranch.crawler.jobs.sourcetags import SourceTags
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.ownfunctions import OwnFunctionFailed
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.reporting.reports.seeds import SeedFact, seed_facts
from anabranch.crawler.reporting.statistics import CrawlStatistics
from anabranch.crawler.scope.ruling import Scope
from anabranch.crawler.urls.canonicalization import KeyOf
from anabranch.crawler.urls.parsing import canonical
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.models import Candidate, OutcomeKind, UrlRecord, Verdict

log = structlog.get_logger(__name__)

#: Where sites keep their sitemap if no robots.txt names one.
SITEMAP = "/sitemap.xml"

#: Statuses of URLs that were not wanted: the order, or what it allows, may have changed.
_UNWANTED = frozenset({FetchStatus.BLOCKED, FetchStatus.OUT_OF_SCOPE, FetchStatus.OVER_QUOTA, FetchStatus.OVER_TIME})


@dataclass(frozen=True, slots=True)
class Marks:
    """What a candidate carries beside its URL: its key for dedup, and the tag of the seed that leads to it."""

    key: KeyOf = lambda _: None
    tags: SourceTags = field(default_factory=SourceTags)

    def candidate(self, url: str, seed: str, hops: str = "", *, force: bool = False) -> Candidate:
        """A candidate that this seed leads to. Raises: OwnFunctionFailed."""
        return Candidate(url, self.key(url), hops, self.tags.payload_of(seed), force=force)

    def seed(self, seed: Seed, ended: UrlRecord | None) -> Candidate:
        """What to schedule for a seed that the operator names: one that was never answered is tried again."""
        return self.candidate(seed.url, seed.url, force=ended is not None and unanswered(ended))


NOT_TAKEN = "a seed cannot be taken"


class Seeding:
    """The seeds of a job: those given, and the targets of their redirects; with `sitemaps` the usual place of one beside each.

    `given` is told of the candidates that the Frontier was given.
    """

    def __init__(
        self,
        book: Book,
        scope: Scope,
        frontier: AsyncFrontier,
        marks: Marks | None = None,
        *,
        sitemaps: bool = False,
        given: Callable[[list[Candidate]], Awaitable[None]] | None = None,
    ) -> None:
        self._book = book
        self._scope = scope
        self._frontier = frontier
        self._marks = Marks() if marks is None else marks
        self._sitemaps = sitemaps
        self._given = given
        self.mine: Callable[[str], bool] = lambda _: True  #: whether a seed is not others' to schedule
        self._writing = asyncio.Lock()

    async def begin(self, given: Iterable[Seed]) -> None:
        """Note the given seeds, open the scope for all, schedule what is new or was never answered."""
        given = tuple(given)
        keys_of(given, self._marks.key)  # what has none must not get into the book
        self._book.add_all(given)
        seeds = list(self._book)
        self._marks.tags.note(seeds)
        for seed in seeds:
            self._scope.add_seed(seed.url)
        seeds = [seed for seed in seeds if self.mine(seed.url)]
        with own_functions_told(NOT_TAKEN):
            ended = await self._ended(seeds)
            again = [(seed, ended.get(seed.url)) for seed in seeds]
            candidates = [self._marks.seed(seed, record) for seed, record in again if _is_due(seed, record)]
            candidates += self._maps(seeds)
        await self._schedule(candidates)

    async def add(self, given: Sequence[Seed]) -> list[Verdict]:
        """Add seeds while the crawl runs: noted durably, their places opened, scheduled durably. What became of each."""
        keys_of(given, self._marks.key)  # what has none must not get into the book
        async with self._writing:
            new = await to_the_end(asyncio.to_thread(self._book.add_all, given))
            self._marks.tags.note(new)
        for seed in given:
            self._scope.add_seed(seed.url)
        with own_functions_told(NOT_TAKEN):
            ended = await self._ended(given)
            candidates = [self._marks.seed(seed, ended.get(seed.url)) for seed in given] + self._maps(given)
        verdicts = await self._schedule(candidates)
        await self._frontier.flush()
        return verdicts[: len(given)]

    def noted(self, seeds: Sequence[Seed]) -> None:
        """Others have put seeds into the book: they open their places here, too. In the book's order."""
        self._marks.tags.note(seeds)
        for seed in seeds:
            self._scope.add_seed(seed.url)

    async def redirected(self, url: str, via: str) -> None:
        """The target of a seed's redirect is a seed too. Durable before the page is finished."""
        seed = Seed(url=url, source="redirect", via=via)
        async with self._writing:
            if await to_the_end(asyncio.to_thread(self._book.add, seed)):
                self._marks.tags.note([seed])
        self._scope.add_seed(url)

    async def facts(self, statistics: CrawlStatistics) -> list[SeedFact]:
        """How each seed given by the operator fared, others' left out."""
        seeds = list(self._book)
        keys = seed_keys(seeds, self._marks.key)
        ended = await asyncio.to_thread(self._frontier.core.ended, list(keys.values()))
        fared = seeds_fared(seeds, keys, ended, statistics.seed_failures)
        return [fact for fact in fared if self.mine(fact.url)]

    async def _ended(self, seeds: Iterable[Seed]) -> dict[str, UrlRecord]:
        """What is known of the seeds that have ended, by URL; one question, off the loop. Raises: OwnFunctionFailed."""
        keys = {seed.url: key_of(seed.url, self._marks.key) for seed in seeds}
        ended = await asyncio.to_thread(self._frontier.core.ended, list(keys.values()))
        return {url: ended[key] for url, key in keys.items() if key in ended}

    async def _schedule(self, candidates: list[Candidate]) -> list[Verdict]:
        verdicts = await schedule_all(self._frontier, candidates)
        if self._given is not None:
            await self._given(candidates)
        return verdicts

    def _maps(self, seeds: Iterable[Seed]) -> list[Candidate]:
        """The place of a sitemap on each seed's host, if the order asks for sitemaps and its scope takes it.

        One that a function of the operator's own fails for is left out, as a link of a page is.
        """
        if not self._sitemaps:
            return []
        found = {canonical(SITEMAP, seed.url): seed for seed in reversed(list(seeds)) if seed.via is None}
        maps = []
        for url, seed in found.items():
            try:
                if url is not None and self._scope.accepts(url, MANIFEST):
                    maps.append(self._marks.candidate(url, seed.url, MANIFEST))
            except OwnFunctionFailed as error:
                log.error("a sitemap is left out", url=url, reason=str(error))  # noqa: TRY400 - the reason is enough
        return maps


@contextmanager
def own_functions_told(what: str) -> Iterator[None]:
    """A function of the order's that fails is the operator's to mend; `what` cannot be done. Raises: OrderError."""
    try:
        yield
    except OwnFunctionFailed as error:
        raise OrderError(f"{what}: {error}") from error


def key_of(url: str, key: KeyOf) -> bytes:
    """The bytes by which the Frontier knows a URL."""
    return key(url) or url.encode()


def keys_of(seeds: Iterable[Seed], key: KeyOf) -> list[bytes]:
    """The same of seeds, before they are in the book, which every later run takes its seeds from. Raises: OrderError."""
    with own_functions_told(NOT_TAKEN):
        return [key_of(seed.url, key) for seed in seeds]


def seed_keys(seeds: Iterable[Seed], key: KeyOf) -> dict[str, bytes]:
    """The same of seeds, for a report: it does without one whose key a function of the operator's own cannot tell."""
    keys: dict[str, bytes] = {}
    for seed in seeds:
        with suppress(OwnFunctionFailed):
            keys[seed.url] = key_of(seed.url, key)
    return keys


def seeds_fared(
    seeds: Sequence[Seed],
    keys: Mapping[str, bytes],
    ended: Mapping[bytes, UrlRecord],
    words: Mapping[str, str] = MappingProxyType({}),
) -> list[SeedFact]:
    """How each seed given by the operator fared; `ended` are those of all seeds that have, by key. Pure."""
    redirects = {seed.via: seed.url for seed in seeds if seed.via is not None}
    records = {url: ended[key] for url, key in keys.items() if key in ended}
    return seed_facts([seed.url for seed in seeds if seed.via is None], redirects, records, words)


def unanswered(record: UrlRecord) -> bool:
    """An ended URL was given up without an HTTP answer: worth another try, the site or the order may have changed."""
    failed = record.outcome == OutcomeKind.FAILED.value and record.status <= 0
    return failed or record.status in _UNWANTED


def _is_due(seed: Seed, ended: UrlRecord | None) -> bool:
    """Whether a seed is scheduled; the target of a redirect comes with its page, so only if it was never answered."""
    return seed.via is None or (ended is not None and unanswered(ended))
