"""The two steps of every page: fetch, and read the links."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.extract.extractor import Extractor, Sandbox
from anabranch.crawler.extract.links import ExtractOptions, Link
from anabranch.crawler.fetch.options import Validators
from anabranch.crawler.fetch.response import Cut, PageHead, Response
from anabranch.crawler.job.seeds import Seed, SourceTags
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import BodyEntry
from anabranch.crawler.outcomes.failures import BodyBroken, ConnectFailed
from anabranch.crawler.processors import page
from anabranch.crawler.processors.disposition import decide
from anabranch.crawler.processors.page import BodyCheck, ExtractPage, FetchPage, directives_for
from anabranch.crawler.processors.recorder import visit_annotations
from anabranch.crawler.scope.body import body_rules_of
from anabranch.crawler.visit import ChainDecision, Step, Visit
from anabranch.frontier.records import HostTrouble, OutcomeKind
from tests.crawler.builder import END_S, START_S, clock, lease, response, settle, visit

BODY = b'<html><a href="/1">one</a><img src="2.png"></html>'
LINKS = [Link("http://a.test/1", "L", "a/@href"), Link("http://a.test/2.png", "E", "img/@src")]


def answered(status=200, body=BODY, **headers):
    return visit(answer=response(status, body, **({"Content_Type": "text/html"} | headers)))


async def extract(one, heed=None, **options):
    sandbox = Sandbox()
    try:
        return await ExtractPage(Extractor(ExtractOptions(**options), sandbox), heed)(one)
    finally:
        await sandbox.close()


@pytest.mark.parametrize(
    ("location", "notes"),
    [
        ("http://[bad/", ("noURL:Location",)),
        ("javascript:history.back()", ("noURL:Location",)),
        ("http://a.test/1", ()),
        ("", ()),
    ],
)
async def test_a_redirect_to_no_web_url_is_noted(location, notes) -> None:
    """Its target is lost, and the page's line says so."""
    one = answered(302, b"", Location=location)
    assert await extract(one) is Step.PROCEED
    assert (one.links, one.notes) == ([], notes)


async def test_the_answer_is_kept_whatever_its_status() -> None:
    """Later processors decide what the status means."""
    answer = response(500)
    asked = []

    async def get(url, **_):
        asked.append(url)
        return answer

    one = visit(url="http://a.test/x")
    assert await FetchPage(get)(one) is Step.PROCEED
    assert (asked, one.response) == (["http://a.test/x"], answer)


class ArchivedResponses:
    """Has one answer of one URL, or has lost it."""

    def __init__(self, answer):
        self._answer = answer

    async def validators(self, url):
        return {"http://a.test/x": Validators(etag='"1"')}.get(url)

    async def answer(self, url):
        return self._answer


async def test_the_links_of_a_page_that_has_not_changed_are_those_of_its_earlier_answer() -> None:
    """A 304 has no page; another round would end at its seeds."""
    earlier = response(200, BODY, Content_Type="text/html")

    async def get(url, **_):
        return response(304)

    one = visit(url="http://a.test/x")
    await FetchPage(get, ArchivedResponses(earlier))(one)
    await extract(one)
    assert (one.status, one.archived, one.links) == (304, earlier, LINKS)


class Server:
    """Says 304 to whoever asks with a condition, and notes what it was asked."""

    def __init__(self):
        self.asked = []

    async def get(self, url, *, conditional=None, via=None, keep_broken=False, wants_body=None):
        self.asked.append(conditional)
        return response(200 if conditional is None else 304)


async def test_a_page_that_the_archive_has_lost_goes_back_and_is_asked_for_without_condition() -> None:
    """The server would say again that nobody needs it. Another fetch waits at the gate, behind the rest of the first."""
    server = Server()
    fetch = FetchPage(server.get, ArchivedResponses(None))
    one = visit(url="http://a.test/x")
    assert await fetch(one) is Step.STOP
    decided = decide(one, clock())
    assert (decided.kind, decided.start_s, decided.end_s) == (OutcomeKind.DEFERRED, START_S, END_S)
    two = visit(url="http://a.test/x")
    assert await fetch(two) is Step.PROCEED
    assert (two.status, two.archived, two.decision) == (200, None, ChainDecision.NONE)
    assert server.asked == [Validators(etag='"1"'), None]
    await fetch(visit(url="http://a.test/x"))
    assert server.asked[2:] == [Validators(etag='"1"')], "once: it may be at hand again"


async def test_pages_that_come_again_are_remembered_within_bounds(monkeypatch) -> None:
    """The oldest is forgotten, which costs its host another 304."""
    monkeypatch.setattr(page, "MAX_UNCONDITIONAL", 2)
    server, archive = Server(), ArchivedResponses(None)

    async def validators(_url):
        return Validators(etag='"1"')

    archive.validators = validators
    fetch = FetchPage(server.get, archive)
    for number in (0, 1, 2, 3, 4, 4, 3, 2):
        await fetch(visit(url=f"http://a.test/{number}"))
    assert [validators is None for validators in server.asked] == [*[False] * 5, True, True, False]


async def test_an_earlier_answer_that_is_read_while_the_visit_is_cancelled_is_the_visits() -> None:
    """So it is closed: it may hold a file, which nobody else knows of."""
    is_asked, may_answer = asyncio.Event(), asyncio.Event()
    earlier = response(200, BODY)

    class Slow(ArchivedResponses):
        async def answer(self, url):
            is_asked.set()
            await may_answer.wait()
            return earlier

    one = visit(url="http://a.test/x")
    fetching = asyncio.create_task(FetchPage(Server().get, Slow(None))(one))
    await is_asked.wait()
    fetching.cancel()
    await settle()
    may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert one.archived is earlier


async def test_a_304_that_nobody_asked_for_stands() -> None:
    """Asking again would bring the same."""
    asked = []

    async def get(url, **options):
        asked.append(options)
        return response(304)

    one = visit(url="http://a.test/unknown")
    await FetchPage(get, ArchivedResponses(response(200)))(one)
    assert (len(asked), one.status, one.archived) == (1, 304, None)


async def test_what_is_known_of_a_page_and_where_it_was_found_is_told() -> None:
    """The fetcher decides what to make of it: a conditional GET, a Referer."""
    asked = []

    async def get(url, **options):
        asked.append(options)
        return response(304)

    fetch = FetchPage(get, ArchivedResponses(response(200)))
    for url in ("http://a.test/x", "http://a.test/y"):
        await fetch(Visit(lease(url, via="http://a.test/"), 1))
    assert asked == [
        {"conditional": Validators(etag='"1"'), "via": "http://a.test/", "keep_broken": True, "wants_body": None},
        {"conditional": None, "via": "http://a.test/", "keep_broken": True, "wants_body": None},
    ]


def broken_off(body=b"half", status=200):
    """A fetch of a page whose body breaks off."""

    async def get(url, **_):
        return response(status, body, cuts=(Cut.DISCONNECT,))

    return FetchPage(get)


async def test_a_body_that_breaks_off_is_tried_again_and_kept_after_the_last_try() -> None:
    """The third try has an answer, with the HTTP status; until then the URL has failed, and its answer is known."""
    for attempts in (0, 1):
        one = visit(attempts=attempts)
        with pytest.raises(BodyBroken, match=r"^the body broke off after 4 bytes$") as caught:
            await broken_off()(one)
        assert (one.response.status, caught.value.start_s, caught.value.end_s) == (200, START_S, END_S)
    last = visit(attempts=2)
    assert await broken_off()(last) is Step.PROCEED
    assert (last.status, last.response.body.read(), visit_annotations(last)) == (200, b"half", ("3t", "midFetchTrunc"))


@pytest.mark.parametrize(("location", "is_followed"), [("/next", True), ("", False), (None, False)])
async def test_a_redirect_is_an_answer_whatever_its_body(location: str | None, is_followed: bool) -> None:
    """Browsers follow it by its head. Without a `Location` it is a page like others."""
    fields = {} if location is None else {"Location": location}
    moved = response(302, b"")._replace(cuts=(Cut.DISCONNECT,), headers=CIMultiDictProxy(CIMultiDict(fields)))

    async def get(url, **_):
        return moved

    one = visit()
    if is_followed:
        assert await FetchPage(get)(one) is Step.PROCEED
        assert one.response is moved
    else:
        with pytest.raises(BodyBroken):
            await FetchPage(get)(one)


async def test_a_body_of_which_nothing_came_is_no_answer_at_any_try() -> None:
    """The fetch fails as it does for a body that comes too late."""
    with pytest.raises(BodyBroken):
        await broken_off(b"")(visit(attempts=2))


async def test_a_busy_host_has_its_own_tries_though_its_body_breaks_off() -> None:
    """It is told by its status."""
    one = visit()
    assert await broken_off(status=503)(one) is Step.PROCEED
    assert one.is_busy


async def test_a_fetch_that_fails_passes_its_error_on() -> None:
    """It ends the chain; the visit has no answer."""

    async def get(url, **_):
        raise ConnectFailed("refused")

    one = visit()
    with pytest.raises(ConnectFailed):
        await FetchPage(get)(one)
    assert one.response is None


@pytest.mark.parametrize("status", [200, 201, 299])
async def test_links_are_read_from_a_page_that_was_answered_with_2xx(status) -> None:
    """They are resolved against the page's URL."""
    one = answered(status)
    assert await extract(one) is Step.PROCEED
    assert one.links == LINKS


@pytest.mark.parametrize("status", [199, 300, 301, 404, 500])
async def test_other_answers_have_no_links_of_interest(status) -> None:
    """An error page leads to the places that every page leads to."""
    one = answered(status)
    assert await extract(one) is Step.PROCEED
    assert one.links == []


async def test_without_an_answer_there_is_nothing_to_read() -> None:
    """The chain goes on."""
    one = visit()
    assert await extract(one) is Step.PROCEED
    assert one.links == []


async def test_links_beyond_the_limit_are_counted_and_notes_kept() -> None:
    """The count and the notes stand in crawl.log."""
    one = answered(body=b"".join(b"<a href=%d>x</a>" % number for number in range(20)))
    await extract(one, max_outlinks=8)
    assert (len(one.links), one.dropped_links, one.notes) == (8, 12, ())
    two = answered(body=b" " * (1 << 18) + b"<p>" * (1 << 20))
    await extract(two, timeout_s=0.001)
    assert (two.links, two.notes) == ([], ("extractTimeout",))
    assert "extractTimeout" in visit_annotations(two)


async def test_the_hops_of_a_url_say_what_is_expected_of_it() -> None:
    """After a hop M a list of URLs is a sitemap."""
    one = visit(answer=response(200, b"http://a.test/1", Content_Type="text/plain"), hops="M")
    await extract(one, sitemaps=True)
    assert one.links == [Link("http://a.test/1", "M", "sitemap")]


async def test_a_coded_body_is_decoded_first() -> None:
    """It is kept as it came; what is read is its content."""
    one = answered(body=gzip.compress(BODY + b" " * 1000), Content_Encoding="gzip")
    await extract(one)
    assert one.links == LINKS


ASKING = b'<meta name="robots" content="noarchive"><meta name="other" content="nofollow"><a href="/1">one</a>'


@pytest.mark.parametrize(
    ("header", "notes"),
    [
        ("", ("noarchive",)),
        ("nofollow", ("nofollow", "noarchive")),
        ("anabranch: noindex", ("noindex", "noarchive")),
        ("otherbot: nofollow", ("noarchive",)),
    ],
)
async def test_what_a_page_asks_of_robots_is_kept_and_noted(header, notes) -> None:
    """In its header and in its meta elements together; what is for others is not for us."""
    one = answered(body=ASKING, X_Robots_Tag=header)
    await extract(one, directives_for("anabranch", clock))
    assert (one.directives.annotations, one.notes) == (notes, notes)
    assert [link.url for link in one.links] == ["http://a.test/1"]


async def test_without_heed_a_page_may_ask_what_it_likes() -> None:
    """`[robots] meta = false`."""
    one = answered(body=ASKING, X_Robots_Tag="nofollow")
    await extract(one)
    assert (one.directives.nofollow, one.notes) == (False, ())


def stopping(*entries):
    rules = body_rules_of(CrawlOrder(body=entries))
    tags = SourceTags([Seed(url="http://seed.test/", source="-"), Seed(url="http://other.test/", source="-")])
    return BodyCheck(rules, tags), tags


async def stopped(check, tags, status, *, cuts=(Cut.ABORT,), seed="http://seed.test/"):
    """The visit of an answer, whose body the check was asked about."""
    one = visit()
    one.lease = one.lease._replace(payload=tags.payload_of(seed), hops="LE")

    async def get(_, *, wants_body, **_others):
        answer = response(status, b"")
        wanted = wants_body(PageHead("http://a.test/", status, answer.headers))
        return answer._replace(cuts=() if wanted else cuts)

    await FetchPage(get, before_body=check)(one)
    return one


async def test_a_rule_before_the_body_knows_how_the_url_was_found() -> None:
    """Its hops, and the seed that led to it; the line in crawl.log has the rule's number."""
    check, tags = stopping(BodyEntry(status=("999",)), BodyEntry(hops="LE$", seeds=("seed.test",)))
    one = await stopped(check, tags, 200)
    assert (one.body_rule, visit_annotations(one)) == (2, ("midFetchAbort", "bodyRule:2"))
    other = await stopped(check, tags, 200, seed="http://other.test/")
    assert (other.body_rule, visit_annotations(other)) == (0, ())


@pytest.mark.parametrize("status", [429, 503])
async def test_a_stopped_url_is_not_tried_again(status) -> None:
    """Its host rests all the same."""
    check, tags = stopping(BodyEntry())
    one = await stopped(check, tags, status)
    outcome = decide(one, END_S)
    assert (outcome.kind, outcome.status) == (OutcomeKind.DONE, status)
    assert outcome.trouble is not HostTrouble.NONE


async def test_the_answer_that_counts_is_the_last_one() -> None:
    """A 401 that was stopped, and answered by a login, has stopped nothing."""
    check, tags = stopping(BodyEntry())
    one = await stopped(check, tags, 200, cuts=())
    assert (one.body_rule, visit_annotations(one)) == (0, ())


class Asked:
    """What other archives know of a URL."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.closed = 0

    def ask(self, url: str) -> Asked:
        self.urls.append(url)
        return self

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("fails", [False, True])
async def test_other_archives_are_asked_when_the_fetch_begins(fails: bool) -> None:
    """Before its answer; nobody waits for them when the visit has ended, however it ended."""
    others, one = Asked(), visit()

    async def fetch(url: str, **_: object) -> Response:
        assert others.urls == [url]
        if fails:
            raise ConnectFailed("refused")
        return response(200, b"page")

    if fails:
        with pytest.raises(ConnectFailed):
            await FetchPage(fetch, captures=others)(one)
    else:
        await FetchPage(fetch, captures=others)(one)
    assert (one.captures, others.closed) == (others, 0)
    one.close()
    assert others.closed == 1
