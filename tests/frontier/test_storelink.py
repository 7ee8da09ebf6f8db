"""Messages between the Frontier and its store."""

from __future__ import annotations

import pytest

from anabranch.frontier.errors import PolicyError, StoreUnavailable
from anabranch.frontier.records import GateKey, Outcome, OutcomeKind
from anabranch.frontier.storelink import MAX_BYTES, MAX_ROWS, StoreTrouble, Unacknowledged
from anabranch.frontier.stores.contract import Batch, RetriesRead, StoreFailed, Synced, Troubled
from tests.frontier.builder import HASTE, START_S, CountingStore, DelayingStore, Rig, build, candidates, pages, row


def totals_agree(rig: Rig) -> None:
    """Check that the Frontier's totals equal the store's."""
    here, kept = rig.parts.store_link.counters(), rig.store.counters()
    assert here._replace(last_ordinal=0) == kept._replace(last_ordinal=0)


def test_batches_are_numbered_without_holes_and_bear_the_time() -> None:
    """The time is the core's, so that an opening notices a clock that went back; the numbers are never empty batches'."""
    store = CountingStore()
    rig = build(store=store)
    rig.add(*pages("a.test", 3))
    rig.clock.advance(5.0)
    rig.add("http://a.test/page0")
    rig.finish(rig.lease_now())
    rig.core.flush()
    numbers = [batch.number for batch in store.batches]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [store.batches[0].now_s, store.batches[-1].now_s] == [START_S, START_S + 5.0]
    assert not any(batch.is_empty for batch in store.batches)
    assert rig.core.unacknowledged.last == numbers[-1]


def test_the_sequence_goes_on_where_the_store_left_it() -> None:
    """Ordinals and turns are numbers of one sequence; none is given twice."""
    store = CountingStore()
    rig = build(store=store)
    rig.add(*pages("a.test", 3))
    rig.core.close()
    last = store.batches[-1].last_number
    assert last >= 3
    again = build(store=store, clock=rig.clock)
    again.add("http://b.test/")
    (row,) = store.batches[-1].new
    assert row.ordinal == last + 1


def test_totals_follow_what_is_said_and_what_dies() -> None:
    """At every moment they are those of the store, once it has all."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 6), *pages("b.test", 2))
    rig.core.flush()
    totals_agree(rig)
    for kind in (OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED, OutcomeKind.RETRY):
        rig.finish(rig.lease_now(), kind, after_s=50.0, links=["http://c.test/"])
        rig.core.flush()
        totals_agree(rig)
    counters = rig.parts.store_link.counters()
    assert (counters.queued, counters.waiting, counters.done, counters.failed, counters.disregarded) == (6, 1, 1, 1, 1)
    assert (counters.queues, counters.accepted) == (3, 9)


def test_questions_follow_the_batch_that_they_need() -> None:
    """A read sees the rows that the same call wrote."""
    store = DelayingStore()
    rig = build(store=store)
    rig.add("http://a.test/")
    store.work(1)
    assert store.batches
    assert store.questions == []
    store.work(1)
    assert store.questions == ["gate"]


def test_what_the_store_fails_with_is_kept() -> None:
    """Answers before it are taken, those behind it are not."""
    store = CountingStore()
    rig = build(store=store)
    rig.add("http://a.test/")
    rig.core.flush()
    error = StoreUnavailable("gone")
    store._answers += [Synced(1, [], 0, 7, 1, 0), StoreFailed(error), Synced(1, [], 0, 9, 1, 0)]
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            rig.core.take_answers()
        assert caught.value is error
    assert rig.parts.store_link.paused == 7


def no_group(host: str) -> str:
    """A function of one's own that fails."""
    raise RuntimeError(f"no group for {host}")


def test_an_answer_that_cannot_be_taken_ends_all() -> None:
    """Answers behind it are lost, so nothing may go on; each call raises the first error."""
    store = CountingStore()
    rig = build(store=store, group=no_group)
    rig.add("http://a.test/")
    with pytest.raises(PolicyError, match=r"no group for a\.test") as first:
        rig.core.lease()
    with pytest.raises(PolicyError) as second:
        rig.core.set_delay(GateKey("b.test"), 1.0)
    assert second.value is first.value
    rig.core.close()
    assert store.closed == [False]


def test_a_trouble_lasts_from_its_first_failure_on() -> None:
    """However its reason and the time change; what comes after its end is another one, with a time of its own."""
    store = CountingStore()
    rig = build(store=store)
    link = rig.parts.store_link
    told: list[str] = []
    link.on_trouble(told.append)
    for what in ("the filter: away", "the filter: refused"):
        store._answers.append(Troubled(what, 30.0))
        rig.core.take_answers()
        assert link.waiting == StoreTrouble(what, START_S, 30.0)
        rig.clock.advance(7.0)
    store._answers.append(Troubled("", 30.0))
    rig.core.take_answers()
    assert link.waiting is None
    store._answers.append(Troubled("the filter: away", 30.0))
    rig.core.take_answers()
    assert link.waiting == StoreTrouble("the filter: away", START_S + 14.0, 30.0)
    assert told == ["the filter: away", "the filter: refused", "", "the filter: away"]


def test_waiting_rows_are_awaited_like_any_others() -> None:
    """While they are on their way it is the store that is waited for."""
    store = DelayingStore()
    rig = build(store=store, politeness=HASTE)
    rig.parts.store_link.asked += 1
    assert rig.parts.is_reading
    store._told.append(RetriesRead([]))
    rig.core.take_answers()
    assert not rig.parts.is_reading


def test_a_finish_with_nothing_to_keep_counts_as_unacknowledged_all_the_same() -> None:
    """Until the store has synced it: a crash would repeat it."""
    store = DelayingStore()
    rig = build(store=store, politeness=HASTE, max_unacknowledged=1)
    rig.add(*pages("a.test", 2))
    for _ in range(3):
        store.flush()
        if lease := rig.core.lease():
            break
    assert lease is not None
    rig.core.finish(lease, Outcome(OutcomeKind.DONE), candidates("http://a.test/page0"))
    assert rig.core.lease() is None
    store.flush()
    assert rig.core.lease() is not None


def batch(number: int, rows: int = 1) -> Batch:
    made = Batch(number)
    made.new = [row(place + 1) for place in range(rows)]
    return made


def add(unacknowledged: Unacknowledged, said: Batch, finishes: int) -> None:
    unacknowledged.add(said.number, said.rows, said.bytes, finishes)


def test_it_is_empty_until_something_is_said_and_again_when_all_is_durable() -> None:
    """`said` and `durable` are numbers of batches; equal means acknowledged."""
    unacknowledged = Unacknowledged(10)
    assert unacknowledged.is_empty
    add(unacknowledged, batch(1), 0)
    add(unacknowledged, batch(2), 0)
    assert (unacknowledged.last, unacknowledged.durable, unacknowledged.is_empty) == (2, 0, False)
    unacknowledged.synced(1)
    assert (unacknowledged.durable, unacknowledged.rows, unacknowledged.is_empty) == (1, 1, False)
    unacknowledged.synced(2)
    assert (unacknowledged.durable, unacknowledged.rows, unacknowledged.is_empty) == (2, 0, True)


def test_so_many_finishes_fill_it() -> None:
    """The bound is on leases that ended and are not acknowledged."""
    unacknowledged = Unacknowledged(2)
    add(unacknowledged, batch(1), 1)
    assert not unacknowledged.is_full
    add(unacknowledged, batch(2), 1)
    assert unacknowledged.is_full
    unacknowledged.synced(1)
    assert not unacknowledged.is_full


def test_so_many_rows_fill_it() -> None:
    """New, ended and moved rows count alike."""
    unacknowledged = Unacknowledged(2)
    add(unacknowledged, batch(1, MAX_ROWS - 1), 0)
    assert not unacknowledged.is_full
    add(unacknowledged, batch(2), 0)
    assert unacknowledged.is_full
    unacknowledged.synced(2)
    assert not unacknowledged.is_full


def test_so_many_bytes_fill_it() -> None:
    """URLs and payloads of 64 MiB are as much as the store may owe, however few rows they are."""
    unacknowledged = Unacknowledged(10)
    large = Batch(1)
    large.new = [row(number)._replace(payload=bytes(MAX_BYTES // 7)) for number in range(1, 8)]
    add(unacknowledged, large, 0)
    assert unacknowledged.is_full
    unacknowledged.synced(1)
    assert not unacknowledged.is_full
    assert unacknowledged.bytes == 0


def test_an_older_answer_takes_nothing_back() -> None:
    """A durable batch stays durable, whatever comes late."""
    unacknowledged = Unacknowledged(2)
    add(unacknowledged, batch(1), 1)
    unacknowledged.synced(1)
    unacknowledged.synced(0)
    assert (unacknowledged.durable, unacknowledged.finishes) == (1, 0)


def test_the_store_begins_at_each_half() -> None:
    """The store begins once for each half of the finishes, not for every later batch.

    So a full one never waits for a store that gathers more.
    """
    unacknowledged = Unacknowledged(4)
    told = []
    for number in range(1, 5):
        add(unacknowledged, batch(number), 1)
        told.append(unacknowledged.begins())
    assert told == [False, True, False, True]
    assert unacknowledged.is_full


def test_the_store_begins_at_half_of_the_rows() -> None:
    """And of the bytes, alike."""
    unacknowledged = Unacknowledged(1000)
    add(unacknowledged, batch(1, MAX_ROWS // 2 - 1), 1)
    assert not unacknowledged.begins()
    add(unacknowledged, batch(2), 1)
    assert unacknowledged.begins()
    large = Batch(3)
    large.new = [row(1)._replace(payload=b"x" * (MAX_BYTES // 2))]
    add(unacknowledged, large, 0)
    assert unacknowledged.begins()


def test_what_is_durable_is_not_gathered() -> None:
    """A store that began by itself has nothing to be told."""
    unacknowledged = Unacknowledged(4)
    add(unacknowledged, batch(1), 1)
    unacknowledged.synced(1)
    add(unacknowledged, batch(2), 1)
    assert not unacknowledged.begins()
