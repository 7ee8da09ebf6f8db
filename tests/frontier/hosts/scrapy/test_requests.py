"""Scrapy's requests as candidates, and leases as its requests."""

from __future__ import annotations

import pytest
from scrapy import FormRequest, Request
from scrapy.utils.request import RequestFingerprinter, fingerprint

from anabranch.frontier.hosts.scrapy import requests as requests_module
from anabranch.frontier.hosts.scrapy.requests import KnownRequests, Requests, Unmade, precedence
from anabranch.frontier.records import Candidate, GateKey, Lease, QueueKey
from tests.frontier.hosts.scrapy.project import Quiet
from tests.rows import each_row

pytest.importorskip("scrapy")


URL = "http://a.test/"


def requests(*, is_durable: bool = True) -> Requests:
    return Requests(Quiet(), fingerprint, is_durable=is_durable)


def lease(candidate: Candidate) -> Lease:
    return Lease(
        1, candidate.url, candidate.dedup_key(), "", None, 0, candidate.payload, QueueKey("q"), GateKey("a.test"), 0.0
    )


def test_a_request_comes_back_as_it_went() -> None:
    """In another run, too."""
    request = Request(URL, method="POST", body=b"x", headers={"A": "b"}, meta={"depth": 2, "own": [1]}, priority=3)
    again = requests().request(lease(requests().candidate(request, is_unique=False).candidate))
    assert isinstance(again, Request)
    assert again.to_dict() == request.to_dict()


def test_a_candidate_is_known_by_the_fingerprint_and_its_depth() -> None:
    """So REQUEST_FINGERPRINTER_CLASS decides what is the same."""
    candidate, _, _ = requests().candidate(Request(URL, meta={"depth": 3}), is_unique=False)
    assert (candidate.key, candidate.hops) == (fingerprint(Request(URL)), "LLL")


def test_a_unique_request_is_like_no_other() -> None:
    """Not of this run, nor of another."""
    one, other = requests(), requests()
    keys = [each.candidate(Request(URL), is_unique=True).candidate.key for each in (one, one, other, other)]
    assert len({*keys, fingerprint(Request(URL))}) == 5


def test_what_cannot_be_serialised_stays_here() -> None:
    """The process returns the same object, in this run alone, until it has ended."""
    here, later = requests(), requests()
    request = Request(URL, callback=lambda response: None)
    candidate, trouble, _ = here.candidate(request, is_unique=False)
    assert isinstance(trouble, ValueError)
    assert here.request(lease(candidate)) is request
    assert here.is_kept(lease(candidate))
    assert later.request(lease(candidate)) == Unmade(URL, None)
    here.forget(lease(candidate))
    assert here.request(lease(candidate)) == Unmade(URL, None)


def test_in_memory_nothing_is_serialised() -> None:
    """And nothing is a trouble; what is not taken is forgotten."""
    here = requests(is_durable=False)
    request = Request(URL, callback=lambda response: None)
    candidate, trouble, _ = here.candidate(request, is_unique=False)
    assert trouble is None
    assert here.request(lease(candidate)) is request
    here.forget(candidate)
    assert here.request(lease(candidate)) == Unmade(URL, None)


@each_row(
    ("priority", "is_start", "number"),
    [
        (0, False, 128),
        (0, True, 129),
        (1, True, 127),
        (1, False, 126),
        (63, False, 2),
        (900, False, 0),
        (-900, True, 255),
    ],
)
def test_the_higher_priority_is_the_smaller_precedence(priority: int, is_start: bool, number: int) -> None:
    """Start requests come right behind the others of theirs; the ends are cut."""
    assert precedence(Request(URL, priority=priority, meta={"is_start_request": is_start})) == number


pytest.importorskip("scrapy")


class ByPath(RequestFingerprinter):
    """A project's own: hosts do not matter."""

    def fingerprint(self, request: Request) -> bytes:
        return request.url.split("/", 3)[3].encode()


def known_of(*requests: Request, by: RequestFingerprinter | None = None) -> KnownRequests:
    known = KnownRequests(by or RequestFingerprinter())
    for request in requests:
        known.add(request)
    return known


def test_two_gets_of_one_url_are_one() -> None:
    """Their headers and their meta do not matter, as they do not for Scrapy's fingerprint."""
    assert Request(URL, headers={"X": "y"}, meta={"a": 1}) in known_of(Request(URL))


@each_row(
    "other",
    [
        Request(URL + "other"),
        Request(URL, method="HEAD"),
        FormRequest(URL, formdata={"a": "b"}),
        Request(URL, body=b"x"),
        Request(URL + "?b=1&a=2#part", meta={"verbatim_url": True}),
    ],
    ids=["url", "method", "form", "body", "verbatim"],
)
def test_what_differs_is_not_known(other: Request) -> None:
    """Nor the other way round."""
    assert other not in known_of(Request(URL), Request(URL + "?b=1&a=2#part"))
    assert Request(URL) not in known_of(other)


def test_a_fingerprinter_of_the_project_decides() -> None:
    """Requests are equal exactly if their fingerprints are."""
    known = known_of(Request("http://a.test/x"), by=ByPath())
    assert Request("http://b.test/x") in known
    assert Request("http://a.test/y") not in known


def test_the_latest_are_kept_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations: memory has an end, and what was just seen is known."""
    monkeypatch.setattr(requests_module, "_GENERATION", 3)
    requests = [Request(f"{URL}{number}") for number in range(7)]
    assert [request in known_of(*requests) for request in requests] == [False, False, False, True, True, True, True]
