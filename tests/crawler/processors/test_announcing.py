"""The sitemaps that a robots.txt names are in the Frontier before anything else happens."""

import pytest

from crawler.orders.scope import ScopeSection
from crawler.outcomes.ownfunctions import OwnFunctionFailed
from crawler.processors.announcing import Announcer
from crawler.scope.opening import open_scope
from crawler.urls.canonicalization import Canonicalizer
from frontier.errors import LeaseLost
from frontier.models import Outcome, OutcomeKind
from tests.crawler.builder import memory_frontier, visit

KEY = Canonicalizer().key


def scope_of(*seeds):
    scope = open_scope(ScopeSection())
    for seed in seeds:
        scope.add_seed(seed)
    return scope


@pytest.fixture
async def frontier():
    async with memory_frontier("http://a.test/x/y") as opened:
        yield opened


async def announced(frontier, *lines, key=KEY, given=None, hops=""):
    """Announce the lines in the visit of the one URL that is queued; the visit."""
    one = visit(url="http://a.test/x/y", hops=hops)
    lease = await frontier.lease()
    one.lease = lease._replace(hops=hops)
    await Announcer(scope_of("http://a.test/"), key, frontier, given)(one, lines)
    one.lease = lease
    return one


async def rest(frontier, one):
    """The URLs and hops that are queued beside the visit's."""
    frontier.finish(one.lease, Outcome(OutcomeKind.DONE))
    found = []
    while frontier.core.pending:
        lease = await frontier.lease()
        found.append((lease.url, lease.hops, lease.via))
        frontier.finish(lease, Outcome(OutcomeKind.DONE))
    return found


async def test_sitemaps_are_the_hosts_and_in_scope(frontier) -> None:
    """Hop M, resolved; not behind the sitemap that happened to be asked for first. `given` is told of them."""
    told = []

    async def given(candidates) -> None:
        told.extend(candidate.url for candidate in candidates)

    lines = ("/map.xml", "http://b.test/map.xml", "//a.test/map.xml", "mailto:x")
    one = await announced(frontier, *lines, given=given, hops="LM")
    assert (one.discovered, told) == ([], ["http://a.test/map.xml"])
    assert await rest(frontier, one) == [("http://a.test/map.xml", "LM", "http://a.test/x/y")]


async def test_a_lease_that_is_lost_loses_no_sitemap(frontier) -> None:
    """They do not go with the page's end, which the Frontier refuses then."""
    one = await announced(frontier, "/map.xml")
    frontier.release(one.lease)
    with pytest.raises(LeaseLost):
        frontier.finish(one.lease, Outcome(OutcomeKind.DEFERRED))
    assert frontier.core.pending == 2


async def test_a_sitemap_for_which_an_own_function_fails_costs_no_other(frontier) -> None:
    """Nor does the page fail for it: it is not the page's link."""

    def key(url):
        if "bad" in url:
            raise OwnFunctionFailed("own:key failed: x")

    one = await announced(frontier, "/1.xml", "/bad.xml", "/2.xml", key=key)
    assert [url for url, _, _ in await rest(frontier, one)] == ["http://a.test/1.xml", "http://a.test/2.xml"]


async def test_nothing_in_scope_says_nothing(frontier) -> None:
    """The Frontier is not asked."""
    one = await announced(frontier, "http://b.test/map.xml")
    assert await rest(frontier, one) == []
