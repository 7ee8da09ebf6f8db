"""Explains why a URL or a queue is not served now. Pure: the facts (`UrlFacts`, `QueueView`) and the time are arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.frontier.policies.budgets import NOTHING_MORE
from anabranch.frontier.policies.precedence import FLOOR
from anabranch.frontier.records import GateKey, OutcomeKind, QueueKey, UrlRecord, UrlState
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.times import counted, duration_words, in_time, moment_words, rate_words

#: The state of an unknown URL.
NEVER_SCHEDULED = "never scheduled"
#: The state of a URL that the filter hides by error.
NOT_STORED = "not stored"
STORE_BEHIND = "the store is behind: nothing is leased until it has caught up"
#: The state of a URL that no queue takes.
REFUSED = "refused"


class GateView(NamedTuple):
    """The state of a gate."""

    key: GateKey
    opens_s: float  #: the earliest time of its next slot; infinity while all are out, or it is blocked for good
    rate_per_s: float  #: the highest rate it allows; infinity if no rest is due
    why_closed: str = ""  #: in words; empty if it is open
    group: GateView | None = None  #: the second gate behind it


class QueueView(NamedTuple):
    """The state of a queue."""

    key: QueueKey
    state: QueueState
    urls: int = 0  #: its URLs, leased and waiting ones included
    waiting: int = 0  #: URLs of these that wait for a retry
    out: int = 0  #: URLs of these that are leased
    precedence: int = 3
    spent: int = 0  #: cost units
    budget: int = -1  #: its total budget; -1 = without end
    due_s: float | None = None  #: when the first of its retries is due
    lanes: int = 0  #: how many gates its URLs pass
    gates: Sequence[GateView] = ()  #: these gates, or the first of them
    floor: int = FLOOR  #: a queue at this precedence or above never runs


class UrlFacts(NamedTuple):
    """All facts of a URL. Queue and gate are where it is, or where it would go."""

    url: str
    record: UrlRecord | None  #: in the store; None = it is not there
    seen: bool  #: by the filter
    refused: str = ""  #: why it can never be queued, in words
    queue: QueueView | None = None
    gate: GateView | None = None
    leased_since_s: float | None = None
    ahead: int | None = None  #: URLs before it in its queue at its gate, if they were counted
    store_behind: bool = False  #: no lease is given until the store has caught up
    status_words: str = ""  #: the meaning of its last status; empty = the number


class Explanation(NamedTuple):
    """Why something is where it is, and when it can go on."""

    subject: str  #: the URL or the queue's key
    seen: bool  #: the filter knows it (a queue: it holds or held URLs)
    state: str
    queue: QueueKey | None
    gate: GateKey | None
    group: GateKey | None
    reason: str  #: in words, durations counted from now
    earliest_s: float | None  #: it will not be leased before; None = no time is known, or nothing will ever lease it
    highest_rate: float | None  #: URLs a second that its gates allow; infinity = no rest is due; None = not known
    ahead: int | None  #: URLs before it, if known
    hops: str | None = None  #: the path from the seed, while it is queued


def explain_url(facts: UrlFacts, now_s: float) -> Explanation:
    """Explain the state of a URL, why it is not being fetched, and when it can be at the earliest."""
    state, reasons = _url_state(facts, now_s)
    if facts.record is not None and facts.record.url != facts.url:
        reasons.insert(0, f"it is known as {facts.record.url}, which has the same key")
    is_queued = state in {"queued", "waiting"}
    gate = facts.gate
    return Explanation(
        subject=facts.url,
        seen=facts.seen,
        state=state,
        queue=facts.queue.key if facts.queue else None,
        gate=gate.key if gate else None,
        group=gate.group.key if gate and gate.group else None,
        reason="; ".join(reasons),
        earliest_s=_url_earliest(facts, now_s) if is_queued else None,
        highest_rate=_rate(gate) if gate else None,
        ahead=facts.ahead if is_queued else None,
        hops=None if facts.record is None else facts.record.hops,
    )


def explain_queue(queue: QueueView, now_s: float) -> Explanation:
    """The state of a queue, why it is not served, and when it can be at the earliest."""
    only = queue.gates[0] if queue.lanes == len(queue.gates) == 1 else None
    earliest_s: float | None = None
    if queue.state is QueueState.SNOOZED:
        earliest_s = queue.due_s
    elif queue.state is not QueueState.EMPTY:
        at_s = max(now_s, min(map(_opens_s, queue.gates), default=now_s))
        earliest_s = at_s if at_s < math.inf else None
    return Explanation(
        subject=queue.key,
        seen=queue.state is not QueueState.EMPTY or queue.spent > 0,
        state=queue.state.value,
        queue=queue.key,
        gate=only.key if only else None,
        group=only.group.key if only and only.group else None,
        reason="; ".join(_queue_reasons(queue, now_s)),
        earliest_s=None if _held_back(queue) else earliest_s,
        highest_rate=_rate_of_all(queue.gates) if queue.lanes == len(queue.gates) > 0 else None,
        ahead=None,
    )


def text_of(explanation: Explanation, now_s: float) -> str:
    """The explanation as a few plain lines, times in the local zone; no newline at the end."""
    lines = [f"{explanation.subject}: {explanation.state}"]
    places = {"queue": explanation.queue, "gate": explanation.gate, "group": explanation.group}
    named = [f"{what} {key}" for what, key in places.items() if key is not None and key != explanation.subject]
    if named:
        lines.append(", ".join(named))
    lines.append(explanation.reason)
    if explanation.earliest_s is not None:
        lines.append(f"at the earliest {moment_words(explanation.earliest_s, now_s)}")
    if explanation.highest_rate is not None:
        lines.append(f"its gates allow at most: {rate_words(explanation.highest_rate)}")
    return "\n  ".join(lines)


def _url_state(facts: UrlFacts, now_s: float) -> tuple[str, list[str]]:
    record = facts.record
    if record is None:
        if facts.refused:
            return REFUSED, [f"it cannot be queued: {facts.refused}"]
        if facts.seen:
            return NOT_STORED, ["the filter takes it for seen, the store does not have it; schedule it with force"]
        return NEVER_SCHEDULED, ["it was never scheduled; the queue and gate are those that it would get"]
    if record.state is UrlState.ENDED:
        status = facts.status_words or (str(record.status) if record.status else "")
        tries = f" after {counted(record.attempts, 'try', 'tries')} before" if record.attempts else ""
        ended = "failed" if record.outcome == OutcomeKind.FAILED.value else f"is {record.outcome}"
        return "ended", [f"it {ended}{f' with status {status}' if status else ''}{tries}"]
    if facts.leased_since_s is not None:
        return "leased", [f"it was leased {duration_words(now_s - facts.leased_since_s)} ago and is not finished"]
    return record.state.value, list(_queued_reasons(facts, record, now_s)) or ["it can be leased now"]


def _queued_reasons(facts: UrlFacts, record: UrlRecord, now_s: float) -> Iterator[str]:
    """All that keeps a queued URL from its lease, the strongest first."""
    queue = facts.queue
    if queue and (words := _held_back(queue)):
        yield f"its queue {words}"
    if record.due_s is not None and record.due_s > now_s:
        tries = counted(record.attempts, "try", "tries")
        yield f"it waits for its retry for another {duration_words(record.due_s - now_s)}, after {tries}"
    if facts.store_behind:
        yield STORE_BEHIND
    if facts.gate:
        yield from _gate_reasons(facts.gate, now_s)
    if queue is None:
        return
    if queue.state is QueueState.IN_FLIGHT:
        yield "another URL of its queue is in flight"
    if facts.ahead:
        yield f"{counted(facts.ahead, 'URL is', 'URLs are')} before it in its queue"
    if words := _turn_words(queue):
        yield f"its queue {words}"


def _url_earliest(facts: UrlFacts, now_s: float) -> float | None:
    """When its gates are open and the URLs before it have gone; None if that takes more than time."""
    if facts.queue is not None and _held_back(facts.queue):
        return None
    at_s = max(now_s, (facts.record and facts.record.due_s) or now_s)
    if facts.gate is not None:
        at_s = max(at_s, _opens_s(facts.gate))
        at_s += facts.ahead / _rate(facts.gate) if facts.ahead else 0.0
    return at_s if at_s < math.inf else None


def _held_back(queue: QueueView) -> str:
    """Why time alone does not let it be served; empty if it does."""
    if queue.state is QueueState.PAUSED:
        return "is paused by the operator"
    if queue.state is QueueState.RETIRED:
        if NOTHING_MORE < queue.budget <= queue.spent:
            return f"is retired: {queue.spent} of its total budget of {queue.budget} are spent"
        return "is retired by the operator"
    if queue.precedence >= queue.floor:
        return f"never runs: its precedence is {queue.precedence}"
    return ""


def _turn_words(queue: QueueView) -> str:
    if queue.state is QueueState.INACTIVE:
        return f"waits for its turn, at precedence {queue.precedence}"
    return "is being read from the store" if queue.state is QueueState.LOADING else ""


def _queue_reasons(queue: QueueView, now_s: float) -> list[str]:
    """All that keeps a queue from its next lease, the strongest first."""
    if queue.state is QueueState.EMPTY:
        return ["it holds no URL"]
    waiting = f", {queue.waiting:,} waiting for a retry" if queue.waiting else ""
    return [
        *([f"it {words}"] if (words := _held_back(queue)) else []),
        f"it holds {counted(queue.urls, 'URL')}{waiting}",
        *([f"{counted(queue.out, 'URL')} in flight"] if queue.out else []),
        *_next_reasons(queue, now_s),
    ]


def _next_reasons(queue: QueueView, now_s: float) -> Iterator[str]:
    """Yield the reasons why the queue's next URL waits, except for a lease or the operator."""
    closed = [gate for gate in queue.gates if _opens_s(gate) > now_s]
    if queue.state is QueueState.SNOOZED:
        yield "none can be served" + in_time("the first retry is due", queue.due_s, now_s)
    elif closed and len(closed) == len(queue.gates):
        if queue.lanes > 1:
            is_all = queue.lanes == len(queue.gates)
            yield f"all its {queue.lanes} gates are closed" if is_all else "its first gates are closed"
        yield from _gate_reasons(min(closed, key=_opens_s), now_s)
    elif words := _turn_words(queue):
        yield f"it {words}"
    elif queue.state is QueueState.READY:
        yield "its next URL can be leased now"


def _gate_reasons(gate: GateView, now_s: float) -> Iterator[str]:
    if gate.opens_s > now_s:
        yield f"its gate {gate.key} is closed: {gate.why_closed}"
    if gate.group is not None and gate.group.opens_s > now_s:
        yield f"its group's gate {gate.group.key} is closed: {gate.group.why_closed}"


def _opens_s(gate: GateView) -> float:
    return gate.opens_s if gate.group is None else max(gate.opens_s, gate.group.opens_s)


def _rate(gate: GateView) -> float:
    return gate.rate_per_s if gate.group is None else min(gate.rate_per_s, gate.group.rate_per_s)


def _rate_of_all(gates: Sequence[GateView]) -> float:
    """The rate of all gates together: those of one group have at most the group's."""
    groups = {gate.group for gate in gates if gate.group is not None}
    alone = sum(gate.rate_per_s for gate in gates if gate.group is None)
    return alone + sum(min(group.rate_per_s, sum(g.rate_per_s for g in gates if g.group == group)) for group in groups)


def rate_per_s(gate: Gate) -> float:
    """The highest rate of starts that its rules allow now, with fetches that take no time; infinity if no rest is due."""
    rest_s = max(gate.politeness.min_delay_s, gate.spacing_s, gate.throttle_s)
    return gate.slots / rest_s if rest_s else math.inf


def why_closed(gate: Gate, now_s: float) -> str:
    """Why no slot can be taken now, in short words, times counted from now; empty if one can."""
    opens_s = gate.opens_s()
    if opens_s <= now_s:
        return ""
    reasons = []
    if gate.blocked_until_s == math.inf:
        reasons.append("blocked until it is unblocked")
    elif gate.blocked_until_s > now_s:
        word = "rests" if gate.troubles else "blocked"  # an operator blocks, troubles make it rest
        reasons.append(f"{word} for another {duration_words(gate.blocked_until_s - now_s)}")
    if gate.out >= gate.slots:
        reasons.append("its only slot is out" if gate.out == 1 else f"{gate.out} of {gate.slots} slots are out")
    elif opens_s > gate.blocked_until_s:
        reasons.append(f"rests for another {duration_words(opens_s - now_s)}")
    if gate.troubles:
        reasons.append(f"troubles in a row: {gate.troubles}")
    if gate.throttle_s:
        reasons.append(f"starts {duration_words(gate.throttle_s)} apart since a 429")
    if gate.spacing_s:
        reasons.append(f"Crawl-delay {duration_words(gate.spacing_s)}")
    return ", ".join(reasons)
