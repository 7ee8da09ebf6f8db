"""The operator's verbs for a whole crawl: pause, resume, stop, status, add seeds, reports; and log lines of removed URLs.

The names of a running crawl's verbs begin with `crawl-`, since the Frontier pauses and resumes queues (`verbs`). Each verb
answers when it is done: a seed that is added is in the job's book and queued, both durably. `control` carries verbs and facts,
which are JSON values; the functions below serve a job that is not running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line, round_note
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.job.journal import LineFile
from anabranch.crawler.job.seeding import CandidateMaker, SeedFact, keys_of, seed_keys, seed_outcomes
from anabranch.crawler.job.seeds import Book, Seed, SourceTags
from anabranch.crawler.job.state import Round, current_round, round_of_run
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.report.reports import ALL_NEEDS, LONGEST_SHOWN, QUEUES_SHOWN, JobFacts, report_kind
from anabranch.crawler.report.table import json_facts
from anabranch.crawler.report.troubles import reasons_logged
from anabranch.crawler.run.composition import RunContext, RunParts
from anabranch.crawler.run.run_state import Cause, Phase
from anabranch.crawler.run.verbs import Arguments, Facts, answer_running
from anabranch.crawler.urls.canonicalization import KeyOf
from anabranch.crawler.urls.parsing import canonical
from anabranch.frontier.cancellation import or_closed, to_the_end
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Head, Verdict

PAUSE, RESUME, STOP, STATUS, ADD = "crawl-pause", "crawl-resume", "crawl-stop", "crawl-status", "crawl-add"
REPORT = "report"

#: Rows of a report by default; and at most, since an answer is one line.
LIMIT, MOST = 1000, 100_000


class CrawlVerbs:
    """Answers the control socket of one run."""

    def __init__(self, context: RunContext, parts: RunParts, status: Callable[[], Facts]) -> None:
        self._context = context
        self._parts = parts
        self._status = status

    async def answer(self, verb: str, given: Arguments) -> Facts:
        """The facts. Raises: UsageError for wrong arguments; as `answer_running`."""
        state, explainer = self._context.run_state, self._parts.explainer
        if verb == PAUSE:
            refuse_at_the_end("pause", state.phase)
            state.pause(Cause.OPERATOR)
        elif verb == RESUME:
            refuse_at_the_end("resume", state.phase)
            state.resume_all()
            if state.phase is Phase.PAUSED:
                raise UsageError(f"{state.pause_reason}; make room: the crawl then goes on by itself")
        elif verb == STOP:
            ending, now = stop_arguments(given)
            state.stop(ending, at_once=now)
        elif verb == ADD:
            seeds = seeds_argument(given)
            return added_seeds(seeds, await self._parts.seeding.add(seeds))
        elif verb == REPORT:
            return await self._report(given)
        elif verb != STATUS:
            facts = await answer_running(self._parts.frontier, verb, explainer.with_key(verb, given))
            return await asyncio.to_thread(explainer.with_trouble, explainer.with_scope(verb, facts))
        return self._status()

    async def _report(self, given: Arguments) -> Facts:
        """The crawl goes on meanwhile. Arguments: name, limit."""
        kind, limit = report_kind(given.get("name")), report_limit(given)
        with storage_errors(self._context.job.state):
            facts = await facts_of_running(self._context, self._parts, kind.needs)
            with facts.accounts:
                return await to_the_end(asyncio.to_thread(lambda: json_facts(kind.make(facts), limit)))


def stop_arguments(given: Arguments) -> tuple[WhyEnded, bool]:
    """The ending, and whether it is at once. Argument: now, fetches under way are given up."""
    now = bool(given.get("now"))
    return WhyEnded.OPERATOR_NOW if now else WhyEnded.OPERATOR, now


def refuse_at_the_end(verb: str, phase: Phase) -> None:
    """Raises: UsageError if the crawl is ending."""
    if phase is Phase.DRAINING:
        raise UsageError(f"the crawl is ending, there is nothing to {verb}; run its command again to go on")


def seeds_argument(given: Arguments) -> list[Seed]:
    """The argument `seeds`, a list of {url, source}. Raises: UsageError."""
    listed = given.get("seeds")
    if not isinstance(listed, list) or not listed:
        raise UsageError("seeds must be a list of URLs; it is empty or none")
    seeds = []
    for entry in listed:
        match entry:
            case {"url": str(url), "source": str(source)} if canonical(url) == url:
                seeds.append(Seed(url=url, source=source))
            case _:
                raise UsageError(f"{entry!r} is no seed; give it as url, in its canonical form, and source")
    return seeds


def added_seeds(seeds: Sequence[Seed], verdicts: Sequence[Verdict]) -> Facts:
    """The verdict of each seed: `new`, `seen`, `refused` with a reason, or `later` if the filter has not decided yet."""
    pairs = zip(seeds, verdicts, strict=True)
    return {"seeds": [{"url": seed.url, "verdict": found.kind.value, "reason": found.reason} for seed, found in pairs]}


def add_to_stopped(frontier: Frontier, book: Book, seeds: Sequence[Seed], key: KeyOf) -> Facts:
    """Add seeds to a job that is not running (blocks): to the book first, then to the queue. Raises: as both."""
    keys = keys_of(seeds, key)
    book.add_all(seeds)
    maker = CandidateMaker(key, SourceTags(book))
    ended = frontier.operations.ended(keys)
    candidates = [maker.seed(seed, ended.get(known)) for seed, known in zip(seeds, keys, strict=True)]
    verdicts = frontier.schedule(candidates)  # a Frontier that was opened just now is not busy
    frontier.flush()
    return added_seeds(seeds, verdicts)


async def facts_of_running(context: RunContext, parts: RunParts, needs: frozenset[str] = ALL_NEEDS) -> JobFacts:
    """The facts that some reports need; the caller closes their accounts. Raises: OSError, StoreUnavailable."""
    frontier, board, state = parts.frontier, context.board, context.job.state
    views_in_steps = frontier.core.operations.views
    return JobFacts(
        name=context.name,
        status=context.run_state.in_words,
        now_s=frontier.core.now_s(),
        seeds=await parts.seeding.facts(context.statistics.seed_failures) if "seeds" in needs else (),
        frontier=await frontier.statistics() if "frontier" in needs else None,
        longest=await frontier.look(views_in_steps.longest(LONGEST_SHOWN)) if "longest" in needs else (),
        queues=await frontier.look(views_in_steps.queues(limit=QUEUES_SHOWN)) if "queues" in needs else (),
        workers=board.facts() if "workers" in needs else (),
        steps=dict(board.times) if "workers" in needs else {},
        round=await asyncio.to_thread(current_round, state),
        accounts=await or_closed(asyncio.to_thread(parts.view_totals)),
    )


def report_of_stopped(
    directory: Path, frontier: Frontier, seeds: Iterable[Seed], find_key: Callable[[], KeyOf], given: Arguments
) -> Facts:
    """A report of a job that is not running and that the caller has locked (blocks). Raises: UsageError, StorageError.

    `find_key` finds the function that makes dedup's key of a URL, maybe in a user's module; only reports of seeds need it.
    """
    kind, limit = report_kind(given.get("name")), report_limit(given)
    state, now_s = directory / "state", frontier.now_s()
    # Opening the accounts counts what a crash took. They are closed at `now_s`: a report is no run of the crawl.
    Accounts(state, directory / "logs" / "crawl.log", lambda: now_s).close()
    with storage_errors(state), AccountsView(state) as view:
        fared = stopped_seed_outcomes(directory, list(seeds), find_key(), frontier) if "seeds" in kind.needs else []
        facts = facts_of_stopped(directory.name, frontier, fared, view, current_round(state))
        return json_facts(kind.make(facts), limit)


def facts_of_stopped(
    name: str, frontier: Frontier, seeds: Sequence[SeedFact], accounts: AccountsView, current: Round
) -> JobFacts:
    """The facts for the reports of a job that is not running (blocks)."""
    statistics = frontier.operations.statistics()
    left = statistics.pending + statistics.retired
    return JobFacts(
        name=name,
        status=f"Stopped: {left} URLs are queued" if left else "Finished: nothing is queued",
        now_s=frontier.now_s(),
        seeds=seeds,
        frontier=statistics,
        longest=frontier.operations.longest(LONGEST_SHOWN),
        queues=frontier.operations.queues(limit=QUEUES_SHOWN),
        accounts=accounts,
        round=current,
    )


def stopped_seed_outcomes(directory: Path, seeds: Sequence[Seed], key: KeyOf, frontier: Frontier) -> list[SeedFact]:
    """The outcomes of a stopped job's seeds, from its Frontier and errors.jsonl (blocks)."""
    keys = seed_keys(seeds, key)
    ended = frontier.operations.ended(list(keys.values()))
    return seed_outcomes(seeds, keys, ended, reasons_logged(directory))


def report_limit(given: Arguments) -> int:
    """The wanted number of rows of a report. Raises: UsageError."""
    limit = given.get("limit", LIMIT)
    if isinstance(limit, int) and not isinstance(limit, bool) and 0 <= limit <= MOST:
        return limit
    raise UsageError(f"limit must be a whole number from 0 to {MOST}; it is {limit!r}")


@contextmanager
def removal_log(
    directory: Path, now_s: Callable[[], float], *, extra_info: bool
) -> Iterator[Callable[[Sequence[Head]], None]]:
    """Logs URLs that the operator removes from the queue of a job that is not running and that the caller has locked.

    The yielded function writes their lines to crawl.log and counts them in the job's totals, durably. Cost: 70 µs a line.
    Raises: StorageError, AccountsDamaged, RoundDamaged.
    """
    crawl_log = directory / "logs" / "crawl.log"
    with storage_errors(crawl_log):
        notes = (round_note(round_of_run(directory / "state")),)

    with (
        closing(Accounts(directory / "state", crawl_log, now_s)) as accounts,
        closing(LineFile(crawl_log, "crawl_log")) as log,
    ):

        def write(heads: Sequence[Head]) -> None:
            entries = []
            for head in heads:
                line = CrawlLogEntry(
                    logged_s=now_s(),
                    status=FetchStatus.DELETED,
                    url=head.row.url,
                    worker=0,
                    hops=head.row.hops,
                    via=head.via,
                    annotations=notes,
                    extra={} if extra_info else None,
                )
                entries.append(JournalEntry(crawl_log=crawl_log_line(line)))
            with storage_errors(crawl_log):
                try:
                    log.append(entries)
                    accounts.append(entries)
                except BaseException:
                    log.take_back()
                    accounts.take_back()
                    raise
            log.keep()
            accounts.keep()

        yield write
