"""The sitemaps that a robots.txt names are in the Frontier before anything else happens."""

import pytest

from anabranch.crawler.orders.scope import ScopeSection
from anabranch.crawler.processors.announcing import Announcer
from anabranch.crawler.processors.candidates import Candidates
from anabranch.crawler.scope.opening import open_scope
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.errors import LeaseLost
from anabranch.frontier.models import Outcome, OutcomeKind
from tests.crawler.builder import memory_frontier, visit


def finder():
    """What finds candidates on the host a.test."""

    async def new_seed(url, via) -> None:
        raise AssertionError("a sitemap makes no seed")

    scope = open_scope(ScopeSection())
    scope.add_seed("http://a.test/")
    return Candidates(scope, Canonicalizer(), new_seed).announce


@pytest.fixture
async def frontier():
    async with memory_frontier("http://a.test/x/y") as opened:
        yield opened


async def announced(frontier, *lines, given=None, hops=""):
    """Announce the lines in the visit of the one URL that is queued; the visit."""
    one = visit(url="http://a.test/x/y", hops=hops)
    lease = await frontier.lease()
    one.lease = lease._replace(hops=hops)
    await Announcer(finder(), frontier, given)(one, lines)
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


async def test_nothing_in_scope_says_nothing(frontier) -> None:
    """The Frontier is not asked."""
    one = await announced(frontier, "http://b.test/map.xml")
    assert await rest(frontier, one) == []
