import ada_url
import pytest
from lxml import html  # type: ignore[import-untyped]  # lxml ships no types

from tests.site.alpha import NO_LINKS, ODD_LINKS, SPELLINGS
from tests.site.oracle import SEED_REDIRECTS, expected, forbidden, split_url
from tests.site.page import Fault, Host, Link, Page, go, plain_body, redirect
from tests.site.pages import WEB

PAGES = [(host, target, page) for host, entry in WEB.items() for target, page in entry.pages.items()]
LINKS = [(f"http://{host}{target}", page, link) for host, target, page in PAGES for link in page.links]


def url_standard(base: str, raw: str) -> str | None:
    """Resolve a link by the URL standard, without fragment and userinfo; None = no http URL."""
    try:
        parsed = ada_url.parse_url(ada_url.join_url(base, raw))
    except ValueError:
        return None
    if parsed["protocol"] not in ("http:", "https:"):
        return None
    return f"{parsed['protocol']}//{parsed['host']}{parsed['pathname']}{parsed['search']}"


def absolute(url: str, to: str) -> str:
    return f"http://{split_url(url)[0]}{to}" if to.startswith("/") else to


def test_every_link_leads_where_the_url_standard_says() -> None:
    """The targets stated by hand agree with an independent parser; what must not be followed is a trap."""
    for url, page, link in LINKS:
        bases = html.document_fromstring(plain_body(page)).xpath("//base/@href") if page.head else []
        base = url_standard(url, bases[0]) or url if bases else url
        found = url_standard(base, link.raw)
        if link.to is None:
            assert found is None or "/trap/" in found, (url, link)
        else:
            assert found == absolute(url, link.to), (url, link)


def test_every_target_in_the_table_is_canonical() -> None:
    """A path that the URL standard spells otherwise could never be asked for."""
    for host, target, _ in PAGES:
        assert url_standard("http://x.test/", f"http://{host}{target}") == f"http://{host}{target}"


def test_no_page_is_a_trap() -> None:
    """A request below /trap/ is always a crawler's mistake."""
    assert not [target for _, target, _ in PAGES if "/trap/" in split_url(f"http://x{target}")[1].partition("?")[0]]


def test_every_page_can_be_reached() -> None:
    """A complete crawl of all hosts meets every page of the table, so none is there in vain."""
    seeds = [f"http://{host}/" for host in WEB]
    met = set(expected(seeds, max_body_bytes=1 << 30)) | forbidden(seeds)
    assert {f"http://{host}{target}" for host, target, _ in PAGES} - met == {
        f"http://{host}/robots.txt" for host, entry in WEB.items() if "/robots.txt" in entry.pages
    } | {"http://robots-moved.test/real-robots.txt"}


def test_the_blog_is_a_tree_of_three_levels_without_a_failure() -> None:
    """88 pages, all 200; below one first-level branch 1 + 4 + 16."""
    assert list(expected(["http://blog.alpha.test/"]).values()) == [200] * 88
    assert len(expected(["http://blog.alpha.test/tree/1/"], "prefix")) == 21


def test_scope_host_keeps_to_the_seeds_hosts() -> None:
    """Links to other hosts and ports are not asked for; a second seed opens its host."""
    alone = expected(["http://www.alpha.test/"])
    both = expected(["http://www.alpha.test/", "http://beta.test/"])
    assert {split_url(url)[0] for url in alone} == {"www.alpha.test"}
    assert {split_url(url)[0] for url in both} == {"www.alpha.test", "beta.test"}
    assert both["http://beta.test/only-by-redirect"] == 200
    assert "http://beta.test/only-by-redirect" not in expected(["http://beta.test/"])


def test_all_spellings_are_one_url() -> None:
    """`/same` is found by its spellings alone."""
    found = expected(["http://www.alpha.test/spelled-one"])
    assert found == {"http://www.alpha.test/spelled-one": 200, "http://www.alpha.test/same": 200}
    assert len(set(SPELLINGS)) == len(SPELLINGS) > 20


def test_odd_links_are_followed_and_no_links_are_not() -> None:
    """Each odd spelling's target on the host is expected, and each trap is not."""
    found = expected(["http://www.alpha.test/odd/"])
    assert {absolute("http://www.alpha.test/", to) for _, to in ODD_LINKS} - set(found) == {
        "http://xn--bcher-kva.test/"
    }
    assert not [url for url in found if "/trap/" in url.partition("?")[0]]
    assert NO_LINKS


def test_redirects_are_links_and_loops_end() -> None:
    """Every step of a chain has its own status; a loop's pages stand once each."""
    found = expected(["http://www.alpha.test/"])
    chain = [found[f"http://www.alpha.test/redirects/chain-{step}"] for step in (1, 2, 3)]
    assert chain == [301, 302, 308]
    assert found["http://www.alpha.test/redirects/after-chain"] == 200
    assert found["http://www.alpha.test/redirects/loop-1"] == found["http://www.alpha.test/redirects/loop-2"] == 302
    assert found["http://www.alpha.test/redirects/gone"] == 404


def test_a_seeds_redirects_bring_their_hosts_into_scope_up_to_five() -> None:
    """The sixth redirect of a seed is only a link, and leads out of scope."""
    moved = expected(["http://old.test/"])
    assert moved["http://new.test/1"] == 200
    assert moved["http://old.test/behind"] == 404
    assert list(expected(["http://far0.test/"])) == [f"http://far{n}.test/" for n in range(SEED_REDIRECTS + 1)]


def test_pages_that_pass_count_by_what_follows() -> None:
    """429, 503 and a connection lost once are not final; those that last are."""
    assert set(expected(["http://busy.test/", "http://overloaded.test/"]).values()) == {200}
    assert expected(["http://down.test/"]) == {"http://down.test/": 503}
    broken = expected(["http://broken.test/"])
    assert broken["http://broken.test/behind-closed-once"] == broken["http://broken.test/behind-cut-once"] == 200
    assert broken["http://broken.test/closed"] == -3
    assert broken["http://broken.test/cut"] == broken["http://broken.test/in-the-half"] == 200
    assert expected(["http://silent.test/", "http://stalled.test/"]) == {
        "http://silent.test/": -4,
        "http://stalled.test/": -4,
    }


def test_every_fault_has_a_final_status() -> None:
    """No fault is forgotten in the oracle's table; a page that breaks off is kept as far as it came."""
    for fault in set(Fault) - {Fault.CUT}:
        assert (
            expected(["http://a.test/"], table={"a.test": Host(pages={"/": Page(fault=fault)})})["http://a.test/"] < 0
        )


@pytest.mark.parametrize(
    ("limit_bytes", "late"), [(1 << 30, {"large", "huge", "bomb"}), (16 << 20, {"large"}), (64 << 10, set())]
)
def test_links_behind_the_limit_are_not_expected(limit_bytes: int, late: set[str]) -> None:
    """A body is read up to the limit, counted after decoding."""
    found = expected(["http://big.test/"], max_body_bytes=limit_bytes)
    assert {url.rpartition("-")[2] for url in found if "/late-" in url} == late
    assert len(found) == 7 + len(late)


def test_robots_txt_divides_the_urls_in_scope() -> None:
    """Forbidden URLs are listed as forbidden, and are not expected."""
    assert forbidden(["http://robots.test/"]) == {"http://robots.test/private/1", "http://robots.test/my.secret"}
    assert "http://robots.test/private/open" in expected(["http://robots.test/"])
    assert "http://robots.test/private/1" not in expected(["http://robots.test/"])
    assert expected(["http://robots-500.test/"]) == {}
    assert forbidden(["http://robots-500.test/"]) == {"http://robots-500.test/"}


def test_files_have_no_links() -> None:
    """Only HTML with status 200, and redirects, lead on."""
    table = {"a.test": Host(pages={"/": Page(links=go("/x"), content_type="text/plain"), "/x": Page()})}
    assert expected(["http://a.test/"], table=table) == {"http://a.test/": 200}


def test_a_host_that_does_not_exist_is_not_expected() -> None:
    """An unknown seed gives nothing, and no error."""
    assert expected(["http://nowhere.test/x"]) == {}
    assert forbidden(["http://nowhere.test/x"]) == set()


def test_prefix_scope_follows_a_seeds_redirect() -> None:
    """The prefix of the target is in scope as the seed's own is."""
    table = {
        "a.test": Host(
            pages={
                "/old/x": redirect(301, "/new/x", "/new/x"),
                "/new/x": Page(links=(*go("/new/y", "/out"), Link("z", "/new/z?a=/b/"))),
            }
        )
    }
    found = expected(["http://a.test/old/x"], "prefix", table=table)
    assert [split_url(url)[1] for url in found] == ["/old/x", "/new/x", "/new/y", "/new/z?a=/b/"]
