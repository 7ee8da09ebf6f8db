"""Retrieving a robots.txt (RFC 9309, 2.3): where it is, its redirects, and what an answer means.

| answer | meaning | cached for (`cache`) |
|---|---|---|
| 2xx | the rules in its body | `lifetime_s` |
| 4xx; 3xx that leads nowhere or too far | there are no rules: everything is allowed | `lifetime_s` |
| 429, 5xx, no answer | the rules are unknown: nothing is allowed, or all after a time | `unreachable_s`, after several tries |

At most five redirects are followed, at once, under the lease of the first fetch (2.3.1.2), without the gate of another host. So
the rules of such a host are cached: a robots.txt that many origins redirect to is fetched once in its lifetime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from anabranch.crawler.fetch.options import FetchLimits
from anabranch.crawler.outcomes.failures import UNTRIED, FetchError, ProxyRefused
from anabranch.crawler.robots.rules import ALLOW_ALL, DISALLOW_ALL, MAX_ROBOTS_BYTES, RobotsRules, parse_robots
from anabranch.crawler.urls.parsing import authority_of, canonical

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from anabranch.crawler.fetch.response import Response

#: The most redirects of a robots.txt that are followed.
MAX_REDIRECTS = 5
#: The most bytes of a body that are fetched: one more than are read, to notice a cut.
MAX_BODY_BYTES = MAX_ROBOTS_BYTES + 1

#: Failures of a redirect's target that say nothing about its host.
_NOT_THE_HOSTS = (ProxyRefused, *UNTRIED)
_TOO_MANY_REQUESTS = 429


def robots_url(url: str) -> str:
    """The robots.txt of a canonical http(s) URL: "https://a.test:8443/robots.txt". It identifies the origin as well."""
    return f"{url.partition('://')[0]}://{authority_of(url)}/robots.txt"


class Followed(NamedTuple):
    """The result of following the redirects of a robots.txt."""

    response: Response  #: the last one, with the start of the first fetch
    url: str  #: the last URL that was fetched, or that has known rules
    is_redirected: bool
    is_lost: bool = False  #: a redirect's target did not answer; the response is the redirect itself
    rules: RobotsRules | None = None  #: the known rules of the last redirect's target, which was not fetched


async def follow_redirects(
    get: Callable[..., Awaitable[Response]],
    url: str,
    timeout_s: float,
    known: Callable[[str], RobotsRules | None] | None = None,
) -> Followed:
    """Fetch a robots.txt by `get` (`Fetcher.get`), and follow at most five redirects, up to rules that are `known`.

    All fetches together have `timeout_s`. Raises: FetchError of the first fetch; ProxyRefused and `UNTRIED` of any.
    """
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + timeout_s
    first = await get(url, limits=FetchLimits(timeout_s, MAX_BODY_BYTES))
    found = Followed(first, url, is_redirected=False)
    for _ in range(MAX_REDIRECTS):
        location = found.response.location
        target = None if location is None else canonical(location, found.url)
        if target is None:
            break
        found = found._replace(url=target, is_redirected=True, rules=None if known is None else known(target))
        if found.rules is not None:
            break
        try:
            response = await get(target, limits=FetchLimits(max(until_s - now_s(), 0.0), MAX_BODY_BYTES))
        except BaseException as error:
            if isinstance(error, FetchError) and not isinstance(error, _NOT_THE_HOSTS):
                found = found._replace(is_lost=True)
                break
            found.response.body.close()
            raise
        found.response.body.close()
        found = found._replace(response=response._replace(start_s=first.start_s))
    return found


def rules_of(status: int, body: bytes, product: str, *, is_cut: bool = False) -> RobotsRules:
    """The rules of the answer at the end of all redirects; `status` below 0: no answer. `is_cut`: see `parse_robots`.

    An answer of which nothing can be read, such as one that cannot be decoded, counts as none.
    """
    if 200 <= status <= 299:
        return DISALLOW_ALL if is_cut and not body else parse_robots(body, product, is_cut=is_cut)
    if 300 <= status <= 499 and status != _TOO_MANY_REQUESTS:
        return ALLOW_ALL
    return DISALLOW_ALL
