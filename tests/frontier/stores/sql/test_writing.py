"""Rules of writing the batches of one transaction, tested on the tables themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from anabranch.frontier.errors import InvariantBroken, StoreInUse
from anabranch.frontier.records import QueueKey, Row, Turn
from anabranch.frontier.stores.contract import Counters, LeftGate, Moved, QueueRow, Standing
from anabranch.frontier.stores.sql.reading import read_queue, recount, take_gate
from anabranch.frontier.stores.sql.writing import SoleOwner, TransactionWriter
from tests.frontier.stores.crawl_file import Crawl, crawl, gate_facts, queue_facts
from tests.frontier.stores.rows import A_LANE, OTHER_LANE, done, gate_key, row, waiting


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        yield made


def statements_of(store: Crawl, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that the driver is given from now on."""
    said: list[str] = []
    driver = store.connection.connection.driver_connection
    driver.set_trace_callback(said.append)
    return said


def test_what_comes_and_goes_in_one_transaction_never_touches_url(
    store: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is new and ended before anything is read goes straight to `done`."""
    said = statements_of(store, monkeypatch)
    store.write(store.batch([row(1)]), store.batch(ended=[done(row(1))]))
    assert not [text for text in said if "INTO url" in text or "FROM url" in text]
    assert store.values("SELECT ordinal FROM done") == [(1,)]
    assert store.values("SELECT count FROM lane") == [(0,)]


def test_many_rows_are_few_statements(store: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver lets go of Python's lock at each statement: 2,047 rows are fifteen inserts (256 at most)."""
    said = statements_of(store, monkeypatch)
    store.add(*[row(ordinal) for ordinal in range(1, 2048)])
    assert len([text for text in said if text.startswith("INSERT INTO url")]) == 7 + 8
    assert store.values("SELECT count(*) FROM url") == [(2047,)]


def test_a_row_that_is_not_there_cannot_end(store: Crawl) -> None:
    """The counts would be wrong from then on."""
    store.add(row(1))
    with pytest.raises(InvariantBroken, match="1 rows that end or move are not in the store"):
        store.write(store.batch(ended=[done(row(2))]))


def test_a_row_that_stands_elsewhere_cannot_end(store: Crawl) -> None:
    """Also before it was written."""
    with pytest.raises(InvariantBroken, match="row 1 ends or moves at"):
        store.write(store.batch([row(1)]), store.batch(ended=[done(row(1, precedence=5))]))


def test_a_row_that_died_cannot_end(store: Crawl) -> None:
    """It was never queued: its key stands for another row."""
    store.add(row(1, "http://a.test/"))
    with pytest.raises(InvariantBroken, match="row 2 ends or moves, and its key was known"):
        store.write(
            store.batch([row(2, "http://a.test/")], ended=()), store.batch(ended=[done(row(2, "http://a.test/"))])
        )


def test_another_epoch_stops_the_writer(store: Crawl) -> None:
    """Whoever was opened over is told so, and nothing of his is kept."""
    store.values("SELECT 1")
    with store.connection.begin():
        store.connection.exec_driver_sql("UPDATE crawl SET value = '9' WHERE name = 'epoch'")
    with pytest.raises(StoreInUse, match="another owner has taken over"):
        store.add(row(1))
    assert store.values("SELECT count(*) FROM url") == [(0,)]


def test_a_flush_without_news_writes_nothing(store: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read that needs counts flushes: most of them find nothing to do."""
    store.add(row(1))
    said = statements_of(store, monkeypatch)
    with store.connection.begin():
        TransactionWriter(store.connection, store.totals, SoleOwner(store.opening.epoch)).flush()
    assert said == ["BEGIN IMMEDIATE", "COMMIT"]


def test_totals_of_a_transaction_that_failed_are_not_taken(store: Crawl) -> None:
    """`totals` are those of the last flush of all."""
    writing = TransactionWriter(store.connection, store.totals, SoleOwner(store.opening.epoch))
    with store.connection.begin():
        writing.add(store.batch([row(1)]))
        writing._flush_all()
        assert writing.totals == Counters()
        writing.flush()
    assert writing.totals == Counters(last_ordinal=1, queued=1, queues=1)


def test_a_standing_counts_what_was_written_before_it(store: Crawl) -> None:
    """Rows of the same batch, and of batches of the same transaction, are in the queue that retires."""
    first, second = store.batch([row(1)]), store.batch([row(2)])
    second.standings = [(A_LANE[0], Standing.RETIRED)]
    third = store.batch([row(3)], ended=[done(row(1))])
    assert store.write(first, second, third).totals.retired == 2
    with store.connection.begin():
        recount(store.connection)


LANES = (A_LANE, OTHER_LANE, (A_LANE[0], OTHER_LANE[1]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_batches_leave_counts_that_agree_with_the_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """However batches fall into transactions: the recount finds no difference."""
    with crawl(tmp_path_factory.mktemp("crawl") / "frontier.db") as store:
        ordinal, alive = 0, dict[int, Row]()
        for _ in range(data.draw(st.integers(1, 4))):
            batches, fresh = [], dict[int, Row]()
            for _ in range(data.draw(st.integers(1, 4))):
                chosen = data.draw(st.lists(st.sampled_from(sorted(alive)), max_size=3, unique=True)) if alive else []
                old = [alive.pop(one) for one in chosen]
                ended, moved = [done(one) for one in old[1:]], [Moved(one, waiting(one, 5.0)) for one in old[:1]]
                new = []
                for url in data.draw(st.lists(st.integers(1, 9), max_size=4)):
                    ordinal += 1
                    new.append(row(ordinal, f"http://a.test/{url}", lane=data.draw(st.sampled_from(LANES))))
                batch = store.batch(new, ended=ended, moved=moved)
                batch.forced = {one.ordinal for one in new if data.draw(st.booleans())}
                batch.standings = data.draw(
                    st.lists(
                        st.tuples(st.sampled_from([one[0] for one in LANES]), st.sampled_from(Standing)), max_size=1
                    )
                )
                batch.removed = [LANES[0]]
                batches.append(batch)
                alive |= {one.new.ordinal: one.new for one in moved}
                fresh |= {one.ordinal: one for one in new}
            died = {one.ordinal for one in store.write(*batches).duplicates}
            alive |= {number: one for number, one in fresh.items() if number not in died}
            with store.connection.begin():
                assert recount(store.connection) == store.totals


def queue(store: Crawl, id_: int) -> QueueRow | None:
    with store.connection.begin():
        return read_queue(store.connection, id_)


def test_the_first_name_of_a_queue_stays(store: Crawl) -> None:
    """In one transaction and in later ones; it counts once."""
    batches = [store.batch() for _ in range(3)]
    for batch, precedence in zip(batches, (3, 4, 5), strict=True):
        batch.queue_names = [(7, QueueKey("seven"), precedence)]
    store.write(*batches[:2])
    store.write(batches[2])
    assert queue(store, 7) == QueueRow(7, QueueKey("seven"), Standing.OPEN, 3, 0, None, 0, 0)
    assert store.totals.queues == 1


def test_a_queue_that_changes_keeps_its_standing_and_its_key(store: Crawl) -> None:
    """Standings are said apart; whoever sends the row of a queue may not know the newest."""
    batch = store.batch()
    batch.queue_names, batch.standings = [(7, QueueKey("seven"), 3)], [(7, Standing.RETIRED)]
    store.write(batch)
    batch = store.batch()
    batch.queues = [
        queue_facts(7, spent=9, budget=None),
        queue_facts(7, precedence=2, spent=10, budget=-1, successes=4, errors=5),
    ]
    store.write(batch)
    assert queue(store, 7) == QueueRow(7, QueueKey("seven"), Standing.RETIRED, 2, 10, -1, 4, 5)


def test_a_queue_that_was_never_named_is_made_and_counted(store: Crawl) -> None:
    """Beside known ones, which stay as they were just written."""
    first, second = store.batch(), store.batch()
    first.queues = [queue_facts(7, spent=1)]
    second.queues = [queue_facts(7, spent=2), queue_facts(8, spent=3)]
    store.write(first)
    store.write(second)
    assert [queue(store, 7), queue(store, 8)] == [queue_facts(7, spent=2), queue_facts(8, spent=3)]
    assert store.totals.queues == 2


def test_facts_leave_the_window_as_it_is(store: Crawl) -> None:
    """A held gate stays held when its times change, and one that is not keeps its turn."""
    first, second = store.batch(), store.batch()
    first.gate_names, first.woken = [(1, gate_key(1)), (2, gate_key(2))], [(2, Turn(5))]
    store.write(first)
    with store.connection.begin():
        take_gate(store.connection, 1, gate_key(1), 1)
    second.gates = [gate_facts(1, rests_until_s=7.25), gate_facts(2, slots=4), gate_facts(3)]
    store.write(second)
    assert store.values("SELECT id, held, turn, rests_until_s, slots FROM gate ORDER BY id") == [
        (1, 1, None, 7.25, None), (2, 0, 5, 0.0, 4), (3, 0, None, 0.0, None)
    ]  # fmt: skip


STEPS = st.lists(
    st.one_of(
        st.integers(1, 9),  # woken
        st.tuples(st.none() | st.integers(1, 9), st.booleans()),  # left: (turn, closed)
        st.just("held"),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, cuts=st.sets(st.integers(0, 8)))
@example(steps=[1, 2], cuts=set())
@example(steps=["held", 1], cuts=set())
def test_a_window_comes_to_the_same_whatever_the_transactions(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object], cuts: set[int]
) -> None:
    """The smaller turn counts, a held gate is not woken, and what is left is as it was said."""
    for ends in (cuts, set(range(len(steps)))):
        with crawl(tmp_path_factory.mktemp("crawl") / "frontier.db") as store:
            named = store.batch()
            named.gate_names = [(1, gate_key(1))]
            store.write(named)
            for start, end in pairwise(
                sorted({0, len(steps), *(end for end in ends if end < len(steps))} | _reads(steps))
            ):
                _do(store, steps[start:end])
            assert store.values("SELECT held, turn, wakes_s FROM gate") == [_expected(steps)]


def _reads(steps: list[object]) -> set[int]:
    """A gate is taken by a read, which sees what was said before it."""
    return {at + more for at, step in enumerate(steps) if step == "held" for more in (0, 1)}


def _do(store: Crawl, steps: list[object]) -> None:
    batches = []
    for step in steps:
        batch = store.batch()
        if isinstance(step, int):
            batch.woken = [(1, Turn(step))]
        elif isinstance(step, tuple):
            turn, is_closed = step
            batch.left = [LeftGate(1, turn, 50.0 if is_closed and turn else None)]
        else:
            with store.connection.begin():
                take_gate(store.connection, 1, gate_key(1), 1)
        batches.append(batch)
    store.write(*batches)


def _expected(steps: list[object]) -> tuple[int, int | None, float | None]:
    held, turn, wakes_s = 0, None, None
    for step in steps:
        if isinstance(step, tuple):
            held, turn, wakes_s = 0, step[0], 50.0 if step[1] and step[0] else None
        elif isinstance(step, int):
            turn = turn if held else min(step, turn or step)
        else:
            held, turn, wakes_s = 1, None, None
    return held, turn, wakes_s
