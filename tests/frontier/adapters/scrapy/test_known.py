"""What is remembered of requests that are known."""

from __future__ import annotations

import pytest

pytest.importorskip("scrapy")

from scrapy import FormRequest, Request
from scrapy.utils.request import RequestFingerprinter

from anabranch.frontier.adapters.scrapy import known as module
from anabranch.frontier.adapters.scrapy.known import Known

URL = "http://a.test/"


class ByPath(RequestFingerprinter):
    """A project's own: hosts do not matter."""

    def fingerprint(self, request: Request) -> bytes:
        return request.url.split("/", 3)[3].encode()


def known_of(*requests: Request, by: RequestFingerprinter | None = None) -> Known:
    known = Known(by or RequestFingerprinter())
    for request in requests:
        known.add(request)
    return known


def test_two_gets_of_one_url_are_one() -> None:
    """Their headers and their meta do not matter, as they do not for Scrapy's fingerprint."""
    assert Request(URL, headers={"X": "y"}, meta={"a": 1}) in known_of(Request(URL))


@pytest.mark.parametrize(
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
    """What it takes for one is one, and nothing else."""
    known = known_of(Request("http://a.test/x"), by=ByPath())
    assert Request("http://b.test/x") in known
    assert Request("http://a.test/y") not in known


def test_the_latest_are_kept_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations: memory has an end, and what was just seen is known."""
    monkeypatch.setattr(module, "_GENERATION", 3)
    requests = [Request(f"{URL}{number}") for number in range(7)]
    known = known_of(*requests)
    assert [request in known for request in requests] == [False, False, False, True, True, True, True]
