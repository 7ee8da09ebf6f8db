"""Redirects of a robots.txt (RFC 9309, 2.3.1.2): at most five, followed at once, under the slot of the first fetch.

Each hop is a fetch like any other: its host is looked up, its addresses are judged, its proxy is used. But the gate of another
host is not asked. So what such a host has answered is remembered: a robots.txt that many origins lead to is asked for once in
its lifetime. Other URLs of a host may be asked for up to five times in that time for each origin that leads there, one after
the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from anabranch.crawler.fetching.options import Limits
from anabranch.crawler.fetching.response import Response
from anabranch.crawler.outcomes.failures import FetchError, KeptConnectionClosed, OutOfFiles
from anabranch.crawler.robots.parsing import MAX_ROBOTS_BYTES, RobotsRules
from anabranch.crawler.urls.parsing import canonical

#: Redirects of a robots.txt that are followed.
MAX_REDIRECTS = 5

#: Failures of a redirect's target that say nothing of the host that it leads to.
_NOT_THE_HOSTS = (OutOfFiles, KeptConnectionClosed)

#: What is fetched of a body: one byte more than is read, so that it is known to be cut.
MAX_BODY_BYTES = MAX_ROBOTS_BYTES + 1


class Get(Protocol):
    """A fetch, as `Fetcher.get`."""

    def __call__(self, url: str, *, limits: Limits) -> Awaitable[Response]:
        """The answer."""


class Followed(NamedTuple):
    """Where the redirects of a robots.txt led."""

    response: Response  #: the last one that there was, with the times of the whole
    url: str  #: the last URL that was asked for, or whose rules are known
    is_redirected: bool
    is_lost: bool = False  #: a redirect led to no answer; the response is the redirect itself
    rules: RobotsRules | None = None  #: known already, so that the redirect to them was the last thing asked for


async def follow_redirects(
    get: Get, url: str, timeout_s: float, known: Callable[[str], RobotsRules | None] = lambda _: None
) -> Followed:
    """Follow at most five redirects of a robots.txt, up to rules that are `known`.

    All together have so many seconds; of a body no more is read than counts. Raises: FetchError of the first fetch; OutOfFiles
    and KeptConnectionClosed of any.
    """
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + timeout_s
    first = response = await get(url, limits=Limits(timeout_s, MAX_BODY_BYTES))
    found = Followed(first, url, is_redirected=False)
    for _ in range(MAX_REDIRECTS):
        target = _target_of(response, found.url)
        if target is None:
            break
        found = found._replace(url=target, is_redirected=True, rules=known(target))
        if found.rules is not None:
            break
        try:
            response = await get(target, limits=Limits(max(until_s - now_s(), 0.0), MAX_BODY_BYTES))
        except BaseException as error:
            if isinstance(error, FetchError) and not isinstance(error, _NOT_THE_HOSTS):
                found = found._replace(is_lost=True)
                break
            found.response.body.close()
            raise
        found.response.body.close()
        found = found._replace(response=response.beginning(first.start_s))
    return found


def _target_of(response: Response, url: str) -> str | None:
    """Where a redirect leads; None if it is none, or leads nowhere."""
    return None if response.location is None else canonical(response.location, url)
