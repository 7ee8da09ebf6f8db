"""The results of the operations on a job; `retry` in as many calls as it takes, and its result in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.table import escaped
from anabranch.crawler.run.verbs import RETRY, Arguments, Facts
from anabranch.frontier import Frontier
from anabranch.frontier.records import UrlState
from anabranch.frontier.times import counted

#: What the operator has to do so that a job in a folder is crawled.
HOW_TO_START = "no crawl of this job is running; `anabranch crawl` resumes it"

#: Called with a line for the operator.
Notify = Callable[[str], None]


def needs_several(place: object) -> UsageError:
    """The refusal of what only a job of several workers has."""
    return UsageError(f"{place}: this needs a job with several workers")


class VerbAnswer(NamedTuple):
    """The facts of a verb."""

    facts: Facts
    is_running: bool  #: from a running crawl


class OpenedJob(NamedTuple):
    """The Frontier of a job that nobody crawls, open."""

    frontier: Frontier
    order: CrawlOrder


# retry


#: Counts of the verb `retry`.
_RETRIED = ("queued", "unknown_hops", "undated", "retired", "paused", "blocked")


def retried_all(answer: Callable[[str, Arguments], VerbAnswer], arguments: Arguments) -> VerbAnswer:
    """Ask for `retry` until all failures were looked at: a call takes some thousand of them, and then others get their turn.

    What was queued stays queued if a later call fails.
    """
    found = answer(RETRY, arguments)
    while (following := next_arguments(arguments, found.facts)) is not None:
        later = answer(RETRY, following)
        found = later._replace(facts=joined_results(found.facts, later.facts))
    return found._replace(facts=without_place(found.facts))


def next_arguments(arguments: Arguments, facts: Facts) -> Arguments | None:
    """The arguments of the next call, or None if all failures were looked at. Pure."""
    if facts["more"] is None:
        return None
    return {**arguments, "after": facts["more"], "before_s": facts["before_s"]}


def joined_results(before: Facts, later: Facts) -> Facts:
    """The results of two calls as one. Pure."""
    return {**later, **{name: before[name] + later[name] for name in _RETRIED}}


def without_place(facts: Facts) -> Facts:
    """The result without `more` and `before_s`, which only a next call needs. Pure."""
    return {name: value for name, value in facts.items() if name not in {"more", "before_s"}}


def has_failed(explanation: Facts) -> bool:
    """The URL of an explanation of `why` was given up, so that `retry` queues it again. Pure."""
    return bool(explanation["state"] == UrlState.ENDED.value and explanation["reason"].startswith("it failed"))


def skipped_facts(facts: Facts) -> Facts:
    """The result of `retry_skipped`, with the counts of `retry`. Pure."""
    return {**dict.fromkeys(_RETRIED, 0), "note": "", **facts}


def skipped_line(facts: Facts) -> str:
    """How many skipped URLs were queued again, as a line. Pure."""
    return f"{counted(facts['queued'], 'skipped URL')} queued again"


def retried_lines(facts: Facts) -> Iterator[str]:
    """Yield lines with the result of `retry`: the failures queued again, and what holds them back. Pure."""
    queued = facts["queued"]
    yield f"{counted(queued, 'failure')} queued again" if queued else "no failure that fits; nothing is queued again"
    if facts["unknown_hops"]:
        yield f"{facts['unknown_hops']:,} with unknown hops: they failed in an older version, and count as one hop from a seed"
    if facts["undated"]:
        yield f"{facts['undated']:,} left out: they failed in an older version, which kept no time"
    if facts["retired"]:
        yield f"{facts['retired']:,} in retired queues, which stay retired (`anabranch frontier set-budget`)"
    if facts["paused"]:
        yield f"{facts['paused']:,} in paused queues (`anabranch frontier resume`)"
    if facts["blocked"]:
        yield f"{facts['blocked']:,} of hosts that are blocked now, for whatever reason (`anabranch frontier unblock`)"
    if facts["note"]:
        yield escaped(facts["note"])
    if facts["start"]:
        yield escaped(facts["start"])
