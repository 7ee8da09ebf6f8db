"""Which lane is served next: gates are scheduled, lanes wait at them."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from frontier.assignment import parse_policy
from frontier.gates import Politeness
from frontier.lifecycle import QueueState
from frontier.models import Lease, OutcomeKind, WaitsFor
from frontier.schedule import ASKED_AT_LEAST, LOOKS
from tests.frontier.builder import (
    HASTE,
    START_S,
    CountingStore,
    DelayingStore,
    ForgetfulFilter,
    Rig,
    build,
    pages,
)

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
    assert rig.core.statistics().queues["inactive"] == 2
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
    """What was set by hand can be taken back by hand, and counts from then on."""
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
        rig.finish(next_with(rig, store))
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
        lease = next_with(rig, store)
        fetched.append(lease.url)
        rig.finish(lease)
    assert sorted(fetched) == sorted(others)


def next_with(rig: Rig, store: DelayingStore) -> Lease:
    """A lease, as soon as the store has answered."""
    lease = rig.lease()
    if lease is None:
        store.flush()
        lease = rig.lease_now()
    return lease


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


def test_wake_says_urls_when_nothing_is_queued() -> None:
    """And FINISH while leases are out that may bring some."""
    rig = build()
    assert rig.core.wake() == (None, WaitsFor.URLS)
    rig.add("http://a.test/")
    lease = rig.lease_now()
    assert rig.core.wake() == (None, WaitsFor.FINISH | WaitsFor.URLS)
    rig.finish(lease)
    assert rig.core.wake() == (None, WaitsFor.URLS)


def test_wake_says_store_while_heads_are_on_their_way() -> None:
    """No time helps then: who waits is woken by the store."""
    store = DelayingStore()
    rig = build(store=store)
    rig.add("http://a.test/")
    assert rig.lease() is None
    assert rig.core.wake() == (None, WaitsFor.STORE)
    store.flush()
    rig.lease_now()


def test_wake_names_no_time_while_the_store_has_enough_to_do() -> None:
    """More gates are open than heads may be asked for: asking again at once would turn in circles."""
    store = DelayingStore()
    rig = build(store=store, politeness=HASTE)
    rig.add(*(f"http://{host}/" for host in hosts(ASKED_AT_LEAST + 20)))
    while rig.core.wake().at_s is not None:
        assert rig.lease() is None
        store.work(0)
        assert len(store._todo) <= ASKED_AT_LEAST + 1
    assert rig.core.wake() == (None, WaitsFor.STORE)
    store.flush()
    assert len(rig.lease_all()) >= ASKED_AT_LEAST


def test_a_retry_is_named_while_the_store_has_enough_to_do() -> None:
    """A time that helps is a time that helps."""
    store = DelayingStore()
    rig = build(store=store, politeness=HASTE)
    rig.add("http://z.test/")
    lease = next_with(rig, store)
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
    assert calls >= 2
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
    lease = next_with(rig, store)
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
    assert rig.core.statistics().queues["inactive"] > 9_000
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
    states = rig.core.statistics().queues
    assert states[QueueState.READY.value] + states[QueueState.LOADING.value] <= 8


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
            rest_s = 40.0 if random_.random() < 0.05 else 0.0
            rig.finish(lease, kind, fetched=random_.random() < 0.9, after_s=5.0, host_rest_s=rest_s)
        else:
            rig.clock.advance(random_.expovariate(0.3))
        if random_.random() < 0.01:
            rig.set_delay(random_.choice(hosts(5)), random_.choice([0.0, 8.0]))
    for lease in out:
        rig.finish(lease)
    rig.drain(0.5)
    rig.core.check()
    assert rig.core.is_done
    assert rig.ledger.starts >= 125
