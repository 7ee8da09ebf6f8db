"""What is special about the store in SQL: one thread, one file, and what can happen to both."""

import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frontier.errors import (
    FormatMismatch,
    FrontierError,
    InvariantBroken,
    StoreFull,
    StoreInUse,
    StoreUnavailable,
)
from frontier.models import WAITING, Row
from frontier.stores import sqlite, statements, thread
from frontier.stores.base import Batch, Counters, LaneRow, Moved, Opening, StoreFailed, Synced
from frontier.stores.sql import SqlStore
from tests.frontier.stores import killable_writer
from tests.frontier.stores.rows import (
    A_LANE,
    IDENTITY,
    OTHER_LANE,
    Teller,
    done,
    gate_row,
    queue_row,
    read,
    row,
    synced,
    waiting,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    made = SqlStore(path)
    made.open(IDENTITY, lambda: None)
    yield made
    made.close(clean=False)


@pytest.fixture
def teller(store: SqlStore) -> Teller:
    return Teller(store)


def reopened(path: Path, *, max_pages: int | None = None) -> tuple[SqlStore, Opening]:
    again = SqlStore(path, max_pages=max_pages)
    return again, again.open(IDENTITY, lambda: None)


def store_threads() -> list[threading.Thread]:
    return [alive for alive in threading.enumerate() if alive.name == "anabranch-store"]


class Brake:
    """An `on_change` that holds the store thread where it is called, until it is let go."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.held = threading.Semaphore(0)
        self._go = threading.Event()

    def __call__(self) -> None:
        self.threads.append(threading.current_thread().name)
        self.held.release()
        self._go.wait()

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
def brake() -> Iterator[Brake]:
    made = Brake()
    yield made
    made.let_go()


# What is kept


def test_everything_is_there_after_a_clean_end(path: Path, teller: Teller) -> None:
    """Rows, counts, names, gates and retries, with the page that each retry was found on."""
    late, soon = row(3, via=1), row(4, due_s=None)
    teller.say([row(1), row(2), late, soon], queues=[queue_row("queue 1")], gates=[gate_row("a.test")])
    teller.say(ended=[done(row(1))], moved=[Moved(late, waiting(late, 20.0)), Moved(soon, waiting(soon, 10.0))])
    teller.say([row(5, lane=OTHER_LANE)], gates=[gate_row("a.test", 5.0), gate_row("b.test")])
    teller.say(ended=[done(row(5, lane=OTHER_LANE))])
    teller.store.close(clean=True)
    again, opening = reopened(path)
    assert opening.clean
    assert opening.counters == again.counters() == (5, 3, 2, 0, 0)
    assert opening.queues == [queue_row("queue 1")]
    assert sorted(opening.gates) == sorted([gate_row("a.test", 5.0), gate_row("b.test")])
    assert opening.lanes == [LaneRow(*A_LANE, 3, 1, 3)]
    assert opening.waiting == [(waiting(soon, 10.0), None), (waiting(late, 20.0), "http://a.test/1")]
    again.close(clean=True)


def test_an_empty_lane_can_be_announced_again(path: Path, teller: Teller) -> None:
    """The core forgets empty lanes with its process; a later one makes them anew."""
    teller.say([row(1)])
    teller.say(ended=[done(row(1))])
    teller.store.close(clean=True)
    again, opening = reopened(path)
    assert opening.lanes == []
    second = Teller(again)
    second.say([row(2)])
    assert second.heads() == [2]
    again.counters()
    again.close(clean=False)


def test_a_lane_that_is_announced_twice_keeps_its_count(teller: Teller) -> None:
    """Only its place among the others is new."""
    teller.say([row(1)])
    teller.store.write(Batch(number=2, new=[row(2)], lanes=[LaneRow(*A_LANE, 1, 9, 0)]))
    assert teller.store.counters().queued == 2


@pytest.mark.parametrize("clean", [True, False])
def test_clean_is_what_the_last_owner_said(path: Path, *, clean: bool) -> None:
    """An owner that ends in a hurry writes all, and the next one knows that it was not in order."""
    first, _ = reopened(path)
    Teller(first).say([row(1)])
    first.close(clean=clean)
    again, opening = reopened(path)
    again.close(clean=True)
    assert (opening.clean, opening.counters.queued) == (clean, 1)


def test_an_open_store_is_unclean_on_disk(path: Path, store: SqlStore, tmp_path: Path) -> None:
    """A copy of the files, as a power cut would leave them, opens as unclean."""
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    again, opening = reopened(copy)
    again.close(clean=True)
    assert not opening.clean


def test_a_clean_end_leaves_one_file(path: Path, teller: Teller) -> None:
    """The log is folded in, so the folder can be copied."""
    teller.say([row(1)])
    teller.store.close(clean=True)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    """Killed at any moment, every acknowledged batch is there, and each batch is there whole or not at all."""
    dice = random.Random(20)
    for _ in range(6):
        acknowledged = write_until_killed(path, acknowledgements=dice.randrange(1, 40))
        again, opening = reopened(path)
        batches = opening.counters.last_ordinal // killable_writer.NEW
        assert not opening.clean
        assert batches >= acknowledged
        assert again.counters() == killable_writer.expected(batches)
        again.close(clean=False)


def write_until_killed(path: Path, acknowledgements: int) -> int:
    """Run the writer until it has said so much; answers the last number that it printed."""
    command = [sys.executable, killable_writer.__file__, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(acknowledgements)]
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
    return int([line for line in lines if line.endswith("\n")][-1])


# The thread and its order


def test_on_change_is_called_from_the_store_thread(path: Path) -> None:
    """It may only wake the host: once for a read, once for a commit."""
    calls: list[str] = []
    store = SqlStore(path)
    store.open(IDENTITY, lambda: calls.append(threading.current_thread().name))
    teller = Teller(store)
    teller.say([row(1)])
    store.flush()
    assert calls == ["anabranch-store"]
    store.ask_heads(A_LANE, 1)
    store.flush()
    assert calls == ["anabranch-store"] * 2
    store.close(clean=True)


def test_neighbouring_reads_are_told_together(path: Path, brake: Brake) -> None:
    """One call for the reads that stand together, one for the commit."""
    store = SqlStore(path)
    store.open(IDENTITY, brake)
    teller = Teller(store)
    teller.say([row(1)])
    brake.held.acquire()
    store.ask_heads(A_LANE, 1)
    store.ask_heads(OTHER_LANE, 1)
    teller.say([row(2)])
    brake.let_go()
    store.flush()
    assert len(brake.threads) == 3
    assert [type(answer).__name__ for answer in store.take_answers()] == ["Synced", "HeadsRead", "HeadsRead", "Synced"]
    store.close(clean=True)


def test_a_read_is_answered_before_its_transaction_ends(path: Path, brake: Brake) -> None:
    """Heads are there as soon as they are read, not only when the disk has what came with them."""
    store = SqlStore(path)
    store.open(IDENTITY, brake)
    store.ask_heads(A_LANE, 1)
    brake.held.acquire()
    (answer,) = store.take_answers()
    assert read([answer])
    brake.let_go()
    store.close(clean=True)


def test_a_transaction_grows_with_the_load(path: Path, brake: Brake) -> None:
    """All that waits is one transaction, up to 10,000 rows; a larger batch is one by itself."""
    store = SqlStore(path)
    store.open(IDENTITY, brake)
    teller = Teller(store)
    teller.say([row(1)])
    brake.held.acquire()
    ordinals = iter(range(2, 100_000))
    for size in [*[60] * 170, 12_000, 1, 1]:
        teller.say([row(next(ordinals)) for _ in range(size)])
    brake.let_go()
    numbers = [answer.number for answer in synced(teller.answers())]
    assert numbers == [1, 1 + thread.MAX_ROWS // 60, 171, 172, 174]
    store.close(clean=True)


def test_close_writes_what_waits(path: Path, brake: Brake) -> None:
    """What was said before the end is there after it."""
    store = SqlStore(path)
    store.open(IDENTITY, brake)
    teller = Teller(store)
    for ordinal in range(1, 100):
        teller.say([row(ordinal)])
    brake.let_go()
    store.close(clean=True)
    again, opening = reopened(path)
    again.close(clean=True)
    assert opening.counters.queued == 99


def test_close_leaves_no_thread_and_no_lock(path: Path) -> None:
    """The file can be opened by anybody afterwards."""
    before = store_threads()
    store, _ = reopened(path)
    assert len(store_threads()) == len(before) + 1
    assert all(alive.daemon for alive in store_threads())
    store.close(clean=True)
    assert store_threads() == before
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT count(*) FROM url").fetchone() == (0,)
    other.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.write(Batch(number=1)),
        lambda store: store.ask_heads(A_LANE, 1),
        lambda store: store.flush(),
        lambda store: store.look_up(b"u"),
        lambda store: store.counters(),
        lambda store: next(store.keys(1)),
    ],
)
def test_a_closed_store_takes_nothing(path: Path, call: Callable[[SqlStore], object]) -> None:
    """Words that nobody will hear are refused, before the opening and after the end."""
    store = SqlStore(path)
    with pytest.raises(StoreUnavailable, match="not open"):
        call(store)
    store.open(IDENTITY, lambda: None)
    store.close(clean=True)
    with pytest.raises(StoreUnavailable, match="not open"):
        call(store)


def test_a_host_that_cannot_be_woken_is_a_failure(path: Path) -> None:
    """An `on_change` that raises ends the store with its error; nobody waits for ever and no thread stays."""

    def fails() -> None:
        raise RuntimeError("the loop is closed")

    store = SqlStore(path)
    store.open(IDENTITY, fails)
    Teller(store).say([row(1)])
    with pytest.raises(StoreUnavailable, match="the loop is closed"):
        store.flush()
    with pytest.raises(StoreUnavailable, match="the loop is closed"):
        store.close(clean=True)
    assert not store_threads()


# The file


def test_a_read_of_heads_is_one_seek(path: Path, store: SqlStore) -> None:
    """No scan and no sort: the rows lie in the order in which they are served."""
    store.close(clean=True)
    with sqlite3.connect(path) as other:
        plan = other.execute(f"EXPLAIN QUERY PLAN {statements.HEADS}", (*A_LANE, WAITING, 16)).fetchall()
        retries = other.execute(f"EXPLAIN QUERY PLAN {statements.WAITING_ROWS}").fetchall()
    other.close()
    assert plan[0][3] == "SEARCH url USING PRIMARY KEY (queue=? AND gate=? AND precedence<?)"
    assert plan[1][3].startswith("SEARCH done USING INTEGER PRIMARY KEY (rowid=?)")
    assert "url_due" in retries[0][3]
    assert len(plan) == len(retries) == 2


def test_a_second_opener_in_this_process_is_refused(path: Path, store: SqlStore) -> None:
    """One owner at a time; the first one goes on."""
    with pytest.raises(StoreInUse, match=str(path)):
        reopened(path)
    teller = Teller(store)
    teller.say([row(1)])
    assert teller.heads() == [1]


def test_a_second_process_is_refused(path: Path) -> None:
    """The error names the file; when the owner is killed, nothing has to be cleaned up."""
    command = [sys.executable, killable_writer.__file__, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StoreInUse, match=str(path)):
            reopened(path)
        process.kill()
    again, _ = reopened(path)
    again.close(clean=False)


def test_each_difference_of_identity_is_named(path: Path, store: SqlStore) -> None:
    """What may not change between openings is refused, and the store stays as it was."""
    store.close(clean=True)
    with pytest.raises(FormatMismatch) as raised:
        SqlStore(path).open({"policy": "host", "filter": "smm"}, lambda: None)
    assert str(raised.value) == (
        f"{path}: filter is not set in the job, smm in the order; policy is bkdr:997 in the job, host in the order; "
        "politeness is host in the job, not set in the order"
    )
    again, opening = reopened(path)
    again.close(clean=True)
    assert opening.clean


def test_another_format_is_refused(path: Path, store: SqlStore) -> None:
    """A newer program's tables are not guessed at."""
    store.close(clean=True)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE crawl SET value = '2' WHERE name = 'format'")
    other.close()
    with pytest.raises(FormatMismatch, match="the format is 2 in the job, 1 in this program"):
        reopened(path)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """One line that names it, and it is left as it was."""
    path.write_text("not a database " * 100)
    with pytest.raises(FormatMismatch, match=f"{path}: it is no database"):
        reopened(path)
    assert path.read_text().startswith("not a database")


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    """Not a byte of it changes."""
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE url (id INTEGER)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(FormatMismatch, match="another program"):
        reopened(path)
    assert path.read_bytes() == before


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The file is made, its folder is not."""
    with pytest.raises(StoreUnavailable, match=f"there is no folder {tmp_path}/missing"):
        reopened(tmp_path / "missing" / "frontier.db")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """The other way round it is refused as well."""
    with pytest.raises(StoreUnavailable, match="it is a folder"):
        reopened(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_file_without_permission_is_named(path: Path, store: SqlStore, mode: int) -> None:
    """Read-only or closed altogether."""
    store.close(clean=True)
    path.chmod(mode)
    with pytest.raises(StoreFull, match=str(path)):
        reopened(path)


# Failures


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (sqlite3.SQLITE_FULL, StoreFull, "is full"),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreFull, "read-only"),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable, "disk I/O error"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreInUse, "another process"),
        (sqlite3.SQLITE_CORRUPT, StoreUnavailable, "damaged"),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable, "cannot be opened"),
        (sqlite3.SQLITE_TOOBIG, StoreUnavailable, "OperationalError: as SQLite says it"),
    ],
)
def test_an_error_of_sqlite_becomes_one_of_ours(path: Path, code: int, error: type[FrontierError], words: str) -> None:
    """By its code, extended ones included; the line names the file, and the cause is kept."""
    cause = sqlite3.OperationalError("as SQLite says it")
    cause.sqlite_errorcode = code
    failure = sqlite.translated(path, cause)
    assert type(failure) is error
    assert str(failure).startswith(f"{path}: ")
    assert words in str(failure)
    assert failure.__cause__ is cause


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR_SHMOPEN])
def test_a_place_that_cannot_be_written_is_said(path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says only that it cannot open the file, or that there was an I/O error."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    cause = sqlite3.OperationalError("unable to open database file")
    cause.sqlite_errorcode = code
    failure = sqlite.translated(path, cause)
    assert isinstance(failure, StoreFull)
    assert "no permission" in str(failure)


def full_store(path: Path) -> tuple[SqlStore, list[int]]:
    """A store whose file may not grow, filled until it failed; and the numbers that were acknowledged."""
    store, _ = reopened(path, max_pages=60)
    teller = Teller(store)
    acknowledged: list[int] = []
    for batch in range(1000):
        teller.say([row(batch * 20 + index) for index in range(1, 21)])
        try:
            store.flush()
        except StoreFull:
            return store, acknowledged
        acknowledged += [answer.number for answer in synced(store.take_answers())]
    raise AssertionError("the file grew beyond its bound")


def test_a_full_disk_is_told_once_and_loses_nothing(path: Path) -> None:
    """All that was acknowledged is there after reopening, nothing of the batch that failed, and it is not clean."""
    store, acknowledged = full_store(path)
    store.write(Batch(number=10_000, new=[row(1_000_000)]))
    store.ask_heads(A_LANE, 1)
    with pytest.raises(StoreFull, match=f"{path}: the disk"):
        store.look_up(b"u")
    (failed,) = store.take_answers()
    assert isinstance(failed, StoreFailed)
    assert isinstance(failed.error, StoreFull)
    with pytest.raises(StoreFull):
        store.close(clean=True)
    again, opening = reopened(path)
    assert not opening.clean
    assert again.counters().queued == len(acknowledged) * 20
    again.close(clean=False)


def test_a_failed_store_can_be_let_go_quietly(path: Path) -> None:
    """Whoever knows of the failure and does not ask for a clean end gets no second error."""
    store, _ = full_store(path)
    store.close(clean=False)
    assert not store_threads()


def test_a_full_disk_at_the_opening_is_said(path: Path) -> None:
    """Nothing is left half-made: with room it opens as new."""
    with pytest.raises(StoreFull, match="is full"):
        reopened(path, max_pages=2)
    again, opening = reopened(path)
    again.close(clean=True)
    assert opening.clean


def test_of_a_failed_transaction_nothing_is_kept(path: Path, brake: Brake) -> None:
    """Neither its good batches nor what came later; what was durable before stays."""
    store = SqlStore(path)
    store.open(IDENTITY, brake)
    teller = Teller(store)
    teller.say([row(1)])
    brake.held.acquire()
    teller.say([row(2)])
    teller.say(ended=[done(row(99))])
    brake.let_go()
    with pytest.raises(StoreUnavailable):
        store.flush()
    teller.say([row(3)])
    store.close(clean=False)
    again, opening = reopened(path)
    again.close(clean=False)
    assert opening.counters == Counters(last_ordinal=1, queued=1)


@pytest.mark.parametrize(
    ("rows", "ended", "words"),
    [
        ([], [row(1)], "1 rows that end or move are not in the store"),
        ([row(1)], [row(1, precedence=9)], "row 1 ends or moves at"),
    ],
)
def test_a_row_that_is_not_there_cannot_end(teller: Teller, rows: list[Row], ended: list[Row], words: str) -> None:
    """A defect of the core shows at once and writes nothing."""
    teller.say(rows)
    teller.say(ended=[done(row) for row in ended])
    with pytest.raises(StoreUnavailable, match=words):
        teller.store.flush()


def test_a_row_of_an_unknown_lane_is_a_defect(store: SqlStore) -> None:
    """Its count would be lost."""
    store.write(Batch(number=1, new=[row(1)]))
    with pytest.raises(StoreUnavailable, match="no batch has announced"):
        store.flush()


# The recount


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE crawl SET value = '7' WHERE name = 'queued'", "the counters say"),
        ("UPDATE lane SET count = 7", "counts 7 rows and holds 2"),
        ("DELETE FROM lane", "the lanes count 0 rows, the table url holds 2"),
        ("DELETE FROM seen WHERE ordinal = 1", "the key of row 1 is seen at None"),
        ("UPDATE seen SET ordinal = 1", "the key of row [23] is seen at 1"),
        ("INSERT INTO seen VALUES (1, 1)", "4 keys are seen, 3 of them have a row"),
    ],
)
def test_the_recount_finds_what_contradicts_the_rows(path: Path, teller: Teller, damage: str, words: str) -> None:
    """Counters, lane counts and seen keys are each compared with the rows; the store itself goes on."""
    teller.say([row(1), row(2), row(3)])
    teller.say(ended=[done(row(3))])
    teller.store.close(clean=True)
    with sqlite3.connect(path) as other:
        other.execute(damage)
    other.close()
    again, _ = reopened(path)
    with pytest.raises(InvariantBroken, match=words):
        again.counters()
    assert again.look_up(b"http://a.test/3") is not None
    again.close(clean=False)


def test_many_duplicates_are_found_in_pieces(teller: Teller) -> None:
    """More keys than one statement may name."""
    teller.say([row(ordinal, f"u{ordinal}") for ordinal in range(1, 1202)])
    teller.say([row(ordinal + 2000, f"u{ordinal}") for ordinal in range(2, 1203)])
    (*_, last) = teller.answers()
    assert isinstance(last, Synced)
    assert len(last.duplicates) == 1200
    assert teller.store.counters().queued == 1202
