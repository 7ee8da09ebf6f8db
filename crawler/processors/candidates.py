"""From links to candidates: what the scope lets in goes to the Frontier with the page's end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import compress

import structlog

from anabranch.crawler.chain import Step
from anabranch.crawler.extracting.links import MANIFEST, REDIRECT, Link
from anabranch.crawler.extracting.sitemaps import robots_links
from anabranch.crawler.jobs.scheduling import CHUNK, schedule_all
from anabranch.crawler.outcomes.ownfunctions import OwnFunctionFailed
from anabranch.crawler.processors.known import Known
from anabranch.crawler.robots.cache import robots_url
from anabranch.crawler.scope.ruling import Scope
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.crawler.urls.parsing import canonical
from anabranch.crawler.visit import LostLink, Visit
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.models import Candidate

log = structlog.get_logger(__name__)

#: Redirects of a seed whose targets become seeds too (Heritrix: seedsRedirectNewSeeds, 5 hops).
SEED_REDIRECTS = 5
#: Links of a page that errors.jsonl names, of those that a function of the operator's own failed for.
MAX_LOST_TOLD = 10

#: Told of candidates that the Frontier was given.
Given = Callable[[list[Candidate]], Awaitable[None]]


class Candidates:
    """Turns links and redirects into candidates in scope, each with its key for dedup.

    Of a URL that is `known` no candidate is made: the Frontier would only call it seen. Those of a page that are not remembered
    are asked for together. None if each link is to be judged, as where the operator's own functions do.
    """

    def __init__(
        self,
        scope: Scope,
        canonicalizer: Canonicalizer,
        new_seed: Callable[[str, str], Awaitable[None]],
        known: Known | None = None,
    ) -> None:
        self._scope = scope
        self._canonicalizer = canonicalizer
        self._new_seed = new_seed
        self._known = known

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.discovered`; the target of a seed's redirect becomes a seed first.

        A link that a function of the operator's own fails for is lost, the others are not. Cost: some 2 µs a link that the
        Frontier has but nobody remembers, 5 µs a new one; the loop gets its turn after each `CHUNK`. Raises: OwnFunctionFailed
        for the target of a seed's redirect; FrontierError.
        """
        hops = visit.lease.hops
        redirect = redirect_of(visit)
        if redirect is not None:
            if is_seed_redirect(hops):
                # All that this seed leads to would be lost with it, and the seed never tried again. Nor may what cannot be
                # keyed get into the book: every later run would fail on it.
                self._scope.accepts(redirect, hops + REDIRECT, visit.lease.url)
                self._canonicalizer.key(redirect)
                await self._new_seed(redirect, visit.lease.url)
            visit.links.append(Link(redirect, REDIRECT))
        visit.discovered = await self._in_scope(visit, visit.links[:CHUNK], hops)
        for start in range(CHUNK, len(visit.links), CHUNK):
            await asyncio.sleep(0)
            visit.discovered += await self._in_scope(visit, visit.links[start : start + CHUNK], hops)
        _tell_lost(visit)
        return Step.PROCEED

    def announce(self, visit: Visit, lines: Sequence[str]) -> None:
        """Put the sitemaps that the host's robots.txt names into `visit.discovered`.

        They are the host's: if it was asked for a sitemap when its robots.txt was fetched, they are not found behind that.
        """
        links = robots_links(lines, robots_url(visit.lease.url))
        visit.discovered += self._one_by_one(visit, links, visit.lease.hops.rstrip(MANIFEST))
        _tell_lost(visit)

    async def _in_scope(self, visit: Visit, links: Sequence[Link], hops: str) -> list[Candidate]:
        if self._known is not None:
            links = self._known.unknown(links)
        if visit.asked.nofollow:
            links = [link for link in links if visit.asked.may_follow(link.hop)]
        if self._known is None:
            return self._one_by_one(visit, links, hops)
        links = self._scope.accepted(links, hops, visit.lease.url)
        urls = [link[0] for link in links]
        keys = self._canonicalizer.keys(urls)
        new = compress(zip(links, keys, strict=True), await self._known.are_new(urls, keys))
        return [Candidate(link.url, key, hops + link.hop, visit.lease.payload) for link, key in new]

    def _one_by_one(self, visit: Visit, links: Sequence[Link], hops: str) -> list[Candidate]:
        """So that functions of the operator's own may fail for some links, and the others are found."""
        page, payload = visit.lease.url, visit.lease.payload
        accepts, key = self._scope.accepts, self._canonicalizer.key
        found = []
        for link in links:
            way = hops + link.hop
            try:
                if accepts(link.url, way, page):
                    found.append(Candidate(link.url, key(link.url), way, payload))
            except OwnFunctionFailed as error:
                _lose(visit, LostLink(link.url, way, error))
        return found


def _lose(visit: Visit, link: LostLink) -> None:
    visit.lost_links += 1
    if len(visit.lost) < MAX_LOST_TOLD:
        visit.lost.append(link)


def _tell_lost(visit: Visit) -> None:
    """The operator is told of the first; the logs have more."""
    for link in visit.lost[:1]:
        role, name = link.error.role.words, link.error.name
        log.error(
            f"{role} failed for links", url=visit.lease.url, function=name, links=visit.lost_links, first=link.url
        )


class Ahead:
    """Sends the candidates of a page of very many ahead of its end, so that this one stays short: a sitemap has 50,000.

    A crash in between does no harm: the page is fetched again, and what was sent is known. `given` is told of what was sent,
    `known` of what the Frontier said of it.
    """

    def __init__(self, frontier: AsyncFrontier, given: Given | None = None, known: Known | None = None) -> None:
        self._frontier = frontier
        self._given = given
        self._known = known

    async def __call__(self, visit: Visit) -> Step:
        """Leave at most `CHUNK` candidates to the page's end. Waits while the store is behind. Raises: StoreUnavailable."""
        if len(visit.discovered) > CHUNK:
            sent, visit.discovered = visit.discovered[:-CHUNK], visit.discovered[-CHUNK:]
            verdicts = await schedule_all(self._frontier, sent, visit.lease)
            if self._known is not None:
                self._known.learn(sent, verdicts)
            if self._given is not None:
                await self._given(sent)
        return Step.PROCEED


def redirect_of(visit: Visit) -> str | None:
    """The canonical target of a 3xx answer with a Location, else None."""
    response = visit.response
    if response is None or not 300 <= response.status < 400:
        return None
    location = response.headers.get("Location")
    return None if location is None else canonical(location, visit.lease.url)


def is_seed_redirect(hops: str) -> bool:
    """Whether a redirect met after these hops comes from a seed by redirects alone, at most 5 in all."""
    return len(hops) < SEED_REDIRECTS and set(hops) <= {REDIRECT}
