"""From links and redirects to candidates: scope, similarity, surplus, sitemaps."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import structlog

from anabranch.crawler.extract.links import Link
from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.outcomes.userfunctions import KEY, RULE, UserFunctionFailed
from anabranch.crawler.processors import candidates
from anabranch.crawler.processors.candidates import (
    DropSimilar,
    FindCandidates,
    ScheduleSitemaps,
    ScheduleSurplus,
    is_seed_redirect,
    redirect_of,
)
from anabranch.crawler.processors.seen_urls import SeenUrls
from anabranch.crawler.robots.directives import Directives
from anabranch.crawler.scope.scope import open_scope
from anabranch.crawler.scope.similarity import SimilarUrlFilter
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.crawler.visit import MAX_LOST_NAMED, Step
from anabranch.dedup.similarity.filter import SimilarityParameters
from anabranch.frontier.errors import LeaseLost, StoreUnavailable
from anabranch.frontier.records import NEW, SEEN, Candidate, Outcome, OutcomeKind
from tests.crawler.builder import memory_frontier, response, visit
from tests.rows import each_row


class Crawl:
    """A scope of the host a.test, and the seeds that redirects brought."""

    def __init__(self, max_hops=20, known=None) -> None:
        self.scope = open_scope(ScopeSection(max_hops=max_hops, max_embeds=0))
        self.scope.add_seed("http://a.test/")
        self.new_seeds = []
        self.process = FindCandidates(self.scope, Canonicalizer(), self._new_seed, known)

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
    return lambda **given: Crawl(**given, known=SeenUrls(lambda keys: [True] * len(keys)) if asks else None)


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
    crawl, known = Crawl(), SeenUrls(lambda keys: [True] * len(keys))
    known.learn([Candidate("http://a.test/rule"), Candidate("http://a.test/1")], [NEW, SEEN])
    judged: list[list[Link]] = []
    crawl.scope.accepted = lambda links, hops, via: judged.append(list(links)) or links
    process = FindCandidates(crawl.scope, Canonicalizer(), crawl._new_seed, known)
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
    process = FindCandidates(crawl.scope, Canonicalizer(), crawl._new_seed, SeenUrls(unseen))
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
            raise UserFunctionFailed(KEY, "own:key", "fails")

    process = FindCandidates(crawl.scope, Failing(), crawl._new_seed)
    with pytest.raises(UserFunctionFailed):
        await process(moved("http://b.test/"))
    assert crawl.new_seeds == []


class Fussy:
    """A crawl whose functions fail for some URLs."""

    def __init__(self) -> None:
        self.crawl = Crawl()
        self.scope = self.crawl.scope
        self.process = FindCandidates(self, self, self.crawl._new_seed)

    def accepts(self, url, hops, via):
        if "rule" in url:
            raise UserFunctionFailed(RULE, "own:rule", "failed: KeyError: 'x'")
        return self.scope.accepts(url, hops, via)

    def key(self, url):
        if "key" in url:
            raise UserFunctionFailed(KEY, "own:key", "failed: KeyError: 'y'")


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
    assert (one.lost_links, len(one.lost)) == (1200, MAX_LOST_NAMED)


def test_a_sitemap_that_a_function_fails_for_is_lost_alone() -> None:
    """A function that fails for any other link loses that link alone, too."""
    one = visit()
    Fussy().process.find_sitemaps(one, ["/map.xml", "/rule.xml"])
    assert ([found.url for found in one.discovered], one.lost_links) == (["http://a.test/map.xml"], 1)


@pytest.mark.parametrize("kind", ["rule", "key"])
async def test_the_target_of_a_seeds_redirect_costs_the_seed(kind) -> None:
    """It fails and is tried again by the next run; as a page that was fetched well it would be lost for ever."""
    fussy = Fussy()
    with pytest.raises(UserFunctionFailed):
        await fussy.process(moved(f"http://b.test/{kind}"))
    assert fussy.crawl.new_seeds == []


async def test_the_redirect_of_a_page_makes_no_seed(make) -> None:
    """A link that leads out of scope in two steps leads out of scope."""
    crawl = make()
    assert await crawl.found(moved("http://b.test/", hops="L")) == []
    assert crawl.new_seeds == []


@each_row(("hops", "is_one"), [("", True), ("R", True), ("RRRR", True), ("RRRRR", False), ("L", False), ("RL", False)])
def test_a_seeds_redirects_are_five_at_most_and_redirects_all_the_way(hops, is_one) -> None:
    """The fifth target is a seed; where that one leads is a link."""
    assert is_seed_redirect(hops) is is_one


@pytest.mark.parametrize("location", ["http://[::1", "mailto:a@b.test", "ftp://a.test/", "http://a.test:99999/"])
async def test_a_location_that_is_no_web_address_is_ignored(make, location) -> None:
    """No candidate, no seed, no error."""
    crawl = make()
    assert await crawl.found(moved(location)) == []
    assert crawl.new_seeds == []


@each_row(
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
        crawl = Crawl(known=SeenUrls(frontier.core.unseen))
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
        await Crawl(known=SeenUrls(unseen)).process(one)


async def test_a_page_that_asks_for_it_leads_nowhere_but_to_what_belongs_to_it(make) -> None:
    """The links stay with the visit: they are what the page says."""
    crawl = make()
    crawl.scope = open_scope(ScopeSection(scope="any"))
    crawl.process = replace(crawl.process, scope=crawl.scope)
    one = visit(answer=response())
    one.directives = Directives(nofollow=True)
    one.links = [Link(f"http://a.test/{hop}", hop) for hop in "LERXIMS"]
    assert [found.hops for found in await crawl.found(one)] == ["E", "R", "I"]
    assert len(one.links) == 7


async def test_many_links_leave_the_loop_its_turn(make, monkeypatch) -> None:
    """They are judged in chunks, in order."""
    monkeypatch.setattr(candidates, "CHUNK", 2)
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
    with structlog.testing.capture_logs() as events:
        crawl.process.find_sitemaps(one, ["/map.xml", "http://b.test/map.xml", "//a.test/map.xml", "mailto:x"])
    assert one.discovered == [Candidate(url="http://a.test/map.xml", hops="LM")]
    (event,) = events
    assert (event["event"], event["lines"], event["first"]) == ("sitemap lines name no web URL", 1, ["mailto:x"])


async def test_candidates_beyond_a_chunk_go_ahead_of_the_pages_end(monkeypatch) -> None:
    """They are queued and known when the step is over, found on this page; the last chunk is left to the end."""
    monkeypatch.setattr(candidates, "CHUNK", 3)
    told, known = [], SeenUrls(lambda keys: [True] * len(keys))

    async def given(sent) -> None:
        told.extend(sent)

    async with memory_frontier("http://a.test/map.xml") as frontier:
        one = visit()
        one.lease = await frontier.lease()
        found = [Candidate(f"http://b.test/{number}", hops="M") for number in range(8)]
        one.discovered = list(found)
        assert await ScheduleSurplus(frontier, given, known)(one) is Step.PROCEED
        assert (one.discovered, told) == (found[5:], found[:5])
        assert known.unseen([Link(one.url, "L") for one in found]) == [Link(one.url, "L") for one in found[5:]]
        assert frontier.core.pending == 5
        assert (await frontier.lease()).via == "http://a.test/map.xml"


A, B, MIXED = "http://a.test/a/x", "http://a.test/b/y", "http://a.test/a/y"


class SimilarCrawl:
    """A filter over a folder, and a Frontier that notes when it is asked to be durable."""

    def __init__(self, similar) -> None:
        self.similar = similar
        self.flushed = 0
        self.unlike = DropSimilar(similar, self._flush)

    async def _flush(self) -> None:
        self.flushed += 1

    async def kept(self, *urls, hops="L"):
        one = visit()
        one.discovered = [Candidate(url, hops=hops) for url in urls]
        assert await self.unlike(one) is Step.PROCEED
        return [candidate.url for candidate in one.discovered]

    async def end(self, kind, *urls):
        """A page that led to these has ended so."""

        async def dispose(_):
            return kind

        one = visit()
        one.discovered = [Candidate(url) for url in urls]
        assert await self.unlike.learning_after(dispose)(one) is kind


async def opened(folder):
    return SimilarCrawl(await SimilarUrlFilter.open(folder, SimilarityParameters(expected=1000)))


@pytest.fixture
async def crawl(tmp_path):
    made = await opened(tmp_path / "similar")
    yield made
    await made.similar.close()


async def test_what_is_like_pages_that_have_ended_is_dropped(crawl) -> None:
    """Whatever ended them, if the Frontier took what they led to."""
    assert await crawl.kept(A, B, MIXED) == [A, B]
    assert await crawl.kept(A, B) == [A, B], "nothing was learnt of a page that has not ended"
    await crawl.end(OutcomeKind.DONE, A)
    await crawl.end(OutcomeKind.DEFERRED, B)
    assert await crawl.kept(A, B, MIXED, "http://b.test/") == ["http://b.test/"]


async def test_a_page_whose_lease_was_lost_teaches_nothing(crawl) -> None:
    """The Frontier did not take what it led to; it comes again, and so do its links."""
    await crawl.end(None, A, B)
    assert await crawl.kept(A, B) == [A, B]


async def test_the_target_of_a_redirect_is_taken_whatever_it_is_like(crawl) -> None:
    """It is the page itself, under its other name."""
    await crawl.end(OutcomeKind.DONE, A, B)
    assert await crawl.kept(MIXED, hops="LR") == [MIXED]


async def test_what_was_learnt_is_written_down_when_it_is_much_and_at_the_end(tmp_path, monkeypatch) -> None:
    """Each time only once the Frontier is durable; the next run knows it."""
    crawl = await opened(tmp_path / "similar")
    monkeypatch.setattr(candidates, "STORED_AT", 2)
    await crawl.end(OutcomeKind.DONE, A)
    assert (crawl.flushed, len(crawl.similar)) == (0, 0)
    await crawl.end(OutcomeKind.DONE, B)
    assert (crawl.flushed, len(crawl.similar)) == (1, 2)
    await crawl.end(OutcomeKind.DONE, "http://c.test/")
    await crawl.unlike.close()
    assert crawl.flushed == 2
    again = await opened(tmp_path / "similar")
    assert await again.kept(A, B, MIXED, "http://c.test/") == []
    await again.similar.close()


async def test_a_crash_makes_it_take_more_and_never_less(tmp_path) -> None:
    """The filter forgets the URLs that were not saved, and no others."""
    crawl = await opened(tmp_path / "similar")
    await crawl.end(OutcomeKind.DONE, A)
    await crawl.similar.store(crawl._flush)
    await crawl.end(OutcomeKind.DONE, B)
    await crawl.similar.close()  # without a last word, as a killed process leaves it
    again = await opened(tmp_path / "similar")
    assert await again.kept(A, B, MIXED) == [B]
    await again.similar.close()


async def test_the_filter_is_let_go_of_though_the_frontier_fails(tmp_path) -> None:
    """The error passes through, the folder is free."""
    crawl = await opened(tmp_path / "similar")

    async def broken() -> None:
        raise OSError("no store")

    unlike = DropSimilar(crawl.similar, broken)
    await unlike.learn([Candidate(A)])
    with pytest.raises(OSError, match="no store"):
        await unlike.close()
    await (await opened(tmp_path / "similar")).similar.close()


def finder():
    """Return a processor that finds candidates on the host a.test."""

    async def new_seed(url, via) -> None:
        raise AssertionError("a sitemap makes no seed")

    scope = open_scope(ScopeSection())
    scope.add_seed("http://a.test/")
    return FindCandidates(scope, Canonicalizer(), new_seed)


@pytest.fixture
async def frontier():
    async with memory_frontier("http://a.test/x/y") as opened:
        yield opened


async def announced(frontier, *lines, given=None, hops=""):
    """Announce the lines in the visit of the one URL that is queued; the visit."""
    one = visit(url="http://a.test/x/y", hops=hops)
    lease = await frontier.lease()
    one.lease = lease._replace(hops=hops)
    await ScheduleSitemaps(finder(), frontier, given)(one, lines)
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
