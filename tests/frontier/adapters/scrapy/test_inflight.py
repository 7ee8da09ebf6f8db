"""Requests that are out."""

from __future__ import annotations

import pytest

pytest.importorskip("scrapy")

from scrapy import Request

from anabranch.frontier.adapters.scrapy.inflight import UNREACHABLE, Flight, InFlight
from anabranch.frontier.models import GateKey, Lease, OutcomeKind, QueueKey

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
