"""The engine of virtual time."""

from __future__ import annotations

import pytest

from anabranch.crawler.lab.simulation.virtualtime import Processor, Speed, VirtualClock, VirtualCrawl
from anabranch.frontier.composition import open_frontier
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.records import Candidate, Lease, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness


def crawl_of(urls: int, workers: int, politeness: Politeness | None = None) -> tuple[VirtualCrawl, list[Lease]]:
    clock, begun = VirtualClock(100.0), list[Lease]()
    order = FrontierOrder(policy="bkdr:997", scope=PolitenessScope.OFF)
    if politeness is not None:
        order = FrontierOrder(policy="bkdr:997", politeness=politeness)
    core = open_frontier(None, order, clock=clock)
    core.schedule([Candidate(f"http://a.test/{number}") for number in range(urls)])
    return VirtualCrawl(core, clock, workers, begun.append), begun


def test_no_more_leases_than_workers_are_out() -> None:
    """A worker is free again when its visit has ended."""
    crawl, begun = crawl_of(5, 2)
    assert [crawl.lease() is None for _ in range(3)] == [False, False, True]
    crawl.end(begun[0], Outcome(OutcomeKind.DONE))
    assert crawl.active == 1
    assert crawl.lease() is begun[2]


def test_what_is_due_at_one_time_happens_in_the_order_of_the_calls() -> None:
    """Runs are the same each time."""
    crawl, _ = crawl_of(0, 1)
    happened: list[str] = []
    for seconds, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        crawl.after(seconds, lambda name=name: happened.append(name))
    assert crawl.next_s() == 101.0
    crawl.go_on(101.0)
    assert happened == ["first", "second"]
    assert crawl.clock.now_s == 101.0


def test_what_follows_at_once_happens_before_time_goes_on() -> None:
    """An event may bring another that is due already."""
    crawl, _ = crawl_of(0, 1)
    happened: list[float] = []
    crawl.after(1.0, lambda: crawl.after(0.0, lambda: happened.append(crawl.clock.now_s)))
    crawl.go_on(101.0)
    assert happened == [101.0]


def test_a_lease_that_is_given_back_comes_again() -> None:
    """Its worker is free, and the URL first again."""
    crawl, begun = crawl_of(1, 1)
    crawl.lease()
    crawl.give_back(begun[0])
    assert crawl.active == 0
    crawl.lease()
    assert begun[1].url == begun[0].url


def test_nothing_more_happens_when_all_is_drained() -> None:
    """There is no time to go on to."""
    crawl, begun = crawl_of(1, 3)
    crawl.lease()
    crawl.end(begun[0], Outcome(OutcomeKind.DONE))
    assert crawl.lease() is None
    assert crawl.next_s() is None


def test_every_free_worker_gets_what_there_is() -> None:
    """The crawl leases one URL to each free worker, as long as there are URLs."""
    crawl, begun = crawl_of(5, 3)
    crawl.lease_all()
    assert (crawl.active, crawl.leases, len(begun)) == (3, 3, 3)
    for lease in begun[:3]:
        crawl.end(lease, Outcome(OutcomeKind.DONE))
    crawl.lease_all()
    assert (crawl.active, crawl.leases) == (2, 5)


def test_the_frontier_is_not_asked_again_as_long_as_nothing_has_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate opens at its time: neither before it nor at it is the Frontier asked whether it does."""
    crawl, begun = crawl_of(2, 5, Politeness(min_delay_s=7.0, max_delay_s=7.0))
    crawl.lease_all()
    crawl.end(begun[0], Outcome(OutcomeKind.DONE, 200, 100.0, 100.0))
    crawl.lease_all()
    asked: list[int] = []
    wake = crawl.core.wake
    monkeypatch.setattr(crawl.core, "wake", lambda: asked.append(len(begun)) or wake())
    crawl.after(3.0, lambda: None)
    crawl.go_on(103.0)
    crawl.lease_all()
    assert crawl.next_s() == 107.0
    crawl.go_on(107.0)
    crawl.lease_all()
    assert len(begun) == 2
    assert asked == [2]


def test_work_waits_for_the_work_before_it() -> None:
    """First come, first served; idle time is not made up for."""
    processor = Processor(Speed(page_s=2.0))
    assert [processor.serve(now_s) for now_s in (10.0, 11.0, 20.0)] == [2.0, 3.0, 2.0]
    assert processor.busy_s == 6.0


def test_pages_that_come_during_a_turn_share_the_next() -> None:
    """A turn of 3 s and 1 s a page: 10-14 for the first; 14-20 for the three that came meanwhile; 20-24 for the last."""
    processor = Processor(Speed(page_s=1.0, turn_s=3.0))
    waits = [processor.serve(now_s) for now_s in (10.0, 11.0, 12.0, 13.0, 15.0)]
    assert waits == [4.0, 7.0, 7.0, 7.0, 9.0]
    assert processor.busy_s == pytest.approx(3 * 3 + 5 * 1)


def test_with_time_to_spare_each_page_has_a_turn_of_its_own() -> None:
    """Then a page costs as much as both."""
    processor = Processor(Speed(page_s=1.0, turn_s=3.0))
    assert [processor.serve(now_s) for now_s in (10.0, 14.0, 20.0)] == [4.0, 4.0, 4.0]
    assert processor.busy_s == 12.0
