"""What an operator asks of a job's Frontier and orders it to do: verbs by name, from plain arguments to plain facts.

The same tables serve a job that is stopped (the command opens its Frontier) and one that is running (the crawl answers through
its control socket). Arguments and facts are what JSON holds, so that both are one.

A verb waits for the store: until what was said before is written, and for what it reads. An order takes some milliseconds, in
which a running crawl stands still. A look may take seconds (`ls` looks at every lane), in which the crawl goes on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from anabranch.crawler.operating.arguments import Arguments, Facts, number, state_named, text, whole
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from anabranch.crawler.outcomes.ownfunctions import shown
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.urls.parsing import host_of, refusal, seed_url
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.models import GateKey, QueueKey, UrlState, WaitsFor
from anabranch.frontier.operating.explain import Explanation, GateView, QueueView, UrlFacts, explain_queue, explain_url
from anabranch.frontier.operating.statistics import FrontierCounts, FrontierStatistics
from anabranch.frontier.operating.steps import Steps, asked, run
from anabranch.frontier.policies.groups import is_group
from anabranch.frontier.scheduling.lifecycle import QueueState

#: Argument of `why` and `show`: the keys of the job's URLs are not known.
WHATEVER_KEY = "whatever_key"
#: Queues that are looked at for those in one state.
LOOKED_AT = 1000
#: The numbers of `totals`.
_TOTALS = ("pending", "waiting", "in_flight", "done", "failed", "disregarded", "retired", "gates_open")
#: Questions to the store until it is known whether anything can be leased.
_ROUNDS = 20
#: What a gate's key begins with where each queue has one of its own.
_QUEUE_GATE = "queue:"


def ls(frontier: Frontier, given: Arguments) -> Steps[Facts]:
    """The queues with most URLs, and the totals. Arguments: limit; state, or none for all."""
    limit = whole(given, "limit", least=0)
    name = given.get("state")
    state = None if name is None else state_named(name)
    # First: it tells whether the store is behind, and whatever waits for the store ends that.
    sums = yield from totals(frontier)
    looking = frontier.operations.looking
    if state is None:
        views = yield from looking.longest(limit)
    else:
        found = yield from looking.queues(state, None, LOOKED_AT)
        views = sorted(found, key=lambda view: (-view.urls, view.key))[:limit]
    queues = [queue_facts(view, frontier.now_s()) for view in views]
    return {"now_s": frontier.now_s(), "queues": queues, "totals": sums}


def totals(frontier: Frontier) -> Steps[Facts]:
    """How much there is of what, and why nothing can be leased, if so."""
    return totals_facts((yield from frontier.operations.looking.statistics()))


def totals_facts(statistics: FrontierStatistics) -> Facts:
    """The same out of what was looked at. Pure."""
    numbers = {name: getattr(statistics, name) for name in _TOTALS}
    return {**numbers, "queues": dict(statistics.queues), "why_idle": statistics.why_idle}


def totals_of_counts(counts: FrontierCounts) -> Facts:
    """The same before anybody has taken a closer look: inactive queues and open gates are not counted. Pure."""
    queues = {state.value: counts.queues.get(state.value, 0) for state in QueueState}
    return {**{name: getattr(counts, name, 0) for name in _TOTALS}, "queues": queues, "why_idle": ""}


def show(frontier: Frontier, given: Arguments) -> Steps[Facts]:
    """Why a queue or a URL is where it is. Argument: subject. Raises: UnknownQueue."""
    subject = text(given, "subject")
    try:
        view = yield from frontier.operations.looking.view(QueueKey(subject))
    except UnknownQueue:
        if "://" not in subject:
            raise
        return (yield from why(frontier, {**given, "url": subject}))
    now_s = frontier.now_s()
    gates = [gate_facts(gate, now_s) for gate in view.gates]
    explanation = explain_queue(view, now_s)._asdict()
    return {"now_s": now_s, "explanation": explanation, "queue": queue_facts(view, now_s), "gates": gates}


def why(frontier: Frontier, given: Arguments) -> Steps[Facts]:
    """Why a URL is where it is. Arguments: url, as a seed is written; its key for dedup, if that is not the URL.

    Of a link that no crawl takes it says so. With `WHATEVER_KEY` the URL may stand for several requests, of keys that only
    their program knows: the facts of the first are followed by the "others". Raises: UsageError.
    """
    typed = text(given, "url")
    if given.get(WHATEVER_KEY):
        return (yield from _whatever_key(frontier, typed))
    url = seed_url(typed)
    if url is None:
        return _never_taken(frontier, typed)
    key = text(given, "key").encode() if "key" in given else url.encode()
    explanation = yield from frontier.operations.looking.explain(url, key)
    if explanation.state == UrlState.ENDED.value:
        record = yield from asked(frontier.get, key)
        if record is not None and record.status:
            words = explanation.reason.replace(f"status {record.status}", f"status {describe(record.status)}", 1)
            explanation = explanation._replace(reason=words)
    return {"now_s": frontier.now_s(), "explanation": explanation._asdict()}


def _whatever_key(frontier: Frontier, typed: str) -> Steps[Facts]:
    url = seed_url(typed) or typed
    if "://" not in url:
        raise UsageError(f"{typed!r} is no URL; correct it")
    looking = frontier.operations.looking
    found: list[Explanation] = []
    for spelled in dict.fromkeys((typed, url)):  # whatever way the program spells it
        found += yield from looking.explain_all(spelled, describe)
    if not found:
        found.append((yield from looking.explain(url)))
    first, *others = (explanation._asdict() for explanation in found)
    return {"now_s": frontier.now_s(), "explanation": first, **({"others": others} if others else {})}


def _never_taken(frontier: Frontier, typed: str) -> Facts:
    words = refusal(typed)
    if not words:
        raise UsageError(f"{typed!r} is no http or https URL; correct it")
    words = f"{words}; such a link is dropped when its page is read, before any rule of [scope] is asked"
    explanation = explain_url(UrlFacts(url=shown(typed), record=None, seen=False, refused=words), frontier.now_s())
    return {"now_s": frontier.now_s(), "explanation": explanation._asdict()}


def block(frontier: Frontier, given: Arguments) -> Facts:
    """Let nothing through a host's gate: for_s, until_s (epoch seconds), or neither, until it is unblocked."""
    gate = gate_key(text(given, "host"))
    until_s = math.inf
    if given.get("for_s") is not None:
        until_s = frontier.now_s() + number(given, "for_s")
    elif given.get("until_s") is not None:
        until_s = number(given, "until_s")
    if until_s <= frontier.now_s():
        raise UsageError("--until: this time has passed; give one that is to come")
    frontier.block(gate, until_s)
    return _gate(frontier, gate)


def unblock(frontier: Frontier, given: Arguments) -> Facts:
    """Take every block of a host back, and forget its troubles. Argument: host."""
    gate = gate_key(text(given, "host"))
    frontier.unblock(gate)
    return _gate(frontier, gate)


def pause(frontier: Frontier, given: Arguments) -> Facts:
    """Serve nothing more of a queue until it is resumed. Argument: queue. Raises: UnknownQueue."""
    return _ordered(frontier, given, frontier.operations.pause)


def resume(frontier: Frontier, given: Arguments) -> Facts:
    """Serve a queue again that was paused or retired. Argument: queue. Raises: UnknownQueue."""
    return _ordered(frontier, given, frontier.operations.resume)


def retire(frontier: Frontier, given: Arguments) -> Facts:
    """Put a queue aside. Argument: queue. Raises: UnknownQueue."""
    return _ordered(frontier, given, frontier.operations.retire)


def set_budget(frontier: Frontier, given: Arguments) -> Facts:
    """Give a queue a total budget of its own. Arguments: queue; units, -1 = without end, none = the order's."""
    units = None if given.get("units") is None else whole(given, "units", least=-1)
    return _ordered(frontier, given, lambda queue: frontier.operations.set_budget(queue, units))


#: The verbs that change nothing, in steps.
LOOKS: Mapping[str, Callable[[Frontier, Arguments], Steps[Facts]]] = MappingProxyType(
    {"ls": ls, "show": show, "why": why}
)

#: The verbs that change something. They are short, and so may be run on the loop of a running crawl.
ORDERS: Mapping[str, Callable[[Frontier, Arguments], Facts]] = MappingProxyType(
    {"block": block, "unblock": unblock, "pause": pause, "resume": resume, "retire": retire, "set-budget": set_budget}
)

#: All that a running crawl does, by name.
VERBS = (*LOOKS, *ORDERS)

#: Those that take their time, or need the store to stand still: only for a job that is stopped.
STOPPED_ONLY = frozenset({"dump", "load", "rm"})


class JobRuns(CrawlerError):
    """What was asked needs the job for itself."""


def answer(frontier: Frontier, verb: str, given: Arguments) -> Facts:
    """Do it on the Frontier of a job that is stopped (blocks). Raises: as `answer_beside`."""
    _check_verb(verb)
    if verb in ORDERS:
        return ORDERS[verb](frontier, given)
    if verb == "ls":
        run(_read_gates(frontier))
    return run(LOOKS[verb](frontier, given))


async def answer_beside(frontier: AsyncFrontier, verb: str, given: Arguments) -> Facts:
    """Do what a running crawl is asked; tasks that wait for a lease hear of what it changes.

    Raises: JobRuns, UsageError, UnknownQueue; StoreUnavailable as everywhere.
    """
    _check_verb(verb)
    if verb in LOOKS:
        return await frontier.look(LOOKS[verb](frontier.core, given))
    return frontier.operate(lambda _: ORDERS[verb](frontier.core, given))


def refuse_beside(verb: str) -> None:
    """Raises: JobRuns for what is only for a job that nobody crawls."""
    if verb in STOPPED_ONLY:
        raise JobRuns(f"{verb} needs the job for itself, and process {os.getpid()} crawls it; stop that crawl first")


def _check_verb(verb: str) -> None:
    refuse_beside(verb)
    if verb not in VERBS:
        raise UsageError(f"{verb!r} is unknown; choose one of {', '.join(VERBS)}")


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


def _ordered(frontier: Frontier, given: Arguments, order: Callable[[QueueKey], None]) -> Facts:
    """Do it; the queue as it is then."""
    queue = QueueKey(text(given, "queue"))
    order(queue)
    return {"now_s": frontier.now_s(), "queue": queue_facts(frontier.operations.view(queue), frontier.now_s())}


def _read_gates(frontier: Frontier) -> Steps[None]:
    """Let a Frontier that nobody leases from find out whether anybody could: gates are read only on the way to a lease."""
    for _ in range(_ROUNDS):
        lease = frontier.lease()
        if lease is not None:
            frontier.release(lease)
            return
        if WaitsFor.STORE not in frontier.wake().waits_for:
            return
        yield from frontier.operations.looking.flush()


def _opens_s(gate: GateView) -> float:
    return gate.opens_s if gate.group is None else max(gate.opens_s, gate.group.opens_s)
