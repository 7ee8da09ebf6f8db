"""Why nothing is served at all, in one line."""

from __future__ import annotations

import pytest

from anabranch.frontier.operating.idleness import IdleFacts, why_idle

NOW_S = 1_000_000.0


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (IdleFacts(0), "nothing is queued"),
        (IdleFacts(0, in_flight=1), "1 URL leased, none queued"),
        (
            IdleFacts(5, store_behind=True),
            "the store is behind: nothing is leased until it has written what it was told",
        ),
        (IdleFacts(5, trouble="waits for the filter", store_behind=True), "the store waits for the filter"),
        (IdleFacts(5, reading=True), "rows of the store are awaited"),
        (IdleFacts(5, in_flight=3), "one of 3 leases must come back"),
        (IdleFacts(5, paused=5), "all that is left: 5 URLs in paused queues; resume them, or raise their budgets"),
        (
            IdleFacts(5, paused=2, retired=3),
            "all that is left: 2 URLs in paused queues and 3 URLs in retired queues; resume them, or raise their budgets",
        ),
        (IdleFacts(9, in_flight=2, retired=3), "one of 2 leases must come back; 3 URLs in retired queues"),
        (IdleFacts(5), ""),
    ],
)
def test_what_is_waited_for_is_said(facts: IdleFacts, words: str) -> None:
    """Each cause has its words; what can be leased has none."""
    assert why_idle(facts, NOW_S) == words


@pytest.mark.parametrize(
    ("facts", "begin", "end"),
    [
        (
            IdleFacts(5, closed_gates=1, opens_s=NOW_S + 12),
            "1 gate that has URLs is closed, none is open; the first opens at ",
            ", in 12s",
        ),
        (
            IdleFacts(5, closed_gates=2000, opens_s=NOW_S + 12, in_flight=7),
            "2,000 gates that have URLs are closed, none is open; the first opens at ",
            ", in 12s",
        ),
        (
            IdleFacts(5, waiting=3, paused=2, due_s=NOW_S + 60),
            "3 URLs wait for a retry; the first is due at ",
            ", in 1m; 2 URLs in paused queues",
        ),
    ],
)
def test_what_time_will_change_is_said_with_the_time(facts: IdleFacts, begin: str, end: str) -> None:
    """Whoever looks knows when to look again."""
    words = why_idle(facts, NOW_S)
    assert words.startswith(begin)
    assert words.endswith(end)


def test_gates_that_are_blocked_for_good_have_no_time() -> None:
    """Only the operator can open them."""
    facts = IdleFacts(5, closed_gates=2, opens_s=float("inf"))
    assert why_idle(facts, NOW_S) == "2 gates that have URLs are closed, none is open"


def test_gates_that_nobody_has_in_memory_are_waited_for_too() -> None:
    """Right after an opening all gates are rows, and the store has said when the first of them opens."""
    words = why_idle(IdleFacts(5, opens_s=NOW_S + 12), NOW_S)
    assert words.startswith("every gate that has URLs is closed; the first opens at ")
    assert words.endswith(", in 12s")
    assert why_idle(IdleFacts(5, opens_s=NOW_S), NOW_S) == ""
