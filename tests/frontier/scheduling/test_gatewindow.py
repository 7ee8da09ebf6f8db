"""The gates that are in memory, and those that are rows."""

from __future__ import annotations

import math
from collections import Counter
from heapq import nlargest
from typing import Any

import pytest

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import Outcome, OutcomeKind, WaitsFor
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.scheduling import gatewindow
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.stores.messages import GateRow
from tests.frontier.builder import HASTE, START_S, CountingStore, DelayingStore, Rig, build, pages

DONE = Outcome(OutcomeKind.DONE)


def hosts(count: int) -> list[str]:
    return [f"h{number}.test" for number in range(count)]


def gate_row(rig: Rig, host: str) -> GateRow:
    row = rig.store.gate(name_id(host))
    assert row is not None
    return row


def in_memory(rig: Rig) -> set[str]:
    return {line.gate.key for line in rig.schedule.window}


def drained(rig: Rig, most: int) -> list[str]:
    """Fetch all; there are never more gates in memory than may be, and all adds up."""
    order = []
    while (lease := rig.lease_next()) is not None:
        assert len(rig.schedule.window) <= most
        order.append(lease.url)
        rig.fetch(lease, 0.1)
        rig.core.check()
    assert rig.core.is_done
    return order


def full_of_closed_gates(count: int = 4, *others: str) -> Rig:
    """A window that is full of gates that rest or are blocked, the later ones for longer; `others` are rows."""
    rig = build(gates_in_memory=count)
    rig.add(*(f"http://{host}/" for host in hosts(count)))
    for number, host in enumerate(hosts(count)):
        rig.block(host, START_S + 100.0 * (number + 1))
    assert rig.lease() is None
    rig.add(*(f"http://{host}/" for host in others))
    return rig


# Beyond the window


@pytest.mark.parametrize("most", [1, 3, 20])
@pytest.mark.parametrize("at_once", [1, 1000])
def test_gates_beyond_the_window_are_rows_and_are_served(
    most: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, with never more in memory than may be."""
    monkeypatch.setattr(gatewindow, "GATES_AT_ONCE", at_once)
    rig = build(gates_in_memory=most, politeness=HASTE)
    urls = [url for host in hosts(40) for url in pages(host, 2)]
    rig.add(*urls)
    assert sorted(drained(rig, most)) == sorted(urls)


def test_gates_that_wait_as_rows_come_by_their_turn() -> None:
    """First come, first served, in memory or not; newcomers stand behind them."""
    rig = build(gates_in_memory=1, politeness=HASTE)
    rig.add(*(f"http://{host}/" for host in hosts(6)))
    first = rig.lease_now()
    rig.add("http://late.test/")
    rig.finish(first)
    assert [first.url, *drained(rig, 1)] == [*(f"http://{host}/" for host in hosts(6)), "http://late.test/"]


def test_gates_with_nothing_to_serve_make_room() -> None:
    """A crawl of very many hosts keeps no gate of those that are done."""
    rig = build(gates_in_memory=5, politeness=HASTE)
    for host in hosts(100):
        rig.add(f"http://{host}/")
        rig.finish(rig.lease_now())
        assert len(rig.schedule.window) <= 5
    rig.core.check()


def test_gates_with_nothing_to_serve_make_room_for_those_that_are_read() -> None:
    """However many come from the store one after the other."""
    rig = build(gates_in_memory=5, politeness=HASTE)
    rig.add(*(f"http://{host}/" for host in hosts(100)))
    assert len(drained(rig, 5)) == 100


def test_gates_that_open_last_make_room_for_rows_that_may_be_open() -> None:
    """Nothing in memory is open, so what is closed for longest leaves."""
    rig = full_of_closed_gates(4, "open.test")
    assert rig.lease_now().gate == "open.test"
    assert {"h0.test", "open.test"} <= in_memory(rig)
    assert "h3.test" not in in_memory(rig)


def test_a_gate_that_left_while_it_was_closed_is_read_when_it_opens() -> None:
    """`wake` names the time, though memory has forgotten the gate; nothing asks the store for it before."""
    rig = full_of_closed_gates(1, "open.test")
    rig.fetch(rig.lease_now(), 0.1)
    assert in_memory(rig) == {"open.test"}
    assert rig.core.wake() == (START_S + 100.0, WaitsFor.TIME)
    rig.clock.advance_to(START_S + 99.0)
    assert rig.lease() is None
    rig.clock.advance_to(START_S + 100.0)
    assert rig.lease_now().gate == "h0.test"


def test_closed_gates_are_not_read_again_and_again() -> None:
    """Those that left are known to be closed: looking for work costs nothing until one of them opens."""
    store = CountingStore()
    rig = build(store=store, gates_in_memory=2, politeness=Politeness(min_delay_s=60.0, max_delay_s=60.0))
    rig.add(*(f"http://{host}/" for host in hosts(6)))
    for _ in range(6):
        rig.finish(rig.lease_now(), OutcomeKind.RETRY)
    rig.add(*(f"http://{host}/more" for host in hosts(6)))
    for _ in range(20):
        assert rig.lease() is None
    store.questions.clear()
    for _ in range(20):
        assert rig.lease() is None
    assert len(store.questions) <= 1


def test_a_gate_that_leaves_and_comes_back_rests_on() -> None:
    """Its rest and its Crawl-delay are kept in its row; the ledger looks at every start."""
    rig = build(gates_in_memory=2, politeness=Politeness(slots=2))
    for host in hosts(8):
        rig.add(*pages(host, 4))
    rig.set_delay("h3.test", 20.0)
    assert len(drained(rig, 3)) == 32


# Sessions


def test_a_gate_whose_session_ends_gives_its_place_to_one_that_waits_as_a_row() -> None:
    """With one URL a session every gate has its turn before any has a second one."""
    rig = build(gates_in_memory=2, politeness=HASTE, budgets=Budgets(balance_replenish=1))
    for host in hosts(10):
        rig.add(*pages(host, 5))
    turns: Counter[str] = Counter()
    for leased in range(1, 51):
        lease = rig.lease_now()
        turns[lease.gate] += 1
        rig.finish(lease)
        assert max(turns.values()) <= (leased + 9) // 10 + 1
    assert set(turns.values()) == {5}
    rig.core.check()


def test_a_gate_that_nobody_waits_for_stays() -> None:
    """The end of a session is no reason to leave if there is room."""
    store = CountingStore()
    rig = build(store=store, gates_in_memory=3, politeness=HASTE, budgets=Budgets(balance_replenish=1))
    for host in hosts(3):
        rig.add(*pages(host, 5))
    rig.finish(rig.lease_now())
    asked = store.questions.count("gates")
    assert len(drained(rig, 3)) == 14
    assert store.questions.count("gates") <= asked + 1
    assert not [left for batch in store.batches for left in batch.left]


def test_a_gate_leaves_when_its_last_lease_has_come_back() -> None:
    """It serves nothing more until then; its other leases end in order."""
    rig = build(
        policy="bkdr:50", gates_in_memory=1, politeness=Politeness(slots=2), budgets=Budgets(balance_replenish=1)
    )
    rig.add(*pages("a.test", 9))
    first, second = rig.lease_all()
    rig.add("http://b.test/")
    rig.fetch(first, 0.1)
    assert rig.lease() is None
    assert in_memory(rig) == {"a.test"}
    rig.finish(second)
    assert rig.lease_now().gate == "b.test"
    rig.core.check()


# What is told of gates that are not in memory


@pytest.mark.parametrize("verb", ["block", "delay", "slots"])
def test_what_is_set_for_a_gate_that_is_a_row_holds(verb: str) -> None:
    """It is read first; until then it serves nothing."""
    store = DelayingStore()
    rig = build(store=store, gates_in_memory=1, policy="bkdr:50")
    rig.add(*pages("a.test", 3), *pages("b.test", 9))
    store.flush()
    rig.settled()
    if verb == "block":
        rig.block("b.test", START_S + 100)
    elif verb == "delay":
        rig.set_delay("b.test", 20.0)
    else:
        rig.set_slots("b.test", 3)
    rig.lease()
    store.flush()
    rig.core.check()
    row = gate_row(rig, "b.test")
    assert (row.blocked_until_s, row.spacing_s, row.slots) == {
        "block": (START_S + 100, 0.0, None),
        "delay": (0.0, 20.0, None),
        "slots": (0.0, 0.0, 3),
    }[verb]


def test_a_gate_that_is_a_row_and_closed_is_served_at_once_when_it_is_unblocked() -> None:
    """Nobody waits for the time at which it would have opened."""
    rig = full_of_closed_gates(1, "open.test")
    rig.fetch(rig.lease_now(), 0.1)
    assert in_memory(rig) == {"open.test"}
    rig.unblock("h0.test")
    assert rig.lease_now().gate == "h0.test"


def test_a_gate_that_gets_work_while_others_are_read_is_not_missed() -> None:
    """The answer under way cannot have it, though it holds fewer than were asked for: there is one more to read."""
    store = DelayingStore()
    rig = build(store=store, gates_in_memory=3, politeness=HASTE)
    rig.add(*(f"http://{host}/" for host in hosts(3)))
    leases = [rig.settled() for _ in range(3)]
    rig.add("http://d.test/")
    store.flush()
    for lease in leases[:2]:
        rig.finish(lease)
    assert rig.lease() is None
    assert store.questions.count("gates") == 0, "it is asked, and not answered"
    rig.add("http://e.test/")
    assert {rig.settled().gate, rig.settled().gate} == {"d.test", "e.test"}


def test_a_retry_that_comes_due_wakes_a_gate_that_left() -> None:
    """Its only URL waited; the gate is nowhere in memory."""
    rig = build(gates_in_memory=1, politeness=HASTE)
    rig.add("http://a.test/")
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=50.0)
    rig.add(*pages("b.test", 2))
    assert rig.lease_now().gate == "b.test"
    assert in_memory(rig) == {"b.test"}
    rig.clock.advance(50.0)
    assert rig.core.in_flight == 1
    rig.finish(next(iter(rig.parts.leases))[0])
    assert sorted(drained(rig, 1)) == ["http://a.test/", "http://b.test/page1"]


def test_a_queue_that_is_resumed_wakes_its_gates_that_are_rows() -> None:
    """All its lanes, at gates in memory or not."""
    rig = build(policy="bkdr:1", gates_in_memory=1, politeness=HASTE)
    rig.add(*(f"http://{host}/" for host in hosts(5)))
    lease = rig.lease_now()
    rig.finish(lease)
    rig.core.operations.pause(lease.queue)
    assert rig.lease() is None
    rig.core.check()
    rig.core.operations.resume(lease.queue)
    assert len(drained(rig, 1)) == 4


# Groups


def test_a_group_leaves_with_its_last_host_and_comes_back_as_it_was() -> None:
    """Its rest is in its row; the ledger knows the group, too."""
    rig = build(group="domain", gates_in_memory=2, politeness=HASTE)
    for host in ("a.one.test", "b.one.test", "a.two.test", "b.two.test"):
        rig.add(*pages(host, 3))
    assert len(drained(rig, 2)) == 12
    assert gate_row(rig, "domain:one.test").rests_until_s > START_S
    rig.add(*(f"http://{host}/" for host in hosts(3)))
    rig.drain()
    assert {group.gate.key for group in rig.schedule.window.groups} <= {f"domain:{host}" for host in hosts(3)}


def test_a_group_that_cannot_be_told_yet_is_joined_when_it_is_known() -> None:
    """An address may be looked up later; the host's own gate serves until then."""
    known: dict[str, str] = {}
    rig = build(group="ip", ip_of=known.get, politeness=HASTE)
    rig.add(*pages("a.test", 40), *pages("b.test", 40))
    leases = rig.lease_all()
    assert len(leases) == 2
    known |= {"a.test": "192.0.2.1", "b.test": "192.0.2.1"}
    while any(line.group is None for line in rig.schedule.window):
        for lease in leases:
            rig.core.finish(lease, DONE)
        leases = [lease for lease in (rig.core.lease(), rig.core.lease()) if lease is not None]
        assert leases
        rig.core.check()
    for lease in leases:
        rig.core.finish(lease, DONE)
    assert rig.core.lease() is not None
    assert rig.core.lease() is None
    rig.core.check()


# The end, and another beginning


def test_at_the_end_every_gate_is_a_row_and_nothing_is_lost() -> None:
    """Those in memory, those that rest, and those that never were in memory; all of them are served by the next owner."""
    rig = build(gates_in_memory=3, policy="bkdr:7")
    urls = [url for host in hosts(12) for url in pages(host, 5)]
    rig.add(*urls)
    fetched = []
    for _ in range(10):
        lease = rig.lease_next()
        assert lease is not None
        fetched.append(lease.url)
        rig.fetch(lease, 0.1)
    rig.core.close()
    again = build(store=rig.store, gates_in_memory=4, policy="bkdr:7", clock=rig.clock)
    again.ledger = rig.ledger
    again.core.check()
    assert sorted(fetched + drained(again, 4)) == sorted(urls)


def test_after_an_unclean_end_every_gate_rests_first() -> None:
    """A fetch may have been under way at any of them; what was leased is leased again."""
    rig = build(gates_in_memory=2)
    rig.add(*(f"http://{host}/" for host in hosts(4)))
    rig.lease_now()
    rig.store.close(clean=False)
    again = build(store=rig.store, gates_in_memory=2, clock=rig.clock)
    assert again.lease() is None
    assert again.core.wake().at_s == START_S + 3.0
    assert len(again.drain()) == 4


def test_a_gate_that_is_closed_without_end_never_is_a_time_to_wait_for() -> None:
    """It may leave memory; only an operator brings it back."""
    rig = build(gates_in_memory=1)
    rig.add("http://a.test/")
    rig.block("a.test", math.inf)
    rig.add("http://b.test/")
    rig.fetch(rig.lease_now(), 0.1)
    assert rig.lease() is None
    at_s = rig.core.wake().at_s
    assert at_s is None or at_s <= rig.clock.now_s + 30.0
    rig.clock.advance(60.0)
    assert rig.lease() is None
    rig.unblock("a.test")
    assert rig.lease_now().gate == "a.test"


def test_a_window_full_of_gates_that_only_rest_is_not_looked_through_at_every_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at each gate costs milliseconds with 10,000 of them, and none of those that rest may leave."""
    looks = []

    def counted(*given: Any, **more: Any) -> list[Any]:
        looks.append(given)
        return nlargest(*given, **more)

    monkeypatch.setattr(gatewindow, "nlargest", counted)
    rig = build(gates_in_memory=4)
    rig.add(*(f"http://{host}/{page}" for host in hosts(8) for page in "ab"))
    for lease in rig.lease_all():
        rig.finish(lease)
    assert rig.schedule.window.is_full
    assert [rig.lease() for _ in range(20)] == [None] * 20
    assert not looks
