"""Redirects that only set a cookie: A leads to A, or to a page that leads back, and answers once the cookie is sent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.crawler.extract.links import REDIRECT, Link
from anabranch.crawler.processors.candidates import FindCandidates, redirect_of
from anabranch.crawler.visit import Step, Visit
from anabranch.frontier.records import Lease

#: The most repeats of a URL in a round.
MAX_REPEATS = 3
#: The URLs that have redirected and are remembered, and the characters of these and of their cookies.
MAX_KEPT, MAX_KEPT_CHARS = 10_000, 4 << 20
#: The note of a redirect that needs cookies while `[fetch] cookies` is off.
COOKIES_OFF = "cookiesOff:fetch.cookies"


class _Asked(NamedTuple):
    """How a URL that redirected was asked for."""

    cookies: str = ""  #: the last Cookie field
    repeats: int = 0  #: how often it was scheduled once more


_NEVER = _Asked()


@dataclass(slots=True)
class RepeatForCookies:
    """Schedules the target of a redirect once more if it redirected itself, and would now be asked with a new cookie value.

    It waits at its gate like every URL. At most `MAX_REPEATS` times: they are counted here, since many pages may lead to one
    URL, and in its hops, whose last redirects hold for other workers and after a kill, too. Memory: `MAX_KEPT_CHARS`.
    """

    candidates: FindCandidates
    cookies_for: Callable[[str], str | None]  #: `Fetcher.cookies_for`
    _asked: OrderedDict[str, _Asked] = field(default_factory=OrderedDict)  #: by URL, the latest last
    _kept_chars: int = 0

    async def __call__(self, visit: Visit) -> Step:
        """Add the target to `visit.discovered`, or note that cookies are off. Raises: UserFunctionFailed."""
        target = redirect_of(visit)
        if target is None or visit.response is None:
            return Step.PROCEED
        url = visit.lease.url
        self._remember(url, self._asked.get(url, _NEVER)._replace(cookies=_cookies_sent(visit.response.request)))
        repeats, asked = self._repeats(visit.lease, target), self._asked.get(target, _NEVER)
        if repeats is None or max(repeats, asked.repeats) >= MAX_REPEATS:
            return Step.PROCEED
        now = self.cookies_for(target)
        if now is None:
            if "Set-Cookie" in visit.response.headers:
                visit.edited(visit.links, (*visit.notes, COOKIES_OFF), stopped_by=visit.stopped_by)
            return Step.PROCEED
        if _values(now) <= _values(asked.cookies):
            return Step.PROCEED
        again = [one._replace(force=True) for one in self.candidates.judged(visit, [Link(target, REDIRECT)])]
        visit.discover([*(one for one in visit.discovered if one.url != target), *again])
        if again:
            self._remember(target, asked._replace(repeats=asked.repeats + 1))
        return Step.PROCEED

    def _repeats(self, lease: Lease, target: str) -> int | None:
        """The number of repeats of the target so far; None if it has not redirected here."""
        redirects = len(lease.hops) - len(lease.hops.rstrip(REDIRECT))
        if target == lease.url:
            return redirects if lease.via == target else 0
        is_known = target == lease.via or target in self._asked  # the first may have been asked for before a kill
        return redirects // 2 if is_known else None

    def _remember(self, url: str, asked: _Asked) -> None:
        if (old := self._asked.pop(url, None)) is not None:
            self._kept_chars -= len(url) + len(old.cookies)
        self._asked[url] = asked
        self._kept_chars += len(url) + len(asked.cookies)
        while len(self._asked) > MAX_KEPT or self._kept_chars > MAX_KEPT_CHARS:
            url, old = self._asked.popitem(last=False)
            self._kept_chars -= len(url) + len(old.cookies)


def _values(cookies: str) -> set[str]:
    return set(filter(None, cookies.split("; ")))


def _cookies_sent(request: bytes) -> str:
    """The Cookie field of a request; empty without one."""
    lines = (line.partition(b": ") for line in request.split(b"\r\n"))
    return next((value.decode("latin-1") for name, _, value in lines if name.lower() == b"cookie"), "")
