"""The Frontiers of a job's shares, opened by whoever holds the job when no process crawls: for reports, and for an operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.orderfile import order_file
from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.processes.folders import refuse_lost, shares_of
from anabranch.crawler.report.reports import LONGEST_SHOWN, QUEUES_SHOWN, JobFacts
from anabranch.crawler.run.summing import summed_frontier
from anabranch.frontier.frontier import Frontier


@contextmanager
def opened_shares(directory: Path) -> Iterator[list[Frontier]]:
    """The Frontiers of a job's shares, closed in order at the end. The caller holds the job's lock.

    Raises: UsageError if a share has not begun; StoreLost; JobInUse; as a crawl does.
    """
    refuse_lost(directory)
    with ExitStack() as opened:
        yield [opened.enter_context(_opened_share(share)) for share in shares_of(directory)]


@contextmanager
def _opened_share(share: Path) -> Iterator[Frontier]:
    kept = order_file(share)
    if kept is None:
        raise UsageError(f"{share}: the share has no queue yet; `anabranch crawl` begins it")
    with JobFolder.open(share) as job, open_job(job.state, load_order(kept, {})) as frontier:
        yield frontier


def facts_of_shares(directory: Path, status: str, seeds: Sequence[SeedFact], accounts: AccountsView) -> JobFacts:
    """What the job's reports are made of at the end of a run (blocks). Raises: as `opened_shares`."""
    with opened_shares(directory) as frontiers:
        return replace(facts_of_shares_open(directory, frontiers, seeds, accounts), status=status)


def facts_of_shares_open(
    directory: Path, frontiers: Sequence[Frontier], seeds: Sequence[SeedFact], accounts: AccountsView
) -> JobFacts:
    """The same of shares that are open (blocks)."""
    statistics = summed_frontier([frontier.operations.statistics() for frontier in frontiers])
    left = statistics.pending + statistics.retired
    longest = [view for frontier in frontiers for view in frontier.operations.longest(LONGEST_SHOWN)]
    return JobFacts(
        name=directory.name,
        status=f"Stopped: {left} URLs are queued" if left else "Finished: nothing is queued",
        now_s=frontiers[0].now_s(),
        seeds=seeds,
        frontier=statistics,
        longest=sorted(longest, key=lambda view: (-view.urls, view.key))[:LONGEST_SHOWN],
        queues=[view for frontier in frontiers for view in frontier.operations.queues(limit=QUEUES_SHOWN)],
        accounts=accounts,
    )
