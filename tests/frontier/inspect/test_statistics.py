"""Figures for observers: counts by state, and why nothing runs."""

from __future__ import annotations

import pytest

from anabranch.frontier.inspect.statistics import IdleFacts, count, examine, why_idle
from anabranch.frontier.records import Candidate, GateKey, OutcomeKind, QueueKey
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from tests.frontier.builder import HASTE, START_S, DelayingStore, Rig, build, pages
from tests.rows import each_row

URL = "http://a.test/"


def idle(rig: Rig) -> str:
    """Why `lease` has just answered None."""
    assert rig.lease() is None
    return rig.core.operations.statistics().why_idle


# Why nothing runs


def test_an_open_gate_is_no_reason() -> None:
    """Something can be leased: nothing is said, whether its heads are in memory or not."""
    rig = build()
    rig.add(URL)
    assert rig.core.operations.statistics().why_idle == ""
    lease = rig.lease_now()
    rig.release(lease)
    assert rig.core.operations.statistics().why_idle == ""


def test_nothing_is_queued() -> None:
    """And when all is leased that was."""
    rig = build()
    assert idle(rig) == "nothing is queued"
    rig.add(URL)
    rig.lease_now()
    assert idle(rig) == "1 URL leased, none queued"


def test_closed_gates_are_counted_and_the_first_to_open_is_named() -> None:
    """Those that have URLs; blocked, resting or out."""
    rig = build()
    rig.add(*pages("a.test", 2), *pages("b.test", 2))
    rig.block("a.test", START_S + 60.0)
    rig.finish(rig.lease_now())
    words = idle(rig)
    assert words.startswith("2 gates that have URLs are closed, none is open; the first opens ")
    assert words.endswith(", in 3.0s")


def test_retries_are_counted_and_the_first_to_come_due_is_named() -> None:
    """If nothing else is left."""
    rig = build(politeness=HASTE)
    rig.add(URL)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=60.0)
    words = idle(rig)
    assert words.startswith("1 URL wait for a retry; the first is due ")
    assert words.endswith(", in 1m")


def test_a_gate_whose_slots_are_all_out_is_closed_without_a_time() -> None:
    """Only the end of a lease opens it."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2))
    rig.lease_now()
    assert idle(rig) == "1 gate that has URLs is closed, none is open"


def test_a_lease_that_must_come_back_is_the_reason_where_the_gate_is_open() -> None:
    """Its queue may have one URL out, and holds all there is."""
    rig = build(politeness=Politeness(slots=2))
    rig.add(*pages("a.test", 2))
    rig.lease_now()
    assert idle(rig) == "one of 1 lease must come back"


@pytest.mark.parametrize(("order", "state"), [("pause", "paused"), ("retire", "retired")])
def test_queues_that_are_held_back_are_what_is_left(order: str, state: str) -> None:
    """With what to do about it."""
    rig = build()
    rig.add(URL)
    getattr(rig.core.operations, order)(QueueKey("a.test"))
    assert idle(rig) == f"all that is left: 1 URL in {state} queues; resume them, or raise their budgets"


def test_a_frontier_that_has_read_nothing_yet_gives_no_reason() -> None:
    """After an opening what can be leased is in the store."""
    rig = build()
    rig.add(*pages("a.test", 2), URL.replace("a", "b"))
    rig.core.operations.pause(QueueKey("a.test"))
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock)
    assert again.core.operations.statistics().why_idle == ""
    assert again.lease() is not None


# Counts


def test_queues_are_counted_by_what_they_do() -> None:
    """Each is in one state, and none is missing."""
    rig = build(politeness=Politeness(min_delay_s=5.0))
    rig.add(*(f"http://{host}.test/{page}" for host in "abcdef" for page in range(2)))
    operations = rig.core.operations
    operations.pause(QueueKey("a.test"))
    operations.retire(QueueKey("b.test"))
    leases = {lease.queue: lease for lease in rig.lease_all()}
    assert leases.keys() == {"c.test", "d.test", "e.test", "f.test"}
    rig.finish(leases[QueueKey("c.test")])
    rig.finish(leases[QueueKey("d.test")], OutcomeKind.RETRY, after_s=9.0)
    statistics = rig.core.operations.statistics()
    assert {state: number for state, number in statistics.queues.items() if number} == {
        "paused": 1, "retired": 1, "in-flight": 2, "ready": 2
    }  # fmt: skip
    assert statistics.queues.keys() == {state.value for state in QueueState}
    assert (statistics.parked, statistics.gates_open, statistics.gates) == (2, 2, 6)
    assert rig.core.counts().queues["all"] == sum(statistics.queues.values())


def test_every_url_is_counted_once() -> None:
    """pending, retired, leased and ended ones add up to what was accepted; waiting ones are pending."""
    rig = build(politeness=HASTE)
    rig.add(*(f"http://{host}.test/{page}" for host in "abcdef" for page in range(2)))
    rig.core.operations.retire(QueueKey("a.test"))
    kinds = [OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED, OutcomeKind.RETRY]
    for kind in kinds:
        rig.finish(rig.lease_now(), kind, after_s=60.0)
    rig.lease_now()
    statistics = rig.core.operations.statistics()
    assert (statistics.done, statistics.failed, statistics.disregarded, statistics.waiting) == (1, 1, 1, 1)
    assert (statistics.pending, statistics.in_flight, statistics.retired, statistics.accepted) == (6, 1, 2, 12)


def test_counts_are_taken_without_the_store() -> None:
    """A display may ask while the store is busy; `statistics` waits for it, and tells how far it was behind."""
    store = DelayingStore()
    rig = build(store=store)
    rig.add(URL)
    assert count(rig.parts, rig.clock()).pending == 1
    statistics = examine(rig.parts, {}, rig.parts.store_link.unacknowledged.behind, START_S)
    assert (statistics.pending, statistics.unsynced_rows) == (1, 1)
    assert "rows of the store are awaited" in statistics.why_idle
    assert [rig.core.operations.statistics().unsynced_rows for _ in range(2)] == [1, 0]


def test_a_store_that_is_behind_is_the_reason() -> None:
    """Whatever else may be."""
    store = DelayingStore()
    rig = build(store=store, max_unacknowledged=1)
    rig.add(URL, "http://b.test/")
    for _ in range(5):
        store.flush()
        rig.core.take_answers()
        lease = rig.lease()
        if lease is not None:
            break
    assert lease is not None
    rig.finish(lease)
    assert rig.core.operations.explain("http://b.test/").reason.startswith("the store is behind")
    assert "the store is behind" not in rig.core.operations.explain("http://b.test/").reason
    rig.finish(rig.settled())
    assert rig.core.operations.statistics().why_idle.startswith("the store is behind")
    assert rig.core.operations.statistics().why_idle == "nothing is queued"


def test_the_filters_figures_are_told() -> None:
    """By name."""
    rig = build()
    rig.core.schedule([Candidate(URL)])
    assert rig.core.operations.statistics().seen["keys"] == 1.0
    rig.core.set_delay(GateKey("a.test"), 1.0)
    assert rig.core.operations.statistics().gates == 1


NOW_S = 1_000_000.0


@each_row(
    ("facts", "words"),
    [
        (IdleFacts(0), "nothing is queued"),
        (IdleFacts(0, in_flight=1), "1 URL leased, none queued"),
        (
            IdleFacts(5, store_behind=True),
            "the store is behind: nothing is leased until it has caught up",
        ),
        (IdleFacts(5, trouble="waits for the filter", store_behind=True), "the store waits for the filter"),
        (IdleFacts(5, reading=True), "rows of the store are awaited"),
        (IdleFacts(5, in_flight=3), "one of 3 leases must come back"),
        (IdleFacts(5, paused=5), "all that is left: 5 URLs in paused queues; resume them, or raise their budgets"),
        (
            IdleFacts(5, paused=2, retired=3),
            "all that is left: 2 URLs in paused queues and 3 URLs in retired queues; resume them, or raise their budgets",
        ),
        (IdleFacts(9, in_flight=2, retired=3), "one of 2 leases must come back; 3 URLs in retired queues"),
        (IdleFacts(5), ""),
    ],
)
def test_what_is_waited_for_is_said(facts: IdleFacts, words: str) -> None:
    """Each cause has its words; what can be leased has none."""
    assert why_idle(facts, NOW_S) == words


@pytest.mark.parametrize(
    ("facts", "begin", "end"),
    [
        (
            IdleFacts(5, closed_gates=1, opens_s=NOW_S + 12),
            "1 gate that has URLs is closed, none is open; the first opens at ",
            ", in 12s",
        ),
        (
            IdleFacts(5, closed_gates=2000, opens_s=NOW_S + 12, in_flight=7),
            "2,000 gates that have URLs are closed, none is open; the first opens at ",
            ", in 12s",
        ),
        (
            IdleFacts(5, waiting=3, paused=2, due_s=NOW_S + 60),
            "3 URLs wait for a retry; the first is due at ",
            ", in 1m; 2 URLs in paused queues",
        ),
    ],
)
def test_what_time_will_change_is_said_with_the_time(facts: IdleFacts, begin: str, end: str) -> None:
    """Whoever looks knows when to look again."""
    words = why_idle(facts, NOW_S)
    assert words.startswith(begin)
    assert words.endswith(end)


def test_gates_that_are_blocked_for_good_have_no_time() -> None:
    """Only the operator can open them."""
    facts = IdleFacts(5, closed_gates=2, opens_s=float("inf"))
    assert why_idle(facts, NOW_S) == "2 gates that have URLs are closed, none is open"


def test_gates_that_nobody_has_in_memory_are_waited_for_too() -> None:
    """Right after an opening all gates are rows, and the store has said when the first of them opens."""
    words = why_idle(IdleFacts(5, opens_s=NOW_S + 12), NOW_S)
    assert words.startswith("every gate that has URLs is closed; the first opens at ")
    assert words.endswith(", in 12s")
    assert why_idle(IdleFacts(5, opens_s=NOW_S), NOW_S) == ""
