"""None"""

from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from anabranch.crawler.lab.web.model import WebPage, body_of, least_bytes
from tests.crawler.lab.web.test_shape import small, walked
from tests.rows import each_row

LINKS = ("http://a.test/1", "http://a.test/x?a=1&b='\"<2>")
EMBEDS = ("http://a.test/i.jpg", "http://a.test/s.css")


def page(
    size: int, media_type: str = "text/html", links: tuple[str, ...] = (), embeds: tuple[str, ...] = ()
) -> WebPage:
    return WebPage(200, media_type, size, 0.0, 0.0, links, embeds)


def test_every_body_has_the_size_of_its_page() -> None:
    """Pages, embeds, redirects and failures all have theirs."""
    for url, each in walked(small()).items():
        assert len(body_of(each, url)) == each.size


def test_a_parser_finds_just_the_links_and_embeds() -> None:
    """Also those with characters that mean something to HTML, and in the smallest page that they fit into."""
    least = least_bytes(LINKS, EMBEDS)
    for size in (least, least + 100_000):
        tree = LexborHTMLParser(body_of(page(size, links=LINKS, embeds=EMBEDS), "http://a.test/"))
        assert [node.attributes["href"] for node in tree.css("a")] == [*LINKS]
        assert {node.attributes.get("src") or node.attributes["href"] for node in tree.css("img, link")} == {*EMBEDS}


def test_a_page_too_small_for_its_links_is_refused() -> None:
    """A wrong size is never sent."""
    with pytest.raises(ValueError, match="too small"):
        body_of(page(least_bytes(LINKS, EMBEDS) - 1, links=LINKS, embeds=EMBEDS), "http://a.test/")


@each_row("media_type", ["text/html", "text/css", "image/jpeg", "image/gif", "application/x-unheard"])
@each_row("size", [0, 1, 5, 1_000, 3_000_000])
def test_any_size_of_any_type_can_be_had(media_type: str, size: int) -> None:
    """Less than what the type begins with, and more than the block of filler."""
    assert len(body_of(page(size, media_type), "http://a.test/")) == size


def test_two_urls_have_different_bodies() -> None:
    """So nobody takes them for copies of each other."""
    each = page(5_000)
    assert body_of(each, "http://a.test/1") != body_of(each, "http://a.test/2")
