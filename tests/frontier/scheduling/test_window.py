"""The gates that are in memory, and those that are rows."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

import pytest

from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.records import GateKey, Outcome, OutcomeKind, Turn, WaitsFor, name_id
from anabranch.frontier.scheduling import window
from anabranch.frontier.scheduling.gates import Gate, GateMaker, Politeness
from anabranch.frontier.scheduling.readylist import Group, Lane, Outbox, ReadyList, WorkQueue
from anabranch.frontier.scheduling.window import GateWindow, StateAtOpening, StoredGates
from anabranch.frontier.stores.contract import GateRead, GateRow, GatesRead, LeftGate
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
        rig.core.operations.check()
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
    monkeypatch.setattr(window, "GATES_AT_ONCE", at_once)
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
    rig.core.operations.check()


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
    rig.core.operations.check()


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
    rig.core.operations.check()


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
    rig.core.operations.check()
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
    rig.core.operations.check()
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
    assert {group.gate.key for group in rig.schedule.window.groups.values()} <= {f"domain:{host}" for host in hosts(3)}


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
        rig.core.operations.check()
    for lease in leases:
        rig.core.finish(lease, DONE)
    assert rig.core.lease() is not None
    assert rig.core.lease() is None
    rig.core.operations.check()


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
    again.core.operations.check()
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

    monkeypatch.setattr(window, "nlargest", counted)
    rig = build(gates_in_memory=4)
    rig.add(*(f"http://{host}/{page}" for host in hosts(8) for page in "ab"))
    for lease in rig.lease_all():
        rig.finish(lease)
    assert rig.schedule.window.is_full
    assert [rig.lease() for _ in range(20)] == [None] * 20
    assert not looks


NOW_S = 1000.0


def answer(count: int, wakes_s: float | None = None, asked: int | None = None) -> GatesRead:
    """So many gates that were read."""
    rows = [GateRow(number, GateKey(f"h{number}.test"), 0, 0, 0, 3.0, 0, 0, 0, None) for number in range(count)]
    return GatesRead([GateRead(row, []) for row in rows], asked, wakes_s)


def all_read(wakes_s: float | None = None) -> StoredGates:
    """Nothing is left in the store that could serve now."""
    stored = StoredGates()
    stored.ask(10)
    stored.answered(answer(3, wakes_s))
    return stored


def test_at_first_the_store_may_hold_gates() -> None:
    """Nobody has looked."""
    stored = StoredGates()
    assert stored.may_serve(NOW_S)
    assert stored.next_time() is None


@pytest.mark.parametrize(("read", "more"), [(9, False), (10, True), (11, True)])
def test_fewer_than_were_asked_for_are_all(read: int, more: bool) -> None:
    """If as many came as were asked for, there may be more."""
    stored = StoredGates()
    assert stored.ask(10) == 10
    assert stored.is_asked
    stored.answered(answer(read))
    assert (stored.more, stored.is_asked, stored.may_serve(NOW_S)) == (more, False, more)


def test_a_closed_gate_in_the_store_may_serve_when_it_opens() -> None:
    """Its time is known from the last read; while another one is under way that will tell."""
    stored = all_read(NOW_S + 5)
    assert not stored.may_serve(NOW_S + 4.9)
    assert stored.may_serve(NOW_S + 5)
    assert stored.next_time() == NOW_S + 5
    stored.ask(10)
    assert stored.next_time() is None


def test_a_gate_read_by_its_name_tells_nothing_of_the_others() -> None:
    """The question by turn is still under way, and gates that woke meanwhile are still missed."""
    stored = StoredGates()
    stored.ask(10)
    stored.woken(1, Turn(5), 7)
    assert stored.answered(answer(1, asked=1)) == {}
    assert stored.is_asked
    assert stored.answered(answer(1)) == {1: [(Turn(5), 7)]}


def test_lanes_that_come_during_a_read_are_told_with_its_answer_once() -> None:
    """The read saw their gates as they were before; afterwards there may be more gates, too."""
    stored = StoredGates()
    stored.ask(10)
    for turn, queue in ((5, 7), (6, 8)):
        stored.woken(1, Turn(turn), queue)
    stored.woken(2, Turn(9), 7)
    assert stored.answered(answer(0)) == {1: [(Turn(5), 7), (Turn(6), 8)], 2: [(Turn(9), 7)]}
    assert stored.more
    stored.ask(10)
    assert stored.answered(answer(0)) == {}
    assert not stored.more


def test_lanes_that_come_while_nothing_is_read_are_in_the_next_read() -> None:
    """Nothing is missed: there may only be more."""
    stored = all_read()
    stored.woken(1, Turn(5), 7)
    assert stored.more
    stored.ask(10)
    assert stored.answered(answer(1)) == {}


def test_gates_that_an_order_opened_may_be_beyond_the_answer_under_way() -> None:
    """Such as a queue that was resumed."""
    stored = StoredGates()
    stored.ask(10)
    stored.note_woken()
    stored.answered(answer(0))
    assert stored.more


@pytest.mark.parametrize(
    ("turn", "wakes_s", "more", "next_s"),
    [
        (Turn(1), None, True, NOW_S + 50),
        (Turn(1), NOW_S + 20, False, NOW_S + 20),
        (Turn(1), NOW_S + 90, False, NOW_S + 50),
        (None, None, False, NOW_S + 50),
    ],
)
def test_a_gate_that_leaves_is_among_those_in_the_store(
    turn: Turn | None, wakes_s: float | None, more: bool, next_s: float
) -> None:
    """At once if it is open, when it opens if it is closed, not at all if it has nothing to serve."""
    stored = all_read(NOW_S + 50)
    stored.left(turn, wakes_s)
    assert (stored.more, stored.next_time()) == (more, next_s)


def test_a_gate_that_leaves_during_a_read_is_in_no_answer() -> None:
    """Its time counts beside that of the answer; the next answer has it."""
    stored = all_read()
    stored.ask(10)
    stored.left(Turn(1), NOW_S + 20)
    stored.answered(answer(1, NOW_S + 50))
    assert stored.next_time() == NOW_S + 20
    stored.ask(10)
    stored.answered(answer(1, NOW_S + 50))
    assert stored.next_time() == NOW_S + 50


def test_a_time_that_came_when_no_room_could_be_made_is_not_waited_for() -> None:
    """Else the host would be told to ask again at once, for ever; a later time counts."""
    stored = all_read(NOW_S)
    stored.stuck(NOW_S)
    assert stored.next_time() is None
    assert stored.may_serve(NOW_S)
    stored.wakes_s = NOW_S + 1
    assert stored.next_time() == NOW_S + 1


KEY = GateKey("group:one")
ID = name_id(KEY)
SLOTS = Politeness(slots=4)


def gate(key: GateKey) -> Gate:
    return Gate(name_id(key), key, SLOTS)


@dataclass
class Town:
    """A window and the hosts that are in memory; every host whose name ends in `.one` belongs to the group."""

    known: bool = True  #: the hosts' group is known
    outbox: Outbox = field(default_factory=lambda: Outbox(0))

    def __post_init__(self) -> None:
        maker = GateMaker(SLOTS, SLOTS, group_of=self.group_of)
        self.window = GateWindow(maker, self.outbox, lambda _: None, 10, StateAtOpening())
        self.lines, self.heap = self.window.lines, self.window.heap

    def group_of(self, host: str) -> GateKey | None:
        return KEY if self.known and host.endswith(".one") else None

    def line(self, host: str) -> ReadyList:
        """The line of a host, with something to serve, that has looked for its group."""
        line = self.lines[name_id(host)] = ReadyList(gate(GateKey(host)), self.heap)
        line.waiting.ask()
        line.waiting.answer([(Turn(1), 1)], 16)
        line.is_loading = False
        self.join(line)
        return line

    def join(self, line: ReadyList) -> None:
        self.window.join_group(line)

    @property
    def group(self) -> Group:
        (group,) = self.window.groups.values()
        return group


def test_the_first_host_brings_its_group_and_the_others_join_it() -> None:
    """One gate for all of them, asked for once; nothing passes before its row was read."""
    town = Town()
    hosts = [town.line("a.one"), town.line("b.one")]
    assert [line.group for line in hosts] == [town.group, town.group]
    assert all(line.gate.group is town.group.gate for line in hosts)
    assert (town.group.gate.key, town.group.lines, town.group.is_loading) == (KEY, 2, True)
    assert town.outbox.gates == [town.group]
    assert town.window.groups.get(ID) is town.group


def test_a_host_of_no_group_stands_alone() -> None:
    """So does one whose address is not known yet; it is asked again, and joins only once."""
    town = Town(known=False)
    alone, late = town.line("a.test"), town.line("a.one")
    assert (alone.group, late.group, list(town.window.groups)) == (None, None, [])
    town.known = True
    for line in (alone, late, late):
        town.join(line)
    assert (alone.group, late.group, town.group.lines) == (None, town.group, 1)


def test_an_order_without_groups_has_none() -> None:
    """Nobody is asked."""
    window = GateWindow(GateMaker(SLOTS, SLOTS), Outbox(0), lambda _: None, 10, StateAtOpening())
    line = ReadyList(gate(GateKey("a.one")), window.heap)
    window.join_group(line)
    assert (window.maker.has_groups, line.group, list(window.groups)) == (False, None, [])
    assert Town().window.maker.has_groups


def test_a_host_that_joins_late_brings_its_leases_and_its_questions_along() -> None:
    """They come back through both gates."""
    town = Town(known=False)
    line = town.line("a.one")
    for _ in range(2):
        line.gate.take(1000.0)
    for queue_id in range(3):
        lane = line.lanes[queue_id] = Lane(WorkQueue(queue_id, 1), line, Turn(queue_id), 3000)
        if queue_id:
            lane.ask()
    town.known = True
    town.join(line)
    assert (town.group.gate.out, town.group.asked) == (2, 2)


def test_a_host_that_joins_leaves_the_outer_heap_for_its_groups() -> None:
    """A closed group costs nothing: none of its hosts is looked at."""
    town = Town(known=False)
    line = town.line("a.one")
    line.enlist()
    assert town.heap.first_open(1000.0) is line
    town.known = True
    town.join(line)
    line.enlist()
    assert town.heap.first_open(1000.0) is None, "the group's row was not read"
    town.group.is_loading = False
    town.group.enlist()
    assert town.heap.first_open(1000.0) is line
    town.group.gate.block(2000.0)
    town.group.enlist()
    assert town.heap.first_open(1000.0) is None
    assert town.heap.next_time() == 2000.0


def test_a_group_that_an_operator_named_before_keeps_his_orders() -> None:
    """It stood as a host's line until then; what waits for its row is done to the group."""
    town = Town(known=False)
    named = town.line(KEY)
    named.later.append(lambda changed: changed.block(2000.0))
    town.known = True
    town.line("a.one")
    assert ID not in town.lines
    for change in town.group.later:
        change(town.group.gate)
    assert town.group.gate.blocked_until_s == 2000.0


def test_a_group_goes_with_its_last_host() -> None:
    """Its row is written, and the store told that it left; the next host brings it again."""
    town = Town()
    first, last = town.line("a.one"), town.line("b.one")
    group = town.group
    group.is_loading = False
    group.gate.block(2000.0)
    town.window._leave_group(first)
    assert (town.group, town.outbox.batch.left) == (group, [])
    town.window._leave_group(last)
    assert list(town.window.groups) == []
    assert [(row.key, row.blocked_until_s) for row in town.outbox.batch.gates] == [(KEY, 2000.0)]
    assert town.outbox.batch.left == [LeftGate(ID, None, None)]
    town.line("c.one")
    assert town.group is not group


def test_a_group_stays_while_a_lease_is_out_or_its_row_is_on_its_way() -> None:
    """Whoever comes back must find it."""
    for is_loading, out in ((True, 0), (False, 1)):
        town = Town()
        line = town.line("a.one")
        town.group.is_loading, town.group.gate.out = is_loading, out
        town.window._leave_group(line)
        assert town.group.lines == 0
        assert town.outbox.batch.left == []


def test_a_host_without_a_group_leaves_none() -> None:
    """Nothing is written."""
    town = Town()
    town.line("a.one")
    town.window._leave_group(town.line("a.test"))
    assert (town.group.lines, town.outbox.batch.gates) == (1, [])
