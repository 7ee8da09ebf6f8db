from pathlib import Path

import pytest

from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.lab.web.model import body_of, least_bytes
from anabranch.crawler.lab.web.replay import MAX_BODY_BYTES, ReplayedWeb, replayed_file, replayed_web
from anabranch.crawler.outcomes.errors import UsageError
from tests.crawler.lab.web.test_shape import walked
from tests.rows import each_row

A = "http://a.test/"


def line(url: str, via: str | None = None, hops: str = "", **facts: object) -> str:
    known: dict[str, object] = {"status": 200, "size_bytes": 5_000, "mime": "text/html", "start_s": 1.5, "end_s": 1.75}
    known.update(facts)
    entry = CrawlLogEntry(logged_s=2.0, worker=1, url=url, via=via, hops=hops, **known)  # type: ignore[arg-type]
    return crawl_log_line(entry).decode()


def web_of(*lines: str) -> ReplayedWeb:
    return replayed_web(lines)


def test_sizes_times_statuses_and_types_are_those_of_the_log() -> None:
    """A page is what the crawl was answered."""
    web = web_of(
        line(A), line(f"{A}x.pdf?a=1&b=2", A, "L", status=404, size_bytes=77, mime="application/pdf", end_s=3.0)
    )
    root, pdf = web.page(A), web.page(f"{A}x.pdf?a=1&b=2")
    assert root is not None
    assert pdf is not None
    assert (root.status, root.media_type, root.size, root.latency_s, root.transfer_s) == (
        200,
        "text/html",
        5_000,
        0.25,
        0.0,
    )
    assert (pdf.status, pdf.media_type, pdf.size, pdf.latency_s, pdf.links) == (404, "application/pdf", 77, 1.5, ())
    assert (web.page(f"{A}x.pdf"), web.urls, web.notes) == (None, 2, ())


def test_the_link_tree_is_that_of_via() -> None:
    """Links and embeds apart, as the last hop says; all else hangs below, so every URL is reachable."""
    web = web_of(
        line(A),
        line(f"{A}1", A, "L"),
        line(f"{A}i.jpg", A, "E", mime="image/jpeg"),
        line("http://b.test/", f"{A}1", "LL"),
        line("http://b.test/favicon.ico", "http://b.test/", "LLI", mime="image/png"),
    )
    root = web.page(A)
    assert root is not None
    assert (web.seeds, root.links, root.embeds) == ((A,), (f"{A}1",), (f"{A}i.jpg",))
    assert len(walked(web)) == web.urls == 5
    for url, page in walked(web).items():
        assert len(body_of(page, url)) == page.size


def test_hosts_are_measured_by_their_pages() -> None:
    """URLs, the median time, and bytes in all the time."""
    web = web_of(line(A, end_s=2.5), line(f"{A}1", A, "L", end_s=1.6), line(f"{A}2", A, "L", end_s=1.8))
    (site,) = web.sites
    assert (site.host, site.urls, site.latency_s, site.crawl_delay_s) == ("a.test", 3, pytest.approx(0.3), None)
    assert site.bandwidth == pytest.approx(15_000 / 1.4)


def test_what_cannot_be_served_is_left_out_and_counted() -> None:
    """Lookups, robots.txt, and what got no answer; what was found there becomes a seed."""
    web = web_of(
        line("dns:a.test", status=1),
        line(f"{A}robots.txt", status=200),
        line(A),
        line(f"{A}down", A, "L", status=-2, size_bytes=None, mime=""),
        line(f"{A}sitemap-page", f"{A}robots.txt", "M"),
    )
    assert set(walked(web)) == {A, f"{A}sitemap-page"}
    assert web.seeds == (A, f"{A}sitemap-page")
    assert web.notes == ("3 URLs are left out: no HTTP answer, robots.txt or dns:",)


def test_the_last_answer_of_a_url_counts_and_its_first_via() -> None:
    """Lines of retries and rounds are joined; a failed fetch or a 304 later on does not undo an answer."""
    web = web_of(
        line(A, status=503),
        line(f"{A}1", A, "L", size_bytes=1_000),
        line(A, size_bytes=7_000),
        line(f"{A}1", "http://elsewhere.test/", "L", size_bytes=2_000),
        line(f"{A}1", A, "L", status=304, size_bytes=0),
        line(f"{A}1", A, "L", status=-3, size_bytes=None),
    )
    root, child = web.page(A), web.page(f"{A}1")
    assert root is not None
    assert child is not None
    assert (root.status, root.size, root.links) == (200, 7_000, (f"{A}1",))
    assert (child.status, child.size) == (200, 2_000)


def test_a_page_below_one_that_leads_nowhere_becomes_a_seed() -> None:
    """A log that was cut, a page that fails in the last round, and one that stands after what it led to."""
    web = web_of(
        line(f"{A}lost", "http://gone.test/", "L"),
        line(A),
        line(f"{A}1", A, "L"),
        line(A, status=404),
        line(f"{A}early", f"{A}late", "L"),
        line(f"{A}late", f"{A}early", "L"),
    )
    assert web.seeds == (f"{A}lost", A, f"{A}1", f"{A}early")
    assert len(walked(web)) == web.urls == 5


def test_a_redirect_leads_to_its_one_target() -> None:
    """The target is the first link; other URLs found there in another round become seeds."""
    web = web_of(line(A, status=301), line(f"{A}to", A, "R"), line(f"{A}other", A, "L"))
    root = web.page(A)
    assert root is not None
    assert (root.status, root.links, web.seeds) == (301, (f"{A}to",), (A, f"{A}other"))


def test_https_is_served_as_http_and_its_redirect_from_http_is_dropped() -> None:
    """Default ports mean nothing, others stay; names are lower case."""
    web = web_of(
        line("http://A.test/", status=301, size_bytes=0),
        line("https://a.test:443/", "http://A.test/", "R"),
        line("https://a.test/1", "https://a.test:443/", "RL"),
        line("http://a.test:8080/", "https://a.test/1", "RLL"),
        line("http://a.test", status=302),
    )
    assert walked(web).keys() == {A, f"{A}1", "http://a.test:8080/"}
    assert {page.status for page in walked(web).values()} == {200}
    assert [site.host for site in web.sites] == ["a.test"]


def test_a_page_that_has_become_a_redirect_is_one() -> None:
    """The last answer counts; of the same scheme it is no mere change of scheme."""
    page = web_of(line(A), line(A, status=301)).page(A)
    assert page is not None
    assert page.status == 301


def test_a_page_that_led_to_others_is_html_and_large_enough() -> None:
    """Links are written in HTML alone."""
    web = web_of(line(A, mime="application/rss+xml", size_bytes=10), line(f"{A}1", A, "L"))
    root = web.page(A)
    assert root is not None
    assert (root.media_type, root.size) == ("text/html", least_bytes((f"{A}1",), ()))


def test_a_body_beyond_all_measure_is_cut() -> None:
    """It is said."""
    web = web_of(line(A, size_bytes=10**12))
    root = web.page(A)
    assert root is not None
    assert (root.size, web.notes) == (MAX_BODY_BYTES, ("1 bodies are cut at 16 MiB",))


def test_malformed_lines_are_counted_and_said() -> None:
    """A torn last line, too; empty lines are none."""
    web = web_of("# not a log", "", line(A), line(f"{A}1", A, "L")[:60], "\x00\xff\n")
    assert (web.urls, web.notes) == (1, ("3 of 4 lines are none of a crawl.log",))


@each_row("url", ["http://", "http://[::1", "http://a.test:x/", "http://u@a.test/", "ftp://a.test/", "//"])
def test_urls_that_no_server_of_one_port_has_are_left_out(url: str) -> None:
    """They are counted, and nothing fails."""
    web = web_of(line(A), line(url, A, "L"))
    assert (web.urls, len(web.notes)) == (1, 1)


def test_a_log_of_heritrix_is_read() -> None:
    """Its lines are the same but for what it calls its workers."""
    web = web_of(
        "2026-01-02T03:04:05.678Z   200       1234 http://a.test/ - - text/html #042 20260102030405123+250 "
        "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ - -"
    )
    root = web.page(A)
    assert root is not None
    assert (root.size, root.latency_s) == (1234, pytest.approx(0.25))


@pytest.mark.parametrize("text", ["", "\n", "nothing\n", "torn"])
def test_a_log_without_an_answer_is_one_clear_line(tmp_path: Path, text: str) -> None:
    """It names the file and what is missing."""
    (tmp_path / "crawl.log").write_text(text)
    with pytest.raises(UsageError, match=r"crawl\.log: no answer of a page in \d+ lines") as caught:
        replayed_file(tmp_path / "crawl.log")
    assert "\n" not in str(caught.value)


def test_a_log_of_failures_alone_has_no_answer() -> None:
    """A web of no pages is none."""
    with pytest.raises(UsageError, match="no answer of a page in 1 lines"):
        web_of(line(A, status=-2, size_bytes=None))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[::1]:8080/x", "[::1]"),
        ("https://[2001:DB8::80]/x", "[2001:db8::80]"),
        ("http://127.0.0.1:8080/x", "127.0.0.1"),
        ("http://A.test:80/x", "a.test"),
    ],
)
def test_a_host_may_be_an_address_and_have_a_port(url: str, host: str) -> None:
    """It is one host whatever its ports, and keeps its brackets."""
    web = web_of(line(url), line(url.replace("x", "y"), url, "L"))
    assert [(site.host, site.urls) for site in web.sites] == [(host, 2)]
