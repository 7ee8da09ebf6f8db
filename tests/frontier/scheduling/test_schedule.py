"""Which lane is served next: gates are scheduled, lanes wait at them."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise, permutations

import pytest

from anabranch.frontier import storelink
from anabranch.frontier.policies.assignment import parse_policy
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.sheets import Override, Settings
from anabranch.frontier.records import GateKey, HostTrouble, OutcomeKind, QueueKey, Turn, WaitsFor, name_id, turn_of
from anabranch.frontier.scheduling import readylist, window
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.scheduling.readylist import LANES_AT_ONCE, Lane, LanePlace, Outbox
from anabranch.frontier.scheduling.schedule import ASKED_AT_LEAST, LOOKS, Placement
from anabranch.frontier.stores.contract import GateRead, GateRow, GatesRead, LaneRow, LanesRead, Standing
from tests.frontier.builder import (
    HASTE,
    START_S,
    CountingStore,
    DelayingStore,
    ForgetfulFilter,
    Rig,
    build,
    head,
    pages,
)
from tests.rows import each_row

#: One gate per host, many queues: the URLs of any host fall into any of them.
MANY = "bkdr:100"


def hosts(count: int) -> list[str]:
    return [f"h{number}.test" for number in range(count)]


def one_a_queue(host: str) -> list[str]:
    """URLs of one host, each in a queue of its own."""
    urls = pages(host, 300)
    chosen = list(dict(zip(parse_policy(MANY)(urls), urls, strict=True)).values())
    assert len(chosen) > 90
    return chosen


def two_queues_of_one_host() -> tuple[Rig, str, str]:
    """A rig and two URLs of one host in two queues."""
    rig = build(policy=MANY)
    one, two, *_ = pages("a.test", 2)
    rig.add(one, two)
    assert rig.core.operations.statistics().queues["inactive"] == 2
    return rig, one, two


# Politeness belongs to the gate


def test_two_queues_of_one_host_never_fetch_at_once() -> None:
    """Politeness belongs to the host, not to the queue: with k = 1 the second waits for the first one's rest."""
    rig, one, two = two_queues_of_one_host()
    lease = rig.lease_now()
    assert rig.lease() is None
    rig.fetch(lease, 2.0)
    assert rig.lease() is None
    assert rig.core.wake() == (rig.clock.now_s + 10.0, WaitsFor.TIME)
    rig.clock.advance(10.0)
    assert {lease.url, rig.lease_now().url} == {one, two}


def test_one_queue_of_two_hosts_has_one_url_in_flight() -> None:
    """Order and parallelism belong to the queue: its second lane waits though its gate is open."""
    rig = build(policy="bkdr:1")
    rig.add("http://a.test/", "http://b.test/")
    lease = rig.lease_now()
    assert rig.lease() is None
    assert rig.core.wake() == (None, WaitsFor.FINISH)
    rig.finish(lease)
    assert rig.lease_now().gate != lease.gate


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_a_gate_serves_k_queues_at_once(slots: int) -> None:
    """At most k leases per host, whatever the number of queues."""
    rig = build(policy=MANY, politeness=Politeness(slots=slots))
    rig.add(*pages("a.test", 60))
    assert len(rig.lease_all()) == slots


def test_a_crawl_delay_holds_whatever_the_slots() -> None:
    """Starts are at least that far apart; taking it back gives the slots back."""
    rig = build(policy=MANY, politeness=Politeness(slots=4))
    rig.add(*pages("a.test", 60))
    rig.set_delay("a.test", 20.0)
    starts = []
    for _ in range(3):
        lease = rig.lease_next()
        assert lease is not None
        starts.append(rig.clock.now_s)
        assert rig.lease_all() == []
        rig.fetch(lease, 0.1)
    assert [after - before >= 20.0 for before, after in pairwise(starts)] == [True, True]
    rig.set_delay("a.test", 0.0)
    rig.clock.advance(30.0)
    assert len(rig.lease_all()) == 4


def test_a_blocked_host_stops_only_its_own_lanes() -> None:
    """No freeze: 100 hash queues, five hosts, one blocked for an hour; all others are drained long before."""
    rig = build(policy=MANY, politeness=Politeness(min_delay_s=1.0))
    for host in hosts(5):
        rig.add(*pages(host, 200))
    rig.block("h0.test", START_S + 3600)
    fetched: Counter[str] = Counter()
    while rig.clock.now_s < START_S + 3600:
        leases = rig.lease_all()
        rig.clock.advance(0.1)
        for lease in leases:
            fetched[lease.gate] += 1
            rig.finish(lease)
        if not leases:
            at_s = rig.core.wake().at_s
            assert at_s is not None
            rig.clock.advance_to(at_s)
    assert fetched == dict.fromkeys(hosts(5)[1:], 200)
    assert rig.clock.now_s == START_S + 3600, "nothing but the end of the block was waited for at the end"
    assert len(rig.drain(0.1)) == 200


def test_many_lanes_of_one_gate_go_on_though_the_first_ones_queue_is_busy() -> None:
    """A lane whose queue is busy is parked, whatever its place in the line, and comes back with its queue."""
    rig = build(policy=MANY, politeness=HASTE)
    rig.add(*pages("a.test", 50))
    rig.add(*pages("b.test", 50))
    leases = rig.lease_all()
    assert sorted(lease.gate for lease in leases) == ["a.test", "b.test"]
    assert len({lease.queue for lease in leases}) == 2
    fetched = [lease.url for lease in leases]
    for lease in leases:
        rig.finish(lease)
    assert sorted([*fetched, *rig.drain()]) == sorted([*pages("a.test", 50), *pages("b.test", 50)])


# No lost wake-up


def test_a_finish_wakes_a_parked_lane() -> None:
    """The queue is free again: its other lane is served at once."""
    rig = build(policy="bkdr:1", politeness=HASTE)
    rig.add("http://a.test/", "http://b.test/")
    first = rig.lease_now()
    assert rig.lease() is None
    rig.finish(first)
    assert rig.lease_now().url != first.url


def five_hosts_of_one_queue() -> tuple[Rig, GateKey]:
    """A queue whose lease has just ended, and the gate of the one of its parked lanes that came back."""
    rig = build(policy="bkdr:1", politeness=HASTE)
    rig.add(*(f"http://{host}/" for host in hosts(5)))
    lease = rig.lease_now()
    assert rig.lease() is None
    rig.finish(lease)
    lanes = [lane for line in rig.core._schedule.window for lane in line.lanes.values()]
    (ready,) = (lane for lane in lanes if lane.place is LanePlace.READY)
    assert sum(lane.place is LanePlace.PARKED for lane in lanes) > 0
    return rig, ready.line.gate.key


def test_of_many_parked_lanes_one_comes_back_at_once() -> None:
    """The queue is busy again as soon as it is served: the others would only be parked anew."""
    rig, gate = five_hosts_of_one_queue()
    assert rig.lease_now().gate == gate
    assert rig.lease() is None
    rig.core.operations.check()


@pytest.mark.parametrize("ask", ["lease", "wake", "can_lease"])
def test_the_other_parked_lanes_are_there_when_the_first_ones_gate_closes(ask: str) -> None:
    """A host that is blocked meanwhile stops only its own lane, whoever asks what can be leased."""
    rig, gate = five_hosts_of_one_queue()
    rig.block(gate, START_S + 100)
    if ask == "wake":
        at_s = rig.core.wake().at_s
        assert at_s is not None
        assert at_s <= START_S
    if ask == "can_lease":
        assert rig.core.can_lease()
    assert rig.lease_now().gate != gate
    rig.core.operations.check()


def test_a_release_wakes_the_gate_and_the_queue() -> None:
    """The slot does not rest, and the URL is first again."""
    rig = build()
    rig.add(*pages("a.test", 3))
    lease = rig.lease_now()
    rig.release(lease)
    assert rig.core.wake().at_s is not None
    again = rig.lease_now()
    assert (again.url, again.attempts) == (lease.url, 0)


def test_a_lifted_block_wakes_the_gate() -> None:
    """A block set by hand can be lifted by hand; the gate opens at once."""
    rig = build()
    rig.add("http://a.test/")
    rig.block("a.test", START_S + 100)
    assert rig.lease() is None
    assert rig.core.wake() == (START_S + 100, WaitsFor.TIME)
    rig.unblock("a.test")
    at_s = rig.core.wake().at_s
    assert at_s is not None
    assert at_s <= START_S
    rig.lease_now()


def test_a_block_for_ever_names_no_time() -> None:
    """Only an unblock helps; then the gate serves."""
    rig = build()
    rig.add("http://a.test/")
    rig.block("a.test", float("inf"))
    assert rig.lease() is None
    assert rig.core.wake() == (None, WaitsFor.NOTHING)
    rig.unblock("a.test")
    rig.lease_now()


def test_a_block_that_ends_by_time_opens_the_gate_at_that_moment() -> None:
    """Not a moment earlier, and without anyone touching it."""
    rig = build()
    rig.add("http://a.test/")
    rig.block("a.test", START_S + 100)
    rig.clock.advance(99.999)
    assert rig.lease() is None
    rig.clock.advance_to(START_S + 100)
    rig.lease_now()


def test_a_crawl_delay_taken_back_opens_the_slots() -> None:
    """A gate that was full because of the Crawl-delay has slots again."""
    rig = build(policy=MANY, politeness=Politeness(slots=2))
    rig.add(*pages("a.test", 20))
    rig.set_delay("a.test", 10.0)
    rig.lease_now()
    assert rig.lease() is None
    assert rig.core.wake() == (None, WaitsFor.FINISH)
    rig.set_delay("a.test", 0.0)
    rig.lease_now()


def test_lanes_behind_those_whose_rows_all_died_are_served() -> None:
    """Lanes that are being read turn out empty (their rows were duplicates): the next ones of the gate take the turn."""
    store = DelayingStore()
    rig = build(policy=MANY, store=store, seen=ForgetfulFilter(), politeness=HASTE)
    one, two, *others = one_a_queue("a.test")
    rig.add(one, two)
    for _ in range(2):
        rig.finish(rig.settled())
        store.flush()
    rig.add(one, two)
    store.work()
    assert rig.lease() is None, "their heads are asked for before their death is known"
    rig.add(*others)
    assert rig.lease() is None, "two lanes are on their way, as many as the gate can use"
    store.commit()
    store.flush()
    fetched = []
    while not rig.core.is_done:
        lease = rig.settled()
        fetched.append(lease.url)
        rig.finish(lease)
    assert sorted(fetched) == sorted(others)


# wake()


def test_wake_names_the_next_time_exactly() -> None:
    """The moment a gate opens or a retry comes due, whichever is first."""
    rig = build()
    rig.add("http://a.test/1", "http://a.test/2", "http://b.test/1")
    assert rig.core.wake().at_s is not None
    for lease in rig.lease_all():
        rig.finish(lease, OutcomeKind.RETRY if lease.gate == "b.test" else OutcomeKind.DONE, after_s=2.0)
    assert rig.core.wake() == (START_S + 2.0, WaitsFor.TIME)
    rig.clock.advance_to(START_S + 2.0)
    assert rig.lease() is None, "the retry is due, its gate rests"
    assert rig.core.wake() == (START_S + 3.0, WaitsFor.TIME)
    rig.clock.advance_to(START_S + 3.0)
    assert {lease.gate for lease in rig.lease_all()} == {"a.test", "b.test"}


def test_wake_names_no_time_while_an_open_gate_waits_for_a_busy_store() -> None:
    """Nor that of a gate in the store which is open by now: its host would ask in vain, on and on."""
    rig = build()
    rig.add("http://a.test/")
    schedule = rig.core._schedule
    assert rig.core.wake().at_s is not None, "its gate is read and open"
    schedule.window.stored.wakes_s = START_S + 1.0
    assert schedule.next_time(START_S + 2.0) is not None
    schedule.placement.asked = 1000
    assert schedule.next_time(START_S + 2.0) is None


def test_wake_says_urls_when_nothing_is_queued() -> None:
    """And FINISH while leases are out that may bring some."""
    rig = build()
    assert rig.core.wake() == (None, WaitsFor.URLS)
    rig.add("http://a.test/")
    lease = rig.lease_now()
    assert rig.core.wake() == (None, WaitsFor.FINISH | WaitsFor.URLS)
    rig.finish(lease)
    assert rig.core.wake() == (None, WaitsFor.URLS)


def test_wake_says_store_while_rows_are_on_their_way() -> None:
    """First the gate's, then the heads of its lane. No time helps then: who waits is woken by the store."""
    store = DelayingStore()
    rig = build(store=store)
    rig.add("http://a.test/")
    for _ in range(2):
        assert rig.lease() is None
        assert rig.core.wake() == (None, WaitsFor.STORE)
        store.flush()
    rig.lease_now()


def test_wake_names_no_time_while_the_store_has_enough_to_do() -> None:
    """More gates are open than heads may be asked for: asking again at once would turn in circles."""
    store = DelayingStore()
    rig = build(store=store, politeness=HASTE)
    rig.add(*(f"http://{host}/" for host in hosts(ASKED_AT_LEAST + 20)))
    store.flush()
    while rig.core.wake().at_s is not None:
        assert rig.lease() is None
        assert len(store._todo) <= ASKED_AT_LEAST + 1
    assert rig.core.wake() == (None, WaitsFor.STORE)
    store.flush()
    assert len(rig.lease_all()) >= ASKED_AT_LEAST


def test_a_retry_is_named_while_the_store_has_enough_to_do() -> None:
    """A time that helps is a time that helps."""
    store = DelayingStore()
    rig = build(store=store, politeness=HASTE)
    rig.add("http://z.test/")
    lease = rig.settled()
    rig.finish(lease, OutcomeKind.RETRY, after_s=7.0)
    rig.add(*(f"http://{host}/" for host in hosts(ASKED_AT_LEAST + 20)))
    for _ in range(5):
        assert rig.lease() is None
    assert rig.core.wake() == (START_S + 7.0, WaitsFor.TIME | WaitsFor.STORE)


def test_after_many_vain_looks_the_caller_gets_a_turn() -> None:
    """A call looks at so many gates; `wake` then says now."""
    rig = build(policy="bkdr:1", politeness=HASTE)
    rig.add(*(f"http://{host}/" for host in hosts(3 * LOOKS)))
    lease = rig.lease_now()
    calls = 0
    while rig.core.wake().at_s is not None:
        assert rig.core.wake().at_s <= rig.clock.now_s
        assert rig.lease() is None
        calls += 1
    assert calls >= 1
    rig.finish(lease)
    assert len(rig.drain(0.0)) == 3 * LOOKS - 1


# Who is first


def test_open_gates_are_served_by_opening_time() -> None:
    """The gate that opened first is served first, whatever the order of the URLs."""
    rig = build()
    for host in ("a.test", "b.test", "c.test"):
        rig.add(*pages(host, 2))
    first = rig.lease_all()
    order = [first[2], first[0], first[1]]
    for lease in order:
        rig.fetch(lease, 0.1)
    rig.clock.advance(100.0)
    assert [lease.gate for lease in rig.lease_all()] == [lease.gate for lease in order]


def test_gates_that_never_rest_take_turns() -> None:
    """Without delays the gate that was served longest ago is first: nobody starves."""
    rig = build(politeness=HASTE)
    for host in hosts(4):
        rig.add(*pages(host, 5))
    order = []
    while (lease := rig.lease()) is not None:
        order.append(lease.gate)
        rig.fetch(lease, 0.01)
    assert order == hosts(4) * 5


def test_a_gate_that_never_rests_does_not_starve_one_that_was_closed() -> None:
    """It was served a moment ago, the other one has been open for longer."""
    rig = build(politeness=HASTE)
    rig.block("b.test", START_S + 1.0)
    rig.add(*pages("a.test", 5), *pages("b.test", 5))
    rig.clock.advance(10.0)
    order = []
    for _ in range(4):
        lease = rig.lease_now()
        order.append(lease.gate)
        rig.fetch(lease, 0.01)
    assert order == ["a.test", "b.test"] * 2


def test_lanes_in_memory_take_turns() -> None:
    """A lane that was served goes to the end of those that have heads."""
    rig = build(policy="bkdr:2", politeness=HASTE)
    rig.add(*pages("a.test", 60))
    queues = []
    for _ in range(30):
        lease = rig.lease_now()
        queues.append(lease.queue)
        rig.finish(lease)
    assert len(set(queues[:2])) == 2
    assert queues == queues[:2] * 15


def test_lanes_are_served_in_the_order_of_their_arrival() -> None:
    """Newcomers stand behind those who wait, read or not."""
    rig = build(policy=MANY, politeness=HASTE)
    urls = one_a_queue("a.test")
    for start in range(0, len(urls), 40):
        rig.add(*urls[start : start + 40])
    assert rig.drain(0.0) == urls


def test_urls_of_one_lane_come_in_their_order() -> None:
    """By acceptance, over many windows."""
    rig = build(politeness=HASTE)
    urls = pages("a.test", 100)
    for start in range(0, 100, 7):
        rig.add(*urls[start : start + 7])
    assert rig.drain(0.0) == urls


def test_front_goes_before_what_is_in_memory_already() -> None:
    """URLs of normal precedence leave the window and are read again, none is lost or doubled."""
    rig = build(politeness=HASTE)
    urls, fronts = pages("a.test", 30), pages("a.test", 3, "front")
    rig.add(*urls)
    rig.finish(rig.lease_now())
    rig.add(*fronts, front=True)
    assert rig.drain(0.0) == [*fronts, *urls[1:]]


def test_front_goes_first_though_the_lanes_heads_are_on_their_way() -> None:
    """The answer under way does not hold it: it is asked for again."""
    store = DelayingStore()
    rig = build(store=store, politeness=HASTE)
    urls = pages("a.test", 3)
    rig.add(*urls)
    assert rig.lease() is None
    rig.add("http://a.test/front", front=True)
    fetched = []
    while not rig.core.is_done:
        store.flush()
        if (lease := rig.lease()) is not None:
            fetched.append(lease.url)
            rig.finish(lease)
    assert fetched == ["http://a.test/front", *urls]


def test_front_while_a_refill_is_under_way_forgets_the_old_answer() -> None:
    """The window is short, its refill was asked, better rows come: all are served once, the better ones first."""
    store = DelayingStore()
    rig = build(store=store, politeness=HASTE)
    urls, fronts = pages("a.test", 40), pages("a.test", 2, "front")
    rig.add(*urls)
    fetched = []
    lease = rig.settled()
    for _ in range(12):  # down to the low mark: the refill is asked
        fetched.append(lease.url)
        rig.finish(lease)
        lease = rig.lease_now()
    rig.add(*fronts, front=True)
    fetched.append(lease.url)
    rig.finish(lease)
    while not rig.core.is_done:
        if (next_lease := rig.lease()) is None:
            store.flush()
            continue
        fetched.append(next_lease.url)
        rig.finish(next_lease)
    assert fetched == [*urls[:13], *fronts, *urls[13:]]


# Lazy activation


def test_few_of_ten_thousand_queues_behind_one_gate_are_asked_for() -> None:
    """A queue costs a read only when its gate could serve it soon."""
    store = CountingStore()
    rig = build(policy="bkdr:10000", store=store)
    rig.add(*pages("a.test", 19_000))
    rig.add(*pages("a.test", 19_000, "more"))
    assert rig.core.operations.statistics().queues["inactive"] > 9_000
    lease = rig.lease_now()
    assert len(store.asked) <= 3
    for served in range(2, 12):
        rig.fetch(lease)
        lease = rig.lease_next()
        assert len(store.asked) <= 2 * served + 1


def test_lanes_behind_a_closed_gate_are_not_asked_for() -> None:
    """A blocked host costs the store nothing."""
    store = CountingStore()
    rig = build(policy=MANY, store=store)
    rig.block("a.test", START_S + 60)
    rig.add(*pages("a.test", 100))
    assert rig.lease() is None
    assert store.asked == []


def test_a_gate_prepares_as_many_lanes_as_it_can_serve() -> None:
    """At most twice the leases out, so that the next slot finds a head in memory."""
    rig = build(policy=MANY, politeness=Politeness(slots=8))
    rig.add(*pages("a.test", 300))
    leases = rig.lease_all()
    assert len(leases) == 8
    states = rig.core.operations.statistics().queues
    assert states[QueueState.READY.value] + states[QueueState.LOADING.value] <= 8


# No slot stays unused


@pytest.mark.parametrize(
    "event", ["delay", "block", "slots", "politeness", "release", "nothing fetched", "pause", "retire"]
)
def test_a_slot_that_is_free_is_used_by_the_next_lane_at_once(event: str) -> None:
    """Whatever freed it: no time passes, nothing has to come back first."""
    rig = build(policy=MANY, politeness=Politeness(slots=2))
    rig.add(*one_a_queue("a.test"))
    if event == "delay":
        rig.set_delay("a.test", 10.0)
    elif event == "block":
        rig.block("a.test", START_S + 3600)
    elif event == "slots":
        rig.set_slots("a.test", 1)
    leases = rig.lease_all()
    assert rig.lease() is None
    if event == "delay":
        rig.set_delay("a.test", 0.0)
    elif event == "block":
        rig.unblock("a.test")
    elif event == "slots":
        rig.set_slots("a.test", 3)
    elif event == "politeness":
        rig.set_politeness("a.test", Politeness(slots=3))
    elif event == "release":
        rig.release(leases[0])
    elif event == "nothing fetched":
        rig.finish(leases[0], fetched=False)
    elif event == "pause":
        rig.core.operations.pause(leases[0].queue)
        rig.release(leases[0])
    else:
        rig.finish(leases[0], OutcomeKind.RETIRE, fetched=False)
    at_s = rig.core.wake().at_s
    assert at_s is not None
    assert at_s <= rig.clock.now_s
    lease = rig.lease_now()
    assert event == "release" or lease.url not in {earlier.url for earlier in leases}


def test_a_paused_queue_gives_its_turn_to_the_next_lane() -> None:
    """Its heads were in memory and next; the slot goes to another queue, and what was paused comes when it is resumed."""
    rig = build(policy=MANY, politeness=HASTE)
    one, two, three, *_ = one_a_queue("a.test")
    rig.add(one, two, three)
    rig.finish(rig.lease_now())
    (queue,) = parse_policy(MANY)([two])
    rig.core.operations.pause(queue)
    assert rig.drain() == [three]
    assert rig.core.wake() == (None, WaitsFor.OPERATOR)
    rig.core.operations.resume(queue)
    assert rig.drain() == [two]


# Queues that take turns


@pytest.mark.parametrize("slots", [1, 3])
def test_with_sessions_of_one_url_queues_of_a_gate_take_turns(slots: int) -> None:
    """No queue has two turns before all others had one, though only few are in memory."""
    rig = build(policy="bkdr:10", politeness=Politeness(slots=slots), budgets=Budgets(balance_replenish=1))
    rig.add(*pages("a.test", 300))
    turns: Counter[str] = Counter()
    for _ in range(100):
        lease = rig.lease_next()
        assert lease is not None
        turns[lease.queue] += 1
        rig.fetch(lease, 0.1)
        assert max(turns.values()) - min(turns.values()) <= 1 or len(turns) < 10
    assert sorted(turns.values()) == [10] * 10


def test_no_queue_goes_on_when_its_session_is_spent_and_an_equal_waits() -> None:
    """Its lane goes behind all that wait; its heads leave memory."""
    rig = build(policy="bkdr:5", politeness=HASTE, budgets=Budgets(balance_replenish=7))
    rig.add(*pages("a.test", 200))
    turns: Counter[str] = Counter()
    for _ in range(4 * 7):
        lease = rig.lease_now()
        turns[lease.queue] += 1
        rig.finish(lease)
    assert sorted(turns.values()) == [7] * 4, "two take turns, then the next two"
    assert rig.lease_now().queue not in turns, "the fifth one waited, the first one stands behind it"


def test_a_queue_that_nobody_waits_for_goes_on() -> None:
    """The next session begins at once, and its order is kept."""
    rig = build(politeness=HASTE, budgets=Budgets(balance_replenish=3))
    urls = pages("a.test", 20)
    rig.add(*urls)
    assert rig.drain(0.0) == urls


def test_what_failed_for_good_costs_more_of_the_session() -> None:
    """A queue of broken URLs gives way at once."""
    rig = build(policy="bkdr:2", politeness=HASTE, budgets=Budgets(balance_replenish=50, error_penalty=100))
    rig.add(*pages("a.test", 60))
    first = rig.lease_now()
    rig.finish(first, OutcomeKind.FAILED)
    second = rig.lease_now()
    assert second.queue != first.queue
    rig.finish(second, OutcomeKind.FAILED)
    assert rig.lease_now().queue == first.queue


# Precedence between queues


def by_queue(policy: str, *urls: str) -> dict[str, list[str]]:
    """URLs by the key of their queue."""
    found: dict[str, list[str]] = {}
    for url, key in zip(urls, parse_policy(policy)(urls), strict=True):
        found.setdefault(key, []).append(url)
    return found


def test_a_queue_that_had_much_success_gives_way_to_one_that_had_none() -> None:
    """A queue of smaller precedence goes first, though those that go on have heads in memory and much of their session."""
    rig = build(policy="bkdr:5", politeness=HASTE, queue_precedence="success:1", budgets=Budgets(balance_replenish=10))
    first, second, third, fourth, late = by_queue("bkdr:5", *pages("a.test", 200)).values()
    rig.add(*first, *second, *third, *fourth)
    for _ in range(50):
        rig.finish(rig.lease_now())
    rig.add(*late)
    for _ in range(2):
        rig.finish(rig.lease_now())  # those in memory, while the late ones are read
    order = []
    for _ in range(10):
        lease = rig.lease_now()
        order.append(lease.url)
        rig.finish(lease)
    assert order == late[:10]
    rig.core.operations.check()
    assert len(rig.drain(0.0)) == 200 - 62


def test_a_queue_at_the_floor_never_runs() -> None:
    """Its URLs are kept; nothing is asked of the store for it."""
    store = CountingStore()
    never = Override(("http://(test,a,)",), Settings(queue_precedence=200))
    rig = build(store=store, politeness=HASTE, overrides=[never], precedence_floor=200)
    rig.add(*pages("a.test", 3))
    assert rig.lease() is None
    assert store.asked == []
    rig.add(*pages("b.test", 3))
    assert rig.drain() == pages("b.test", 3)
    assert rig.core.pending == 3
    rig.core.operations.check()


# More than one lease a queue


def test_a_queue_of_several_leases_uses_several_slots() -> None:
    """Up to `per_queue`, and in the order of its URLs."""
    rig = build(politeness=Politeness(slots=4), per_queue=3)
    urls = pages("a.test", 10)
    rig.add(*urls)
    leases = rig.lease_all()
    assert [lease.url for lease in leases] == urls[:3]
    rig.core.operations.check()
    rig.fetch(leases[1], 0.1)
    assert rig.lease_now().url == urls[3]
    rig.core.operations.check()


def test_a_lane_is_parked_only_while_its_queue_has_all_its_leases() -> None:
    """Two of three gates are served at once; the third one goes as soon as a lease comes back."""
    rig = build(policy="bkdr:1", per_queue=2)
    rig.add(*(f"http://{host}/" for host in hosts(3)))
    leases = rig.lease_all()
    assert len(leases) == 2
    assert rig.core.wake() == (None, WaitsFor.FINISH)
    rig.finish(leases[0])
    assert rig.lease_now().gate == "h2.test"
    rig.core.operations.check()


@pytest.mark.parametrize("replenish", [1, 2, 3000])
def test_several_leases_a_queue_lose_and_double_nothing(replenish: int) -> None:
    """Sessions that end while other leases of the lane are out included."""
    rig = build(
        policy="bkdr:3", per_queue=2, politeness=Politeness(slots=5), budgets=Budgets(balance_replenish=replenish)
    )
    urls = [url for host in hosts(3) for url in pages(host, 30)]
    rig.add(*urls)
    fetched = []
    while not rig.core.is_done:
        leases = rig.lease_all()
        assert max(Counter(lease.queue for lease in leases).values(), default=0) <= 2
        rig.core.operations.check()
        rig.clock.advance(3.0)
        for lease in leases[::-1]:
            fetched.append(lease.url)
            rig.finish(lease)
    assert sorted(fetched) == sorted(urls)


# More lanes than memory holds


@pytest.fixture
def _few_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate has at most eight ids of lanes in memory; two come along with it, three are read at a time."""
    monkeypatch.setattr(readylist, "LANES", 4)
    for module in (window, storelink):
        monkeypatch.setattr(module, "LANES_AT_ONCE", 2)
    monkeypatch.setattr(storelink, "LANES_NEXT", 3)


@pytest.mark.usefixtures("_few_lanes")
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_lanes_beyond_those_in_memory_are_rows_and_come_in_their_turn(batch: int) -> None:
    """All of them, in the order in which they arrived."""
    store = CountingStore()
    rig = build(policy=MANY, politeness=HASTE, store=store)
    urls = one_a_queue("a.test")
    for start in range(0, len(urls), batch):
        rig.add(*urls[start : start + batch])
    order = []
    while (lease := rig.lease_next()) is not None:
        assert len(rig.line("a.test").waiting) <= 8 + 3
        order.append(lease.url)
        rig.finish(lease)
    assert order == urls
    assert "lanes" in store.questions


@pytest.mark.usefixtures("_few_lanes")
def test_lanes_that_arrive_while_others_are_read_come_behind_them() -> None:
    """None is lost between the answer and what came meanwhile."""
    store = DelayingStore()
    rig = build(policy=MANY, politeness=HASTE, store=store)
    urls = one_a_queue("a.test")
    rig.add(*urls[:20])
    order = []
    for url in urls[20:]:
        order.append(rig.settled().url)
        rig.add(url)
        store.work(1)
        rig.finish(next(iter(rig.parts.leases))[0])
    while not rig.core.is_done:
        lease = rig.settled()
        order.append(lease.url)
        rig.finish(lease)
    assert order == urls


@pytest.mark.usefixtures("_few_lanes")
def test_sessions_of_one_url_go_round_all_lanes_though_most_are_rows() -> None:
    """A lane whose session ended stands behind those that memory does not even know."""
    rig = build(policy=MANY, politeness=HASTE, budgets=Budgets(balance_replenish=1))
    urls = one_a_queue("a.test")
    rig.add(*urls)
    rig.add(*pages("a.test", 3000, "more"))
    queues = []
    for _ in range(3 * len(urls)):
        lease = rig.lease_now()
        queues.append(lease.queue)
        rig.finish(lease)
    rounds = [queues[start : start + len(urls)] for start in range(0, len(queues), len(urls))]
    assert [len(set(some)) for some in rounds] == [len(urls)] * 3


# Queues that may not be served


@pytest.mark.parametrize("verb", ["pause", "retire"])
def test_the_lanes_of_a_queue_that_is_held_back_leave_memory_and_come_back(verb: str) -> None:
    """At all its gates; what is leased may end."""
    rig = build(policy="bkdr:1", politeness=HASTE)
    rig.add(*pages("a.test", 20), *pages("b.test", 20))
    (queue,) = parse_policy("bkdr:1")(["http://a.test/"])
    lease = rig.lease_now()
    getattr(rig.core.operations, verb)(queue)
    assert sum(len(lane.window) for line in rig.schedule.window for lane in line.lanes.values()) == 0
    rig.core.operations.check()
    rig.finish(lease)
    assert rig.lease() is None
    assert not list(rig.schedule.index)
    assert rig.state_of(queue) == f"{verb}d"
    rig.core.operations.resume(queue)
    rig.core.operations.check()
    assert len(rig.drain(0.0)) == 39
    rig.core.operations.check()


def test_lanes_behind_those_of_retired_queues_are_served() -> None:
    """Their heads are on their way when the queues are retired by what happens at other gates; the next lane goes on."""
    store = DelayingStore()
    rig = build(policy="bkdr:5", store=store, politeness=HASTE)
    one, two, three = list(by_queue("bkdr:5", *pages("b.test", 60)).values())[:3]
    queues = parse_policy("bkdr:5")([one[0], two[0]])
    elsewhere = [by_queue("bkdr:5", *pages(host, 60))[key][0] for host, key in zip(hosts(2), queues, strict=True)]
    rig.add(*elsewhere)
    leases = [rig.settled(), rig.settled()]
    rig.add(one[0], two[0], three[0])
    assert rig.lease() is None
    store.work_all()
    assert rig.lease() is None
    assert rig.line("b.test").active == 2, "the heads of two lanes are on their way"
    for lease in leases:
        rig.finish(lease, OutcomeKind.RETIRE)
    assert rig.settled().url == three[0]
    rig.core.operations.check()


def test_a_url_given_back_by_a_paused_queue_comes_first_when_it_is_resumed() -> None:
    """It is a row again, at its old place."""
    rig = build(politeness=HASTE)
    urls = pages("a.test", 3)
    rig.add(*urls)
    lease = rig.lease_now()
    rig.core.operations.pause(lease.queue)
    rig.release(lease)
    rig.core.operations.check()
    assert rig.lease() is None
    rig.core.operations.resume(lease.queue)
    assert rig.drain() == urls


def test_urls_for_a_queue_that_is_held_back_wait_with_the_others() -> None:
    """They come after the older ones, when it is resumed; one look tells that it is held back."""
    store = CountingStore()
    rig = build(store=store, politeness=HASTE)
    rig.add(*pages("a.test", 2))
    rig.core.operations.pause(QueueKey("a.test"))
    rig.add(*pages("a.test", 2, "more"))
    for _ in range(5):
        assert rig.lease() is None
    assert len(store.asked) <= 1
    rig.core.operations.check()
    rig.core.operations.resume(QueueKey("a.test"))
    assert rig.drain() == [*pages("a.test", 2), *pages("a.test", 2, "more")]


def test_a_queue_over_its_total_budget_is_retired_and_a_raised_budget_wakes_it() -> None:
    """By itself: nobody has to resume it."""
    rig = build(politeness=HASTE, budgets=Budgets(total_budget=3))
    rig.add(*pages("a.test", 8), "http://b.test/")
    assert len(rig.drain(0.0)) == 4
    assert rig.core.is_done
    assert rig.state_of("a.test") == "retired"
    rig.core.operations.set_budget(QueueKey("a.test"), 5)
    assert not rig.core.is_done
    assert len(rig.drain(0.0)) == 2
    rig.core.operations.set_budget(QueueKey("a.test"), -1)
    assert len(rig.drain(0.0)) == 3
    rig.core.operations.check()


# Groups: the second gate


def groups(slots: int = 1, **order: object) -> Rig:
    """Hosts of one registrable domain share a gate."""
    return build(group="domain", group_politeness=Politeness(slots=slots), politeness=HASTE, **order)


def test_hosts_of_one_group_never_fetch_at_once() -> None:
    """A lease takes a slot in both gates or in none, and both rest."""
    rig = groups()
    rig.add(*pages("a.one.test", 2), *pages("b.one.test", 2), "http://two.test/")
    leases = rig.lease_all()
    assert [lease.gate for lease in leases] == ["a.one.test", "two.test"]
    rig.fetch(leases[0], 1.0)
    assert rig.lease() is None
    assert rig.core.wake().at_s == rig.clock.now_s + 5.0
    rig.clock.advance(5.0)
    assert rig.lease_now().gate == "b.one.test", "it has been open for longer"


def test_a_release_gives_back_both_slots() -> None:
    """Neither rests."""
    rig = groups()
    rig.add("http://a.one.test/", "http://b.one.test/")
    lease = rig.lease_now()
    assert rig.lease() is None
    rig.release(lease)
    rig.lease_now()
    rig.core.operations.check()


def test_a_blocked_host_stops_only_itself_not_its_group() -> None:
    """The others of the group go on."""
    rig = groups()
    rig.block("a.one.test", START_S + 100)
    rig.add("http://a.one.test/", *pages("b.one.test", 3))
    order = rig.drain()
    assert [url for url in order if "b.one" in url] == pages("b.one.test", 3)
    assert order[-1] == "http://a.one.test/"
    assert rig.clock.now_s >= START_S + 100


def closed_group(count: int) -> tuple[Rig, CountingStore]:
    """A group that rests for ten seconds, and so many hosts of it that wait."""
    store = CountingStore()
    rig = groups(store=store)
    rig.add("http://first.one.test/")
    rig.fetch(rig.lease_now(), 2.0)
    rig.add(*(f"http://h{number}.one.test/" for number in range(count)))
    rig.lease()
    store.questions.clear()
    return rig, store


def test_queues_behind_a_closed_group_cost_no_read_until_it_opens() -> None:
    """No storm: however many hosts wait, and however often somebody asks."""
    rig, store = closed_group(300)
    opens_s = rig.core.wake().at_s
    assert opens_s == START_S + 12.0
    while rig.clock.now_s < opens_s - 1.0:
        rig.clock.advance(1.0)
        assert rig.lease() is None
    assert store.questions == []
    rig.clock.advance(1.0)
    rig.lease_now()


def test_all_hosts_of_a_group_are_served_one_after_the_other() -> None:
    """Each start is a rest after the last one's end, as the ledger proves."""
    rig, _ = closed_group(300)
    assert len(rig.drain(0.1)) == 300
    assert rig.clock.now_s >= START_S + 300 * 3.0
    rig.core.operations.check()


def test_a_group_that_opens_costs_no_more_reads_than_it_has_slots() -> None:
    """No storm when it opens, either: few of its hosts are read ahead of the one that it lets through."""
    rig, store = closed_group(300)
    rig.clock.advance(12.0)
    rig.lease_now()
    assert store.questions.count("heads") <= 4


# The proof of politeness


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("policy", ["host", "bkdr:1", "bkdr:7", "bkdr:997"])
def test_no_run_breaks_politeness(policy: str, slots: int) -> None:
    """The ledger sees every start and end (it asserts I6); five hosts with delays, blocks and retries are drained."""
    random_ = random.Random(f"{policy}{slots}")
    rig = build(policy=policy, politeness=Politeness(slots=slots))
    for host in hosts(5):
        rig.add(*pages(host, 25))
    out = []
    for _ in range(1500):
        if (lease := rig.lease()) is not None:
            out.append(lease)
        elif out and random_.random() < 0.8:
            lease = out.pop(random_.randrange(len(out)))
            kind = random_.choices([OutcomeKind.DONE, OutcomeKind.RETRY, OutcomeKind.DEFERRED], [8, 1, 1])[0]
            trouble = random_.choices(list(HostTrouble), [17, 1, 1, 1])[0]
            rig.finish(lease, kind, fetched=random_.random() < 0.9, after_s=5.0, trouble=trouble)
        else:
            rig.clock.advance(random_.expovariate(0.3))
        if random_.random() < 0.01:
            rig.set_delay(random_.choice(hosts(5)), random_.choice([0.0, 8.0]))
    for lease in out:
        rig.finish(lease)
    rig.drain(0.5)
    rig.core.operations.check()
    assert rig.core.is_done
    assert rig.ledger.starts >= 125


HOST = GateKey("a.test")
GATE = name_id(HOST)


class Yard(Placement):
    """Lanes at the gate of one host, whose row was read with these lanes: by queue, one after another."""

    def __init__(
        self, lanes: int = 0, *, slots: int = 1, precedences: tuple[int, ...] = (), gates: int = 100, **order: object
    ) -> None:
        rig = build(politeness=HASTE, **order)
        self.outbox = Outbox(0)
        super().__init__(self.outbox, rig.schedule.window.maker, rig.parts.rules, gates)
        self.window.stored.more = False
        self.line = self.window.load(GATE, HOST)
        self.line.gate.set_slots(slots)
        turns = [turn_of(precedence, number) for number, precedence in enumerate(precedences or (3,) * lanes, start=1)]
        rows = [LaneRow(queue, GATE, turn, 1, 0) for queue, turn in enumerate(turns, start=1)]
        row = GateRow(GATE, HOST, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, slots)
        self.window.gates_read(GatesRead([GateRead(row, rows)], GATE, None), 1000.0)
        self.outbox.questions_taken()

    def asked_for(self) -> list[int]:
        """The queues whose heads were asked for, in order."""
        return [lane.queue.id for lane in self.outbox.heads]

    def loaded(self, heads: int = 2) -> Lane:
        """The lane of the first queue, with so many heads; the store had no more."""
        assert self.activate(self.line)
        lane = self.line.lanes[1]
        self.bring(lane, heads)
        return lane

    def bring(self, lane: Lane, heads: int) -> None:
        """The store answers."""
        assert lane.answer([head(number) for number in range(1, heads + 1)])
        self.answered(lane)
        self.place(lane)


def test_lanes_come_by_their_turn_as_many_as_the_gate_can_use() -> None:
    """Twice what it serves at once, one more while it serves; the others stay ids."""
    for slots, wanted in ((1, [1, 2]), (3, [1, 2])):
        yard = Yard(9, slots=slots)
        assert yard.activate(yard.line)
        assert yard.asked_for() == wanted
        assert (yard.asked, yard.line.active, len(yard.line.waiting)) == (2, 2, 7)
        assert yard.activate(yard.line)
        assert yard.asked == 2, "they are on their way"
    yard = Yard(9, slots=5)
    yard.line.gate.out = 2
    yard.activate(yard.line)
    assert yard.asked_for() == [1, 2, 3, 4]


def test_lanes_of_a_better_queue_come_first_and_those_at_the_floor_never() -> None:
    """Whoever came first; a queue at the floor waits for another precedence."""
    yard = Yard(precedences=(9, 4, 2), precedence_floor=9, slots=9)
    yard.line.gate.out = 4
    assert yard.activate(yard.line)
    assert yard.asked_for() == [3, 2]
    assert len(yard.line.waiting) == 1


def test_the_store_is_asked_for_no_more_than_the_leases_out_justify() -> None:
    """The gate keeps its lanes, and is told that the store has enough to do."""
    yard = Yard(2)
    yard.asked = ASKED_AT_LEAST
    assert not yard.activate(yard.line)
    assert (yard.asked_for(), len(yard.line.waiting)) == ([], 2)
    yard.out = 1  # two more
    assert yard.activate(yard.line)
    assert yard.asked_for() == [1, 2]


def test_a_queue_that_may_not_be_served_is_passed_over() -> None:
    """Its lane is a row; the next one comes."""
    yard = Yard(3)
    yard.index.take_up(1).standing = Standing.PAUSED
    yard.activate(yard.line)
    assert yard.asked_for() == [2, 3]


def test_more_lanes_are_asked_for_when_few_remain() -> None:
    """Behind the last one that was read, once."""
    yard = Yard(LANES_AT_ONCE)
    yard.activate(yard.line)
    assert yard.outbox.lanes == [(yard.line, turn_of(3, LANES_AT_ONCE))]
    yard.activate(yard.line)
    assert len(yard.outbox.lanes) == 1
    complete = Yard(LANES_AT_ONCE - 1)
    complete.activate(complete.line)
    assert complete.outbox.lanes == []


def test_lanes_that_are_read_later_stand_in_line_unless_they_are_in_memory() -> None:
    """A lane is served from one place: its window, or its id in the line."""
    yard = Yard(LANES_AT_ONCE)
    yard.activate(yard.line)
    rows = [LaneRow(queue, GATE, turn_of(3, queue + 100), 1, 0) for queue in (1, 50)]
    yard.lanes_read(yard.line, LanesRead(GATE, rows), 500)
    assert (1 in yard.line.waiting, 50 in yard.line.waiting, yard.line.waiting.is_complete) == (False, True, True)


def test_a_lane_with_heads_stands_behind_those_of_its_precedence() -> None:
    """Better queues go first, equals take turns; to be placed again where it stands is to keep its turn."""
    yard = Yard(3, slots=9)
    yard.line.gate.out = 4
    yard.activate(yard.line)
    lanes = [yard.line.lanes[queue] for queue in (1, 2, 3)]
    for lane, precedence in zip(lanes, (5, 3, 3), strict=True):
        lane.queue.precedence = precedence
        yard.bring(lane, 1)
    yard.place(lanes[1])
    assert [lane.place for lane in lanes] == [LanePlace.READY] * 3
    assert yard.index.states[QueueState.READY] == 3
    assert [yard.line.best() for _ in range(4)] == [lanes[1], lanes[2], lanes[0], None]


def test_a_lane_that_was_taken_out_of_line_is_not_served() -> None:
    """Until it is placed again, once, behind the others."""
    yard = Yard(2)
    first, second = yard.loaded(), yard.line.lanes[2]
    yard.bring(second, 1)
    yard.unplace(first)
    assert (first.place, yard.line.active) == (LanePlace.NOWHERE, 1)
    for _ in range(2):
        yard.place(first)
    assert (first.place, yard.line.active) == (LanePlace.READY, 2)
    assert [yard.line.best() for _ in range(3)] == [second, first, None]


def test_a_parked_lane_that_is_taken_out_of_line_is_not_called_back() -> None:
    """Its queue forgets it."""
    yard = Yard(1)
    lane = yard.loaded()
    lane.queue.out = 1
    assert yard.line.best() is None
    assert (lane.place, lane.queue.parked) == (LanePlace.PARKED, [lane])
    yard.unplace(lane)
    assert (lane.place, lane.queue.parked) == (LanePlace.NOWHERE, [])


def test_a_lane_without_heads_whose_store_has_more_is_an_id_again() -> None:
    """Its object goes, its queue with it; its turn is kept."""
    yard = Yard(1)
    lane = yard.loaded()
    lane.drop_all()  # better rows came, say
    yard.place(lane)
    assert (lane.is_dropped, yard.line.lanes, len(yard.index)) == (True, {}, 0)
    assert yard.line.waiting.first() == (turn_of(3, 1), 1)
    assert yard.outbox.batch.removed == []


def test_a_lane_of_which_nothing_is_left_goes_and_its_row_may_too() -> None:
    """The store deletes it if it counts nothing; the gate is idle."""
    yard = Yard(1)
    lane = yard.loaded(heads=0)
    assert (lane.is_dropped, yard.line.lanes, len(yard.index), yard.line.has_work) == (True, {}, 0, False)
    assert yard.outbox.batch.removed == [(1, GATE)]
    assert yard.asked == 0


def test_a_lane_stays_while_a_lease_is_out() -> None:
    """Whoever finishes must find it; nothing of it is served meanwhile."""
    yard = Yard(1)
    lane = yard.loaded(heads=1)
    lane.take()
    yard.place(lane)
    assert (lane.place, lane.is_dropped, yard.line.lanes) == (LanePlace.NOWHERE, False, {1: lane})
    yard.drop(lane)
    assert yard.line.lanes == {1: lane}
    lane.leased.clear()
    yard.drop(lane)
    assert (lane.is_dropped, yard.line.lanes) == (True, {})


def test_a_lane_that_is_dropped_waits_for_no_answer() -> None:
    """It ignores an answer that comes later; its heads in memory are rows again."""
    yard = Yard(2)
    lane, asked = yard.loaded(), yard.line.lanes[2]
    yard.drop(lane)
    yard.drop(asked)
    assert (yard.asked, yard.line.active, yard.line.lanes, len(yard.index)) == (0, 0, {}, 0)
    assert not asked.answer([head(1)])
    assert yard.line.best() is None
    assert yard.outbox.batch.removed == [], "they have rows"


def test_rows_that_are_no_more_leave_their_windows() -> None:
    """An answer under way may hold them: it is not waited for, and the lane asked for anew when its turn comes."""
    yard = Yard(2)
    lane, asked = yard.loaded(), yard.line.lanes[2]
    yard.drop_rows(yard.line, {1})
    assert [some.row.ordinal for some in lane.window] == [2]
    assert (asked.is_dropped, yard.asked, 2 in yard.line.waiting) == (True, 0, True)
    yard.drop_rows(yard.line, {2})
    assert (lane.is_dropped, yard.outbox.batch.removed) == (True, [(1, GATE)])


def test_a_group_counts_what_is_on_its_way_for_its_hosts() -> None:
    """However the waiting ends: by an answer, or by none."""
    yard = Yard(3, group={"a.test": "one"})
    group = yard.line.group
    assert group is not None
    yard.activate(yard.line)
    assert group.asked == yard.asked == 2
    yard.bring(yard.line.lanes[1], 1)
    assert group.asked == yard.asked == 1
    yard.forget_answer(yard.line.lanes[2])
    yard.forget_answer(yard.line.lanes[1])  # nothing is on its way for it
    assert group.asked == yard.asked == 0


def test_a_queue_that_spent_something_is_written_when_it_leaves() -> None:
    """With the batch of the call that let it go."""
    yard = Yard(1)
    lane = yard.loaded(heads=1)
    lane.queue.spent, lane.queue.unsaved = 5, 1
    yard.drop(lane)
    assert [(row.id, row.spent) for row in yard.outbox.batch.queues] == [(1, 5)]


def test_a_line_whose_last_lane_has_gone_gives_its_place_to_another_gate() -> None:
    """Not before: what has something to serve stays."""
    yard = Yard(1, gates=1)
    other = GateKey("b.test")
    assert yard.window.admit(name_id(other), other, Turn(9), 9) is None
    yard.loaded(heads=0)
    yard.window.stored.more = False  # no gate waits in the store
    assert yard.window.admit(name_id(other), other, Turn(9), 9) is not None
    assert yard.window.get(GATE) is None


A = QueueKey("a.test")


@each_row("orders", [*permutations(["pause", "retire", "resume"]), ("retire", "pause", "retire")])
def test_leases_of_a_retired_queue_are_counted_whatever_was_ordered_before(orders: tuple[str, ...]) -> None:
    """URLs of retired queues are not pending, leased ones are in flight, and nothing is counted twice."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2))
    lease = rig.lease_now()
    for order in orders:
        getattr(rig.core.operations, order)(A)
        is_retired = rig.state_of("a.test") == "retired"
        assert (rig.core.pending, rig.core.in_flight, rig.core.counts().retired) == (not is_retired, 1, is_retired)
    rig.finish(lease)
    rig.core.take_answers()  # the store says how many URLs of retired queues there are
    assert (rig.core.pending, rig.core.counts().retired) == (not is_retired, is_retired)
    assert rig.core.is_done is is_retired
    rig.core.operations.check()


def test_a_last_url_that_ends_in_a_queue_that_was_retired_then_paused_ends_the_crawl() -> None:
    """Nothing is left that anybody could wait for."""
    rig = build(politeness=HASTE)
    rig.add("http://a.test/")
    lease = rig.lease_now()
    rig.core.operations.retire(A)
    rig.core.operations.pause(A)
    rig.finish(lease)
    assert rig.core.is_done
