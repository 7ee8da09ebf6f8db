"""Transactions that fail: tried again, done once, told in full; with SQLite and with PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.engine.default import DefaultDialect

from anabranch.frontier.errors import StoreFull, StoreUnavailable
from anabranch.frontier.records import GateKey, name_id, turn_of
from anabranch.frontier.seen import ExactFilter
from anabranch.frontier.stores.contract import Announced, GatesRead, HeadsRead, Synced, Troubled
from anabranch.frontier.stores.sql import work
from anabranch.frontier.stores.sql.reading import Question
from anabranch.frontier.stores.sql.store import SqlStore
from anabranch.frontier.stores.sql.work import Patience
from tests.frontier.stores.batches import IDENTITY, LANE, NOW_S, batch, failures, opened, row, synced
from tests.patience import HANG_S
from tests.postgres_server import server


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    """The place of the store: a file of SQLite, or a database of PostgreSQL."""
    if request.param == "sqlite":
        yield tmp_path / "frontier.db"
    else:
        with server() as url:
            yield url


class Commits:
    """Stands before every COMMIT: holds it back, lets it fail, or lets its answer get lost."""

    def __init__(self) -> None:
        self.faults: list[str | None] = []  #: of the next commits: "lost" (nothing happens) or "unheard" (it happens)
        self.always: str | None = None  #: of all
        self._commit = DefaultDialect.do_commit

    def __call__(self, dialect: DefaultDialect, driver: Any) -> None:
        fault = self.always or (self.faults.pop(0) if self.faults else None)
        if fault != "lost":
            self._commit(dialect, driver)
        if fault is not None:
            _fail(driver)


def _fail(driver: Any) -> None:
    """Raise the driver's error for a disk, or a server, that is gone."""
    if isinstance(driver.driver_connection, sqlite3.Connection):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error
    driver.driver_connection.close()
    driver.driver_connection.commit()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    made = Commits()
    # A plain function, so that it is called as a method.
    monkeypatch.setattr(DefaultDialect, "do_commit", lambda dialect, driver: made(dialect, driver))  # noqa: PLW0108
    return made


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Answers for the waits before each next try, in order; no further try once they are used up.

    Answers that are left belong to waits that never happened.
    """
    answers: list[bool] = []
    monkeypatch.setattr(Patience, "wait", lambda _: answers.pop(0) if answers else False)
    return answers


@pytest.fixture
def store(target: Path | str) -> Iterator[SqlStore]:
    made = opened(SqlStore(target))
    yield made
    made.close(clean=False)


def together(store: SqlStore, say: Callable[[], object]) -> None:
    """Everything that `say` says becomes one transaction; return when it is done, well or not."""
    held, go = threading.Event(), threading.Event()

    def hold(_: Connection) -> None:
        held.set()
        go.wait()

    brake = Question(hold)
    store._append(brake)
    held.wait()
    say()
    end = Question(lambda _: None)
    store._append(end)
    go.set()
    brake.answer.result()
    end.answer.exception()


FAULTS = ["lost", "unheard"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_commit_is_done_once(store: SqlStore, commits: Commits, waits: list[bool], fault: str) -> None:
    """Also if it took place and only the answer was lost: written again, its rows would be their own duplicates."""
    waits += [True] * 3
    store.write(batch(1, [1, 2]))
    store.flush()
    commits.faults += [fault, fault]
    store.write(batch(2, [3, row(4, "http://a.test/1")], ended=[2]))
    store.flush()
    store.write(batch(3, [5]))
    store.flush()
    answers = [answer for answer in store.take_answers() if isinstance(answer, Synced)]
    assert synced(answers) == [1, 2, 3]
    assert [row.ordinal for answer in answers for row in answer.duplicates] == [4]
    assert store.counters()[:3] == (5, 3, 1)
    assert waits == [True]


def test_a_number_of_an_earlier_owner_is_not_taken_for_ours(
    target: Path | str, commits: Commits, waits: list[bool]
) -> None:
    """Batches and transactions are counted anew with each opening."""
    for first in (1, 2):
        store = opened(SqlStore(target))
        commits.faults += ["lost"] * (first - 1)
        waits += [True] * (first - 1)
        store.write(batch(1, [first]))
        store.flush()
        assert store.counters().queued == first
        store.close(clean=True)
    assert waits == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_read_is_answered_once_however_often_it_is_done(
    store: SqlStore, commits: Commits, waits: list[bool], fault: str
) -> None:
    """Its answer was out before the commit failed."""

    def say() -> None:
        store.write(batch(1, [1]))
        store.ask_heads(LANE, 9, with_queue=False)
        store.write(batch(2, [2]))
        store.ask_heads(LANE, 9, with_queue=False)
        commits.faults[:] = [None, fault]

    waits.append(True)
    together(store, say)
    answers = store.take_answers()
    assert [[head.row.ordinal for head in a.heads] for a in answers if isinstance(a, HeadsRead)] == [[1, 2], [1, 2]]
    assert synced(answers) == [2]
    assert waits == []


def test_a_read_that_fails_is_answered_by_the_next_try(store: SqlStore, waits: list[bool]) -> None:
    """Answers before the failure are not repeated, questions after it are not forgotten."""
    asked: list[int] = []

    def fail_once(_: Connection) -> None:
        asked.append(1)
        if len(asked) == 1:
            _fail(_.connection)

    def say() -> None:
        store.write(batch(1, [1]))
        store.ask_heads(LANE, 1, with_queue=False)
        store._append(Question(fail_once))
        store.ask_heads(LANE, 2, with_queue=False)

    waits.append(True)
    together(store, say)
    reads = [answer for answer in store.take_answers() if isinstance(answer, HeadsRead)]
    assert len(asked) == 2
    assert [len(answer.heads) for answer in reads] == [1, 1]
    assert waits == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("with_batch", [True, False])
def test_gates_are_taken_once(
    store: SqlStore, commits: Commits, waits: list[bool], fault: str, *, with_batch: bool
) -> None:
    """A gate that was taken is taken still, and no other is taken in its place, though nobody asked for it."""
    gates = [name_id(f"{number}.test") for number in range(4)]
    turns = [turn_of(3, number) for number in range(1, 5)]
    woken = batch(1, [row(number)._replace(gate=gate) for number, gate in enumerate(gates, start=1)])
    woken.gate_names = [(gate, GateKey(f"{number}.test")) for number, gate in enumerate(gates)]
    woken.announced = [Announced(LANE[0], gate, turn) for gate, turn in zip(gates, turns, strict=True)]
    woken.woken = list(zip(gates, turns, strict=True))
    store.write(woken)
    store.flush()

    def say() -> None:
        store.ask_gates(NOW_S, 2, 16)
        if with_batch:
            store.write(batch(2, [9]))
        commits.faults[:] = [None, fault]

    waits.append(True)
    together(store, say)
    store.ask_gates(NOW_S, 9, 16)
    store.flush()
    reads = [answer for answer in store.take_answers() if isinstance(answer, GatesRead)]
    assert [[gate.row.id for gate in answer.gates] for answer in reads] == [gates[:2], gates[2:]]
    assert waits == []


def test_when_the_time_is_up_the_store_has_failed(
    target: Path | str, store: SqlStore, commits: Commits, waits: list[bool]
) -> None:
    """It is told once, what comes later is refused, the end is not clean, and what was durable before is there."""
    store.write(batch(1, [1]))
    store.flush()
    waits += [True] * 4
    commits.always = "lost"
    store.write(batch(2, [2]))
    with pytest.raises(StoreUnavailable):
        store.flush()
    commits.always = None
    with pytest.raises(StoreUnavailable):
        store.counters()
    assert waits == []
    assert len(failures(store.take_answers())) == 1
    with pytest.raises(StoreUnavailable):
        store.close(clean=True)
    again = SqlStore(target)
    opening = again.open(IDENTITY, NOW_S, lambda: None)
    again.close(clean=False)
    assert not opening.clean
    assert opening.counters.queued == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE crawl SET value = '99' WHERE name = 'epoch'", "another owner has taken over"),
        ("DELETE FROM url", "not in the store"),
    ],
)
def test_what_no_second_try_can_cure_fails_at_once(store: SqlStore, waits: list[bool], damage: str, words: str) -> None:
    """Another owner's epoch, and a defect: neither goes away by waiting."""
    waits += [True]
    store.write(batch(1, [1, 2]))
    store.flush()
    store._wait_for(lambda connection: connection.exec_driver_sql(damage) and None)
    store.write(batch(2, [3], ended=[1]))
    with pytest.raises(StoreUnavailable, match=f"(frontier.db|/anabranch_.*): .*{words}"):
        store.flush()
    assert waits == [True]


def test_the_end_waits_for_no_wait(target: Path | str, commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` makes a transaction that waits for its next try go at once, and what it says is durable."""
    hurry = Patience.hurry

    def hurry_when_cured(waiting: Patience) -> None:
        commits.always = None
        hurry(waiting)

    monkeypatch.setattr(work, "FIRST_WAIT_S", 3600.0)
    monkeypatch.setattr(work, "LONGEST_WAIT_S", 3600.0)
    monkeypatch.setattr(Patience, "hurry", hurry_when_cured)
    store = opened(SqlStore(target, retry_s=7200.0))
    commits.always = "lost"
    store.write(batch(1, [1]))
    store.close(clean=True)
    again = SqlStore(target)
    opening = again.open(IDENTITY, NOW_S, lambda: None)
    again.close(clean=False)
    assert opening.clean
    assert opening.counters.queued == 1


def test_the_end_of_a_store_that_does_not_recover_comes_with_its_time(target: Path | str, commits: Commits) -> None:
    """Nobody waits for ever."""
    store = opened(SqlStore(target, retry_s=0.2))
    commits.always = "lost"
    store.write(batch(1, [1]))
    with pytest.raises(StoreUnavailable):
        store.close(clean=True)


# A filter that blocks


class Ledger(ExactFilter):
    """An exact filter that writes down what it is asked, and fails as often as it is told."""

    def __init__(self, *known: bytes) -> None:
        super().__init__()
        self.said: list[tuple[str, list[bytes]]] = []
        self.faults: dict[str, int] = {}
        super().mark(known)

    def _say(self, verb: str, keys: Sequence[bytes]) -> None:
        self.said.append((verb, list(keys)))
        if self.faults.get(verb, 0) > 0:
            self.faults[verb] -= 1
            raise OSError(28, "No space left on device")

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        self._say("unseen", keys)
        return super().unseen(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        self._say("mark", keys)
        super().mark(keys)


URL_1, URL_2, URL_3 = (f"http://a.test/{number}".encode() for number in (1, 2, 3))


def test_rows_that_the_filter_knows_die(target: Path | str) -> None:
    """Like duplicates of the store; forced ones are not asked about. What is written is marked."""
    seen = Ledger(URL_1, URL_2)
    store = opened(SqlStore(target, seen=seen))
    said = batch(1, [1, 2, 3])
    said.forced = {2}
    store.write(said)
    store.flush()
    (answer,) = store.take_answers()
    assert isinstance(answer, Synced)
    assert answer.duplicates == [row(1)]
    assert store.counters().queued == 2
    assert seen.said == [("unseen", [URL_1, URL_3]), ("mark", [URL_2, URL_3])]
    store.close(clean=True)


def test_a_group_is_one_question_and_asked_again_whole_if_the_filter_fails(
    target: Path | str, waits: list[bool]
) -> None:
    """However many batches wait, a filter in a network is asked once; rows that it knows die, and are told."""
    seen = Ledger(URL_1)
    waits += [True]
    store = opened(SqlStore(target, seen=seen))

    def say() -> None:
        store.write(batch(1, [1]))
        seen.faults = {"unseen": 1}
        store.write(batch(2, [2]))

    together(store, say)
    store.flush()
    assert seen.said == [("unseen", [URL_1, URL_2])] * 2 + [("mark", [URL_2])]
    answers = [answer for answer in store.take_answers() if isinstance(answer, Synced)]
    assert [duplicate for answer in answers for duplicate in answer.duplicates] == [row(1)]
    assert store.counters().queued == 1
    store.close(clean=True)


def test_a_key_is_marked_only_after_its_row_is_durable(target: Path | str, commits: Commits, waits: list[bool]) -> None:
    """The filter never knows more than the store; it is asked once, however often the transaction is tried."""
    seen = Ledger()
    store = opened(SqlStore(target, seen=seen))
    commits.faults += ["lost", None, "lost"]  # the second one ends the question whether the first took place
    waits += [True]
    store.write(batch(1, [1]))
    with pytest.raises(StoreUnavailable):
        store.flush()
    assert commits.faults == []
    assert [verb for verb, _ in seen.said] == ["unseen"]
    store.close(clean=False)


def test_a_filter_that_fails_is_tried_again(target: Path | str, waits: list[bool]) -> None:
    """Before the rows are written and after; they are written once and told once, and so are the trouble and its end."""
    seen = Ledger()
    seen.faults = {"unseen": 2, "mark": 2}
    waits += [True] * 4
    store = opened(SqlStore(target, seen=seen))
    store.write(batch(1, [1]))
    store.flush()
    troubled, over, synced = store.take_answers()
    assert isinstance(troubled, Troubled)
    assert troubled.what.startswith("the filter: ")
    assert (synced, over) == (Synced(1, [], 0, 0, 1, 0), Troubled("", 30.0))
    assert store.counters().queued == 1
    assert [verb for verb, _ in seen.said] == ["unseen"] * 3 + ["mark"] * 3
    store.close(clean=True)


def test_a_filter_that_stays_broken_is_the_stores_failure(target: Path | str, waits: list[bool]) -> None:
    """The line says that it is the filter."""
    seen = Ledger()
    seen.faults = {"unseen": 9}
    store = opened(SqlStore(target, seen=seen))
    store.write(batch(1, [1]))
    with pytest.raises(StoreFull, match=r"the filter .* No space left"):
        store.flush()
    store.close(clean=False)


class FakeTime:
    """A clock, and a condition whose waits only move it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.waits: list[float] = []

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        if predicate():
            self.waits.append(0.0)
            return True
        self.waits.append(round(timeout, 6))
        self.now_s += timeout
        return False

    def patience(self, retry_s: float) -> Patience:
        made = Patience(retry_s, clock=lambda: self.now_s)
        made._changed.wait_for = self.wait_for  # type: ignore[assignment]
        return made


@pytest.fixture
def fake() -> FakeTime:
    return FakeTime()


def tries(patience: Patience) -> int:
    """How often it waits before it gives up."""
    count = 0
    while patience.wait():
        count += 1
    return count


def test_waits_double_up_to_the_longest_and_end_with_the_time(fake: FakeTime) -> None:
    """The last one is cut, so that the last try comes when the time ends."""
    tries(fake.patience(30.0))
    assert fake.waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0, 3.7]
    assert fake.now_s == pytest.approx(1030.0)


def test_no_time_means_no_second_try(fake: FakeTime) -> None:
    """Nothing is waited for."""
    assert tries(fake.patience(0.0)) == 0
    assert fake.waits == []


def test_after_a_success_all_the_time_is_there_again(fake: FakeTime) -> None:
    """Failures of an hour ago do not count."""
    patience = fake.patience(0.3)
    assert tries(patience) == 2
    patience.renew()
    assert tries(patience) == 2


def test_who_is_hurried_tries_at_once_and_ends_no_later(fake: FakeTime) -> None:
    """One wait is cut, the next are short again; the time is not longer for it."""
    patience = fake.patience(1.0)
    patience.wait()
    patience.wait()
    patience.hurry()
    tries(patience)
    assert fake.waits == [0.1, 0.2, 0.0, 0.1, 0.2, 0.4]
    assert fake.now_s == pytest.approx(1001.0)


def test_another_thread_can_hurry_a_wait() -> None:
    """It waits on a condition, not for a time."""
    patience = Patience(3600.0)
    for _ in range(15):  # without a hurry these waits take a minute
        patience.hurry()
        patience.wait()
    waiter = threading.Thread(target=patience.wait)
    waiter.start()
    patience.hurry()
    waiter.join(timeout=HANG_S)
    assert not waiter.is_alive()
