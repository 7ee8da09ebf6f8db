"""Cost, budgets and precedence of queues, as the order and its sheets say."""

from collections import Counter

import pytest

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import Candidate, GateKey, OutcomeKind, QueueKey
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.precedence import QueueHistory, parse_queue_precedence, parse_uri_precedence
from anabranch.frontier.policies.queuerules import QueueRules, pay
from anabranch.frontier.policies.sheets import Override, Settings, Sheets
from anabranch.frontier.scheduling.workqueues import WorkQueue
from tests.frontier.builder import HASTE, Rig, build, pages


def override(surt: str, **settings: object) -> Override:
    return Override((surt,), Settings(**settings))  # type: ignore[arg-type]


def order_of_hosts(rig: Rig) -> list[str]:
    """Hosts in the order in which they are served."""
    return [url.split("/")[2] for url in rig.drain(0.0)]


# The rules by themselves


def test_a_sheet_goes_before_the_order() -> None:
    """For the host of a queue, or for a queue that is named by its key."""
    sheets = Sheets(
        [
            override("test,a,", total_budget=7, session_budget=5, queue_precedence=1),
            override("test,b,", key=QueueKey("own"), total_budget=9),
        ]
    )
    rules = QueueRules(sheets=sheets, host_of=str, budgets=Budgets(total_budget=100, balance_replenish=50))
    a, own, other = QueueKey("a.test"), QueueKey("own"), QueueKey("c.test")
    assert [rules.total_budget(key, None) for key in (a, own, other)] == [7, 9, 100]
    assert [rules.session_budget(key) for key in (a, own, other)] == [5, 50, 50]
    assert [rules.first_precedence(key) for key in (a, own, other)] == [1, 3, 3]
    assert rules.total_budget(a, 1) == 1, "the operator's goes before the sheet's"


def test_a_queues_precedence_follows_its_history() -> None:
    """As the policy says; without one it is always the base."""
    queue = WorkQueue(1, 1)
    rules = QueueRules(queues=parse_queue_precedence("success:2,2"))
    rules.meet(queue)
    told = []
    for _ in range(6):
        told.append(rules.precedence(queue, OutcomeKind.DONE, 1))
        pay(queue, OutcomeKind.DONE, 1)
    assert told == [3, 4, 4, 5, 5, 6], "the page that ends now counts"
    assert rules.precedence(queue, OutcomeKind.RETRY, 1) == 6
    assert (queue.spent, queue.successes, queue.errors) == (6, 6, 0)
    pay(queue, OutcomeKind.FAILED, 101)
    assert (queue.spent, queue.successes, queue.errors) == (107, 6, 1)
    assert QueueRules().precedence(queue, OutcomeKind.DONE, 1) == queue.base_precedence


def test_a_sheet_of_url_precedence_asks_for_every_url() -> None:
    """Otherwise those that bring nothing of their own have one number."""
    plain = QueueRules(uris=parse_uri_precedence("base:5"))
    assert plain.plain_precedence == plain.in_row(Candidate("http://a.test/"), None)
    sheets = Sheets([override("http://(test,a,)/x", uri_precedence=200)])
    rules = QueueRules(uris=parse_uri_precedence("base:5"), sheets=sheets)
    assert rules.plain_precedence is None
    rows = [rules.in_row(Candidate(f"http://a.test/{path}"), None) & 255 for path in ("x/1", "y")]
    assert rows == [200, 5]


# The rules at work


def test_a_queue_of_smaller_precedence_is_served_first_at_its_gate() -> None:
    """By the sheet that names its key, wherever its URLs come from."""
    sheets = [
        override("test,l,", key=QueueKey("late"), queue_precedence=9),
        override("test,s,", key=QueueKey("soon"), queue_precedence=1),
        override("http://(test,a,)/late", key=QueueKey("late")),
        override("http://(test,a,)/soon", key=QueueKey("soon")),
    ]
    rig = build(politeness=HASTE, overrides=sheets)
    rig.add(*(f"http://a.test/{where}/{number}" for number in range(4) for where in ("late", "x", "soon")))
    served = [url.split("/")[3] for url in rig.drain(0.0)]
    assert served == ["soon"] * 4 + ["x"] * 4 + ["late"] * 4
    rig.core.check()


def test_a_host_of_smaller_precedence_is_taken_into_memory_first() -> None:
    """Where memory has room for few gates, those with the smallest turns come first."""
    rig = build(
        politeness=HASTE,
        gates_in_memory=1,
        overrides=[override("test,c,", queue_precedence=1), override("test,a,", queue_precedence=9)],
    )
    rig.add("http://b.test/", "http://a.test/", "http://d.test/", "http://c.test/")
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, **{**order_fields(rig), "gates_in_memory": 1})
    assert order_of_hosts(again) == ["c.test", "b.test", "d.test", "a.test"]


def order_fields(rig: Rig) -> dict[str, object]:
    return {"politeness": rig.order.politeness, "overrides": rig.order.overrides}


def test_a_queue_at_the_floor_never_runs() -> None:
    """Its URLs are kept; the others are served, the crawl is not done."""
    rig = build(politeness=HASTE, overrides=[override("test,a,", queue_precedence=255)])
    rig.add(*pages("a.test", 2), "http://b.test/")
    assert order_of_hosts(rig) == ["b.test"]
    assert not rig.core.is_done
    assert rig.lease() is None
    rig.core.check()


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_that_succeeds_gives_way_and_remembers_it(clean: bool) -> None:
    """After each session its precedence is asked for again; what it rests on survives a restart."""
    order = {
        "politeness": HASTE,
        "policy": "bkdr:5",
        "queue_precedence": "success:2",
        "budgets": Budgets(balance_replenish=2),
    }
    rig = build(**order)
    rig.add(*pages("a.test", 200))
    had = Counter[QueueKey]()
    while 2 not in had.values():
        lease = rig.lease_now()
        had[lease.queue] += 1
        rig.finish(lease)
    assert precedences(rig)[lease.queue] == 4
    if clean:
        rig.core.close()
    else:
        rig.store.close(clean=False)
    rig.clock.advance(60.0)
    again = build(store=rig.store, clock=rig.clock, **order)
    assert precedences(again)[lease.queue] == 4
    others: set[QueueKey] = set()
    while (served := again.lease_now()).queue != lease.queue:
        others.add(served.queue)
        again.finish(served)
    assert len(others) == 4


@pytest.mark.parametrize("total_budget", [-1, 100])
def test_a_queue_that_is_alone_has_its_new_precedence_too(total_budget: int) -> None:
    """Though it goes on at once: who comes later with a smaller one is served first, and a restart remembers it."""
    order = {
        "politeness": HASTE,
        "policy": "parallel:2",
        "queue_precedence": "success:2",
        "budgets": Budgets(balance_replenish=2, total_budget=total_budget),
    }
    rig = build(**order)
    ours = [
        url for url in pages("a.test", 40) if rig.parts.intake.assign(url) == (QueueKey("a.test"), GateKey("a.test"))
    ]
    rig.add(*ours[:9])
    for _ in range(4):
        rig.finish(rig.lease_now())
    assert precedences(rig) == {QueueKey("a.test"): 5}
    assert rig.store.queue(name_id("a.test")).row.precedence == 5  # type: ignore[union-attr]
    rig.core.check()
    rig.store.close(clean=False)
    rig.clock.advance(60.0)
    again = build(store=rig.store, clock=rig.clock, **order)
    again.add(*pages("a.test", 40))
    assert again.lease_now().queue == "a.test+1"


def test_a_queue_that_comes_to_the_floor_alone_runs_no_more() -> None:
    """Its heads that are in memory or on their way are not served either."""
    rig = build(
        politeness=HASTE, queue_precedence="tests.frontier.policies.test_queuerules:sinking",
        budgets=Budgets(balance_replenish=2),
    )  # fmt: skip
    rig.add(*pages("a.test", 50))
    assert len(rig.drain(0.0)) == 6
    rig.core.check()


def sinking(history: QueueHistory) -> int:
    return 255 if history.successes >= 6 else history.base


def precedences(rig: Rig) -> dict[QueueKey, int]:
    return {view.key: view.precedence for view in rig.core.operations.queues()}


def test_a_sheets_total_budget_retires_its_hosts_queue_only() -> None:
    """The order's holds for the others."""
    rig = build(politeness=HASTE, overrides=[override("test,a,", total_budget=2)])
    rig.add(*pages("a.test", 4), *pages("b.test", 4))
    assert sorted(order_of_hosts(rig)) == ["a.test"] * 2 + ["b.test"] * 4
    assert rig.core.statistics().retired == 2
    rig.core.check()


def test_a_sheets_budget_that_was_raised_wakes_by_itself() -> None:
    """At the next opening, as the order's does."""
    rig = build(politeness=HASTE, overrides=[override("test,a,", total_budget=2)])
    rig.add(*pages("a.test", 4))
    rig.drain(0.0)
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, politeness=HASTE, overrides=[override("test,a,", total_budget=3)])
    assert len(again.drain(0.0)) == 1
    again.core.check()
