"""Of a page's candidates that are like what was taken before, none is taken: the similarity filter's two steps in the chain.

The filter learns what the Frontier was given, and only then: see `crawler.scope.similar`. What it has learnt is written down
when enough of it waits, and at the end; a crash in between makes it forget `STORED_AT` URLs at most, and take some more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from anabranch.crawler.chain import Step
from anabranch.crawler.extracting.links import REDIRECT
from anabranch.crawler.scope.similar import Similar
from anabranch.crawler.visit import Visit
from anabranch.crawler.workers import Dispose
from anabranch.frontier.models import Candidate, OutcomeKind

#: URLs learnt that wait to be written down.
STORED_AT = 1000


class Unlike:
    """Drops candidates that are like those taken before. `flush` makes durable what the Frontier was told."""

    def __init__(self, similar: Similar, flush: Callable[[], Awaitable[object]]) -> None:
        self._similar = similar
        self._flush = flush
        self._waiting = 0

    async def __call__(self, visit: Visit) -> Step:
        """Leave in `visit.discovered` what is new in kind. The target of a redirect stays: it is the page that was taken."""
        moved = [candidate for candidate in visit.discovered if candidate.hops.endswith(REDIRECT)]
        others = {candidate.url: candidate for candidate in visit.discovered if not candidate.hops.endswith(REDIRECT)}
        kept = await self._similar.unlike(list(others))
        visit.discovered = [*moved, *(others[url] for url in kept)]
        return Step.PROCEED

    async def keep(self, given: Iterable[Candidate]) -> None:
        """Learn what the Frontier was given, and write down what waits if it is much.

        Raises: StorageError, StoreUnavailable.
        """
        urls = [candidate.url for candidate in given]
        await self._similar.keep(urls)
        self._waiting += len(urls)
        if self._waiting >= STORED_AT:
            self._waiting = 0
            await self._similar.store(self._flush)

    def keeping(self, dispose: Dispose) -> Dispose:
        """The same disposition, after which the filter learns what the page led to."""

        async def disposed(visit: Visit) -> OutcomeKind | None:
            kind = await dispose(visit)
            if kind is not None and visit.discovered:
                await self.keep(visit.discovered)
            return kind

        return disposed

    async def close(self) -> None:
        """Write down what waits, and let go of the filter; for an end at which the Frontier is still open."""
        try:
            await self._similar.store(self._flush)
        finally:
            await self._similar.close()
