"""Looking in steps: what the store is asked stands alone, and the core may go on between two steps."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.leases import LeaseElsewhere
from anabranch.frontier.models import Candidate, GateKey, OutcomeKind, QueueKey
from anabranch.frontier.operating.steps import Steps, run
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from tests.frontier.builder import HASTE, Rig, build

A = QueueKey("a.test")


def filled() -> Rig:
    rig = build(politeness=HASTE)
    rig.add(*(f"http://a.test/{number}" for number in range(5)), "http://b.test/", "http://c.test/")
    return rig


def fetch(rig: Rig) -> None:
    lease = rig.lease()
    if lease is not None:
        rig.finish(lease, OutcomeKind.DONE)


def beside(rig: Rig, steps: Steps[Any]) -> Any:
    """Answer each question, and let the crawl go on before the answer comes."""
    try:
        question = next(steps)
        while True:
            answer = question()
            fetch(rig)
            question = steps.send(answer)
    except StopIteration as end:
        return end.value


def looks(rig: Rig) -> dict[str, Steps[Any]]:
    looking = rig.core.operations.looking
    return {
        "statistics": looking.statistics(),
        "queues": looking.queues(),
        "longest": looking.longest(3),
        "view": looking.view(A),
        "gate": looking.gate(GateKey("a.test")),
        "explain a URL": looking.explain("http://a.test/4"),
        "explain a queue": looking.explain("a.test"),
    }


@pytest.mark.parametrize("look", looks(build()))
def test_a_crawl_may_go_on_between_all_steps(look: str) -> None:
    """Nothing breaks, whatever moved; and nothing was changed by looking."""
    rig = filled()
    beside(rig, looks(rig)[look])
    while rig.core.pending:
        fetch(rig)
    rig.core.check()
    assert rig.core.counts().done == 7


def test_the_answer_is_of_its_time() -> None:
    """What was fetched while the store was asked is seen as fetched, where it is told last."""
    rig = filled()
    before = rig.core.counts().done
    assert beside(rig, rig.core.operations.looking.statistics()).done > before == 0


def test_nothing_is_done_before_the_first_step() -> None:
    """A look that nobody takes costs nothing, and asks nothing."""
    rig = filled()
    rig.core.operations.looking.statistics().close()
    rig.core.check()


#: What is said of a key of the wrong kind.
NO_TEXT = r"is text( that UTF-8 can hold)?; not"


@pytest.mark.parametrize("key", [None, 7, b"a.test", "a\udcff.test"])
def test_a_key_that_is_no_text_is_told_in_one_line(key: Any) -> None:
    """Before anything is asked or changed; the Frontier goes on."""
    rig = filled()
    operations = rig.core.operations
    calls = [
        operations.view,
        operations.gate,
        operations.explain,
        operations.pause,
        operations.resume,
        operations.retire,
    ]
    for call in calls:
        with pytest.raises(TypeError, match=NO_TEXT):
            call(key)
    with pytest.raises(TypeError, match=NO_TEXT):
        operations.set_budget(key, 5)
    with pytest.raises(TypeError, match=NO_TEXT):
        rig.core.block(key, 2_000_000.0)
    rig.core.check()
    assert rig.lease() is not None


def test_a_state_that_is_none_is_told() -> None:
    """Its name alone would match no queue, and the list be empty."""
    with pytest.raises(TypeError, match="QueueState"):
        filled().core.operations.queues("paused")  # type: ignore[arg-type]


def test_a_queue_that_is_not_there_is_named() -> None:
    """Whoever looks at it."""
    rig = filled()
    for look in (rig.core.operations.view, rig.core.operations.explain):
        with pytest.raises(UnknownQueue, match="nobody"):
            look(QueueKey("nobody"))


@pytest.mark.parametrize("number", ["9", None, 1 << 70, 1.5])
def test_a_number_that_no_store_can_hold_is_told_in_one_line(number: Any) -> None:
    """Before the store is asked, which would fail for good by it."""
    rig = filled()
    operations = rig.core.operations
    for call in (operations.longest, lambda limit: operations.queues(None, None, limit)):
        with pytest.raises(TypeError, match="is a whole number of 64 bits; not"):
            call(number)
    with pytest.raises(TypeError, match="a dedup key is bytes"):
        rig.core.ended([b"http://a.test/", number])
    rig.core.check()


def test_ready_queues_are_those_of_the_statistics() -> None:
    """It asks no store, and parked ones are counted among them."""
    rig = build(politeness=Politeness(min_delay_s=10.0, max_delay_s=10.0), policy="bkdr:97")
    rig.add(*(f"http://h{number}.test/{page}" for number in range(4) for page in range(5)))
    for lease in rig.lease_all()[:2]:
        rig.finish(lease)
    whole = rig.core.statistics()
    found = rig.core.operations.looking.ready()
    assert found == (whole.queues[QueueState.READY.value], whole.parked)
    assert found.parked


def test_a_copy_is_looked_at_as_its_process_stands() -> None:
    """Its leases are in flight here too, its gates are busy or rest; nothing of that is done here."""
    rig = build(politeness=HASTE)
    now_s = rig.core.now_s()
    lease = LeaseElsewhere(1, name_id("a.test"), name_id("a.test"), now_s - 5)
    rig.core.operations.looking.beside([lease], {name_id("b.test"): now_s + 9})
    rig.add(*(f"http://a.test/{number}" for number in range(5)), "http://b.test/", "http://c.test/")
    explain = rig.core.operations.explain
    assert "it was leased 5.0s ago" in explain("http://a.test/0").reason
    behind = explain("http://a.test/1")
    assert (behind.state, behind.earliest_s) == ("queued", None)
    assert "its gate a.test is closed: its only slot is out" in behind.reason
    assert explain("http://b.test/").earliest_s == now_s + 9
    view = rig.core.operations.view(A)
    assert (view.state, view.out, view.urls) == (QueueState.IN_FLIGHT, 1, 5)
    assert [each.key for each in rig.core.operations.queues(QueueState.IN_FLIGHT)] == [A]
    statistics = rig.core.statistics()
    assert (statistics.in_flight, statistics.pending) == (1, 6)
    assert {state: number for state, number in statistics.queues.items() if number} == {"in-flight": 1, "inactive": 2}
    assert rig.core.operations.matching(lambda url: "a.test" in url) == 4


def test_each_request_of_a_url_is_explained() -> None:
    """Whatever dedup knows it by; nothing of a URL that nobody has queued."""
    rig = build(politeness=HASTE)
    url = "http://a.test/"
    rig.core.schedule([Candidate(url, key=b"GET"), Candidate(url, key=b"POST")])
    lease = rig.lease()
    assert lease is not None
    rig.finish(lease, OutcomeKind.DISREGARDED)
    looking = rig.core.operations.looking
    assert [each.state for each in run(looking.explain_all(url))] == ["ended", "queued"]
    assert run(looking.explain_all(url))[0].reason == "it is disregarded"
    assert run(looking.explain_all("http://b.test/")) == run(looking.explain_all("http:///")) == []
