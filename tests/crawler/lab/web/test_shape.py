"""None"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tracemalloc
from collections import Counter
from statistics import median
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.web.model import Web, WebPage, body_of
from anabranch.crawler.lab.web.shape import MadeWeb, Paths, WebOptions, make_web
from anabranch.crawler.outcomes.errors import UsageError
from tests.patience import HANG_S
from tests.rows import each_row

KINDS = ["portals", "subdomains", "hosts"]


def walked(web: Web) -> dict[str, WebPage]:
    """Every URL that a crawl finds from the seeds."""
    pages: dict[str, WebPage] = {}
    found = list(web.seeds)
    while found:
        url = found.pop()
        if url not in pages:
            page = web.page(url)
            assert page is not None, url
            pages[url] = page
            found += page.links + page.embeds
    return pages


def small(kind: str = "portals", **changes: int) -> MadeWeb:
    return make_web(WebOptions(**{"kind": kind, "pages": 2_000, "hosts": 20, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("pages", "hosts"), [(2_000, 20), (100, 100), (1, 1), (7, 3)])
@pytest.mark.parametrize("links", [0, 3])
def test_every_url_is_reachable_from_the_seeds(kind: str, pages: int, hosts: int, links: int) -> None:
    """There are exactly as many URLs as were asked for, each host has as many as it says, and a crawl finds them all."""
    web = small(kind, pages=pages, hosts=hosts, links=links)
    found = walked(web)
    counts = {site.host: site.urls for site in web.sites}
    assert len(found) == web.urls == sum(counts.values()) == pages
    assert Counter(urlsplit(url).netloc for url in found) == counts


def digest() -> str:
    """Return a digest of all pages of a web and their bodies."""
    made = sorted(walked(small(pages=300)).items())
    return hashlib.md5(b"".join(repr(page).encode() + body_of(page, url) for url, page in made)).hexdigest()


def test_another_process_makes_the_same_pages() -> None:
    """No chance of an interpreter (its hash seed) is in a page or its body."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command = [sys.executable, "-c", "from tests.crawler.lab.web.test_shape import digest; print(digest())"]
    ended = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    assert ended.stdout.strip() == digest()


def test_another_seed_makes_other_pages_at_the_same_hosts() -> None:
    """The hosts and their sizes stay; sizes, times and links of pages change."""
    one, other = walked(small()), walked(small(seed=2))
    assert one.keys() == other.keys()
    assert sum(one[url].size != other[url].size for url in one) > len(one) * 0.9


def test_sizes_are_heavy_tailed_and_kinds_differ() -> None:
    """The largest hundredth has far more than a hundredth of the bytes; pictures and style sheets are no pages."""
    pages = walked(small(pages=8_000)).values()
    sizes = sorted((page.size for page in pages), reverse=True)
    assert sum(sizes[: len(sizes) // 100]) > 0.05 * sum(sizes)
    assert sizes[0] > 20 * median(sizes)
    assert {page.media_type for page in pages} == {"text/html", "image/jpeg", "image/gif", "text/css"}


def test_urls_per_host_are_heavy_tailed() -> None:
    """By a power law the first of 1,000 hosts has more than the last 500."""
    counts = [site.urls for site in small("hosts", pages=100_000, hosts=1_000).sites]
    assert counts[0] > sum(counts[500:])


def test_links_lead_to_known_pages_and_to_pages_of_other_hosts() -> None:
    """Most links repeat an earlier one; about one in ten leads to another host, and not only to its first page."""
    pages = walked(small(pages=5_000))
    links = [(url, link) for url, page in pages.items() for link in page.links]
    far = [link for url, link in links if urlsplit(url).netloc != urlsplit(link).netloc]
    assert len(links) > 3 * len(pages)
    assert 0.05 < len(far) / len(links) < 0.15
    assert sum(urlsplit(link).path == "/" for link in far) < 0.5 * len(far)


def test_what_fails_has_nothing_below_it_and_stays_so() -> None:
    """A status is the same for each request; few fail, each way once at least; redirects lead to pages that answer."""
    web = small("hosts", pages=15_000, hosts=300)
    pages = walked(web)
    failed = {url: page for url, page in pages.items() if page.status != 200}
    assert {page.status for page in failed.values()} == {301, 404, 500, 503}
    assert len(failed) < 0.05 * len(pages)
    for url, page in failed.items():
        assert page.embeds == ()
        assert [pages[link].status for link in page.links] == ([200] if page.status == 301 else [])
        assert web.page(url) == page


def test_latencies_lie_around_the_hosts_and_few_are_slow() -> None:
    """The median over a host's pages is the host's; the slowest take ten times as long, no longer."""
    web = small(pages=5_000, hosts=1)
    latencies = [page.latency_s / web.sites[0].latency_s for page in walked(web).values()]
    assert 0.95 < median(latencies) < 1.05
    assert max(latencies) == pytest.approx(10.0)
    assert sum(latency > 5 for latency in latencies) < 0.02 * len(latencies)


def test_the_transfer_takes_what_the_bandwidth_asks() -> None:
    """Size over bandwidth, of every page."""
    web = small()
    bandwidths = {site.host: site.bandwidth for site in web.sites}
    for url, page in walked(web).items():
        assert page.transfer_s == pytest.approx(page.size / bandwidths[urlsplit(url).netloc])


def test_one_host_has_a_crawl_delay() -> None:
    """It is none of the seeds, if there are others."""
    web = small()
    delayed = [site.host for site in web.sites if site.crawl_delay_s]
    assert len(delayed) == 1
    assert f"http://{delayed[0]}/" not in web.seeds


def test_portals_have_their_real_names_and_sub_domains() -> None:
    """The seeds are those of the published experiment."""
    web = small()
    assert web.seeds[0] == "http://www.sina.com.cn/"
    assert sorted(web.seeds) == sorted(
        f"http://www.{domain}/" for domain in ("sina.com.cn", "sohu.com", "163.com", "qq.com", "xinhuanet.com")
    )
    assert "news.sina.com.cn" in {site.host for site in web.sites}
    assert small("subdomains").seeds == ("http://www.sina.com.cn/",)


@pytest.mark.parametrize("kind", KINDS)
def test_host_names_are_distinct(kind: str) -> None:
    """Also where the lists of names are used many times over."""
    sites = small(kind, pages=5_000, hosts=5_000).sites
    assert len({site.host for site in sites}) == 5_000


@each_row(
    "url",
    [
        "",
        "http://www.sina.com.cn",
        "https://www.sina.com.cn/",
        "http://www.nowhere.test/",
        "http://www.sina.com.cn/?",
        "http://www.sina.com.cn/2012/05-14/0000000.html",
        "http://www.sina.com.cn/2012/05-14/0123456.txt",
        "http://www.sina.com.cn/99999999999999999999/",
    ],
)
def test_what_is_no_page_is_none(url: str) -> None:
    """Only the URL as the web writes it is a page."""
    assert small().page(url) is None


def test_a_changed_path_is_no_page() -> None:
    """The digits say the number, but the whole path must be that number's."""
    web = small()
    (link,) = (link for link in walked(web)["http://www.sina.com.cn/"].links[:1])
    assert web.page(link) is not None
    assert web.page(link.replace("www.sina.com.cn/", "www.sina.com.cn/x/")) is None


def test_ten_million_urls_on_many_hosts_cost_no_memory_per_page() -> None:
    """A web a thousand times as large takes as much memory, and a page of it no time to find."""

    def taken(pages: int) -> int:
        tracemalloc.start()
        try:
            web = make_web(WebOptions(kind="hosts", pages=pages, hosts=200))
            for site in web.sites:
                assert web.page(f"http://{site.host}/") is not None
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert taken(10_000_000) < 1.2 * taken(10_000)


def test_a_host_of_more_than_ten_million_urls_finds_its_pages() -> None:
    """Its paths have ten digits."""
    web = make_web(WebOptions(kind="subdomains", pages=30_000_000, hosts=1))
    page = web.page("http://www.sina.com.cn/")
    assert page is not None
    assert all(web.page(link) is not None for link in page.links + page.embeds)


@each_row(
    ("changes", "named"),
    [
        ({"kind": "ring"}, "kind"),
        ({"hosts": 0}, "hosts"),
        ({"pages": 10, "hosts": 11}, "pages"),
        ({"links": -1}, "links"),
        ({"latency_s": -0.1}, "latency"),
        ({"latency_s": float("nan")}, "latency"),
        ({"bandwidth": 0.0}, "bandwidth"),
    ],
)
def test_a_web_that_cannot_be_is_refused(changes: dict[str, float], named: str) -> None:
    """One line names the option."""
    with pytest.raises(UsageError, match=named):
        make_web(WebOptions(**changes))  # type: ignore[arg-type]


def test_no_page_leads_to_one_that_there_is_not() -> None:
    """The only page of a host may redirect, and has none above it."""
    web = make_web(WebOptions(pages=3000, kind="hosts", hosts=2900))
    roots = [web.page(f"http://{site.host}/") for site in web.sites]
    assert any(page is not None and page.status == 301 for page in roots)
    assert all(page is not None and all(map(web.page, (*page.links, *page.embeds))) for page in roots)


@given(st.integers(0, 10**5), st.integers(1, 10**9), st.data())
def test_number_and_path_say_each_other(host: int, urls: int, data: st.DataObject) -> None:
    """Any host of any size has this property, also if its numbers need ten digits."""
    number = data.draw(st.integers(0, urls - 1))
    paths = Paths(host, urls, data.draw(st.integers(1, urls)))
    assert paths.number(paths.url(number)) == number


@pytest.mark.parametrize("urls", [9_999_990, 9_999_991])
def test_no_two_numbers_share_a_path_where_the_digits_become_ten(urls: int) -> None:
    """The first and the last numbers of a host, just below the prime of seven digits and at it."""
    paths = Paths(3, urls, urls)
    numbers = [*range(1_000), *range(urls - 1_000, urls)]
    assert len({paths.url(number) for number in numbers}) == 2_000


def test_pages_and_embeds_look_like_those_of_portals() -> None:
    """Dated articles, lists and directories; pictures and style sheets."""
    paths = Paths(0, 4_000, 2_000)
    pages, embeds = (
        [paths.url(number) for number in range(1, 2_000)],
        [paths.url(number) for number in range(2_000, 4_000)],
    )
    assert {path.rpartition(".")[2].rpartition("/")[2] for path in pages} == {"html", "shtml", "htm", ""}
    assert {path.rpartition(".")[2] for path in embeds} == {"jpg", "gif", "css"}
    assert any(path.startswith("/2012/") for path in pages)


@given(st.text())
def test_any_other_text_is_no_path(text: str) -> None:
    """Unless it is the very path of the number that it says."""
    paths = Paths(1, 500, 400)
    number = paths.number(text)
    assert number is None or paths.url(number) == text
