"""From links to candidates: URLs in scope are given to the Frontier when the page ends.

    links -> seen? -> in scope? -> key -> similar? -> surplus ahead of the page's end -> `processors.disposition`

The sitemaps that a robots.txt names take the same way, but at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import compress

import structlog

from anabranch.crawler.extract.links import MANIFEST, REDIRECT, Link
from anabranch.crawler.extract.sitemaps import robots_links
from anabranch.crawler.job.seeding import CHUNK, schedule_all
from anabranch.crawler.job.seeds import inherited
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.processors.seen_urls import SeenUrls
from anabranch.crawler.robots.retrieval import robots_url
from anabranch.crawler.scope.scope import Scope
from anabranch.crawler.scope.similarity import SimilarUrlFilter
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.crawler.urls.parsing import canonical
from anabranch.crawler.visit import Dispose, LostLink, Step, Visit
from anabranch.frontier import AsyncFrontier
from anabranch.frontier.records import Candidate, OutcomeKind

log = structlog.get_logger(__name__)

#: Hops of redirects from a seed up to which the targets become seeds, too (Heritrix: seedsRedirectNewSeeds).
SEED_REDIRECTS = 5
#: URLs that the similarity filter has learnt before they are written to disk.
STORED_AT = 1000

#: Called with candidates that the Frontier has been given.
OnScheduled = Callable[[list[Candidate]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FindCandidates:
    """Turns unseen links and redirects into candidates in scope, with their keys. Without `seen` each link is judged."""

    scope: Scope
    canonicalizer: Canonicalizer
    add_seed: Callable[[str, str], Awaitable[None]]
    seen: SeenUrls | None = None

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.discovered`; the target of a seed's redirect becomes a seed first.

        A link for which a user function fails is lost, the others are not. Cost: 2 µs for a link that only the Frontier has, 5
        µs for a new one. Raises: FrontierError; UserFunctionFailed for the target of a seed's redirect.
        """
        hops = visit.lease.hops
        redirect = redirect_of(visit)
        if redirect is not None:
            if is_seed_redirect(hops):
                # If a user function fails for it, the page fails, and is tried again with all that the seed leads to. A URL
                # without a key must not become a seed: later runs would fail.
                self.scope.accepts(redirect, hops + REDIRECT, visit.lease.url)
                self.canonicalizer.key(redirect)
                await self.add_seed(redirect, visit.lease.url)
            visit.links.append(Link(redirect, REDIRECT))
        visit.discover(await self._in_scope(visit, visit.links[:CHUNK]))
        for start in range(CHUNK, len(visit.links), CHUNK):
            await asyncio.sleep(0)
            visit.discovered.extend(await self._in_scope(visit, visit.links[start : start + CHUNK]))
        _log_lost(visit)
        return Step.PROCEED

    def find_sitemaps(self, visit: Visit, lines: Sequence[str]) -> None:
        """Put the sitemaps that the host's robots.txt names into `visit.discovered`, at the depth of the host."""
        robots = robots_url(visit.lease.url)
        links = robots_links(lines, robots)
        if len(links) < len(set(lines)):
            no_urls = [line for line in lines if canonical(line, robots) is None]
            log.warning("sitemap lines name no web URL", url=robots, lines=len(no_urls), first=no_urls[:1])
        visit.discovered.extend(self._judge_each(visit, links, visit.lease.hops.rstrip(MANIFEST)))
        _log_lost(visit)

    def judged(self, visit: Visit, links: Sequence[Link]) -> list[Candidate]:
        """Candidates for the links in scope, also for known URLs. A link for which a user function fails is lost."""
        return self._judge_each(visit, links, visit.lease.hops)

    async def _in_scope(self, visit: Visit, links: Sequence[Link]) -> list[Candidate]:
        hops = visit.lease.hops
        if self.seen is not None:
            links = self.seen.unseen(links)
        if visit.directives.nofollow:
            links = [link for link in links if visit.directives.may_follow(link.hop)]
        if self.seen is None:
            return self.judged(visit, links)
        links = self.scope.accepted(links, hops, visit.lease.url)
        urls = [link.url for link in links]
        keys = self.canonicalizer.keys(urls)
        new = compress(zip(links, keys, strict=True), await self.seen.are_new(urls, keys))
        payload = inherited(visit.lease.payload)
        return [Candidate(link.url, key, hops + link.hop, payload) for link, key in new]

    def _judge_each(self, visit: Visit, links: Sequence[Link], hops: str) -> list[Candidate]:
        """One by one, so that user functions may fail for some links and the others are found."""
        page, payload = visit.lease.url, inherited(visit.lease.payload)
        found = []
        for link in links:
            path = hops + link.hop
            try:
                if self.scope.accepts(link.url, path, page):
                    found.append(Candidate(link.url, self.canonicalizer.key(link.url), path, payload))
            except UserFunctionFailed as error:
                visit.lose(LostLink(link.url, path, error))
        return found


def _log_lost(visit: Visit) -> None:
    """The program's log has the first lost link; errors.jsonl has more."""
    for link in visit.lost[:1]:
        log.error(
            f"{link.error.role.words} failed for links",
            url=visit.lease.url,
            function=link.error.name,
            links=visit.lost_links,
            first=link.url,
        )


def redirect_of(visit: Visit) -> str | None:
    """The canonical target of a 3xx response with a Location, else None."""
    location = None if visit.response is None else visit.response.location
    return None if location is None else canonical(location, visit.lease.url)


def is_seed_redirect(hops: str) -> bool:
    """Whether a redirect after these hops leads from a seed by at most 5 redirects and nothing else."""
    return len(hops) < SEED_REDIRECTS and set(hops) <= {REDIRECT}


class DropSimilar:
    """Drops candidates that resemble URLs already accepted, and teaches the similarity filter the URLs that the Frontier has.

    They are written to disk after `STORED_AT` URLs and at the end; after a crash some more URLs are accepted. `flush` makes
    durable what the Frontier was given.
    """

    def __init__(self, similar: SimilarUrlFilter, flush: Callable[[], Awaitable[object]]) -> None:
        self._similar = similar
        self._flush = flush
        self._unsaved = 0

    async def __call__(self, visit: Visit) -> Step:
        """Drop the others from `visit.discovered`. A redirect's target stays: it is the page that was accepted."""
        redirects = [candidate for candidate in visit.discovered if candidate.hops.endswith(REDIRECT)]
        others = {candidate.url: candidate for candidate in visit.discovered if not candidate.hops.endswith(REDIRECT)}
        kept = await self._similar.unlike(list(others))
        visit.discover([*redirects, *(others[url] for url in kept)])
        return Step.PROCEED

    async def learn(self, scheduled: Sequence[Candidate]) -> None:
        """Learn what the Frontier was given. Raises: StorageError, StoreUnavailable."""
        await self._similar.keep([candidate.url for candidate in scheduled])
        self._unsaved += len(scheduled)
        if self._unsaved >= STORED_AT:
            self._unsaved = 0
            await self._similar.store(self._flush)

    def learning_after(self, dispose: Dispose) -> Dispose:
        """Wrap the disposition: after it, the filter learns the URLs that the page led to."""

        async def disposed(visit: Visit) -> OutcomeKind | None:
            kind = await dispose(visit)
            if kind is not None and visit.discovered:
                await self.learn(visit.discovered)
            return kind

        return disposed

    async def close(self) -> None:
        """Save and close the filter; the Frontier must still be open."""
        try:
            await self._similar.store(self._flush)
        finally:
            await self._similar.close()


@dataclass(frozen=True, slots=True)
class ScheduleSurplus:
    """Schedules all but the last `CHUNK` candidates ahead of the page's end, to keep that short: a sitemap has 50,000."""

    frontier: AsyncFrontier
    on_scheduled: OnScheduled | None = None
    seen: SeenUrls | None = None

    async def __call__(self, visit: Visit) -> Step:
        """Leave at most `CHUNK` candidates to the page's end. Waits while the store is behind. Raises: StoreUnavailable."""
        surplus = visit.take_discovered(keep=CHUNK)
        if surplus:
            verdicts = await schedule_all(self.frontier, surplus, visit.lease)
            if self.seen is not None:
                self.seen.learn(surplus, verdicts)
            if self.on_scheduled is not None:
                await self.on_scheduled(surplus)
        return Step.PROCEED


@dataclass(frozen=True, slots=True)
class ScheduleSitemaps:
    """Schedules the sitemaps of a robots.txt at once: at the page's end they could be lost with its lease for a day."""

    candidates: FindCandidates
    frontier: AsyncFrontier
    on_scheduled: OnScheduled | None = None

    async def __call__(self, visit: Visit, lines: Sequence[str]) -> None:
        """Schedule the sitemaps of these lines. Waits while the store is behind. Raises: StoreUnavailable."""
        self.candidates.find_sitemaps(visit, lines)
        sitemaps = visit.take_discovered()
        if sitemaps:
            await schedule_all(self.frontier, sitemaps, visit.lease)
            if self.on_scheduled is not None:
                await self.on_scheduled(sitemaps)
