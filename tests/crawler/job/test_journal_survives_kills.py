"""A journal whose process is killed, or whose disk fails, at each call: what was acknowledged is there, and all files agree."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from anabranch.crawler.accounts import accounts as accounts_module
from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.journal import JournalFiles, open_journal
from anabranch.crawler.order.sections import WriteSection
from anabranch.crawler.outcomes.errors import JournalFailed, StorageError
from anabranch.frontier.stores.sql import work
from tests.crawler.archive.exchanges import START_S, exchange
from tests.faults.agreement import disagreements, urls_of

#: What the journal and its files call to change a file.
CALLS = ("write", "pwrite", "ftruncate", "replace", "rename", "unlink")
#: Of the visits of one group; a group of one has a failed try, which only errors.jsonl knows.
GROUPS = (("a", "b"), ("!",), ("c", "d"))
URLS = {f"http://a.test/{name}" for group in GROUPS for name in group if name != "!"}


def visit(name: str) -> JournalEntry:
    """All that a visit leaves, or a failed try."""
    if name == "!":
        return JournalEntry(errors=b"{}\n")
    url = f"http://a.test/{name}"
    line = crawl_log_line(
        CrawlLogEntry(logged_s=START_S, status=200, size_bytes=7, url=url, worker=1, mime="text/html")
    )
    page = b'{"url":"%b"}\n' % url.encode()
    return JournalEntry(crawl_log=line, pages=page, links=page, exchange=exchange(url))


def opened(job: JobFolder) -> JournalFiles:
    accounts = Accounts(job.state, job.crawl_log, lambda: START_S)
    section = WriteSection(warc=True, links=True)
    return open_journal(job, section, {"software": "x"}, lambda: START_S, accounts)


Groups = Sequence[Sequence[str]]


async def run(
    folder: Path,
    acknowledge: Callable[[str], None] = lambda _: None,
    first: Callable[[Path], None] = lambda _: None,
    groups: Groups = GROUPS,
) -> set[str]:
    """Write the visits that are missing, group by group; returns those that were there at the opening. `first`: before them."""
    with JobFolder.open(folder) as job:
        journal = opened(job).journal
        there = urls_of(folder)
        first(folder)

        async def one(name: str) -> None:
            await journal.write(visit(name))
            acknowledge(f"http://a.test/{name}")

        try:
            for group in groups:
                await asyncio.gather(*(one(name) for name in group if f"http://a.test/{name}" not in there))
        finally:
            await journal.close()
    return there


class Faulty:
    """Has calls from this number on do something else before they are made."""

    def __init__(self, number: int, do: Callable[..., None], calls: Sequence[str] = CALLS) -> None:
        self.count = 0
        self._number = number
        self._do = do
        self._calls = calls

    def patch(self, patcher: pytest.MonkeyPatch) -> None:
        for name in self._calls:
            patcher.setattr(os, name, partial(self._counted, name, getattr(os, name)))

    def _counted(self, name: str, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.count += 1
        if self.count > self._number:
            self._do(self.count - self._number, name, real, *arguments)
        return real(*arguments, **named)


def kill(_number: int, _name: str, _real: object, *_arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tear(_number: int, name: str, real: Callable[..., Any], fd: Any, data: Any = b"", *at: Any) -> None:
    """Half of a write takes place."""
    if name in {"write", "pwrite"}:
        real(fd, data[: len(data) // 2], *at)
    os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(
    folder: Path,
    number: int,
    do: Callable[..., None],
    first: Callable[[Path], None] = lambda _: None,
    groups: Groups = GROUPS,
) -> tuple[bool, set[str]]:
    """Run in a forked process; whether it was killed, and what was acknowledged before."""
    reading, writing = os.pipe()
    acknowledge = partial(os.write, writing)
    if (process := os.fork()) == 0:  # the child: pytest must not see its end
        code = 1
        try:
            with pytest.MonkeyPatch.context() as patcher:
                Faulty(number, do).patch(patcher)
                asyncio.run(run(folder, lambda url: acknowledge(f"{url}\n".encode()) and None, first, groups))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as told:
        acknowledged = set(told.read().split())
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in {0, -signal.SIGKILL}
    return code != 0, acknowledged - {"http://a.test/!"}


#: Three groups of visits, each eight calls after the one before: with every third call each call of a group is met once.
ONE_BY_ONE = (("a", "b"), ("!",), ("c",), ("!",), ("d",))


@pytest.mark.parametrize(
    ("do", "step"),
    [(kill, 3), (tear, 4), *(pytest.param(do, 1, marks=pytest.mark.slow) for do in (kill, tear))],
)
def test_wherever_it_is_killed_a_group_counts_everywhere_or_nowhere(
    tmp_path: Path, do: Callable[..., None], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run cuts what was not recorded; it writes the visits that are missing, and everything is there once."""
    if do is tear:  # with a record that is begun anew before each group
        monkeypatch.setattr(accounts_module, "COMMIT_S", 0.0)
        monkeypatch.setattr(accounts_module, "MAX_JOURNAL_BYTES", 1)
    number, was_killed = 0, True
    while was_killed:
        job = tmp_path / f"job{number}"
        was_killed, acknowledged = run_until_killed(job, number, do, groups=GROUPS if do is tear else ONE_BY_ONE)
        with capture_logs():
            there = asyncio.run(run(job))
        assert acknowledged <= there, job.name
        assert disagreements(job) == [], job.name
        assert urls_of(job) == URLS
        assert len((job / "links.jsonl").read_text().splitlines()) == len(URLS)
        number += step
    assert number > 25


#: What logrotate does with the logs.
LOGS = ("logs/crawl.log", "logs/errors.jsonl", "pages.jsonl", "links.jsonl")


def renamed(job: Path) -> None:
    for log in LOGS:
        (job / log).rename(job / f"{log}.1")


def created(job: Path) -> None:
    renamed(job)
    for log in LOGS:
        (job / log).touch()


def copied_and_cut(job: Path) -> None:
    for log in LOGS:
        shutil.copyfile(job / log, job / f"{log}.1")
        os.truncate(job / log, 0)


ODD, EVEN = range(1, 16, 2), range(0, 16, 2)


def calls_before_rotation(folder: Path) -> int:
    """Write one group into `before`; the number of calls that the next run makes until its files are rotated."""
    asyncio.run(run(folder / "before", groups=(("a",),)))
    counts: list[int] = []
    with pytest.MonkeyPatch.context() as patcher:
        shutil.copytree(folder / "before", folder / "counted")
        faulty = Faulty(1 << 30, kill)
        faulty.patch(patcher)
        asyncio.run(run(folder / "counted", first=lambda _: counts.append(faulty.count)))
    return counts[0]


@pytest.mark.parametrize(
    ("rotated", "calls"),
    [
        *((renamed, EVEN), (created, ODD), (copied_and_cut, EVEN)),
        *(
            pytest.param(*rest, marks=pytest.mark.slow)
            for rest in ((renamed, ODD), (created, EVEN), (copied_and_cut, ODD))
        ),
    ],
)
def test_a_group_after_a_rotation_counts_everywhere_or_nowhere(
    tmp_path: Path, rotated: Callable[[Path], None], calls: Sequence[int]
) -> None:
    """The first group in the new files. What was moved stays as it is; whether new files are there makes little difference."""
    at_rotation = calls_before_rotation(tmp_path)
    for number in (at_rotation + call for call in calls):
        job = tmp_path / f"job{number}"
        shutil.copytree(tmp_path / "before", job)
        assert run_until_killed(job, number, tear, rotated)[0]
        with capture_logs():
            asyncio.run(run(job))
        for log in filter(lambda log: (job / f"{log}.1").exists(), LOGS):
            (job / log).write_bytes((job / f"{log}.1").read_bytes() + (job / log).read_bytes())
        assert disagreements(job) == [], job.name
        assert urls_of(job) == URLS


@pytest.mark.parametrize(
    "refused", [pytest.param(4, marks=pytest.mark.slow), 6, pytest.param(10, marks=pytest.mark.slow)]
)
def test_a_group_that_is_tried_again_counts_everywhere_or_nowhere(
    tmp_path: Path, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses a call of the first group in rotated files, and the process is killed in the next try.

    The call is the record of the rotation (4), the index (6), or the record of the group (10).
    """
    monkeypatch.setattr(work, "FIRST_WAIT_S", 0.0)
    at_rotation = calls_before_rotation(tmp_path)
    for later in range(2, 16, 2):
        job = tmp_path / f"job{later}"
        shutil.copytree(tmp_path / "before", job)
        was_killed, acknowledged = run_until_killed(
            job, at_rotation + refused, partial(refuse_and_kill, later), renamed
        )
        assert was_killed
        with capture_logs():
            there = asyncio.run(run(job))
        assert acknowledged <= there
        for log in filter(lambda log: (job / f"{log}.1").exists(), LOGS):
            (job / log).write_bytes((job / f"{log}.1").read_bytes() + (job / log).read_bytes())
        assert disagreements(job) == [], job.name
        assert urls_of(job) == URLS


def refuse_and_kill(later: int, number: int, name: str, real: Callable[..., Any], *arguments: Any) -> None:
    """The first call is refused; so many calls later the process is killed."""
    refuse(errno.ENOSPC, 1, number)
    if number == later:
        tear(number, name, real, *arguments)


DISK = (*CALLS, "fsync", "fdatasync")


def refuse(error: int, calls: int, number: int, *_call: object) -> None:
    if number <= calls:
        raise OSError(error, os.strerror(error))


@pytest.mark.parametrize(("error", "calls"), [(errno.ENOSPC, 1), (errno.EIO, 1 << 30)])
def test_whatever_the_disk_refuses_a_group_counts_everywhere_or_nowhere(
    tmp_path: Path, error: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on, so that nothing can be taken back either: the run ends, and the next one finds a whole state.

    A run that has begun goes on if there is room again.
    """
    monkeypatch.setattr(work, "FIRST_WAIT_S", 0.0)
    number, is_over = 0, False
    while not is_over:
        job = tmp_path / f"job{number}"
        acknowledged: set[str] = set()
        with capture_logs(), pytest.MonkeyPatch.context() as patcher:
            faulty = Faulty(number, partial(refuse, error, calls), DISK)
            faulty.patch(patcher)
            with suppress(StorageError, JournalFailed):
                asyncio.run(run(job, acknowledged.add))
            is_over = faulty.count <= number
        assert calls > 1 or acknowledged in (set(), {"http://a.test/!"} | URLS), job.name
        with capture_logs():
            there = asyncio.run(run(job))
        assert acknowledged - {"http://a.test/!"} <= there, job.name
        assert disagreements(job) == [], job.name
        assert urls_of(job) == URLS
        number += 3
    assert number > 60
