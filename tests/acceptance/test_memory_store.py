"""`--store memory`: the queue ends with the process, all else is as usual, and nobody takes what is left for more."""

import asyncio
import json
import signal

import pytest

from tests.acceptance.command import anabranch, crawl_log, ended, kill_after, pages, start, write_order
from tests.facts_schema import checked
from tests.site.oracle import expected
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"


@pytest.fixture
async def slow_web():
    """The small web, with every answer late by 20 ms, so that a crawl can be caught in the middle."""
    async with SmallWeb(delay_s=0.02) as web:
        yield web


def crawl_of(tmp_path, web, *more):
    order = write_order(tmp_path, web.hosts, politeness={"max_connections": 4}, crawl={"workers": 8})
    return ("crawl", SEED, "-c", order, "--job", tmp_path / "job", "--store", "memory", *more)


def served(web):
    return sum(web.ledger.counts().values())


async def test_a_crawl_in_memory_is_whole_and_finished_for_good(tmp_path, slow_web):
    """Log, pages, archive and reports as usual, no rows and no filter; the same command says that it is finished."""
    command = crawl_of(tmp_path, slow_web)
    run = await anabranch(*command, "--warc", cwd=tmp_path)
    assert run.code == 0, run.err
    job = tmp_path / "job"
    assert crawl_log(job) == expected([SEED])
    assert pages(job).keys() == {url for url, status in expected([SEED]).items() if status > 0}
    assert list((job / "warc").glob("*.warc.gz"))
    assert (job / "reports" / "crawl-report.txt").read_text()
    assert not {path.name for path in (job / "state").iterdir()} & {"frontier.db", "seen"}
    before = served(slow_web)
    again = await anabranch(*command, cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert again.out.splitlines() == [
        f"job {job} is finished, and its queue was in memory; use --again for another round"
    ]
    more = await anabranch(*command, "http://new.test/", cwd=tmp_path)
    assert (more.code, more.err.count("\n")) == (1, 1)
    assert (
        "the job is finished, and its queue was in memory; begin another round (`anabranch crawl --again`)" in more.err
    )
    assert served(slow_web) == before, (
        "a seed that cannot be crawled is not left out in silence, and nothing is fetched"
    )
    second = await anabranch("crawl", "--job", job, "--again", cwd=tmp_path)
    assert second.code == 0, second.err
    assert second.out.startswith(f"round 2 of job {job}: 1 URL queued")
    assert served(slow_web) > before


async def test_a_killed_crawl_in_memory_says_that_it_cannot_go_on(tmp_path, slow_web):
    """One line with what to do, whatever store is asked for now; nothing is fetched or removed before that is done."""
    command = crawl_of(tmp_path, slow_web)
    await kill_after(await start(*command, cwd=tmp_path), slow_web, 30)
    before, kept = served(slow_web), (tmp_path / "job" / "pages.jsonl").read_bytes()
    for more in ((), ("--store", "")):
        run = await anabranch(*command, *more, cwd=tmp_path)
        assert (run.code, run.err.count("\n"), run.out) == (1, 1, "")
        assert "queue was in memory and ended with its process; start over with `anabranch crawl --fresh`" in run.err
    for verb, *more in (("status",), ("add", SEED)):
        told = await anabranch(verb, tmp_path / "job", *more, cwd=tmp_path)
        assert (told.code, told.err.count("\n")) == (1, 1)
        assert "its queue was in memory and ended with its process" in told.err
    assert (served(slow_web), (tmp_path / "job" / "pages.jsonl").read_bytes()) == (before, kept)
    run = await anabranch(*command, "--fresh", cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED])


async def test_an_operator_looks_at_a_running_crawl_in_memory(tmp_path, slow_web):
    """Status, queues and why answer; a drained crawl says that it cannot go on."""
    process = await start(*crawl_of(tmp_path, slow_web), cwd=tmp_path)
    while served(slow_web) < 20:
        await asyncio.sleep(0.005)
    job = tmp_path / "job"
    usual_s, slow_web.delay_s = slow_web.delay_s, 2.0  # however slow the command is, the crawl goes on when it comes
    paused = await anabranch("pause", job, cwd=tmp_path)
    slow_web.delay_s = usual_s
    status = await anabranch("status", job, "--json", cwd=tmp_path)
    queues = await anabranch("frontier", "ls", job, "--json", cwd=tmp_path)
    why = await anabranch("why", job, SEED, "--json", cwd=tmp_path)
    added = await anabranch("add", job, "http://new.test/", cwd=tmp_path)
    assert [told.code for told in (paused, status, queues, why, added)] == [0] * 5
    assert checked(json.loads(status.out))["pending"] > 0
    assert checked(json.loads(queues.out), "Queues")["queues"]
    assert (checked(json.loads(why.out), "Explained")["explanation"]["seen"], why.err) == (True, "")
    assert added.out.startswith("new")
    process.send_signal(signal.SIGINT)
    run = await ended(process)
    assert run.code == 11, run.err
    assert "stopped by a signal; its queue was in memory, so the job cannot be resumed" in run.out
    assert "start the job again" not in run.out


async def test_a_queue_on_disk_is_not_left_for_one_in_memory(tmp_path, slow_web):
    """Nor the other way round, and a filter cannot be shared."""
    order = write_order(tmp_path, slow_web.hosts, crawl={"workers": 8})
    command = ("crawl", SEED, "-c", order, "--job", tmp_path / "job")
    assert (await anabranch(*command, "--limit", "5", cwd=tmp_path)).code == 0
    run = await anabranch(*command, "--store", "memory", cwd=tmp_path)
    assert (run.code, run.err.count("\n")) == (4, 1)
    assert "the queue is in frontier.db, not in memory; leave out [frontier] store" in run.err
    shared = ("-s", "dedup.leaves=redis://127.0.0.1:1/0")
    run = await anabranch("crawl", SEED, "--job", tmp_path / "other", "--store", "memory", *shared, cwd=tmp_path)
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "such a queue cannot share a filter with other crawls" in run.err
    assert not (tmp_path / "other").exists()
