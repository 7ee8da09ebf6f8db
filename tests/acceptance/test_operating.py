"""An operator and a running crawl: the real commands, real signals, the real socket."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import sys
import zlib
from contextlib import contextmanager, suppress
from itertools import count

import pytest

from anabranch.crawler.job.seedtable import known_seeds
from tests.acceptance.blocking import Process
from tests.acceptance.command import PATIENCE_S, anabranch, crawl_log, ended, environment, start, start_as, write_order
from tests.facts_schema import checked
from tests.site.oracle import expected
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"
OTHER = "http://new.test/"


@pytest.fixture
async def slow_web():
    """The small web, with every answer late by 20 ms, so that a crawl can be caught in the middle."""
    async with SmallWeb(delay_s=0.02) as web:
        yield web


def crawl_of(tmp_path, web, *more, **sections):
    order = write_order(tmp_path, web.hosts, **{"politeness": {"max_connections": 2}, **sections})
    return ("crawl", SEED, "-c", order, "--job", tmp_path / "job", *more)


def served(web):
    return sum(web.ledger.counts().values())


async def seen(web, count):
    while served(web) < count:
        await asyncio.sleep(0.005)


async def told(tmp_path, verb, *more):
    """`anabranch VERB JOB …` on the job of this test."""
    return await anabranch(verb, tmp_path / "job", *more, cwd=tmp_path)


@contextmanager
def held_up(web):
    """While inside, answers take long: however slow the command is that is started, the crawl goes on when it comes."""
    usual_s, web.delay_s = web.delay_s, 1.0
    try:
        yield
    finally:
        web.delay_s = usual_s


async def facts(tmp_path):
    return checked(json.loads((await told(tmp_path, "status", "--json")).out))


async def until_idle(tmp_path):
    """The fetches that were under way have ended."""
    while (now := await facts(tmp_path))["active"]:
        pass
    return now


async def test_a_paused_crawl_fetches_nothing_until_it_is_resumed(tmp_path, slow_web):
    """Its status says so; after `resume` it ends by itself, and nothing is missing."""
    process = await start(*crawl_of(tmp_path, slow_web), cwd=tmp_path)
    await seen(slow_web, 20)
    with held_up(slow_web):
        paused = await told(tmp_path, "pause")
    assert (paused.code, "paused by the operator" in paused.out) == (0, True), paused.err
    while slow_web.ledger.in_service:
        await asyncio.sleep(0.005)
    now = await until_idle(tmp_path)
    before = served(slow_web)
    assert (now["phase"], now["paused"], now["pid"]) == ("paused", "paused by the operator", process.pid)
    assert now["line"].endswith("paused by the operator")
    assert served(slow_web) == before
    assert (await told(tmp_path, "resume")).code == 0
    run = await ended(process)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED])
    assert "paused by the operator; fetches under way may end\nresumed\n" in run.out


async def test_stop_ends_a_crawl_in_order(tmp_path, slow_web):
    """A stop acts like the first signal: exit code 11, the summary names the operator, the same command continues the job."""
    command = crawl_of(tmp_path, slow_web)
    process = await start(*command, cwd=tmp_path)
    await seen(slow_web, 20)
    with held_up(slow_web):
        stopped = await told(tmp_path, "stop", "--wait")
    assert stopped.code == 0, stopped.err
    status = await told(tmp_path, "status")
    assert status.out.startswith("stopped by the operator"), "it has ended when `stop --wait` comes back"
    run = await ended(process)
    assert run.code == 11, run.err
    assert "stopped by the operator" in run.out
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == expected([SEED])
    assert all(count == 1 for url, count in slow_web.ledger.counts().items() if "robots.txt" not in url)


async def test_stop_now_gives_up_what_is_being_fetched(tmp_path):
    """With a server that lets everybody wait: exit code 13, and nothing is lost."""
    async with SmallWeb(delay_s=600) as web:
        command = crawl_of(tmp_path, web, "--robots", "ignore", fetch={"timeout": "10m"})
        process = await start(*command, cwd=tmp_path)
        while not (tmp_path / "job" / "state" / "control").exists():
            await asyncio.sleep(0.005)
        while not (await facts(tmp_path)).get("active"):
            pass
        drained = await told(tmp_path, "stop")
        assert "draining" in drained.out
        assert (await told(tmp_path, "stop", "--now")).code == 0
        run = await ended(process)
    assert run.code == 13, run.err
    assert "stopped at once by the operator" in run.out
    status = await told(tmp_path, "status", "--json")
    assert json.loads(status.out)["totals"]["pending"] == 1


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_a_crawl_whose_seed_is_refused_names_the_trouble(tmp_path, processes):
    """While it idles: its own lines, `status` and `why`. After it, both still know the reason."""
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        seed = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        more = () if processes == 1 else ("--processes", str(processes))
        order = write_order(
            tmp_path, {}, politeness={"backoff_base": "1h", "backoff_cap": "1h"}, report={"interval": 0.2}
        )
        process = await start("crawl", seed, "-c", order, *more, "--job", tmp_path / "job", cwd=tmp_path)
        begun = ("state", "control") if processes == 1 else ("order.toml",)
        while not (tmp_path / "job").joinpath(*begun).exists():
            await asyncio.sleep(0.005)
        workers = 0 if processes == 1 else processes  # each begins when it can
        while not (now := await facts(tmp_path)).get("no_seed_answered") or len(now["processes"]) < workers:
            pass
        assert (now["last_trouble"]["url"], now["last_trouble"]["reason"]) == (seed, "connection refused")
        while "connection refused, tried again in" not in (why := await told(tmp_path, "why", seed)).out:
            pass  # a job of several processes notes that a moment later where `why` reads it
        line = ""
        while "connection refused" not in line:
            line = (await process.stderr.readline()).decode()
        assert (await told(tmp_path, "stop", "--wait")).code == 0
    await ended(process)
    words = " ago: connection refused, tr"
    for text in (now["line"], why.out, line):
        assert f"{words}ied again in " in text
    for text in (now["line"], line):
        assert "next in " in text
        assert " · no seed has answered so far · last trouble, " in text
    left = await facts(tmp_path)
    assert tuple(left) == tuple(now)
    assert (left["phase"], left["pid"], len(now["processes"])) == ("stopped", None, workers)
    assert left["totals"].keys() == now["totals"].keys()
    assert left["last_trouble"]["reason"] == "connection refused"
    for verb, *about in (("status",), ("why", seed)):
        told_now = " ".join((await told(tmp_path, verb, *about)).out.split())  # lines may be folded
        assert f" ago: connection refused, to be tried again ({seed})" in told_now


async def test_seeds_are_added_to_a_running_crawl(tmp_path, slow_web):
    """Each is answered for, is recorded, opens its host, and stands in the seeds report."""
    process = await start(*crawl_of(tmp_path, slow_web), cwd=tmp_path)
    await seen(slow_web, 20)
    (tmp_path / "more.txt").write_text(f"{OTHER}\n{SEED}\n")
    with held_up(slow_web):
        added = await told(tmp_path, "add", "more.txt", "no host at all")
    assert added.code == 5, "one of them was none"
    assert added.out == f"new      {OTHER}\nknown    {SEED} (done with 200 OK)\n"
    assert "'no host at all'" in added.err
    assert known_seeds(tmp_path / "job" / "state") == {SEED, OTHER}
    run = await ended(process)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED, OTHER])
    assert f"200 CRAWLED    {OTHER}" in run.out


async def test_seeds_are_added_to_a_job_that_is_not_running(tmp_path, slow_web):
    """They are answered for in the same words, and the next run crawls them."""
    command = crawl_of(tmp_path, slow_web)
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    assert "finished: nothing is queued" in (await told(tmp_path, "status")).out
    for verdict, state in (("new", ""), ("known", " (queued)")):
        added = await told(tmp_path, "add", OTHER)
        assert added.code == 0, added.err
        goes_on = "no crawl of this job is running; `anabranch crawl` resumes it"
        assert added.out == f"{verdict:<8} {OTHER}{state}\n{goes_on}\n"
    assert (await anabranch("crawl", "-c", tmp_path / "order.toml", "--job", tmp_path / "job", cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == expected([SEED, OTHER])


async def test_a_page_that_the_filter_hides_is_brought_back_by_the_command_that_why_names(tmp_path):
    """`add` says that it is in no state, ends with 5, and queues nothing; `add --force` queues it."""
    seed = "http://a.test/"
    bits = zlib.crc32(seed.encode()) >> 16  # all that a filter of two levels goes by
    hidden = next(url for n in count() if zlib.crc32((url := f"{seed}{n}").encode()) >> 16 == bits)
    path = hidden.removeprefix("http://a.test")
    async with SmallWeb({"a.test": Host(pages={"/": Page(links=go(path)), path: Page()})}) as web:
        order = write_order(
            tmp_path, web.hosts, dedup={"filter": "smm", "signature": "crc32", "levels": [1, 1]}, limits={"pages": 9}
        )
        command = ("crawl", seed, "-c", order, "--job", tmp_path / "job")
        assert (await anabranch(*command, cwd=tmp_path)).code == 0
        assert set(crawl_log(tmp_path / "job")) == {seed}
        added = await told(tmp_path, "add", hidden)
        assert (added.code, added.out.split("\n")[0]) == (
            5,
            f"hidden   {hidden} (the filter takes it for seen, the store does not have it; add it with --force)",
        )
        said = (await told(tmp_path, "why", hidden)).out
        (named,) = re.findall(r"`anabranch (add .*?)`", said)
        assert shlex.split(named) == ["add", "--force", str(tmp_path / "job"), hidden]
        forced = await anabranch(*shlex.split(named), cwd=tmp_path)
        assert (forced.code, forced.out.split("\n")[0]) == (0, f"new      {hidden}")
        assert (await anabranch(*command, cwd=tmp_path)).code == 0
        assert set(crawl_log(tmp_path / "job")) == {seed, hidden}
        assert f"known    {hidden} (done with 200 OK)" in (await told(tmp_path, "add", hidden)).out


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
async def test_what_needs_a_running_crawl_says_that_there_is_none(tmp_path, slow_web, verb):
    """One line, and the exit code of a command that makes no sense."""
    assert (await anabranch(*crawl_of(tmp_path, slow_web), "--limit", "3", cwd=tmp_path)).code == 0
    run = await told(tmp_path, verb)
    said = f"anabranch: {tmp_path / 'job'}: no crawl of this job is running; there is nothing to {verb}\n"
    assert (run.code, run.out, run.err) == (2, "", said)


async def test_a_limit_may_pause_the_crawl_and_the_operator_goes_beyond_it(tmp_path, slow_web):
    """on_limit = pause: ten pages, then nothing, until `resume`."""
    limits = {"pages": 10, "on_limit": "pause"}
    process = await start(*crawl_of(tmp_path, slow_web, limits=limits), cwd=tmp_path)
    await seen(slow_web, 10)
    while (now := await facts(tmp_path))["phase"] != "paused":
        pass
    assert now["paused"] == "paused by limits.pages"
    assert len(crawl_log(tmp_path / "job")) == 10
    assert (await told(tmp_path, "resume")).code == 0
    run = await ended(process)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED])


async def test_the_limit_of_bytes_names_itself(tmp_path, slow_web):
    """The crawl ends in order with exit code 0, and goes on with a higher limit."""
    command = crawl_of(tmp_path, slow_web)
    run = await anabranch(*command, "--size-limit", "2KB", cwd=tmp_path)
    assert run.code == 0, run.err
    assert "stopped by the byte limit" in run.out
    fetched = len(crawl_log(tmp_path / "job"))
    assert 0 < fetched < len(expected([SEED]))
    again = await anabranch(*command, "--size-limit", "2KB", cwd=tmp_path)
    assert (again.code, len(crawl_log(tmp_path / "job"))) == (0, fetched), "it counts the whole job"
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == expected([SEED])


async def test_a_crawl_without_room_on_its_disk_waits_and_says_why(tmp_path, slow_web):
    """Nothing is fetched, `resume` says that it does not help, and it can be stopped."""
    setting = ("-s", "limits.min_free_disk=4000TB")
    process = await start(*crawl_of(tmp_path, slow_web, *setting), cwd=tmp_path)
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"new job")
    assert b"min_free_disk is" in await process.stdout.readline()
    resumed = await told(tmp_path, "resume")
    assert resumed.code == 2
    assert "min_free_disk" in resumed.err
    assert (await facts(tmp_path))["phase"] == "paused"
    assert (await told(tmp_path, "stop")).code == 0
    run = await ended(process)
    assert (run.code, served(slow_web)) == (11, 0)


# Signals


async def test_a_terminal_that_has_gone_ends_a_crawl_in_order(tmp_path, slow_web):
    """SIGHUP drains, as SIGTERM does; here it is the system that sends it."""
    ours, its = os.openpty()
    process = await start_as(os.ttyname(its), *crawl_of(tmp_path, slow_web), cwd=tmp_path)
    await seen(slow_web, 20)
    os.close(its)
    os.close(ours)
    assert (await ended(process)).code == 11


async def test_nohup_keeps_a_crawl_running(tmp_path, slow_web):
    """A SIGHUP that was ignored when it was started stays ignored."""
    process = await start_as("nohup", *crawl_of(tmp_path, slow_web), cwd=tmp_path)
    await seen(slow_web, 20)
    process.send_signal(signal.SIGHUP)
    run = await ended(process)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED])


async def test_sigusr1_says_how_it_goes_and_changes_nothing(tmp_path, slow_web):
    """A line in the log, as `status` has it."""
    process = await start(*crawl_of(tmp_path, slow_web), cwd=tmp_path)
    await seen(slow_web, 20)
    process.send_signal(signal.SIGUSR1)
    assert process.stderr is not None
    line = await process.stderr.readline()
    assert b"status" in line
    assert b"phase=running" in line
    assert (await ended(process)).code == 0
    assert crawl_log(tmp_path / "job") == expected([SEED])


async def test_a_sigterm_after_the_summary_does_not_take_the_place_of_the_exit_code(tmp_path, slow_web):
    """However often it comes while the process ends."""
    process = await start(*crawl_of(tmp_path, slow_web, "--limit", "3"), cwd=tmp_path)
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"new job")
    assert await process.stdout.readline()
    while process.returncode is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.005)
    run = await ended(process)
    assert (run.code, run.err) == (0, "")


# Streams that are closed


@pytest.mark.parametrize(
    "closed",
    [
        "<&- >&- 2>&-",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("2>&-", ">&-", "2>/dev/full", ">/dev/full 2>&1", "2>&1 | head -c 1")
        ),
    ],
)
async def test_no_stream_that_is_closed_or_full_breaks_a_crawl(tmp_path, slow_web, closed):
    """The job's files are whole: none of them became the standard error of the process. A fresh Python has no such stream."""
    arguments = shlex.join(map(str, crawl_of(tmp_path, slow_web, "-vv", "--limit", "15")))
    shell = f"set -o pipefail; {shlex.quote(sys.executable)} -m anabranch {arguments} {closed}"
    process = await asyncio.create_subprocess_exec("bash", "-c", shell, cwd=tmp_path, env=environment())
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    await is_whole(tmp_path)


async def is_whole(tmp_path):
    assert len(crawl_log(tmp_path / "job")) == 15
    lock = (tmp_path / "job" / "state" / "lock").read_bytes()
    assert lock == b""
    assert (await told(tmp_path, "status")).code == 0


@pytest.mark.parametrize("reader", ["a full disk", "one that leaves"])
async def test_no_stream_that_takes_nothing_breaks_a_crawl(tmp_path, slow_web, reader):
    """Output and errors go to a full disk, or to a reader that leaves after a byte."""
    reading, writing = os.pipe() if reader == "one that leaves" else (None, os.open("/dev/full", os.O_WRONLY))
    arguments = [*map(str, crawl_of(tmp_path, slow_web, "-vv", "--limit", "15"))]
    with Process(["-m", "anabranch", *arguments], cwd=tmp_path, stdout=writing, stderr=writing) as process:
        os.close(writing)
        if reading is not None:
            assert await asyncio.to_thread(os.read, reading, 1)
            os.close(reading)
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
    await is_whole(tmp_path)


async def test_a_signal_after_its_reader_has_gone_drains_the_crawl(tmp_path, slow_web):
    """Its later output has no reader, and this is no failure."""
    process = await start(*crawl_of(tmp_path, slow_web), cwd=tmp_path)
    await seen(slow_web, 20)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe._transport.close()  # type: ignore[attr-defined]
    os.kill(process.pid, signal.SIGUSR1)
    os.kill(process.pid, signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 11
