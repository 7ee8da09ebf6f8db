"""The hostile web, group by group: the crawl goes on and ends by itself, each URL gets a status, memory stays bounded,
an innocent host beside it is fetched whole, and nothing private is asked for.

What each host does stands in `tests/site/hostile/hosts.py`, one line each, with the statuses that its first URL may get.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.acceptance.hostile import Crawled, asked_for, crawl
from tests.site.hostile.asking import TRAP
from tests.site.hostile.hosts import GROUPS, INNOCENT, INNOCENT_URLS, RULED, first_url, host_of, many_hosts
from tests.site.hostile.server import HostileWeb
from tests.site.hostile.wire import OK

pytestmark = pytest.mark.timeout(900)

#: Anonymous memory that a crawl of any of the groups may have.
MEMORY_BYTES = 300_000_000
INNOCENT_SEED = f"http://{INNOCENT}/"
ROBOTS_EXCLUDED = -9998
#: What the order of a group's crawl says, where tests of single hosts ask for more than the crawl's defaults.
SECTIONS: dict[str, dict[str, dict[str, object]]] = {
    "bodies": {"extract": {"max_content": "2MiB"}},  # the helper that read a bomb reads the next one, too
    "noise": {"politeness": {"max_connections": 1}},
    "redirects": {"scope": {"max_hops": 20}},
    "sitemaps": {"scope": {"max_hops": 10}, "extract": {"sitemaps": True}},
}


@pytest.fixture
async def web() -> AsyncIterator[HostileWeb]:
    """The hostile web, on one port, with a fresh ledger."""
    async with HostileWeb() as server:
        yield server


def assert_well(crawled: Crawled, web: HostileWeb) -> None:
    """Check every crawl: it ended within its memory, each requested URL has a line, and the innocent host is complete."""
    assert crawled.run.code in (0, 5), crawled.run.err
    assert "Traceback" not in crawled.run.err
    assert crawled.peak_bytes < MEMORY_BYTES
    assert asked_for(web.ledger) <= set(crawled.final()), "a URL was fetched and has no line"
    innocent = {url: status for url, status in crawled.final().items() if url.startswith(INNOCENT_SEED)}
    innocent.pop(f"{INNOCENT_SEED}sitemap.xml", None)  # asked for where the order wants sitemaps
    assert innocent == dict.fromkeys(INNOCENT_URLS, OK)
    assert not {url for url in web.ledger.counts() if TRAP in url}, "a trap was asked for"


async def crawl_of(web: HostileWeb, folder, names, **sections) -> Crawled:
    """A crawl of some hosts and the innocent one."""
    seeds = [INNOCENT_SEED, *(first_url(name) for name in names)]
    return await crawl(folder, seeds, web.hosts(), scope={"max_hops": 40} | sections.pop("scope", {}), **sections)


#: A group's crawl, and the web that it crawled.
Grouped = tuple[Crawled, HostileWeb]


@pytest.fixture(scope="module")
def group_crawl(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Awaitable[Grouped]]:
    """Crawl all hosts of a group at once: one crawl for all tests that look at what came of it."""
    crawls: dict[str, Grouped] = {}

    async def crawled(group: str) -> Grouped:
        if group not in crawls:
            async with HostileWeb() as web:
                folder = tmp_path_factory.mktemp("group")
                crawls[group] = await crawl_of(web, folder, GROUPS[group], **SECTIONS.get(group, {})), web
                assert_well(*crawls[group])
        return crawls[group]

    return crawled


@pytest.mark.parametrize("group", [group for group in GROUPS if group not in ("endless sites", "parsers")])
async def test_each_hostile_host_gets_a_status_and_the_innocent_one_is_fetched_whole(group_crawl, group):
    """All the hosts of a group at once, in one crawl."""
    crawled, _ = await group_crawl(group)
    final = crawled.final()
    wrong = {
        name: final.get(first_url(name))
        for name, host in GROUPS[group].items()
        if final.get(first_url(name)) not in host.statuses
    }
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS["parsers"])
async def test_no_page_stalls_the_crawl(tmp_path, web, name):
    """A page made to hurt a parser is read within the limits, while the innocent host is fetched."""
    crawled = await crawl_of(
        web, tmp_path, [name], scope={"max_hops": 4}, fetch={"max_body": "16MiB", "timeout": "20s"}
    )
    assert_well(crawled, web)
    assert crawled.final()[first_url(name)] in GROUPS["parsers"][name].statuses


async def test_sites_without_end_end_by_the_limits_of_the_order(tmp_path, web):
    """Calendars, relative paths, session ids, frames, imports and refreshes: no URL is farther away than max_hops."""
    crawled = await crawl_of(web, tmp_path, GROUPS["endless sites"], scope={"max_hops": 6}, crawl={"workers": 40})
    assert_well(crawled, web)
    assert max(len(line.hops) for line in crawled.lines if line.hops != "-" and not line.hops.endswith("P")) == 6
    assert f"http://{host_of('deeper')}/x/y/x/y/x/y/" in crawled.final()


async def test_a_body_without_end_is_cut_and_what_was_read_counts(group_crawl):
    """10 GB and more cost 1 MiB each: `lenTrunc` in crawl.log, links at the beginning are followed."""
    crawled, _ = await group_crawl("bodies")
    for name in ("ten-gigabytes", "endless"):
        assert "lenTrunc" in crawled.notes(first_url(name))
        assert f"http://{host_of(name)}/early" in crawled.final()
    assert all(int(line.size) <= 1 << 20 for line in crawled.lines if line.size != "-")


async def test_a_bomb_costs_no_more_than_its_limit_and_its_beginning_is_read(group_crawl):
    """1 GB in 1 MB: the links before the gigabyte are found."""
    crawled, _ = await group_crawl("bodies")
    assert f"http://{host_of('gzip-bomb')}/early" in crawled.final()


async def test_the_rules_at_the_beginning_of_an_endless_robots_txt_count(group_crawl):
    """Only the first 500 KiB of 50 MB are read (RFC 9309 section 2.5): /shut is excluded, /early is fetched."""
    crawled, web = await group_crawl("robots.txt")
    base = f"http://{host_of('robots-50mb')}"
    assert crawled.final()[f"{base}/shut"] == ROBOTS_EXCLUDED
    assert crawled.final()[f"{base}/early"] == OK
    assert f"{base}/shut" not in web.ledger.counts()


async def test_redirects_are_links_and_end_with_the_hops(group_crawl):
    """A chain of 50 is followed for max_hops; loops end at the second visit; other schemes are no links."""
    crawled, web = await group_crawl("redirects")
    final, chain = crawled.final(), f"http://{host_of('chain')}"
    assert {url for url in final if url.startswith(chain)} == {f"{chain}/{number or ''}" for number in range(21)}
    assert web.ledger.count(first_url("self")) == 1
    assert {url for url in final if "ping-pong" in url} == {first_url("ping-pong"), f"{first_url('ping-pong')}pong"}
    assert all(url.startswith("http://") and url.split("/")[2].endswith(".test") for url in final)


async def test_a_line_break_in_a_location_makes_no_request_of_its_own(group_crawl):
    """Text after CR LF is neither a header field nor an answer; a percent-encoded CR LF stays in the URL."""
    _, web = await group_crawl("redirects")
    of_encoded = {url for url in web.ledger.counts() if "encoded-location" in url and not url.endswith("robots.txt")}
    base = first_url("encoded-location")
    assert of_encoded == {base, f"{base}early", f"{base}early%0d%0aSet-Cookie:%20a=b"}


async def test_a_second_answer_in_a_kept_connection_is_nobodys(group_crawl):
    """Bytes that a server sends unasked are not taken for the answer to the next request."""
    crawled, _ = await group_crawl("noise")
    assert not any(TRAP in url for url in crawled.final())


async def test_urls_of_100_kb_are_no_urls(tmp_path, web):
    """Neither links nor redirects nor bases make one; the short link beside them is followed."""
    names = ["long-urls", "long-base", "long-location"]
    crawled = await crawl_of(web, tmp_path, names)
    assert_well(crawled, web)
    assert max(map(len, web.ledger.counts())) < 10_000
    assert f"http://{host_of('long-urls')}/early" in crawled.final()


async def test_a_host_that_is_always_busy_is_given_up(group_crawl):
    """429 for ever: five tries, then the answer stands; a Retry-After of a year is cut to the order's longest."""
    crawled, web = await group_crawl("busy hosts")
    assert web.ledger.count(first_url("throttled")) == 5
    assert crawled.final()[f"{first_url('next-year')}1"] == 503


async def test_many_hosts_on_one_server_are_all_fetched(tmp_path, web):
    """120 names for one address: each has its own robots.txt, gate and pages."""
    hosts = many_hosts(120)
    seeds = [INNOCENT_SEED, *(f"http://{host}/" for host in hosts)]
    crawled = await crawl(tmp_path, seeds, web.hosts("busy hosts", many=120), scope={"max_hops": 4})
    assert_well(crawled, web)
    assert {f"http://{host}{path}" for host in hosts for path in ("/", "/1")} <= set(crawled.final())
    assert all(web.ledger.count(f"http://{host}/robots.txt") == 1 for host in hosts)


@pytest.mark.slow
async def test_more_hosts_that_keep_their_connections_than_the_process_may_have_files(tmp_path, web):
    """600 hosts, 256 files: idle connections are closed before the crawl's own files cannot be opened."""
    seeds = [INNOCENT_SEED, *(f"http://{host}/" for host in many_hosts(600))]
    crawled = await crawl(tmp_path, seeds, web.hosts("busy hosts", many=600), scope={"max_hops": 4}, files=256)
    assert_well(crawled, web)
    assert {f"http://{host}/" for host in many_hosts(600)} <= {
        url for url, status in crawled.final().items() if status == OK
    }


@pytest.mark.slow
async def test_many_hosts_with_the_longest_robots_txt_cost_bounded_memory(tmp_path, web):
    """40 hosts with 500 KB of rules each: kept rules are bounded by their size, not by their number alone."""
    hosts = many_hosts(40, RULED)
    seeds = [INNOCENT_SEED, *(f"http://{host}/" for host in hosts)]
    table = web.hosts("busy hosts") | dict.fromkeys(hosts, f"127.0.0.1:{web.port}")
    crawled = await crawl(tmp_path, seeds, table, scope={"max_hops": 4}, fetch={"timeout": "10s"})
    assert_well(crawled, web)
    assert {f"http://{host}/" for host in hosts} <= {url for url, status in crawled.final().items() if status == OK}


async def test_paths_that_repeat_themselves_are_left(tmp_path, web):
    """/x/x/x/… ends after the repeats that the order allows."""
    crawled = await crawl_of(web, tmp_path, ["deeper"], scope={"max_hops": 8, "max_path_repeats": 2})
    assert_well(crawled, web)
    base = first_url("deeper")
    assert f"{base}x/x/" in crawled.final()
    assert not any("/x/x/x/x/" in url or "/x/y/x/y/x/y/x/y/" in url for url in crawled.final())


async def test_a_host_without_end_ends_by_its_pages(tmp_path, web):
    """Each endless host gets at most so many pages, and the innocent one all of its 30."""
    crawled = await crawl_of(
        web, tmp_path, GROUPS["endless sites"], scope={"max_hops": 1000}, limits={"pages_per_host": 40}
    )
    assert_well(crawled, web)
    pages = [url for url, status in crawled.final().items() if status > 0]
    assert all(sum(host_of(name) in url for url in pages) <= 40 + 8 for name in GROUPS["endless sites"])


async def test_imports_in_circles_and_without_end_end_with_the_embeds(tmp_path, web):
    """The page's stylesheets and two imports further; each is fetched once."""
    crawled = await crawl_of(web, tmp_path, ["imports"], scope={"max_hops": 20, "max_embeds": 2})
    assert_well(crawled, web)
    sheets = {url.rpartition("/")[2] for url in crawled.final() if url.endswith(".css")}
    assert {"a.css", "b.css", "1.css", "2.css"} <= sheets
    assert max(web.ledger.counts().values()) == 1


async def test_sitemaps_that_never_end_are_read_to_a_bounded_depth(group_crawl):
    """An index that names itself and ever new ones; entities of files and URLs lead nowhere."""
    crawled, _ = await group_crawl("sitemaps")
    assert 2 <= sum("map-index" in url for url in crawled.final()) <= 12
    assert not any("passwd" in url or "root:" in url for url in crawled.final())


@pytest.mark.slow
@pytest.mark.parametrize("group", ["headers", "framing", "bodies", "noise"])
async def test_whatever_a_server_sends_its_warc_can_be_read(tmp_path, web, group):
    """Every answer in crawl.log has a response record with digests that hold, read by warcio."""
    crawled = await crawl_of(web, tmp_path, GROUPS[group], write={"warc": True})
    assert_well(crawled, web)
    from warcio.archiveiterator import ArchiveIterator
    from warcio.digestverifyingreader import DigestChecker

    answered = {url for url, status in crawled.final().items() if status > 0}
    archived: set[str] = set()
    for file in (tmp_path / "job").rglob("*.warc.gz"):
        with file.open("rb") as stream:
            checker = DigestChecker("raise")
            for record in ArchiveIterator(stream, check_digests=checker):
                record.raw_stream.read()  # not the content: warcio cannot undo br with this brotli
                if record.rec_type in ("response", "revisit"):
                    archived.add(record.rec_headers.get_header("WARC-Target-URI"))
    assert answered <= archived
