"""The main job on the small web: complete, polite, and reported."""

import pytest

from tests.acceptance.command import anabranch, crawl_log, pages, write_order
from tests.site.oracle import expected, forbidden
from tests.site.server import SmallWeb

ROBOTS_EXCLUDED = -9998


def job_of(tmp_path):
    return tmp_path / "job"


@pytest.mark.parametrize("policy", ["bkdr:997", "bkdr:7", "host"])
async def test_a_crawl_fetches_exactly_what_an_independent_reader_finds(tmp_path, small_web, policy):
    """Every URL in scope gets the status that the web's own table promises, whatever the policy."""
    seeds = ["http://www.alpha.test/", "http://blog.alpha.test/", "http://beta.test/"]
    order = write_order(tmp_path, small_web.hosts, frontier={"policy": policy}, politeness={"max_connections": 8})
    run = await anabranch("crawl", *seeds, "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
    assert run.code == 0, run.err
    want = expected(seeds)
    assert crawl_log(job_of(tmp_path)) == want | dict.fromkeys(forbidden(seeds), ROBOTS_EXCLUDED)
    answered = {url: page["status"] for url, page in pages(job_of(tmp_path)).items()}
    assert answered == {url: status for url, status in want.items() if status > 0}


async def test_no_url_is_asked_for_twice_without_need(tmp_path, small_web):
    """A page linked under many spellings is one page; robots.txt is fetched once per host."""
    order = write_order(tmp_path, small_web.hosts, politeness={"max_connections": 8})
    seeds = ["http://www.alpha.test/", "http://blog.alpha.test/"]
    run = await anabranch("crawl", *seeds, "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
    assert run.code == 0, run.err
    often = {url: count for url, count in small_web.ledger.counts().items() if count > 1}
    failing = {url for url, status in expected(seeds).items() if status < 0}
    assert set(often) <= failing | {url for url in often if "once" in url}


async def test_what_robots_txt_forbids_is_never_asked_for(tmp_path, small_web):
    """A forbidden URL gets a line with -9998 and no request."""
    seeds = ["http://robots.test/"]
    order = write_order(tmp_path, small_web.hosts)
    run = await anabranch("crawl", *seeds, "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
    assert run.code == 0, run.err
    shut = forbidden(seeds)
    assert shut, "the small web forbids something"
    assert not shut & set(small_web.ledger.counts())
    assert {url for url, status in crawl_log(job_of(tmp_path)).items() if status == ROBOTS_EXCLUDED} == shut


async def test_a_crawl_delay_holds_whatever_the_connections_and_the_policy(tmp_path, small_web):
    """robots.test asks for 0.5 s: no two requests start closer, with 8 connections and 997 queues."""
    order = write_order(tmp_path, small_web.hosts, politeness={"max_connections": 8})
    run = await anabranch("crawl", "http://robots.test/", "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
    assert run.code == 0, run.err
    assert small_web.ledger.shortest_gap("robots.test") >= 0.5


async def test_a_host_rests_between_two_fetches_though_its_urls_stand_in_many_queues(tmp_path, small_web):
    """One connection per host and at least min_delay from the end of a fetch to the next start, seen by the server."""
    order = write_order(tmp_path, small_web.hosts, politeness={"min_delay": "60ms", "max_delay": "60ms"})
    options = ("-c", order, "--limit", "15", "--job", job_of(tmp_path))
    run = await anabranch("crawl", "http://www.alpha.test/", "http://blog.alpha.test/", *options, cwd=tmp_path)
    assert run.code == 0, run.err
    for host in ("www.alpha.test", "blog.alpha.test"):
        assert small_web.ledger.max_in_service(host) == 1
        assert small_web.ledger.shortest_rest(host) >= 0.06


async def test_no_more_connections_than_allowed_reach_a_host(tmp_path):
    """K slots are k requests in service at most, with 20 workers and 997 queues."""
    async with SmallWeb(delay_s=0.02) as web:
        order = write_order(tmp_path, web.hosts, politeness={"max_connections": 3})
        run = await anabranch("crawl", "http://blog.alpha.test/", "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
        assert run.code == 0, run.err
        assert 2 <= web.ledger.max_in_service("blog.alpha.test") <= 3


async def test_a_busy_host_is_left_alone_for_its_retry_after(tmp_path, small_web):
    """429 with Retry-After: 1 closes the host for a second, and the page is fetched in the end."""
    order = write_order(tmp_path, small_web.hosts, politeness={"max_connections": 4})
    run = await anabranch("crawl", "http://busy.test/", "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(job_of(tmp_path)) == expected(["http://busy.test/"])


async def test_the_target_of_a_seeds_redirect_becomes_a_seed(tmp_path, small_web):
    """old.test sends us to new.test, which is then crawled; the seeds report names it."""
    order = write_order(tmp_path, small_web.hosts)
    run = await anabranch("crawl", "http://old.test/", "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(job_of(tmp_path)) == expected(["http://old.test/"])
    assert "http://new.test/" in (job_of(tmp_path) / "reports" / "seeds-report.txt").read_text()


async def test_a_page_over_the_limit_is_cut_and_its_links_are_kept(tmp_path, small_web):
    """LenTrunc stands in crawl.log, and early links of the cut page are followed."""
    order = write_order(tmp_path, small_web.hosts, fetch={"max_body": "64KiB"})
    run = await anabranch("crawl", "http://big.test/", "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(job_of(tmp_path)) == expected(["http://big.test/"], max_body_bytes=64 << 10)
    assert "lenTrunc" in (job_of(tmp_path) / "logs" / "crawl.log").read_text()


async def test_scope_prefix_stays_below_the_seeds_folder(tmp_path, small_web):
    """With --scope prefix nothing outside the seed's folder is fetched."""
    seeds = ["http://blog.alpha.test/tree/"]
    order = write_order(tmp_path, small_web.hosts, scope={"scope": "prefix"})
    run = await anabranch("crawl", *seeds, "-c", order, "--job", job_of(tmp_path), cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(job_of(tmp_path)) == expected(seeds, "prefix")


async def test_names_come_from_the_dns_servers_of_the_order(tmp_path, small_web, dns_server):
    """With [dns] servers, a host is found by that server alone."""
    port = small_web.port
    order = write_order(tmp_path, {}, dns={"servers": [dns_server.address]})
    seed = f"http://blog.alpha.test:{port}/"
    run = await anabranch("crawl", seed, "-c", order, "--limit", "5", "--job", job_of(tmp_path), cwd=tmp_path)
    assert dns_server.questions["blog.alpha.test", "A"] == 1
    assert run.code in (0, 5), run.err
