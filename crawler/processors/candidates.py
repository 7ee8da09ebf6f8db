"""From links to candidates: what the scope lets in goes to the Frontier with the page's end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from crawler.chain import Step
from crawler.extracting.links import REDIRECT, Link
from crawler.scope.ruling import Scope
from crawler.urls.parsing import canonical
from crawler.visit import Visit
from frontier.models import Candidate

#: Redirects of a seed whose targets become seeds too (Heritrix: seedsRedirectNewSeeds, 5 hops).
SEED_REDIRECTS = 5


class Candidates:
    """Turns links and redirects into candidates in scope."""

    def __init__(self, scope: Scope, new_seed: Callable[[str, str], Awaitable[None]]) -> None:
        self._scope = scope
        self._new_seed = new_seed

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.discovered`; the target of a seed's redirect becomes a seed first."""
        redirect = redirect_of(visit)
        if redirect is not None:
            if is_seed_redirect(visit.lease.hops):
                await self._new_seed(redirect, visit.lease.url)
            visit.links.append(Link(redirect, REDIRECT))
        hops = visit.lease.hops
        visit.discovered = [
            Candidate(url=link.url, hops=hops + link.hop, payload=visit.lease.payload)
            for link in visit.links
            if self._scope.accepts(link.url, hops + link.hop)
        ]
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
