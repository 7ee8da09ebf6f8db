"""The job's progress-statistics.log."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.processes.postoffice import PROGRESS
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.processes.telling import JobTelling
from anabranch.crawler.report.progress_log import COLUMN_ENDS, LEGEND, ProcessMemory, ProgressFacts, ProgressLog
from anabranch.crawler.report.statistics import Rates
from anabranch.crawler.run.summing import progress_facts
from tests.crawler.processes.test_status import Job, said
from tests.crawler.run.test_summing import share

PROGRESSED = ProgressFacts(
    now_s=5.0, discovered=60, queued=30, downloaded=20, failed=2, rates=Rates(9.0, 9.0, 9.0, 9.0), busy=3,
    queues={"ready": 2, "in-flight": 3}, parked=1, longest=12, memory=ProcessMemory(1 << 40, 2 << 40),
)  # fmt: skip


def progress(**more: Any) -> dict[str, Any]:
    """How a share's run is, as it comes out of its message."""
    told: dict[str, Any] = json.loads(json.dumps(progress_facts(PROGRESSED._replace(**more))))
    return told


class Telling(Job):
    """A job whose shares say what the test has them say; its clock stands at 100 s until it is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = folder / "progress-statistics.log"
        self.replies: dict[int, Mapping[str, Any]] = {0: {"facts": progress()}, 1: {"facts": progress(longest=7)}}
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.shares.ask_all = self._ask_all
        self.shares.ended = {}
        self.log = ProgressLog(self.file, lambda: self.now_s)
        self.telling = JobTelling(cast("Shares", self.shares), self.status, self.log, 0.01, lambda: self.now_s)

    async def _ask_all(self, kind: str) -> dict[int, Mapping[str, Any]]:
        self.asked.put_nowait(kind)
        return self.replies

    @property
    def lines(self) -> list[str]:
        """What stands in the file below its legend."""
        legend, *lines = self.file.read_text().splitlines()
        assert legend == LEGEND
        return lines

    @property
    def cells(self) -> list[list[str]]:
        """Its lines of statistics."""
        return [line.split() for line in self.lines if "CRAWL" not in line]


@pytest.fixture
def job(tmp_path: Path) -> Telling:
    return Telling(tmp_path)


async def lines_written(job: Telling, count: int) -> None:
    """Let the log be written for so many lines."""
    writing = asyncio.create_task(job.telling.write())
    for _ in range(count + 1):  # the line of an answer is there when the next is asked for
        assert await job.asked.get() == PROGRESS
    writing.cancel()


async def test_a_line_is_the_sum_of_the_shares_in_the_columns_of_one_process(job: Telling) -> None:
    """But for the longest queue; the rates are the job's, of all pages and the time of its run."""
    job.status.take(0, said(30))
    job.status.take(1, said(50))
    job.now_s = 110.0
    await lines_written(job, 1)
    cells = job.cells[0]
    assert len(cells) == 1 + len(COLUMN_ENDS)
    assert cells[:4] == ["1970-01-01T00:01:50Z", "120", "60", "40"]
    assert cells[4] == "8.00(8.00)"
    assert cells[6:8] == ["4", "6"]
    assert int(cells[8]) >= 2 << 40  # with what the process has that is no share
    assert cells[-2:] == ["12", "6"]


async def test_a_share_that_does_not_answer_is_as_it_was(job: Telling) -> None:
    """Its process has died, say: the job has not lost what it had."""
    await lines_written(job, 1)
    job.replies = {0: {"facts": progress(queued=31)}, 1: {"error": "the store is gone", "code": 8}}
    await lines_written(job, 1)
    assert [cells[2] for cells in job.cells][-1] == "61"


def test_a_change_of_the_crawl_is_noted_once_and_why(job: Telling) -> None:
    """As one process notes it, whoever hears of it first."""
    job.telling.look()
    job.status.take(0, said(1))
    job.telling.look()
    job.telling.look()
    job.limits.words = "paused by the operator"
    job.telling.look()
    job.limits.words = ""
    job.telling.look()
    job.shares.ending = WhyEnded.PAGE_LIMIT
    job.telling.look()
    assert [line.split(" ", 2)[2] for line in job.lines] == [
        "RUNNING - running",
        "PAUSED - paused by the operator",
        "RUNNING - running",
        f"ENDING - {WhyEnded.PAGE_LIMIT.value}",
    ]


def test_the_last_line_is_how_the_shares_ended(job: Telling) -> None:
    """Not how they were when they last spoke of it; then stands why the crawl ended."""
    job.status.take(0, said(1))
    job.shares.ended = {number: {**share(20), "progress": progress(queued=0)} for number in range(2)}
    job.shares.ending = WhyEnded.FINISHED
    job.now_s = 104.0
    job.telling.end("finished: nothing is queued")
    ending, last, ended = job.lines
    assert "CRAWL ENDING" in ending
    assert last.split()[1:5] == ["120", "0", "40", "10.00(10.00)"]
    assert ended.endswith(" CRAWL ENDED - finished: nothing is queued")
