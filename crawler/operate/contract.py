"""The operations that an operator has on a job of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.report.metrics import Numbers
from anabranch.crawler.run.verbs import Arguments, Facts
from anabranch.frontier.frontier import Frontier

#: What the operator has to do so that a job in a folder is crawled.
HOW_TO_START = "no crawl of this job is running; `anabranch crawl` resumes it"

#: Called with a line for the operator.
Notify = Callable[[str], None]


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

    @property
    def store(self) -> Path | str | None:
        """The file or the URL of its queue; None while there is none, or it is in memory."""

    def holder(self) -> tuple[bool, int | None]:
        """Whether a process may have the job open, and its id if that is known. Cost: a look at a lock."""

    def order(self) -> CrawlOrder:
        """The job's current order. Raises: UsageError if it has none yet; OrderError."""

    def held(self, verb: str, *, reads: bool) -> AbstractContextManager[OpenedJob]:
        """The job for `verb` alone. Raises: what a running crawl says to that."""
