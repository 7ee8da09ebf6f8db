"""Explanations: for each thing that can hold back a URL or a queue, its words and the earliest time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.inspect.explain import (
    Explanation,
    GateView,
    QueueView,
    UrlFacts,
    explain_queue,
    explain_url,
    rate_per_s,
    text_of,
    why_closed,
)
from anabranch.frontier.records import GateKey, HostTrouble, QueueKey, UrlRecord, UrlState
from anabranch.frontier.scheduling.gates import Backoff, Gate, Politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from tests.rows import each_row

NOW_S = 1_000_000.0
URL = "http://portal.example/a"
OPEN = GateView(GateKey("portal.example"), NOW_S - 5, 0.2)
RESTING = GateView(GateKey("portal.example"), NOW_S + 12, 0.2, "rests for another 12 s")
GROUP = GateView(GateKey("ip:192.0.2.1"), NOW_S + 30, 0.1, "its only slot is out")
READY = QueueView(QueueKey("bkdr:7"), QueueState.READY, urls=3, lanes=1, gates=(OPEN,))


def record(state: UrlState = UrlState.QUEUED, **facts: object) -> UrlRecord:
    return UrlRecord(URL, state, 0, "", 0, 7)._replace(**facts)


def url(**facts: object) -> Explanation:
    plain = UrlFacts(URL, record(), seen=True, queue=READY, gate=OPEN)
    return explain_url(plain._replace(**facts), NOW_S)


def queue(**facts: object) -> Explanation:
    return explain_queue(READY._replace(**facts), NOW_S)


# URLs


def test_a_url_that_nothing_holds_back_can_be_leased_now() -> None:
    """And the explanation names its places and the rate that its gate allows."""
    assert url() == Explanation(
        subject=URL,
        seen=True,
        state="queued",
        queue=QueueKey("bkdr:7"),
        gate=GateKey("portal.example"),
        group=None,
        reason="it can be leased now",
        earliest_s=NOW_S,
        highest_rate=0.2,
        ahead=None,
    )


def test_a_url_that_nobody_scheduled_tells_where_it_would_go() -> None:
    """It has no earliest time: nobody has asked for it."""
    found = url(record=None, seen=False)
    assert (found.state, found.queue, found.gate, found.earliest_s) == (
        "never scheduled",
        "bkdr:7",
        "portal.example",
        None,
    )
    assert "would get" in found.reason


def test_a_url_that_only_the_filter_knows_is_a_false_drop() -> None:
    """The one case in which a URL is lost; the way to fetch it all the same is named."""
    found = url(record=None)
    assert found.state == "not stored"
    assert found.reason == "the filter takes it for seen, the store does not have it; schedule it with force"


def test_a_url_that_can_never_be_queued_tells_why() -> None:
    """It has no host, or is no text."""
    found = url(record=None, seen=False, queue=None, gate=None, refused="it has no host")
    assert (found.state, found.reason, found.highest_rate) == ("refused", "it cannot be queued: it has no host", None)


@pytest.mark.parametrize(
    ("attempts", "words", "reason"),
    [
        (0, "", "it failed with status -2"),
        (2, "-2 connect failed", "it failed with status -2 connect failed after 2 tries before"),
    ],
)
def test_a_url_that_has_ended_tells_its_status(attempts: int, words: str, reason: str) -> None:
    """It will not be fetched again, so there is no earliest time."""
    ended = record(UrlState.ENDED, status=-2, outcome="failed", attempts=attempts)
    found = url(record=ended, status_words=words, ahead=9)
    assert (found.state, found.reason, found.earliest_s, found.ahead) == ("ended", reason, None, None)


def test_a_leased_url_tells_since_when() -> None:
    """Whatever holds its queue back by now."""
    found = url(leased_since_s=NOW_S - 75, queue=READY._replace(state=QueueState.PAUSED))
    assert (found.state, found.earliest_s) == ("leased", None)
    assert found.reason == "it was leased 1m 15s ago and is not finished"


def test_a_url_waits_for_its_retry_until_it_is_due() -> None:
    """And then its gate must be open, too."""
    found = url(record=record(UrlState.WAITING, due_s=NOW_S + 90, attempts=1), gate=RESTING)
    assert found.state == "waiting"
    assert found.reason.startswith("it waits for its retry for another 1m 30s, after 1 try; its gate")
    assert found.earliest_s == NOW_S + 90


def test_a_retry_that_is_due_holds_nothing_back() -> None:
    """Its row comes back with the next call."""
    found = url(record=record(UrlState.WAITING, due_s=NOW_S - 1, attempts=1))
    assert (found.reason, found.earliest_s) == ("it can be leased now", NOW_S)


def test_closed_gates_are_named_with_their_reasons() -> None:
    """The later of both counts."""
    found = url(gate=RESTING._replace(group=GROUP))
    assert found.reason == (
        "its gate portal.example is closed: rests for another 12 s; "
        "its group's gate ip:192.0.2.1 is closed: its only slot is out"
    )
    assert (found.earliest_s, found.group, found.highest_rate) == (NOW_S + 30, "ip:192.0.2.1", 0.1)


def test_a_gate_that_only_a_lease_or_the_operator_can_open_has_no_time() -> None:
    """All slots are out, or it is blocked for good."""
    found = url(gate=OPEN._replace(opens_s=math.inf, why_closed="its only slot is out"))
    assert found.earliest_s is None
    assert "its only slot is out" in found.reason


def test_urls_before_it_take_their_time_at_the_gate() -> None:
    """Nine URLs at one each five seconds."""
    found = url(ahead=9, gate=RESTING)
    assert found.reason.endswith("9 URLs are before it in its queue")
    assert found.earliest_s == NOW_S + 12 + 45
    assert url(ahead=1).reason == "1 URL is before it in its queue"
    assert url(ahead=9, gate=OPEN._replace(rate_per_s=math.inf)).earliest_s == NOW_S


@each_row(
    ("facts", "words"),
    [
        ({"state": QueueState.PAUSED}, "its queue is paused by the operator"),
        ({"state": QueueState.RETIRED}, "its queue is retired by the operator"),
        (
            {"state": QueueState.RETIRED, "budget": 100, "spent": 103},
            "its queue is retired: 103 of its total budget of 100 are spent",
        ),
        ({"precedence": 255}, "its queue never runs: its precedence is 255"),
        ({"precedence": 9, "floor": 9}, "its queue never runs: its precedence is 9"),
    ],
)
def test_a_queue_that_is_held_back_holds_back_its_urls(facts: dict[str, object], words: str) -> None:
    """No time will help, so none is named."""
    found = url(queue=READY._replace(**facts))
    assert (found.reason, found.earliest_s) == (words, None)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (QueueState.INACTIVE, "its queue waits for its turn, at precedence 3"),
        (QueueState.LOADING, "its queue is being read from the store"),
        (QueueState.IN_FLIGHT, "another URL of its queue is in flight"),
    ],
)
def test_a_queue_whose_turn_has_not_come_is_told(state: QueueState, words: str) -> None:
    """It may be leased at any moment."""
    found = url(queue=READY._replace(state=state))
    assert (found.reason, found.earliest_s) == (words, NOW_S)


def test_a_store_that_is_behind_holds_back_everything() -> None:
    """Back-pressure is a reason, too."""
    assert url(store_behind=True).reason.startswith("the store is behind")


# Queues


@each_row(
    ("facts", "reason", "earliest_s"),
    [
        ({}, "it holds 3 URLs; its next URL can be leased now", NOW_S),
        ({"state": QueueState.EMPTY, "urls": 0}, "it holds no URL", None),
        ({"state": QueueState.PAUSED}, "it is paused by the operator; it holds 3 URLs", None),
        (
            {"state": QueueState.RETIRED, "budget": 5, "spent": 5, "out": 1},
            "it is retired: 5 of its total budget of 5 are spent; it holds 3 URLs; 1 URL in flight",
            None,
        ),
        ({"state": QueueState.IN_FLIGHT, "out": 1}, "it holds 3 URLs; 1 URL in flight", NOW_S),
        ({"state": QueueState.INACTIVE}, "it holds 3 URLs; it waits for its turn, at precedence 3", NOW_S),
        (
            {"state": QueueState.LOADING, "waiting": 1},
            "it holds 3 URLs, 1 waiting for a retry; it is being read",
            NOW_S,
        ),
        ({"state": QueueState.SNOOZED, "waiting": 3, "due_s": NOW_S + 60}, "in 1m", NOW_S + 60),
        ({"gates": (RESTING,)}, "it holds 3 URLs; its gate portal.example is closed: rests", NOW_S + 12),
        ({"gates": (GROUP, RESTING), "lanes": 2}, "all its 2 gates are closed; its gate portal.example is", NOW_S + 12),
        ({"gates": (GROUP, RESTING), "lanes": 9}, "its first gates are closed; its gate portal.example is", NOW_S + 12),
        ({"gates": (OPEN, RESTING), "lanes": 2}, "it holds 3 URLs; its next URL can be leased now", NOW_S),
    ],
)
def test_a_queue_tells_what_holds_it_back(facts: dict[str, object], reason: str, earliest_s: float | None) -> None:
    """One line for each state and for closed gates."""
    found = queue(**facts)
    assert reason in found.reason
    assert found.earliest_s == earliest_s


def test_a_queue_of_one_gate_names_it() -> None:
    """One of several gates would be named for no reason."""
    assert queue(gates=(RESTING._replace(group=GROUP),))[4:6] == ("portal.example", "ip:192.0.2.1")
    assert queue(lanes=2)[4:6] == (None, None)


def test_gates_together_allow_no_more_than_their_group() -> None:
    """Two hosts of one server, and one alone; without all gates the rate is not known."""
    hosts = tuple(
        GateView(GateKey(f"{name}.example"), NOW_S, 0.2, group=GROUP._replace(rate_per_s=0.3)) for name in "ab"
    )
    assert queue(gates=(*hosts, OPEN), lanes=3).highest_rate == pytest.approx(0.3 + 0.2)
    assert queue(gates=hosts[:1], lanes=1).highest_rate == pytest.approx(0.2)
    assert queue(gates=hosts, lanes=3).highest_rate is None


# Text


def test_the_text_has_the_places_the_reason_the_time_and_the_rate() -> None:
    """`anabranch why` prints this text."""
    first, places, reason, earliest, rate = text_of(url(gate=RESTING._replace(group=GROUP)), NOW_S).splitlines()
    assert first == f"{URL}: queued"
    assert places == "  queue bkdr:7, gate portal.example, group ip:192.0.2.1"
    assert reason.startswith("  its gate portal.example is closed: rests for another 12 s; its group's")
    assert earliest.startswith("  at the earliest at ")
    assert earliest.endswith(", in 30s")
    assert rate == "  its gates allow at most: a URL each 10s"


def test_the_text_of_a_queue_does_not_name_it_twice() -> None:
    """Its key is the subject."""
    assert text_of(queue(), NOW_S).splitlines()[1] == "  gate portal.example"


GATES = st.builds(
    GateView,
    key=st.just(GateKey("g")),
    opens_s=st.floats(0, 2e6) | st.just(math.inf),
    rate_per_s=st.floats(0.001, 10) | st.just(math.inf),
    why_closed=st.just("rests"),
    group=st.none() | st.just(GROUP),
)
QUEUES = st.builds(
    QueueView,
    key=st.just(QueueKey("q")),
    state=st.sampled_from(QueueState),
    urls=st.integers(0, 9),
    waiting=st.integers(0, 9),
    out=st.integers(0, 2),
    precedence=st.integers(0, 256),
    spent=st.integers(0, 9),
    budget=st.integers(-1, 9),
    due_s=st.none() | st.floats(0, 2e6),
    lanes=st.integers(0, 4),
    gates=st.lists(GATES, max_size=3).map(tuple),
)


@given(QUEUES, GATES, st.floats(0, 2e6) | st.none(), st.integers(0, 9) | st.none(), st.booleans())
def test_every_case_has_a_reason_and_no_time_that_the_gates_contradict(
    queue: QueueView, gate: GateView, due_s: float | None, ahead: int | None, behind: bool
) -> None:
    """Whatever the facts: never silence, never a time before a gate opens or a retry is due."""
    state = UrlState.QUEUED if due_s is None else UrlState.WAITING
    facts = UrlFacts(URL, record(state, due_s=due_s), True, "", queue, gate, None, ahead, behind)
    for found in (explain_url(facts, NOW_S), explain_queue(queue, NOW_S)):
        assert found.reason
        assert found.subject in text_of(found, NOW_S)
    earliest_s = explain_url(facts, NOW_S).earliest_s
    if earliest_s is not None:
        assert earliest_s >= max(NOW_S, gate.opens_s, due_s or 0, gate.group.opens_s if gate.group else 0)


def test_a_url_that_is_known_under_another_spelling_says_under_which() -> None:
    """Its key is the same; what is said besides is said of the one that is known."""
    other = record(UrlState.ENDED, url="http://portal.example/b", status=200, outcome="done")
    assert url(record=other).reason == (
        "it is known as http://portal.example/b, which has the same key; it is done with status 200"
    )


def test_the_hops_are_those_of_the_queued_row() -> None:
    """The hops of an ended URL are not kept."""
    assert url(record=record(hops="LE")).hops == "LE"
    assert url(record=record(UrlState.ENDED)).hops is None
    assert url(record=None).hops is None


GATE_NOW_S = 1000.0


def gate(slots: int = 1, **politeness: float) -> Gate:
    """Rests of 3 s; the first trouble closes it for 60 s."""
    return Gate(1, GateKey("a.test"), Politeness(slots=slots, **politeness), None, Backoff(jitter=0.0))


def fetch(some: Gate, at_s: float = GATE_NOW_S) -> None:
    """One of no time."""
    some.take(at_s)
    some.rest(at_s, at_s, at_s)


# The rate


@pytest.mark.parametrize(("slots", "rate"), [(1, 1 / 3), (6, 2.0)])
def test_the_highest_rate_is_slots_by_the_shortest_rest(slots: int, rate: float) -> None:
    """That of a fetch that takes no time."""
    assert rate_per_s(gate(slots)) == rate


def test_what_keeps_starts_apart_leaves_one_in_so_many_seconds() -> None:
    """A Crawl-delay, or a throttle if that is longer, with the one slot that is left."""
    six = gate(6)
    six.set_spacing(10.0)
    assert rate_per_s(six) == 0.1
    six.trouble(HostTrouble.THROTTLED, 0.0, GATE_NOW_S)
    assert rate_per_s(six) == 1 / 60
    six.set_spacing(100.0)
    assert rate_per_s(six) == 0.01


def test_a_gate_that_never_rests_has_no_limit() -> None:
    """Whatever its slots."""
    assert rate_per_s(gate(3, min_delay_s=0.0)) == math.inf


# Why it is closed


def test_an_open_gate_has_no_reason() -> None:
    """Nor has one with a free slot, whatever the others do."""
    two = gate(2)
    assert why_closed(two, GATE_NOW_S) == ""
    fetch(two)
    assert why_closed(two, GATE_NOW_S) == ""


def test_slots_that_are_out_are_counted() -> None:
    """Also if there are fewer slots by now than are out."""
    two = gate(2)
    two.take(GATE_NOW_S)
    two.take(GATE_NOW_S)
    assert why_closed(two, GATE_NOW_S) == "2 of 2 slots are out"
    two.set_slots(1)
    assert why_closed(two, GATE_NOW_S) == "2 of 1 slots are out"
    two.give_back(GATE_NOW_S)
    assert why_closed(two, GATE_NOW_S) == "its only slot is out"


def test_a_rest_is_counted_down_from_now() -> None:
    """To the millisecond; at its end the gate is open."""
    one = gate()
    fetch(one)
    assert why_closed(one, GATE_NOW_S) == "rests for another 3.0s"
    assert why_closed(one, GATE_NOW_S + 2.984) == "rests for another 16ms"
    assert why_closed(one, GATE_NOW_S + 3) == ""


def test_a_block_is_told_until_its_end_or_as_one_without() -> None:
    """A rest that ends before it is not worth a word; one that is longer is."""
    one = gate()
    fetch(one)
    one.block(GATE_NOW_S + 2)
    assert why_closed(one, GATE_NOW_S) == "blocked for another 2.0s, rests for another 3.0s"
    one.block(GATE_NOW_S + 90)
    assert why_closed(one, GATE_NOW_S) == "blocked for another 1m 30s"
    one.block(math.inf)
    assert why_closed(one, GATE_NOW_S) == "blocked until it is unblocked"


def test_a_blocked_gate_whose_slots_are_out_has_both_reasons() -> None:
    """Neither of them alone would open it."""
    one = gate()
    one.take(GATE_NOW_S)
    one.block(GATE_NOW_S + 90)
    assert why_closed(one, GATE_NOW_S) == "blocked for another 1m 30s, its only slot is out"


def test_what_closes_it_for_longer_than_others_is_told_behind() -> None:
    """Troubles, a throttle, a Crawl-delay; of an open gate nothing is said."""
    one = gate()
    one.set_spacing(10.0)
    fetch(one)
    assert why_closed(one, GATE_NOW_S + 1.5) == "rests for another 8.5s, Crawl-delay 10s"
    one.trouble(HostTrouble.THROTTLED, 0.0, GATE_NOW_S)
    assert why_closed(one, GATE_NOW_S) == (
        "rests for another 1m, troubles in a row: 1, starts 1m apart since a 429, Crawl-delay 10s"
    )
    assert why_closed(one, GATE_NOW_S + 10_000) == ""
