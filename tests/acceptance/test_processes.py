"""A job in several processes is one job: nothing is missing, nothing is fetched twice, whichever process is killed."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.acceptance.command import Ended, anabranch, crawl_log, ended, kill_after, pages, start, write_order
from tests.site.oracle import expected
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"
WORKERS = 8

pytestmark = pytest.mark.slow


@pytest.fixture
async def slow_web():
    """The small web, with every answer late by 20 ms, so that a crawl can be caught in the middle."""
    async with SmallWeb(delay_s=0.02) as web:
        yield web


def crawl_of(tmp_path, web, *more, processes=2):
    order = write_order(tmp_path, web.hosts, politeness={"max_connections": 4}, crawl={"workers": WORKERS})
    return ("crawl", SEED, "-c", order, "--job", tmp_path / "job", "--processes", str(processes), *more)


async def seen(web, count):
    while sum(web.ledger.counts().values()) < count:
        await asyncio.sleep(0.005)


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def repeated(web) -> int:
    return sum(count - 1 for url, count in web.ledger.counts().items() if "robots.txt" not in url)


def check_whole(run: Ended, tmp_path, seeds=(SEED,)):
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected(list(seeds))


@pytest.mark.parametrize("processes", [2, 3])
async def test_several_processes_fetch_what_one_does(tmp_path, slow_web, processes):
    """Every URL once, each host by one process; logs, pages and report are the job's."""
    run = await anabranch(*crawl_of(tmp_path, slow_web, processes=processes), cwd=tmp_path)
    check_whole(run, tmp_path)
    assert repeated(slow_web) == 0
    job = tmp_path / "job"
    log = (job / "logs/crawl.log").read_text().splitlines()
    assert log == sorted(log, key=lambda line: line[:24])
    assert pages(job).keys() == {url for url, status in crawl_log(job).items() if status > 0}
    summary = (job / "reports/crawl-report.txt").read_text()
    assert f"URIs Processed: {len(log)}" in " ".join(summary.split()) or str(len(log)) in summary
    assert run.out.splitlines()[0].startswith("new job ")
