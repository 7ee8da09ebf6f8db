"""The operator's verbs for a job's Frontier, by name; arguments and facts are JSON values.

The same tables serve a job that is not running (the command opens its Frontier) and a running one (through the control socket,
see `crawl_verbs` and `control`). A verb waits for the store. A command takes some milliseconds, in which a running crawl waits.
A query may take seconds (`ls` looks at every lane), in which the crawl goes on.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from anabranch.crawler.job.seeds import queued_again
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.urls.parsing import host_of, refusal, seed_url
from anabranch.frontier import (
    NEVER_SCHEDULED,
    AsyncFrontier,
    Explanation,
    FailedRecord,
    Frontier,
    FrontierCounts,
    FrontierStatistics,
    GateView,
    QueueState,
    QueueView,
    UrlFacts,
    explain_queue,
    explain_url,
    is_group,
)
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.parts import Steps, asked, run
from anabranch.frontier.policies.userfunctions import shown
from anabranch.frontier.records import GateKey, OutcomeKind, QueueKey, UrlState, WaitsFor

#: The arguments of a verb, by name.
Arguments = Mapping[str, Any]
#: The answer of a verb, by name.
Facts = Mapping[str, Any]

#: Argument of `why` and `show`: the keys of the job's URLs are not known.
WHATEVER_KEY = "whatever_key"
#: Queues that are searched for those in one state.
SEARCHED = 1000
#: The numbers of `totals`.
_TOTALS = ("pending", "waiting", "in_flight", "done", "failed", "disregarded", "retired", "gates_open")
#: Rounds of reading from the store, at most, until it is known whether anything can be leased.
_ROUNDS = 20
#: What a URL without its scheme has; a host of an intranet may have none of it.
_LIKE_A_URL = re.compile(r"[.:/]|^localhost$")
#: The verb that queues failures again.
RETRY = "retry"
#: A status of `retry`: a number, or a class of HTTP statuses.
_STATUS = re.compile(r"(?P<number>-?[0-9]{1,9})|(?P<hundreds>[1-9])xx", re.ASCII)
#: The prefix of a gate's key where each queue has a gate of its own.
QUEUE_GATE = "queue:"


# Arguments: all of these raise UsageError, in one line


def text_argument(given: Arguments, name: str) -> str:
    """A text that is not empty."""
    value = given.get(name)
    if value == "":
        raise UsageError(f"{name} is empty; give one")
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text; it is {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} {value!r}: it is not UTF-8") from error
    return value


def number_argument(given: Arguments, name: str) -> float:
    """A finite number."""
    value = given.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise UsageError(f"{name} must be a number; it is {value!r}")


def whole_argument(given: Arguments, name: str, *, least: int) -> int:
    """A whole number from `least` on, such as every store can hold."""
    value = given.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 53:
        return value
    raise UsageError(f"{name} must be a whole number from {least}, below 2^53; it is {value!r}")


def state_argument(name: object) -> QueueState:
    """A state of queues; empty queues are not listed."""
    try:
        return QueueState(name)
    except ValueError as error:
        states = ", ".join(state.value for state in QueueState if state is not QueueState.EMPTY)
        raise UsageError(f"state {name!r} is unknown; choose one of {states}") from error


# Queries


def ls(frontier: Frontier, given: Arguments) -> Steps[Facts]:
    """The queues with the most URLs, and the totals. Arguments: limit; state, or none for all."""
    limit = whole_argument(given, "limit", least=0)
    name, read = given.get("state"), frontier.operations.views
    state = None if name is None else state_argument(name)
    # The totals first: they show whether the store is behind, and waiting for the store would end that.
    totals = totals_facts((yield from read.statistics()))
    if state is None:
        views = yield from read.longest(limit)
    else:
        found = yield from read.queues(state, None, SEARCHED)
        views = sorted(found, key=lambda view: (-view.urls, view.key))[:limit]
    queues = [queue_facts(view, frontier.now_s()) for view in views]
    return {"now_s": frontier.now_s(), "queues": queues, "totals": totals}


def active(frontier: Frontier, given: Arguments) -> Steps[Facts]:
    """The queues and gates in memory, with no look at the store. Argument: limit, of each."""
    yield from ()
    found = frontier.operations.views.in_memory(whole_argument(given, "limit", least=0))
    return {
        "now_s": frontier.now_s(),
        "queues": [[key, state.value, out] for key, state, out in found.queues],
        "gates": [[key, None if opens_in_s == math.inf else opens_in_s, out] for key, opens_in_s, out in found.gates],
    }


def totals_facts(statistics: FrontierStatistics) -> Facts:
    """The number of URLs in each state, and why nothing can be leased, if so. Pure."""
    numbers = {name: getattr(statistics, name) for name in _TOTALS}
    return {**numbers, "queues": dict(statistics.queues), "why_idle": statistics.why_idle}


def totals_of_counts(counts: FrontierCounts) -> Facts:
    """Return the facts of `totals_facts` from the counters alone, which count no inactive queues and no open gates. Pure."""
    queues = {state.value: counts.queues.get(state.value, 0) for state in QueueState}
    return {**{name: getattr(counts, name, 0) for name in _TOTALS}, "queues": queues, "why_idle": ""}


def show(frontier: Frontier, given: Arguments) -> Steps[Facts]:
    """Why a queue or a URL is where it is. Argument: subject. Raises: UnknownQueue."""
    subject = text_argument(given, "subject")
    try:
        view = yield from frontier.operations.views.view(QueueKey(subject))
    except UnknownQueue:
        if "://" not in subject:
            raise
        return (yield from why(frontier, {**given, "url": subject}))
    now_s = frontier.now_s()
    return {
        "now_s": now_s,
        "explanation": explain_queue(view, now_s)._asdict(),
        "queue": queue_facts(view, now_s),
        "gates": [gate_facts(gate, now_s) for gate in view.gates],
    }


def why(frontier: Frontier, given: Arguments) -> Steps[Facts]:
    """Why a URL is where it is. Arguments: url, as a seed is written; its key for dedup, if that is not the URL.

    With `WHATEVER_KEY` the URL may belong to several requests, with keys that only their program knows: the facts of the first
    are followed by the "others". Raises: UsageError.
    """
    typed = text_argument(given, "url")
    if given.get(WHATEVER_KEY):
        first, *others = (explanation._asdict() for explanation in (yield from _whatever_key(frontier, typed)))
        return {"now_s": frontier.now_s(), "explanation": first, **({"others": others} if others else {})}
    url, words = seed_url(typed), refusal(typed)
    if url is not None:
        key = text_argument(given, "key").encode() if "key" in given else url.encode()
        explanation = yield from frontier.operations.views.explain(url, key)
        if explanation.state == NEVER_SCHEDULED and not _LIKE_A_URL.search(typed):
            raise UsageError(
                f"{typed!r} is neither a URL nor a host of this job; write the full URL, like http://{typed}/"
            )
        if explanation.state == UrlState.ENDED.value:
            explanation = yield from _with_status_words(frontier, key, explanation)
    elif _LIKE_A_URL.search(typed) and words:
        words = f"{words}; such a link is dropped when its page is read, before any rule of [scope] is asked"
        explanation = explain_url(UrlFacts(url=shown(typed), record=None, seen=False, refused=words), frontier.now_s())
    else:
        raise UsageError(f"{typed!r}: {words or 'it is not an http or https URL'}")
    return {"now_s": frontier.now_s(), "explanation": explanation._asdict()}


def _with_status_words(frontier: Frontier, key: bytes, explanation: Explanation) -> Steps[Explanation]:
    record = yield from asked(frontier.operations.get, key)
    if record is None or not record.status:
        return explanation
    words = explanation.reason.replace(f"status {record.status}", f"status {describe(record.status)}", 1)
    remedy = "; `anabranch retry` queues it again" if record.outcome == OutcomeKind.FAILED.value else ""
    return explanation._replace(reason=words + remedy)


def _whatever_key(frontier: Frontier, typed: str) -> Steps[list[Explanation]]:
    url = seed_url(typed) or typed
    if "://" not in url:
        raise UsageError(f"{typed!r} is not a URL")
    read = frontier.operations.views
    found: list[Explanation] = []
    for spelled in dict.fromkeys((typed, url)):  # the program may spell it either way
        found += yield from read.explain_all(spelled, describe)
    return found or [(yield from read.explain(url))]


# Commands


def block(frontier: Frontier, given: Arguments) -> Facts:
    """Close a host's gate. Arguments: host; for_s, until_s (epoch seconds), or neither, until it is unblocked; replaces: an
    earlier block that lasts longer ends with this one.
    """
    gate = gate_key(text_argument(given, "host"))
    until_s = math.inf
    if given.get("for_s") is not None:
        until_s = frontier.now_s() + number_argument(given, "for_s")
    elif given.get("until_s") is not None:
        until_s = number_argument(given, "until_s")
    if until_s <= frontier.now_s():
        raise UsageError("the end of the block is in the past; give a later time")
    is_known = frontier.operations.knows_gate(gate)
    frontier.block(gate, until_s, replaces=bool(given.get("replaces")))
    return _gate(
        frontier, gate, "" if is_known else f"no URL of {gate} is known yet; it is blocked as soon as one is found"
    )


def unblock(frontier: Frontier, given: Arguments) -> Facts:
    """Remove every block of a host, and forget its troubles. Argument: host."""
    gate = gate_key(text_argument(given, "host"))
    frontier.unblock(gate)
    return _gate(frontier, gate)


def _change_queue(method: str, frontier: Frontier, given: Arguments) -> Facts:
    """Call a method of the operations, then show the queue. Argument: queue; `set_budget` also units, -1 = unlimited, none =
    the order's. Raises: UnknownQueue.
    """
    queue = QueueKey(text_argument(given, "queue"))
    more = {}
    if method == "set_budget":
        more["units"] = None if given.get("units") is None else whole_argument(given, "units", least=-1)
    getattr(frontier.operations, method)(queue, **more)
    return {"now_s": frontier.now_s(), "queue": queue_facts(frontier.operations.view(queue), frontier.now_s())}


def retry(frontier: Frontier, given: Arguments) -> Steps[Facts]:
    """Queue failures again; a call looks at 10,000 of them. Arguments: statuses, such as -1, 503, 5xx; host, that host alone;
    since_s (epoch seconds), if it failed then or later; url; without any of these all. Of the call before: `more` as after,
    and before_s. is_crawl: payloads are those of a crawl (`job.seeds`), which knows by them that no rule skips these URLs.
    """
    wants_status = status_argument(given.get("statuses") or ())
    host = None if given.get("host") is None else str(gate_key(text_argument(given, "host")))
    url = None if given.get("url") is None else text_argument(given, "url")
    since_s, before_s = (
        None if given.get(name) is None else number_argument(given, name) for name in ("since_s", "before_s")
    )
    urls = {url, seed_url(url)} if url is not None else set()
    undated = 0

    def matches(failure: FailedRecord) -> bool:
        nonlocal undated
        if not wants_status(failure.status) or (host is not None and host_of(failure.url) != host):
            return False
        if urls and failure.url not in urls:
            return False
        if since_s is None:
            return True
        undated += failure.ended_s is None
        return failure.ended_s is not None and failure.ended_s >= since_s

    after = whole_argument(given, "after", least=0) if given.get("after") is not None else 0
    payload_of = queued_again if given.get("is_crawl") else _same
    report = yield from frontier.operations.retrying.steps(matches, after, before_s, payload_of)
    return {**report._asdict(), "undated": undated, "note": ""}


def _same(payload: bytes | None) -> bytes | None:
    return payload


def status_argument(listed: object) -> Callable[[int], bool]:
    """Whether a status is one of a list, such as `-1`, `503`, `5xx`; of an empty one all are. Raises: UsageError."""
    if not isinstance(listed, list | tuple):
        raise UsageError(f"statuses must be a list; it is {listed!r}")
    wanted: set[int] = set()
    classes: set[int] = set()
    for one in listed:
        found = _STATUS.fullmatch(str(one))
        if found is None or isinstance(one, bool):
            raise UsageError(f"status {str(one)!r}: write it as crawl.log has it, like -1, 503 or 5xx")
        if found["number"]:
            wanted.add(int(found["number"]))
        else:
            classes.add(int(found["hundreds"]))
    return lambda status: not (wanted or classes) or status in wanted or (status > 0 and status // 100 in classes)


#: The verbs that change nothing, in steps.
QUERIES: Mapping[str, Callable[[Frontier, Arguments], Steps[Facts]]] = {
    "ls": ls,
    "show": show,
    "why": why,
    "active": active,
}

#: The verbs that change something. They are short, so they may run on the event loop of a running crawl.
COMMANDS: Mapping[str, Callable[[Frontier, Arguments], Facts]] = {
    "block": block,
    "unblock": unblock,
    "pause": partial(_change_queue, "pause"),
    "resume": partial(_change_queue, "resume"),
    "retire": partial(_change_queue, "retire"),
    "set-budget": partial(_change_queue, "set_budget"),
}

#: The verbs that change something and take a second, in steps between which a running crawl goes on.
COMMANDS_IN_STEPS: Mapping[str, Callable[[Frontier, Arguments], Steps[Facts]]] = {RETRY: retry}

#: All verbs that a running crawl answers.
VERBS = (*QUERIES, *COMMANDS, *COMMANDS_IN_STEPS)

_IN_STEPS = {**QUERIES, **COMMANDS_IN_STEPS}

#: Verbs that change nothing: they also work on a job that cannot be written.
READING = frozenset({*QUERIES, "dump"})

#: Verbs that take long, or need the store to stand still: only for a job that is not running.
STOPPED_ONLY = frozenset({"dump", "load", "rm"})


class JobIsRunning(CrawlerError):
    """The verb needs the job alone, but a process crawls it."""


def answer(frontier: Frontier, verb: str, given: Arguments) -> Facts:
    """Do it on the Frontier of a job that is not running (blocks). Raises: as `answer_running`."""
    _check_verb(verb)
    if verb in COMMANDS:
        return COMMANDS[verb](frontier, given)
    if verb == "ls":
        run(_read_gates(frontier))
    return run(_IN_STEPS[verb](frontier, given))


async def answer_running(frontier: AsyncFrontier, verb: str, given: Arguments) -> Facts:
    """Do it on the Frontier of a running crawl. Raises: JobIsRunning, UsageError, UnknownQueue; StoreUnavailable."""
    _check_verb(verb)
    if verb in _IN_STEPS:
        return await frontier.look(_IN_STEPS[verb](frontier.core, given))
    return frontier.operate(lambda _: COMMANDS[verb](frontier.core, given))


def refuse_while_running(verb: str) -> None:
    """Raises: JobIsRunning for a verb that is only for a job that is not running."""
    if verb in STOPPED_ONLY:
        process = os.getpid()
        raise JobIsRunning(f"{verb} needs the job alone, but process {process} crawls it; stop that crawl first")


def _check_verb(verb: str) -> None:
    refuse_while_running(verb)
    if verb not in VERBS:
        raise UsageError(f"{verb!r} is unknown; choose one of {', '.join(VERBS)}")


def queue_facts(view: QueueView, now_s: float) -> Facts:
    """A queue as a row of a table; its gate is the one that opens first of those in the view."""
    opens = (
        (gate.opens_s if gate.group is None else max(gate.opens_s, gate.group.opens_s), gate) for gate in view.gates
    )
    opens_s, first = min(opens, key=itemgetter(0), default=(math.inf, None))
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
        "opens_in_s": None if opens_s == math.inf else max(opens_s - now_s, 0.0),
        "reason": explain_queue(view, now_s).reason,
    }


def gate_facts(gate: GateView, now_s: float) -> Facts:
    """A gate; infinite times and rates are None."""
    return {
        "gate": gate.key,
        "opens_in_s": None if gate.opens_s == math.inf else max(gate.opens_s - now_s, 0.0),
        "rate_per_s": None if gate.rate_per_s == math.inf else gate.rate_per_s,
        "why_closed": gate.why_closed,
        "group": None if gate.group is None else gate_facts(gate.group, now_s),
    }


def gate_key(typed: str) -> GateKey:
    """The gate of a host, with or without scheme, port and capitals; or a group's, by its key. Raises: UsageError."""
    if typed.startswith(QUEUE_GATE) or is_group(typed):
        return GateKey(typed)
    url = seed_url(typed)
    if url is None:
        raise UsageError(f"{typed!r} is not a host; write it like example.org")
    return GateKey(host_of(url))


def _gate(frontier: Frontier, key: GateKey, note: str = "") -> Facts:
    frontier.flush()  # the gate is in memory now, and its change is written
    gate = gate_facts(frontier.operations.gate(key), frontier.now_s())
    return {"now_s": frontier.now_s(), "gate": gate, "note": note}


def _read_gates(frontier: Frontier) -> Steps[None]:
    """Have a Frontier read its gates, which it does only on the way to a lease."""
    for _ in range(_ROUNDS):
        lease = frontier.lease()
        if lease is not None:
            frontier.release(lease)
            return
        if WaitsFor.STORE not in frontier.wake().waits_for:
            return
        yield from frontier.operations.views.flush()
