"""`retry` of a job of any kind: call after call until all failures were looked at, and its result in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.crawler.operate.contract import OperatedJob, VerbAnswer
from anabranch.crawler.report.table import escaped
from anabranch.crawler.run.verbs import RETRY, Arguments, Facts
from anabranch.frontier.records import UrlState
from anabranch.frontier.times import counted

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


def retried_facts(job: OperatedJob, arguments: Arguments) -> Facts:
    """Queue failures of a job again. Returns whether it runs, the counts, and what is to be started.

    With the argument `trap`, which excludes all others, URLs that were skipped because a parameter changes nothing are queued.
    """
    if arguments.get("trap"):
        facts, is_running = job.retry_skipped()
        facts = skipped_facts(facts)
    else:
        facts, is_running = job.retry(arguments)
    start = job.start_hint() if facts["queued"] and not is_running else ""
    return {"running": is_running, "start": start, **facts}


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
