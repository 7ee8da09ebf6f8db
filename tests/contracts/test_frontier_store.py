"""What every store of the Frontier promises, whatever keeps its rows."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frontier.models import FRONT, OutcomeKind, UrlRecord, UrlState
from frontier.stores.base import Counters, Ended, FrontierStore, HeadsRead, Moved, Synced
from frontier.stores.memory import MemoryStore
from frontier.stores.sql import SqlStore
from tests.frontier.stores.rows import (
    A_LANE,
    IDENTITY,
    OTHER_LANE,
    Teller,
    done,
    duplicates,
    read,
    row,
    synced,
    waiting,
)

STORES: dict[str, Callable[[Path], FrontierStore]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqlStore(folder / "frontier.db"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FrontierStore]:
    made = STORES[request.param](tmp_path)
    made.open(IDENTITY, lambda: None)
    yield made
    made.close(clean=False)


@pytest.fixture
def teller(store: FrontierStore) -> Teller:
    return Teller(store)


@pytest.mark.parametrize("kind", STORES)
def test_a_new_store_is_clean_and_empty(kind: str, tmp_path: Path) -> None:
    """Nothing need be marked again where nothing was."""
    store = STORES[kind](tmp_path)
    opening = store.open(IDENTITY, lambda: None)
    store.close(clean=True)
    assert (opening.clean, opening.counters) == (True, Counters())
    assert not any((opening.queues, opening.lanes, opening.gates, opening.waiting))


def test_a_read_sees_every_batch_before_it(teller: Teller) -> None:
    """Writes and reads are one order, even if nobody waited for the write."""
    teller.say([row(1)])
    teller.store.ask_heads(A_LANE, 16)
    teller.say([row(2)])
    teller.store.ask_heads(A_LANE, 16)
    seen = [[head.row.ordinal for head in answer.heads] for answer in read(teller.answers())]
    assert seen == [[1], [1, 2]]


def test_a_head_is_the_row_that_was_written(teller: Teller) -> None:
    """No column is lost or changed, neither opaque bytes nor text."""
    whole = row(1, "http://a.test/ä", key=b"\x00\xff", hops="LE", via=7, attempts=2, due_s=1.5, payload=b"\x00")
    teller.say([whole])
    teller.store.ask_heads(A_LANE, 16)
    (answer,) = read(teller.answers())
    assert answer == HeadsRead(A_LANE, [(whole, None)])


def test_heads_come_by_precedence_then_by_ordinal(teller: Teller) -> None:
    """What is said to go first goes first; the rest in the order of acceptance."""
    teller.say([row(1), row(2), row(3, precedence=FRONT), row(4, lane=OTHER_LANE), row(5, precedence=FRONT)])
    assert teller.heads() == [3, 5, 1, 2]


def test_heads_are_no_more_than_were_asked_for(teller: Teller) -> None:
    """The limit counts rows."""
    teller.say([row(ordinal) for ordinal in range(1, 9)])
    assert teller.heads(limit=3) == [1, 2, 3]


def test_a_lane_that_nobody_wrote_has_no_heads(teller: Teller) -> None:
    """An empty answer is an answer."""
    assert teller.heads(OTHER_LANE) == []


def test_a_head_knows_the_url_it_was_found_on(teller: Teller) -> None:
    """`via` is the ended page's URL, in the very transaction that ended it too."""
    teller.say([row(1, "http://a.test/parent")])
    teller.say([row(2, via=1)], ended=[done(row(1, "http://a.test/parent"))])
    teller.store.ask_heads(A_LANE, 16)
    assert [head.via for head in read(teller.answers())[0].heads] == ["http://a.test/parent"]


def test_a_row_that_ends_leaves_its_lane(teller: Teller) -> None:
    """Ended rows are never served again."""
    teller.say([row(1), row(2)])
    teller.say(ended=[done(row(1))])
    assert teller.heads() == [2]


def test_a_row_can_begin_and_end_without_a_pause(teller: Teller) -> None:
    """Nothing between the two is needed to make them come out right."""
    teller.say([row(1)])
    teller.say(ended=[done(row(1), 404)])
    assert teller.heads() == []
    assert teller.store.look_up(b"http://a.test/1") == UrlRecord(
        "http://a.test/1", UrlState.ENDED, 404, "done", 0, ordinal=1
    )
    assert teller.store.counters() == Counters(last_ordinal=1, done=1)


def test_a_row_that_waits_is_no_head(teller: Teller) -> None:
    """A failing URL does not block its lane."""
    teller.say([row(1), row(2)])
    teller.say(moved=[Moved(row(1), waiting(row(1), 99.0))])
    assert teller.heads() == [2]


def test_a_row_can_move_again_and_end(teller: Teller) -> None:
    """Each step names the place where the row is now."""
    first = row(1)
    second = waiting(first, 9.0)
    third = waiting(second, 99.0)
    teller.say([first])
    teller.say(moved=[Moved(first, second)])
    teller.say(moved=[Moved(second, third)])
    teller.answers()
    teller.say(moved=[Moved(third, first)])
    assert teller.heads() == [1]
    teller.say(ended=[done(first)])
    assert teller.store.counters() == Counters(last_ordinal=1, done=1)


def test_a_row_that_moves_back_stands_where_its_ordinal_says(teller: Teller) -> None:
    """The order is (precedence, ordinal), not the order of arrival at that precedence."""
    teller.say([row(1), row(2), row(3)])
    teller.say(moved=[Moved(row(1), waiting(row(1), 9.0)), Moved(row(2), waiting(row(2), 9.0))])
    teller.say(moved=[Moved(waiting(row(2), 9.0), row(2))])
    teller.say(moved=[Moved(waiting(row(1), 9.0), row(1))])
    assert teller.heads() == [1, 2, 3]


def test_a_known_key_dies_and_is_reported(teller: Teller) -> None:
    """The last word about duplicates is the store's, whether the first is queued or has ended."""
    teller.say([row(1, "u"), row(2, "v")])
    teller.say(ended=[done(row(1, "u"))])
    teller.answers()
    teller.say([row(3, "u"), row(4, "w"), row(5, "v")])
    assert duplicates(teller.answers()) == [3, 5]
    assert teller.heads() == [2, 4]
    assert teller.store.counters() == Counters(last_ordinal=4, queued=2, done=1)


def test_of_equal_keys_said_together_the_first_lives(teller: Teller) -> None:
    """In one batch and in neighbouring ones."""
    teller.say([row(1, "u"), row(2, "u")])
    teller.say([row(3, "u", lane=OTHER_LANE), row(4, "v")])
    assert duplicates(teller.answers()) == [2, 3]
    assert teller.heads() == [1, 4]
    assert teller.heads(OTHER_LANE) == []


def test_keys_decide_not_urls(teller: Teller) -> None:
    """Two URLs with one key are the same, one URL with two keys is two."""
    teller.say([row(1, "u", key=b"k"), row(2, "v", key=b"k"), row(3, "u"), row(4, "u", key=b"u")])
    assert duplicates(teller.answers()) == [2, 4]


def test_a_forced_row_lives_though_its_key_is_known(teller: Teller) -> None:
    """From then on the key stands for the forced row."""
    teller.say([row(1, "u")])
    teller.say(ended=[done(row(1, "u"))])
    teller.say([row(2, "u")], forced=[2])
    teller.say([row(3, "u")])
    assert duplicates(teller.answers()) == [3]
    assert teller.heads() == [2]
    record = teller.store.look_up(b"u")
    assert record is not None
    assert (record.ordinal, record.state) == (2, UrlState.QUEUED)
    assert teller.store.counters() == Counters(last_ordinal=2, queued=1, done=1)


def test_a_key_that_is_forced_before_it_is_said_kills_the_later_one(teller: Teller) -> None:
    """Forcing is about the row that has the flag, in whatever order they come."""
    teller.say([row(1, "u"), row(2, "v"), row(3, "v")], forced=[2])
    teller.say([row(4, "u"), row(5, "w"), row(6, "w")], forced=[4, 5, 6])
    assert duplicates(teller.answers()) == [3]
    assert teller.heads() == [1, 2, 4, 5, 6]


def test_look_up_knows_each_state(teller: Teller) -> None:
    """Unknown, queued, waiting, ended: with what belongs to each."""
    teller.say([row(1), row(2), row(3, key=b"k")])
    teller.say(moved=[Moved(row(2), waiting(row(2), 9.0))], ended=[Ended(row(3, key=b"k"), -2, OutcomeKind.FAILED)])
    assert teller.store.look_up(b"nobody") is None
    assert teller.store.look_up(b"http://a.test/1") == ("http://a.test/1", UrlState.QUEUED, 0, "", 0, 1)
    assert teller.store.look_up(b"http://a.test/2") == ("http://a.test/2", UrlState.WAITING, 0, "", 1, 2)
    assert teller.store.look_up(b"k") == ("http://a.test/3", UrlState.ENDED, -2, "failed", 0, 3)


def test_ended_knows_what_has_ended_and_nothing_else(teller: Teller) -> None:
    """By key; unknown, queued and waiting URLs, and ended ones that were forced again, are left out."""
    rows = [row(1), row(2), row(3, key=b"k"), row(4), row(5)]
    teller.say(rows)
    failed = Ended(rows[2], -2, OutcomeKind.FAILED)
    teller.say(moved=[Moved(rows[1], waiting(rows[1], 9.0))], ended=[failed, done(rows[3]), done(rows[4])])
    teller.say([row(6, rows[4].url)], forced=[6])
    found = teller.store.ended([b"nobody", *(row.dedup_key() for row in rows)])
    assert found == {
        b"k": UrlRecord("http://a.test/3", UrlState.ENDED, -2, "failed", 0, 3),
        b"http://a.test/4": UrlRecord("http://a.test/4", UrlState.ENDED, 200, "done", 0, 4),
    }
    assert teller.store.ended([]) == {}


def test_any_number_of_ended_urls_is_found(teller: Teller) -> None:
    """More than one statement may name."""
    rows = [row(ordinal) for ordinal in range(1, 1202)]
    teller.say(rows)
    teller.say(ended=[done(row) for row in rows])
    found = teller.store.ended([row.dedup_key() for row in rows])
    assert [record.ordinal for record in found.values()] == list(range(1, 1202))


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_keys_are_all_keys_in_chunks(teller: Teller, chunk: int) -> None:
    """Queued, waiting and ended ones, each once, none in a chunk that is empty or too large."""
    rows = [row(1), row(2, key=b"k"), row(3, lane=OTHER_LANE), row(4, precedence=FRONT), row(5)]
    teller.say(rows)
    teller.say(ended=[done(rows[4])], moved=[Moved(rows[0], waiting(rows[0], 1.0))])
    chunks = list(teller.store.keys(chunk))
    assert sorted(key for keys in chunks for key in keys) == sorted(row.dedup_key() for row in rows)
    assert all(0 < len(keys) <= chunk for keys in chunks)


def test_an_empty_store_has_no_keys(teller: Teller) -> None:
    """Not even an empty chunk."""
    assert list(teller.store.keys(10)) == []


def test_counters_tell_the_outcomes_apart(teller: Teller) -> None:
    """Each kind of end has its count; what waits or is leased is queued."""
    rows = [row(ordinal) for ordinal in range(1, 8)]
    teller.say(rows)
    kinds = [OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.FAILED, OutcomeKind.DISREGARDED]
    teller.say(ended=[Ended(rows[index], 0, kind) for index, kind in enumerate(kinds)])
    counters = teller.store.counters()
    assert counters == Counters(last_ordinal=7, queued=3, done=1, failed=2, disregarded=1)
    assert counters.accepted == 7


def test_answers_are_taken_once_and_numbers_rise(teller: Teller) -> None:
    """The last number is that of the last batch; nothing is told twice."""
    for ordinal in range(1, 6):
        teller.say([row(ordinal)])
    numbers = [answer.number for answer in synced(teller.answers())]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 5
    assert teller.store.take_answers() == []


def test_a_batch_without_rows_becomes_durable_too(teller: Teller) -> None:
    """A change of a gate alone is acknowledged."""
    teller.say()
    assert teller.answers() == [Synced(1, [])]


def test_closing_twice_is_harmless(store: FrontierStore) -> None:
    """Whoever cleans up need not know whether somebody did."""
    store.close(clean=True)
    store.close(clean=True)
