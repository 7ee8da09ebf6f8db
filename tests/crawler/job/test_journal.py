"""Group commit: what is acknowledged is on disk, what failed is refused for ever."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import structlog

from anabranch.crawler.archive.sink import JournalEntry, JournalSink
from anabranch.crawler.job import journal as journal_module
from anabranch.crawler.job.journal import Journal, LineFile
from anabranch.crawler.outcomes.errors import DiskFull, JournalFailed, JournalFull, NoFolder, StorageError
from anabranch.dedup.files import durable
from tests.crawler.archive.exchanges import exchange
from tests.crawler.builder import settle
from tests.patience import HANG_S

ROOT = Path(__file__).parents[3]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "crawl.log"


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return tmp_path / "pages.jsonl"


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def move(path: Path, to: Path) -> None:
    path.rename(to)


def remove(path: Path) -> None:
    path.unlink()


def journal_of(log: Path, pages: Path | None = None) -> Journal:
    """A journal of one log or two."""
    return Journal(LineFile(log, "crawl_log"), *([] if pages is None else [LineFile(pages, "pages")]))


def lines(crawl_log: bytes | None, pages: bytes | None = None) -> JournalEntry:
    return JournalEntry(crawl_log=crawl_log, pages=pages)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


class Adding(JournalSink):
    """A sink that adds to the entries."""

    path = Path("adding")

    def append(self, entries: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
        return [entry._replace(crawl_log=b"more " + (entry.crawl_log or b"")) for entry in entries]

    def keep(self) -> None:
        """Nothing was written."""

    def take_back(self) -> None:
        """There is nothing to take back."""

    def close(self) -> None:
        """There is nothing to close."""


async def test_a_sink_may_add_to_what_those_behind_it_write(log: Path, pages: Path) -> None:
    """So the line of crawl.log knows where the WARC record stands; those before it have the entry as it was."""
    journal = Journal(LineFile(pages, "crawl_log"), Adding(), LineFile(log, "crawl_log"))
    await journal.write(lines(b"line\n"))
    await journal.close()
    assert (content(pages), content(log)) == (b"line\n", b"more line\n")


class SlowDisk:
    """Lets the test say when a sync ends; the rest is the real disk."""

    def __init__(self) -> None:
        self.syncs: list[int] = []
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.failure: OSError | None = None

    def __call__(self, descriptor: int) -> None:
        self.begun.release()
        assert self.may_end.acquire(timeout=HANG_S)
        self.syncs.append(descriptor)
        if self.failure is not None:
            raise self.failure
        os.fsync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    slow = SlowDisk()
    monkeypatch.setattr(durable, "sync_file", slow)
    return slow


async def test_a_line_is_in_its_file_when_the_writer_goes_on(log: Path, pages: Path) -> None:
    """One entry per file, None for nothing."""
    journal = journal_of(log, pages)
    await journal.write(lines(b"a\n", b"1\n"))
    assert (content(log), content(pages)) == (b"a\n", b"1\n")
    await journal.write(lines(b"b\n", None))
    assert (content(log), content(pages)) == (b"a\nb\n", b"1\n")
    await journal.write(lines(None, None))
    await journal.close()
    assert (content(log), content(pages)) == (b"a\nb\n", b"1\n")


async def test_a_reopened_journal_appends(log: Path) -> None:
    """A resumed crawl goes on with its logs."""
    for line in (b"a\n", b"b\n"):
        journal = journal_of(log)
        await journal.write(lines(line))
        await journal.close()
    assert content(log) == b"a\nb\n"


@pytest.mark.parametrize(
    ("found", "kept"),
    [(b"", b""), (b"a\n", b"a\n"), (b"a\ntorn", b"a\n"), (b"torn", b"")],
)
async def test_a_torn_last_line_is_cut_on_opening(found: bytes, kept: bytes, log: Path, pages: Path) -> None:
    """The other lines and files stay."""
    put(log, found)
    put(pages, b"1\n")
    journal = journal_of(log, pages)
    await journal.write(lines(b"z\n", None))
    await journal.close()
    assert content(log) == kept + b"z\n"
    assert content(pages) == b"1\n"


async def test_a_journal_that_is_never_written_closes(log: Path) -> None:
    """Twice, too; and its thread is gone."""
    journal = journal_of(log)
    await journal.close()
    await journal.close()
    assert content(log) == b""
    assert not [thread for thread in threading.enumerate() if thread.name == "journal"]


async def test_what_waits_is_written_with_one_sync_per_file(log: Path, pages: Path, disk: SlowDisk) -> None:
    """Sixty writers that come while a sync is under way share the next one."""
    journal = journal_of(log, pages)
    writers = [asyncio.create_task(journal.write(lines(b"first\n", None)))]
    await asyncio.to_thread(disk.begun.acquire)
    writers += [
        asyncio.create_task(journal.write(lines(b"%d\n" % n, b"%d\n" % n if n % 2 else None))) for n in range(60)
    ]
    await asyncio.sleep(0)
    disk.may_end.release(3)
    await asyncio.gather(*writers)
    await journal.close()
    assert len(disk.syncs) == 3
    assert content(log) == b"first\n" + b"".join(b"%d\n" % n for n in range(60))
    assert content(pages) == b"".join(b"%d\n" % n for n in range(1, 60, 2))


async def test_after_a_large_group_the_next_one_gathers(
    log: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its time comes, or nothing more does: what closes the journal does not wait for it."""
    monkeypatch.setattr(journal_module, "GROUP_S", 3600.0)
    disk.may_end.release(9)
    journal = journal_of(log)
    await asyncio.gather(*(journal.write(lines(b"%d\n" % n)) for n in range(journal_module.LARGE_GROUP)))
    writers = []
    for line in (b"a\n", b"b\n", b"c\n"):
        writers.append(asyncio.create_task(journal.write(lines(line))))
        for _ in range(5):  # the thread has its turns, too
            await asyncio.to_thread(os.sched_yield)
    assert len(disk.syncs) == 1
    await journal.close()
    await asyncio.gather(*writers)
    assert len(disk.syncs) == 2
    assert content(log).endswith(b"7\na\nb\nc\n")


async def test_after_a_small_group_the_next_one_is_written_at_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crawl with few workers waits for nothing but the disk."""
    monkeypatch.setattr(journal_module, "GROUP_S", 3600.0)
    journal = journal_of(log)
    for _ in range(2):
        await asyncio.gather(*(journal.write(lines(b"x\n")) for _ in range(journal_module.LARGE_GROUP - 1)))
    await journal.close()
    assert len(content(log).splitlines()) == 2 * (journal_module.LARGE_GROUP - 1)


async def test_a_group_begins_when_half_of_the_visits_at_work_wait_for_it(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before its time has come: the others may be slow, or there are no others."""
    monkeypatch.setattr(journal_module, "GROUP_S", 3600.0)
    at_work = 2 * journal_module.LARGE_GROUP
    journal = Journal(LineFile(log, "crawl_log"), at_work=lambda: at_work)
    await asyncio.gather(*(journal.write(lines(b"%d\n" % n)) for n in range(journal_module.LARGE_GROUP)))
    few = [asyncio.create_task(journal.write(lines(b"a\n"))) for _ in range(journal_module.LARGE_GROUP - 1)]
    await settle()
    assert not any(task.done() for task in few)
    await asyncio.wait_for(asyncio.gather(journal.write(lines(b"a\n")), *few), HANG_S)
    await journal.close()


async def test_nobody_goes_on_before_the_sync(log: Path, disk: SlowDisk) -> None:
    """Written is not durable."""
    journal = journal_of(log)
    writer = asyncio.create_task(journal.write(lines(b"a\n")))
    await asyncio.to_thread(disk.begun.acquire)
    assert content(log) == b"a\n"
    assert not writer.done()
    disk.may_end.release()
    await writer
    await journal.close()


async def test_a_cancelled_writer_loses_no_line_and_breaks_no_group(log: Path, disk: SlowDisk) -> None:
    """It may be cancelled while its group gathers or while it is written."""
    journal = journal_of(log)
    writers = [asyncio.create_task(journal.write(lines(b"0\n")))]
    await asyncio.to_thread(disk.begun.acquire)
    writers += [asyncio.create_task(journal.write(lines(b"%d\n" % n))) for n in range(1, 4)]
    await asyncio.sleep(0)
    writers[0].cancel()
    writers[2].cancel()
    disk.may_end.release(2)
    results = await asyncio.gather(*writers, return_exceptions=True)
    await journal.close()
    assert [type(result) for result in results] == [asyncio.CancelledError, JournalEntry] * 2
    assert content(log) == b"0\n1\n2\n3\n"


async def test_a_cancelled_writer_of_an_exchange_is_let_go_when_it_is_written(log: Path, disk: SlowDisk) -> None:
    """It would close the body that the journal is reading."""
    journal = journal_of(log)
    writer = asyncio.create_task(journal.write(JournalEntry(crawl_log=b"a\n", exchange=exchange())))
    await asyncio.to_thread(disk.begun.acquire)
    writer.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not writer.done()
    disk.may_end.release()
    with pytest.raises(asyncio.CancelledError):
        await writer
    await journal.close()
    assert content(log) == b"a\n"


async def test_closing_writes_what_waits(log: Path, disk: SlowDisk) -> None:
    """Then no more is taken."""
    journal = journal_of(log)
    writers = [asyncio.create_task(journal.write(lines(b"0\n")))]
    await asyncio.to_thread(disk.begun.acquire)
    writers.append(asyncio.create_task(journal.write(lines(b"1\n"))))
    await asyncio.sleep(0)
    closing = asyncio.create_task(journal.close())
    await asyncio.sleep(0)
    with pytest.raises(JournalFailed, match="closed"):
        await journal.write(lines(b"2\n"))
    disk.may_end.release(2)
    await asyncio.gather(*writers, closing)
    assert content(log) == b"0\n1\n"


async def test_after_a_failed_sync_every_waiting_and_later_write_is_refused(
    log: Path, pages: Path, disk: SlowDisk
) -> None:
    """It is unknown what a failed sync left on the disk, so a second try would prove nothing; the group is taken back."""
    journal = journal_of(pages, log)
    disk.may_end.release(2)
    await journal.write(lines(b"1\n", b"a\n"))
    disk.begun.acquire()
    disk.begun.acquire()
    disk.failure = OSError(errno.EIO, os.strerror(errno.EIO))
    writers = [asyncio.create_task(journal.write(lines(None, b"b\n")))]
    await asyncio.to_thread(disk.begun.acquire)
    writers += [asyncio.create_task(journal.write(lines(b"3\n", b"c\n"))) for _ in range(3)]
    await asyncio.sleep(0)
    disk.may_end.release(9)
    results = await asyncio.gather(*writers, return_exceptions=True)
    with pytest.raises(JournalFailed) as later:
        await journal.write(lines(b"4\n", b"d\n"))
    await journal.close()
    for failed in (*results, later.value):
        assert isinstance(failed, JournalFailed)
        assert not isinstance(failed, DiskFull)
        assert failed.__cause__ is disk.failure
        assert str(failed).startswith(f"{log}: input/output error; ")
    assert (content(pages), content(log)) == (b"1\n", b"a\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
async def test_a_full_disk_is_told_from_other_failures() -> None:
    """The crawl ends with the exit code of a full disk."""
    journal = journal_of(Path("/dev/full"))
    with pytest.raises(DiskFull, match=r"^/dev/full: no space left on device; free some space") as raised:
        await journal.write(lines(b"a\n"))
    assert isinstance(raised.value, JournalFailed)
    assert isinstance(raised.value.__cause__, OSError)
    await journal.close()


async def test_a_group_that_was_written_in_part_is_taken_back(log: Path, pages: Path, small_files: int) -> None:
    """No file has a line whose writer was told that it failed; the other file of the group neither."""
    journal = journal_of(log, pages)
    await journal.write(lines(b"a\n", b"1\n"))
    with pytest.raises(DiskFull):
        await journal.write(lines(b"b\n", b"2" * small_files + b"\n"))
    assert (content(log), content(pages)) == (b"a\n", b"1\n")
    await journal.close()


async def test_a_group_that_cannot_be_taken_back_does_not_hide_the_failure(
    log: Path, small_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the next opening cuts the torn line."""
    journal = journal_of(log)
    await journal.write(lines(b"a\n"))

    def refuse(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(DiskFull):
            await journal.write(lines(b"b" * small_files + b"\n"))
    await journal.close()
    assert len(content(log)) == small_files
    await journal_of(log).close()
    assert content(log) == b"a\n"


@pytest.mark.parametrize(
    "bad", [JournalEntry(crawl_log=b"a"), JournalEntry(pages=b""), JournalEntry(crawl_log=b"a\n", links=b"l")]
)
async def test_a_line_without_its_newline_is_refused(bad: JournalEntry, log: Path, pages: Path) -> None:
    """It would be cut as torn."""
    journal = journal_of(log, pages)
    with pytest.raises(ValueError, match="must end with a newline"):
        await journal.write(bad)
    await journal.close()
    assert content(log) == b""


class Broken(JournalSink):
    """A sink with a defect."""

    path = Path("broken")

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls: list[str] = []

    def append(self, entries: object) -> None:
        raise self.error

    def keep(self) -> None:
        self.calls.append("keep")

    def take_back(self) -> None:
        self.calls.append("take_back")

    def close(self) -> None:
        self.calls.append("close")


class Uncountable(Broken):
    """A sink whose defect shows when the group counts."""

    def append(self, entries: object) -> None:
        self.calls.append("append")

    def keep(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("sink", "left", "calls"), [(Broken, b"", ["take_back", "close"]), (Uncountable, b"a\n", ["append", "close"])]
)
async def test_a_defect_of_a_sink_fails_its_group_and_hangs_nobody(
    log: Path, sink: type[Broken], left: bytes, calls: list[str]
) -> None:
    """The sinks before it take the group back, unless it counted for them already; the journal writes no more."""
    broken = sink(KeyError("odd"))
    journal = Journal(LineFile(log, "crawl_log"), broken)
    for _ in range(2):
        with pytest.raises(JournalFailed, match=r"^broken: KeyError"):
            await journal.write(lines(b"a\n"))
    await journal.close()
    assert content(log) == left
    assert broken.calls == calls


class Full(Broken):
    """A sink whose disk is full, or whatever the error says, so many times."""

    def __init__(self, error: Exception, times: int) -> None:
        super().__init__(error)
        self.times = times

    def append(self, entries: object) -> None:
        self.calls.append("append")
        self.times -= 1
        if self.times >= 0:
            raise self.error

    def keep(self) -> None:
        self.calls.append("keep")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
async def test_a_group_waits_for_room_on_the_disk(log: Path, number: int) -> None:
    """It is taken back as a whole and written once there is some; what the journal waits for is known meanwhile."""
    full = Full(OSError(number, os.strerror(number)), times=1)
    journal = Journal(LineFile(log, "crawl_log"), full, retry_s=HANG_S)
    with structlog.testing.capture_logs() as events:
        await journal.write(lines(b"a\n"))
        await journal.write(lines(b"b\n"))
    await journal.close()
    assert [event["event"] for event in events] == ["the crawl waits", "the crawl goes on"]
    assert events[0]["waits_for"] == f"broken: {os.strerror(number).lower()}", "no advice: the crawl goes on by itself"
    assert journal.trouble == ""
    assert full.calls == ["append", "take_back", "append", "keep", "append", "keep", "close"]
    assert content(log) == b"a\nb\n"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG])
async def test_what_room_cannot_mend_is_not_waited_for(log: Path, number: int) -> None:
    """Nor is anything by a journal that is being closed."""
    full = Full(OSError(number, os.strerror(number)), times=1)
    journal = Journal(LineFile(log, "crawl_log"), full, retry_s=HANG_S)
    with pytest.raises(JournalFailed):
        await journal.write(lines(b"a\n"))
    await journal.close()
    assert full.calls == ["append", "take_back", "close"]
    full = Full(OSError(errno.ENOSPC, "full"), times=10_000)
    journal = Journal(LineFile(log, "crawl_log"), full, retry_s=math.inf)
    waiting = asyncio.create_task(journal.write(lines(b"a\n")))
    await asyncio.sleep(0)
    async with asyncio.timeout(HANG_S):
        await journal.close()
        with pytest.raises(JournalFull):
            await waiting
    assert content(log) == b""


class Undecided:
    """A record on a disk that is full, and takes nothing back."""

    path, files = Path("record"), None
    tries = 0

    def append(self, entries: object, files: object) -> None:
        self.tries += 1
        raise OSError(errno.ENOSPC, "full")

    def take_back(self) -> None:
        raise OSError(errno.EIO, "broken")

    def begin(self, files: object) -> None: ...

    def keep(self) -> None: ...

    def settle(self, files: object) -> None: ...

    def close(self) -> None: ...


async def test_a_group_that_may_count_already_is_not_tried_again(log: Path) -> None:
    """Its record cannot be taken back, or a file has kept it: a second try could count it twice."""
    record, kept = Undecided(), Uncountable(OSError(errno.ENOSPC, "full"))
    for journal in (
        Journal(LineFile(log, "crawl_log"), record=record, retry_s=1.0),
        Journal(LineFile(log, "crawl_log"), kept, retry_s=1.0),
    ):
        with structlog.testing.capture_logs(), pytest.raises(JournalFailed):
            await journal.write(lines(b"a\n"))
        await journal.close()
    assert record.tries == 1
    assert kept.calls == ["append", "close"]


class Unclosable(Broken):
    """A sink whose defect shows at the end."""

    def append(self, entries: object) -> None:
        self.calls.append("append")

    def close(self) -> None:
        raise self.error


async def test_what_fails_at_the_end_is_raised_to_who_closes(log: Path) -> None:
    """The thread prints no traceback of its own, and closes the sinks behind."""
    file = LineFile(log, "crawl_log")
    journal = Journal(Unclosable(MemoryError()), file)
    await journal.write(lines(b"a\n"))
    with pytest.raises(MemoryError):
        await journal.close()
    await journal.close()
    assert content(log) == b"a\n"


async def test_the_first_failure_of_the_end_counts_and_is_one_of_the_journal(log: Path) -> None:
    """Later failures may have the same cause, so the first one is raised; its line names the file."""
    full = Unclosable(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    journal = Journal(full, Unclosable(OSError(errno.EIO, os.strerror(errno.EIO))), LineFile(log, "crawl_log"))
    with pytest.raises(DiskFull, match=r"^broken: no space left on device; free some space"):
        await journal.close()


class FullLater(LineFile):
    """A file that takes one group and is full then."""

    tries = 0

    def append(self, entries: Sequence[JournalEntry]) -> None:
        self.tries += 1
        if self.tries > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(entries)


async def test_of_several_tries_the_first_failure_counts(log: Path) -> None:
    """At the next try another file of the full disk may fail. A journal that gives up does not log that the crawl goes on."""
    full = Broken(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    journal = Journal(later := FullLater(log, "crawl_log"), full, retry_s=0.01)
    with (
        structlog.testing.capture_logs() as events,
        pytest.raises(DiskFull, match=r"^broken: no space left on device"),
    ):
        await journal.write(lines(b"a\n"))
    assert later.tries > 1
    assert {event["event"] for event in events} == {"the crawl waits"}
    assert journal.trouble == ""
    await journal.close()


class Untruncated(LineFile):
    """A file that the disk does not let be cut."""

    def take_back(self) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))


async def test_a_disk_that_takes_nothing_back_prints_no_traceback(log: Path, small_files: int) -> None:
    """It is no defect of ours: a line says what is left."""
    journal = Journal(Untruncated(log, "crawl_log"))
    with structlog.testing.capture_logs() as events, pytest.raises(DiskFull):
        await journal.write(lines(b"b" * small_files + b"\n"))
    await journal.close()
    assert [(event["log_level"], "exc_info" in event, str(log) in event["error"]) for event in events] == [
        ("warning", False, True)
    ]


async def test_a_lack_of_memory_is_told_as_one(log: Path) -> None:
    """It is no defect of ours: the line says what to do, and no traceback is logged."""
    journal = Journal(LineFile(log, "crawl_log"), Broken(MemoryError()))
    with (
        structlog.testing.capture_logs() as events,
        pytest.raises(JournalFailed, match=r"^broken: not enough memory; "),
    ):
        await journal.write(lines(b"a\n"))
    await journal.close()
    assert events == []


class Untakable(Broken):
    """A sink whose defect shows when the group is taken back."""

    def append(self, entries: object) -> None:
        self.calls.append("append")

    def take_back(self) -> None:
        raise ValueError(self.path)


async def test_a_sink_that_cannot_take_back_hangs_nobody(log: Path) -> None:
    """The others take back, and the first failure is told."""
    journal = Journal(Untakable(KeyError("odd")), LineFile(log, "crawl_log"), broken := Broken(KeyError("even")))
    async with asyncio.timeout(HANG_S):
        with pytest.raises(JournalFailed, match=r"^broken: KeyError"):
            await journal.write(lines(b"a\n"))
        await journal.close()
    assert broken.calls == ["take_back", "close"]


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """In one line, with what to do; nothing stays open."""
    before = open_descriptors()
    with pytest.raises(NoFolder, match=f"^{tmp_path}/gone/pages.jsonl: "):
        LineFile(tmp_path / "gone" / "pages.jsonl", "pages")
    with pytest.raises(StorageError, match=f"^{tmp_path}: is a directory; "):
        LineFile(tmp_path, "pages")
    assert open_descriptors() == before


async def test_a_file_whose_torn_line_cannot_be_cut_is_not_opened(log: Path, disk: SlowDisk) -> None:
    """Else the next line would be glued to it."""
    put(log, b"torn")
    disk.failure = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    disk.may_end.release()
    before = open_descriptors()
    with pytest.raises(DiskFull, match=f"^{log}: no space left on device; "):
        journal_of(log)
    assert open_descriptors() == before


def test_a_loop_that_is_gone_does_not_kill_the_thread(log: Path, disk: SlowDisk) -> None:
    """A crawl that is forced to end leaves its loop; the lines are written all the same."""
    journals: list[Journal] = []

    async def leave() -> None:
        journals.append(journal_of(log))
        task = asyncio.create_task(journals[0].write(lines(b"a\n")))
        await asyncio.to_thread(disk.begun.acquire)
        task.cancel()

    asyncio.run(leave())
    disk.may_end.release()
    asyncio.run(journals[0].close())
    assert content(log) == b"a\n"


WRITERS = """
import asyncio, sys
from pathlib import Path
from anabranch.crawler.job.journal import JournalEntry, Journal, LineFile

async def main():
    journal = Journal(LineFile(Path(sys.argv[1]), "crawl_log"), LineFile(Path(sys.argv[2]), "pages"))
    async def writer(name):
        for number in range(10**9):
            line = b"%d %d\\n" % (name, number)
            await journal.write(JournalEntry(crawl_log=line, pages=line if number % 2 else None))
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    await asyncio.gather(*(writer(name) for name in range(64)))

asyncio.run(main())
"""


def test_after_a_kill_every_acknowledged_line_is_there_and_none_is_torn(log: Path, pages: Path) -> None:
    """A line may be there though nobody was told, never the other way round."""
    command = [sys.executable, "-c", WRITERS, str(log), str(pages)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(3000)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [line for line in process.stdout.readlines() if line.endswith(b"\n")]
    asyncio.run(journal_of(log, pages).close())
    written = content(log).splitlines(keepends=True)
    assert set(acknowledged) <= set(written)
    assert {line for line in acknowledged if int(line.split()[1]) % 2} <= set(content(pages).splitlines(keepends=True))
    assert len(written) == len(set(written)) <= len(acknowledged) + 64


async def test_each_group_goes_to_the_files_that_have_the_names_then(log: Path, pages: Path) -> None:
    """Somebody moved one and removed the other."""
    journal = journal_of(log, pages)
    await journal.write(lines(b"1\n", b"a\n"))
    moved = log.with_name("crawl.log.1")
    move(log, moved)
    remove(pages)
    await journal.write(lines(b"2\n", b"b\n"))
    await journal.close()
    assert (content(moved), content(log), content(pages)) == (b"1\n", b"2\n", b"b\n")


async def test_files_are_followed_though_nothing_is_written(log: Path) -> None:
    """A file that was removed holds its room on the disk as long as it is open. A journal that is over follows none."""
    journal = journal_of(log)
    await journal.write(lines(b"1\n"))
    remove(log)
    journal.follow()
    await journal.write(JournalEntry())  # behind it
    assert content(log) == b""
    await journal.close()
    remove(log)
    journal.follow()
    with pytest.raises(FileNotFoundError):
        content(log)
