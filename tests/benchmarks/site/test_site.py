"""The web that crawlers are timed on."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

from scripts.benchmarks.site import nginx
from scripts.benchmarks.site.pages import (
    PAGE_BYTES,
    Site,
    addresses,
    host_names,
    html,
    links,
    number_at,
    origins,
    path,
    targets,
)
from scripts.benchmarks.site.process import served, serving
from scripts.benchmarks.site.serving import Computed, answers


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
        assert {urlsplit(target).hostname for target in targets} == set(addresses(Site(pages=300, hosts=3)))
        assert all(b"<title>Page" in fetched(target) for target in targets[:6])
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetched(urljoin(seed, "/robots.txt"))


def test_the_server_ends_with_its_block() -> None:
    """Nobody answers any more."""
    with served(Site(pages=10)) as seed:
        pass
    with pytest.raises(urllib.error.URLError):
        fetched(seed)


def test_names_are_all_served_at_one_address() -> None:
    """A crawler that knows where they are gets any page by any name; links lead to the names in turn."""
    site = Site(pages=300, hosts=3, is_named=True)
    with serving(site) as server:
        assert urlsplit(server.seed).hostname == host_names(site)[0]
        page = LexborHTMLParser(fetched(f"http://{addresses(site)[0]}:{server.port}/pages/0.html"))
        targets = [link.attributes["href"] or "" for link in page.css("a")]
        assert {urlsplit(target).hostname for target in targets} == set(host_names(site))


needs_nginx = pytest.mark.skipif(not nginx.program(), reason="nginx is not installed")


@needs_nginx
@pytest.mark.parametrize("site", [Site(pages=130, hosts=3), Site(pages=130, hosts=3, is_named=True)])
def test_nginx_serves_what_the_small_server_serves(site: Site) -> None:
    """It serves the pages on all hosts, and 404 for other paths; it counts the requests since the last count."""
    with nginx.serving(site) as server:
        places = [f"http://{address}:{server.port}" for address in addresses(site)]
        assert urlsplit(server.seed).port == server.port
        for place in places:
            assert fetched(place + path(129)) == html(129, site, origins(site, server.port))
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetched(places[0] + "/robots.txt")
        tally = server.tally()
        assert (tally.pages, tally.repeated, tally.others) == (1, len(places) - 1, 1)
        assert 0 < tally.first_s <= tally.last_s
        assert server.tally().requests == 0


@needs_nginx
def test_nginx_serves_more_pages_than_it_may_have_files_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read and closed: none is an error because others were asked for before it."""
    monkeypatch.setattr(nginx, "_descriptors", lambda: 64)
    with nginx.serving(Site(pages=200)) as server:
        assert all(fetched(urljoin(server.seed, path(number))) for number in range(200))
        assert server.tally().pages == 200


@needs_nginx
def test_nginx_ends_with_its_block(tmp_path: Path) -> None:
    """Nobody answers any more, and its folder, which was where it was asked for, is gone."""
    with nginx.serving(Site(pages=10), folder=tmp_path) as server:
        fetched(server.seed)
        (place,) = tmp_path.iterdir()
        assert (place / "site" / "pages" / "0.html").is_file()
    with pytest.raises(urllib.error.URLError):
        fetched(server.seed)
    assert not place.exists()


@needs_nginx
def test_an_nginx_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own words, at once; and nothing of it is left."""
    monkeypatch.setattr(nginx, "configuration", lambda *_: "daemon off; wheels 4;")
    said = pytest.raises(RuntimeError, match=r'did not start.*unknown directive "wheels"')
    with said, nginx.serving(Site(pages=1), folder=tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_nginx_is_the_user_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever name the environment has for him; only root may say it."""
    monkeypatch.setenv("LOGNAME", "somebody-else")
    for number, begins in ((0, "user root;\n"), (1000, "daemon off;\n")):
        monkeypatch.setattr(os, "geteuid", lambda number=number: number)
        assert nginx.configuration(["127.0.1.1"], 80).startswith(begins)


def test_a_port_is_free_on_all_addresses() -> None:
    """One that somebody has on the second is left again, and the next is tried; the last one's error is told."""
    with ExitStack() as stack, socket.socket() as other:
        other.bind(("127.0.1.2", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(OSError, match="in use"), ExitStack() as left:
            nginx.listening(["127.0.1.1", "127.0.1.2"], left, (taken,))
        first, second = nginx.listening(["127.0.1.1", "127.0.1.2"], stack, (taken, 0, taken))
        assert first.getsockname()[1] == second.getsockname()[1] != taken
        nginx.listening(["127.0.1.1"], stack, (taken,))


@needs_nginx
def test_nginx_serves_folders_alone() -> None:
    """Pages that are made when they are asked for are the small server's."""
    sites = (
        Site(pages=3000),
        Site(pages=3000, hosts=200, is_named=True),
        Site(pages=2_000_000),
        Site(pages=9, known=9),
    )
    assert [nginx.fits(site) for site in sites] == [True, True, False, False]


def test_the_server_says_what_it_was_asked_for() -> None:
    """Since the last time that it was asked."""
    with serving(Site(pages=3)) as server:
        fetched(server.seed)
        fetched(server.seed)
        tally = server.tally()
        assert (tally.pages, tally.repeated) == (1, 1)
        assert server.tally().requests == 0


def test_pages_made_when_they_are_asked_for_are_the_same() -> None:
    """And what is not there is not."""
    site = Site(pages=300, hosts=3)
    ready, computed = answers(site, origins(site, 80)), Computed(site, origins(site, 80))
    assert all(computed.get(place, b"none") == answer for place, answer in ready.items())
    assert [computed.get(place, b"none") for place in (b"/pages/300.html", b"/robots.txt")] == [b"none", b"none"]


def test_a_page_is_found_at_its_path_alone() -> None:
    """No other spelling of a number is a page."""
    assert number_at(path(17)) == 17
    assert [number_at(place) for place in ("/pages/017.html", "/pages/.html", "/17.html", "/pages/17")] == [None] * 4


def test_a_site_is_read_as_it_was_written() -> None:
    """The server is told the whole of it."""
    site = Site(pages=9, known=3, hosts=2, links=7, is_named=True)
    assert Site.read(site.text) == site


def test_a_page_of_a_long_crawl_leads_to_one_new_page() -> None:
    """From the first 64 all are reached, each once; the other links are known URLs."""
    site = Site(pages=200, known=1000)
    found = [targets(number, site, ["http://a"]) for number in range(200)]
    assert all(len(each) == 60 for each in found[:136])
    new = [url for each in found for url in each if "/pages/" in url]
    assert sorted(new) == sorted(f"http://a{path(number)}" for number in range(64, 200))
    known = {url for each in found for url in each} - set(new)
    assert known <= {f"http://a/known/{number}.html" for number in range(1000)}
    assert len(known) > 900
