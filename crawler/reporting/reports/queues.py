"""The Frontier in two reports: its totals with the longest queues, and every queue that holds URLs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

from anabranch.crawler.reporting.reports.facts import JobFacts
from anabranch.crawler.reporting.reports.table import Cell, Report
from anabranch.frontier.operating.explain import QueueView

#: Queues of the report at most, as in Heritrix.
QUEUES_SHOWN = 2000
LONGEST_SHOWN = 20

#: Heritrix's columns, then ours. What the Frontier does not keep of a queue is `-`.
_QUEUE_HEADS = (
    "queue", "precedence", "currentSize", "totalEnqueues", "sessionBalance", "lastCost(averageCost)", "lastDequeueTime",
    "wakeTime", "totalSpend/totalBudget", "errorCount", "lastPeekUri", "lastQueuedUri", "state", "waiting", "inFlight",
)  # fmt: skip


def frontier_summary(facts: JobFacts) -> Report:
    """URLs by what became of them, queues by state, why nothing runs, the longest queues."""
    return Report((), list(_summary_rows(facts)))


def _summary_rows(facts: JobFacts) -> Iterator[tuple[str, Cell]]:
    now = facts.frontier
    if now is None:
        return
    yield "URIs processed", now.done + now.failed + now.disregarded
    yield "  succeeded", now.done
    yield "  failed", now.failed
    yield "  disregarded", now.disregarded
    yield "URIs queued", now.pending
    yield "  waiting for a retry", now.waiting
    yield "URIs in process", now.in_flight
    yield "URIs in retired queues", now.retired
    yield "Queues", sum(now.queues.values())
    for state, number in now.queues.items():
        yield f"  {state}", number
    yield "  parked (ready, all gates closed)", now.parked
    yield "Gates in memory", now.gates
    yield "  open", now.gates_open
    yield "Leases lost", now.leases_lost
    yield "Nothing is leased because", now.why_idle or None
    for number, view in enumerate(facts.longest[:LONGEST_SHOWN], start=1):
        yield f"LONGEST {number}", f"{view.key} {view.urls} {view.state.value}"


def frontier_nonempty(facts: JobFacts) -> Report:
    """A row a queue that holds URLs, longest first; at most `QUEUES_SHOWN`."""
    ranked = sorted(facts.queues, key=lambda view: (-view.urls, view.key))
    return Report(_QUEUE_HEADS, [_row(view) for view in ranked if view.urls])


def _row(view: QueueView) -> tuple[Cell, ...]:
    opens_s = min((gate.opens_s for gate in view.gates), default=math.inf)
    if view.due_s is not None:
        opens_s = max(view.due_s, opens_s if view.gates else view.due_s)
    wake = None if opens_s == math.inf or opens_s <= 0 else _utc(opens_s)
    spend = f"{view.spent}/{view.budget}"
    return (
        view.key, view.precedence, view.urls, None, None, None, None, wake, spend, None, None, None, view.state.value,
        view.waiting, view.out,
    )  # fmt: skip


def _utc(time_s: float) -> str:
    try:
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "never"
