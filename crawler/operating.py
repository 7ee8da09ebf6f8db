"""What an operator asks of a job's Frontier and orders it to do: verbs by name, from plain arguments to plain facts.

The same table serves a job that is stopped (the command opens its Frontier) and one that is running (the crawl answers through
its control socket, on its loop). Arguments and facts are what JSON holds, so that both are one.

A verb waits for the store: until what was said before is written, and for what it reads. That is some milliseconds; in it a
running crawl stands still. `ls` looks at every lane: about a second for a million.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from crawler.errors import CrawlerError, UsageError
from crawler.status import describe
from crawler.urls import host_of, seed_url
from frontier.core import Frontier
from frontier.errors import UnknownQueue
from frontier.models import GateKey, QueueKey, UrlState, WaitsFor
from frontier.operating.explain import GateView, QueueView, explain_queue
from frontier.policies.groups import is_group
from frontier.scheduling.lifecycle import QueueState

Arguments = Mapping[str, Any]
Facts = dict[str, Any]

#: Queues that are looked at for those in one state.
LOOKED_AT = 1000
#: Questions to the store until it is known whether anything can be leased.
_ROUNDS = 20
#: What a gate's key begins with where each queue has one of its own.
_QUEUE_GATE = "queue:"


def ls(frontier: Frontier, asked: Arguments) -> Facts:
    """The queues with most URLs, and the totals. Arguments: limit; state, or none for all."""
    limit = _whole(asked, "limit", least=0)
    name = asked.get("state")
    sums = totals(frontier)  # first: it tells whether the store is behind, and whatever waits for the store ends that
    operations = frontier.operations
    if name is None:
        views = operations.longest(limit)
    else:
        found = operations.queues(_state(name), None, LOOKED_AT)
        views = sorted(found, key=lambda view: (-view.urls, view.key))[:limit]
    queues = [queue_facts(view, frontier.now_s()) for view in views]
    return {"now_s": frontier.now_s(), "queues": queues, "totals": sums}


def totals(frontier: Frontier) -> Facts:
    """How much there is of what, and why nothing can be leased, if so."""
    if not frontier.in_flight:
        _read_gates(frontier)
    statistics = frontier.statistics()
    names = ("pending", "waiting", "in_flight", "done", "failed", "disregarded", "retired", "gates_open")
    numbers = {name: getattr(statistics, name) for name in names}
    return {**numbers, "queues": dict(statistics.queues), "why_idle": statistics.why_idle}


def show(frontier: Frontier, asked: Arguments) -> Facts:
    """Why a queue or a URL is where it is. Argument: subject. Raises: UnknownQueue."""
    subject = _text(asked, "subject")
    try:
        view = frontier.operations.view(QueueKey(subject))
    except UnknownQueue:
        if "://" not in subject:
            raise
        return why(frontier, {"url": subject})
    now_s = frontier.now_s()
    gates = [gate_facts(gate, now_s) for gate in view.gates]
    explanation = explain_queue(view, now_s)._asdict()
    return {"now_s": now_s, "explanation": explanation, "queue": queue_facts(view, now_s), "gates": gates}


def why(frontier: Frontier, asked: Arguments) -> Facts:
    """Why a URL is where it is. Argument: url, as a seed is written. Raises: UsageError."""
    typed = _text(asked, "url")
    url = seed_url(typed)
    if url is None:
        raise UsageError(f"{typed!r} is no http or https URL; correct it")
    explanation = frontier.operations.explain(url)
    if explanation.state == UrlState.ENDED.value:
        record = frontier.get(url.encode())
        if record is not None and record.status:
            words = explanation.reason.replace(f"status {record.status}", f"status {describe(record.status)}", 1)
            explanation = explanation._replace(reason=words)
    return {"now_s": frontier.now_s(), "explanation": explanation._asdict()}


def block(frontier: Frontier, asked: Arguments) -> Facts:
    """Let nothing through a host's gate: for_s, until_s (epoch seconds), or neither, until it is unblocked."""
    gate = gate_key(_text(asked, "host"))
    until_s = math.inf
    if asked.get("for_s") is not None:
        until_s = frontier.now_s() + _number(asked, "for_s")
    elif asked.get("until_s") is not None:
        until_s = _number(asked, "until_s")
    if until_s <= frontier.now_s():
        raise UsageError("--until: this time has passed; give one that is to come")
    frontier.block(gate, until_s)
    return _gate(frontier, gate)


def unblock(frontier: Frontier, asked: Arguments) -> Facts:
    """Take every block of a host back, and forget its troubles. Argument: host."""
    gate = gate_key(_text(asked, "host"))
    frontier.unblock(gate)
    return _gate(frontier, gate)


def pause(frontier: Frontier, asked: Arguments) -> Facts:
    """Serve nothing more of a queue until it is resumed. Argument: queue. Raises: UnknownQueue."""
    return _ordered(frontier, asked, frontier.operations.pause)


def resume(frontier: Frontier, asked: Arguments) -> Facts:
    """Serve a queue again that was paused or retired. Argument: queue. Raises: UnknownQueue."""
    return _ordered(frontier, asked, frontier.operations.resume)


def retire(frontier: Frontier, asked: Arguments) -> Facts:
    """Put a queue aside. Argument: queue. Raises: UnknownQueue."""
    return _ordered(frontier, asked, frontier.operations.retire)


def set_budget(frontier: Frontier, asked: Arguments) -> Facts:
    """Give a queue a total budget of its own. Arguments: queue; units, -1 = without end, none = the order's."""
    units = None if asked.get("units") is None else _whole(asked, "units", least=-1)
    return _ordered(frontier, asked, lambda queue: frontier.operations.set_budget(queue, units))


#: The verbs that are short, and so may be run on the loop of a running crawl.
VERBS: Mapping[str, Callable[[Frontier, Arguments], Facts]] = MappingProxyType(
    {
        "ls": ls,
        "show": show,
        "why": why,
        "block": block,
        "unblock": unblock,
        "pause": pause,
        "resume": resume,
        "retire": retire,
        "set-budget": set_budget,
    }
)

#: Those that take their time, or need the store to stand still: only for a job that is stopped.
STOPPED_ONLY = frozenset({"dump", "load", "rm"})


class JobRuns(CrawlerError):
    """What was asked needs the job for itself."""


def answer(frontier: Frontier, verb: str, asked: Arguments) -> Facts:
    """Do what a running crawl is asked. Raises: JobRuns, UsageError, UnknownQueue; StoreUnavailable as everywhere."""
    if verb in STOPPED_ONLY:
        raise JobRuns(f"{verb} needs the job for itself, and process {os.getpid()} crawls it; stop that crawl first")
    if verb not in VERBS:
        raise UsageError(f"{verb!r} is unknown; choose one of {', '.join(VERBS)}")
    return VERBS[verb](frontier, asked)


# Facts


def queue_facts(view: QueueView, now_s: float) -> Facts:
    """A queue as a row of a table; its gate is the one that opens first of those that were looked at."""
    first = min(view.gates, key=_opens_s, default=None)
    opens_s = None if first is None else _opens_s(first)
    return {
        "queue": view.key,
        "state": view.state.value,
        "urls": view.urls,
        "waiting": view.waiting,
        "in_flight": view.out,
        "precedence": view.precedence,
        "spent": view.spent,
        "budget": None if view.budget < 0 else view.budget,
        "gates": view.lanes,
        "gate": None if first is None else first.key,
        "opens_in_s": None if opens_s is None or opens_s == math.inf else max(opens_s - now_s, 0.0),
        "reason": explain_queue(view, now_s).reason,
    }


def gate_facts(gate: GateView, now_s: float) -> Facts:
    """A gate; times and rates that are without end are None."""
    return {
        "gate": gate.key,
        "opens_in_s": None if gate.opens_s == math.inf else max(gate.opens_s - now_s, 0.0),
        "rate_per_s": None if gate.rate_per_s == math.inf else gate.rate_per_s,
        "why_closed": gate.why_closed,
        "group": None if gate.group is None else gate_facts(gate.group, now_s),
    }


def gate_key(typed: str) -> GateKey:
    """The gate of a host as an operator writes it, with or without a scheme, a port, capitals; or a group, by its key.

    Raises: UsageError.
    """
    if typed.startswith(_QUEUE_GATE) or is_group(typed):
        return GateKey(typed)
    url = seed_url(typed)
    if url is None:
        raise UsageError(f"{typed!r} is no host; write it like example.org")
    return GateKey(host_of(url))


def _gate(frontier: Frontier, key: GateKey) -> Facts:
    frontier.flush()  # a gate that was not in memory is there now, has changed, and is written
    return {"now_s": frontier.now_s(), "gate": gate_facts(frontier.operations.gate(key), frontier.now_s())}


def _ordered(frontier: Frontier, asked: Arguments, order: Callable[[QueueKey], None]) -> Facts:
    """Do it; the queue as it is then."""
    queue = QueueKey(_text(asked, "queue"))
    order(queue)
    return {"now_s": frontier.now_s(), "queue": queue_facts(frontier.operations.view(queue), frontier.now_s())}


def _read_gates(frontier: Frontier) -> None:
    """Let a Frontier that nobody leases from find out whether anybody could: gates are read only on the way to a lease."""
    for _ in range(_ROUNDS):
        lease = frontier.lease()
        if lease is not None:
            frontier.release(lease)
            return
        if WaitsFor.STORE not in frontier.wake().waits_for:
            return
        frontier.flush()


def _opens_s(gate: GateView) -> float:
    return gate.opens_s if gate.group is None else max(gate.opens_s, gate.group.opens_s)


# Arguments


def _text(asked: Arguments, name: str) -> str:
    value = asked.get(name)
    if value == "":
        raise UsageError(f"{name} is empty; give one")
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text; it is {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} {value!r}: it is not UTF-8") from error
    return value


def _number(asked: Arguments, name: str) -> float:
    value = asked.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise UsageError(f"{name} must be a number; it is {value!r}")


def _whole(asked: Arguments, name: str, *, least: int) -> int:
    value = asked.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 53:
        return value
    raise UsageError(f"{name} must be a whole number from {least}; it is {value!r}")


def _state(name: object) -> QueueState:
    try:
        return QueueState(name)
    except ValueError as error:
        states = ", ".join(state.value for state in _listed())
        raise UsageError(f"state {name!r} is unknown; choose one of {states}") from error


def _listed() -> Sequence[QueueState]:
    """States of queues that are listed: an empty one is not."""
    return [state for state in QueueState if state is not QueueState.EMPTY]
