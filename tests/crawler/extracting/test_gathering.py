"""From references to links: how many, how long, and what is counted of the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extracting.gathering import CHARS_A_LINK, RESOLVED_A_KEPT, gathered, merged
from anabranch.crawler.extracting.links import EMBED, NAVIGATION, Link, Reference
from anabranch.crawler.extracting.resolving import LinkResolver
from anabranch.crawler.urls.parsing import canonical

BASE = "http://a.test/"
LONG_BASE = f"http://a.test/{'x' * 8000}/"


def references(*texts: str) -> list[Reference]:
    return [(text, NAVIGATION, "a/@href") for text in texts]


def test_each_url_is_a_link_once_and_the_first_hop_wins() -> None:
    """However it is written."""
    found = [("b", EMBED, "img/@src"), ("/b#x", NAVIGATION, "a/@href"), ("mailto:x", NAVIGATION, "a/@href")]
    assert gathered(found, BASE, 10, LinkResolver()) == ([Link("http://a.test/b", EMBED, "img/@src")], 0)


TEXTS = st.sampled_from(["b", "/b#x", "http://a.test/b", "?q", "mailto:x", "http://["])
PLACES = st.sampled_from([(NAVIGATION, "a/@href"), (NAVIGATION, "area/@href"), (EMBED, "img/@src")])
BASES = st.sampled_from([BASE, "http://a.test/d/e?f", "http://a.test/d/g", "http://b.test/d/"])
PAGE = st.tuples(BASES, st.lists(st.tuples(TEXTS, PLACES), min_size=1, max_size=6))


@given(st.lists(PAGE, min_size=2, max_size=8))
def test_pages_before_make_no_difference(pages: list[tuple[str, list[tuple[str, tuple[str, str]]]]]) -> None:
    """The links of a page are its references parsed one by one, whatever is remembered, and shared, of other pages."""
    resolver = LinkResolver(max_entries=30)
    for base, written in pages:
        found = [(text, hop, context) for text, (hop, context) in written]
        expected: dict[str, Link] = {}
        for text, hop, context in found:
            if (url := canonical(text, base)) is not None:
                expected.setdefault(url, Link(url, hop, context))
        for _ in range(2):
            assert gathered(found, base, 100, resolver) == (list(expected.values()), 0)


def test_what_is_too_much_is_counted_by_its_spelling() -> None:
    """The first so many are links."""
    links, dropped = gathered(references(*map(str, range(1000))), BASE, 10, LinkResolver())
    assert [link.url for link in links] == [f"{BASE}{number}" for number in range(10)]
    assert dropped == 990


def test_a_long_base_does_not_make_much_of_little() -> None:
    """Six thousand short links under a base of 8,000 characters would be 48 MB, a quarter of a second of the loop's time."""
    links, dropped = gathered(references(*map(str, range(6000))), LONG_BASE, 6000, LinkResolver())
    assert sum(len(link.url) for link in links) < 2 * 6000 * CHARS_A_LINK
    assert len(links) + dropped == 6000


def test_links_that_are_none_or_all_the_same_do_not_cost_more(monkeypatch) -> None:
    """A reference that has to be parsed costs as much as its base is long, whatever comes of it."""
    parsed = []
    monkeypatch.setattr("anabranch.crawler.extracting.resolving.canonical", lambda link, base: parsed.append(link))
    for text in ("mailto:{}", "?{}"):
        parsed.clear()
        gathered(references(*(text.format(number) for number in range(50_000))), LONG_BASE, 6000, LinkResolver())
        assert len(parsed) * len(LONG_BASE) < 1.5 * RESOLVED_A_KEPT * 6000 * CHARS_A_LINK


def test_links_of_usual_length_are_all_taken() -> None:
    """Six thousand of a hundred characters, each twice."""
    texts = [f"/{number:0100}" for number in range(6000) for _ in range(2)]
    links, _ = gathered(references(*texts), BASE, 6000, LinkResolver())
    assert len(links) == 6000


def test_the_links_of_the_header_come_first() -> None:
    """Each URL once."""
    header, body = [Link("http://a.test/1", "R")], [Link("http://a.test/1", "L"), Link("http://a.test/2", "L")]
    assert merged(header, body) == [header[0], body[1]]
