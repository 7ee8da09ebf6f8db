"""The operator's verbs on a real Frontier: plain arguments in, plain facts out, bad ones refused in one line."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator

import pytest

from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.run.verbs import (
    STOPPED_ONLY,
    VERBS,
    JobIsRunning,
    answer,
    answer_running,
    gate_key,
    number_argument,
    state_argument,
    status_argument,
    text_argument,
    whole_argument,
)
from anabranch.crawler.urls.parsing import refusal
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate, GateKey, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from tests.rows import each_row

START_S = 1_000_000.0


class Clock:
    now_s = START_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def frontier(clock: Clock) -> Iterator[Frontier]:
    rests = Politeness(delay_factor=0.0, min_delay_s=10.0, max_delay_s=10.0)
    with open_frontier(None, FrontierOrder(policy="host", politeness=rests), clock=clock) as frontier:
        frontier.schedule([Candidate(f"http://a.test/{number}") for number in range(3)])
        frontier.schedule([Candidate("http://b.test/")])
        yield frontier


def fetch_one(frontier: Frontier) -> None:
    lease = frontier.lease()
    assert lease is not None
    now_s = frontier.now_s()
    frontier.finish(lease, Outcome(OutcomeKind.DONE, 200, now_s, now_s))


def test_every_answer_is_what_json_holds(frontier: Frontier) -> None:
    """Facts pass through the socket unchanged."""
    asked = {"limit": 9, "subject": "a.test", "url": "http://a.test/1", "host": "a.test", "queue": "a.test", "units": 5}
    for verb in VERBS:
        facts = answer(frontier, verb, asked)
        assert json.loads(json.dumps(facts)) == facts, verb


def test_ls_lists_the_longest_queues_first(frontier: Frontier) -> None:
    """At most `limit` queues are listed, each with the number of its URLs, its gate and its budget."""
    assert [queue["queue"] for queue in answer(frontier, "ls", {"limit": 9})["queues"]] == ["a.test", "b.test"]
    (queue,) = answer(frontier, "ls", {"limit": 1})["queues"]
    assert (queue["queue"], queue["urls"], queue["gate"], queue["budget"]) == ("a.test", 3, "a.test", None)


def test_active_tells_what_is_in_memory_without_the_store(frontier: Frontier) -> None:
    """Those with most leases first."""
    while (lease := frontier.lease()) is None:
        frontier.flush()
    facts = answer(frontier, "active", {"limit": 1})
    assert facts["queues"] == [[lease.queue, "in-flight", 1]]
    assert facts["gates"] == [[lease.queue, None, 1]]


def test_ls_lists_queues_of_one_state(frontier: Frontier) -> None:
    """The longest first, too."""
    frontier.operations.pause("b.test")  # type: ignore[arg-type]
    facts = answer(frontier, "ls", {"limit": 9, "state": "paused"})
    assert [(queue["queue"], queue["state"]) for queue in facts["queues"]] == [("b.test", "paused")]


def test_the_totals_say_why_nothing_can_be_leased(frontier: Frontier) -> None:
    """Also for a Frontier from which nobody leases; and asking changes nothing."""
    assert answer(frontier, "ls", {"limit": 0})["totals"]["why_idle"] == ""
    fetch_one(frontier)
    fetch_one(frontier)
    for _ in range(2):
        totals = answer(frontier, "ls", {"limit": 0})["totals"]
        assert "closed" in totals["why_idle"]
        assert (totals["pending"], totals["in_flight"], totals["done"]) == (2, 0, 2)
    frontier.operations.check()


def test_a_frontier_just_opened_knows_why_it_would_idle(clock: Clock, tmp_path) -> None:
    """Its gates are rows, which are read only on the way to a lease."""
    rests = Politeness(delay_factor=0.0, min_delay_s=10.0, max_delay_s=10.0)
    order = FrontierOrder(policy="host", politeness=rests)
    with open_frontier(tmp_path, order, clock=clock) as first:
        first.schedule([Candidate("http://a.test/1"), Candidate("http://a.test/2")])
        while (lease := first.lease()) is None:
            first.flush()
        first.finish(lease, Outcome(OutcomeKind.DONE, 200, START_S, START_S))
    with open_frontier(tmp_path, order, clock=clock) as again:
        why = answer(again, "ls", {"limit": 1})["totals"]["why_idle"]
    assert "closed" in why
    assert "in 10s" in why


def test_show_knows_queues_and_urls(frontier: Frontier) -> None:
    """A queue comes with its gates; what is neither is refused."""
    queue = answer(frontier, "show", {"subject": "a.test"})
    assert queue["explanation"]["subject"] == "a.test"
    assert [gate["gate"] for gate in queue["gates"]] == ["a.test"]
    url = answer(frontier, "show", {"subject": "http://a.test/1"})
    assert url["explanation"]["state"] == "queued"
    with pytest.raises(UnknownQueue, match=r"no queue c\.test"):
        answer(frontier, "show", {"subject": "c.test"})


def test_why_finds_a_url_by_its_key(frontier: Frontier) -> None:
    """Ended or queued, under whatever spelling it is asked for; a key that is none is refused."""
    frontier.schedule([Candidate("http://d.test/p;jsessionid=1", key=b"http://d.test/p")])
    asked = {"url": "http://d.test/p;jsessionid=2", "key": "http://d.test/p"}
    assert "known as http://d.test/p;jsessionid=1" in answer(frontier, "why", asked)["explanation"]["reason"]
    assert answer(frontier, "show", {"subject": asked["url"], "key": asked["key"]})["explanation"]["state"] == "queued"
    while (lease := frontier.lease()) is not None:
        now_s = frontier.now_s()
        frontier.finish(lease, Outcome(OutcomeKind.DONE, 404, now_s, now_s))
    assert "; it is done with status 404 Not Found" in answer(frontier, "why", asked)["explanation"]["reason"]
    with pytest.raises(UsageError, match="key must be text"):
        answer(frontier, "why", {"url": "http://d.test/", "key": 3})


def test_why_takes_a_url_as_a_seed_is_written(frontier: Frontier) -> None:
    """Canonical or not; a status comes with its words."""
    fetch_one(frontier)
    assert answer(frontier, "why", {"url": "A.test/0#top"})["explanation"]["reason"] == "it is done with status 200 OK"
    assert answer(frontier, "why", {"url": "http://c.test/"})["explanation"]["state"] == "never scheduled"
    with pytest.raises(UsageError, match="not an http or https URL"):
        answer(frontier, "why", {"url": "/etc"})


def test_why_says_of_a_url_that_is_too_long_that_it_is(frontier: Frontier) -> None:
    """The beginning of it is shown."""
    url = f"http://a.test/{'x' * 9_000}"
    explanation = answer(frontier, "why", {"url": url})["explanation"]
    assert (explanation["subject"], explanation["state"]) == (f"{url[:200]}…", "refused")
    assert "it has 9,014 characters, and a URL has at most 8,192" in explanation["reason"]


@pytest.mark.parametrize(
    "link", ["javascript:1", "mailto:x", "data:,x", "ftp://a.test/", "http://a.test:99999/", "http://[::1"]
)
def test_why_says_of_a_link_that_no_crawl_takes_what_refuses_it(frontier: Frontier, link: str) -> None:
    """Pages are full of them, and no rule of the scope was ever asked."""
    explanation = answer(frontier, "why", {"url": link})["explanation"]
    assert (explanation["subject"], explanation["state"], explanation["queue"]) == (link, "refused", None)
    assert explanation["reason"] == (
        f"it cannot be queued: {refusal(link)}; "
        "such a link is dropped when its page is read, before any rule of [scope] is asked"
    )


def test_a_block_closes_the_gate_until_it_is_taken_back(frontier: Frontier, clock: Clock) -> None:
    """For a time, until a time, or for good; the answer is the gate as it is then."""
    assert answer(frontier, "block", {"host": "a.test", "for_s": 60})["gate"]["opens_in_s"] == 60
    assert answer(frontier, "block", {"host": "a.test", "until_s": START_S + 90})["gate"]["opens_in_s"] == 90
    facts = answer(frontier, "block", {"host": "http://A.test:80/x"})["gate"]
    assert (facts["gate"], facts["opens_in_s"], facts["why_closed"]) == (
        "a.test",
        None,
        "blocked until it is unblocked",
    )
    fetch_one(frontier)
    clock.now_s += 1000
    assert frontier.lease() is None
    assert answer(frontier, "unblock", {"host": "a.test"})["gate"]["why_closed"] == ""
    assert frontier.lease() is not None


def test_a_block_of_a_host_that_nobody_has_met_holds_for_its_first_url(frontier: Frontier) -> None:
    """An operator may know before the crawl does."""
    note = answer(frontier, "block", {"host": "c.test"})["note"]
    assert note == "no URL of c.test is known yet; it is blocked as soon as one is found"
    assert answer(frontier, "block", {"host": "a.test"})["note"] == ""
    answer(frontier, "unblock", {"host": "a.test"})
    frontier.schedule([Candidate("http://c.test/")])
    leases = [lease for lease in iter(frontier.lease, None) if lease is not None]
    assert {lease.gate for lease in leases} == {"a.test", "b.test"}


def failed_once(frontier: Frontier, status: int) -> str:
    """The URL that failed with a status."""
    lease = frontier.lease()
    assert lease is not None
    frontier.finish(lease, Outcome(OutcomeKind.FAILED, status), [])
    frontier.flush()
    return lease.url


@pytest.mark.parametrize(
    ("asked", "queued"),
    [
        ({}, 2),
        ({"statuses": ["-1"]}, 1),
        ({"statuses": [503, "-7"]}, 1),
        ({"statuses": ["5xx", -1]}, 2),
        ({"host": "B.test"}, 1),
        ({"host": "test"}, 0),
        ({"since_s": START_S + 5}, 1),
        ({"since_s": START_S + 99}, 0),
        ({"url": "http://b.test"}, 1),
        ({"host": "a.test", "statuses": ["503"]}, 0),
        ({"after": 99}, 0),
    ],
)
def test_retry_takes_the_failures_that_fit_all_of_its_arguments(
    frontier: Frontier, clock: Clock, asked: dict[str, object], queued: int
) -> None:
    """By status or class, host, time, URL; what it did is counted."""
    first = failed_once(frontier, -1)
    clock.now_s += 10.0
    frontier.block(GateKey("a.test"), math.inf)
    second = failed_once(frontier, 503)
    assert (first, second) == ("http://a.test/0", "http://b.test/")
    facts = answer(frontier, "retry", asked)
    json.dumps(facts)
    assert (facts["queued"], facts["more"], frontier.counts().failed) == (queued, None, 2 - queued)
    assert facts["blocked"] == (1 if queued == 2 or asked == {"statuses": ["-1"]} else 0)


@each_row("listed", ["503", [""], ["5x"], ["503 "], [True], [None], ["--1"], ["1e3"], ["-" + "1" * 12]])
def test_a_status_is_written_as_the_log_has_it(listed: object) -> None:
    """Anything else is refused in one line."""
    with pytest.raises(UsageError, match="status"):
        status_argument(listed)


def test_queues_are_paused_resumed_retired_and_given_budgets(frontier: Frontier) -> None:
    """Each order answers how the queue is then."""

    def state_after(verb: str, **asked: object) -> str:
        return answer(frontier, verb, {"queue": "b.test", **asked})["queue"]["state"]

    assert state_after("pause") == "paused"
    assert state_after("resume") in {"inactive", "ready"}
    assert state_after("retire") == "retired"
    assert state_after("set-budget", units=-1) in {"inactive", "ready"}
    assert state_after("set-budget", units=0) == "retired"
    assert state_after("set-budget", units=None) in {"inactive", "ready"}
    frontier.operations.check()


@pytest.mark.parametrize("verb", sorted(STOPPED_ONLY))
def test_what_needs_the_job_for_itself_is_refused_while_it_runs(frontier: Frontier, verb: str) -> None:
    """One line says who has it and what to do."""
    with pytest.raises(
        JobIsRunning, match=rf"^{verb} needs the job alone, but process \d+ crawls it; stop that crawl first$"
    ):
        answer(frontier, verb, {})


@pytest.mark.parametrize(
    ("verb", "asked"),
    [
        ("nonsense", {}),
        ("ls", {}),
        ("ls", {"limit": -1}),
        ("ls", {"limit": True}),
        ("ls", {"limit": 1, "state": "empty-ish"}),
        ("show", {}),
        ("show", {"subject": ""}),
        ("show", {"subject": "\ud800"}),
        ("block", {"host": "a b"}),
        ("block", {"host": "a.test", "for_s": "1h"}),
        ("block", {"host": "a.test", "for_s": math.inf}),
        ("block", {"host": "a.test", "for_s": -5}),
        ("block", {"host": "a.test", "until_s": START_S - 1}),
        ("pause", {"queue": None}),
        ("set-budget", {"queue": "a.test", "units": -2}),
        ("set-budget", {"queue": "a.test", "units": 1.5}),
    ],
)
def test_bad_arguments_are_refused_in_one_line(frontier: Frontier, verb: str, asked: dict[str, object]) -> None:
    """And nothing is changed."""
    with pytest.raises(UsageError) as caught:
        answer(frontier, verb, asked)
    assert "\n" not in str(caught.value)
    frontier.operations.check()


@each_row(
    ("typed", "key"),
    [
        ("example.org", "example.org"),
        ("Example.ORG:8080", "example.org"),
        ("https://example.org/x?y", "example.org"),
        ("[::1]", "[::1]"),
        ("bücher.test", "xn--bcher-kva.test"),
        ("queue:bkdr:5", "queue:bkdr:5"),
        ("domain:example.org", "domain:example.org"),
        ("group:Two words", "group:Two words"),
    ],
)
def test_a_host_is_taken_as_people_write_it(typed: str, key: str) -> None:
    """With or without what a URL has beside it."""
    assert gate_key(typed) == GateKey(key)


def test_each_order_says_what_the_queue_is_now(frontier: Frontier) -> None:
    """The last order counts, and one resume takes all of them back."""
    for verb, state, reason in (
        ("pause", "paused", "it is paused by the operator"),
        ("retire", "retired", "it is retired by the operator"),
        ("pause", "paused", "it is paused by the operator"),
        ("resume", "inactive", "it holds 3 URLs"),
    ):
        queue = answer(frontier, verb, {"queue": "a.test"})["queue"]
        assert (queue["state"], queue["reason"].split("; ")[0]) == (state, reason)


async def test_a_running_crawl_gives_the_same_answers(clock: Clock) -> None:
    """Looks and orders by the same tables; whoever waits for a lease hears of an order."""

    def open_(on_change: Callable[[], None]) -> Frontier:
        return open_frontier(None, FrontierOrder(policy="host"), clock=clock, on_change=on_change)

    async with AsyncFrontier(open_) as frontier:
        frontier.schedule([Candidate("http://a.test/1"), Candidate("http://a.test/2")])
        for verb in ("ls", "show", "why"):
            asked = {"limit": 9, "subject": "a.test", "url": "http://a.test/1"}
            expected = answer(frontier.core, verb, asked)
            assert await answer_running(frontier, verb, asked) == expected
        await answer_running(frontier, "pause", {"queue": "a.test"})
        waiter = asyncio.create_task(frontier.lease())
        await asyncio.sleep(0)
        assert not waiter.done()
        await answer_running(frontier, "resume", {"queue": "a.test"})
        assert (await waiter).url == "http://a.test/1"
        with pytest.raises(JobIsRunning):
            await answer_running(frontier, "dump", {})


def test_values_are_taken_as_json_holds_them() -> None:
    """A number may be whole or not."""
    given = {"url": "http://a.test/", "for_s": 3, "units": -1}
    assert text_argument(given, "url") == "http://a.test/"
    assert number_argument(given, "for_s") == 3.0
    assert whole_argument(given, "units", least=-1) == -1
    assert state_argument("ready") is QueueState.READY


@pytest.mark.parametrize("value", ["", None, 5, "\ud800"])
def test_text_is_neither_empty_nor_something_else(value: object) -> None:
    """Text that UTF-8 cannot encode is refused, too, because it could not be logged."""
    with pytest.raises(UsageError, match="url"):
        text_argument({"url": value}, "url")


@each_row("value", [None, "5", True, math.inf, math.nan])
def test_a_number_is_finite(value: object) -> None:
    """JSON has no truth among its numbers; Python has."""
    with pytest.raises(UsageError, match="for_s must be a number"):
        number_argument({"for_s": value}, "for_s")


@each_row("value", [None, 1.5, True, -2, 1 << 53])
def test_a_whole_number_is_one_that_every_store_holds(value: object) -> None:
    """And not below the least."""
    with pytest.raises(UsageError, match="units must be a whole number from -1"):
        whole_argument({"units": value}, "units", least=-1)


@pytest.mark.parametrize("name", ["none", None])
def test_a_state_that_is_none_is_refused_with_those_that_are(name: object) -> None:
    """Empty queues are not listed, so their state is not offered."""
    with pytest.raises(UsageError, match=r"is unknown; choose one of (?!.*empty)"):
        state_argument(name)
