"""From links and redirects to candidates in scope."""

import pytest

from crawler.chain import Step
from crawler.extracting.links import Link
from crawler.orders.scope import ScopeSection
from crawler.processors.candidates import Candidates, is_seed_redirect, redirect_of
from crawler.scope.opening import open_scope
from crawler.urls.canonicalization import Canonicalizer
from frontier.models import Candidate
from tests.crawler.builder import response, visit


class Crawl:
    """A scope of the host a.test, and the seeds that redirects brought."""

    def __init__(self, max_hops=20) -> None:
        self.scope = open_scope(ScopeSection(max_hops=max_hops, max_embeds=0))
        self.scope.add_seed("http://a.test/")
        self.new_seeds = []
        self.process = Candidates(self.scope, Canonicalizer().key, self._new_seed)

    async def _new_seed(self, url, via) -> None:
        self.new_seeds.append((url, via))
        self.scope.add_seed(url)

    async def found(self, one):
        assert await self.process(one) is Step.PROCEED
        return one.discovered


def moved(location, *, status=301, hops="", url="http://a.test/"):
    return visit(url=url, hops=hops, answer=response(status, Location=location))


async def test_links_in_scope_become_candidates_with_one_hop_more() -> None:
    """The path of the page and the letter of the link; what is out of scope is left out."""
    one = visit(hops="LE", answer=response())
    one.links = [Link("http://a.test/1", "L"), Link("http://b.test/", "L"), Link("http://a.test/2", "E")]
    assert await Crawl().found(one) == [
        Candidate(url="http://a.test/1", hops="LEL"),
        Candidate(url="http://a.test/2", hops="LEE"),
    ]


async def test_a_link_that_is_a_hop_too_far_is_no_candidate() -> None:
    """The scope counts the new hop, too."""
    for hops, count in (("L", 1), ("LL", 0)):
        one = visit(hops=hops, answer=response())
        one.links = [Link("http://a.test/1", "L")]
        assert len(await Crawl(max_hops=2).found(one)) == count


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
async def test_a_redirect_is_a_link_with_the_hop_r(status) -> None:
    """It is resolved against the URL; the page's own links stay."""
    one = moved("/new", status=status, hops="L", url="http://a.test/old/")
    assert await Crawl().found(one) == [Candidate(url="http://a.test/new", hops="LR")]


async def test_the_target_of_a_seeds_redirect_becomes_a_seed_and_is_in_scope() -> None:
    """Though it lies on another host: the portal has moved."""
    crawl = Crawl()
    assert await crawl.found(moved("http://b.test/")) == [Candidate(url="http://b.test/", hops="R")]
    assert crawl.new_seeds == [("http://b.test/", "http://a.test/")]


async def test_the_redirect_of_a_page_makes_no_seed() -> None:
    """A link that leads out of scope in two steps leads out of scope."""
    crawl = Crawl()
    assert await crawl.found(moved("http://b.test/", hops="L")) == []
    assert crawl.new_seeds == []


@pytest.mark.parametrize(
    ("hops", "is_one"), [("", True), ("R", True), ("RRRR", True), ("RRRRR", False), ("L", False), ("RL", False)]
)
def test_a_seeds_redirects_are_five_at_most_and_redirects_all_the_way(hops, is_one) -> None:
    """The fifth target is a seed; where that one leads is a link."""
    assert is_seed_redirect(hops) is is_one


@pytest.mark.parametrize("location", ["http://[::1", "mailto:a@b.test", "ftp://a.test/", "http://a.test:99999/"])
async def test_a_location_that_is_no_web_address_is_ignored(location) -> None:
    """No candidate, no seed, no error."""
    crawl = Crawl()
    assert await crawl.found(moved(location)) == []
    assert crawl.new_seeds == []


@pytest.mark.parametrize(
    ("answer", "target"),
    [
        (None, None),
        (response(200, Location="/1"), None),
        (response(400, Location="/1"), None),
        (response(302), None),
        (response(302, Location="../x#part"), "http://a.test/x"),
    ],
)
def test_a_redirect_is_a_3xx_with_a_location(answer, target) -> None:
    """Nothing else says where to go."""
    assert redirect_of(visit(url="http://a.test/d/e", answer=answer)) == target
