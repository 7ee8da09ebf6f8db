"""Rules about URLs that every store of the Frontier keeps."""

from itertools import pairwise
from pathlib import Path

import pytest

from anabranch.frontier.records import FRONT, NORMAL, WAITING, Head, OutcomeKind, UrlRecord, UrlState
from anabranch.frontier.stores.contract import Counters, Ended, EndedRecord, FrontierStore, HeadsRead, Moved, QueueFacts
from tests.frontier.stores.rows import (
    A_LANE,
    KINDS,
    NOW_S,
    OTHER_LANE,
    Teller,
    answers_of,
    done,
    duplicates,
    gate_row,
    home,
    lane,
    ordinals,
    pages,
    queue_key,
    queue_row,
    row,
    served_again,
    synced,
    waiting,
)


def known(store: FrontierStore, key: bytes) -> UrlRecord:
    record = store.look_up(key)
    assert record is not None
    return record


# Heads


def test_a_read_sees_every_batch_before_it(teller: Teller) -> None:
    """Even if nobody waited for the write; it may see a later one of the same transaction, too."""
    teller.say([row(1)])
    teller.store.ask_heads(A_LANE, 16, with_queue=False)
    teller.say([row(2)])
    teller.store.ask_heads(A_LANE, 16, with_queue=False)
    first, second = (ordinals(answer) for answer in answers_of(HeadsRead, teller.answers()))
    assert first in ([1], [1, 2])
    assert second == [1, 2]


def test_a_head_is_the_row_that_was_written(teller: Teller) -> None:
    """No column is lost or changed, neither opaque bytes nor text."""
    whole = row(1, "http://a.test/ä", key=b"\x00\xff", hops="LE", via=7, attempts=2, payload=b"\x00")
    teller.say([whole])
    teller.store.ask_heads(A_LANE, 16, with_queue=False)
    assert teller.answer(HeadsRead) == HeadsRead(A_LANE, [Head(whole, None)], None)


def test_heads_come_by_precedence_then_by_ordinal(teller: Teller) -> None:
    """A row of smaller precedence goes first; rows of equal precedence go in the order of acceptance."""
    teller.say([row(1), row(2), row(3, precedence=FRONT), row(4, lane=OTHER_LANE), row(5, precedence=FRONT)])
    assert teller.heads() == [3, 5, 1, 2]


def test_heads_are_no_more_than_were_asked_for(teller: Teller) -> None:
    """The limit counts rows, over all precedences."""
    teller.say([row(ordinal, precedence=FRONT + ordinal % 2) for ordinal in range(1, 9)])
    assert teller.heads(limit=5) == [2, 4, 6, 8, 1]


def test_a_lane_that_nobody_wrote_has_no_heads(teller: Teller) -> None:
    """An empty answer is an answer."""
    assert teller.heads(OTHER_LANE) == []
    teller.say([row(1)])
    assert teller.heads((A_LANE[0], OTHER_LANE[1])) == []


def test_heads_come_with_their_queue_if_it_is_asked_for(teller: Teller) -> None:
    """The queue is as it was last written; None if it never was."""
    spent = queue_row(A_LANE[0], precedence=5, spent=7, budget=-1, successes=2, errors=1)
    teller.say([row(1)], queues=[spent])
    for asked in (A_LANE, OTHER_LANE):
        teller.store.ask_heads(asked, 16, with_queue=True)
    assert [answer.queue for answer in answers_of(HeadsRead, teller.answers())] == [spent, None]


def test_a_head_knows_the_url_it_was_found_on(teller: Teller) -> None:
    """`via` is the ended page's URL, in the very transaction that ended it too."""
    teller.say([row(1, "http://a.test/parent")])
    teller.say([row(2, via=1)], ended=[done(row(1, "http://a.test/parent"))])
    teller.store.ask_heads(A_LANE, 16, with_queue=False)
    assert [head.via for head in teller.answer(HeadsRead).heads] == ["http://a.test/parent"]


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
    assert known(teller.store, b"http://a.test/1") == UrlRecord("http://a.test/1", UrlState.ENDED, 404, "done", 0, 1)
    assert teller.store.counters() == Counters(last_ordinal=1, done=1, queues=1)


# Retries


def test_a_row_that_waits_is_no_head(teller: Teller) -> None:
    """A failing URL does not block its lane."""
    teller.say([row(1), row(2)])
    teller.say(moved=[Moved(row(1), waiting(row(1), NOW_S))])
    assert teller.heads() == [2]


def test_a_row_can_move_again_and_end(teller: Teller) -> None:
    """Each step names the place where the row is now."""
    first = row(1)
    second = waiting(first, NOW_S)
    third = waiting(second, NOW_S + 9)
    teller.say([first])
    teller.say(moved=[Moved(first, second)])
    teller.say(moved=[Moved(second, third)])
    teller.answers()
    assert teller.retries() == [third]
    teller.say(moved=[Moved(third, first)])
    assert (teller.heads(), teller.retries()) == ([1], [])
    teller.say(ended=[done(first)])
    assert teller.store.counters() == Counters(last_ordinal=1, done=1, queues=1)


def test_a_row_that_moves_back_stands_where_its_ordinal_says(teller: Teller) -> None:
    """The order is (precedence, ordinal), not the order of arrival at that precedence."""
    rows = [row(ordinal) for ordinal in range(1, 6)]
    away = [waiting(moved, NOW_S) for moved in rows[:4]]
    teller.say(rows)
    teller.say(moved=[Moved(old, new) for old, new in zip(rows[:4], away, strict=True)])
    assert teller.heads() == [5]
    for index in (1, 3, 0):
        teller.say(moved=[Moved(away[index], served_again(away[index]))])
    assert teller.heads() == [1, 2, 4, 5]
    assert teller.heads(limit=2) == [1, 2]
    teller.say(ended=[done(served_again(away[1]))])
    assert teller.heads() == [1, 4, 5]


def test_retries_come_by_time_then_by_ordinal(teller: Teller) -> None:
    """Over all lanes; page by page; rows that do not wait are not among them."""
    rows = [row(ordinal, lane=A_LANE if ordinal % 2 else OTHER_LANE) for ordinal in range(1, 8)]
    times = [5.0, 3.5, 9.0, 3.5, 5.0, 3.5]
    away = [waiting(moved, NOW_S + time_s) for moved, time_s in zip(rows, times, strict=False)]
    teller.say(rows)
    teller.say(moved=[Moved(old, new) for old, new in zip(rows, away, strict=False)])
    expected = sorted(away, key=lambda moved: (moved.due_s, moved.ordinal))
    assert teller.retries() == expected
    assert list(pages(lambda after: teller.retries(after, 2), lambda moved: (moved.due_s, moved.ordinal))) == expected
    teller.say(moved=[Moved(away[1], served_again(away[1]))], ended=[done(away[3])])
    assert teller.retries(limit=2) == [away[5], away[0]]


def test_a_new_row_may_wait_from_the_first(teller: Teller) -> None:
    """A row that is loaded from a dump may have failed before."""
    late = row(1, precedence=NORMAL + WAITING, attempts=1, due_s=NOW_S + 1)
    teller.say([late, row(2)])
    assert (teller.heads(), teller.retries()) == ([2], [late])
    assert teller.store.counters().waiting == 1


# Known keys


def test_a_known_key_dies_and_is_reported(teller: Teller) -> None:
    """The last word about duplicates is the store's, whether the first is queued or has ended."""
    teller.say([row(1, "u"), row(2, "v")])
    teller.say(ended=[done(row(1, "u"))])
    teller.answers()
    teller.say([row(3, "u"), row(4, "w"), row(5, "v")])
    assert duplicates(teller.answers()) == [3, 5]
    assert teller.heads() == [2, 4]
    assert teller.store.counters() == Counters(last_ordinal=5, queued=2, done=1, queues=1)


def test_a_duplicate_is_reported_as_it_was_said(teller: Teller) -> None:
    """The core gives back what it counted for it, so it needs the whole row."""
    dead = row(2, "u", lane=OTHER_LANE, hops="L", payload=b"\xff")
    teller.say([row(1, "u"), dead])
    assert [found for answer in synced(teller.answers()) for found in answer.duplicates] == [dead]


def test_of_equal_keys_said_together_the_first_lives(teller: Teller) -> None:
    """In one batch and in neighbouring ones."""
    teller.say([row(1, "u"), row(2, "u")])
    teller.say([row(3, "u", lane=OTHER_LANE), row(4, "v")])
    assert duplicates(teller.answers()) == [2, 3]
    assert teller.heads() == [1, 4]
    assert teller.heads(OTHER_LANE) == []


def test_keys_decide_not_urls(teller: Teller) -> None:
    """Two URLs with one key are the same, one URL with two keys is two; a URL without a key has its UTF-8 for one."""
    same = [row(5, "x", key=b"\xff"), row(6, "y", key=b"\xff"), row(7, "ä"), row(8, "z", key="ä".encode())]
    teller.say([row(1, "u", key=b"k"), row(2, "v", key=b"k"), row(3, "u"), row(4, "u", key=b"u"), *same])
    assert duplicates(teller.answers()) == [2, 4, 6, 8]


def test_a_forced_row_lives_though_its_key_is_known(teller: Teller) -> None:
    """From then on the key stands for the forced row."""
    teller.say([row(1, "u")])
    teller.say(ended=[done(row(1, "u"))])
    teller.say([row(2, "u")], forced=[2])
    teller.say([row(3, "u")])
    assert duplicates(teller.answers()) == [3]
    assert teller.heads() == [2]
    record = known(teller.store, b"u")
    assert (record.ordinal, record.state) == (2, UrlState.QUEUED)
    assert teller.store.counters() == Counters(last_ordinal=3, queued=1, done=1, queues=1)


def test_a_key_that_is_forced_before_it_is_said_kills_the_later_one(teller: Teller) -> None:
    """Forcing is about the row that has the flag, in whatever order they come."""
    teller.say([row(1, "u"), row(2, "v"), row(3, "v")], forced=[2])
    teller.say([row(4, "u"), row(5, "w"), row(6, "w")], forced=[4, 5, 6])
    assert duplicates(teller.answers()) == [3]
    assert teller.heads() == [1, 2, 4, 5, 6]


def test_a_row_whose_key_was_forced_since_ends_as_itself(teller: Teller) -> None:
    """Both rows are there; the key goes on standing for the younger one."""
    teller.say([row(1, "u")])
    teller.say([row(2, "u")], forced=[2])
    teller.say(ended=[done(row(1, "u"))])
    assert known(teller.store, b"u").ordinal == 2
    assert teller.heads() == [2]


# Questions about one URL


def test_look_up_knows_each_state(teller: Teller) -> None:
    """Unknown, queued, waiting, ended: with what belongs to each."""
    late = waiting(row(2), NOW_S + 9)
    teller.say([row(1), row(2), row(3, key=b"k")])
    teller.say(moved=[Moved(row(2), late)], ended=[Ended(row(3, key=b"k"), -2, OutcomeKind.FAILED)])
    assert teller.store.look_up(b"nobody") is None
    first, second = known(teller.store, b"http://a.test/1"), known(teller.store, b"http://a.test/2")
    assert first == UrlRecord(
        "http://a.test/1", UrlState.QUEUED, 0, "", 0, 1, *A_LANE, hops=row(1).hops, precedence=row(1).precedence
    )
    assert second == UrlRecord(
        "http://a.test/2", UrlState.WAITING, 0, "", 1, 2, *A_LANE, late.due_s, late.hops, None, late.precedence
    )
    assert known(teller.store, b"k") == UrlRecord("http://a.test/3", UrlState.ENDED, -2, "failed", 0, 3)


def test_look_up_answers_the_payload_of_what_is_queued(teller: Teller) -> None:
    """A host program keeps its request there."""
    teller.say([row(1)._replace(payload=b"mine")])
    queued = known(teller.store, b"http://a.test/1")
    assert queued is not None
    assert queued.payload == b"mine"


def test_a_lane_named_in_a_look_up_changes_no_answer(teller: Teller) -> None:
    """It spares a scan if it is right, and does no harm if it is not."""
    rows = [row(1), row(2, precedence=FRONT), row(3), row(4)]
    teller.say(rows)
    teller.say(moved=[Moved(rows[2], waiting(rows[2], NOW_S))], ended=[done(rows[3])])
    for key in (*(said.dedup_key() for said in rows), b"nobody"):
        plain = teller.store.look_up(key)
        assert teller.store.look_up(key, A_LANE) == plain
        assert teller.store.look_up(key, OTHER_LANE) == plain
    assert known(teller.store, rows[1].dedup_key()).ordinal == 2


def test_a_url_is_found_under_every_key_that_a_host_gave_it(teller: Teller) -> None:
    """Queued, waiting and ended rows of it by ordinal, and no other; of a key that was forced again, the latest row."""
    url = "http://a.test/post"
    rows = [row(number, url, key=b"key %d" % number) for number in range(1, 5)]
    teller.say([*rows, row(5), row(6, url)])
    failed = [Ended(rows[1], 503, OutcomeKind.FAILED), Ended(rows[3], 0, OutcomeKind.DISREGARDED)]
    teller.say(moved=[Moved(rows[2], waiting(rows[2], NOW_S + 9))], ended=failed)
    teller.say([row(7, url, key=rows[3].key)], forced=[7])
    found = teller.store.of_url(url, 100)
    states = [UrlState.QUEUED, UrlState.ENDED, UrlState.WAITING, UrlState.QUEUED, UrlState.QUEUED]
    assert [(record.ordinal, record.state) for record in found] == list(zip([1, 2, 3, 6, 7], states, strict=True))
    assert found == [known(teller.store, key) for key in (b"key 1", b"key 2", b"key 3", url.encode(), b"key 4")]
    assert teller.store.of_url("http://a.test/", 100) == []


def test_no_more_rows_of_a_url_are_looked_at_than_were_asked_for(teller: Teller) -> None:
    """One that is asked for again and again may have very many."""
    teller.say([row(number, "http://a.test/", key=b"key %d" % number) for number in range(1, 9)])
    assert len(teller.store.of_url("http://a.test/", 3)) == 3


def test_of_many_rows_of_a_url_the_latest_are_looked_at(teller: Teller) -> None:
    """A host that gives one request back again and again makes a row each time; the oldest say nothing any more."""
    url = "http://a.test/"
    rows = [row(number, url, key=b"key") for number in range(1, 122)]
    teller.say(rows[:1])
    for before, after in pairwise(rows):
        teller.say([after], forced=[after.ordinal], ended=[Ended(before, 0, OutcomeKind.DISREGARDED)])
    found = teller.store.of_url(url, 100)
    assert [(record.ordinal, record.state) for record in found] == [(121, UrlState.QUEUED)]
    teller.say(ended=[done(rows[-1])])
    found = teller.store.of_url(url, 100)
    assert [(record.ordinal, record.state) for record in found] == [(121, UrlState.ENDED)]
    teller.say([row(number, url, key=b"%d" % number) for number in range(200, 208)])
    assert [record.ordinal for record in teller.store.of_url(url, 3)] == [121, 205, 206, 207]


def test_ended_knows_what_has_ended_and_nothing_else(teller: Teller) -> None:
    """By key; unknown, queued and waiting URLs, and ended ones that were forced again, are left out."""
    rows = [row(1), row(2), row(3, key=b"k"), row(4), row(5)]
    teller.say(rows)
    failed = Ended(rows[2], -2, OutcomeKind.FAILED)
    teller.say(moved=[Moved(rows[1], waiting(rows[1], NOW_S))], ended=[failed, done(rows[3]), done(rows[4])])
    teller.say([row(6, rows[4].url)], forced=[6])
    found = teller.store.ended([b"nobody", *(said.dedup_key() for said in rows)])
    assert found == {
        b"k": UrlRecord("http://a.test/3", UrlState.ENDED, -2, "failed", 0, 3),
        b"http://a.test/4": UrlRecord("http://a.test/4", UrlState.ENDED, 200, "done", 0, 4),
    }
    assert teller.store.ended([]) == {}


def test_any_number_of_ended_urls_is_found(teller: Teller) -> None:
    """More than one statement may name."""
    rows = [row(ordinal) for ordinal in range(1, 1202)]
    teller.say(rows)
    teller.say(ended=[done(said) for said in rows])
    found = teller.store.ended([said.dedup_key() for said in rows])
    assert sorted(record.ordinal for record in found.values()) == list(range(1, 1202))


# Lists


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_keys_are_all_keys_in_chunks(teller: Teller, chunk: int) -> None:
    """Queued, waiting and ended ones, each once, none in a chunk that is empty or too large."""
    rows = [row(1), row(2, key=b"k"), row(3, lane=OTHER_LANE), row(4, precedence=FRONT), row(5)]
    teller.say(rows)
    teller.say(ended=[done(rows[4])], moved=[Moved(rows[0], waiting(rows[0], NOW_S))])
    chunks = list(teller.store.keys(chunk))
    assert sorted(key for keys in chunks for key in keys) == sorted(said.dedup_key() for said in rows)
    assert all(0 < len(keys) <= chunk for keys in chunks)


@pytest.mark.parametrize("after", [0, 2, 4, 5])
def test_keys_can_begin_behind_a_checkpoint(teller: Teller, after: int) -> None:
    """Only rows with a higher ordinal, whether they ended or not."""
    rows = [row(1), row(2, precedence=FRONT), row(3, lane=OTHER_LANE), row(4), row(5)]
    teller.say(rows)
    teller.say(ended=[done(rows[0]), done(rows[3])])
    keys = sorted(key for keys in teller.store.keys(2, after) for key in keys)
    assert keys == sorted(said.dedup_key() for said in rows if said.ordinal > after)


def test_an_empty_store_has_no_keys(teller: Teller) -> None:
    """Not even an empty chunk."""
    assert list(teller.store.keys(10)) == []


def test_queued_rows_are_listed_by_place(teller: Teller) -> None:
    """By (queue, gate, precedence, ordinal), page by page; waiting ones too, with the URL they were found on."""
    lanes = [lane("one", "a"), lane("one", "b"), lane("two", "a")]
    rows = [row(number, lane=lanes[number % 3], precedence=FRONT + number % 2, via=1) for number in range(1, 13)]
    teller.say(rows)
    late = waiting(rows[5], NOW_S)
    teller.say(ended=[done(rows[0])], moved=[Moved(rows[5], late)])
    expected = sorted([late, *rows[1:5], *rows[6:]])
    listed = list(pages(lambda after: teller.store.queued(after, 4), lambda head: head.row[:4]))
    assert [head.row for head in listed] == expected
    assert {head.via for head in listed} == {rows[0].url}
    assert len(teller.store.queued(None, 5)) == 5


def test_ended_rows_are_listed_by_ordinal(teller: Teller) -> None:
    """Whatever the order in which they ended; each as what `done` keeps."""
    rows = [row(1), row(2, key=b"\xff", attempts=3), row(3), row(4)]
    teller.say(rows)
    for index, status in ((3, 200), (1, -7)):
        teller.say(ended=[Ended(rows[index], status, OutcomeKind.DONE if status > 0 else OutcomeKind.FAILED)])
    failed = EndedRecord(2, rows[1].url, b"\xff", -7, OutcomeKind.FAILED, 3)
    fetched = EndedRecord(4, rows[3].url, None, 200, OutcomeKind.DONE, 0)
    assert teller.store.ended_after(0, 9) == [failed, fetched]
    assert teller.store.ended_after(0, 1) == [failed]
    assert teller.store.ended_after(2, 9) == [fetched]
    assert teller.store.ended_after(4, 9) == []


def test_a_list_knows_what_came_since_the_last_one(teller: Teller) -> None:
    """Queues, rows and what has ended: nothing is told from memory."""
    for number, found in enumerate((A_LANE, OTHER_LANE), start=1):
        rows = [row(number, lane=found), row(number + 10, lane=found)]
        teller.say(rows)
        teller.say(ended=[done(rows[0])])
        assert len(teller.store.queues(None, None, 9)) == number
        assert len(teller.store.queued(None, 9)) == number
        assert len(teller.store.ended_after(0, 9)) == number


# Totals and answers


def test_counters_tell_the_outcomes_apart(teller: Teller) -> None:
    """Each kind of end has its count; what waits or is leased is queued."""
    rows = [row(ordinal) for ordinal in range(1, 8)]
    teller.say(rows)
    kinds = [OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.FAILED, OutcomeKind.DISREGARDED]
    ended = [Ended(rows[index], 0, kind) for index, kind in enumerate(kinds)]
    teller.say(ended=ended, moved=[Moved(rows[4], waiting(rows[4], NOW_S))])
    counters = teller.store.counters()
    assert counters == Counters(last_ordinal=7, queued=3, done=1, failed=2, disregarded=1, waiting=1, queues=1)
    assert counters.accepted == 7


def test_the_sequence_goes_on_where_batches_said_it_had_come(teller: Teller) -> None:
    """Turns take numbers too, and so do rows that died."""
    teller.last_number = 41
    teller.say([row(1)])
    assert teller.store.counters().last_ordinal == 41
    teller.last_number = 40
    teller.say()
    assert teller.store.counters().last_ordinal >= 40


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
    teller.say(gates=[gate_row(A_LANE[1], rests_until_s=NOW_S)])
    (answer,) = teller.answers()
    assert answer == (1, [], 0, 0, 0, 0)
    assert teller.store.gate(A_LANE[1]) == gate_row(A_LANE[1], rests_until_s=NOW_S)


def test_an_answer_knows_how_many_queues_there_are(teller: Teller) -> None:
    """Empty ones count: they are rows."""
    teller.say([row(1), row(2, lane=OTHER_LANE)])
    teller.say(ended=[done(row(1))])
    assert synced(teller.answers())[-1].queues == 2


# Queues


def test_a_queue_is_named_once(teller: Teller) -> None:
    """A name for a known id changes nothing of it, and what is written changes all but its standing."""
    teller.say([row(1)])
    teller.say(queues=[queue_row(A_LANE[0], precedence=9, spent=4)])
    teller.say(queue_names=[(A_LANE[0], queue_key(A_LANE[0]), 1)])
    assert teller.store.queue(A_LANE[0]) == QueueFacts(queue_row(A_LANE[0], precedence=9, spent=4), 1, 0, 1)
    assert teller.store.queue(OTHER_LANE[0]) is None


def test_a_queue_counts_its_lanes_and_rows(teller: Teller) -> None:
    """Lanes without rows are not counted; waiting rows are."""
    lanes = [lane("one", "a"), lane("one", "b"), lane("one", "c")]
    rows = [row(number + 1, lane=lanes[number % 3]) for number in range(6)]
    teller.say(rows)
    teller.say(moved=[Moved(rows[1], waiting(rows[1], NOW_S))], ended=[done(rows[2]), done(rows[5])])
    facts = teller.store.queue(lanes[0][0])
    assert facts is not None
    assert facts[1:] == (4, 1, 2)
    assert [(found.gate, found.count, found.waiting) for found in teller.store.lanes(lanes[0][0], None, 9)] == sorted(
        [(lanes[0][1], 2, 0), (lanes[1][1], 2, 1)]
    )


def test_lanes_of_a_queue_are_listed_by_gate(teller: Teller) -> None:
    """Page by page."""
    lanes = [lane("one", f"gate {number}") for number in range(7)]
    rows = [row(number, lane=found) for number, found in enumerate(lanes, start=1)]
    teller.say(rows)
    teller.say(ended=[done(rows[0])])
    queue = lanes[0][0]
    listed = list(pages(lambda after: teller.store.lanes(queue, after, 2), lambda found: found.gate))
    assert [found.gate for found in listed] == sorted(gate for _, gate in lanes[1:])


def test_queues_with_rows_are_listed_by_id(teller: Teller) -> None:
    """Page by page; empty ones are left out."""
    lanes = [lane(f"queue {number}", "a") for number in range(7)]
    rows = [row(number, lane=found) for number, found in enumerate(lanes, start=1)]
    teller.say(rows)
    teller.say(ended=[done(rows[3])])
    listed = list(pages(lambda after: teller.store.queues(None, after, 2), lambda fact: fact.row.id))
    assert [fact.row.id for fact in listed] == sorted(queue for queue, _ in [*lanes[:3], *lanes[4:]])
    assert {fact[1:] for fact in listed} == {(1, 0, 1)}


def test_the_longest_queues_come_first(teller: Teller) -> None:
    """Over all their lanes; no more than were asked for."""
    lanes = [lane("long", "a"), lane("short", "a"), lane("middle", "a"), lane("long", "b")]
    counts = [3, 1, 4, 2]
    ordinal = iter(range(1, 99))
    teller.say([row(next(ordinal), lane=lanes[place]) for place, count in enumerate(counts) for _ in range(count)])
    longest = teller.store.queues(None, None, 2, longest_first=True)
    assert [(fact.row.id, fact.count) for fact in longest] == [(lanes[0][0], 5), (lanes[2][0], 4)]
    assert len(teller.store.queues(None, None, 9, longest_first=True)) == 3


def test_closing_twice_is_harmless(teller: Teller) -> None:
    """Whoever cleans up need not know whether somebody did."""
    teller.store.close(clean=True)
    teller.store.close(clean=True)


# Rows that were something elsewhere

#: Where a row stands that goes to `done` at once.
NO_LANE = (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_row_that_waits_counts_as_waiting(kind: str, tmp_path: Path) -> None:
    """In its lane, in its queue, in the totals; its lane is not servable by it."""
    late = row(1, precedence=NORMAL + WAITING, attempts=1, due_s=NOW_S + 1)
    with home(kind, tmp_path) as made:
        made.open()
        made.teller.say([late])
        facts = made.teller.store.queue(A_LANE[0])
        assert facts is not None
        assert (facts.count, facts.waiting) == (1, 1)
        assert [(found.count, found.waiting) for found in made.teller.store.lanes(A_LANE[0], None, 9)] == [(1, 1)]
        assert made.teller.line(A_LANE[1]) == []
        assert (made.teller.store.tally()["snoozed"], made.teller.store.tally().get("inactive", 0)) == (1, 0)
        counters = made.reopen().counters
        assert (counters.queued, counters.waiting) == (1, 1)
        assert made.teller.store.counters() == counters


def test_a_settled_row_ends_at_once(teller: Teller) -> None:
    """It needs no lane and counts in none; its key is known from then on, and it is found and listed as ended."""
    new = [row(1, "u", lane=NO_LANE, attempts=2), row(2, "v", lane=NO_LANE, key=b"k")]
    teller.say(new, settled={1: (404, OutcomeKind.DONE), 2: (-2, OutcomeKind.FAILED)})
    assert teller.store.ended([b"u", b"k"]) == {
        b"u": UrlRecord("u", UrlState.ENDED, 404, "done", 2, 1),
        b"k": UrlRecord("v", UrlState.ENDED, -2, "failed", 0, 2),
    }
    assert teller.store.ended_after(0, 9) == [
        EndedRecord(1, "u", None, 404, OutcomeKind.DONE, 2),
        EndedRecord(2, "v", b"k", -2, OutcomeKind.FAILED, 0),
    ]
    assert teller.store.queued(None, 9) == []
    assert teller.store.queues(None, None, 9) == []
    assert teller.store.counters() == Counters(last_ordinal=2, done=1, failed=1)
    assert sorted(key for keys in teller.store.keys(9) for key in keys) == [b"k", b"u"]
    teller.answers()
    teller.say([row(3, "u")])
    assert duplicates(teller.answers()) == [3]


def test_a_settled_row_whose_key_is_known_dies(teller: Teller) -> None:
    """The queued or ended row with the same key stays as it is; the settled one is reported as any other duplicate."""
    teller.say([row(1, "u"), row(2, "v")])
    teller.say(ended=[done(row(2, "v"), 200)])
    teller.answers()
    dead = [row(3, "u", lane=NO_LANE), row(4, "v", lane=NO_LANE)]
    fresh = row(5, "w", lane=NO_LANE)
    teller.say([*dead, fresh], settled=dict.fromkeys([3, 4, 5], (404, OutcomeKind.FAILED)))
    assert [found for answer in synced(teller.answers()) for found in answer.duplicates] == dead
    assert teller.heads() == [1]
    assert known(teller.store, b"v").status == 200
    assert known(teller.store, b"w").outcome == "failed"
    assert teller.store.counters() == Counters(last_ordinal=5, queued=1, done=1, failed=1, queues=1)


def test_settled_rows_and_others_share_a_batch(teller: Teller) -> None:
    """The first of several rows with equal keys decides, settled or not; a settled page can be the parent of a row."""
    new = [row(1, "u"), row(2, "u", lane=NO_LANE), row(3, "p", lane=NO_LANE), row(4, "x", via=3)]
    teller.say(new, settled=dict.fromkeys([2, 3], (200, OutcomeKind.DONE)))
    assert duplicates(teller.answers()) == [2]
    teller.store.ask_heads(A_LANE, 16, with_queue=False)
    assert [head.via for head in teller.answer(HeadsRead).heads] == [None, "p"]
    assert teller.store.counters() == Counters(last_ordinal=4, queued=2, done=1, queues=1)
