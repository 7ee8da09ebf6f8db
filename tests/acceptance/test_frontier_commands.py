"""`anabranch frontier` and `anabranch why` beside a real crawl: while it runs, after it was stopped, after it was killed."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.acceptance.command import Ended, anabranch, crawl_log, ended, start, write_order
from tests.facts_schema import checked
from tests.site.oracle import expected
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"
HOST = "blog.alpha.test"


def crawl_of(folder: Path, web: SmallWeb, delay: str) -> tuple[str | Path, ...]:
    """A crawl whose one host rests for so long."""
    politeness = {"min_delay": delay, "max_delay": delay, "max_connections": 4}
    order = write_order(folder, web.hosts, politeness=politeness, crawl={"workers": 4}, frontier={"policy": "bkdr:2"})
    return ("crawl", SEED, "-c", order, "--job", "jobs/news", "--robots", "ignore")


async def ordered(folder: Path, *arguments: str) -> Ended:
    """A command that must go well."""
    run = await anabranch(*arguments, cwd=folder)
    assert (run.code, run.err) == (0, ""), arguments
    return run


async def begun(folder: Path, web: SmallWeb, command: tuple[str | Path, ...]) -> asyncio.subprocess.Process:
    """A crawl that runs and has fetched the seed."""
    process = await start(*command, cwd=folder)
    while not web.ledger.counts().get(SEED) or not (folder / "jobs/news/state/control").exists():
        await asyncio.sleep(0.01)
    return process


async def test_a_stopped_job_that_waits_for_its_gate_says_so(tmp_path: Path) -> None:
    """`ls` and `why` name the gate and the time; what is ordered then is obeyed by the next crawl."""
    async with SmallWeb() as web:
        command = crawl_of(tmp_path, web, "300s")
        assert (await anabranch(*command, "--limit", "1", cwd=tmp_path)).code == 0
        listed = (await ordered(tmp_path, "frontier", "ls", "news")).out
        assert f"its gate {HOST} is closed: rests for another" in listed
        assert "2 URLs queued" in listed
        assert "Not running. If started now: " in listed.splitlines()[-1]
        assert "; the first opens at " in listed.splitlines()[-1]
        why = (await ordered(tmp_path, "why", "news", f"{SEED}about.html")).out
        assert why.startswith(f"{SEED}about.html: queued\n")
        assert "at the earliest at " in why
        assert "it is done with status 200 OK" in (await ordered(tmp_path, "why", "jobs/news", SEED)).out
        await ordered(tmp_path, "frontier", "rm", "news", "--url", r"about\.html$", "--yes")
        queue = checked(json.loads((await ordered(tmp_path, "frontier", "ls", "news", "--json")).out), "Queues")[
            "queues"
        ][0]["queue"]
        await ordered(tmp_path, "frontier", "retire", "news", queue)
        last = await anabranch(*crawl_of(tmp_path, web, "0s"), cwd=tmp_path)
        assert last.code == 0, last.err
        assert crawl_log(tmp_path / "jobs" / "news") == {SEED: 200, f"{SEED}about.html": -6000}


async def test_a_running_crawl_obeys_at_once(tmp_path: Path) -> None:
    """It is asked through its socket; a block taken back and a queue resumed are crawled to the end by the same process."""
    async with SmallWeb(delay_s=0.02) as web:
        process = await begun(tmp_path, web, crawl_of(tmp_path, web, "0s"))
        blocked = await ordered(tmp_path, "frontier", "block", "news", HOST)
        assert blocked.out.startswith(f"gate {HOST}: blocked until it is unblocked")
        facts = checked(
            json.loads((await ordered(tmp_path, "frontier", "ls", "news", "--json", "--limit", "99")).out), "Queues"
        )
        queues = [queue["queue"] for queue in facts["queues"]]
        for queue in queues:
            await ordered(tmp_path, "frontier", "pause", "news", queue)
        why = await ordered(tmp_path, "frontier", "show", "news", queues[0])
        assert "it is paused by the operator" in why.out
        assert "blocked until it is unblocked" in why.out
        for verb in (
            ("dump", "news"),
            ("load", "news", str(tmp_path / "order.toml")),
            ("rm", "news", "--url", "x", "--yes"),
        ):
            refused = await anabranch("frontier", *verb, cwd=tmp_path)
            assert refused.code == 1, verb
            assert f"process {process.pid} crawls it; stop that crawl first" in refused.err
        unknown = await anabranch("frontier", "pause", "news", "nosuch", cwd=tmp_path)
        assert (unknown.code, len(unknown.err.splitlines())) == (2, 1)
        fetched = sum(web.ledger.counts().values())
        await ordered(tmp_path, "frontier", "unblock", "news", HOST)
        assert process.returncode is None
        assert sum(web.ledger.counts().values()) == fetched, "a paused queue was served"
        for queue in queues:
            await ordered(tmp_path, "frontier", "resume", "news", queue)
        run = await ended(process)
        assert run.code == 0, run.err
        assert not (tmp_path / "jobs/news/state/control").exists()
        assert crawl_log(tmp_path / "jobs" / "news") == expected([SEED])


@pytest.mark.slow
async def test_a_killed_crawl_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """Its socket is dead: the commands open the job, a dump has all of it, and another job crawls the rest from it."""
    async with SmallWeb(delay_s=0.02) as web:
        command = crawl_of(tmp_path, web, "0s")
        process = await begun(tmp_path, web, command)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        assert (tmp_path / "jobs/news/state/control").exists()
        await ordered(tmp_path, "frontier", "ls", "news")
        await ordered(tmp_path, "frontier", "dump", "news", "-o", "backup.gz")
        other = tuple("jobs/other" if part == "jobs/news" else part for part in command)
        assert (await anabranch(*other, "--limit", "1", cwd=tmp_path)).code == 0
        loaded = await ordered(tmp_path, "frontier", "load", "other", "backup.gz")
        assert loaded.out.startswith("loaded: ")
        for job in (command, other):
            run = await anabranch(*job, cwd=tmp_path)
            assert run.code == 0, run.err
        assert crawl_log(tmp_path / "jobs" / "news") == expected([SEED])
        done = {line["url"] for line in map(json.loads, await dumped(tmp_path, "other")) if "outcome" in line}
        assert done >= expected([SEED]).keys()


async def dumped(folder: Path, job: str) -> list[str]:
    """The lines of a dump."""
    return (await ordered(folder, "frontier", "dump", job)).out.splitlines()
