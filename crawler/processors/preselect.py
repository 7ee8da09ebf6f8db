"""The first step of the chain: is the URL still wanted?

It was when it was queued, but since then the order may have changed, the operator may have blocked it, or a quota may be used
up. Such a URL ends disregarded, without a fetch, and its slot does not rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from anabranch.crawler.chain import Step
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.scope.quotas import OverQuota
from anabranch.crawler.scope.ruling import Scope
from anabranch.crawler.urls.parsing import host_of
from anabranch.crawler.visit import Visit

#: Host -> why nothing more is fetched of it; None = it may be. Asked for every URL, so it must cost O(1).
OverQuotaOf = Callable[[str], OverQuota | None]


class OutOfScope(FetchError):
    """The scope does not take the URL any more: final."""

    status = FetchStatus.OUT_OF_SCOPE


class BlockedByOperator(FetchError):
    """The URL matches a pattern of `[scope] block`: final."""

    status = FetchStatus.BLOCKED


class OverLimit(FetchError):
    """A limit of the crawl or of the host is reached: final."""

    def __init__(self, annotation: str) -> None:
        super().__init__(f"over a limit: {annotation}")
        self.annotation = annotation


class QuotaReached(OverLimit):
    """The limit is one of pages or bytes."""

    status = FetchStatus.OVER_QUOTA


class TimeReached(OverLimit):
    """The limit is one of time."""

    status = FetchStatus.OVER_TIME


class Preselect:
    """Judges a URL again before it is fetched: blocked (-5001), out of scope (-5000), over a quota (-5003) or time (-5004)."""

    _OVER: ClassVar[dict[FetchStatus, type[OverLimit]]] = {
        FetchStatus.OVER_QUOTA: QuotaReached,
        FetchStatus.OVER_TIME: TimeReached,
    }

    def __init__(self, scope: Scope, block: Sequence[str], over_quota_of: OverQuotaOf | None = None) -> None:
        self._scope = scope
        self._blocks = tuple(re.compile(pattern).search for pattern in block)
        self._over_quota_of = over_quota_of

    async def __call__(self, visit: Visit) -> Step:
        """Let the visit pass. Raises: FetchError of the kinds above; OwnFunctionFailed."""
        lease = visit.lease
        for search in self._blocks:
            if search(lease.url):
                raise BlockedByOperator("blocked by the operator")
        if not self._scope.accepts(lease.url, lease.hops, lease.via):
            raise OutOfScope("out of scope")
        over = None if self._over_quota_of is None else self._over_quota_of(host_of(lease.url))
        if over is not None:
            raise self._OVER[over.status](over.annotation)
        return Step.PROCEED
