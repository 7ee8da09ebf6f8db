"""`anabranch move`: a job gets another place, without a fetch, and exactly one of the two is crawled."""

import asyncio
import json
import signal
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from tests.acceptance.command import anabranch, crawl_log, start, write_order
from tests.acceptance.command import ended as ended_process
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
    """Count URLs, and what was fetched, in a stopped job."""
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


@pytest.mark.parametrize(
    "more", [(), pytest.param(("--processes", "2"), marks=pytest.mark.slow)], ids=["one worker", "several"]
)
async def test_a_job_goes_to_a_database_and_back(tmp_path, web, store, order, more):
    """Its queue, what has ended, and its totals go with it; the place that it has left says where it is."""
    await begun(tmp_path, order, *more)
    before, requests = await counts(tmp_path / "job", tmp_path), web.ledger.counts()
    said = await done("move", tmp_path / "job", store, cwd=tmp_path)
    assert f"moved to {store}, divided among" in said
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


async def test_the_folder_that_a_job_has_left_may_be_that_of_a_worker(tmp_path, web, store, order):
    """With its logs, by the command that names both; nothing counts twice."""
    await begun(tmp_path, order)
    before = await counts(tmp_path / "job", tmp_path)
    await done("move", tmp_path / "job", store, cwd=tmp_path)
    await done("crawl", "--store", store, "--job", tmp_path / "job", cwd=tmp_path)  # its limit is reached already
    assert await counts(store, tmp_path) == before
    await ended(tmp_path, web, "--store", store, "--job", tmp_path / "job")
    found, _ = await counts(store, tmp_path)
    assert found["done"] + found["failed"] + found["disregarded"] == len(expected(SEEDS, table=WEB))
    assert crawl_log(tmp_path / "job").keys() >= expected(SEEDS, table=WEB).keys()


async def test_a_folder_is_renamed(tmp_path, web, order):
    """With its logs and its archive; the old name is free again."""
    await begun(tmp_path, order, "-s", "write.warc=true")
    before = await counts(tmp_path / "job", tmp_path)
    assert await done("move", tmp_path / "job", tmp_path / "new" / "place", cwd=tmp_path)
    assert not (tmp_path / "job").exists()
    assert await counts(tmp_path / "new" / "place", tmp_path) == before
    assert [*(tmp_path / "new" / "place" / "warc").iterdir()]
    await ended(tmp_path, web, "--job", tmp_path / "new" / "place")


async def test_a_job_that_runs_is_not_moved_and_one_that_is_there_is_not_replaced(tmp_path, web, store, order):
    """In one line, and nothing is changed."""
    await begun(tmp_path, order)
    await done("create", SEEDS[0], "-c", order, "--store", store, "--name", "other", cwd=tmp_path)
    for source, target, words in (
        (tmp_path / "job", store, "there is a job; name another database or schema"),
        (tmp_path / "job", tmp_path / "job", "is the same place; `anabranch divide`"),
        (tmp_path / "job", order, "is there already; name another folder"),
        (tmp_path / "missing", store, "there is no such job"),
        (store, tmp_path / "job", "is there already; name another folder"),
    ):
        run = await anabranch("move", source, target, cwd=tmp_path)
        assert (run.code, words in run.err, len(run.err.splitlines())) == (2, True, 1), run
    web.delay_s = 1.0
    worker = await start("crawl", "--store", store, "--job", tmp_path / "worker", cwd=tmp_path)
    while web.ledger.count(SEEDS[0]) < 2:  # the other job's
        await asyncio.sleep(0.005)
    run = await anabranch("move", store, tmp_path / "back", cwd=tmp_path)
    assert (run.code, "workers are at work" in run.err) == (2, True), run
    worker.send_signal(signal.SIGTERM)
    assert (await ended_process(worker)).code == 11


async def test_a_store_for_a_job_in_a_folder_names_the_move(tmp_path, store, order):
    """And so does `--processes`."""
    await begun(tmp_path, order)
    for more, words in (
        (("--store", store), f"`anabranch move {tmp_path / 'job'} {store}`"),
        (("--processes", "2"), f"`anabranch divide {tmp_path / 'job'}`"),
    ):
        run = await anabranch("crawl", "--job", tmp_path / "job", *more, cwd=tmp_path)
        assert (run.code, words in run.err) == (4, True), run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_one_job_is_crawled_whenever_the_move_is_killed(tmp_path, web, store, order, seed):
    """The one or the other; the same command moves it all the same, and each URL is fetched once."""
    await begun(tmp_path, order)
    chance, places = Random(seed), [tmp_path / "job", store, tmp_path / "back"]
    before = await counts(places[0], tmp_path)
    for source, target in pairwise(places):
        for _ in range(2):
            process = await start("move", source, target, cwd=tmp_path)
            await asyncio.sleep(chance.uniform(0.2, 1.2))
            with suppress(ProcessLookupError):  # it has ended
                process.kill()
            await process.communicate()
            left = [place for place in (source, target) if await is_crawled(place, tmp_path)]
            assert len(left) == 1, (source, target, left)
        again = await anabranch("move", source, target, cwd=tmp_path)
        assert again.code == 0 or left == [target], again
        assert await counts(target, tmp_path) == before
    await ended(tmp_path, web, "--job", tmp_path / "back")


async def is_crawled(place, cwd):
    """Whether a crawl begins there; it ends at once, by its limit of pages."""
    where = ("--store", place, "--job", cwd / "worker") if isinstance(place, str) else ("--job", place)
    if not (isinstance(place, str) or place.exists()):
        return False
    run = await anabranch("crawl", *where, "-s", f"limits.pages={LIMIT}", cwd=cwd)
    assert run.code in (0, 1, 2), run
    return run.code == 0
