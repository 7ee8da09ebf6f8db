"""`anabranch move`: a job gets another place, without a fetch, and exactly one of the two is crawled."""

import json

import pytest

from tests.acceptance.command import anabranch, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.facts_schema import checked
from tests.postgres_server import server
from tests.site.oracle import expected

WEB = many_hosts()
LIMIT = 30


@pytest.fixture
def store():
    with server() as url:
        yield url.replace(":@", "@")


@pytest.fixture
async def order(tmp_path, web):
    return write_order(tmp_path, web.hosts)


async def done(*command, cwd):
    run = await anabranch(*command, cwd=cwd)
    assert run.code == 0, run
    return run.out


COUNTED = ("pending", "retired", "done", "failed", "disregarded")


async def counts(place, cwd):
    """Of URLs, and of what was fetched, in a stopped job."""
    found = checked(json.loads(await done("status", place, "--json", cwd=cwd)))["totals"]
    hosts = json.loads(await done("report", place, "hosts", "--json", cwd=cwd))
    return {name: found[name] for name in COUNTED}, sorted(map(str, hosts["rows"]))


async def begun(tmp_path, order, *more):
    """A job that was stopped by its limit of pages."""
    limited = ("-s", f"limits.pages={LIMIT}", *more)
    await done("crawl", *SEEDS, "-c", order, "--job", tmp_path / "job", *limited, cwd=tmp_path)


async def ended(tmp_path, web, *command):
    """A crawl to the end: each URL was fetched once, over all places of the job."""
    await done("crawl", *command, "-s", "limits.pages=0", cwd=tmp_path)
    asked = {url: count for url, count in web.ledger.counts().items() if "robots.txt" not in url}
    assert asked.keys() == expected(SEEDS, table=WEB).keys()
    assert {url for url, count in asked.items() if count > 1} <= {url for url in asked if url.endswith("/7")}  # 503


@pytest.mark.parametrize("more", [(), ("--processes", "2")], ids=["one worker", "several"])
async def test_a_job_goes_to_a_database_and_back(tmp_path, web, store, order, more):
    """Its queue, what has ended, and its totals go with it; the place that it has left says where it is."""
    await begun(tmp_path, order, *more)
    before, requests = await counts(tmp_path / "job", tmp_path), web.ledger.counts()
    said = await done("move", tmp_path / "job", store, cwd=tmp_path)
    assert f"moved to {store}, divided among" in said
    assert await counts(store, tmp_path) == before
    for command in (
        ("crawl", "--job", tmp_path / "job"),
        ("status", tmp_path / "job"),
        ("move", tmp_path / "job", "x"),
    ):
        refused = await anabranch(*command, cwd=tmp_path)
        assert (refused.code, f"the job was moved to {store}" in refused.err) == (2, True), refused
    await done("move", store, tmp_path / "back", cwd=tmp_path)
    assert await counts(tmp_path / "back", tmp_path) == before
    refused = await anabranch("crawl", "--store", store, "--job", tmp_path / "worker", cwd=tmp_path)
    assert (refused.code, "the job was moved to" in refused.err) == (2, True), refused
    assert web.ledger.counts() == requests
    await ended(tmp_path, web, "--job", tmp_path / "back")
