"""Questions and commands of an operator."""

from __future__ import annotations

import pytest

from anabranch.frontier.errors import PolicyError, StoreUnavailable, UnknownQueue
from anabranch.frontier.inspect.operations import DELETED_BY_USER, Operations
from anabranch.frontier.policies.budgets import UNLIMITED, Budgets
from anabranch.frontier.records import NEW, SEEN, GateKey, OutcomeKind, QueueKey, UrlState, WaitsFor
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.stores.memory.store import MemoryStore
from tests.frontier.builder import HASTE, START_S, Rig, build, pages
from tests.rows import each_row

A, B = QueueKey("a.test"), QueueKey("b.test")


def two_queues(**order: object) -> Rig:
    """Three URLs each for a.test and b.test, no rests."""
    rig = build(politeness=HASTE, **order)
    rig.add(*pages("a.test", 3), *pages("b.test", 3))
    return rig


def reopened(rig: Rig, *, clean: bool = True, **order: object) -> Rig:
    """Open the store again, under another owner."""
    if clean:
        rig.core.close()
    else:
        rig.store.close(clean=False)
    return build(store=rig.store, clock=rig.clock, politeness=HASTE, **order)


def hosts(urls: list[str]) -> set[str]:
    return {url.split("/")[2] for url in urls}


# Pause and resume


@pytest.mark.parametrize("moment", ["idle", "ready", "leased"])
def test_a_paused_queue_serves_nothing_and_its_leases_may_end(moment: str) -> None:
    """Whatever it was doing; the others go on, and the crawl is not done."""
    rig = two_queues()
    lease = None if moment == "idle" else rig.lease_now()
    if moment == "ready":
        assert lease is not None
        rig.finish(lease, OutcomeKind.DEFERRED)
    rig.core.operations.pause(A)
    rig.core.operations.check()
    if moment == "leased":
        assert lease is not None
        rig.finish(lease, links=["http://a.test/new"])
    assert hosts(rig.drain(0.0)) == {"b.test"}
    assert rig.state_of(A) == "paused"
    assert not rig.core.is_done
    assert rig.core.wake().waits_for & WaitsFor.OPERATOR
    rig.core.operations.check()


def test_a_paused_queue_takes_urls_and_goes_on_when_it_is_resumed() -> None:
    """Nothing is lost, in its old order; pausing and resuming twice is once."""
    rig = two_queues()
    for _ in range(2):
        rig.core.operations.pause(A)
    assert rig.add("http://a.test/new") == [NEW]
    rig.drain(0.0)
    for _ in range(2):
        rig.core.operations.resume(A)
    rig.core.operations.check()
    assert rig.drain(0.0) == [*pages("a.test", 3), "http://a.test/new"]
    assert rig.core.is_done


def test_a_lease_that_is_released_to_a_paused_queue_is_first_again_later() -> None:
    """Its slot is free for another queue of the gate at once."""
    rig = build(policy="bkdr:97", politeness=HASTE)
    rig.add(*pages("a.test", 2))
    lease = rig.lease_now()
    rig.core.operations.pause(lease.queue)
    rig.release(lease)
    other = rig.lease_now()
    assert other.queue != lease.queue
    rig.finish(other)
    rig.core.operations.resume(lease.queue)
    assert rig.drain(0.0) == [lease.url]
    rig.core.operations.check()


def test_a_pause_survives_a_restart() -> None:
    """It survives a clean end and an unclean one."""
    rig = two_queues()
    rig.core.operations.pause(A)
    for clean in (True, False):
        rig = reopened(rig, clean=clean)
        assert rig.state_of(A) == "paused"
        assert rig.core.operations.statistics().why_idle == ""
    rig.drain(0.0)
    rig.core.operations.check()
    rig.core.operations.resume(A)
    assert len(rig.drain(0.0)) == 3


# Retirement and budgets


def test_a_retired_queue_keeps_its_urls_and_comes_back_when_it_is_resumed() -> None:
    """A budget that only retired it is taken back."""
    rig = two_queues()
    rig.finish(rig.lease_now())
    rig.core.operations.retire(A)
    rig.core.operations.check()
    assert hosts(rig.drain(0.0)) == {"b.test"}
    assert rig.core.is_done
    assert rig.add("http://a.test/page0", "http://a.test/new") == [SEEN, NEW]
    assert rig.lease() is None
    assert rig.core.operations.statistics().retired == 3
    rig.core.operations.resume(A)
    assert not rig.core.is_done
    assert len(rig.drain(0.0)) == 3
    assert rig.core.operations.statistics().retired == 0
    rig.core.operations.check()


@each_row("orders", [("pause", "retire"), ("retire", "pause"), ("pause", "retire", "pause"), ("retire",) * 2])
@each_row("is_leased", [False, True])
def test_one_resume_brings_a_queue_back_whatever_was_ordered_before(orders: tuple[str, ...], is_leased: bool) -> None:
    """The operator's last word counts: a pause takes a retirement back, and a retirement a pause."""
    rig = two_queues()
    lease = rig.lease_now() if is_leased else None
    for order in orders:
        getattr(rig.core.operations, order)(A)
        assert rig.state_of(A) == {"pause": "paused", "retire": "retired"}[order]
    rig.core.operations.resume(A)
    if lease is not None:
        rig.finish(lease)
    assert len(hosts(rig.drain(0.0))) == 2
    assert rig.core.operations.statistics().retired == 0
    rig.core.operations.check()


def test_a_pause_does_not_lift_the_orders_budget() -> None:
    """A queue over its budget is retired again when it is resumed: only more budget helps."""
    rig = two_queues(budgets=Budgets(total_budget=1))
    rig.drain(0.0)
    rig.core.operations.pause(A)
    assert rig.state_of(A) == "paused"
    rig.core.operations.resume(A)
    assert rig.state_of(A) == "retired"
    rig.core.operations.check()


def test_a_pause_does_not_lift_a_budget_of_the_queues_own() -> None:
    """Only a retirement is taken back by the next order; what the operator lets it spend stays."""
    rig = two_queues()
    rig.finish(rig.lease_now())
    rig.core.operations.set_budget(A, 1)
    for order in (rig.core.operations.resume, rig.core.operations.pause, rig.core.operations.resume):
        order(A)
    assert rig.state_of(A) == "retired"
    rig.core.operations.check()


def test_retiring_counts_the_leases_that_are_out() -> None:
    """They are in flight, not retired; those that come back unfinished are."""
    rig = build(politeness=HASTE, per_queue=2)
    rig.add(*pages("a.test", 4))
    rig.set_slots("a.test", 2)
    done, deferred = rig.lease_all()
    rig.core.operations.retire(A)
    statistics = rig.core.operations.statistics()
    assert (statistics.pending, statistics.in_flight, statistics.retired, statistics.accepted) == (0, 2, 2, 4)
    rig.finish(done)
    rig.finish(deferred, OutcomeKind.DEFERRED)
    statistics = rig.core.operations.statistics()
    assert (statistics.pending, statistics.in_flight, statistics.retired, statistics.done) == (0, 0, 3, 1)
    assert rig.core.is_done
    rig.core.operations.check()


def test_a_budget_retires_at_once_and_a_larger_one_wakes_at_once() -> None:
    """No restart and no script is needed; a budget of the queue goes before the order's."""
    rig = two_queues(budgets=Budgets(total_budget=100))
    rig.finish(rig.lease_now())
    rig.core.operations.set_budget(A, 1)
    assert rig.state_of(A) == "retired"
    rig.core.operations.set_budget(A, 2)
    assert rig.state_of(A) == "inactive"
    assert len([url for url in rig.drain(0.0) if "a.test" in url]) == 1
    assert rig.state_of(A) == "retired"
    rig.core.operations.set_budget(A, None)
    assert len(rig.drain(0.0)) == 1
    rig.core.operations.check()


def test_a_budget_for_a_paused_queue_counts_when_it_is_resumed() -> None:
    """It stays paused; if its budget is spent by then it is retired instead."""
    rig = two_queues()
    rig.finish(rig.lease_now())
    rig.core.operations.pause(A)
    rig.core.operations.set_budget(A, 5)
    assert rig.state_of(A) == "paused"
    rig.core.operations.resume(A)
    assert rig.state_of(A) == "inactive"
    rig.core.operations.pause(A)
    rig.core.operations.set_budget(A, 1)
    assert rig.state_of(A) == "paused"
    rig.core.operations.resume(A)
    assert rig.state_of(A) == "retired"
    rig.core.operations.check()


def test_a_budget_without_end_is_one() -> None:
    """It goes before the order's, too."""
    rig = two_queues(budgets=Budgets(total_budget=1))
    rig.drain(0.0)
    assert rig.core.operations.statistics().retired == 4
    rig.core.operations.set_budget(A, UNLIMITED)
    assert hosts(rig.drain(0.0)) == {"a.test"}
    assert rig.core.operations.statistics().retired == 2


@pytest.mark.parametrize("units", [-2, 1.5])
def test_a_budget_that_makes_no_sense_is_refused(units: int) -> None:
    """Nothing is changed."""
    rig = two_queues()
    with pytest.raises(PolicyError, match="total_budget"):
        rig.core.operations.set_budget(A, units)
    assert len(rig.drain(0.0)) == 6


@pytest.mark.parametrize("clean", [True, False])
def test_raising_the_orders_budget_between_two_runs_wakes_by_itself(clean: bool) -> None:
    """Queues that are still over it stay retired, and so does one that the operator retired."""
    rig = two_queues(budgets=Budgets(total_budget=1))
    rig.drain(0.0)
    rig.core.operations.resume(B)
    assert rig.state_of(B) == "retired", "the budget that counts is spent"
    rig.core.operations.set_budget(B, 0)
    rig.core.flush()
    rig = reopened(rig, clean=clean, budgets=Budgets(total_budget=1))
    assert rig.core.is_done
    rig = reopened(rig, clean=clean, budgets=Budgets(total_budget=2))
    assert (rig.state_of(A), rig.state_of(B)) == ("inactive", "retired")
    assert hosts(rig.drain(0.0)) == {"a.test"}
    rig = reopened(rig, clean=clean, budgets=Budgets(total_budget=UNLIMITED))
    assert hosts(rig.drain(0.0)) == {"a.test"}
    assert rig.core.is_done
    rig.core.operations.check()


# Removal


def test_removed_urls_end_as_disregarded() -> None:
    """With the status of a URL that the user deleted; they stay seen, and leases are left alone."""
    rig = two_queues()
    lease = rig.lease_now()
    removed = rig.core.operations.remove(lambda url: url.endswith(("0", "1")))
    assert removed == 3
    rig.core.operations.check()
    record = rig.core.operations.get(b"http://b.test/page0")
    assert record is not None
    assert (record.state, record.status, record.outcome) == (UrlState.ENDED, DELETED_BY_USER, "disregarded")
    assert rig.add("http://b.test/page0") == [SEEN]
    rig.finish(lease)
    assert sorted(rig.drain(0.0)) == ["http://a.test/page2", "http://b.test/page2"]
    rig.core.operations.check()


def test_removal_can_be_bound_to_one_queue() -> None:
    """Rows of others are not looked at."""
    rig = two_queues()
    assert rig.core.operations.remove(lambda url: True, A) == 3
    assert hosts(rig.drain(0.0)) == {"b.test"}
    assert rig.core.operations.remove(lambda url: True, QueueKey("nobody")) == 0


def test_a_url_that_waits_for_its_retry_can_be_removed() -> None:
    """It does not come due any more."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2))
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=10.0)
    assert rig.core.operations.remove(lambda url: url.endswith("0")) == 1
    assert rig.core.operations.statistics().waiting == 0
    rig.core.operations.check()
    assert rig.drain(0.0) == ["http://a.test/page1"]
    assert rig.core.is_done
    assert rig.clock.now_s == START_S


def test_all_of_many_can_be_removed() -> None:
    """More than are looked at in one go, in memory and not; nothing is left behind."""
    rig = build(policy="bkdr:7", politeness=HASTE)
    rig.add(*pages("a.test", 2500))
    rig.finish(rig.lease_now(), OutcomeKind.DEFERRED)
    assert rig.core.operations.remove(lambda url: True) == 2500
    assert rig.core.is_done
    assert rig.lease() is None
    rig.core.operations.check()


# Lists


def test_queues_are_listed_by_state() -> None:
    """Those in memory by what they do, the others by what their rows say; page by page."""
    rig = two_queues()
    rig.add("http://c.test/", "http://d.test/", "http://e.test/")
    operations = rig.core.operations
    operations.pause(QueueKey("c.test"))
    operations.retire(QueueKey("d.test"))
    lease = rig.lease_now()
    while lease.queue != "e.test":
        rig.release(lease)
        operations.pause(lease.queue)
        lease = rig.lease_now()
    rig.finish(lease, OutcomeKind.RETRY, after_s=10.0)
    for key in (A, B):
        operations.resume(key)

    def keys(state: QueueState | None) -> set[str]:
        return {view.key for view in operations.queues(state)}

    assert keys(QueueState.PAUSED) == {"c.test"}
    assert keys(QueueState.RETIRED) == {"d.test"}
    assert keys(QueueState.SNOOZED) == {"e.test"}
    assert keys(QueueState.INACTIVE) | keys(QueueState.READY) | keys(QueueState.LOADING) == {A, B}
    assert keys(QueueState.IN_FLIGHT) == set()
    assert keys(None) == {A, B, "c.test", "d.test", "e.test"}
    assert [len(operations.queues(None, None, limit)) for limit in (1, 3, 100)] == [1, 3, 5]


def test_the_longest_queues_come_first() -> None:
    """With what is known of them."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2), *pages("b.test", 5), *pages("c.test", 3))
    rig.finish(rig.lease_now())
    first, second = rig.core.operations.longest(2)
    assert (first.key, first.urls) == (B, 5)
    assert (second.key, second.urls) == ("c.test", 3)


# Errors


def test_a_queue_that_does_not_exist_is_named() -> None:
    """By every order that needs one."""
    operations = two_queues().core.operations
    for call in (operations.pause, operations.resume, operations.retire, operations.explain):
        with pytest.raises(UnknownQueue, match="there is no queue nobody"):
            call(QueueKey("nobody"))
    with pytest.raises(UnknownQueue):
        operations.set_budget(QueueKey("nobody"), 1)


class DeadStore(MemoryStore):
    """Its disk is gone."""

    is_dead = False

    def flush(self) -> None:
        if self.is_dead:
            raise StoreUnavailable("gone")


def test_an_order_that_cannot_be_kept_says_so() -> None:
    """The operator sees the error of the store."""
    store = DeadStore()
    rig = build(store=store)
    rig.add("http://a.test/")
    store.is_dead = True
    operations: Operations = rig.core.operations
    for call in (operations.pause, operations.resume, operations.retire, operations.explain):
        with pytest.raises(StoreUnavailable, match="gone"):
            call(A)


def test_how_many_would_be_removed_is_told_before() -> None:
    """Those that match and are not leased, in all queues or in one; nothing is changed."""
    rig = two_queues()
    lease = rig.lease_now()
    operations = rig.core.operations
    everything = operations.matching(lambda url: True)
    assert everything == rig.core.pending
    assert operations.matching(lambda url: True, lease.queue) < everything
    assert operations.matching(lambda url: url == lease.url) == 0
    assert operations.remove(lambda url: True) == everything
    assert operations.matching(lambda url: True) == 0


def test_a_queue_and_a_gate_can_be_looked_at_alone() -> None:
    """A gate that nobody has met is a new one; a queue that does not exist is an error."""
    rig = two_queues()
    view = rig.core.operations.longest(1)[0]
    assert rig.core.operations.view(view.key) == view
    assert rig.core.operations.gate(GateKey("nobody.test")).why_closed == ""
    with pytest.raises(UnknownQueue):
        rig.core.operations.view(QueueKey("nobody.test"))
