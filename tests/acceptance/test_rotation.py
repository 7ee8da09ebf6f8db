"""Logs that are rotated by logrotate, while a job is crawled and while it is not: no line is lost, and no total changes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.command import anabranch, ended, start, start_as, write_order
from tests.site.oracle import expected
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"
LOGROTATE = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")

needs_logrotate = pytest.mark.skipif(LOGROTATE is None, reason="needs logrotate")

CONF = """
"{job}/logs/*.log" "{job}/logs/*.jsonl" "{job}/pages.jsonl" "{job}/links.jsonl" {{
    rotate 100
    missingok
    {how}
}}
"""
CREATE = """create
    sharedscripts
    postrotate
        read pid < "{job}/state/lock" && kill -USR2 $pid || true
    endscript"""


@pytest.fixture
async def web():
    """The small web, with every answer late by 50 ms, so that a crawl can be caught in the middle."""
    async with SmallWeb(delay_s=0.05) as opened:
        yield opened


class Job:
    """A job, and logrotate for its logs."""

    def __init__(self, folder: Path, web: SmallWeb, how: str = CREATE) -> None:
        self.folder = folder
        self.path = folder / "job"
        self._web = web
        self._conf = folder / "logrotate.conf"
        self._conf.write_text(CONF.format(job=self.path, how=how.format(job=self.path)))
        order = write_order(folder, web.hosts, politeness={"max_connections": 2}, write={"links": True})
        self.crawl = ("crawl", SEED, "-c", order, "--job", self.path)

    async def seen(self, count: int) -> None:
        while sum(self._web.ledger.counts().values()) < count:
            await asyncio.sleep(0.005)

    async def rotate(self) -> None:
        """All logs, whatever their age."""
        assert LOGROTATE is not None
        command = [LOGROTATE, "-f", "-s", str(self.folder / "logrotate.state"), str(self._conf)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def lines(self, name: str) -> list[str]:
        """Return the lines of a log and of all files that it was moved to."""
        files = sorted((self.path / name).parent.glob(f"{Path(name).name}*"))
        return [line for file in files for line in file.read_text().splitlines()]

    def statuses(self) -> dict[str, int]:
        """URL -> its status; each has one line."""
        found = [line.split() for line in self.lines("logs/crawl.log")]
        pages = [fields for fields in found if not fields[4].endswith("P")]
        assert all(len(fields) == 12 for fields in found)
        assert max(Counter(fields[3] for fields in pages).values()) == 1
        return {fields[3]: int(fields[1]) for fields in pages}

    async def processed(self) -> int:
        """Return the number of URLs processed in the job's summary."""
        report = await anabranch("report", self.path, "crawl-summary", cwd=self.folder)
        assert report.code == 0, report.err
        return next(int(line.split()[-1]) for line in report.out.splitlines() if line.startswith("URIs Processed"))


@needs_logrotate
async def test_a_crawl_whose_logs_are_moved_loses_no_line_and_no_count(tmp_path: Path, web: SmallWeb) -> None:
    """Thrice in the middle, then stopped, moved again, gone on with."""
    job = Job(tmp_path, web)
    process = await start(*job.crawl, cwd=tmp_path)
    for seen in (10, 20, 30):
        await job.seen(seen)
        await job.rotate()
    process.send_signal(signal.SIGTERM)
    assert (await ended(process)).code == 11
    before = await job.processed()
    assert before == len(job.lines("logs/crawl.log"))
    await job.rotate()
    assert await job.processed() == before
    run = await anabranch(*job.crawl, cwd=tmp_path)
    assert run.code == 0, run.err
    assert job.statuses() == expected([SEED])
    assert await job.processed() == len(job.lines("logs/crawl.log")) > before
    assert len(job.lines("pages.jsonl")) == sum(status > 0 for status in job.statuses().values())


@needs_logrotate
async def test_a_log_that_is_copied_and_cut_is_not_garbled(tmp_path: Path, web: SmallWeb) -> None:
    """While no line is written nothing is lost either; what a crawl writes between copy and cut no log could keep."""
    job = Job(tmp_path, web, "copytruncate")
    process = await start(*job.crawl, cwd=tmp_path)
    await job.seen(20)
    assert (await anabranch("pause", job.path, cwd=tmp_path)).code == 0
    while " · 0 of " not in (await anabranch("status", job.path, cwd=tmp_path)).out:
        pass
    await job.rotate()
    assert (await anabranch("resume", job.path, cwd=tmp_path)).code == 0
    assert (await ended(process)).code == 0
    assert job.statuses() == expected([SEED])
    assert await job.processed() == len(job.lines("logs/crawl.log"))


async def test_logs_that_are_removed_take_no_count_with_them(tmp_path: Path, web: SmallWeb) -> None:
    """And a kill does not, either."""
    job = Job(tmp_path, web)
    process = await start(*job.crawl, cwd=tmp_path)
    await job.seen(30)
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    before = await job.processed()
    (job.path / "logs" / "crawl.log").unlink()
    assert await job.processed() == before > 0
    assert (await anabranch(*job.crawl, cwd=tmp_path)).code == 0
    assert await job.processed() == before + len(job.lines("logs/crawl.log"))


@pytest.mark.parametrize(
    ("number", "processes"),
    [
        *((signal.SIGUSR2, 2), (signal.SIGHUP, 1)),
        *(pytest.param(*rest, marks=pytest.mark.slow) for rest in ((signal.SIGUSR2, 1), (signal.SIGHUP, 2))),
    ],
)
async def test_a_daemon_reopens_its_logs_in_all_processes(tmp_path: Path, web: SmallWeb, number, processes) -> None:
    """Also while it fetches nothing: what was removed must not hold its room on the disk."""
    job = Job(tmp_path, web)
    process = await start_as("session", *job.crawl, "--processes", str(processes), cwd=tmp_path)
    await job.seen(20)
    assert (await anabranch("pause", job.path, cwd=tmp_path)).code == 0
    logs = list(job.path.rglob("crawl.log")) if processes == 1 else list(job.path.glob("workers/*/logs/crawl.log"))
    assert len(logs) == processes
    for log in logs:
        log.rename(log.with_name("crawl.log.1"))
    process.send_signal(number)
    while not all(log.exists() for log in logs):
        await asyncio.sleep(0.01)
    assert (await anabranch("resume", job.path, cwd=tmp_path)).code == 0
    run = await ended(process)
    assert run.code == 0, run.err
    assert job.statuses() == expected([SEED])
    assert await job.processed() == len(job.lines("logs/crawl.log"))
