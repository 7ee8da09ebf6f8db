"""Checkpoints, and the filter that is older than its store: after every opening the filter knows what the store has."""

from __future__ import annotations

import math
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from anabranch.dedup import UniqFilter, UniqParameters
from anabranch.frontier import checkpoints
from anabranch.frontier.checkpoints import Checkpoints, Pair, catch_up, next_pair, remark_from
from anabranch.frontier.errors import FormatMismatch, StoreFull, StoreUnavailable
from anabranch.frontier.seen import ExactFilter
from anabranch.frontier.stores.contract import Counters, Opening

ROOT = Path(__file__).resolve().parents[2]
#: Few files to sync, and false drops too rare for these tests.
QUICK = UniqParameters(mode="dsbf", expected=5000, false_positive=1e-9)


class At(ExactFilter):
    """A filter that stands at a position, and says when it is synced."""

    def __init__(self, position: str = "a-3", on_sync: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.at = position
        self.on_sync = on_sync

    def sync(self) -> None:
        self.on_sync()

    def position(self) -> str:
        return self.at


class Notes:
    """Keeps every note, and wakes who waits for one."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.kept: list[dict[str, str]] = []
        self.failure = failure
        self.noted = threading.Event()

    def note(self, notes: Mapping[str, str]) -> None:
        if self.failure is not None:
            raise self.failure
        self.kept.append(dict(notes))
        self.noted.set()


class Disk:
    """A store of keys in a SQLite file, as durable as the product's: rows by ordinal, notes, and whether it is clean."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._lock = threading.Lock()
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE IF NOT EXISTS url(ordinal INTEGER PRIMARY KEY, key BLOB UNIQUE);"
            "CREATE TABLE IF NOT EXISTS fact(name TEXT PRIMARY KEY, value TEXT);"
            "INSERT OR IGNORE INTO fact VALUES ('clean', '1')"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def open(self) -> Opening:
        facts = dict(self._connection.execute("SELECT name, value FROM fact"))
        self.note({"clean": "0"})
        (last,) = self._connection.execute("SELECT coalesce(max(ordinal), 0) FROM url").fetchone()
        return Opening(clean=facts.pop("clean") == "1", counters=Counters(last_ordinal=last), notes=facts)

    def commit(self, rows: Sequence[tuple[int, bytes]]) -> None:
        with self._lock:
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO url VALUES (?, ?)", rows)
            self._connection.execute("COMMIT")

    def note(self, notes: Mapping[str, str]) -> None:
        with self._lock:
            self._connection.execute("BEGIN")
            self._connection.executemany("REPLACE INTO fact VALUES (?, ?)", list(notes.items()))
            self._connection.execute("COMMIT")

    def keys(self, chunk: int, after: int = 0) -> Iterator[list[bytes]]:
        found = self._connection.execute("SELECT key FROM url WHERE ordinal > ? ORDER BY ordinal", (after,)).fetchall()
        for start in range(0, len(found), chunk):
            yield [key for (key,) in found[start : start + chunk]]


class Behind:
    """A UniqFilter behind the seam, as `composition.py` puts it there."""

    blocks = False

    def __init__(self, uniq: UniqFilter) -> None:
        self.uniq = uniq
        self.unseen, self.mark, self.sync, self.close = uniq.unseen, uniq.mark, uniq.sync, uniq.close

    def position(self) -> str:
        return self.uniq.position()

    def facts(self) -> Mapping[str, float]:
        return {}


# Which rows are marked again


@pytest.mark.parametrize(
    ("position", "notes", "clean", "above"),
    [
        ("a-3", {"checkpoint": "70", "filter": "a-3"}, True, None),
        ("a-3", {"checkpoint": "70", "filter": "a-3"}, False, 70),
        ("a-4", {"checkpoint": "70", "filter": "a-3"}, False, 70),
        ("a-10", {"checkpoint": "70", "filter": "a-9"}, False, 70),
        ("a-2", {"checkpoint": "70", "filter": "a-3"}, False, 0),
        ("a-2", {"checkpoint": "70", "filter": "a-3"}, True, 0),
        ("", {"checkpoint": "70", "filter": "a-3"}, False, 0),
        ("", {"checkpoint": "70", "filter": "a-3"}, True, 0),
        ("", {"checkpoint": "70", "filter": ""}, True, 0),
        ("", {}, True, 0),
        ("", {}, False, 0),
        ("a-1", {}, False, 0),
        ("a-1", {"checkpoint": "0", "filter": ""}, False, 0),
    ],
)
def test_the_note_holds_for_a_filter_that_knows_all_it_stands_for(
    position: str, notes: dict[str, str], clean: bool, above: int | None
) -> None:
    """The filter that was noted, or the same one later; an older copy and a new one are told every row."""
    assert remark_from(notes, At(position), clean=clean) == above


@pytest.mark.parametrize(
    ("position", "notes", "clean"),
    [
        ("b-3", {"checkpoint": "70", "filter": "a-3"}, True),
        ("b-3", {"checkpoint": "70", "filter": "a-3"}, False),
        ("a-4", {"checkpoint": "70", "filter": "a-3"}, True),
        ("a-1", {}, True),
        ("a-1", {"checkpoint": "0", "filter": ""}, True),
    ],
)
def test_a_filter_that_may_know_more_than_the_store_is_refused(
    position: str, notes: dict[str, str], clean: bool
) -> None:
    """Another crawl's filter, and one that went on after the store was closed in order, would hide URLs for ever."""
    with pytest.raises(FormatMismatch, match="another state of the crawl, and URLs that only it knows would be lost"):
        remark_from(notes, At(position), clean=clean)


@pytest.mark.parametrize(
    ("position", "notes"), [("a-3", {"filter": "a-x"}), ("a", {}), ("a-3", {"filter": "a-3", "checkpoint": "-1"})]
)
def test_a_damaged_note_is_named(position: str, notes: dict[str, str]) -> None:
    """A note that is not a number cannot come from a checkpoint."""
    with pytest.raises(FormatMismatch, match=r"note of the last checkpoint is damaged: '.*' is not a number"):
        remark_from(notes, At(position), clean=False)


# Making them


def test_a_checkpoint_notes_what_was_marked_before_its_sync() -> None:
    """Marks that come while the filter syncs belong to the next one."""
    notes = Notes()
    made: list[Checkpoints] = []
    seen = At(on_sync=lambda: (made[0].marked(9), setattr(seen, "at", "a-4"))[0])
    made.append(Checkpoints(notes, seen, math.inf, marked=5))
    made[0].now()
    assert notes.kept == [{"checkpoint": "5", "filter": "a-4"}]
    made[0].close()
    assert notes.kept[1:] == [{"checkpoint": "9", "filter": "a-4"}]


def test_the_thread_makes_one_by_itself_when_it_is_due() -> None:
    """Nobody asks for it."""
    notes = Notes()
    made = Checkpoints(notes, At(), 0.001)
    made.marked(7)
    while not notes.kept or notes.kept[-1]["checkpoint"] != "7":
        assert notes.noted.wait(10)
        notes.noted.clear()
    made.close(final=False)
    assert notes.kept[-1] == {"checkpoint": "7", "filter": "a-3"}


def test_nothing_is_synced_when_nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is due four times: the first one is made, the third has news."""
    notes, synced = Notes(), list[int]()
    made: list[Checkpoints] = []

    class DueFourTimes(threading.Event):
        due = 0

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == 60
            self.due += 1
            if self.due == 3:
                made[0].marked(9)
            if self.due == 1:
                assert started.wait(10)
            return self.due > 4

    started = threading.Event()
    monkeypatch.setattr(checkpoints, "Event", DueFourTimes)
    made.append(Checkpoints(notes, At(on_sync=lambda: synced.append(1)), marked=5))
    started.set()
    made[0].close(final=False)
    assert [kept["checkpoint"] for kept in notes.kept] == ["5", "9"]
    assert len(synced) == 2


def test_the_end_does_not_wait_for_the_next_due_time() -> None:
    """The thread is gone when `close` returns, after a last checkpoint; a second call does nothing."""
    notes, before = Notes(), set(threading.enumerate())
    made = Checkpoints(notes, At(), 1e9, marked=5)
    made.close()
    made.close()
    assert "anabranch-checkpoints" not in {thread.name for thread in set(threading.enumerate()) - before}
    assert notes.kept == [{"checkpoint": "5", "filter": "a-3"}]


def test_an_unclean_end_notes_nothing() -> None:
    """A checkpoint claims nothing that the core could not report."""
    notes = Notes()
    Checkpoints(notes, At(), marked=5).close(final=False)
    assert notes.kept == []


def broken(error: Exception) -> Callable[[], None]:
    def sync() -> None:
        raise error

    return sync


@pytest.mark.parametrize(
    ("in_sync", "in_note", "kind", "message"),
    [
        (OSError(28, "No space left on device"), None, StoreFull, "the filter cannot be written: .*No space left"),
        (None, StoreUnavailable("the server is gone"), StoreUnavailable, "^the server is gone$"),
        (RuntimeError("a defect"), None, StoreUnavailable, "a checkpoint failed: .*a defect"),
    ],
)
def test_a_failure_in_the_thread_reaches_the_core_and_ends_checkpoints(
    in_sync: Exception | None, in_note: Exception | None, kind: type[StoreUnavailable], message: str
) -> None:
    """The host is woken, the error is kept, and no later sync may claim what the failed one may have lost."""
    notes, woken, synced = Notes(in_note), threading.Event(), list[int]()

    def sync() -> None:
        synced.append(1)
        if in_sync is not None:
            raise in_sync

    made = Checkpoints(notes, At(on_sync=sync), 0.001, marked=5, on_change=woken.set)
    assert woken.wait(10)
    made._thread.join(10)
    assert not made._thread.is_alive()
    notes.failure = None
    with pytest.raises(kind, match=message):
        made.now()
    with pytest.raises(kind, match=message):
        made.close()
    assert type(made.failure) is kind
    assert (notes.kept, len(synced)) == ([], 1)


def test_a_failure_of_a_checkpoint_that_was_asked_for_is_raised_and_kept() -> None:
    """The thread makes none any more either."""
    notes = Notes()
    made = Checkpoints(notes, At(on_sync=broken(OSError("broken"))), math.inf, marked=5)
    with pytest.raises(StoreFull, match="broken"):
        made.now()
    assert isinstance(made.failure, StoreFull)
    made.close(final=False)
    assert notes.kept == []


# Against a model: any order of commits, marks, checkpoints, crashes, and filters that are not the newest


class Lasting(ExactFilter):
    """A filter of which a crash leaves what was synced, and of the rest what chance had written."""

    names = 0

    def __init__(self) -> None:
        super().__init__()
        Lasting.names += 1
        self.name, self.syncs, self.synced = Lasting.names, 0, set[bytes]()
        self.is_new = False

    def mark(self, keys: Sequence[bytes]) -> None:
        super().mark(keys)
        self.is_new = self.is_new or bool(keys)

    def sync(self) -> None:
        self.synced = set(self._keys)
        self.syncs += self.is_new
        self.is_new = False

    def position(self) -> str:
        return f"{self.name}-{self.syncs}" if self.syncs else ""

    def copy(self, also: frozenset[bytes] = frozenset()) -> Lasting:
        """Return a filter with the content of the disk."""
        other = Lasting()
        other.name, other.syncs, other.synced = self.name, self.syncs, set(self.synced)
        other._keys = self.synced | (also & self._keys)
        return other


class Rows:
    """The store of the model: it loses nothing that was committed or noted."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.notes: dict[str, str] = {}
        self.clean = True
        self.breaks_after = math.inf

    def note(self, notes: Mapping[str, str]) -> None:
        self.notes |= notes

    def keys(self, chunk: int, after: int = 0) -> Iterator[list[bytes]]:
        for number, start in enumerate(range(after, len(self.rows), chunk)):
            if number >= self.breaks_after:
                raise StoreUnavailable("broken off")
            yield self.rows[start : start + chunk]


class FiltersAndStores(RuleBasedStateMachine):
    """The filter's keys are the store's after each opening, whatever came before."""

    def __init__(self) -> None:
        super().__init__()
        self.store, self.disk = Rows(), Lasting()
        self.copies = [self.disk.copy()]
        self.is_open = False
        self.open_now()

    def opening(self) -> Opening:
        opening = Opening(clean=self.store.clean, counters=Counters(), notes=dict(self.store.notes))
        self.store.clean = False
        return opening

    def open_now(self) -> None:
        self.seen = self.disk
        catch_up(self.store, self.seen, self.opening())
        assert self.seen._keys == set(self.store.rows)
        self.made = Checkpoints(self.store, self.seen, math.inf, marked=len(self.store.rows))
        self.marked, self.is_open = len(self.store.rows), True

    @precondition(lambda self: self.is_open)
    @rule(count=st.integers(1, 5))
    def commit(self, count: int) -> None:
        first = len(self.store.rows)
        self.store.rows += [b"%d" % number for number in range(first, first + count)]

    @precondition(lambda self: self.is_open)
    @rule(count=st.integers(1, 5))
    def mark(self, count: int) -> None:
        until = min(self.marked + count, len(self.store.rows))
        self.seen.mark(self.store.rows[self.marked : until])
        self.marked = until
        self.made.marked(until)

    @precondition(lambda self: self.is_open)
    @rule()
    def checkpoint(self) -> None:
        self.made.now()

    @precondition(lambda self: self.is_open)
    @rule()
    def sync_and_not_note(self) -> None:
        self.seen.sync()

    @precondition(lambda self: self.is_open)
    @rule()
    def end_well(self) -> None:
        self.mark(len(self.store.rows))
        self.made.close()
        self.seen.sync()
        self.store.clean = True
        self.disk, self.is_open = self.seen.copy(), False
        self.copies.append(self.disk.copy())

    @precondition(lambda self: self.is_open)
    @rule(luck=st.integers(0, 9))
    def crash(self, luck: int) -> None:
        self.made.close(final=False)
        written = frozenset(key for key in self.seen._keys if int(key) % 10 < luck)
        self.disk, self.is_open = self.seen.copy(written), False
        self.copies.append(self.disk.copy())

    @precondition(lambda self: not self.is_open)
    @rule(which=st.integers(0, 99))
    def put_an_older_copy_in_place(self, which: int) -> None:
        self.copies = self.copies[: which % len(self.copies) + 1]  # newer ones would be of another past
        self.disk = self.copies[-1].copy()

    @precondition(lambda self: not self.is_open)
    @rule()
    def remove_the_filter(self) -> None:
        self.disk = Lasting()
        self.copies = [self.disk.copy()]

    @precondition(lambda self: not self.is_open)
    @rule(after=st.integers(0, 3), syncs=st.booleans())
    def break_an_opening_off(self, after: int, syncs: bool) -> None:
        self.store.breaks_after = after
        with suppress(StoreUnavailable):
            catch_up(self.store, self.disk, self.opening())
        self.store.breaks_after = math.inf
        if syncs:
            self.disk.sync()
        self.disk = self.disk.copy()

    @precondition(lambda self: not self.is_open)
    @rule()
    def reopen(self) -> None:
        self.open_now()

    @invariant()
    def the_filter_knows_nothing_that_the_store_does_not(self) -> None:
        assert self.seen._keys <= set(self.store.rows)

    def teardown(self) -> None:
        if not self.is_open:
            self.open_now()
        self.made.close(final=False)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MARK_CHUNK", 3)


TestFiltersAndStores = FiltersAndStores.TestCase
TestFiltersAndStores.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestFiltersAndStores.__doc__ = "No key of the store is unknown to the filter after an opening, none else is known."


# With real filters, on real files


class Job:
    """A folder with a store and a filter; each opening is a session that may end in any way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> tuple[Disk, Behind, Opening]:
        disk = Disk(self.folder / "store.db")
        return disk, Behind(UniqFilter.open(self.folder / "seen", QUICK)), disk.open()

    def run(self, until: int, *, note: bool = True, mark: bool = True, clean: bool = True) -> None:
        """Commit rows up to this one; end after whatever steps of the last checkpoint are asked for."""
        disk, seen, opening = self.open()
        with disk:
            catch_up(disk, seen, opening)
            rows = [(number, b"%d" % number) for number in range(opening.counters.last_ordinal + 1, until + 1)]
            disk.commit(rows)
            made = Checkpoints(disk, seen, math.inf, marked=opening.counters.last_ordinal)
            if mark:
                seen.mark([key for _, key in rows])
                made.marked(until)
            made.close(final=note)
            seen.close()
            if clean:
                disk.note({"clean": "1"})

    def require_in_step(self, rows: int) -> int | None:
        """Open it: the filter must know nothing else before, and every row afterwards. Answers what was marked again."""
        disk, seen, opening = self.open()
        with disk, seen.uniq:
            keys = [key for chunk in disk.keys(1000) for key in chunk]
            others = [b"%d" % number for number in range(rows + 1, rows + 2000)]
            assert len(keys) == rows
            assert seen.unseen(others).all()
            above = remark_from(opening.notes, seen, clean=opening.clean)
            catch_up(disk, seen, opening)
            assert not seen.unseen(keys).any()
            assert seen.uniq.statistics().keys == rows
        return above


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that was closed in order with 100 rows."""
    job = Job(tmp_path / "job")
    job.folder.mkdir()
    job.run(100)
    return job


def test_after_a_clean_end_nothing_is_marked_again(job: Job) -> None:
    """The note and the filter agree, session after session."""
    job.run(150)
    job.run(150)
    assert job.require_in_step(150) is None


def test_a_crash_between_commit_and_mark(job: Job) -> None:
    """The rows above the checkpoint are marked again."""
    job.run(150, mark=False, clean=False)
    assert job.require_in_step(150) == 100


def test_a_crash_between_sync_and_note(job: Job) -> None:
    """The filter is younger than the note: the older S holds for it."""
    job.run(150, note=False, clean=False)
    assert job.require_in_step(150) == 100


def test_a_crash_after_a_checkpoint(job: Job) -> None:
    """Nothing is left to mark."""
    job.run(150, clean=False)
    assert job.require_in_step(150) == 150


@pytest.mark.parametrize("clean", [True, False])
def test_a_filter_restored_from_an_older_copy(job: Job, clean: bool) -> None:
    """It lacks rows below the checkpoint, so every row is marked again; a broken-off marking is begun anew."""
    shutil.copytree(job.folder / "seen", job.folder / "copy")
    job.run(200, clean=clean)
    shutil.rmtree(job.folder / "seen")
    (job.folder / "copy").rename(job.folder / "seen")
    disk, seen, opening = job.open()
    with disk, seen.uniq:
        assert not opening.clean or remark_from(opening.notes, seen, clean=opening.clean) == 0
        marked, real = list[bytes](), seen.mark

        def mark(keys: list[bytes]) -> None:
            if len(marked) > 20:
                raise OSError("broken off")
            real(keys)
            marked.extend(keys)

        seen.mark = mark
        with pytest.raises(OSError, match="broken off"):
            catch_up(disk, seen, opening)
    assert job.require_in_step(200) == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["folder", "POSITION", "LOSSES"])
def test_a_filter_that_was_removed_is_made_again(job: Job, clean: bool, damage: str) -> None:
    """Its folder, or what it was noted by."""
    job.run(150, clean=clean)
    if damage == "folder":
        shutil.rmtree(job.folder / "seen")
    else:
        (job.folder / "seen" / damage).unlink()
    assert job.require_in_step(150) == 0


@pytest.mark.parametrize("clean", [True, False])
def test_another_jobs_filter_is_refused(job: Job, tmp_path: Path, clean: bool) -> None:
    """Its keys are not this store's; removed, it is made again."""
    job.run(110, clean=clean)
    other = Job(tmp_path / "other")
    other.folder.mkdir()
    other.run(500)
    shutil.rmtree(job.folder / "seen")
    shutil.copytree(other.folder / "seen", job.folder / "seen")
    for _ in range(2):
        disk, seen, opening = job.open()
        with disk, seen.uniq, pytest.raises(FormatMismatch, match="remove the filter, which is then made again"):
            catch_up(disk, seen, opening)
    shutil.rmtree(job.folder / "seen")
    assert job.require_in_step(110) == 0


@pytest.mark.parametrize("restored", [True, False])
def test_a_store_that_is_older_than_its_filter_is_refused(job: Job, restored: bool) -> None:
    """Restored from a copy, or begun anew: the filter would hide the URLs that this store never had."""
    shutil.copy(job.folder / "store.db", job.folder / "copy.db")
    job.run(300)
    for path in job.folder.glob("store.db*"):
        path.unlink()
    if restored:
        (job.folder / "copy.db").rename(job.folder / "store.db")
    disk, seen, opening = job.open()
    with disk, seen.uniq, pytest.raises(FormatMismatch, match="another state of the crawl"):
        catch_up(disk, seen, opening)


CRAWL = """
import sys
from pathlib import Path
from tests.frontier.test_checkpoints import Checkpoints, Job, catch_up
disk, seen, opening = Job(Path(sys.argv[1])).open()
catch_up(disk, seen, opening)
last = opening.counters.last_ordinal
made = Checkpoints(disk, seen, 0.0, marked=last)
while True:
    rows = [(number, b"%d" % number) for number in range(last + 1, last + 21)]
    disk.commit(rows)
    seen.mark([key for _, key in rows])
    last += 20
    made.marked(last)
    print(last, flush=True)
"""


@pytest.mark.slow
def test_after_kill_9_at_any_moment_filter_and_store_are_in_step(tmp_path: Path) -> None:
    """A process that commits, marks and makes checkpoints all the time is killed eight times over one folder."""
    (tmp_path / "job").mkdir()
    chance, above = random.Random(4), list[int | None]()
    for number in range(8):
        command = [sys.executable, "-c", CRAWL, str(tmp_path / "job")]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(chance.randint(1, 40)):
                said = int(child.stdout.readline())
            child.kill()
        copy = Job(tmp_path / str(number))
        shutil.copytree(tmp_path / "job", copy.folder)
        with Disk(copy.folder / "store.db") as disk:
            committed = sum(map(len, disk.keys(1000)))
        assert committed >= said
        above.append(copy.require_in_step(committed))
        shutil.rmtree(copy.folder)
    assert None not in above
    assert above[-1]


@pytest.mark.parametrize(
    ("noted", "kept", "openings"),
    [(None, None, 1), ("a-4", None, 5), ("a-4", "a-4", 5), ("a-4", "a-3", 5), ("a-4", "a-1", 5)],
)
def test_a_filter_may_be_new_or_behind(noted: str | None, kept: str | None, openings: int) -> None:
    """It is told what it lacks; from then on both have the same."""
    pair = next_pair(Pair.read(noted or ""), Pair.read(kept or ""))
    assert pair.openings == openings
    assert noted is None or pair.name == "a"
    assert Pair.read(str(pair)) == pair


def test_each_pair_has_a_name_of_its_own() -> None:
    """Or the filter of one job could stand in for another's."""
    assert next_pair(None, None).name != next_pair(None, None).name


@pytest.mark.parametrize(
    ("noted", "kept", "why"),
    [
        ("", "aaaabbbbcccc-1", "it is filter aaaabbbb, the store never saw it"),
        ("eeeeffff-9", "aaaabbbb-1", "it is filter aaaabbbb, the store belongs to filter eeeeffff"),
        ("a-4", "a-5", "it was opened 5 times, the store 4 times: that is an older copy"),
    ],
)
def test_a_filter_that_may_know_more_is_refused(noted: str, kept: str, why: str) -> None:
    """A URL that only the filter knows would never be crawled (I8). Both are named, and what to do."""
    with pytest.raises(FormatMismatch) as refused:
        next_pair(Pair.read(noted), Pair.read(kept))
    line = str(refused.value)
    assert why in line
    assert "restore store and filter from the same copy, or remove the filter" in line
    assert "\n" not in line


@pytest.mark.parametrize("text", ["a", "-3", "a-", "a-x"])
def test_a_damaged_text_is_no_pair(text: str) -> None:
    """And not a new filter's either."""
    with pytest.raises(ValueError, match=text):
        Pair.read(text)
