"""Looking in steps: what the store is asked stands alone, and the core may go on between two steps."""

from __future__ import annotations

import math
from typing import Any

import pytest

from anabranch.frontier.completion import LeaseElsewhere
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.inspect.explain import Explanation, text_of
from anabranch.frontier.parts import Steps, run
from anabranch.frontier.records import Candidate, GateKey, HostTrouble, OutcomeKind, QueueKey, name_id
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from tests.frontier.builder import HASTE, START_S, Rig, build, pages

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
    looking = rig.core.operations.views
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
    rig.core.operations.check()
    assert rig.core.counts().done == 7


def test_the_answer_is_of_its_time() -> None:
    """A page that is fetched while the store is asked counts as fetched."""
    rig = filled()
    before = rig.core.counts().done
    assert beside(rig, rig.core.operations.views.statistics()).done > before == 0


def test_nothing_is_done_before_the_first_step() -> None:
    """A look that nobody takes costs nothing, and asks nothing."""
    rig = filled()
    rig.core.operations.views.statistics().close()
    rig.core.operations.check()


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
    rig.core.operations.check()
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
        rig.core.operations.ended([b"http://a.test/", number])
    rig.core.operations.check()


def test_ready_queues_are_those_of_the_statistics() -> None:
    """It asks no store, and parked ones are counted among them."""
    rig = build(politeness=Politeness(min_delay_s=10.0, max_delay_s=10.0), policy="bkdr:97")
    rig.add(*(f"http://h{number}.test/{page}" for number in range(4) for page in range(5)))
    for lease in rig.lease_all()[:2]:
        rig.finish(lease)
    whole = rig.core.operations.statistics()
    found = rig.core.operations.views.ready()
    assert found == (whole.queues[QueueState.READY.value], whole.parked)
    assert found.parked


def test_the_busiest_gates_stand_first_with_what_each_waits_for() -> None:
    """Those with fetches under way, then those that have URLs; one that has neither is not named."""
    rig = build(politeness=Politeness(min_delay_s=10.0, max_delay_s=10.0))
    rig.add("http://idle.test/", *(f"http://{host}.test/{page}" for host in ("rests", "busy") for page in range(3)))
    views, leases = rig.core.operations.views, rig.lease_all()
    for lease in leases:
        if "busy" not in lease.url:
            rig.finish(lease)
    (busy, words), (rests, why) = views.busiest(5)
    assert (busy, words) == ("busy.test", "1 fetch under way")
    assert (rests, why) == ("rests.test", "rests for another 10s")
    assert views.busiest(1) == [(busy, words)]


def test_a_copy_is_looked_at_as_its_process_stands() -> None:
    """Its leases are in flight here too, its gates are busy or rest; nothing of that is done here."""
    rig = build(politeness=HASTE)
    now_s = rig.core.now_s()
    lease = LeaseElsewhere(1, name_id("a.test"), name_id("a.test"), now_s - 5)
    rig.core.operations.views.show_elsewhere([lease], {name_id("b.test"): now_s + 9})
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
    statistics = rig.core.operations.statistics()
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
    looking = rig.core.operations.views
    assert [each.state for each in run(looking.explain_all(url))] == ["ended", "queued"]
    assert run(looking.explain_all(url))[0].reason == "it is disregarded"
    assert run(looking.explain_all("http://b.test/")) == run(looking.explain_all("http:///")) == []


URL = "http://a.test/page0"
GROUPED: dict[str, Any] = {"group": "domain", "politeness": HASTE, "group_politeness": Politeness(min_delay_s=10.0)}


def why(rig: Rig, subject: str) -> Explanation:
    explanation = rig.core.operations.explain(subject)
    assert text_of(explanation, rig.clock.now_s)
    return explanation


# URLs


def test_a_url_that_nobody_scheduled_has_a_place_all_the_same() -> None:
    """The answer names the queue it would enter, and the rate of its gate."""
    found = why(build(), URL)
    assert (found.seen, found.state, found.queue, found.gate) == (False, "never scheduled", "a.test", "a.test")
    assert found.earliest_s is None
    assert found.highest_rate == pytest.approx(1 / 3)


def test_a_url_without_a_host_can_never_be_queued() -> None:
    """And says why."""
    found = why(build(), "mailto://")
    assert (found.state, found.queue) == ("refused", None)
    assert found.reason == "it cannot be queued: it has no host; an absolute URL is needed"


def test_a_url_that_only_the_filter_knows_is_not_stored() -> None:
    """A false drop: it says how to get it in."""
    rig = build()
    rig.seen.mark([URL.encode()])
    found = why(rig, URL)
    assert (found.seen, found.state) == (True, "not stored")
    assert "force" in found.reason


def test_a_queued_url_at_an_open_gate_can_be_leased_now() -> None:
    """It stands first."""
    rig = build()
    rig.add(URL)
    found = why(rig, URL)
    assert (found.state, found.ahead, found.earliest_s) == ("queued", 0, START_S)


def test_a_queued_url_waits_for_those_before_it_and_for_its_gate() -> None:
    """They take as long as the gate's rate says, from when it opens."""
    rig = build()
    rig.add(*pages("a.test", 5))
    rig.block("a.test", START_S + 60.0)
    found = why(rig, "http://a.test/page4")
    assert (found.state, found.ahead) == ("queued", 4)
    assert "its gate a.test is closed: blocked for another 1m" in found.reason
    assert "4 URLs are before it in its queue" in found.reason
    assert found.earliest_s == START_S + 60.0 + 4 * 3.0


def test_a_url_behind_a_group_is_told_of_it() -> None:
    """Both gates count."""
    rig = build(group="domain", group_politeness=Politeness(min_delay_s=10.0))
    rig.add("http://a.d.test/", "http://b.d.test/")
    rig.finish(rig.lease_now())
    found = why(rig, "http://b.d.test/")
    assert found.group == "domain:d.test"
    assert "its group's gate domain:d.test is closed: rests for another 10s" in found.reason
    assert found.earliest_s == START_S + 10.0
    assert found.highest_rate == pytest.approx(0.1)


def test_a_leased_url_says_since_when() -> None:
    """And no time is known."""
    rig = build()
    rig.add(URL)
    rig.lease_now()
    rig.clock.advance(90.0)
    found = why(rig, URL)
    assert (found.state, found.earliest_s, found.ahead) == ("leased", None, None)
    assert found.reason.startswith("it was leased ")


def test_a_url_that_waits_for_its_retry_says_until_when() -> None:
    """With the tries that counted."""
    rig = build(politeness=HASTE)
    rig.add(URL)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=120.0)
    found = why(rig, URL)
    assert (found.state, found.earliest_s) == ("waiting", START_S + 120.0)
    assert "after 1 try" in found.reason


def test_an_ended_url_says_how() -> None:
    """Also with a key of its own, if that is the URL's; its queue and gate are told."""
    rig = build(politeness=HASTE)
    rig.add(URL)
    rig.finish(rig.lease_now())
    found = why(rig, URL)
    assert (found.seen, found.state, found.reason) == (True, "ended", "it is done with status 200")
    assert found.earliest_s is None


@pytest.mark.parametrize(
    ("order", "words"), [("pause", "is paused by the operator"), ("retire", "is retired by the operator")]
)
def test_a_url_of_a_queue_that_is_held_back_has_no_time(order: str, words: str) -> None:
    """Nothing but the operator lets it go on."""
    rig = build()
    rig.add(URL)
    getattr(rig.core.operations, order)(A)
    found = why(rig, URL)
    assert (found.state, found.earliest_s) == ("queued", None)
    assert f"its queue {words}" in found.reason


# Queues


def states_of_a_queue(rig: Rig) -> dict[str, Explanation]:
    """The explanations of one queue on its way."""
    told = {}

    def note() -> None:
        found = why(rig, A)
        told[found.state] = found

    rig.add(*pages("a.test", 2))
    note()
    first = rig.lease_now()
    note()
    rig.finish(first, OutcomeKind.RETRY, after_s=60.0)
    note()
    second = rig.lease_now()
    rig.finish(second)
    note()
    rig.core.operations.pause(A)
    note()
    rig.core.operations.resume(A)
    rig.core.operations.retire(A)
    note()
    rig.core.operations.resume(A)
    rig.drain(0.0)
    note()
    return told


def test_a_queue_is_explained_in_each_of_its_states() -> None:
    """With its URLs, and the time if time will help."""
    rig = build(politeness=HASTE)
    told = states_of_a_queue(rig)
    assert told.keys() == {"inactive", "in-flight", "ready", "snoozed", "paused", "retired", "empty"}
    assert told["inactive"].reason == "it holds 2 URLs; it waits for its turn, at precedence 3"
    assert told["in-flight"].reason.startswith("it holds 2 URLs; 1 URL in flight")
    assert told["ready"].reason == "it holds 2 URLs, 1 waiting for a retry; its next URL can be leased now"
    assert told["snoozed"].reason.startswith("it holds 1 URL, 1 waiting for a retry; none can be served")
    assert told["paused"].reason.startswith("it is paused by the operator; it holds 1 URL")
    assert told["retired"].reason.startswith("it is retired by the operator")
    assert told["empty"].reason == "it holds no URL"
    times = {state: found.earliest_s for state, found in told.items()}
    assert (times["paused"], times["retired"], times["empty"]) == (None, None, None)
    assert times["ready"] == START_S


def test_a_snoozed_queue_says_when_its_first_retry_is_due() -> None:
    """That is when it can be served at the earliest."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2))
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=60.0)
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=30.0)
    found = why(rig, A)
    assert (found.state, found.earliest_s) == ("snoozed", START_S + 30.0)


def test_a_queue_of_one_gate_that_is_closed_names_it() -> None:
    """With why, and when it opens."""
    rig = build()
    rig.add(*pages("a.test", 2))
    rig.fetch(rig.lease_now(), 1.0, trouble=HostTrouble.THROTTLED, retry_after_s=600.0)
    found = why(rig, A)
    assert (found.gate, found.earliest_s) == ("a.test", rig.clock.now_s + 600.0)
    assert "its gate a.test is closed: rests for another 10m" in found.reason


def test_a_queue_of_many_gates_counts_them() -> None:
    """It can go on when the first of them opens."""
    rig = build(policy="bkdr:1")
    rig.add("http://a.test/", "http://b.test/")
    rig.block("a.test", START_S + 60.0)
    rig.block("b.test", START_S + 30.0)
    found = why(rig, "bkdr:0")
    assert (found.gate, found.earliest_s) == (None, START_S + 30.0)
    assert "all its 2 gates are closed" in found.reason
    assert found.highest_rate == pytest.approx(2 / 3)


def test_a_queue_at_the_floor_never_runs() -> None:
    """And says so; where the floor is, is the order's."""
    rig = build(queue_precedence="base:20", precedence_floor=20)
    rig.add(URL)
    assert rig.lease() is None
    found = why(rig, A)
    assert "never runs" in found.reason
    assert found.earliest_s is None


def test_gates_are_told_as_they_are_though_they_left_memory() -> None:
    """A gate that is a row says what was written last."""
    rig = build(gates_in_memory=1)
    rig.add(URL)
    rig.core.flush()
    rig.core.set_delay(GateKey("z.test"), 7.0)
    rig.core.flush()
    rig.core.schedule([Candidate("http://z.test/")])
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock)
    assert why(again, "http://z.test/").highest_rate == pytest.approx(1 / 7)
    assert why(again, URL).highest_rate == pytest.approx(1 / 3)


def test_a_group_is_told_though_none_of_its_gates_is_in_memory() -> None:
    """A job that is stopped says what it waits for, as one that runs does."""
    rig = build(**GROUPED)
    rig.add("http://a.d.test/", "http://b.d.test/")
    rig.finish(rig.lease_now())
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, seen=rig.seen, **GROUPED)
    found = why(again, "http://b.d.test/")
    assert (found.group, found.earliest_s) == ("domain:d.test", START_S + 10.0)
    assert "its group's gate domain:d.test is closed: rests for another 10s" in found.reason
    assert found.highest_rate == pytest.approx(0.1)


@pytest.mark.parametrize("hosts", [["http://a.d.test/"], []])
def test_a_group_can_be_asked_for_by_name(hosts: list[str]) -> None:
    """It has the group's politeness and no group itself, whether one of its hosts is in memory or none ever came."""
    rig = build(**GROUPED)
    rig.add(*hosts)
    rig.core.block(GateKey("domain:d.test"), START_S + 60.0)
    view = rig.core.operations.gate(GateKey("domain:d.test"))
    assert (view.opens_s, view.rate_per_s, view.group) == (START_S + 60.0, pytest.approx(0.1), None)
    assert [group.gate.key for group in rig.schedule.window.groups.values()] == ["domain:d.test"] * len(hosts)


def test_a_gate_without_rests_has_no_highest_rate() -> None:
    """Infinity: no rest is due."""
    rig = build(politeness=HASTE)
    rig.add(URL)
    assert why(rig, URL).highest_rate == math.inf
