"""The two steps every page takes: fetch it, read its links."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Protocol

from anabranch.crawler.chain import Step
from anabranch.crawler.extracting.dispatch import Extractor
from anabranch.crawler.fetching.options import Validators
from anabranch.crawler.fetching.response import Cut, Response
from anabranch.crawler.outcomes.failures import BodyBroken, retry_after
from anabranch.crawler.robots.directives import NOTHING, Directives, header_directives, meta_directives
from anabranch.crawler.visit import Ending, Visit
from anabranch.frontier.cancellation import to_the_end

#: URLs that come again to be fetched anew, and are remembered; one forgotten costs its host another 304.
MAX_ANEW = 100_000

#: An answer, and what its robots `meta` elements say -> what the page asks of us.
Heed = Callable[[Response, Iterable[str]], Directives]


class Get(Protocol):
    """A fetch, as `Fetcher.get`."""

    def __call__(
        self, url: str, *, conditional: Validators | None = None, via: str | None = None, keep_broken: bool = False
    ) -> Awaitable[Response]:
        """The answer."""


class Earlier(Protocol):
    """What the job has of earlier fetches; see `archiving.recalling.Archive`."""

    async def validators(self, url: str) -> Validators | None:
        """What to ask with, if the earlier answer is at hand."""

    async def answer(self, url: str) -> Response | None:
        """The earlier answer, if it can be read after all."""


class FetchPage:
    """Fetch the URL of the visit; with `earlier`, one that the job has an answer of only if it has changed.

    If it has not, and the earlier answer cannot be read, nobody has the page: the URL goes back to its old place, since another
    fetch has to wait at the host's gate like any other, and is asked for without a condition when it comes again.
    """

    def __init__(self, get: Get, earlier: Earlier | None = None) -> None:
        self._get = get
        self._earlier = earlier
        self._anew: OrderedDict[int, None] = OrderedDict()  #: by the URL's 64-bit hash: it may be long

    async def __call__(self, visit: Visit) -> Step:
        """Keep the answer, whatever its status. Raises: FetchError; BodyBroken while a broken body is worth another try."""
        url, earlier = visit.lease.url, self._earlier
        validators = None if earlier is None or self._is_anew(url) else await earlier.validators(url)
        visit.response = await self._get(url, conditional=validators, via=visit.lease.via, keep_broken=True)
        _check_whole(visit.response, visit)
        if earlier is None or validators is None or visit.response.status != HTTPStatus.NOT_MODIFIED:
            return Step.PROCEED
        await to_the_end(_recall(visit, earlier))
        if visit.earlier is not None:
            return Step.PROCEED
        self._fetch_anew(url)
        visit.ending = Ending.DEFERRED
        return Step.STOP

    def _is_anew(self, url: str) -> bool:
        """Whether the URL came again to be fetched anew; true once."""
        is_anew = hash(url) in self._anew
        self._anew.pop(hash(url), None)
        return is_anew

    def _fetch_anew(self, url: str) -> None:
        self._anew[hash(url)] = None
        if len(self._anew) > MAX_ANEW:
            self._anew.popitem(last=False)


def _check_whole(response: Response, visit: Visit) -> None:
    """What came of a body that broke off is kept after the last try; a host that is busy has tries of its own.

    Raises: BodyBroken if there is another try, or nothing came of the body.
    """
    if Cut.DISCONNECT not in response.cuts or visit.is_busy:
        return
    size = response.body.size
    broken = BodyBroken(f"the body broke off after {size} bytes").timed(response.start_s, response.end_s)
    if not size or retry_after(broken, visit.lease.attempts) is not None:
        raise broken


async def _recall(visit: Visit, earlier: Earlier) -> None:
    """Give the visit the earlier answer. It may hold a file, which is the visit's to close: never cancel this."""
    visit.earlier = await earlier.answer(visit.lease.url)


def heeding(product: str, clock: Callable[[], float]) -> Heed:
    """Take what a page asks of everybody, and what it asks of our product, in its header and in its `meta` elements."""

    def heed(response: Response, metas: Iterable[str]) -> Directives:
        fields = response.headers.getall("X-Robots-Tag", ())
        said = [("robots", content) for content in metas]  # the reader has picked those that are for us
        if not fields and not said:
            return NOTHING
        now_s = clock()
        return header_directives(fields, product, now_s) | meta_directives(said, product, now_s)

    return heed


class ExtractPage:
    """Read the links of pages that were answered with 2xx, now or before a 304; other answers have none of interest.

    Without `heed` nothing that a page says to robots is obeyed.
    """

    def __init__(self, extract: Extractor, heed: Heed | None = None) -> None:
        self._extract = extract
        self._heed = heed

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.links`, `visit.dropped_links`, `visit.notes` and `visit.asked`."""
        response = visit.earlier or visit.response
        if response is None or not response.is_success:
            return Step.PROCEED
        found = await self._extract(response, visit.lease.url, visit.lease.hops)
        visit.links, visit.dropped_links, visit.notes = found.links, found.dropped, found.notes
        if self._heed is not None:
            visit.asked = self._heed(response, found.robots)
            if visit.asked is not NOTHING:
                visit.notes += visit.asked.annotations
        return Step.PROCEED
