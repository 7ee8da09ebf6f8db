"""Rules of the stores in SQL alone: their one thread, their one place, and what can happen to both."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import pytest

from anabranch.frontier.errors import FormatMismatch, StoreFull, StoreInUse, StoreUnavailable
from anabranch.frontier.records import GateKey
from anabranch.frontier.stores.contract import Batch, HeadsRead, Opening, StoreFailed, Troubled
from anabranch.frontier.stores.sql import store as sql_store
from anabranch.frontier.stores.sql.reading import Item, Question
from anabranch.frontier.stores.sql.sqlite import owner_line
from anabranch.frontier.stores.sql.store import MAX_ROWS, Fifo, SqlStore
from anabranch.frontier.stores.sql.work import Patience
from tests.frontier.stores import killable_writer
from tests.frontier.stores.batches import IDENTITY, LANE, NOW_S, batch, failures, opened, row, synced
from tests.frontier.stores.rows import row as row_of
from tests.patience import HANG_S
from tests.postgres_server import server

ROOT = Path(__file__).parents[4]
ME = owner_line(0.0).partition(" since ")[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, path: Path) -> Iterator[Path | str]:
    """The place of a store: a file of SQLite, or a database of PostgreSQL."""
    if request.param == "sqlite":
        yield path
    else:
        with server() as url:
            yield url


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    made = opened(SqlStore(path))
    yield made
    made.close(clean=False)


def reopened(target: Path | str) -> tuple[SqlStore, Opening]:
    again = SqlStore(target)
    return again, again.open(IDENTITY, NOW_S, lambda: None)


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


@pytest.mark.parametrize("clean", [True, False])
def test_clean_is_what_the_last_owner_said(target: Path | str, *, clean: bool) -> None:
    """An owner that ends in a hurry writes all, and the next one knows that it was not in order."""
    first = opened(SqlStore(target))
    first.write(batch(1, [1]))
    first.close(clean=clean)
    again, opening = reopened(target)
    again.close(clean=True)
    assert (opening.clean, opening.counters.queued, opening.epoch) == (clean, 1, 2)


def test_notes_are_there_at_the_next_opening(target: Path | str) -> None:
    """A later one of the same name replaces an earlier one; a note is durable when the call returns."""
    store = opened(SqlStore(target))
    store.note({"checkpoint": "1", "log": "2"})
    store.note({"checkpoint": "3"})
    store.close(clean=False)
    again, opening = reopened(target)
    again.close(clean=True)
    assert opening.notes == {"checkpoint": "3", "log": "2"}


def test_keys_come_in_chunks_above_an_ordinal(target: Path | str) -> None:
    """Keys of queued and ended rows come, each once."""
    store = opened(SqlStore(target))
    store.write(batch(1, [1, 2, 3, 4, 5, row(6)._replace(key=b"six"), 7], ended=[]))
    store.write(batch(2, ended=[2, 4, 5]))
    chunks = list(store.keys(2, after=2))
    assert sorted(key for keys in chunks for key in keys) == sorted(
        [b"http://a.test/3", b"http://a.test/4", b"http://a.test/5", b"six", b"http://a.test/7"]
    )
    assert all(1 <= len(keys) <= 2 for keys in chunks)
    assert len([key for keys in store.keys(100) for key in keys]) == 7
    store.close(clean=True)


def test_an_open_store_is_unclean_on_disk(path: Path, store: SqlStore, tmp_path: Path) -> None:
    """A copy of the files, as a power cut would leave them, opens as unclean."""
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    again, opening = reopened(copy)
    again.close(clean=True)
    assert not opening.clean


def test_a_clean_end_leaves_one_file(path: Path, store: SqlStore) -> None:
    """The log is folded in and the owner's line is gone, so the folder can be copied; a seal says what the file was."""
    store.write(batch(1, [1]))
    assert path.with_name("frontier.db.owner").is_file()
    store.close(clean=True)
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}.seal"]


# Owners that die


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_kill(target: Path | str) -> None:
    """Killed at any moment, every acknowledged batch is there, and each batch is there whole or not at all."""
    dice = random.Random(20)
    for _ in range(4):
        acknowledged = write_until_killed(target, acknowledgements=dice.randrange(1, 40))
        again, opening = reopened(target)
        batches = opening.counters.last_ordinal // killable_writer.NEW
        assert not opening.clean
        assert batches >= acknowledged
        assert again.counters() == killable_writer.expected(batches)
        again.close(clean=False)


def write_until_killed(target: Path | str, acknowledgements: int) -> int:
    """Run the writer until it has said so much; answers the last number that it printed."""
    with writer(target) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(acknowledgements)]
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
    return int([line for line in lines if line.endswith("\n")][-1])


def writer(target: Path | str) -> subprocess.Popen[str]:
    command = [sys.executable, killable_writer.__file__, str(target)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)


def test_a_torn_last_transaction_is_dropped(path: Path, store: SqlStore, tmp_path: Path) -> None:
    """A log that was cut in the middle of a transaction: all before it is there, of itself nothing."""
    log = Path(f"{path}-wal")
    lengths = []
    for number in range(1, 6):
        store.write(killable_writer.whole_batch(number))
        store.flush()
        lengths.append(log.stat().st_size)
    whole_file, whole_log = path.read_bytes(), log.read_bytes()
    dice = random.Random(4)
    for cut in [lengths[-1], *(dice.randrange(lengths[0], lengths[-1]) for _ in range(8))]:
        torn = tmp_path / f"torn-{cut}.db"
        torn.write_bytes(whole_file)
        Path(f"{torn}-wal").write_bytes(whole_log[:cut])
        again, opening = reopened(torn)
        assert again.counters() == killable_writer.expected(sum(length <= cut for length in lengths))
        assert not opening.clean
        again.close(clean=True)


def test_a_second_owner_in_this_process_is_refused(target: Path | str) -> None:
    """With the name of the first one, which goes on."""
    store = opened(SqlStore(target))
    with pytest.raises(StoreInUse, match=f": {ME} since 2.* holds it; end that one first$"):
        reopened(target)
    store.write(batch(1, [1]))
    assert store.counters().queued == 1
    store.close(clean=True)


@pytest.mark.slow
def test_a_second_process_is_refused(target: Path | str) -> None:
    """The error names the first; when that one is killed, nothing has to be cleaned up."""
    with writer(target) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StoreInUse, match=f": process {process.pid} on host "):
            reopened(target)
        process.kill()
    again, _ = reopened(target)
    again.close(clean=False)


def test_an_owner_that_left_no_line_is_another_process(path: Path, store: SqlStore) -> None:
    """The lock counts, not the line."""
    path.with_name("frontier.db.owner").unlink()
    with pytest.raises(StoreInUse, match="another process holds it"):
        reopened(path)


def test_a_stale_line_keeps_nobody_out(path: Path) -> None:
    """Nor is it there any more when the store is open."""
    stale = path.with_name("frontier.db.owner")
    stale.write_text("anabranch owner 1\nprocess 1 on host old\n")
    again, _ = reopened(path)
    assert ME in stale.read_text()
    again.close(clean=False)
    assert not stale.exists()


# The thread and its order


def test_on_change_is_called_from_the_store_thread(path: Path) -> None:
    """It may only wake the host: once for a read, once for a commit."""
    calls: list[str] = []
    store = opened(SqlStore(path), lambda: calls.append(threading.current_thread().name))
    store.write(batch(1, [1]))
    store.flush()
    assert calls == ["anabranch-store"]
    store.ask_heads(LANE, 1, with_queue=True)
    store.flush()
    assert calls == ["anabranch-store"] * 2
    store.close(clean=True)


def test_neighbouring_reads_are_told_together(path: Path, brake: Brake) -> None:
    """One call for the reads that stand together, one for the commit."""
    store = opened(SqlStore(path), brake)
    store.write(batch(1, [1]))
    brake.held.acquire()
    store.ask_heads(LANE, 1, with_queue=False)
    store.ask_lanes(LANE[1], None, 1)
    store.write(batch(2, [2]))
    brake.let_go()
    store.flush()
    assert len(brake.threads) == 3
    assert [type(answer).__name__ for answer in store.take_answers()] == ["Synced", "HeadsRead", "LanesRead", "Synced"]
    store.close(clean=True)


def test_a_read_is_answered_before_its_transaction_ends(path: Path, brake: Brake) -> None:
    """Heads are there as soon as they are read, not only when the disk has what came with them."""
    store = opened(SqlStore(path), brake)
    store.write(batch(1, [1]))
    brake.held.acquire()
    store.write(batch(2, [2]))
    store.ask_heads(LANE, 9, with_queue=False)
    brake.let_go()
    store.flush()
    names = [type(answer).__name__ for answer in store.take_answers()]
    assert names == ["Synced", "HeadsRead", "Synced"]
    store.close(clean=True)


def test_what_waits_becomes_one_transaction(path: Path, brake: Brake) -> None:
    """A transaction grows while the disk is busy, up to a bound of rows."""
    store = opened(SqlStore(path), brake)
    store.write(batch(1, [1]))
    brake.held.acquire()
    half = sql_store.MAX_ROWS // 2
    for number in (2, 3, 4):
        store.write(batch(number, range((number - 1) * half, number * half)))
    brake.let_go()
    store.flush()
    assert synced(store.take_answers()) == [1, 3, 4]
    store.close(clean=True)


def test_close_writes_what_waits(path: Path, brake: Brake) -> None:
    """Batches sent before the close are in the file after it."""
    store = opened(SqlStore(path), brake)
    for ordinal in range(1, 100):
        store.write(batch(ordinal, [ordinal]))
    brake.let_go()
    store.close(clean=True)
    again, opening = reopened(path)
    again.close(clean=True)
    assert opening.counters.queued == 99


def test_close_leaves_no_thread_and_no_lock(path: Path) -> None:
    """The file can be opened by anybody afterwards."""
    before = store_threads()
    store = opened(SqlStore(path))
    assert len(store_threads()) == len(before) + 1
    assert all(alive.daemon for alive in store_threads())
    store.close(clean=True)
    store.close(clean=True)
    assert store_threads() == before
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT count(*) FROM url").fetchone() == (0,)
    other.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.write(batch(1)),
        lambda store: store.ask_heads(LANE, 1, with_queue=False),
        lambda store: store.ask_lanes(1, None, 1),
        lambda store: store.ask_gate(1, GateKey("a.test"), 1),
        lambda store: store.ask_gates(NOW_S, 1, 1),
        lambda store: store.ask_retries(None, 1),
        lambda store: store.flush(),
        lambda store: store.note({"a": "b"}),
        lambda store: store.look_up(b"u"),
        lambda store: store.ended([b"u"]),
        lambda store: store.queue(1),
        lambda store: store.queues(None, None, 1),
        lambda store: store.queues(None, None, 1, longest_first=True),
        lambda store: store.lanes(1, None, 1),
        lambda store: store.gate(1),
        lambda store: store.queued(None, 1),
        lambda store: store.ended_after(0, 1),
        lambda store: store.tally(),
        lambda store: store.counters(),
        lambda store: next(store.keys(1)),
    ],
)
def test_a_closed_store_takes_nothing(path: Path, call: Callable[[SqlStore], object]) -> None:
    """Words that nobody will hear are refused, before the opening and after the end; between them they are heard."""
    store = SqlStore(path)
    with pytest.raises(StoreUnavailable, match="not open"):
        call(store)
    opened(store)
    store.write(batch(1, [1]))
    call(store)
    store.close(clean=True)
    with pytest.raises(StoreUnavailable, match="not open"):
        call(store)


def test_a_host_that_cannot_be_woken_is_a_failure(path: Path) -> None:
    """An `on_change` that raises ends the store with its error; nobody waits for ever and no thread stays."""

    def fails() -> None:
        raise RuntimeError("the loop is closed")

    store = opened(SqlStore(path), fails)
    store.write(batch(1, [1]))
    with pytest.raises(StoreUnavailable, match="the loop is closed"):
        store.flush()
    with pytest.raises(StoreUnavailable, match="the loop is closed"):
        store.close(clean=True)
    assert not store_threads()


# What is refused


def test_another_identity_is_refused_and_nothing_changes(target: Path | str) -> None:
    """The error names the place and the difference; the store can be opened as before, and was not made unclean."""
    opened(SqlStore(target)).close(clean=True)
    with pytest.raises(FormatMismatch, match=r"frontier.db: |/anabranch_.*: ") as raised:
        SqlStore(target).open(IDENTITY | {"policy": "host"}, NOW_S, lambda: None)
    assert "policy is bkdr:997 in the job, host in the order" in str(raised.value)
    again, opening = reopened(target)
    again.close(clean=True)
    assert opening.clean


# A disk that fills up


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at once: no failed work is tried again."""
    monkeypatch.setattr(Patience, "wait", lambda _: False)


def full_store(path: Path) -> tuple[SqlStore, int]:
    """A store whose file may not grow, filled until it failed; and how many batches were acknowledged."""
    store = opened(SqlStore(path, max_pages=60))
    acknowledged = 0
    for number in range(1, 1000):
        store.write(batch(number, range(number * 20, number * 20 + 20)))
        try:
            store.flush()
        except StoreFull:
            return store, acknowledged
        acknowledged += len(synced(store.take_answers()))
    raise AssertionError("the file grew beyond its bound")


@pytest.mark.usefixtures("no_waits")
def test_a_full_disk_is_told_once_and_loses_nothing(path: Path) -> None:
    """All that was acknowledged is there after reopening, nothing of the batch that failed, and it is not clean."""
    store, acknowledged = full_store(path)
    store.write(batch(10_000, [1_000_000]))
    store.ask_heads(LANE, 1, with_queue=False)
    with pytest.raises(StoreFull, match=f"{path}: the disk"):
        store.look_up(b"u")
    troubled, failed = store.take_answers()
    assert isinstance(troubled, Troubled)
    assert isinstance(failed, StoreFailed)
    assert isinstance(failed.error, StoreFull)
    with pytest.raises(StoreFull):
        store.close(clean=True)
    again, opening = reopened(path)
    assert not opening.clean
    assert again.counters().queued == acknowledged * 20
    again.close(clean=False)


@pytest.mark.usefixtures("no_waits")
def test_a_failed_store_can_be_let_go_quietly(path: Path) -> None:
    """Whoever knows of the failure and does not ask for a clean end gets no second error."""
    store, _ = full_store(path)
    store.close(clean=False)
    assert not store_threads()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB. Needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "none", folder], check=False).returncode:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_that_gets_room_is_no_failure(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction that did not fit is written whole when there is room again; nothing is told but that it is durable."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 1_000_000)
    waits: list[int] = []

    def make_room(_: Patience) -> bool:
        waits.append(len(waits))
        if len(waits) == 3:
            ballast.unlink()
        return len(waits) <= 3

    monkeypatch.setattr(Patience, "wait", make_room)
    store = opened(SqlStore(small_disk / "frontier.db"))
    numbers: list[int] = []
    while not waits:
        number = len(numbers) + 1
        store.write(batch(number, range(number * 500, number * 500 + 500)))
        store.ask_heads(LANE, 1, with_queue=False)
        store.flush()
        answers = store.take_answers()
        assert not failures(answers)
        assert len([answer for answer in answers if isinstance(answer, HeadsRead)]) == 1
        numbers += synced(answers)
    assert numbers == list(range(1, len(numbers) + 1))
    assert store.counters().queued == len(numbers) * 500
    assert len(waits) == 3
    store.close(clean=True)


#: Longer than any test: what comes before was wanted.
LONG_S = 600.0


class Taker:
    """A thread that takes groups, and a test that waits for them."""

    def __init__(self, fifo: Fifo) -> None:
        self._fifo = fifo
        self._groups: SimpleQueue[list[Item]] = SimpleQueue()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def next(self) -> list[Item]:
        return self._groups.get(timeout=HANG_S)

    def end(self) -> None:
        self._fifo.close()
        self._thread.join(timeout=HANG_S)
        assert not self._thread.is_alive()

    def _take(self) -> None:
        for group in self._fifo.groups():
            self._groups.put(group)


def batch_of(number: int, rows: int = 1) -> Batch:
    made = Batch(number)
    made.new = [row_of(ordinal) for ordinal in range(rows)]
    return made


def handed_out(fifo: Fifo) -> list[list[Item]]:
    """All that is in it, by groups."""
    fifo.close()
    return list(fifo.groups())


def test_all_that_waits_becomes_one_group() -> None:
    """In its order, whatever it is."""
    fifo = Fifo()
    items: list[Item] = [batch_of(1), Question(lambda _: None), batch_of(2)]
    assert [fifo.append(item) for item in items] == [True] * 3
    assert handed_out(fifo) == [items]


def test_a_group_has_so_many_rows_and_no_more() -> None:
    """A batch that would make it larger opens the next one; one that is larger alone stands alone."""
    fifo = Fifo()
    small, fits, over, huge, last = (
        batch_of(1, 1), batch_of(2, MAX_ROWS - 1), batch_of(3, 1), batch_of(4, MAX_ROWS + 1), batch_of(5, 1)
    )  # fmt: skip
    for item in (small, fits, over, huge, last):
        fifo.append(item)
    assert handed_out(fifo) == [[small, fits], [over], [huge], [last]]


def test_a_closed_one_takes_nothing_and_hands_out_the_rest() -> None:
    """Items that came before the close are still handed out."""
    fifo = Fifo()
    fifo.append(batch_of(1))
    fifo.close()
    assert not fifo.append(batch_of(2))
    assert [[item.number for item in group if isinstance(item, Batch)] for group in fifo.groups()] == [[1]]


def test_the_taker_waits_for_something_or_for_the_end() -> None:
    """An item wakes it, and so does the end."""
    fifo = Fifo()
    groups: list[list[Item]] = []
    taken = threading.Semaphore(0)

    def take() -> None:
        for group in fifo.groups():
            groups.append(group)
            taken.release()

    taker = threading.Thread(target=take)
    taker.start()
    first = batch_of(1)
    fifo.append(first)
    assert taken.acquire(timeout=HANG_S)
    fifo.close()
    taker.join(timeout=HANG_S)
    assert not taker.is_alive()
    assert groups == [[first]]


def test_what_nobody_waits_for_is_gathered() -> None:
    """A transaction lingers for more, so that many pages share a commit; then it is begun though nobody hurries."""
    fifo = Fifo(linger_s=0.001)
    taker = Taker(fifo)
    first = batch_of(1)
    fifo.append(first)
    assert taker.next() == [first]
    taker.end()


def test_who_hurries_gets_what_was_gathered() -> None:
    """All of it in one group, and what comes later is gathered anew."""
    fifo = Fifo(LONG_S)
    taker = Taker(fifo)
    items: list[Item] = [batch_of(1), batch_of(2)]
    for item in items:
        fifo.append(item)
    fifo.hurry()
    assert taker.next() == items
    last = batch_of(3)
    fifo.append(last)
    assert taker._groups.empty()
    taker.end()
    assert taker.next() == [last]


def test_a_hurry_for_nothing_does_not_last() -> None:
    """When nothing waits, nothing is wanted: the next batch is gathered as any other."""
    fifo = Fifo(LONG_S)
    fifo.hurry()
    assert not fifo._is_hurried
    fifo.append(batch_of(1))
    assert not fifo._is_hurried


def test_who_waits_for_an_answer_hurries_by_that() -> None:
    """A flush, or an operator's question."""
    fifo = Fifo(LONG_S)
    taker = Taker(fifo)
    items: list[Item] = [batch_of(1), Question(lambda _: None)]
    for item in items:
        fifo.append(item)
    assert [*taker.next(), *([] if taker._groups.empty() else taker.next())] == items
    taker.end()


T = TypeVar("T")


class Waits(threading.Condition):
    """Lets no time pass; keeps how long was waited for, unless what was waited for was so already."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        found = predicate()
        if not found:
            self.waited.append(timeout)
        return found


def waited(hurry: Callable[[Fifo], object], *, took_s: float) -> list[float | None]:
    """How long a second group waits that is hurried so, after one that took so long."""
    now_s = [0.0]
    fifo = Fifo(0.05, clock=lambda: now_s[0])
    fifo._changed = waits = Waits()
    waits.notify = lambda n=1: None  # type: ignore[method-assign] # of another lock than the one that is held
    groups = fifo.groups()
    fifo.append(batch_of(1))
    next(groups)
    now_s[0] += took_s
    fifo.append(batch_of(2))
    hurry(fifo)
    waits.waited.clear()
    next(groups)
    return waits.waited


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.001, 0.002), (0.02, 0.04), (1.0, 0.05)])
def test_who_hurries_waits_as_the_last_transaction_was_dear(took_s: float, rest_s: float) -> None:
    """Twice as long as that took, and no longer than one that nobody hurries."""
    assert waited(Fifo.hurry, took_s=took_s) == [pytest.approx(rest_s)]


def test_an_answer_that_is_waited_for_comes_at_once() -> None:
    """However long the last transaction took."""
    assert waited(lambda fifo: fifo.append(Question(lambda _: None)), took_s=1.0) == []


def test_the_end_waits_for_no_more() -> None:
    """Items gathered so far are handed out at once."""
    fifo = Fifo(LONG_S)
    taker = Taker(fifo)
    first = batch_of(1)
    fifo.append(first)
    taker.end()
    assert taker.next() == [first]


def test_of_more_than_a_group_the_rest_is_wanted_too() -> None:
    """Somebody waits for all of it."""
    fifo = Fifo(LONG_S)
    taker = Taker(fifo)
    large, small = batch_of(1, MAX_ROWS), batch_of(2)
    fifo.append(large)
    fifo.append(small)
    fifo.hurry()
    assert [taker.next(), taker.next()] == [[large], [small]]
    taker.end()
