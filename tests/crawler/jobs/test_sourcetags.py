"""Which seed led to a URL."""

from __future__ import annotations

import pytest

from anabranch.crawler.jobs.seeds import Seed
from anabranch.crawler.jobs.sourcetags import SourceTags


def seeds(*urls: str) -> list[Seed]:
    return [Seed(url=url, source="given") for url in urls]


def test_a_payload_leads_back_to_its_seed() -> None:
    """For the first, the last, and where numbers get a second byte."""
    urls = [f"http://{number}.test/" for number in range(300)]
    tags = SourceTags(seeds(*urls))
    assert [tags.tag_of(tags.payload_of(url)) for url in urls] == urls
    assert [len(tags.payload_of(urls[number]) or b"") for number in (0, 255, 256)] == [1, 1, 2]


def test_a_number_means_the_same_seed_in_the_next_run() -> None:
    """The book keeps its order; seeds that come later do not move those before them."""
    first = SourceTags(seeds("http://a.test/", "http://b.test/"))
    payload = first.payload_of("http://b.test/")
    again = SourceTags(seeds("http://a.test/", "http://b.test/"))
    again.note(seeds("http://b.test/", "http://c.test/"))
    assert again.tag_of(payload) == "http://b.test/"
    assert again.tag_of(again.payload_of("http://c.test/")) == "http://c.test/"


@pytest.mark.parametrize("payload", [None, b"", b"\x07", b"an embedder's own payload"])
def test_a_payload_that_names_no_seed_has_no_tag(payload: bytes | None) -> None:
    """Jobs of earlier versions and embedders have others."""
    assert SourceTags(seeds("http://a.test/")).tag_of(payload) is None
    assert SourceTags().payload_of("http://a.test/") is None
