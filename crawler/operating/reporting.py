"""The verb `report`: a job's reports by name, of a running crawl (through its control socket) and of one that is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.jobs.rounds import current_round
from anabranch.crawler.jobs.seeding import seed_keys, seeds_fared
from anabranch.crawler.jobs.seeds import Seed
from anabranch.crawler.operating.arguments import Arguments, Facts
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.crawler.reporting.account_reading import AccountsView
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.crawler.reporting.reports.catalogue import ALL_NEEDS, report_kind
from anabranch.crawler.reporting.reports.facts import JobFacts
from anabranch.crawler.reporting.reports.queues import LONGEST_SHOWN, QUEUES_SHOWN
from anabranch.crawler.reporting.reports.seeds import SeedFact
from anabranch.crawler.reporting.reports.table import json_facts
from anabranch.crawler.reporting.statistics import WorkerBoard
from anabranch.crawler.reporting.troubles import reasons_logged
from anabranch.crawler.urls.canonicalization import KeyOf
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.cancellation import or_closed, to_the_end
from anabranch.frontier.core import Frontier

#: Rows of an answer, unless it is asked for more; and at most, since an answer is one line.
LIMIT, MOST = 1000, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """Where the facts of a running crawl are."""

    name: str
    state: Path
    accounts: Accounts
    frontier: AsyncFrontier
    board: WorkerBoard
    status: Callable[[], str]  #: running, paused, or how it ended, in words
    seeds: Callable[[], Awaitable[list[SeedFact]]]


async def answer_report(job: RunningJob, given: Arguments) -> Facts:
    """What a running crawl says to `report`. Arguments: name, limit. The crawl goes on meanwhile. Raises: UsageError."""
    kind, limit = report_kind(given.get("name")), report_limit(given)
    with storage_errors(job.state):
        facts = await facts_of_running(job, kind.needs)
        with facts.accounts:
            return await to_the_end(asyncio.to_thread(lambda: json_facts(kind.make(facts), limit)))


async def facts_of_running(job: RunningJob, needs: frozenset[str] = ALL_NEEDS) -> JobFacts:
    """The facts that some reports need; whoever asks closes their accounts. Raises: OSError, StoreUnavailable."""
    looking = job.frontier.core.operations.looking
    await asyncio.to_thread(job.accounts.sync)
    return JobFacts(
        name=job.name,
        status=job.status(),
        now_s=job.frontier.core.now_s(),
        seeds=await job.seeds() if "seeds" in needs else (),
        frontier=await job.frontier.statistics() if "frontier" in needs else None,
        longest=await job.frontier.look(looking.longest(LONGEST_SHOWN)) if "longest" in needs else (),
        queues=await job.frontier.look(looking.queues(limit=QUEUES_SHOWN)) if "queues" in needs else (),
        workers=job.board.facts() if "workers" in needs else (),
        steps=dict(job.board.times) if "workers" in needs else {},
        round=await asyncio.to_thread(current_round, job.state),
        accounts=await or_closed(asyncio.to_thread(AccountsView, job.state)),
    )


def report_of_stopped(
    directory: Path, frontier: Frontier, seeds: Iterable[Seed], find_key: Callable[[], KeyOf], given: Arguments
) -> Facts:
    """The same for a job that is stopped, whose lock the caller holds (blocks).

    `find_key` finds what tells dedup's key of a URL, maybe in the operator's own module; only reports of seeds need it.

    Raises: UsageError, StorageError.
    """
    kind, limit = report_kind(given.get("name")), report_limit(given)
    state = directory / "state"
    now_s = frontier.now_s()
    # What a crash took is counted first; looking is no run of the crawl.
    Accounts(state, directory / "logs" / "crawl.log", lambda: now_s).close()
    with storage_errors(state), AccountsView(state) as view:
        fared = fared_of_stopped(directory, list(seeds), find_key(), [frontier]) if "seeds" in kind.needs else []
        return json_facts(kind.make(_facts_of_stopped(directory, frontier, fared, view)), limit)


def fared_of_stopped(
    directory: Path, seeds: Sequence[Seed], key: KeyOf, frontiers: Sequence[Frontier]
) -> list[SeedFact]:
    """How the seeds of a stopped job fared, as its Frontier or those of its shares know it, and errors.jsonl (blocks)."""
    keys = seed_keys(seeds, key)
    asked = list(keys.values())
    ended = {known: record for frontier in frontiers for known, record in frontier.ended(asked).items()}
    return seeds_fared(seeds, keys, ended, reasons_logged(directory))


def _facts_of_stopped(directory: Path, frontier: Frontier, seeds: Sequence[SeedFact], view: AccountsView) -> JobFacts:
    statistics = frontier.statistics()
    left = statistics.pending + statistics.retired
    return JobFacts(
        name=directory.name,
        status=f"Stopped: {left} URLs are queued" if left else "Finished: nothing is queued",
        now_s=frontier.now_s(),
        seeds=seeds,
        frontier=statistics,
        longest=frontier.operations.longest(LONGEST_SHOWN),
        queues=frontier.operations.queues(limit=QUEUES_SHOWN),
        accounts=view,
        round=current_round(directory / "state"),
    )


def report_limit(given: Arguments) -> int:
    """How many rows of a report are wanted. Raises: UsageError."""
    limit = given.get("limit", LIMIT)
    if isinstance(limit, int) and not isinstance(limit, bool) and 0 <= limit <= MOST:
        return limit
    raise UsageError(f"limit must be a whole number from 0 to {MOST}; it is {limit!r}")
