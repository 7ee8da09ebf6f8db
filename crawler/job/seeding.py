"""Seeding: schedules a job's seeds at the start of a run and while it runs, and finds out how each seed fared.

The Frontier knows a seed by its key for dedup; its row (`seedtable`) has it as it was written. `schedule_all`, which the
processors use, too, puts any number of URLs into the Frontier in chunks, so that the crawl goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import structlog

from anabranch.crawler.extract.links import MANIFEST
from anabranch.crawler.job.seeds import Seed, SourceTags
from anabranch.crawler.order.code import refuse_withheld
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.failures import ServiceAway
from anabranch.crawler.outcomes.status import FetchStatus, describe
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.scope.scope import Scope
from anabranch.crawler.urls.canonicalization import Canonicalizer, KeyOf
from anabranch.crawler.urls.parsing import canonical
from anabranch.frontier import AsyncFrontier, Frontier
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.parts import Steps, asked
from anabranch.frontier.records import Candidate, Lease, OutcomeKind, UrlRecord, UrlState, Verdict, VerdictKind

if TYPE_CHECKING:  # commands on a running crawl do not need it
    from anabranch.crawler.job.seedtable import Seeds

#: Candidates per chunk: 12 ms of the event loop, and a few more when they are durable.
CHUNK = 500


async def schedule_all(
    frontier: AsyncFrontier, candidates: Sequence[Candidate], found_on: Lease | None = None
) -> list[Verdict]:
    """Schedule all, in chunks; the verdicts in the order of the candidates, none of them BUSY. Raises: StoreUnavailable.

    Each chunk waits until the one before is durable. `found_on` is the lease of the page that had the links.
    """
    verdicts: list[Verdict] = []
    for start in range(0, len(candidates), CHUNK):
        if start:
            await frontier.flush()
        chunk = candidates[start : start + CHUNK]
        found = frontier.schedule(chunk, found_on)
        while busy := [number for number, verdict in enumerate(found) if verdict.kind is VerdictKind.BUSY]:
            await frontier.flush()
            again = frontier.schedule([chunk[number] for number in busy], found_on)
            for number, verdict in zip(busy, again, strict=True):
                found[number] = verdict
        verdicts += found
    return verdicts


log = structlog.get_logger(__name__)

#: The usual place of a sitemap that no robots.txt names.
SITEMAP = "/sitemap.xml"

#: Statuses of URLs that the order did not allow; it may have changed.
_UNWANTED = frozenset(
    {FetchStatus.BLOCKED, FetchStatus.OUT_OF_SCOPE, FetchStatus.OVER_QUOTA, FetchStatus.OVER_TIME, FetchStatus.SKIPPED}
)


@dataclass(frozen=True, slots=True)
class CandidateMaker:
    """Makes candidates of URLs: with their key for dedup and the tag of the seed that leads to them."""

    key: KeyOf
    tags: SourceTags

    def candidate(self, url: str, seed: str, hops: str = "", *, force: bool = False) -> Candidate:
        """The candidate for a URL that this seed leads to. Raises: UserFunctionFailed."""
        return Candidate(url, self.key(url), hops, self.tags.payload_of(seed), force=force)

    def seed(self, seed: Seed, ended: UrlRecord | None, *, force: bool = False) -> Candidate:
        """The candidate for a seed that the operator names; one that was never answered is tried again.

        `force`: whatever the filter and the store know of it.
        """
        return self.candidate(seed.url, seed.url, force=force or (ended is not None and unanswered(ended)))


NOT_TAKEN = "a seed cannot be taken"


class Added(NamedTuple):
    """The result of adding a seed."""

    verdict: str  #: new, known, hidden, refused or later
    reason: str = ""  #: where a known one is, or why it was not added


#: The filter takes it for seen, and no row has it: the filter errs.
HIDDEN = Added("hidden", "the filter takes it for seen, the store does not have it; add it with --force")


def known_as(record: UrlRecord) -> Added:
    """The store has it, in this state."""
    if record.state is not UrlState.ENDED:
        return Added("known", record.state.value)
    status = f" with {describe(record.status)}" if record.status else ""
    return Added("known", f"{record.outcome}{status}")


def add_in_steps(
    frontier: Frontier, seeds: Sequence[Seed], maker: CandidateMaker, *, force: bool
) -> Steps[tuple[list[Candidate], list[Added | None]]]:
    """Before seeds are scheduled: the candidates of those that the store does not have, or that are forced, and the others.

    A seed that is queued is never queued twice. The second list has an entry for each seed, None if it has a candidate. Raises:
    UserFunctionFailed.
    """
    keyed = {seed.url: key_of(seed.url, maker.key) for seed in seeds}
    records = yield from _known_in_steps(frontier, keyed)
    candidates: list[Candidate] = []
    known: list[Added | None] = []
    for seed in seeds:
        record = records.get(seed.url)
        is_kept = record is not None and (record.state is not UrlState.ENDED or not (force or unanswered(record)))
        known.append(known_as(record) if is_kept and record is not None else None)
        if not is_kept:
            candidates.append(maker.seed(seed, record, force=force))
    return candidates, known


def _known_in_steps(frontier: Frontier, keyed: Mapping[str, bytes]) -> Steps[dict[str, UrlRecord]]:
    """The records of those URLs that the store has, by URL; `keyed` has their keys."""
    operations = frontier.operations
    ended = yield from asked(operations.ended, list(keyed.values()))
    records = {url: ended[key] for url, key in keyed.items() if key in ended}
    left = [(url, key) for url, key in keyed.items() if key not in ended]
    if frontier.hosting is None:  # one of several workers has a filter that lacks what the others found
        unseen = frontier.unseen([key for _, key in left])
        left = [one for one, is_unseen in zip(left, unseen, strict=True) if not is_unseen]
    found = yield from operations.views.records(left)
    return records | {url: record for (url, _), record in zip(left, found, strict=True) if record is not None}


def added_in_steps(
    frontier: Frontier, candidates: Sequence[Candidate], verdicts: Sequence[Verdict], known: Sequence[Added | None]
) -> Steps[list[Added]]:
    """After they were scheduled: what became of each seed; `candidates` and `known` are those of `add_in_steps`."""
    seen = [one for one, verdict in zip(candidates, verdicts, strict=True) if verdict.kind is VerdictKind.SEEN]
    found = yield from frontier.operations.views.records([(one.url, one.dedup_key()) for one in seen])
    rows = iter(found)
    scheduled = iter([_added(verdict, rows) for verdict in verdicts])
    return [next(scheduled) if one is None else one for one in known]


def _added(verdict: Verdict, rows: Iterator[UrlRecord | None]) -> Added:
    if verdict.kind is not VerdictKind.SEEN:
        return Added(verdict.kind.value, verdict.reason)
    record = next(rows)
    return HIDDEN if record is None else known_as(record)


@dataclass(frozen=True, slots=True)
class Seeding:
    """The seeds of a job: those given, and the targets of their redirects; with `sitemaps` also the usual place of a sitemap.

    `given` is called with the candidates that were scheduled.
    """

    seeds: Seeds
    scope: Scope
    frontier: AsyncFrontier
    maker: CandidateMaker
    _: KW_ONLY
    sitemaps: bool = False
    given: Callable[[list[Candidate]], Awaitable[None]] | None = None
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _redirects: list[Seed] = field(default_factory=list, init=False)  # to be recorded

    async def begin(self, given: Iterable[Seed]) -> None:
        """Record the given seeds, open the scope for all seeds, schedule those that are new or were never answered."""
        given = tuple(given)
        keys_of(given, self.maker.key)  # a seed without a key must not be recorded
        await to_the_end(asyncio.to_thread(self.seeds.add_all, given))
        seeds = list(self.seeds)
        self.catch_up()
        with user_function_errors(NOT_TAKEN):
            ended = await self._ended(seeds)
            # The target of a redirect comes with its page, so it is due only if it was never answered.
            due = [seed for seed in seeds if seed.via is None or (seed.url in ended and unanswered(ended[seed.url]))]
            candidates = [self.maker.seed(seed, ended.get(seed.url)) for seed in due] + self._maps(seeds)
        await schedule_all(self.frontier, candidates)
        if self.given is not None:
            await self.given(candidates)

    async def add(self, given: Sequence[Seed], *, force: bool = False) -> list[Added]:
        """Add seeds while the crawl runs: record them, open the scope for them, schedule them durably. What became of each.

        `force`: also those that have ended, or that the filter takes for seen.
        """
        keys_of(given, self.maker.key)  # a seed without a key must not be recorded
        async with self._writing:
            await to_the_end(asyncio.to_thread(self.seeds.add_all, given))
            self.catch_up()
        core = self.frontier.core
        with user_function_errors(NOT_TAKEN):
            candidates, known = await self.frontier.look(add_in_steps(core, given, self.maker, force=force))
            maps = self._maps(given)
        verdicts = (await schedule_all(self.frontier, [*candidates, *maps]))[: len(candidates)]
        if self.given is not None:
            await self.given([*candidates, *maps])
        await self.frontier.flush()
        return await self.frontier.look(added_in_steps(core, candidates, verdicts, known))

    def catch_up(self) -> None:
        """Open the scope for seeds that are new, whoever recorded them."""
        new = self.seeds.after(len(self.maker.tags))
        self.maker.tags.note(new)
        for seed in new:
            self.scope.add_seed(seed.url)

    async def redirected(self, url: str, via: str) -> None:
        """The target of a seed's redirect is a seed too. Durable before the page is finished."""
        self._redirects.append(Seed(url=url, source="redirect", via=via))
        async with self._writing:
            if new := self._redirects[:]:  # those of others that waited are in one transaction; a failure leaves them
                await to_the_end(asyncio.to_thread(self.seeds.add_all, new))
                del self._redirects[: len(new)]
                self.catch_up()

    async def facts(self, failures: Mapping[str, str]) -> list[SeedFact]:
        """The outcome of each seed of this run that the operator gave; `failures` has details by URL."""
        seeds = list(self.seeds)
        keys = known_keys([seed.url for seed in seeds], self.maker.key)
        ended = await asyncio.to_thread(self.frontier.core.operations.ended, list(keys.values()))
        return seed_outcomes(seeds, keys, ended, failures)

    async def _ended(self, seeds: Iterable[Seed]) -> dict[str, UrlRecord]:
        """The records of seeds that have ended, by URL; one query, off the loop. Raises: UserFunctionFailed."""
        keys = {seed.url: key_of(seed.url, self.maker.key) for seed in seeds}
        ended = await asyncio.to_thread(self.frontier.core.operations.ended, list(keys.values()))
        return {url: ended[key] for url, key in keys.items() if key in ended}

    def _maps(self, seeds: Iterable[Seed]) -> list[Candidate]:
        """The usual place of a sitemap on each seed's host, if the order asks for sitemaps and its scope accepts it."""
        if not self.sitemaps:
            return []
        found = {canonical(SITEMAP, seed.url): seed for seed in reversed(list(seeds)) if seed.via is None}
        maps = []
        for url, seed in found.items():
            try:
                if url is not None and self.scope.accepts(url, MANIFEST):
                    maps.append(self.maker.candidate(url, seed.url, MANIFEST))
            except (UserFunctionFailed, ServiceAway) as error:
                log.error("a sitemap is left out", url=url, reason=str(error))  # noqa: TRY400 - the reason is enough
        return maps


@contextmanager
def user_function_errors(what: str) -> Iterator[None]:
    """Inside, a failed user function becomes an OrderError, since the operator must mend it; `what` cannot be done."""
    try:
        yield
    except (UserFunctionFailed, ServiceAway) as error:
        raise OrderError(f"{what}: {error}") from error


def key_by(order: CrawlOrder, place: object) -> KeyOf:
    """How the job's URLs are known, for a command that queues some in it. Raises: CodeWithheld, OrderError."""
    refuse_withheld([one for one in order.code.withheld if one.section == "urls"], place, "this command")
    return Canonicalizer(order.urls.canonicalization).key


def key_of(url: str, key: KeyOf) -> bytes:
    """The bytes by which the Frontier knows a URL."""
    return key(url) or url.encode()


def keys_of(seeds: Iterable[Seed], key: KeyOf) -> list[bytes]:
    """The keys of seeds, before they are recorded, which every later run reads. Raises: OrderError."""
    with user_function_errors(NOT_TAKEN):
        return [key_of(seed.url, key) for seed in seeds]


def known_keys(urls: Iterable[str], key: KeyOf) -> dict[str, bytes]:
    """The keys of URLs, for a report; a URL for which a user function fails is left out."""
    keys: dict[str, bytes] = {}
    for url in urls:
        with suppress(UserFunctionFailed, ServiceAway):
            keys[url] = key_of(url, key)
    return keys


class SeedFact(NamedTuple):
    """The outcome of a seed."""

    url: str
    status: int  #: fetch status; 0 = not tried yet
    reason: str  #: details of a failure, maybe empty
    redirect: str | None  #: the seed it redirected to

    @property
    def is_answered(self) -> bool:
        """Whether its server gave an HTTP answer."""
        return self.status > 0


def seed_outcomes(
    seeds: Sequence[Seed],
    keys: Mapping[str, bytes],
    ended: Mapping[bytes, UrlRecord],
    failures: Mapping[str, str] = MappingProxyType({}),
) -> list[SeedFact]:
    """The outcome of each seed given by the operator; `ended` has records by key, `failures` details by URL. Pure."""
    redirects = {seed.via: seed.url for seed in seeds if seed.via is not None}
    facts = []
    for url in (seed.url for seed in seeds if seed.via is None):
        record = ended.get(keys[url]) if url in keys else None
        status = 0 if record is None else record.status
        facts.append(SeedFact(url, status, "" if status > 0 else failures.get(url, ""), redirects.get(url)))
    return facts


def unanswered(record: UrlRecord) -> bool:
    """Whether an ended URL was given up without an HTTP answer: the site or the order may have changed since."""
    failed = record.outcome == OutcomeKind.FAILED.value and record.status <= 0
    return failed or record.status in _UNWANTED
