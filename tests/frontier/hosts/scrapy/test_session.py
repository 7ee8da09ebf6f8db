"""Requests into a Frontier, out of it, and to their end."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("scrapy")

from scrapy import Request
from scrapy.utils.request import RequestFingerprinter, fingerprint

from anabranch.frontier.frontier import Frontier
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.hosts.scrapy.payloads import pack
from anabranch.frontier.hosts.scrapy.requests import FOUND_ON, NUMBER, KnownRequests, Requests
from anabranch.frontier.hosts.scrapy.session import RequestExchange
from anabranch.frontier.records import BUSY, Candidate, GateKey, VerdictKind
from tests.frontier.hosts.scrapy.project import Quiet

URL = "http://a.test/"


class HandEngine:
    """An engine whose work is done by the test."""

    def __init__(self) -> None:
        self.inprogress: set[Request] = set()
        self.under_way: set[Request] = set()
        self.asked_to_wake = 0
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def wake_at(self, frontier: Frontier) -> None:
        self.asked_to_wake += 1

    def is_done_with(self, request: Request) -> bool:
        return request not in self.inprogress

    def is_under_way(self, request: Request) -> bool:
        return request in self.under_way


class Crawl:
    """An exchange over a Frontier in memory."""

    def __init__(self, *, is_durable: bool = False) -> None:
        self.engine = HandEngine()
        self.frontier = EmbeddedJob(
            None, {"min_delay": 0, "max_connections": 9, "per_queue": 9, "delay_factor": 0, "max_delay": 0}
        ).frontier
        self.requests = Requests(Quiet(), fingerprint, is_durable=is_durable)
        known = KnownRequests(RequestFingerprinter())
        self.exchange = RequestExchange(self.frontier, self.requests, known, self.engine)  # type: ignore[arg-type]

    def put(self, request: Request, *, is_unique: bool = False) -> VerdictKind:
        return self.exchange.put(request, is_unique=is_unique).verdict.kind

    def out(self, url: str = URL) -> Request:
        """A request that was just given to the engine."""
        assert self.put(Request(url)) is VerdictKind.NEW
        request = self.exchange.take().request
        assert request is not None
        self.engine.inprogress.add(request)
        return request


@pytest.fixture
def crawl() -> Any:
    crawl = Crawl()
    yield crawl
    crawl.frontier.close()


def test_a_request_is_out_until_the_engine_is_done_with_it(crawl: Crawl) -> None:
    """No sooner is its lease finished."""
    request = crawl.out()
    crawl.exchange.end_consumed()
    assert crawl.frontier.in_flight == 1
    crawl.engine.inprogress.clear()
    crawl.exchange.end_consumed()
    assert (crawl.frontier.in_flight, crawl.frontier.counts().disregarded) == (0, 1)
    assert crawl.put(request.replace(meta={})) is VerdictKind.SEEN


def test_a_retry_takes_the_place_of_its_request_at_once(crawl: Crawl) -> None:
    """The lease ends in the call that queues it."""
    request = crawl.out()
    assert crawl.put(request.copy(), is_unique=True) is VerdictKind.NEW
    assert (crawl.frontier.in_flight, crawl.frontier.pending) == (0, 1)


def test_a_request_made_from_one_in_the_downloader_was_found_on_it(crawl: Crawl) -> None:
    """Its gate has one connection, which is in use until the download is over; only then does its lease end."""
    request = crawl.out()
    crawl.engine.under_way.add(request)
    assert crawl.put(Request(URL + "also", meta=request.meta)) is VerdictKind.NEW
    assert (crawl.frontier.in_flight, crawl.frontier.pending) == (1, 1)
    crawl.engine.under_way.clear()
    assert crawl.put(request.copy(), is_unique=True) is VerdictKind.NEW
    assert (crawl.frontier.in_flight, crawl.frontier.pending) == (0, 2)


def test_a_copy_that_a_callback_asks_for_is_no_retry(crawl: Crawl) -> None:
    """Its page stays out until the callback is consumed; an errback's, too."""
    request = crawl.out()
    crawl.engine.under_way.add(request)
    assert crawl.put(request.copy(), is_unique=True) is VerdictKind.NEW
    assert (crawl.frontier.in_flight, crawl.frontier.pending) == (1, 1)


def test_a_request_that_is_asked_for_again_itself_keeps_its_number(crawl: Crawl) -> None:
    """The queue gets a copy without numbers."""
    request = crawl.out()
    crawl.engine.under_way.add(request)
    assert crawl.put(request, is_unique=True) is VerdictKind.NEW
    assert crawl.exchange.flights.of(request.meta[NUMBER]) is not None
    again = crawl.exchange.take().request
    assert again is not None
    assert again is not request


def test_what_is_found_on_a_page_names_it(crawl: Crawl) -> None:
    """By a mark that does not stay in its meta."""
    request = crawl.out()
    link = Request(URL + "a", meta={FOUND_ON: request.meta[NUMBER]})
    assert crawl.put(link) is VerdictKind.NEW
    assert FOUND_ON not in link.meta
    lease = crawl.frontier.lease()
    assert lease is not None
    assert lease.via == URL


@pytest.mark.parametrize("is_ended_first", [True, False])
def test_links_for_which_the_store_is_behind_are_owed(
    crawl: Crawl, monkeypatch: pytest.MonkeyPatch, is_ended_first: bool
) -> None:
    """They go in with the next call, or with the end of their page; what came from no page waits, too."""
    request = crawl.out()
    crawl.engine.under_way.add(request)
    with monkeypatch.context() as patch:
        patch.setattr(Frontier, "schedule", lambda self, candidates, found_on=None: [BUSY] * len(candidates))
        assert crawl.put(Request(URL + "a", meta={NUMBER: request.meta[NUMBER]})) is VerdictKind.BUSY
        assert crawl.put(Request(URL + "start")) is VerdictKind.BUSY
        assert len(crawl.exchange) == 1, "what a page owes counts when its page is through: it is out meanwhile"
        if is_ended_first:
            crawl.engine.inprogress.clear()
            crawl.exchange.end_consumed()
            assert crawl.frontier.pending == 1
    urls = {request.url for request in iter(lambda: crawl.exchange.take().request, None)}
    assert urls == {URL + "a", URL + "start"}


def test_what_is_out_at_the_end_comes_again(crawl: Crawl) -> None:
    """A page whose callback has closed the spider as well, though the engine is done with it."""
    crawl.out(URL + "a")
    cut = crawl.out(URL + "b")
    flight = crawl.exchange.flights.of(cut.meta[NUMBER])
    assert flight is not None
    flight.is_cut = True
    crawl.engine.inprogress.discard(cut)
    crawl.exchange.end_consumed()
    crawl.exchange.release_all()
    assert (crawl.frontier.in_flight, crawl.frontier.pending) == (0, 2)


def test_when_nothing_can_be_taken_the_engine_is_to_be_woken(crawl: Crawl) -> None:
    """It would ask again in five seconds otherwise."""
    assert crawl.exchange.take() == (None, False, [])
    assert crawl.engine.asked_to_wake == 1


def test_a_request_that_is_known_is_refused_without_a_candidate(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most links are known, and a payload is not made for them."""
    assert crawl.put(Request(URL)) is VerdictKind.NEW
    monkeypatch.delattr(Requests, "candidate")
    assert crawl.put(Request(URL)) is VerdictKind.SEEN
    with pytest.raises(AttributeError):
        crawl.put(Request(URL), is_unique=True)


def test_a_known_request_still_takes_the_place_of_the_one_it_comes_for(crawl: Crawl) -> None:
    """A redirect to a page that is known ends the request that was redirected."""
    assert crawl.put(Request(URL + "known")) is VerdictKind.NEW
    first = crawl.exchange.take().request
    assert first is not None
    second = crawl.out(URL + "moved")
    assert crawl.put(second.replace(url=URL + "known")) is VerdictKind.SEEN
    assert crawl.exchange.flights.of(second.meta[NUMBER]) is None


def queued(crawl: Crawl, *payloads: bytes | None) -> None:
    """Rows of another run, or of another program."""
    crawl.frontier.schedule([Candidate(f"{URL}{number}", payload=payload) for number, payload in enumerate(payloads)])


def test_a_row_without_a_payload_is_a_request_of_its_url(crawl: Crawl) -> None:
    """`frontier load` queues such rows."""
    queued(crawl, None)
    request, is_kept, unmade = crawl.exchange.take()
    assert request is not None
    assert (request.url, request.callback, is_kept, unmade) == (URL + "0", None, False, [])


def test_what_no_request_can_be_made_of_comes_to_its_end(crawl: Crawl) -> None:
    """It is told with its URL and the reason, and the next one is served in the same call."""
    renamed = pack(Request(URL).to_dict() | {"callback": "of_old"})
    queued(crawl, renamed, b"jnonsense", b"xnonsense", b"k12345678", None)
    request, _, unmade = crawl.exchange.take()
    assert request is not None
    assert request.url == URL + "4"
    assert [each.url for each in unmade] == [f"{URL}{number}" for number in range(4)]
    words = [str(each.reason) for each in unmade]
    assert "'of_old'" in words[0]
    assert words[2:] == ["its payload is not Scrapy's", "None"]
    counts = crawl.frontier.counts()
    assert (counts.in_flight, counts.failed, counts.disregarded) == (1, 3, 1)


def test_a_queue_full_of_them_does_not_hold_up_the_loop(crawl: Crawl) -> None:
    """So many end in one call, and the engine is woken for the rest."""
    queued(crawl, *[b"pnonsense"] * 70)
    assert [len(crawl.exchange.take().unmade) for _ in range(3)] == [64, 6, 0]
    assert crawl.engine.woken == 1


def test_what_cannot_be_serialised_is_known_to_this_process_alone() -> None:
    """A later one would never get it, for its callback is gone. Here it is a duplicate in every combination."""
    crawl = Crawl(is_durable=True)
    odd, plain = Request(URL + "odd", callback=lambda _: None), Request(URL + "odd")
    assert [crawl.put(each) for each in (odd, odd.copy(), plain)] == [
        VerdictKind.NEW,
        VerdictKind.SEEN,
        VerdictKind.SEEN,
    ]
    assert crawl.put(Request(URL)) is VerdictKind.NEW
    assert crawl.put(Request(URL, callback=lambda _: None)) is VerdictKind.SEEN
    new = crawl.frontier.unseen([fingerprint(each) for each in (odd, Request(URL))])
    assert new == [True, False]
    crawl.frontier.close()


def test_a_standstill_is_one_that_only_an_operator_ends_or_minutes(crawl: Crawl) -> None:
    """Not a host's usual rest, and not as long as something is out."""
    assert not crawl.exchange.is_stalled(), "nothing is queued"
    crawl.put(Request(URL))
    assert not crawl.exchange.is_stalled()
    crawl.frontier.block(GateKey("a.test"), crawl.frontier.now_s() + 30)
    assert not crawl.exchange.is_stalled()
    crawl.frontier.block(GateKey("a.test"), crawl.frontier.now_s() + 3600)
    assert crawl.exchange.is_stalled()
    crawl.out("http://b.test/")
    assert not crawl.exchange.is_stalled()
