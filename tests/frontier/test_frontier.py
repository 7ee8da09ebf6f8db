"""The Frontier's face: leases and outcomes, counts, back-pressure, failures, closing."""

from __future__ import annotations

import errno
from itertools import groupby
from operator import sub
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.frontier.errors import InvariantBroken, LeaseLost, PolicyError, StoreFull, StoreUnavailable
from anabranch.frontier.records import (
    BUSY,
    NEW,
    SEEN,
    GateKey,
    HostTrouble,
    Lease,
    Outcome,
    OutcomeKind,
    QueueKey,
    UrlState,
    VerdictKind,
    WaitsFor,
    name_id,
)
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.readylist import LOW_WINDOW
from anabranch.frontier.seen import ExactFilter
from anabranch.frontier.storelink import MAX_ROWS
from tests.frontier.builder import (
    HASTE,
    START_S,
    CountingStore,
    DelayingStore,
    FakeClock,
    ForgetfulFilter,
    FullFilter,
    Rig,
    build,
    candidates,
    pages,
)
from tests.rows import each_row

URL = "http://a.test/"


# Outcomes


@pytest.mark.parametrize("kind", [OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED])
def test_an_ending_outcome_ends_the_url(kind: OutcomeKind) -> None:
    """It leaves its queue, is counted by its kind, and is not fetched again."""
    rig = build()
    rig.add(URL)
    rig.finish(rig.lease_now(), kind)
    assert rig.core.is_done
    statistics = rig.core.operations.statistics()
    assert getattr(statistics, kind.value) == statistics.accepted == 1
    record = rig.core.operations.get(URL.encode())
    assert record is not None
    assert (record.state, record.outcome) == (UrlState.ENDED, kind.value)
    assert rig.add(URL) == [SEEN]


def test_when_a_gate_opens_is_known_of_those_in_memory() -> None:
    """Without asking the store. While its only slot is out, and under a block without end, no time opens it."""
    rig = build()
    gate = GateKey("a.test")
    assert rig.core.operations.opens_s(gate) is None
    rig.add(URL)
    lease = rig.lease_now()
    assert rig.core.operations.opens_s(gate) == float("inf")
    rig.finish(lease)
    rig.core.block(gate, START_S + 60.0)
    assert rig.core.operations.opens_s(gate) == START_S + 60.0
    rig.core.block(gate, float("inf"))
    assert rig.core.operations.opens_s(gate) == float("inf")


def test_a_page_and_its_outlinks_are_one_batch() -> None:
    """I3: no page is done unless its outlinks are with it; they know where they were found."""
    store = CountingStore()
    rig = build(store=store, politeness=HASTE)
    rig.add(URL)
    assert rig.finish(rig.lease_now(), links=["http://a.test/1", URL, "http://a.test/2"]) == [NEW, SEEN, NEW]
    _, batch = store.batches
    assert [ended.row.url for ended in batch.ended] == [URL]
    assert [(row.url, row.via) for row in batch.new] == [("http://a.test/1", 1), ("http://a.test/2", 1)]
    lease = rig.lease_now()
    assert (lease.url, lease.via) == ("http://a.test/1", URL)


def test_a_failing_url_leaves_the_head_and_waits() -> None:
    """Its queue goes on without it; it comes back when due, first, with its attempt counted."""
    rig = build(politeness=HASTE)
    urls = pages("a.test", 4)
    rig.add(*urls)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=10.0)
    second = rig.lease_now()
    assert (second.url, second.attempts) == (urls[1], 0)
    rig.finish(second)
    assert rig.core.operations.statistics().waiting == 1
    record = rig.core.operations.get(urls[0].encode())
    assert record is not None
    assert (record.state, record.attempts) == (UrlState.WAITING, 1)
    rig.clock.advance(10.0)
    again = rig.lease_now()
    assert (again.url, again.attempts) == (urls[0], 1)
    rig.finish(again, OutcomeKind.RETRY, after_s=5.0)
    assert rig.drain(0.0) == [urls[2], urls[3], urls[0]]


def test_a_queue_of_retries_only_is_snoozed() -> None:
    """It names the time of the first one; nothing is served before."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2))
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=20.0)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=10.0)
    assert rig.core.operations.statistics().queues["snoozed"] == 1
    rig.clock.advance(9.999)
    assert rig.lease() is None
    assert rig.core.wake() == (START_S + 10.0, WaitsFor.TIME)
    rig.add("http://a.test/new")
    assert rig.core.operations.statistics().queues["inactive"] == 1
    assert rig.drain(0.0) == ["http://a.test/new", "http://a.test/page1", "http://a.test/page0"]


def test_a_deferred_url_goes_back_to_its_old_place() -> None:
    """It is next in its lane, no attempt is counted; its slot rests as something was fetched (robots.txt)."""
    rig = build()
    urls = pages("a.test", 3)
    rig.add(*urls)
    rig.fetch(rig.lease_now(), 1.0, kind=OutcomeKind.DEFERRED)
    assert rig.lease() is None
    assert rig.core.wake() == (rig.clock.now_s + 5.0, WaitsFor.TIME)
    rig.clock.advance(5.0)
    lease = rig.lease_now()
    assert (lease.url, lease.attempts) == (urls[0], 0)
    rig.finish(lease, OutcomeKind.DEFERRED, fetched=False)
    assert rig.lease_now().url == urls[0], "nothing was fetched: the slot does not rest"


def test_a_deferred_retry_keeps_its_attempts() -> None:
    """It is due already, so it is next again."""
    rig = build(politeness=HASTE)
    rig.add(URL)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY)
    rig.finish(rig.lease_now(), OutcomeKind.DEFERRED)
    lease = rig.lease_now()
    assert lease.attempts == 1
    rig.finish(lease)
    rig.core.operations.check()


@pytest.mark.parametrize("trouble", [HostTrouble.THROTTLED, HostTrouble.UNAVAILABLE, HostTrouble.UNREACHABLE])
def test_a_trouble_closes_the_gate_from_now(trouble: HostTrouble) -> None:
    """429, 503, no connection: no URL of the host before Retry-After, even if the slot has rested; others go on."""
    rig = build()
    rig.add(*pages("a.test", 2))
    lease = rig.lease_now()
    rig.fetch(lease, 1.0, kind=OutcomeKind.RETRY, after_s=1.0, trouble=trouble, retry_after_s=600.0)
    rig.add("http://b.test/")
    assert rig.lease_now().url == "http://b.test/"
    assert rig.lease_next() is not None
    assert rig.clock.now_s == START_S + 601.0


def test_troubles_in_a_row_close_the_gate_for_longer() -> None:
    """Also when the host asks for nothing: one minute, two, four, a tenth more at most."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 4))
    waits = []
    for _ in range(3):
        lease = rig.lease_next()
        assert lease is not None
        waits.append(rig.clock.now_s)
        rig.finish(lease, trouble=HostTrouble.UNREACHABLE)
    assert rig.lease_next() is not None
    waits.append(rig.clock.now_s)
    for wait_s, base_s in zip(map(sub, waits[1:], waits), (60.0, 120.0, 240.0), strict=True):
        assert base_s <= wait_s <= 1.1 * base_s


def test_a_lease_can_be_given_back_once() -> None:
    """Finished, released or foreign: the second time it is lost, and nothing else changes."""
    rig, other = build(), build(clock=FakeClock(START_S + 1.0))
    rig.add(*pages("a.test", 2))
    other.add(*pages("a.test", 2))
    done, foreign = rig.lease_now(), other.lease_now()
    with pytest.raises(LeaseLost):
        rig.finish(foreign)
    rig.finish(done)
    with pytest.raises(LeaseLost):
        rig.finish(done)
    with pytest.raises(LeaseLost):
        rig.core.release(done)
    assert (rig.core.pending, rig.core.in_flight) == (1, 0)
    rig.core.operations.check()


def test_counts_are_exact_at_every_moment() -> None:
    """pending, in_flight, is_done and the kinds add up to what was accepted."""
    rig = build(policy="bkdr:10", politeness=HASTE)
    rig.add(*pages("a.test", 10))
    assert (rig.core.pending, rig.core.in_flight, rig.core.is_done) == (10, 0, False)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=5)
    lease = rig.lease_now()
    assert (rig.core.pending, rig.core.in_flight) == (9, 1)
    statistics = rig.core.operations.statistics()
    assert (statistics.pending, statistics.waiting, statistics.in_flight, statistics.accepted) == (9, 1, 1, 10)
    assert (statistics.gates, statistics.gates_open, statistics.unsynced_rows) == (1, 0, 0)
    assert statistics.seen["keys"] == 10.0
    assert sum(statistics.queues.values()) == len({lease.queue, *(f"bkdr:{n}" for n in range(10))}) == 10
    same = set(rig.core.counts()._fields) - {"queues", "trouble"}
    assert all(getattr(rig.core.counts(), name) == getattr(statistics, name) for name in same), "without the looks"
    assert rig.core.counts().queues["all"] == 10
    assert repr(rig.core) == "<Frontier 9 pending, 1 in flight>"
    rig.finish(lease)
    rig.drain(0.0)
    assert (rig.core.pending, rig.core.in_flight, rig.core.is_done) == (0, 0, True)
    assert rig.core.now_s() == rig.clock.now_s


def test_counts_look_neither_at_gates_nor_at_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be asked for as often as a display likes."""
    rig = build()
    rig.add(*pages("a.test", 10))
    rig.core.take_answers()
    monkeypatch.delattr(Gate, "opens_s")
    monkeypatch.delattr(ExactFilter, "facts")
    assert (rig.core.counts().pending, rig.core.counts().gates) == (10, 1)


def test_ended_tells_apart_what_has_ended() -> None:
    """By key; nothing is said of queued URLs and strangers."""
    rig = build()
    rig.add("http://a.test/1", "http://a.test/2")
    rig.finish(rig.lease_now())
    ((key, record),) = rig.core.operations.ended([b"http://a.test/1", b"http://a.test/2", b"http://b.test/"]).items()
    assert (key, record.state, record.status) == (b"http://a.test/1", UrlState.ENDED, 200)


def test_nothing_is_known_of_a_url_that_was_never_scheduled() -> None:
    """And a queued one is queued."""
    rig = build()
    rig.add(URL)
    assert rig.core.operations.get(b"http://b.test/") is None
    record = rig.core.operations.get(URL.encode())
    assert record is not None
    assert (record.url, record.state, record.ordinal) == (URL, UrlState.QUEUED, 1)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_delay_without_end_is_refused(number: float) -> None:
    """The store could not keep it, or the host would never be fetched from again; the Frontier goes on."""
    rig = build()
    rig.add(URL)
    with pytest.raises(PolicyError, match=r"a\.test: give a finite number"):
        rig.core.set_delay(GateKey("a.test"), number)
    lease = rig.lease_now()
    with pytest.raises(PolicyError, match="give a finite number"):
        rig.core.finish(lease, Outcome(OutcomeKind.RETRY, after_s=number))
    rig.finish(lease)
    assert rig.core.is_done


#: What every store can keep.
USUAL: dict[str, Any] = {
    "kind": OutcomeKind.DONE, "status": (1 << 63) - 1, "start_s": 1.0, "end_s": 2.0, "after_s": 0.0,
    "trouble": HostTrouble.NONE, "retry_after_s": float("inf"),
}  # fmt: skip


@each_row(
    "wrong",
    [{side: number} for side in ("start_s", "end_s") for number in (float("nan"), float("inf"), float("-inf"))]
    + [{"status": 1 << 63}, {"status": -(1 << 63) - 1}, {"status": 200.5}, {"kind": "done"}]
    + [{"after_s": float("-inf")}, {"retry_after_s": None}, {"retry_after_s": float("nan")}, {"trouble": "none"}],
)
def test_an_outcome_that_no_store_could_keep_is_refused(wrong: dict[str, Any]) -> None:
    """Before any change: neither its links nor its end are taken, and the lease can be ended in order."""
    rig = build()
    rig.add(URL)
    lease = rig.lease_now()
    outcome = Outcome(OutcomeKind.DONE, 200, lease.since_s, lease.since_s)._replace(**wrong)
    with pytest.raises(PolicyError, match=r"^http://a\.test/.*: give ") as refused:
        rig.core.finish(lease, outcome, candidates("http://b.test/"))
    assert "\n" not in str(refused.value)
    assert (rig.core.in_flight, rig.core.operations.get(b"http://b.test/")) == (1, None)
    rig.core.finish(lease, outcome._replace(**USUAL))
    assert rig.core.is_done
    rig.core.operations.check()


@pytest.mark.parametrize("slots", [0, -1, 1.5, 10**30])
def test_slots_that_make_no_sense_are_refused(slots: int) -> None:
    """The gate is as it was."""
    rig = build()
    rig.add(URL)
    with pytest.raises(PolicyError, match="give a whole number from 1 to"):
        rig.core.set_slots(GateKey("a.test"), slots)
    rig.finish(rig.lease_now())
    assert rig.core.is_done


def test_a_block_until_no_time_is_refused() -> None:
    """It would neither close the gate nor say why not."""
    with pytest.raises(PolicyError, match="blocked until nan"):
        build().core.block(GateKey("a.test"), float("nan"))


def test_a_key_that_is_text_is_refused_before_the_store_is_asked() -> None:
    """The Frontier goes on."""
    rig = build()
    rig.add(URL)
    with pytest.raises(TypeError, match="a dedup key is bytes"):
        rig.core.operations.get(URL)  # type: ignore[arg-type]
    rig.finish(rig.lease_now())


def test_a_negative_delay_is_none() -> None:
    """The gate keeps its slots."""
    rig = build()
    rig.core.set_delay(GateKey("a.test"), -1.0)
    rig.add(URL)
    rig.finish(rig.lease_now())
    assert rig.store.ended_after(0, 1)[0].outcome is OutcomeKind.DONE


# Leases that end without a word


LEASE_S = 2400.0


def test_a_lease_that_is_not_renewed_is_lost() -> None:
    """Its URL is first again, no attempt is counted; the slot rests, as its fetch may go on up to now (I4, I6)."""
    rig = build(lease_s=LEASE_S)
    urls = pages("a.test", 2)
    rig.add(*urls)
    lost = rig.core.lease()
    assert lost is not None
    assert lost.until_s == START_S + LEASE_S
    assert rig.core.wake() == (START_S + LEASE_S, WaitsFor.TIME | WaitsFor.FINISH)
    rig.clock.advance(LEASE_S)
    assert rig.core.lease() is None
    assert rig.core.wake() == (START_S + LEASE_S + 30.0, WaitsFor.TIME), "the rest of a fetch of 2400 s"
    assert rig.core.operations.statistics().leases_lost == 1
    rig.core.operations.check()
    rig.clock.advance(30.0)
    again = rig.core.lease()
    assert again is not None
    assert (again.url, again.attempts) == (urls[0], 0)
    rig.core.operations.check()


def test_a_finish_for_a_lease_that_expired_is_lost() -> None:
    """Also when its URL is leased again by then; the new lease is not touched, and no link is taken."""
    rig = build(lease_s=LEASE_S, politeness=HASTE)
    rig.add(URL)
    lost = rig.core.lease()
    assert lost is not None
    rig.clock.advance(LEASE_S)
    again = rig.core.lease()
    assert again is not None
    assert again.ordinal == lost.ordinal
    for call in (
        lambda: rig.core.finish(lost, Outcome(OutcomeKind.DONE), candidates("http://b.test/")),
        lambda: rig.core.release(lost),
        lambda: rig.core.renew(lost),
    ):
        with pytest.raises(LeaseLost, match=r"the lease of http://a\.test/ is not out"):
            call()
    assert (rig.core.in_flight, rig.core.pending) == (1, 0)
    rig.core.finish(again, Outcome(OutcomeKind.DONE))
    assert rig.core.is_done
    rig.core.operations.check()


def test_a_renewed_lease_lasts_for_as_long_again() -> None:
    """From the moment of the renewal; the new lease and the old one name the same."""
    rig = build(lease_s=LEASE_S)
    rig.add(URL)
    lease = rig.lease_now()
    rig.clock.advance(LEASE_S - 1.0)
    renewed = rig.core.renew(lease)
    assert renewed == lease._replace(until_s=START_S + 2 * LEASE_S - 1.0)
    rig.clock.advance(2.0)
    assert rig.lease() is None
    assert rig.core.in_flight == 1
    assert rig.core.wake().at_s == renewed.until_s
    rig.finish(renewed)
    assert rig.core.is_done
    assert rig.core.wake() == (None, WaitsFor.URLS)


def test_without_a_term_a_lease_ends_only_with_its_process() -> None:
    """However late it is finished."""
    rig = build(politeness=HASTE)
    rig.add(URL)
    lease = rig.lease_now()
    assert rig.core.wake() == (None, WaitsFor.FINISH | WaitsFor.URLS)
    rig.clock.advance(1e9)
    assert rig.lease() is None
    rig.finish(rig.core.renew(lease))
    assert rig.core.is_done


# What it waits for


def test_an_empty_frontier_waits_for_urls() -> None:
    """No time will help."""
    assert build().core.wake() == (None, WaitsFor.URLS)


def test_a_closed_gate_is_waited_for() -> None:
    """Until it opens; with a lease out its end may come first."""
    rig = build(policy="bkdr:7", politeness=Politeness(slots=2, min_delay_s=5.0))
    rig.add(*pages("a.test", 20))
    rig.finish(rig.lease_now())
    lease = rig.lease_now()
    assert rig.lease() is None
    assert rig.core.wake() == (START_S + 5.0, WaitsFor.TIME | WaitsFor.FINISH)
    rig.finish(lease)
    assert rig.core.wake() == (START_S + 5.0, WaitsFor.TIME)


def test_rows_that_are_on_their_way_are_waited_for() -> None:
    """The store's answer will bring a lease, no time will."""
    store = DelayingStore()
    rig = build(store=store)
    rig.add(URL)
    assert rig.core.wake() == (None, WaitsFor.STORE)
    store.flush()
    assert rig.lease() is None
    assert rig.core.wake() == (None, WaitsFor.STORE)
    store.flush()
    assert rig.core.can_lease()
    rig.lease_now()
    assert not rig.core.can_lease()


def test_what_stands_in_paused_queues_waits_for_the_operator() -> None:
    """And the crawl is not done; with a URL elsewhere it does not wait for him."""
    rig = build()
    rig.add(URL)
    rig.core.operations.pause(QueueKey("a.test"))
    assert rig.lease() is None
    assert rig.core.wake() == (None, WaitsFor.OPERATOR)
    assert not rig.core.is_done
    rig.add("http://b.test/")
    assert WaitsFor.OPERATOR not in rig.core.wake().waits_for
    rig.finish(rig.lease_now())
    assert rig.core.wake().waits_for & WaitsFor.OPERATOR
    assert rig.lease() is None
    assert not rig.core.is_done


def test_retired_urls_do_not_keep_the_crawl_from_ending() -> None:
    """They are counted apart, and kept."""
    rig = build()
    rig.add(*pages("a.test", 3))
    rig.add("http://b.test/")
    rig.core.operations.retire(QueueKey("a.test"))
    assert (rig.core.pending, rig.core.is_done) == (1, False)
    rig.finish(rig.lease_now())
    assert rig.lease() is None
    assert (rig.core.pending, rig.core.is_done) == (0, True)
    statistics = rig.core.operations.statistics()
    assert (statistics.retired, statistics.done, statistics.accepted) == (3, 1, 4)
    rig.core.operations.check()


def test_a_lease_of_a_retired_queue_keeps_the_crawl_from_ending() -> None:
    """It ends in order, with its links."""
    rig = build()
    rig.add(*pages("a.test", 2))
    lease = rig.lease_now()
    rig.core.operations.retire(QueueKey("a.test"))
    assert (rig.core.in_flight, rig.core.pending, rig.core.is_done) == (1, 0, False)
    rig.core.operations.check()
    rig.finish(lease, links=["http://b.test/"])
    assert rig.drain() == ["http://b.test/"]
    assert rig.core.is_done
    rig.core.operations.check()


# Said and durable; back-pressure


def test_each_call_that_changes_something_has_a_number() -> None:
    """I9: it is acknowledged when `durable` has reached it, and that is when the store has synced."""
    store = DelayingStore()
    rig = build(store=store)
    rig.add(URL)
    rig.add("http://b.test/")
    assert (rig.core.unacknowledged.last, rig.core.unacknowledged.durable) == (2, 0)
    store.work_all()
    assert rig.core.wake()
    assert rig.core.unacknowledged.durable == 0, "written is not synced"
    store.commit()
    assert rig.core.wake()
    assert (rig.core.unacknowledged.last, rig.core.unacknowledged.durable) == (2, 2)


def test_a_flush_makes_a_change_durable_that_waited_for_its_gate_to_be_read() -> None:
    """I9: what the operator said before it, such as a block of a gate that nobody had read, is in the store after it."""
    store = DelayingStore()
    rig = build(store=store)
    rig.core.block(GateKey("a.test"), START_S + 60.0)
    rig.core.flush()
    row = store.gate(name_id("a.test"))
    assert row is not None
    assert row.blocked_until_s == START_S + 60.0
    assert rig.core.unacknowledged.durable == rig.core.unacknowledged.last >= 1


def test_schedule_is_busy_while_too_many_rows_are_not_durable() -> None:
    """All of a batch are told to come again, none is taken; then they are."""
    store = DelayingStore()
    rig = build(store=store)
    rig.add(*pages("a.test", MAX_ROWS - 1))
    assert rig.add(*pages("b.test", 2)) == [NEW, NEW], "a batch is never split"
    assert rig.add(*pages("c.test", 3)) == [BUSY] * 3
    assert rig.lease() is None
    assert rig.core.wake() == (None, WaitsFor.STORE)
    store.flush()
    assert rig.add(*pages("c.test", 3)) == [NEW] * 3


def test_lease_waits_while_too_many_finishes_are_not_durable() -> None:
    """So a crash repeats at most `max_unacknowledged` fetches; `finish` is always taken."""
    store = DelayingStore()
    rig = build(store=store, max_unacknowledged=2, politeness=HASTE)
    rig.add(*(f"http://{host}.test/" for host in "abcd"))
    leases = all_from(rig, store)
    assert len(leases) == 4, "the bound is on finishes, not on leases"
    links = iter(pages("e.test", 4))
    for lease in leases:
        assert rig.finish(lease, links=[next(links)]) == [NEW]
    assert rig.lease() is None
    assert rig.core.wake() == (None, WaitsFor.STORE)
    assert rig.add("http://f.test/") == [BUSY]
    assert [lease.gate for lease in all_from(rig, store)] == ["e.test"]


def test_a_store_is_hurried_when_half_of_what_may_be_behind_is() -> None:
    """So a crawl never waits for a store that gathers more; once for each half, and once more when it is full."""
    store = DelayingStore()
    rig = build(store=store, max_unacknowledged=4, politeness=HASTE)
    rig.core.schedule(candidates(*[f"http://{number}.test/" for number in range(6)]))
    leases = all_from(rig, store)
    store.hurried = 0
    told = []
    for lease in leases[:4]:
        rig.core.finish(lease, Outcome(kind=OutcomeKind.DONE))
        told.append(store.hurried)
    assert told == [0, 1, 1, 2]
    assert rig.core.lease() is None
    assert store.hurried == 3
    rig.core.hurry()
    assert store.hurried == 4


def test_a_store_is_hurried_when_nothing_can_be_leased_but_what_it_reads() -> None:
    """Not while there is a lease to be had, nor when only time or an end of a lease would help."""
    store = DelayingStore()
    rig = build(store=store, policy="bkdr:1")
    rig.core.schedule(candidates(*pages("a.test", 30)))
    store.flush()
    store.hurried = 0
    assert rig.core.lease() is None, "heads are on their way"
    assert store.hurried == 1
    store.flush()
    lease = rig.core.lease()
    assert lease is not None
    assert rig.core.lease() is None, "its slot is out"
    assert store.hurried == 1


def all_from(rig: Rig, store: DelayingStore) -> list[Lease]:
    """All leases that can be had now, if the store does what it is told."""
    leases: list[Lease] = []
    for _ in range(20):
        store.flush()
        leases += rig.lease_all()
    return leases


def test_the_filter_knows_nothing_that_is_not_committed() -> None:
    """I8, at every step of a store that is slow."""
    store, seen = DelayingStore(), FullFilter()
    rig = build(store=store, seen=seen, politeness=HASTE)
    rig.add(*pages("a.test", 3))
    for turn in range(60):
        lease = rig.lease()
        if lease is not None:
            rig.finish(lease, links=pages(f"{turn}.test", 3))
        store.work(1)
        assert seen._keys <= store.committed_keys
        if turn % 3 == 0:
            store.commit()
    rig.core.flush()
    assert seen._keys == store.committed_keys
    assert len(seen._keys) > 30


def test_a_duplicate_that_the_filter_lets_through_dies_in_the_store() -> None:
    """Its verdict was NEW; the counts are corrected when the store tells."""
    store = DelayingStore()
    rig = build(store=store, seen=ForgetfulFilter(), politeness=HASTE)
    rig.add(URL)
    store.flush()
    assert rig.core.pending == 1
    assert rig.add(URL, "http://a.test/2") == [NEW, NEW]
    assert rig.core.pending == 3
    store.flush()
    rig.core.operations.check()
    assert rig.core.pending == 2
    fetched = []
    while not rig.core.is_done:
        store.flush()
        if (lease := rig.lease()) is not None:
            fetched.append(lease.url)
            rig.finish(lease, links=[URL])
    assert fetched == [URL, "http://a.test/2"]
    rig.core.operations.check()


class SlowRun:
    """A Frontier over a slow store, and what its leases say."""

    URLS = pages("a.test", 2 * LOW_WINDOW + 14) + pages("b.test", 6)

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.store = DelayingStore()
        seen = ForgetfulFilter() if self.draw(st.booleans(), label="forgetful") else None
        policy = self.draw(st.sampled_from(["host", "bkdr:1", "bkdr:3"]), label="policy")
        self.rig = build(store=self.store, seen=seen, policy=policy, politeness=HASTE)
        self.accepted: set[str] = set()
        self.leases: dict[str, Lease] = {}
        self.ended: list[str] = []

    def add(self, *, front: bool = False) -> None:
        start = self.draw(st.integers(0, len(self.URLS) - 1))
        batch = self.URLS[start : start + self.draw(st.sampled_from([1, 5, 20]))]
        self.rig.add(*batch, front=front)
        self.accepted.update(batch)

    def front(self) -> None:
        self.add(front=True)

    def work(self) -> None:
        self.store.work(self.draw(st.integers(1, 4)))

    def commit(self) -> None:
        self.store.commit()

    def lease(self) -> None:
        lease = self.rig.lease()
        if lease is not None:
            assert lease.url not in self.leases
            assert lease.url not in self.ended
            self.leases[lease.url] = lease

    def release(self) -> None:
        self.rig.release(self.some_lease())

    def finish(self) -> None:
        lease = self.some_lease()
        self.rig.finish(lease)
        self.ended.append(lease.url)

    def retry(self) -> None:
        self.rig.finish(self.some_lease(), OutcomeKind.RETRY, after_s=self.draw(st.sampled_from([0.0, 5.0])))
        self.rig.clock.advance(1.0)

    def defer(self) -> None:
        self.rig.finish(self.some_lease(), OutcomeKind.DEFERRED)

    def some_lease(self) -> Lease:
        return self.leases.pop(self.draw(st.sampled_from(sorted(self.leases))))

    def drain(self) -> None:
        for lease in self.leases.values():
            self.rig.release(lease)
        self.store.flush()
        while (lease := self.rig.lease_next()) is not None or self.store.behind:
            self.store.flush()
            if lease is not None:
                self.ended.append(lease.url)
                self.rig.finish(lease)
        self.rig.core.operations.check()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_slow_store_never_causes_a_double_lease(data: st.DataObject) -> None:
    """Answers that come when their rows are leased, finished, moved or dropped: each URL is served once, in any
    interleaving of calls, work and commits; a filter that forgets changes nothing.
    """
    run = SlowRun(data)
    always = [run.add, run.front, run.lease, run.lease, run.lease, run.work, run.work, run.commit]
    with_a_lease = [run.finish, run.finish, run.finish, run.release, run.retry, run.defer]
    for _ in range(data.draw(st.integers(20, 80), label="steps")):
        data.draw(st.sampled_from(always + with_a_lease if run.leases else always))()
    run.drain()
    assert sorted(run.ended) == sorted(run.accepted)
    assert run.rig.core.is_done


# Failures


def test_after_the_store_failed_every_call_says_so() -> None:
    """The error is kept; closing is possible and does not call the state clean."""
    store, seen = DelayingStore(), FullFilter()
    rig = build(store=store, seen=seen)
    rig.add(*pages("a.test", 2))
    (lease,) = all_from(rig, store)
    error = StoreUnavailable("gone")
    store.fail(error)
    calls = [
        lambda: rig.add("http://b.test/"),
        rig.core.lease,
        rig.core.wake,
        lambda: rig.finish(lease),
        lambda: rig.block("a.test", 0.0),
        lambda: rig.unblock("a.test"),
        lambda: rig.set_delay("a.test", 1.0),
        rig.core.operations.statistics,
        rig.core.flush,
        rig.core.operations.check,
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable) as caught:
            call()
        assert caught.value is error
    rig.core.close()
    assert (store.closed, seen.calls) == ([False], ["mark", "close"])


def test_a_release_after_the_failure_says_so_too() -> None:
    """The lease is gone all the same: the process can only end."""
    store = DelayingStore()
    rig = build(store=store)
    rig.add(URL)
    (lease,) = all_from(rig, store)
    store.fail(StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable, match="gone"):
        rig.core.release(lease)
    assert rig.core.in_flight == 0


def test_a_filter_that_cannot_be_marked_is_a_full_store() -> None:
    """The disk is full for the filter as it is for the store; every later call says so, and nothing is called clean."""
    store = CountingStore()
    rig = build(store=store, seen=FullFilter("mark"))
    rig.add(URL)
    with pytest.raises(StoreFull, match=r"the filter cannot be written: .*No space left") as caught:
        rig.lease()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(StoreFull):
        rig.core.wake()
    rig.core.close()
    assert store.closed == [False]


def test_a_store_that_counts_otherwise_is_a_broken_invariant() -> None:
    """`check` compares totals with the rows."""
    rig = build()
    rig.add(URL)
    rig.core.operations.check()
    rig.core._store_link.queued += 1
    with pytest.raises(InvariantBroken, match="the store counts"):
        rig.core.operations.check()


# Closing


def build_lease() -> Lease:
    """A lease of another Frontier."""
    other = build()
    other.add(URL)
    return other.lease_now()


class OrderedStore(CountingStore):
    """Writes its calls into the filter's list, so that the order of both can be read."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self, *, clean: bool) -> None:
        self.calls.append(f"store closed, {clean=}")
        super().close(clean=clean)


def test_closing_flushes_then_syncs_the_filter_then_calls_the_store_clean() -> None:
    """The filter's marks are durable before the store says that they need not be made again; closing twice is one."""
    seen = FullFilter()
    rig = build(seen=seen, store=OrderedStore(seen.calls))
    rig.core.close()
    rig.core.close()
    assert [call for call, _ in groupby(seen.calls)] == ["flush", "sync", "close", "store closed, clean=True"]


def test_a_with_block_closes() -> None:
    """Also when it ends by an error, which passes."""
    store = CountingStore()
    rig = build(store=store)
    with pytest.raises(LeaseLost), rig.core as core:
        core.release(build_lease())
    assert store.closed == [True]


@pytest.mark.parametrize("failing", ["sync", "close"])
def test_a_filter_that_cannot_be_written_at_the_end_is_a_full_store(failing: str) -> None:
    """All is let go of, the store is not called clean, the error says what failed."""
    store, seen = CountingStore(), FullFilter(failing)
    rig = build(store=store, seen=seen)
    with pytest.raises(StoreFull, match="the filter cannot be written"):
        rig.core.close()
    assert store.closed == [False]
    assert seen.calls == ["sync", "close"]


class BrokenFilter(FullFilter):
    """No file of it can be written."""

    def sync(self) -> None:
        raise OSError(errno.EIO, "no", "first")

    def close(self) -> None:
        raise OSError(errno.EIO, "no", "second")


def test_of_files_that_fail_at_the_end_the_first_is_named() -> None:
    """The others may fail by the same disk."""
    rig = build(store=(store := CountingStore()), seen=BrokenFilter())
    with pytest.raises(StoreUnavailable, match=r"^the filter cannot be written: no \(first\); look at the disk"):
        rig.core.close()
    assert store.closed == [False]


def test_a_store_that_fails_while_it_is_flushed_is_not_called_clean() -> None:
    """The last answers are read at closing, too."""
    store = DelayingStore()
    rig = build(store=store)
    store.fail(StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable, match="gone"):
        rig.core.close()
    assert store.closed == [False]


def test_outcomes_without_both_times_fetched_nothing() -> None:
    """A slot rests only after a fetch that began and ended."""
    rig = build()
    rig.add(*pages("a.test", 2))
    rig.core.finish(rig.core.lease(), Outcome(kind=OutcomeKind.DONE, start_s=START_S))
    assert rig.core.lease() is not None


def test_finish_is_taken_with_links_of_every_kind() -> None:
    """Verdicts as `schedule` gives them."""
    rig = build()
    rig.add(URL)
    lease = rig.lease_now()
    verdicts = rig.core.finish(lease, Outcome(kind=OutcomeKind.DONE), candidates("http://b.test/", "no url", URL))
    assert [verdict.kind for verdict in verdicts] == [VerdictKind.NEW, VerdictKind.REFUSED, VerdictKind.SEEN]
