"""The two processors that every page passes: fetch it, then extract its links.

Before them are the preconditions; behind them the user's processors, the archive and the candidates.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from http import HTTPStatus

from anabranch.crawler.archive.cdxserver import CdxServers
from anabranch.crawler.archive.replay import ArchivedResponses
from anabranch.crawler.extract.extractor import NO_URL, Extractor
from anabranch.crawler.fetch.response import Cut, PageHead, Response
from anabranch.crawler.job.seeds import SourceTags
from anabranch.crawler.outcomes.failures import BodyBroken, retry_after
from anabranch.crawler.robots.directives import NOTHING, Directives, header_directives, meta_directives
from anabranch.crawler.scope.body import BodyRules
from anabranch.crawler.urls.parsing import canonical
from anabranch.crawler.visit import ChainDecision, Step, Visit
from anabranch.frontier.cancellation import to_the_end

#: URLs remembered to be fetched without a condition when they come again; a forgotten one costs its host another 304.
MAX_UNCONDITIONAL = 100_000

#: A response and the contents of its robots `meta` elements -> what the page asks of us.
ReadDirectives = Callable[[Response, Iterable[str]], Directives]


class BodyCheck:
    """Decides by the rules before the body whether the body of a visit's answer is read."""

    def __init__(self, rules: BodyRules, tags: SourceTags) -> None:
        self._rules = rules
        self._tags = tags

    def wants(self, visit: Visit, head: PageHead) -> bool:
        """Note the rule that leaves the body unread, if one does. Raises: UserFunctionFailed."""
        lease = visit.lease
        rule = self._rules.stopped_by(head._replace(hops=lease.hops, seed=self._tags.tag_of(lease.payload) or ""))
        visit.stopped_before_body(rule)
        return not rule


class FetchPage:
    """Fetches the URL of the visit by `Fetcher.get`; with `archive`, one that was fetched before only if it has changed.

    `before_body` decides whether a body is read; one that is not ends the URL with the status of its answer.
    If it has not changed and the archived response cannot be read, the URL goes back to the queue, and is requested without a
    condition when it comes again: another fetch has to wait at the host's gate.
    """

    def __init__(
        self,
        fetch: Callable[..., Awaitable[Response]],
        archive: ArchivedResponses | None = None,
        before_body: BodyCheck | None = None,
        captures: CdxServers | None = None,
    ) -> None:
        """`captures`: what knows captures of a URL elsewhere; it is asked while the page is fetched."""
        self._captures = captures
        self._fetch = fetch
        self._archive = archive
        self._before_body = before_body
        self._unconditional: OrderedDict[int, None] = OrderedDict()  #: by the URL's 64-bit hash: a URL may be long

    async def __call__(self, visit: Visit) -> Step:
        """Keep the response, whatever its status. Raises: FetchError; BodyBroken while another try is worth it."""
        url, archive = visit.lease.url, self._archive
        is_unconditional = self._unconditional.pop(hash(url), True) is None
        validators = None if archive is None or is_unconditional else await archive.validators(url)
        check = self._before_body
        wants_body = None if check is None else partial(check.wants, visit)
        if self._captures is not None:
            visit.ask(self._captures.ask(url))
        response = await self._fetch(
            url, conditional=validators, via=visit.lease.via, keep_broken=True, wants_body=wants_body
        )
        visit.received(response)
        if visit.body_rule and Cut.ABORT not in response.cuts:  # an answer before this one was stopped, such as a 401
            visit.stopped_before_body(0)
        _check_body(visit, response)
        if archive is None or validators is None or response.status != HTTPStatus.NOT_MODIFIED:
            return Step.PROCEED
        # Not to be cancelled: the response may hold a file, which the visit closes.
        await to_the_end(_recall(visit, archive))
        if visit.archived is not None:
            return Step.PROCEED
        self._unconditional[hash(url)] = None
        if len(self._unconditional) > MAX_UNCONDITIONAL:
            self._unconditional.popitem(last=False)
        visit.decide(ChainDecision.DEFERRED)
        return Step.STOP


def _check_body(visit: Visit, response: Response) -> None:
    """Raise BodyBroken for a body that broke off, while another try is worth it, or if nothing of it came.

    A redirect is followed whatever its body, as by browsers; a busy host has tries of its own.
    """
    if Cut.DISCONNECT not in response.cuts or response.location or visit.is_busy:
        return
    size = response.body.size
    broken = BodyBroken(f"the body broke off after {size} bytes").timed(response.start_s, response.end_s)
    if not size or retry_after(broken, visit.lease.attempts) is not None:
        raise broken


async def _recall(visit: Visit, archive: ArchivedResponses) -> None:
    visit.recalled(await archive.answer(visit.lease.url))


def directives_for(product: str, clock: Callable[[], float]) -> ReadDirectives:
    """Makes the reader of a page's directives for all robots and for our product, in its header and `meta` elements."""

    def read(response: Response, metas: Iterable[str]) -> Directives:
        fields = response.headers.getall("X-Robots-Tag", ())
        contents = [("robots", content) for content in metas]  # the parser has chosen those for us
        if not fields and not contents:
            return NOTHING
        now_s = clock()
        return header_directives(fields, product, now_s) | meta_directives(contents, product, now_s)

    return read


class ExtractPage:
    """Extracts the links of pages that were answered with 2xx, now or before a 304. `directives` None: not read.

    A redirect whose `Location` names no web URL gets a note.
    """

    def __init__(self, extract: Extractor, directives: ReadDirectives | None = None) -> None:
        self._extract = extract
        self._directives = directives

    async def __call__(self, visit: Visit) -> Step:
        """Fill in the visit's links, notes and directives."""
        response = visit.archived or visit.response
        if response is None:
            return Step.PROCEED
        if not 200 <= response.status < 300:
            if response.location is not None and canonical(response.location, visit.lease.url) is None:
                visit.extracted([], (f"{NO_URL}:Location",), dropped=0, directives=NOTHING)
            return Step.PROCEED
        found = await self._extract(response, visit.lease.url, visit.lease.hops)
        directives = NOTHING if self._directives is None else self._directives(response, found.robots)
        notes = found.notes if directives is NOTHING else found.notes + directives.annotations
        visit.extracted(found.links, notes, dropped=found.dropped, directives=directives)
        return Step.PROCEED
