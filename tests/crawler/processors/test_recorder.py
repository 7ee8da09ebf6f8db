"""Tests of the exchange that is archived of an answer: a response, or a revisit of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.crawler.archive.history import Fetched
from anabranch.crawler.archive.records import NOT_MODIFIED, SAME_PAYLOAD, Original, RecordLocation, Revisit
from anabranch.crawler.fetch.options import Validators
from anabranch.crawler.fetch.repairs import Repair
from anabranch.crawler.processors.recorder import ExchangeMaker, visit_annotations
from tests.crawler.archive.exchanges import Answered, Cut, Payload
from tests.crawler.builder import response, visit

KNOWN = Original("http://a.test/first", "2026-01-01T00:00:00.000000Z", Payload(b"known").digest)


class Memory:
    """Knows one payload and one URL."""

    async def original(self, digest: bytes) -> Original | None:
        return KNOWN if digest == KNOWN.digest else None

    async def fetched(self, url: str) -> Fetched | None:
        return Fetched(Validators('"1"', ""), KNOWN, RecordLocation("a.warc.gz", 0)) if url == KNOWN.url else None


@pytest.mark.parametrize(
    ("url", "answer", "revisit", "found"),
    [
        ("http://a.test/", Answered(body=Payload(b"known")), True, Revisit(SAME_PAYLOAD, KNOWN)),
        ("http://a.test/", Answered(body=Payload(b"known"), cuts=(Cut.DECODED,)), True, Revisit(SAME_PAYLOAD, KNOWN)),
        ("http://a.test/", Answered(body=Payload(b"known")), False, None),
        ("http://a.test/", Answered(body=Payload(b"known"), cuts=(Cut.LENGTH,)), True, None),
        ("http://a.test/", Answered(body=Payload(b"new")), True, None),
        ("http://a.test/", Answered(body=Payload(b"known"), status=301), True, None),
        ("http://a.test/", Answered(body=Payload(b"known"), status=404), True, Revisit(SAME_PAYLOAD, KNOWN)),
        ("http://a.test/", Answered(body=Payload(b"")), True, None),
        (KNOWN.url, Answered(body=Payload(b""), status=304), False, Revisit(NOT_MODIFIED, KNOWN)),
        ("http://a.test/", Answered(body=Payload(b""), status=304), True, None),
    ],
)
async def test_a_payload_that_is_there_is_revisited(
    url: str, answer: Answered, revisit: bool, found: Revisit | None
) -> None:
    """By its digest unless that is off or it was cut; by 304 if the URL's earlier record is known."""
    exchange = await ExchangeMaker(Memory(), revisit=revisit).exchange(url, answer, hops="L", via="http://a.test/v")
    assert (exchange.revisit, exchange.hops, exchange.via) == (found, "L", "http://a.test/v")


@pytest.mark.parametrize(("least", "profile"), [(0, SAME_PAYLOAD), (5, SAME_PAYLOAD), (6, None)])
async def test_a_payload_below_the_least_size_is_written_again(least: int, profile: str | None) -> None:
    """Its revisit would take more room. One of just this size is not small."""
    maker = ExchangeMaker(Memory(), revisit=True, min_bytes=least)
    exchange = await maker.exchange("http://a.test/", Answered(body=Payload(b"known")), hops="", via=None)
    assert (exchange.revisit and exchange.revisit.profile) == profile


async def test_an_answer_304_is_a_revisit_whatever_the_least_size() -> None:
    """There is no payload that could be written."""
    maker = ExchangeMaker(Memory(), revisit=True, min_bytes=1 << 20)
    exchange = await maker.exchange(KNOWN.url, Answered(body=Payload(b""), status=304), hops="", via=None)
    assert exchange.revisit == Revisit(NOT_MODIFIED, KNOWN)


class Elsewhere:
    """Knows one payload, and notes what it is asked for."""

    def __init__(self, known: Original | None) -> None:
        self.known = known
        self.asked: list[bytes] = []

    async def original(self, digest: bytes) -> Original | None:
        self.asked.append(digest)
        return self.known


@pytest.mark.parametrize(
    ("data", "given", "asked"),
    [
        (b"known", (True, True), (0, 0)),
        (b"new", (True, True), (1, 0)),
        (b"new", (False, True), (1, 1)),
        (b"", (True, True), (0, 0)),
    ],
)
async def test_others_are_asked_one_after_the_other_for_what_the_job_has_not(
    data: bytes, given: tuple[bool, bool], asked: tuple[int, int]
) -> None:
    """What is on its way comes last; nobody is asked for what would be written anyhow."""
    first, last = (Elsewhere(KNOWN._replace(url=f"http://{n}.test/") if has else None) for n, has in enumerate(given))
    maker = ExchangeMaker(Memory(), revisit=True, elsewhere=[first])
    exchange = await maker.exchange("http://a.test/", Answered(body=Payload(data)), hops="", via=None, captures=last)
    assert (len(first.asked), len(last.asked)) == asked
    assert (exchange.revisit is None) == (data == b"")


@pytest.mark.parametrize(("revisit", "least"), [(False, 0), (True, 100)])
async def test_nobody_is_asked_for_a_payload_that_is_written_anyhow(revisit: bool, least: int) -> None:
    """Without revisits, or because it is small."""
    other = Elsewhere(KNOWN)
    maker = ExchangeMaker(Memory(), revisit=revisit, min_bytes=least, elsewhere=[other])
    exchange = await maker.exchange("http://a.test/", Answered(body=Payload(b"new")), hops="", via=None, captures=other)
    assert (exchange.revisit, other.asked) == (None, [])


def test_each_repair_of_an_answer_is_annotated() -> None:
    """The annotations are those of crawl.log."""
    answer = response()._replace(repairs=(Repair.LINES, Repair.OLD_TLS))
    assert visit_annotations(visit(answer=answer)) == ("httpRepair:lines", "oldTLS")


@pytest.mark.parametrize(
    ("profile", "notes"),
    [
        (SAME_PAYLOAD, ("duplicate:digest", "warcRevisit:digest")),
        (NOT_MODIFIED, ("duplicate:server-not-modified", "warcRevisit:notModified")),
    ],
)
async def test_a_revisit_is_annotated_in_heritrix_words(profile: str, notes: tuple[str, str]) -> None:
    """A response is not."""
    plain = await ExchangeMaker(Memory(), revisit=False).exchange(
        "http://a.test/", Answered(body=Payload(b"a")), hops="", via=None
    )
    one = visit()
    assert visit_annotations(one) == ()
    one.archive(plain)
    assert visit_annotations(one) == ()
    one.archive(replace(plain, revisit=Revisit(profile, KNOWN)))
    assert visit_annotations(one) == notes
