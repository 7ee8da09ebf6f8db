"""Questions to the tables: cost and order where the contract of the stores does not show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.records import NORMAL, Head, Row, Turn, UrlState, seen_fingerprint, turn_of
from anabranch.frontier.stores.contract import LeftGate, Moved, Standing
from anabranch.frontier.stores.sql import reading
from anabranch.frontier.stores.sql.reading import look_up, read_heads, recount, take_gate, take_gates
from tests.frontier.stores.crawl_file import Crawl, crawl
from tests.frontier.stores.rows import A_LANE, NOW_S, OTHER_LANE, done, gate_key, row, waiting


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        yield made


def said_by(store: Crawl) -> list[str]:
    said: list[str] = []
    store.connection.connection.driver_connection.set_trace_callback(said.append)  # type: ignore[union-attr]
    return said


def test_heads_are_whole_rows_with_the_page_they_were_found_on(store: Crawl) -> None:
    """Every column comes back as it was given, NUL bytes in payloads and all."""
    full = row(2, key=b"\xff\x00", hops="LLE", via=1, attempts=3, payload=b"\x00\x01")
    store.add(row(1, precedence=NORMAL + 1), full)
    store.write(store.batch(ended=[done(row(1, precedence=NORMAL + 1))]))
    with store.connection.begin():
        heads = read_heads(store.connection, A_LANE, 16).heads
    assert heads == [Head(full, "http://a.test/1")]
    assert isinstance(heads[0].row, Row)
    assert heads[0].row.dedup_key() == b"\xff\x00"


def test_a_read_of_heads_is_one_statement(store: Crawl) -> None:
    """Sixteen rows and the pages they were found on."""
    store.add(*[row(ordinal, via=ordinal) for ordinal in range(1, 40)])
    said = said_by(store)
    with store.connection.begin():
        assert len(read_heads(store.connection, A_LANE, 16).heads) == 16
    assert len(said) == 3


def test_a_url_whose_lane_is_known_is_found_without_a_scan(store: Crawl) -> None:
    """Its precedences are tried one by one, waiting rows included."""
    other = row(9, precedence=5)
    store.add(row(1), row(2), row(3, precedence=7), other)
    store.write(store.batch(moved=[Moved(row(2), waiting(row(2), NOW_S))]))
    said = said_by(store)
    with store.connection.begin():
        found = look_up(store.connection, b"http://a.test/2", A_LANE)
    assert found is not None
    assert (found.state, found.ordinal, found.queue, found.gate, found.due_s) == (UrlState.WAITING, 2, *A_LANE, NOW_S)
    assert not [text for text in said if "WHERE ordinal = 2 LIMIT" in text]


def test_a_wrong_lane_is_only_a_wrong_hint(store: Crawl) -> None:
    """Then the table is scanned."""
    store.add(row(1), row(2, lane=OTHER_LANE))
    with store.connection.begin():
        found = look_up(store.connection, b"http://a.test/2", A_LANE)
    assert found is not None
    assert (found.queue, found.gate) == OTHER_LANE


def test_a_key_without_a_row_is_damage(store: Crawl) -> None:
    """It is said, not taken for a URL that is unknown."""
    with store.connection.begin():
        statement = "INSERT INTO seen VALUES (?, 77)"
        store.connection.exec_driver_sql(statement, (seen_fingerprint(b"http://a.test/"),))
        with pytest.raises(InvariantBroken, match="seen at row 77, which is neither queued nor ended"):
            look_up(store.connection, b"http://a.test/")


def test_keys_that_fill_several_statements_are_all_looked_up(store: Crawl) -> None:
    """More keys than one statement of SQLite may take parameters."""
    rows = [row(ordinal) for ordinal in range(1, 2001)]
    store.add(*rows)
    store.write(store.batch(ended=[done(one) for one in rows]))
    keys = [one.dedup_key() for one in rows] + [b"unknown %d" % number for number in range(33_000)]
    with store.connection.begin():
        assert len(reading.look_up_ended(store.connection, keys)) == 2000


def test_gates_that_lost_their_rows_are_passed_over_once(store: Crawl) -> None:
    """A turn may be left of rows that died: such a gate leaves the line, and the next ones are taken instead."""
    batch = store.batch([row(ordinal, lane=(ordinal, ordinal)) for ordinal in (4, 5)])
    batch.gate_names += [(gate, gate_key(gate)) for gate in (1, 2, 3)]
    batch.woken = [(gate, turn_of(3, gate)) for gate in (1, 2, 3, 4, 5)]
    store.write(batch)
    with store.connection.begin():
        assert [gate.row.id for gate in take_gates(store.connection, NOW_S, 2, 9).gates] == [4, 5]
    assert store.values("SELECT id FROM gate WHERE turn IS NOT NULL") == []
    assert store.values("SELECT id FROM gate WHERE held = 1 ORDER BY id") == [(4,), (5,)]


def test_after_a_long_night_a_question_opens_only_so_many_gates(store: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others follow with the next questions: none is lost, and the time of the next tells that one is due."""
    monkeypatch.setattr(reading, "_OPENED_AT_ONCE", 2)
    batch = store.batch([row(gate, lane=(gate, gate)) for gate in range(1, 6)])
    batch.left = [LeftGate(gate, Turn(gate), NOW_S - gate) for gate in range(1, 6)]
    store.write(batch)
    taken, wakes = [], []
    for _ in range(3):
        with store.connection.begin():
            read = take_gates(store.connection, NOW_S, 2, 1)
        taken.append([gate.row.id for gate in read.gates])
        wakes.append(read.wakes_s)
    assert taken == [[4, 5], [2, 3], [1]]
    assert wakes == [NOW_S - 3, NOW_S - 1, None]


def test_a_gate_that_is_taken_is_held_from_the_commit_on(store: Crawl) -> None:
    """A transaction that fails leaves it where it was."""
    batch = store.batch([row(1)])
    batch.woken = [(A_LANE[1], turn_of(3, 1))]
    store.write(batch)
    transaction = store.connection.begin()
    take_gate(store.connection, A_LANE[1], gate_key(A_LANE[1]), 1)
    transaction.rollback()
    assert store.values("SELECT held, turn FROM gate") == [(0, turn_of(3, 1))]


def test_the_number_of_the_last_batch_is_kept(store: Crawl) -> None:
    """It is in the transaction of its batch, so it tells whether that one took place."""
    number = "SELECT value FROM crawl WHERE name = 'batch'"
    assert store.values(number) == [("0",)]
    store.write(store.batch([row(1)]), store.batch([row(2)]))
    assert store.values(number) == [("2",)]


def test_heads_that_are_read_together_are_those_read_one_by_one(store: Crawl) -> None:
    """In the order of the questions; a queue that was not asked for is not told."""
    store.add(row(1, lane=(1, 1)), row(2, lane=(2, 1)), row(3, lane=(2, 1)))
    asked = [((2, 1), 1, True), ((1, 1), 5, False), ((3, 1), 5, True)]
    with store.connection.begin():
        alone = [reading.read_heads(store.connection, *question) for question in asked]
        assert reading.read_all(store.connection, reading.read_heads, asked) == alone
    assert [len(read.heads) for read in alone] == [1, 1, 0]
    assert [read.queue is None for read in alone] == [False, True, True]


def test_heads_of_many_lanes_are_few_statements(store: Crawl) -> None:
    """A lane that was asked for twice, with other limits, and lanes without rows included."""
    lanes = [(7, 100 + gate) for gate in range(21)]
    store.add(*[row(ordinal, lane=lane) for ordinal, lane in enumerate(2 * lanes[:20], start=1)])
    asked = [(lane, 16, False) for lane in lanes] + [(lanes[0], 1, False)]
    said = said_by(store)
    with store.connection.begin():
        answers = reading.read_all(store.connection, read_heads, asked)
    assert [[head.row.ordinal for head in answer.heads] for answer in answers] == [
        *([number, number + 20] for number in range(1, 21)), [], [1],
    ]  # fmt: skip
    assert len([text for text in said if "FROM url" in text]) == 3, "sixteen, four, one"


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        made.add(row(1), row(2), row(3), row(4, lane=OTHER_LANE))
        batch = made.batch(ended=[done(row(1))], moved=[Moved(row(2), waiting(row(2), 5.0))])
        batch.standings = [(OTHER_LANE[0], Standing.PAUSED)]
        made.write(batch)
        yield made


def test_what_agrees_is_told(counted: Crawl) -> None:
    """A recount gives the totals that were counted all along."""
    with counted.connection.begin():
        assert recount(counted.connection) == counted.totals == (4, 3, 1, 0, 0, 0, 1, 1, 2, 0)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM url WHERE ordinal = 3", "the rows make"),
        ("DELETE FROM done", "the rows make"),
        ("DELETE FROM queue WHERE standing = 0", "the rows make"),
        ("UPDATE crawl SET value = '1' WHERE name = 'last_ordinal'", "a row has the number 4, the last is 1"),
        ("UPDATE crawl SET value = '2' WHERE name = 'waiting'", "the rows make"),
        ("UPDATE lane SET count = 3 WHERE count = 2", "counts 3 rows and 1 waiting, and holds 2 and 1"),
        ("UPDATE lane SET waiting = 0", "counts 2 rows and 0 waiting, and holds 2 and 1"),
        ("UPDATE lane SET shelved = 2 WHERE shelved = 1", "is shelved as 2, its queue has 1"),
        ("UPDATE lane SET servable = 1 - servable", "is kept as servable"),
        (f"DELETE FROM lane WHERE queue = {A_LANE[0]}", "the lanes count 1 rows, the table url holds 3"),
        ("DELETE FROM seen WHERE ordinal = 1", "the key of row 1 is seen at None"),
        ("UPDATE seen SET ordinal = 2 WHERE ordinal = 3", "the key of row 3 is seen at 2"),
        ("INSERT INTO seen VALUES (5, 5)", "5 keys are seen, 4 of them have a row"),
    ],
)
def test_each_kind_of_damage_is_found(counted: Crawl, damage: str, words: str) -> None:
    """One line, for the first difference."""
    with counted.connection.begin():
        counted.connection.exec_driver_sql(damage)
        with pytest.raises(InvariantBroken, match=words):
            recount(counted.connection)
