"""A crawl can end at any moment; the same command goes on and nothing is missing."""

import asyncio
import signal

import pytest

from anabranch.crawler.job.seedtable import known_seeds
from tests.acceptance.command import anabranch, crawl_log, ended, kill_after, start, write_order
from tests.site.oracle import expected
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"
WORKERS = 8


@pytest.fixture
async def slow_web():
    """The small web, with every answer late by 20 ms, so that a crawl can be caught in the middle."""
    async with SmallWeb(delay_s=0.02) as web:
        yield web


def crawl_of(tmp_path, web, *more):
    order = write_order(tmp_path, web.hosts, politeness={"max_connections": 4}, crawl={"workers": WORKERS})
    return ("crawl", SEED, "-c", order, "--job", tmp_path / "job", *more)


async def seen(web, count):
    while sum(web.ledger.counts().values()) < count:
        await asyncio.sleep(0.005)


@pytest.mark.slow
async def test_a_crawl_that_is_killed_five_times_misses_nothing(tmp_path, slow_web):
    """After five `kill -9` every page is there, and at most 2 × workers are fetched again per kill."""
    command = crawl_of(tmp_path, slow_web)
    for kill in range(1, 6):
        await kill_after(await start(*command, cwd=tmp_path), slow_web, kill * 14)
    run = await anabranch(*command, cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED])
    repeated = sum(count - 1 for url, count in slow_web.ledger.counts().items() if "robots.txt" not in url)
    assert repeated <= 5 * 2 * WORKERS


async def test_a_resumed_job_says_so_and_a_finished_one_too(tmp_path, slow_web):
    """The first line tells new, resuming and finished apart; a finished job exits with 0 and fetches nothing."""
    command = crawl_of(tmp_path, slow_web)
    first = await anabranch(*command, "--limit", "10", cwd=tmp_path)
    second = await anabranch(*command, cwd=tmp_path)
    before = sum(slow_web.ledger.counts().values())
    third = await anabranch(*command, cwd=tmp_path)
    assert [run.code for run in (first, second, third)] == [0, 0, 0]
    assert first.out.startswith("new job ")
    assert second.out.startswith("resuming job ")
    assert "is finished" in third.out.splitlines()[0]
    assert sum(slow_web.ledger.counts().values()) == before


async def test_limit_is_exact_and_counts_the_whole_job(tmp_path, slow_web):
    """--limit 10 ends with ten pages; the same limit again adds none; a higher one goes on to it."""
    command = crawl_of(tmp_path, slow_web)
    for limit in (10, 10, 25):
        run = await anabranch(*command, "--limit", str(limit), cwd=tmp_path)
        assert run.code == 0, run.err
        assert len(crawl_log(tmp_path / "job")) == limit


async def test_time_limit_ends_a_crawl_that_resumes(tmp_path, slow_web):
    """--time-limit stops in order, exits with 0, and the job goes on later."""
    command = crawl_of(tmp_path, slow_web)
    run = await anabranch(*command, "--time-limit", "500ms", cwd=tmp_path)
    assert run.code == 0, run.err
    assert "stopped by the time limit" in run.out
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == expected([SEED])


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
async def test_the_first_signal_drains(tmp_path, slow_web, number):
    """Pages under way are finished, the exit code is 11, and no page is fetched twice after resuming."""
    command = crawl_of(tmp_path, slow_web)
    process = await start(*command, cwd=tmp_path)
    await seen(slow_web, 30)
    process.send_signal(number)
    run = await ended(process)
    assert run.code == 11, run.err
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == expected([SEED])
    assert all(count == 1 for url, count in slow_web.ledger.counts().items() if "robots.txt" not in url)


async def test_the_second_signal_leaves_at_once(tmp_path):
    """With a fetch that hangs, a second Ctrl-C exits with 13 before the fetch time-out; the job resumes."""
    async with SmallWeb(delay_s=3) as web:
        order = write_order(tmp_path, web.hosts, fetch={"timeout": "30s"}, crawl={"workers": WORKERS})
        command = ("crawl", SEED, "-c", order, "--job", tmp_path / "job", "--robots", "ignore", "--limit", "1")
        process = await start(*command, cwd=tmp_path)
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"new job")
        process.send_signal(signal.SIGINT)
        assert b"draining" in await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (await ended(process)).code == 13
        assert (await anabranch(*command, cwd=tmp_path)).code == 0


async def test_seeds_are_added_and_limits_change_on_resume(tmp_path, slow_web):
    """A second seed and other numbers of workers and connections are taken by the next run."""
    command = crawl_of(tmp_path, slow_web)
    await anabranch(*command, "--limit", "10", cwd=tmp_path)
    more = ("http://new.test/", "--workers", "3", "--max-connections", "1")
    run = await anabranch(*command, *more, cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED, "http://new.test/"])


async def test_a_seed_that_never_answered_is_tried_again(tmp_path, slow_web):
    """A dead seed waits for its retries; when its host has come back, the same command crawls it."""
    hosts = slow_web.hosts
    dead = write_order(tmp_path, {**hosts, "blog.alpha.test": "127.0.0.1:1"}, fetch={"timeout": "2s"})
    command = ("crawl", SEED, "-c", dead, "--job", tmp_path / "job")
    dying = await start(*command, "--time-limit", "1s", cwd=tmp_path)
    first = await ended(dying)
    assert first.code == 0, "it still waits for its retry when the time is up"
    write_order(tmp_path, hosts, politeness={"max_connections": 4})
    run = await anabranch(*command, "--limit", "3", cwd=tmp_path)
    assert run.code == 0, run.err
    assert len(crawl_log(tmp_path / "job")) == 3


async def test_a_job_goes_on_without_a_word_about_its_order(tmp_path, slow_web):
    """`crawl --job DIR` has the delays, hosts and limits of the first run; a limit that is reached says how to go on."""
    first = await anabranch(*crawl_of(tmp_path, slow_web), "--limit", "10", "--warc", cwd=tmp_path)
    assert first.code == 0, first.err
    second = await anabranch("crawl", "--job", "job", cwd=tmp_path)
    assert (second.code, len(crawl_log(tmp_path / "job"))) == (0, 10)
    assert "its limit of 10 pages is reached" in second.out.splitlines()[0]
    assert "stopped by the page limit, which the job keeps" in second.out
    third = await anabranch("crawl", "--job", "job", "--limit", "0", "http://new.test/", cwd=tmp_path)
    assert third.code == 0, third.err
    assert crawl_log(tmp_path / "job") == expected([SEED, "http://new.test/"])
    assert known_seeds(tmp_path / "job" / "state") == {SEED, "http://new.test/"}
    served = sum(slow_web.ledger.counts().values())
    again = await anabranch("crawl", "--job", "job", "--again", cwd=tmp_path)
    assert again.out.startswith("round 2 of job job: 2 URLs queued")
    assert sum(slow_web.ledger.counts().values()) > served
    assert crawl_log(tmp_path / "job").keys() == expected([SEED, "http://new.test/"]).keys()


async def test_a_run_without_warc_files_finishes_those_of_a_killed_one(tmp_path, slow_web):
    """They have their names and their indexes, and hold what they held."""
    command = crawl_of(tmp_path, slow_web)
    await kill_after(await start(*command, "--warc", cwd=tmp_path), slow_web, 30)
    warc = tmp_path / "job" / "warc"
    assert [path.name for path in warc.glob("*.warc.gz.open")]
    run = await anabranch("crawl", "--job", "job", "-s", "write.warc=false", cwd=tmp_path)
    assert run.code == 0, run.err
    assert sorted(path.suffix for path in warc.iterdir()) == [".cdxj", ".gz"]
