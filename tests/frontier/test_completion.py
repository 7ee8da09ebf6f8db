"""Leases by the ordinal of their URL."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from anabranch.frontier.completion import MAX_PAGES, Leases, asked_rest_s, trouble_of
from anabranch.frontier.errors import LeaseLost, PolicyError
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.records import (
    NEW,
    GateKey,
    Head,
    HostTrouble,
    Lease,
    Outcome,
    OutcomeKind,
    QueueKey,
    Turn,
    UrlState,
    name_id,
)
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.heaps import GateHeap
from anabranch.frontier.scheduling.readylist import Lane, ReadyList, WorkQueue
from anabranch.frontier.stores.contract import Standing
from tests.frontier.builder import HASTE, START_S, CountingStore, Rig, build, candidates, pages, row
from tests.rows import each_row


def hand_out(leases: Leases, ordinal: int = 7, now_s: float = 12.5, via: str | None = "http://a.test/") -> Lease:
    queue = WorkQueue(1, 1)
    queue.key = QueueKey("bkdr:1")
    lane = Lane(queue, ReadyList(Gate(2, GateKey("a.test"), Politeness()), GateHeap()), Turn(1), 3000)
    taken = row(ordinal)._replace(hops="LL", attempts=2, key=b"own", payload=b"\0", via=3)
    return leases.hand_out(lane, Head(taken, via), now_s)


def lost(leases: Leases, now_s: float) -> list[int]:
    return [lease.ordinal for lease, _, _ in leases.take_expired(now_s)]


def test_a_lease_says_all_that_a_worker_needs() -> None:
    """The row's facts, its queue and gate by name, and the moment; it ends only with its process."""
    assert hand_out(Leases()) == Lease(
        ordinal=7,
        url="http://a.test/7",
        key=b"own",
        hops="LL",
        via="http://a.test/",
        attempts=2,
        payload=b"\0",
        queue=QueueKey("bkdr:1"),
        gate=GateKey("a.test"),
        since_s=12.5,
        until_s=math.inf,
    )


def test_a_lease_comes_back_once() -> None:
    """It answers what was kept beside it; the second time it is lost."""
    leases = Leases()
    lease = hand_out(leases)
    assert (len(leases), leases.ordinals(), leases.since_s(7)) == (1, {7}, lease.since_s)
    assert leases.find(lease)[0] is lease
    held = leases.take_back(lease)
    assert (held[0], held[1].id, held[2].row.ordinal) == (lease, (1, 2), 7)
    assert (len(leases), leases.ordinals(), leases.since_s(7)) == (0, set(), None)
    with pytest.raises(LeaseLost, match=r"the lease of http://a\.test/7 is not out"):
        leases.take_back(lease)


def test_another_lease_of_the_same_url_is_not_this_one() -> None:
    """A worker that lost its lease cannot end the one that another got since."""
    leases = Leases()
    old = hand_out(leases)
    leases.take_back(old)
    new = hand_out(leases, now_s=99.0)
    with pytest.raises(LeaseLost):
        leases.take_back(old)
    assert leases.take_back(new)[0] is new


def test_a_lease_without_end_is_never_lost() -> None:
    """Its owner is the one who fetches: if that process dies, so does the lease."""
    leases = Leases()
    hand_out(leases)
    assert leases.next_expiry() is None
    assert lost(leases, 1e12) == []


def test_a_lease_that_is_not_ended_in_its_time_is_lost() -> None:
    """The oldest first; it is counted, and whoever had it hears of it."""
    leases = Leases(lease_s=60.0)
    first, second, third = (hand_out(leases, ordinal, now_s) for ordinal, now_s in [(1, 0.0), (2, 10.0), (3, 20.0)])
    assert (first.until_s, leases.next_expiry()) == (60.0, 60.0)
    leases.take_back(second)
    assert lost(leases, 59.9) == []
    assert lost(leases, 80.0) == [1, 3]
    assert leases.lost == 2
    with pytest.raises(LeaseLost):
        leases.take_back(third)


def test_a_renewed_lease_lasts_as_long_again() -> None:
    """From the renewal on; what was handed out before still names it."""
    leases = Leases(lease_s=60.0)
    lease = hand_out(leases, now_s=0.0)
    renewed = leases.renew(lease, 50.0)
    assert renewed == lease._replace(until_s=110.0)
    assert (leases.next_expiry(), lost(leases, 109.0)) == (110.0, [])
    again = leases.renew(lease, 100.0)
    assert leases.take_back(renewed)[0] == again
    assert leases.next_expiry() is None


def test_a_lost_lease_cannot_be_renewed() -> None:
    """It may have been given to another meanwhile."""
    leases = Leases(lease_s=60.0)
    lease = hand_out(leases, now_s=0.0)
    assert lost(leases, 60.0) == [7]
    with pytest.raises(LeaseLost):
        leases.renew(lease, 61.0)


def test_a_page_that_sent_links_ahead_of_its_end_is_remembered_as_their_via() -> None:
    """The store tells a page's URL only when its end is written; so many pages are kept, the oldest goes first."""
    leases = Leases()
    page = hand_out(leases, 3)
    assert hand_out(leases, 8, via=None).via is None
    leases.remember(page)
    assert hand_out(leases, 9, via=None).via == page.url
    for ordinal in range(100, 100 + MAX_PAGES):
        leases.remember(page._replace(ordinal=ordinal))
    assert hand_out(leases, 10, via=None).via is None


URL = "http://a.test/page0"
A = QueueKey("a.test")


def spent(rig: Rig, queue: str = "a.test") -> int:
    (view,) = [view for view in rig.core.operations.queues() if view.key == queue]
    return view.spent


# RETIRE


def test_retire_puts_the_url_back_and_its_queue_aside() -> None:
    """No attempt is counted, nothing is paid, the slot rests after a fetch; the queue's URLs are kept."""
    rig = build()
    rig.add(*pages("a.test", 3))
    lease = rig.lease_now()
    assert rig.fetch(lease, 1.0, kind=OutcomeKind.RETIRE, links=["http://a.test/new", "http://b.test/"]) == [NEW, NEW]
    rig.core.operations.check()
    assert rig.state_of("a.test") == "retired"
    assert spent(rig) == 0
    assert rig.drain() == ["http://b.test/"]
    assert rig.core.is_done
    assert rig.core.operations.statistics().retired == 4
    rig.core.operations.resume(A)
    again = rig.lease_now()
    assert (again.url, again.attempts) == (lease.url, 0)


def test_retire_for_one_of_two_leases_lets_the_other_end() -> None:
    """It is finished in order; a second RETIRE changes nothing more."""
    store = CountingStore()
    rig = build(store=store, per_queue=3, politeness=Politeness(slots=3))
    rig.add(*pages("a.test", 4))
    one, two, three = rig.lease_all()
    rig.finish(one, OutcomeKind.RETIRE)
    rig.core.operations.check()
    rig.finish(two)
    rig.finish(three, OutcomeKind.RETIRE)
    rig.core.operations.check()
    stood = [standing for batch in store.batches for _, standing in batch.standings]
    assert stood == [Standing.RETIRED]
    statistics = rig.core.operations.statistics()
    assert (statistics.done, statistics.retired, statistics.pending) == (1, 3, 0)


def test_a_queue_that_was_retired_by_a_lease_stays_so_whatever_the_order_allows() -> None:
    """Its own total budget ends there, as if the operator had retired it: a raised budget of the order does not wake it."""
    rig = build(budgets=Budgets(total_budget=5))
    rig.add(*pages("a.test", 3))
    rig.finish(rig.lease_now(), OutcomeKind.RETIRE)
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, budgets=Budgets(total_budget=50))
    assert again.state_of("a.test") == "retired"
    again.core.operations.resume(A)
    assert again.settled().url == URL


def test_a_paused_queue_stays_paused_whatever_a_lease_says() -> None:
    """The operator goes first."""
    rig = build()
    rig.add(*pages("a.test", 2))
    lease = rig.lease_now()
    rig.core.operations.pause(A)
    rig.finish(lease, OutcomeKind.RETIRE)
    assert rig.state_of("a.test") == "paused"
    rig.core.operations.check()
    rig.core.operations.resume(A)
    assert rig.state_of("a.test") != "retired"


# Budgets


@each_row(
    ("kind", "paid"),
    [
        (OutcomeKind.DONE, 1),
        (OutcomeKind.RETRY, 1),
        (OutcomeKind.FAILED, 11),
        (OutcomeKind.DISREGARDED, 0),
        (OutcomeKind.DEFERRED, 0),
        (OutcomeKind.RETIRE, 0),
    ],
)
def test_a_queue_pays_for_what_was_tried(kind: OutcomeKind, paid: int) -> None:
    """A URL that failed for good costs the penalty too; one that was not fetched, or went back, is free."""
    rig = build(budgets=Budgets(error_penalty=10))
    rig.add(URL, "http://a.test/1")
    rig.finish(rig.lease_now(), kind, after_s=1.0)
    assert spent(rig) == paid
    rig.core.operations.check()


def test_a_queue_over_its_total_budget_is_retired() -> None:
    """Exactly when it has spent it; its lease that is out still ends."""
    rig = build(politeness=HASTE, budgets=Budgets(total_budget=3))
    rig.add(*pages("a.test", 5), *pages("b.test", 2))
    fetched = rig.drain(0.0)
    assert [url for url in fetched if "a.test" in url] == pages("a.test", 3)
    assert len(fetched) == 5
    assert rig.core.is_done
    assert (rig.state_of("a.test"), rig.core.operations.statistics().retired) == ("retired", 2)
    rig.core.operations.check()


def test_a_total_budget_of_nothing_lets_nothing_run() -> None:
    """The URLs are taken and kept."""
    rig = build(budgets=Budgets(total_budget=0))
    assert rig.add(URL) == [NEW]
    assert rig.lease() is None
    assert rig.core.is_done, "known without another call"
    assert rig.core.operations.statistics().retired == 1
    rig.core.operations.check()


def leases_in_turn(rig: Rig, limit: int) -> list[QueueKey]:
    """The queues of the next leases; each is done before the next one."""
    queues = []
    while len(queues) < limit and (lease := rig.lease()) is not None:
        queues.append(lease.queue)
        rig.finish(lease)
    return queues


def test_a_penalty_pushes_a_broken_queue_behind_its_equals() -> None:
    """One failure costs a session: every other queue of the gate has its turn before it is served again."""
    rig = build(policy="bkdr:5", politeness=HASTE, budgets=Budgets(balance_replenish=10, error_penalty=100))
    rig.add(*pages("a.test", 200))
    broken = rig.lease_now()
    rig.finish(broken, OutcomeKind.FAILED)
    queues = leases_in_turn(rig, 200)
    assert len(set(queues[: queues.index(broken.queue)])) == 4
    rig.core.operations.check()


def test_a_session_ends_behind_all_that_wait() -> None:
    """So many URLs, then it is the others' turn: nobody begins a second session while somebody has had none."""
    rig = build(policy="bkdr:5", politeness=HASTE, budgets=Budgets(balance_replenish=3))
    rig.add(*pages("a.test", 200))
    had = Counter[QueueKey]()
    for queue in leases_in_turn(rig, 200):
        had[queue] += 1
        if had[queue] == 4:
            break
    assert len(had) == 5
    rig.core.operations.check()


def test_a_queue_alone_needs_no_session() -> None:
    """With nobody behind it, it goes on."""
    rig = build(politeness=HASTE, budgets=Budgets(balance_replenish=1))
    rig.add(*pages("a.test", 10))
    assert rig.drain(0.0) == pages("a.test", 10)


def test_what_a_queue_spent_survives_a_restart() -> None:
    """It is written with what it was spent for."""
    rig = build(politeness=HASTE, budgets=Budgets(total_budget=3))
    rig.add(*pages("a.test", 5))
    for _ in range(2):
        rig.finish(rig.lease_now())
    rig.store.close(clean=False)
    again = build(store=rig.store, clock=rig.clock, politeness=HASTE, budgets=Budgets(total_budget=3))
    again.clock.advance(60.0)
    assert spent(again) == 2
    assert len(again.drain(0.0)) == 1
    assert again.state_of("a.test") == "retired"
    again.core.operations.check()


# Costs that are not constant


def test_a_cost_of_ones_own_is_paid() -> None:
    """With the URL, its page and its hops; of `zero` nothing."""
    rig = build(politeness=HASTE, cost=f"{__name__}:cost", uri_precedence="base")
    rig.add(URL)
    rig.finish(rig.lease_now(), links=["http://a.test/next"])
    assert spent(rig) == 10
    rig.finish(rig.lease_now())
    assert rig.store.queue(name_id("a.test")).row.spent == 13  # type: ignore[union-attr]


def cost(url: str, via: str | None, hops: str) -> int:
    """10 for a seed, 3 for a link; anything with "bad" fails."""
    assert hops == ""
    if "bad" in url:
        raise RuntimeError("no price")
    return 3 if via else 10


def test_a_cost_that_fails_changes_nothing() -> None:
    """The lease is still out, no link is taken; it can be released."""
    rig = build(politeness=HASTE, cost=f"{__name__}:cost", uri_precedence="base")
    rig.add("http://a.test/bad")
    lease = rig.lease_now()
    sent = rig.core.unacknowledged.last
    with pytest.raises(PolicyError, match=r"cost .*:cost for http://a\.test/bad failed: RuntimeError: no price"):
        rig.core.finish(lease, Outcome(OutcomeKind.DONE), candidates("http://a.test/x"))
    assert (rig.core.unacknowledged.last, rig.core.in_flight, rig.core.pending) == (sent, 1, 0)
    rig.core.operations.check()
    rig.release(lease)
    rig.core.operations.check()


def precedence(history: object) -> int:
    """Fails as soon as two pages were fetched."""
    if getattr(history, "successes", 0) > 1:
        raise RuntimeError("no rank")
    return 3


def test_a_queue_precedence_that_fails_changes_nothing() -> None:
    """It is asked before the lease ends."""
    rig = build(politeness=HASTE, queue_precedence=f"{__name__}:precedence")
    rig.add(*pages("a.test", 3))
    rig.finish(rig.lease_now())
    lease = rig.lease_now()
    with pytest.raises(PolicyError, match="no rank"):
        rig.core.finish(lease, Outcome(OutcomeKind.DONE))
    assert (rig.core.in_flight, rig.core.operations.statistics().done) == (1, 1)
    rig.core.operations.check()


# Retries


def test_a_retry_comes_due_at_its_old_precedence() -> None:
    """It waits behind all that can be served, and is then where it was."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2))
    rig.core.schedule(candidates("http://a.test/front", front=True))
    lease = rig.lease_now()
    assert lease.url == "http://a.test/front"
    rig.finish(lease, OutcomeKind.RETRY, after_s=5.0)
    record = rig.core.operations.get(lease.key)
    assert record is not None
    assert (record.state, record.due_s) == (UrlState.WAITING, START_S + 5.0)
    rig.finish(rig.lease_now())
    rig.clock.advance(5.0)
    assert rig.lease_now().url == "http://a.test/front"
    rig.core.operations.check()


def test_a_retry_of_a_gate_that_has_left_memory_comes_back() -> None:
    """The gate gets a turn when it comes due."""
    rig = build(politeness=HASTE, gates_in_memory=1)
    rig.add(URL)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=5.0)
    rig.add(*pages("b.test", 2))
    assert rig.drain(0.0) == [*pages("b.test", 2), URL]
    rig.core.operations.check()


def test_waiting_urls_survive_a_restart() -> None:
    """With their attempts and their times."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2))
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=500.0)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=400.0)
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, politeness=HASTE)
    assert again.core.operations.statistics().waiting == 2
    assert again.drain(0.0) == ["http://a.test/page1", "http://a.test/page0"]
    assert again.clock.now_s == START_S + 500.0
    again.core.operations.check()


# Trouble


def test_a_trouble_of_a_host_closes_its_gate_only() -> None:
    """The group's gate goes on, other hosts of it are served."""
    rig = build(group="domain", politeness=HASTE, group_politeness=HASTE)
    rig.add("http://a.d.test/", "http://a.d.test/2", "http://b.d.test/")
    lease = rig.lease_now()
    rig.finish(lease, OutcomeKind.RETRY, after_s=1.0, trouble=HostTrouble.THROTTLED, retry_after_s=100.0)
    assert rig.lease_now().url == "http://b.d.test/"
    assert rig.lease() is None


def test_what_a_host_asks_for_is_kept_though_the_fetch_went_well() -> None:
    """A 200 with Retry-After."""
    rig = build()
    rig.add(*pages("a.test", 2))
    rig.finish(rig.lease_now(), retry_after_s=100.0)
    assert rig.lease() is None
    assert rig.core.wake().at_s == START_S + 100.0


def troubles(rig: Rig) -> int:
    return rig.line("a.test").gate.troubles


def after_a_429() -> tuple[Rig, Lease]:
    """A host that has answered 429 once, and the first lease after its block."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 3))
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=1e6, trouble=HostTrouble.THROTTLED)
    lease = rig.settled()
    assert troubles(rig) == 1
    return rig, lease


@each_row(
    ("kind", "status", "left"),
    [
        (OutcomeKind.DONE, 200, 0),
        (OutcomeKind.DONE, 0, 0),
        (OutcomeKind.FAILED, 404, 0),
        (OutcomeKind.RETRY, -6, 1),
        (OutcomeKind.FAILED, -1, 1),
        (OutcomeKind.DEFERRED, 0, 1),
    ],
)
def test_only_an_answer_of_the_host_takes_a_trouble_back(kind: OutcomeKind, status: int, left: int) -> None:
    """A name that was not found, or a fetch that was broken off, took its time and proves nothing."""
    rig, lease = after_a_429()
    rig.core.finish(lease, Outcome(kind, status, lease.since_s, rig.clock.now_s, after_s=1.0))
    assert troubles(rig) == left


def test_a_lease_that_was_lost_takes_no_trouble_back() -> None:
    """Nobody knows what became of its fetch."""
    rig = build(politeness=HASTE, lease_s=20.0, fetch_limit_s=10.0)
    rig.add(*pages("a.test", 2))
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=1e6, trouble=HostTrouble.THROTTLED)
    rig.clock.advance(100.0)
    rig.lease_now()
    rig.clock.advance(20.0)
    assert rig.core.lease() is None
    assert (rig.core.operations.statistics().leases_lost, troubles(rig)) == (1, 1)


NOW_S = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@each_row(
    ("value", "asked_s"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("360000", 360_000.0),
        ("9" * 400, math.inf),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120.0),
        ("Tue, 14 Nov 2023 22:15:20 -0000", 120.0),
        ("Wed, 15 Nov 2023 22:13:20 GMT", 86_400.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("\u0663", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        ("Tue, 99 Nov 2023 22:13:20 GMT", 0.0),
        ("Tue, 14 Nov 99999999 22:13:20 GMT", 0.0),
    ],
)
def test_what_a_host_asks_for_is_told_uncut(value: str, asked_s: float) -> None:
    """Seconds or a date; never negative, 0 if it cannot be read. The Frontier knows the longest that may be asked for."""
    assert asked_rest_s(value, NOW_S) == asked_s


@each_row(
    ("status", "retry_after", "told"),
    [
        (200, "", (HostTrouble.NONE, 0.0)),
        (200, "7", (HostTrouble.NONE, 0.0)),
        (302, "7", (HostTrouble.NONE, 7.0)),
        (404, "", (HostTrouble.NONE, 0.0)),
        (404, "7", (HostTrouble.UNAVAILABLE, 7.0)),
        (429, "", (HostTrouble.THROTTLED, 0.0)),
        (429, "7", (HostTrouble.THROTTLED, 7.0)),
        (500, "", (HostTrouble.NONE, 0.0)),
        (500, "7", (HostTrouble.UNAVAILABLE, 7.0)),
        (503, "", (HostTrouble.UNAVAILABLE, 0.0)),
        (503, "7", (HostTrouble.UNAVAILABLE, 7.0)),
    ],
)
def test_an_answer_tells_of_its_host(status: int, retry_after: str, told: tuple[HostTrouble, float]) -> None:
    """429 is too much, 503 or an error with Retry-After is trouble; a redirect's Retry-After is a wish without trouble."""
    assert trouble_of(status, retry_after, NOW_S) == told
