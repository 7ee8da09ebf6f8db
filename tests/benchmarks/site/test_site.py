"""The web that crawlers are timed on."""

from __future__ import annotations

import urllib.error
import urllib.request
from urllib.parse import urljoin, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

from scripts.benchmarks.site.pages import PAGE_BYTES, Site, html, links
from scripts.benchmarks.site.process import served
from scripts.benchmarks.site.serving import addresses


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.parametrize("site", [Site(pages=500), Site(pages=3000, hosts=200), Site(pages=700, links=10)])
def test_a_crawl_by_links_reaches_every_page(site: Site) -> None:
    """From page 0, and no link leads out of the site."""
    reached, due = {0}, [0]
    while due:
        new = set(links(due.pop(), site)) - reached
        reached |= new
        due += new
    assert reached == set(range(site.pages))


def test_a_page_has_as_many_links_and_bytes_as_it_is_said_to_have() -> None:
    """12 KB and 60 links are what the targets are for."""
    page = html(7, Site(pages=3000), ["http://127.0.1.1:8000"])
    assert len(page) == PAGE_BYTES
    assert len(LexborHTMLParser(page).css("a")) == 60


def test_the_server_gives_each_host_its_pages() -> None:
    """Links lead to the hosts in turn, on one port, and what is not there is 404."""
    with served(Site(pages=300, hosts=3)) as seed:
        page = LexborHTMLParser(fetched(seed))
        targets = [link.attributes["href"] or "" for link in page.css("a")]
        assert {urlsplit(target).hostname for target in targets} == set(addresses(3))
        assert all(b"<title>Page" in fetched(target) for target in targets[:6])
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetched(urljoin(seed, "/robots.txt"))


def test_the_server_ends_with_its_block() -> None:
    """Nobody answers any more."""
    with served(Site(pages=10)) as seed:
        pass
    with pytest.raises(urllib.error.URLError):
        fetched(seed)
