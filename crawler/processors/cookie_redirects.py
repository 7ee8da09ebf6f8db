"""Redirects that only set a cookie: A leads to A, or to a page that leads back, and answers once the cookie is sent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.crawler.extract.links import REDIRECT, Link
from anabranch.crawler.processors.candidates import FindCandidates, redirect_of
from anabranch.crawler.visit import Step, Visit
from anabranch.frontier.records import Lease

#: The most repeats of a URL in a round.
MAX_REPEATS = 3
#: The URLs that have redirected and are remembered.
MAX_KEPT = 10_000
#: The note of a redirect that needs cookies while `[fetch] cookies` is off.
COOKIES_OFF = "cookiesOff:fetch.cookies"


@dataclass(slots=True)
class RepeatForCookies:
    """Schedules the target of a redirect once more if it redirected itself, and would now be asked with a new cookie value.

    It waits at its gate like every URL. At most `MAX_REPEATS` times: the redirects at the end of its hops are the count, so it
    holds for other workers and after a kill, too. Memory: `MAX_KEPT` URLs and cookies.
    """

    candidates: FindCandidates
    cookies_for: Callable[[str], str | None]  #: `Fetcher.cookies_for`
    _asked: OrderedDict[str, str] = field(
        default_factory=OrderedDict
    )  #: URL that redirected -> the cookies it was asked with

    async def __call__(self, visit: Visit) -> Step:
        """Add the target to `visit.discovered`, or note that cookies are off. Raises: UserFunctionFailed."""
        target = redirect_of(visit)
        if target is None or visit.response is None:
            return Step.PROCEED
        self._remember(visit.lease.url, _cookies_sent(visit.response.request))
        repeats = self._repeats(visit.lease, target)
        if repeats is None or repeats >= MAX_REPEATS:
            return Step.PROCEED
        now = self.cookies_for(target)
        if now is None:
            if "Set-Cookie" in visit.response.headers:
                visit.edited(visit.links, (*visit.notes, COOKIES_OFF), stopped_by=visit.stopped_by)
            return Step.PROCEED
        if _values(now) <= _values(self._asked.get(target, "")):
            return Step.PROCEED
        again = [one._replace(force=True) for one in self.candidates.judged(visit, [Link(target, REDIRECT)])]
        visit.discover([*(one for one in visit.discovered if one.url != target), *again])
        return Step.PROCEED

    def _repeats(self, lease: Lease, target: str) -> int | None:
        """The number of repeats of the target so far; None if it has not redirected here."""
        redirects = len(lease.hops) - len(lease.hops.rstrip(REDIRECT))
        if target == lease.url:
            return redirects if lease.via == target else 0
        is_known = target == lease.via or target in self._asked  # the first may have been asked for before a kill
        return redirects // 2 if is_known else None

    def _remember(self, url: str, cookies: str) -> None:
        self._asked[url] = cookies
        self._asked.move_to_end(url)
        if len(self._asked) > MAX_KEPT:
            self._asked.popitem(last=False)


def _values(cookies: str) -> set[str]:
    return set(filter(None, cookies.split("; ")))


def _cookies_sent(request: bytes) -> str:
    """The Cookie field of a request; empty without one."""
    lines = (line.partition(b": ") for line in request.split(b"\r\n"))
    return next((value.decode("latin-1") for name, _, value in lines if name.lower() == b"cookie"), "")
