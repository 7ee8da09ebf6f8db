"""The operations that an operator has on a job of any kind; `retry` in as many calls as it takes, and its result in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.metrics import Numbers
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


class OperatedJob(Protocol):
    """A job. All methods block. Raises: CrawlerError, FrontierError, each a line for the operator."""

    @property
    def logs(self) -> Path | None:
        """The folder of a job that has one crawl.log; None for others."""

    def status(self) -> Facts:
        """Return the facts of the job's status, in the form of facts.schema.json."""

    def running_status(self) -> Facts | None:
        """Return the facts of `status` of a running crawl; None if nobody crawls the job."""

    def steer(self, verb: str, arguments: Arguments) -> Facts:
        """`pause`, `resume` or `stop` the crawl; its status then. Raises: UsageError if there is none."""

    def wait(self) -> Facts | None:
        """Wait until nobody crawls the job; its status then, if it is known at no cost."""

    def add(self, seeds: Sequence[Seed], *, force: bool = False) -> tuple[bool, list[Facts]]:
        """Add seeds: whether a crawl runs, and the url, verdict and reason of each.

        `force`: also those that have ended, or that the filter takes for seen.
        """

    def retry(self, arguments: Arguments) -> VerbAnswer:
        """Queue failures again, as the arguments of `run.verbs.retry` say; the sums, and a `note` of reached limits."""

    def retry_skipped(self) -> VerbAnswer:
        """Undo the rules by which URLs were skipped, and queue these again: `queued`, how many."""

    def start_hint(self) -> str:
        """Return a line that tells which workers to start if nobody crawls the job."""

    def change_order(self, settings: Sequence[str]) -> Facts:
        """Change the job's order by settings `section.key=value`: the `changes`, each with key, was, now and a line, and a
        `note` of what follows at once.

        Raises: UsageError for a key that cannot be changed, BadArgument for a wrong value.
        """

    def answer(self, verb: str, arguments: Arguments) -> VerbAnswer:
        """A verb of `run.verbs`, of the running crawl or of the job as it was left."""

    def report(self, arguments: Mapping[str, object]) -> Facts:
        """A report. Arguments: name, limit."""

    def metrics(self) -> Facts | None:
        """The numbers of `report.metrics`; None if nobody crawls the job."""

    def active(self, limit: int) -> Facts | None:
        """The verb `active` of the running crawl, and which workers are `silent`; None without a crawl that can be asked."""

    def queues(self, limit: int) -> Facts | None:
        """The verb `ls` of a running crawl whose queue has no `store`; None without a crawl that can be asked."""

    def fetches(self, limit: int) -> Sequence[Facts]:
        """The rows of the report `workers`; those of workers that answer soon."""

    def workers(self) -> Sequence[Facts] | None:
        """Those that have not left, and those that were drained, as `workers --json` shows them.

        None for a job that one process crawls.
        """

    def worker_metrics(self) -> Mapping[tuple[str, int], Numbers] | None:
        """The metrics of each worker at work, by its machine and process; None for a job that one process crawls."""

    def drain(self, worker: str, patience_s: float = math.inf) -> None:
        """Have a worker end in order, and wait until it has.

        Raises: UsageError for an unknown worker, and for a job that one process crawls; WorkersSilent.
        """

    def requeue(self, worker: str) -> int:
        """Queue a worker's lost pages again; how many. Raises: UsageError, also for a job that one process crawls."""

    def listed(self) -> Facts | None:
        """Return the status for a list of jobs; None if nobody crawls the job: then its files tell the same for less.

        Raises: CrawlerError with a line for the list.
        """

    @property
    def store(self) -> Path | str | None:
        """The file or the URL of its queue; None if the queue is in memory or not made yet."""

    def holder(self) -> tuple[bool, int | None]:
        """Whether a process may have the job open, and its id if that is known. Cost: a look at a lock."""

    def order(self) -> CrawlOrder:
        """The job's current order. Raises: UsageError if it has none yet; OrderError."""

    def held(self, verb: str, *, reads: bool) -> AbstractContextManager[OpenedJob]:
        """The job for `verb` alone. Raises: what a running crawl says to that."""


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
