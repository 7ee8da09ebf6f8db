"""progress-statistics.log."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.report.logtail import parse_progress_line
from anabranch.crawler.report.progress_log import (
    COLUMN_ENDS,
    LEGEND,
    CrawlEvent,
    DeepestQueue,
    ProcessMemory,
    ProgressFacts,
    ProgressLog,
    congestion,
    event_line,
    memory_of_process,
    progress_statistics_line,
)
from anabranch.crawler.report.statistics import Rates
from tests.rows import each_row

AT_S = 1795173753.9

FACTS = ProgressFacts(
    now_s=AT_S,
    discovered=12345,
    queued=4000,
    downloaded=8000,
    failed=3,
    rates=Rates(12.345, 10.0, 20480.0, 1024.0),
    busy=25,
    queues={"ready": 10, "in-flight": 5, "snoozed": 1, "inactive": 84, "retired": 7, "empty": 9},
    parked=4,
    longest=321,
    memory=ProcessMemory(51200, 76800),
)


def test_the_legend_and_the_line_end_in_the_same_columns() -> None:
    """Heritrix's tools read the file by offsets."""
    line = progress_statistics_line(FACTS)
    assert len(LEGEND) == len(line) == COLUMN_ENDS[-1]
    assert all(LEGEND[end - 1] != " " and LEGEND[end : end + 1] in {"", " "} for end in COLUMN_ENDS)
    starts = (20, *COLUMN_ENDS)
    cells = [line[start:end].strip() for start, end in zip(starts, COLUMN_ENDS, strict=False)]
    assert line[:20] == "2026-11-20T11:22:33Z"
    assert cells == [
        "12345", "4000", "8000", "12.35(10.00)", "20(1)", "3", "25", "51200", "76800", "10.00", "321", "40",
    ]  # fmt: skip


def test_numbers_that_are_too_wide_stay_apart() -> None:
    """A column may move; two numbers never become one."""
    line = progress_statistics_line(FACTS._replace(discovered=10**15, queued=10**15))
    assert line.split()[1:3] == [str(10**15)] * 2


@each_row(
    ("queues", "parked", "ratio"),
    [
        ({}, 0, 0.0),
        ({"ready": 5}, 0, 5.0),
        ({"ready": 5}, 5, 1.0),
        ({"in-flight": 2, "ready": 2}, 0, 2.0),
        ({"in-flight": 2, "snoozed": 2, "inactive": 4, "retired": 100, "empty": 100}, 0, 2.0),
        ({"ready": 1}, 9, 1.0),
    ],
)
def test_congestion_is_always_a_number(queues, parked, ratio) -> None:
    """Heritrix divides by nothing where nothing is in process; retired and empty queues do not count."""
    assert congestion(queues, parked) == ratio


def test_an_event_is_one_line_in_heritrix_words() -> None:
    """Whatever line ends its words have."""
    assert (
        event_line(AT_S, CrawlEvent.PAUSED, "disk\nnearly full")
        == "2026-11-20T11:22:33Z CRAWL PAUSED - disk nearly full"
    )


def test_the_file_begins_with_the_legend_once(tmp_path) -> None:
    """A second run goes on with the file."""
    path = tmp_path / "p.log"
    for _ in range(2):
        log = ProgressLog(path, lambda: AT_S)
        log.write_event(CrawlEvent.RUNNING, "Running")
        log.write_statistics(FACTS)
    lines = path.read_text().splitlines()
    assert lines == [LEGEND, *[event_line(AT_S, CrawlEvent.RUNNING, "Running"), progress_statistics_line(FACTS)] * 2]


def test_a_file_that_was_moved_is_begun_anew(tmp_path) -> None:
    """With its legend; the lines before stay where they are."""
    path = tmp_path / "p.log"
    log = ProgressLog(path, lambda: AT_S)
    log.write_statistics(FACTS)
    path.rename(tmp_path / "p.log.1")
    log.write_event(CrawlEvent.RUNNING, "Running")
    assert path.read_text().splitlines() == [LEGEND, event_line(AT_S, CrawlEvent.RUNNING, "Running")]
    assert (tmp_path / "p.log.1").read_text().splitlines() == [LEGEND, progress_statistics_line(FACTS)]


async def test_a_line_is_written_each_interval(tmp_path) -> None:
    """Until it is cancelled."""
    enough = asyncio.Event()
    taken = []

    async def take() -> ProgressFacts:
        taken.append(1)
        if len(taken) == 3:
            enough.set()
        return FACTS

    task = asyncio.create_task(ProgressLog(tmp_path / "p.log", lambda: AT_S).run(take, interval_s=0.0))
    await enough.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "p.log").read_text().count("\n") >= 3


def test_a_file_that_cannot_be_opened_is_one_clear_line(tmp_path) -> None:
    """Every file of a job fails in this form."""
    with pytest.raises(StorageError, match=r"p\.log"):
        ProgressLog(tmp_path / "missing" / "p.log", lambda: 0.0)


def test_a_full_disk_costs_the_line_not_the_crawl() -> None:
    """`/dev/full` takes nothing."""
    ProgressLog(__import__("pathlib").Path("/dev/full"), lambda: AT_S).write_event(CrawlEvent.ENDED, "Finished")


def test_memory_is_this_process(tmp_path) -> None:
    """Anonymous memory is a part of what is resident; a system that does not tell has zeros."""
    memory = memory_of_process()
    assert 0 < memory.anonymous < memory.resident
    assert memory_of_process(tmp_path / "none") == ProcessMemory(0, 0)
    assert ProcessMemory(anonymous=3, resident=10).in_bytes() == {"anonymous": 3072, "mapped": 7168}


async def test_the_longest_queue_is_asked_for_at_most_a_fiftieth_of_the_time() -> None:
    """A look at a million lanes must not be most of what the store does."""
    now = 0.0
    asked = []

    async def ask() -> int:
        nonlocal now
        now += 1.0
        asked.append(now)
        return len(asked)

    deepest = DeepestQueue(ask, lambda: now)
    assert await deepest.length() == 1
    now = 50.0
    assert await deepest.length() == 1
    now = 51.0
    assert await deepest.length() == 2


def test_a_line_is_read_back() -> None:
    """The parser finds the figures that were written."""
    line = parse_progress_line(progress_statistics_line(FACTS))
    assert line is not None
    assert (line.time_s, line.discovered, line.queued, line.downloaded, line.failed, line.active) == (
        int(FACTS.now_s), FACTS.discovered, FACTS.queued, FACTS.downloaded, FACTS.failed, FACTS.busy,
    )  # fmt: skip
    assert line.pages_per_s == 12.35


@each_row("line", ["", LEGEND, "2026-11-20T11:22:33Z CRAWL ENDED - stopped", "2026-11-20T11:22:33Z 1 2", "x " * 20])
def test_what_is_no_statistics_is_left_out(line: str) -> None:
    """The legend, an event, a line that is cut, and anything else."""
    assert parse_progress_line(line) is None
