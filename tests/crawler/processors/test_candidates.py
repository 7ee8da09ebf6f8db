"""From links and redirects to candidates in scope."""

import asyncio

import pytest
import structlog

from anabranch.crawler.chain import Step
from anabranch.crawler.extracting.links import Link
from anabranch.crawler.orders.scope import ScopeSection
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.outcomes.ownfunctions import KEY, RULE, OwnFunctionFailed
from anabranch.crawler.processors import candidates as module
from anabranch.crawler.processors.candidates import Ahead, Candidates, is_seed_redirect, redirect_of
from anabranch.crawler.processors.known import Known
from anabranch.crawler.robots.directives import Directives
from anabranch.crawler.scope.opening import open_scope
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.models import NEW, SEEN, Candidate, Outcome, OutcomeKind
from tests.crawler.builder import memory_frontier, response, visit


class Crawl:
    """A scope of the host a.test, and the seeds that redirects brought."""

    def __init__(self, max_hops=20, known=None) -> None:
        self.scope = open_scope(ScopeSection(max_hops=max_hops, max_embeds=0))
        self.scope.add_seed("http://a.test/")
        self.new_seeds = []
        self.process = Candidates(self.scope, Canonicalizer(), self._new_seed, known)

    async def _new_seed(self, url, via) -> None:
        self.new_seeds.append((url, via))
        self.scope.add_seed(url)

    async def found(self, one):
        assert await self.process(one) is Step.PROCEED
        return one.discovered


@pytest.fixture(params=["one by one", "together"])
def make(request):
    """Makes crawls whose links are judged so; the answers are the same."""
    asks = request.param == "together"
    return lambda **given: Crawl(**given, known=Known(lambda keys: [True] * len(keys)) if asks else None)


def moved(location, *, status=301, hops="", url="http://a.test/"):
    return visit(url=url, hops=hops, answer=response(status, Location=location))


async def test_links_in_scope_become_candidates_with_one_hop_more(make) -> None:
    """The path of the page and the letter of the link; what is out of scope is left out."""
    one = visit(hops="LE", answer=response())
    one.links = [Link("http://a.test/1", "L"), Link("http://b.test/", "L"), Link("http://a.test/2", "E")]
    assert await make().found(one) == [
        Candidate(url="http://a.test/1", hops="LEL"),
        Candidate(url="http://a.test/2", hops="LEE"),
    ]


async def test_a_link_that_is_known_is_no_candidate_and_is_not_judged() -> None:
    """The Frontier would only call it seen. It stays a link of the page."""
    crawl, known = Crawl(), Known(lambda keys: [True] * len(keys))
    known.learn([Candidate("http://a.test/rule"), Candidate("http://a.test/1")], [NEW, SEEN])
    judged: list[list[Link]] = []
    crawl.scope.accepted = lambda links, hops, via: judged.append(list(links)) or links
    process = Candidates(crawl.scope, Canonicalizer(), crawl._new_seed, known)
    one = visit(answer=response())
    one.links = [Link(f"http://a.test/{name}", "L") for name in ("1", "rule", "2")]
    await process(one)
    assert [found.url for found in one.discovered] == ["http://a.test/2"]
    assert (len(one.links), judged) == (3, [one.links[2:]])


async def test_a_link_that_the_frontier_has_is_no_candidate() -> None:
    """It is asked of many at once, by their keys, and only of those in scope."""
    asked: list[bytes] = []

    def unseen(keys):
        asked.extend(keys)
        return [not key.endswith((b"1", b"/p")) for key in keys]

    crawl = Crawl()
    process = Candidates(crawl.scope, Canonicalizer(), crawl._new_seed, Known(unseen))
    one = visit(hops="L", answer=response())
    session = "http://a.test/p;jsessionid=0123456789abcdef"
    one.links = [Link(f"http://{name}", "L") for name in ("a.test/1", "b.test/", "a.test/2", "a.test/3", "a.test/21")]
    one.links += [Link(session, "L"), Link("http://a.test/4;jsessionid=0123456789abcdef", "E")]
    await process(one)
    assert asked == [b"http://a.test/1", b"http://a.test/2", b"http://a.test/3", b"http://a.test/21", b"http://a.test/p",
                     b"http://a.test/4"]  # fmt: skip
    assert one.discovered == [
        Candidate(url="http://a.test/2", hops="LL"),
        Candidate(url="http://a.test/3", hops="LL"),
        Candidate(url=one.links[6].url, key=b"http://a.test/4", hops="LE"),
    ]


async def test_a_link_that_is_a_hop_too_far_is_no_candidate(make) -> None:
    """The scope counts the new hop, too."""
    for hops, count in (("L", 1), ("LL", 0)):
        one = visit(hops=hops, answer=response())
        one.links = [Link("http://a.test/1", "L")]
        assert len(await make(max_hops=2).found(one)) == count


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
async def test_a_redirect_is_a_link_with_the_hop_r(make, status) -> None:
    """It is resolved against the URL; the page's own links stay."""
    one = moved("/new", status=status, hops="L", url="http://a.test/old/")
    assert await make().found(one) == [Candidate(url="http://a.test/new", hops="LR")]


async def test_the_target_of_a_seeds_redirect_becomes_a_seed_and_is_in_scope(make) -> None:
    """Though it lies on another host: the portal has moved."""
    crawl = make()
    assert await crawl.found(moved("http://b.test/")) == [Candidate(url="http://b.test/", hops="R")]
    assert crawl.new_seeds == [("http://b.test/", "http://a.test/")]


async def test_a_seeds_redirect_that_cannot_be_keyed_makes_no_seed() -> None:
    """The book is for ever: the job could never be opened again."""
    crawl = Crawl()

    class Failing(Canonicalizer):
        def key(self, url):
            raise OwnFunctionFailed(KEY, "own:key", "fails")

    process = Candidates(crawl.scope, Failing(), crawl._new_seed)
    with pytest.raises(OwnFunctionFailed):
        await process(moved("http://b.test/"))
    assert crawl.new_seeds == []


class Fussy:
    """A crawl whose functions fail for some URLs."""

    def __init__(self) -> None:
        self.crawl = Crawl()
        self.scope = self.crawl.scope
        self.process = Candidates(self, self, self.crawl._new_seed)

    def accepts(self, url, hops, via):
        if "rule" in url:
            raise OwnFunctionFailed(RULE, "own:rule", "failed: KeyError: 'x'")
        return self.scope.accepts(url, hops, via)

    def key(self, url):
        if "key" in url:
            raise OwnFunctionFailed(KEY, "own:key", "failed: KeyError: 'y'")


@pytest.mark.parametrize("kind", ["rule", "key"])
async def test_a_function_that_fails_for_a_link_costs_that_link(kind) -> None:
    """The others are found; the operator hears of it once for the page."""
    one = visit(hops="L", answer=response())
    one.links = [Link(f"http://a.test/{name}", "L") for name in ("1", kind, "2", f"{kind}2")]
    with structlog.testing.capture_logs() as events:
        await Fussy().process(one)
    assert [found.url for found in one.discovered] == ["http://a.test/1", "http://a.test/2"]
    assert one.lost_links == 2
    assert [(lost.url, lost.hops) for lost in one.lost] == [
        (f"http://a.test/{kind}", "LL"),
        (f"http://a.test/{kind}2", "LL"),
    ]
    (event,) = events
    words = {"rule": "rule", "key": "key function"}[kind]
    assert (event["event"], event["function"], event["links"]) == (f"{words} failed for links", f"own:{kind}", 2)


async def test_of_many_links_that_are_lost_some_are_kept() -> None:
    """A page has up to thousands; all are counted."""
    one = visit(answer=response())
    one.links = [Link(f"http://a.test/rule{number}", "L") for number in range(1200)]
    await Fussy().process(one)
    assert (one.lost_links, len(one.lost)) == (1200, module.MAX_LOST_TOLD)


def test_a_sitemap_that_a_function_fails_for_is_lost_alone() -> None:
    """As any link."""
    one = visit()
    Fussy().process.announce(one, ["/map.xml", "/rule.xml"])
    assert ([found.url for found in one.discovered], one.lost_links) == (["http://a.test/map.xml"], 1)


@pytest.mark.parametrize("kind", ["rule", "key"])
async def test_the_target_of_a_seeds_redirect_costs_the_seed(kind) -> None:
    """It fails and is tried again by the next run; as a page that was fetched well it would be lost for ever."""
    fussy = Fussy()
    with pytest.raises(OwnFunctionFailed):
        await fussy.process(moved(f"http://b.test/{kind}"))
    assert fussy.crawl.new_seeds == []


async def test_the_redirect_of_a_page_makes_no_seed(make) -> None:
    """A link that leads out of scope in two steps leads out of scope."""
    crawl = make()
    assert await crawl.found(moved("http://b.test/", hops="L")) == []
    assert crawl.new_seeds == []


@pytest.mark.parametrize(
    ("hops", "is_one"), [("", True), ("R", True), ("RRRR", True), ("RRRRR", False), ("L", False), ("RL", False)]
)
def test_a_seeds_redirects_are_five_at_most_and_redirects_all_the_way(hops, is_one) -> None:
    """The fifth target is a seed; where that one leads is a link."""
    assert is_seed_redirect(hops) is is_one


@pytest.mark.parametrize("location", ["http://[::1", "mailto:a@b.test", "ftp://a.test/", "http://a.test:99999/"])
async def test_a_location_that_is_no_web_address_is_ignored(make, location) -> None:
    """No candidate, no seed, no error."""
    crawl = make()
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


# Keys, what pages ask, many links


async def test_a_candidate_carries_the_key_by_which_dedup_knows_it(make) -> None:
    """None if that is the URL itself."""
    one = visit(answer=response())
    session = "http://a.test/p;jsessionid=0123456789abcdef"
    one.links = [Link("http://a.test/1", "L"), Link(session, "L")]
    assert [found.key for found in await make().found(one)] == [None, b"http://a.test/p"]


async def test_a_candidate_carries_the_payload_of_its_page(make) -> None:
    """By which its seed is known."""
    one = visit(answer=response())
    one.lease = one.lease._replace(payload=b"tag")
    one.links = [Link(f"http://a.test/{number}", "L") for number in range(6)]
    assert [found.payload for found in await make().found(one)] == [b"tag"] * 6


async def test_two_pages_that_bring_the_same_link_at_once_bring_it_once() -> None:
    """Both are told that it is new; the Frontier takes it from the first that ends."""
    async with memory_frontier("http://a.test/1", "http://b.test/2") as frontier:
        crawl = Crawl(known=Known(frontier.core.unseen))
        pages = [visit(answer=response()) for _ in range(2)]
        for one in pages:
            one.lease = await frontier.lease()
            one.links = [Link(f"http://a.test/x{number}", "L") for number in range(5)]
        await asyncio.gather(*map(crawl.process, pages))
        assert [len(one.discovered) for one in pages] == [5, 5]
        done = Outcome(OutcomeKind.DONE, 200)
        verdicts = [frontier.finish(one.lease, done, one.discovered) for one in pages]
        assert verdicts == [[NEW] * 5, [SEEN] * 5]


@pytest.mark.parametrize(
    ("failure", "told"), [(StoreUnavailable("gone"), StoreUnavailable), (MemoryError(), CrawlerError)]
)
async def test_a_filter_that_fails_ends_the_crawl_and_not_the_page(failure, told) -> None:
    """A page that ended without its links would never be read again."""

    def unseen(keys):
        raise failure

    one = visit(answer=response())
    one.links = [Link(f"http://a.test/{number}", "L") for number in range(5)]
    with pytest.raises(told):
        await Crawl(known=Known(unseen)).process(one)


async def test_a_page_that_asks_for_it_leads_nowhere_but_to_what_belongs_to_it(make) -> None:
    """The links stay with the visit: they are what the page says."""
    crawl = make()
    crawl.scope = open_scope(ScopeSection(scope="any"))
    crawl.process._scope = crawl.scope
    one = visit(answer=response())
    one.asked = Directives(nofollow=True)
    one.links = [Link(f"http://a.test/{hop}", hop) for hop in "LERXIMS"]
    assert [found.hops for found in await crawl.found(one)] == ["E", "R", "I"]
    assert len(one.links) == 7


async def test_many_links_leave_the_loop_its_turn(make, monkeypatch) -> None:
    """They are judged in chunks, in order."""
    monkeypatch.setattr(module, "CHUNK", 2)
    one = visit(answer=response())
    one.links = [Link(f"http://a.test/{number}", "M") for number in range(7)]
    turn = asyncio.create_task(asyncio.sleep(0))
    found = await make().found(one)
    assert turn.done()
    assert [candidate.url for candidate in found] == [link.url for link in one.links]


def test_the_sitemaps_of_a_robots_txt_are_the_hosts(make) -> None:
    """Hop M, resolved, in scope; not behind the sitemap that happened to be asked for first."""
    crawl = make()
    one = visit(url="http://a.test/x/y", hops="LM")
    crawl.process.announce(one, ["/map.xml", "http://b.test/map.xml", "//a.test/map.xml", "mailto:x"])
    assert one.discovered == [Candidate(url="http://a.test/map.xml", hops="LM")]


async def test_candidates_beyond_a_chunk_go_ahead_of_the_pages_end(monkeypatch) -> None:
    """They are queued and known when the step is over, found on this page; the last chunk is left to the end."""
    monkeypatch.setattr(module, "CHUNK", 3)
    told, known = [], Known(lambda keys: [True] * len(keys))

    async def given(candidates) -> None:
        told.extend(candidates)

    async with memory_frontier("http://a.test/map.xml") as frontier:
        one = visit()
        one.lease = await frontier.lease()
        candidates = [Candidate(f"http://b.test/{number}", hops="M") for number in range(8)]
        one.discovered = list(candidates)
        assert await Ahead(frontier, given, known)(one) is Step.PROCEED
        assert (one.discovered, told) == (candidates[5:], candidates[:5])
        assert known.unknown([Link(one.url, "L") for one in candidates]) == [
            Link(one.url, "L") for one in candidates[5:]
        ]
        assert frontier.core.pending == 5
        assert (await frontier.lease()).via == "http://a.test/map.xml"
