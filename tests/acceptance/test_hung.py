"""A process of a crawl is stopped, as by SIGSTOP or a disk that hangs: what commands say then, and that they change nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import Any

import pytest

from tests.acceptance.command import anabranch, crawl_log, ended, start, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.facts_schema import checked
from tests.postgres_server import server
from tests.site.oracle import expected
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"
CHANGES = [
    ("pause",), ("resume",), ("stop",), ("add", "http://new.test/"), ("set", "limits.pages=5"),
    ("frontier", "block", "blog.alpha.test"),
]  # fmt: skip


async def run_all(tmp_path, commands):
    """All commands on the job at the same time: each waits for the process."""
    at = {
        1: lambda verb, *more: (verb, tmp_path / "job", *more),
        2: lambda a, b, *more: (a, b, tmp_path / "job", *more),
    }
    runs = [anabranch(*at[1 + (one[0] == "frontier")](*one), cwd=tmp_path) for one in commands]
    return await asyncio.gather(*runs)


async def test_a_crawl_that_is_stopped_is_told_and_left_alone(tmp_path):
    """Its totals, its last progress line and its process; commands that change something end with 1 and one line."""
    async with SmallWeb(delay_s=0.02) as web:
        sections = {"politeness": {"max_connections": 2}, "report": {"statistics_interval": "20ms"}}
        order = write_order(tmp_path, web.hosts, **sections)
        process = await start("crawl", SEED, "-c", order, "--job", tmp_path / "job", cwd=tmp_path)
        while sum(web.ledger.counts().values()) < 20:
            await asyncio.sleep(0.005)
        before = (tmp_path / "job" / "order.toml").read_bytes()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            silent = f"process {process.pid} does not answer; its last progress line, "
            asked = [("status",), ("status", "--json"), ("report", "hosts"), ("why", SEED), ("frontier", "ls")]
            status, in_json, *reading = await run_all(tmp_path, asked)
            assert (status.code, in_json.code, [one.code for one in reading]) == (0, 0, [1] * 3), status.err
            assert silent in status.out
            facts = checked(json.loads(in_json.out))
            assert (facts["phase"], facts["pid"]) == ("unknown", process.pid)
            assert silent in facts["line"]
            assert facts["totals"]["done"] == facts["pages"] > 0
            assert f"{facts['pages']:,} pages; " in status.out
            jobs = await anabranch("jobs", tmp_path, cwd=tmp_path)
            assert (jobs.code, "unknown" in jobs.out, silent in jobs.out) == (0, True, True), jobs.err
            for run in await run_all(tmp_path, CHANGES):
                assert (run.code, run.out) == (1, ""), run.err
                assert silent in run.err
                assert run.err.endswith("nothing was changed\n")
                assert run.err.count("\n") == 1
        finally:
            os.kill(process.pid, signal.SIGCONT)
        run = await ended(process)
        assert run.code == 0, run.err
        assert "paused" not in run.out
        assert (tmp_path / "job" / "order.toml").read_bytes() == before
        assert crawl_log(tmp_path / "job") == expected([SEED])


@pytest.mark.slow
async def test_a_worker_that_is_stopped_is_named(tmp_path):
    """The others do what is asked; the one does so when it goes on."""
    async with SmallWeb(many_hosts()) as web:
        rest = {"min_delay": "60s", "max_delay": "60s"}
        order = write_order(tmp_path, web.hosts, politeness=rest, frontier={"worker_lease": "5m"})
        job = tmp_path / "job"
        process = await start("crawl", *SEEDS, "-c", order, "--job", job, "--processes", "2", cwd=tmp_path)
        workers: list[dict[str, Any]] = []
        while [worker["state"] for worker in workers] != ["running"] * 2:
            workers = json.loads((await anabranch("workers", job, "--json", cwd=tmp_path)).out or "[]")
            assert process.returncode is None
        name, pid = workers[0]["name"], workers[0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            silent = f"{name} (process {pid}) has not answered for "
            while f": process {pid} holds it; " in (paused := await anabranch("pause", job, cwd=tmp_path)).err:
                os.kill(pid, signal.SIGCONT)  # it was stopped in a commit
                os.kill(pid, signal.SIGSTOP)
            assert (paused.code, paused.out) == (1, ""), paused.err
            assert silent in paused.err
            assert paused.err.endswith("; pause is recorded, and done if it goes on\n")
            status = await anabranch("status", job, cwd=tmp_path)
            assert (status.code, silent in status.out) == (0, True), status.out
            listed = json.loads((await anabranch("workers", job, "--json", cwd=tmp_path)).out)
            assert {worker["name"]: worker["state"] for worker in listed}[name] == "silent"
            listed = await anabranch("jobs", tmp_path, cwd=tmp_path)
            assert listed.code == 0, listed.err
        finally:
            os.kill(pid, signal.SIGCONT)
        while not (status := await anabranch("status", job, cwd=tmp_path)).out.startswith("paused"):
            assert process.returncode is None, status.out
        assert (await anabranch("stop", job, "--now", cwd=tmp_path)).code == 0
        assert (await ended(process)).code == 13


@pytest.mark.slow
async def test_workers_of_a_database_that_are_stopped_are_named(tmp_path):
    """While their leases last, and after these have ended: then they hang, or were killed, and nobody can tell."""
    async with SmallWeb(many_hosts()) as web:
        rest = {"min_delay": "60s", "max_delay": "60s"}
        order = write_order(tmp_path, web.hosts, politeness=rest, frontier={"worker_lease": "12s"})
        with server() as url:
            job = url.replace(":@", "@")
            process = await start(
                "crawl", *SEEDS, "-c", order, "--store", job, "--job", tmp_path / "a", "--worker", "a", cwd=tmp_path
            )
            while '"running"' not in (await anabranch("workers", job, "--json", cwd=tmp_path)).out:
                assert process.returncode is None
            silent = f"a (process {process.pid}) has not answered for "
            os.kill(process.pid, signal.SIGSTOP)
            try:
                while (status := await anabranch("status", job, "--json", cwd=tmp_path)) and silent not in status.out:
                    assert status.code == 0, status.err
                assert checked(json.loads(status.out))["phase"] == "unknown"
                stopped = await anabranch("stop", job, cwd=tmp_path)
                assert (stopped.code, silent in stopped.err, stopped.out) == (1, True, ""), stopped.err
                assert stopped.err.endswith("; stop is recorded, and done if it goes on\n")
                while (status := await anabranch("status", job, "--json", cwd=tmp_path)) and "unknown" in status.out:
                    assert status.code == 0, status.err
                    await asyncio.sleep(0.5)
                facts = checked(json.loads(status.out))
                assert (facts["phase"], silent in facts["line"]) == ("stopped", True), facts["line"]
                assert facts["desired_state"] == "stopped"
            finally:
                os.kill(process.pid, signal.SIGCONT)
            with suppress(ProcessLookupError):  # its fetches rest for a minute
                process.terminate()
            await ended(process)
