"""Requests that are out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.robotstxt import ProtegoRobotParser

from anabranch.frontier.frontier import Frontier
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.hosts.scrapy.inflight import UNREACHABLE, Flight, InFlight, Listener
from anabranch.frontier.hosts.scrapy.requests import NUMBER
from anabranch.frontier.records import Candidate, GateKey, HostTrouble, Lease, OutcomeKind, QueueKey
from tests.frontier.hosts.scrapy.project import Quiet

pytest.importorskip("scrapy")


URL = "http://a.test/"


def lease(ordinal: int) -> Lease:
    return Lease(ordinal, URL, URL.encode(), "", None, 0, None, QueueKey("q"), GateKey("a.test"), 0.0)


@pytest.mark.parametrize(
    ("facts", "kind", "status"),
    [
        ({}, OutcomeKind.DISREGARDED, 0),
        ({"start_s": 1.0, "end_s": 2.0}, OutcomeKind.FAILED, UNREACHABLE),
        ({"start_s": 1.0, "end_s": 2.0, "status": 503}, OutcomeKind.DONE, 503),
        ({"is_at_spider": True, "status": 200}, OutcomeKind.DONE, 200),
    ],
)
def test_an_outcome_is_what_the_downloader_has_told(facts: dict[str, float], kind: OutcomeKind, status: int) -> None:
    """Never asked for, never answered, answered, answered from a cache."""
    outcome = Flight(lease(1), Request(URL), **facts).outcome()  # type: ignore[arg-type]
    assert (outcome.kind, outcome.status) == (kind, status)
    assert (outcome.start_s, outcome.end_s) == (facts.get("start_s"), facts.get("end_s"))


def test_what_is_in_the_downloader_is_not_asked_whether_it_is_back() -> None:
    """Before it has reached it and after it has left, it is."""
    flights = InFlight()
    flights.add(lease(1), Request(URL))
    flights.add(lease(2), Request(URL))
    one, two = flights
    flights.reached(one)
    assert flights.landing() == [two]
    flights.left(one)
    flights.end(two)
    assert flights.landing() == [one]
    assert (len(flights), flights.of(1), flights.of(2)) == (1, one, None)


def test_a_number_of_another_kind_is_nobodys() -> None:
    """A request's meta may hold anything."""
    flights = InFlight()
    flights.add(lease(1), Request(URL))
    assert flights.of("1") is flights.of(None) is None


pytest.importorskip("scrapy")


class Heard:
    """One request in flight, and what is sent of it."""

    def __init__(self, frontier: Frontier, *, has_host_gates: bool = True) -> None:
        frontier.schedule([Candidate(URL)])
        lease = frontier.lease()
        assert lease is not None
        self.request = Request(URL, meta={NUMBER: lease.ordinal})
        flights = InFlight()
        flights.add(lease, self.request)
        (self.flight,) = flights
        self.crawler = Crawler(Quiet, {"USER_AGENT": "me"})
        self.listener = Listener(flights, frontier, self.crawler, has_host_gates=has_host_gates)

    def send(self, signal: object, **arguments: object) -> Flight:
        for _, answer in self.crawler.signals.send_catch_log(signal, request=self.request, **arguments):
            assert answer is None
        return self.flight


@pytest.fixture
def frontier() -> Iterator[Frontier]:
    job = EmbeddedJob(None, {"min_delay": 0})
    yield job.frontier
    job.close()


def test_an_answer_has_its_times_and_its_status_before_any_middleware(frontier: Frontier) -> None:
    """A 429 is heard though a middleware retries it, with the rest that it asks for."""
    heard = Heard(frontier)
    heard.send(signals.request_reached_downloader)
    heard.send(signals.response_downloaded, response=Response(URL, status=429, headers={"Retry-After": "7"}))
    flight = heard.send(signals.request_left_downloader)
    assert (flight.status, flight.trouble, flight.retry_after_s) == (429, HostTrouble.THROTTLED, 7.0)
    assert flight.start_s is not None
    assert flight.end_s is not None
    assert flight.start_s <= flight.end_s
    assert not flight.is_at_spider


@pytest.mark.parametrize("has_headers", [True, False])
def test_a_host_without_an_answer_cannot_be_reached(frontier: Frontier, has_headers: bool) -> None:
    """Unless it has begun one: a body that is too large is not the host's trouble."""
    heard = Heard(frontier)
    heard.send(signals.request_reached_downloader)
    if has_headers:
        heard.send(signals.headers_received, headers={}, body_length=0)
    flight = heard.send(signals.request_left_downloader)
    assert flight.trouble is (HostTrouble.NONE if has_headers else HostTrouble.UNREACHABLE)


def test_what_a_cache_answers_was_not_fetched(frontier: Frontier) -> None:
    """It has a status and no times, so its host need not rest."""
    flight = Heard(frontier).send(signals.response_received, response=Response(URL, status=200))
    assert (flight.status, flight.start_s, flight.end_s, flight.is_at_spider) == (200, None, None, True)


def test_a_request_that_has_copied_its_pages_meta_is_another(frontier: Frontier) -> None:
    """A request that a callback downloads itself, perhaps from another host, changes neither the page nor its gate."""
    heard = Heard(frontier)
    heard.send(signals.response_received, response=Response(URL))
    heard.request = Request("http://b.test/", meta=heard.request.meta)
    heard.send(signals.request_reached_downloader)
    heard.send(signals.response_downloaded, response=Response("http://b.test/", status=429))
    flight = heard.send(signals.request_left_downloader)
    assert (flight.status, flight.trouble, flight.start_s, flight.end_s) == (200, HostTrouble.NONE, None, None)


TOLD = pytest.mark.skipif(not hasattr(signals, "robots_parsed"), reason="Scrapy tells of robots.txt from 2.18 on")


@TOLD
@pytest.mark.parametrize(
    ("delays", "kept_s"), [(["2"], 2.0), (["2", "1"], 2.0), (["1", "2"], 2.0), (["1e9"], 300.0), (["no"], None)]
)
def test_a_crawl_delay_is_the_hosts_gates(
    frontier: Frontier, monkeypatch: pytest.MonkeyPatch, delays: list[str], kept_s: float | None
) -> None:
    """The longest of its ports', up to five minutes."""
    told: dict[str, float] = {}
    monkeypatch.setattr(Frontier, "set_delay", lambda self, gate, delay_s: told.update({gate: delay_s}))
    heard = Heard(frontier)
    for delay in delays:
        text = f"User-agent: *\nCrawl-delay: {delay}\n".encode()
        heard.send(signals.robots_parsed, robotparser=ProtegoRobotParser(text, None))
    assert told.get("a.test") == kept_s


@TOLD
def test_where_gates_are_no_hosts_a_crawl_delay_has_none(frontier: Frontier) -> None:
    """With the politeness `queue`."""
    heard = Heard(frontier, has_host_gates=False)
    heard.send(signals.robots_parsed, robotparser=ProtegoRobotParser(b"User-agent: *\nCrawl-delay: 2\n", None))
