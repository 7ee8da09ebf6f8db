"""The reports of a job by name, in Heritrix's columns where it has them.

A report is a pure function from `JobFacts` to a table, and an entry of `REPORTS`. `run` and `processes` gather the facts.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from anabranch.crawler.job.state import Round
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.report.filterreport import filter_table
from anabranch.crawler.report.statistics import StepTime, WorkerFact
from anabranch.crawler.report.table import Cell, ReportTable, text_lines
from anabranch.dedup.files.durable import errors_named
from anabranch.frontier import FrontierStatistics, QueueView
from anabranch.frontier.times import duration_words

if TYPE_CHECKING:  # commands on a job need none of it
    from anabranch.crawler.accounts.database import AccountsView
    from anabranch.crawler.job.seeding import SeedFact

#: The file of the seeds report.
SEEDS_REPORT = "seeds-report.txt"
#: Rows of a report by default; and at most, since an answer is one line.
ROWS_BY_DEFAULT, MOST_ROWS = 1000, 100_000
#: Seeds that the command shows at its end.
SEEDS_SHOWN = 20
#: Queues of the frontier reports at most, as in Heritrix.
QUEUES_SHOWN = 2000
LONGEST_SHOWN = 20

_HOST_HEADS = (
    "#urls", "#bytes", "host", "#robots", "#remaining", "#novel-urls", "#novel-bytes", "#dup-by-hash-urls",
    "#dup-by-hash-bytes", "#not-modified-urls", "#not-modified-bytes", "#bad-http",
)  # fmt: skip

#: Heritrix's columns, then ours. Values that the Frontier does not keep are `-`.
_QUEUE_HEADS = (
    "queue", "precedence", "currentSize", "totalEnqueues", "sessionBalance", "lastCost(averageCost)", "lastDequeueTime",
    "wakeTime", "totalSpend/totalBudget", "errorCount", "lastPeekUri", "lastQueuedUri", "state", "waiting", "inFlight",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One moment of a job, running or not. Facts that no wanted report needs are empty."""

    name: str
    status: str  #: running, paused, or why it ended, in words
    now_s: float  #: epoch seconds
    accounts: AccountsView
    round: Round = field(default=Round())  #: of the job's rounds
    seeds: Sequence[SeedFact] = ()
    frontier: FrontierStatistics | None = None
    failures: Sequence[tuple[int, int]] = ()  #: the most frequent statuses of failures, and how many have each
    longest: Sequence[QueueView] = ()  #: the longest queues
    queues: Sequence[QueueView] = ()  #: queues that hold URLs, in no order
    workers: Sequence[WorkerFact] = ()  #: of this run
    steps: Mapping[str, StepTime] = field(default_factory=dict)  #: time by processor, of this run


# The crawl and its seeds


def _crawl_summary(facts: JobFacts) -> Iterator[tuple[str, Cell]]:
    """Name, status, time, seeds, hosts, how the URLs ended, bytes by novelty, rates."""
    total, duration_s = facts.accounts.total(), facts.accounts.duration_s()
    crawled = sum(seed.is_answered for seed in facts.seeds)
    yield "Crawl Name", facts.name
    yield "Crawl Status", facts.status
    if facts.round.number > 1:
        yield "Round", facts.round.number
        # At least 0: the accounts know fewer URLs than the round if they were removed in between.
        yield "URIs Processed in This Round", max(total.processed - facts.round.urls_before, 0)
    yield "Duration Time", duration_words(duration_s)
    yield "Total Seeds Crawled", crawled
    yield "Total Seeds not Crawled", len(facts.seeds) - crawled
    yield "Total Hosts Crawled", facts.accounts.hosts_visited()
    yield "URIs Processed", total.processed
    yield "URIs Crawled successfully", total.urls
    # The accounts count lines of crawl.log, and a failure that is queued again gets another one.
    yield "URIs Failed to Crawl", total.failures
    if facts.frontier is not None and facts.frontier.retried:
        yield "  of these queued again", facts.frontier.retried
    for status, number in facts.failures:
        yield f"  {describe(status)}", number
    yield "URIs Disregarded", total.disregards
    yield "Novel URIs", total.novel_urls
    yield "Duplicate-by-hash URIs", total.dup_urls
    yield "Not-modified URIs", total.not_modified_urls
    if facts.frontier is not None and "shared_twice" in facts.frontier.seen:  # it shares its filter with other crawls
        yield "Links left to other crawls", int(facts.frontier.seen["shared_left"])
        yield "URIs taken by another crawl, too", int(facts.frontier.seen["shared_twice"])
    yield "Total Crawled Bytes", total.bytes
    yield "Novel Bytes", total.novel_bytes
    yield "Duplicate-by-hash Bytes", total.dup_bytes
    yield "Not-modified Bytes", total.not_modified_bytes
    yield "URIs/sec", total.urls / duration_s if duration_s > 0 else 0.0
    yield "KB/sec", total.bytes / 1024 / duration_s if duration_s > 0 else 0.0


def seeds_table(seeds: Iterable[SeedFact]) -> ReportTable:
    """How each seed fared: `[code] [status] [seed] [redirect or reason]`, unanswered seeds first."""
    ranked = sorted(seeds, key=lambda seed: (seed.is_answered, seed.url))
    rows = [
        (
            seed.status,
            "CRAWLED" if seed.is_answered else "NOTCRAWLED",
            seed.url,
            seed.redirect or seed.reason or ("" if seed.is_answered else describe(seed.status)),
        )
        for seed in ranked
    ]
    return ReportTable(("code", "status", "seed", "redirect or reason"), rows, right=(6, -10))


def seeds_shown(seeds: Sequence[SeedFact], file: Path) -> str:
    """The seeds report for a terminal: at most `SEEDS_SHOWN` seeds, and the file that has the others."""
    lines = list(text_lines(seeds_table(seeds)))
    more = len(seeds) - SEEDS_SHOWN
    return "".join(lines) if more <= 0 else f"{''.join(lines[: SEEDS_SHOWN + 1])}… and {more} more seeds in {file}\n"


# Counts: hosts, media types, response codes, sources, processors


def _hosts(facts: JobFacts) -> ReportTable:
    """A row a host, most URLs first. The remaining URLs are known of hosts that have a queue of their own, `-` of others."""
    remaining = {
        str(view.key): view.urls
        for view in facts.queues
        if view.lanes == 1 and view.gates and str(view.gates[0].key) == str(view.key)
    }
    bad_http = facts.accounts.bad_http()
    is_all_done = facts.frontier is not None and not facts.frontier.pending + facts.frontier.retired
    rows = (
        (
            totals.urls, totals.bytes, host, totals.robots, 0 if is_all_done else remaining.get(host),
            totals.novel_urls, totals.novel_bytes, totals.dup_urls, totals.dup_bytes,
            totals.not_modified_urls, totals.not_modified_bytes, bad_http.get(host, 0),
        )
        for host, totals in facts.accounts.hosts()
    )  # fmt: skip
    return ReportTable(_HOST_HEADS, rows)


def _processors(facts: JobFacts) -> Iterator[tuple[Cell, ...]]:
    """A row for each counter of each processor of the job, then the times of this run."""
    yield from facts.accounts.processors()
    for name, time in facts.steps.items():
        yield name, "visits in this run", time.visits
        yield name, "mean ms in this run", time.mean_s * 1000
        yield name, "longest ms in this run", time.longest_s * 1000


# The Frontier and the workers


def _frontier_summary(facts: JobFacts) -> Iterator[tuple[str, Cell]]:
    """URLs by how they ended, queues by state, why no URL is leased, the longest queues."""
    now = facts.frontier
    if now is None:
        return
    yield "URIs processed", now.done + now.failed + now.disregarded
    yield "  succeeded", now.done
    yield "  failed", now.failed
    yield "  disregarded", now.disregarded
    yield "URIs queued", now.pending
    yield "  waiting for a retry", now.waiting
    yield "URIs in process", now.in_flight
    yield "URIs in retired queues", now.retired
    yield "Queues", sum(now.queues.values())
    for state, number in now.queues.items():
        yield f"  {state}", number
    yield "  parked (ready, all gates closed)", now.parked
    yield "Gates in memory", now.gates
    yield "  open", now.gates_open
    yield "Leases lost", now.leases_lost
    yield "Nothing is leased because", now.why_idle or None
    for number, view in enumerate(facts.longest[:LONGEST_SHOWN], start=1):
        yield f"LONGEST {number}", f"{view.key} {view.urls} {view.state.value}"


def _frontier_nonempty(facts: JobFacts) -> ReportTable:
    """A row a queue that holds URLs, longest first."""
    ranked = sorted(facts.queues, key=lambda view: (-view.urls, view.key))
    return ReportTable(_QUEUE_HEADS, [_queue_row(view) for view in ranked if view.urls])


def _queue_row(view: QueueView) -> tuple[Cell, ...]:
    opens_s = min((gate.opens_s for gate in view.gates), default=math.inf)
    if view.due_s is not None:
        opens_s = max(view.due_s, opens_s if view.gates else view.due_s)
    wake = None
    if 0 < opens_s < math.inf:
        try:
            wake = datetime.fromtimestamp(opens_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        except (OverflowError, ValueError, OSError):
            wake = "never"
    spend = f"{view.spent}/{view.budget}"
    return (
        view.key, view.precedence, view.urls, None, None, None, None, wake, spend, None, None, None, view.state.value,
        view.waiting, view.out,
    )  # fmt: skip


def _workers(facts: JobFacts) -> ReportTable:
    """A row a worker that holds a URL: its number, the processor, seconds there, seconds since the lease, tries, URL."""
    rows = [
        (f"#{fact.number:03}", fact.step, fact.in_step_s, fact.since_lease_s, fact.attempts + 1, fact.url)
        for fact in sorted(facts.workers, key=lambda fact: -fact.since_lease_s)
    ]
    return ReportTable(("worker", "processor", "step-s", "lease-s", "try", "uri"), rows)


# All reports


class ReportKind(NamedTuple):
    """One report: its file below `reports/`, the function that makes it, and the facts it needs besides the accounts."""

    file: str
    make: Callable[[JobFacts], ReportTable]
    needs: frozenset[str] = frozenset()  #: seeds, frontier, failures, longest, queues, workers


REPORTS: Mapping[str, ReportKind] = {
    "crawl-summary": ReportKind(
        "crawl-report.txt",
        lambda facts: ReportTable((), list(_crawl_summary(facts))),
        frozenset({"seeds", "frontier", "failures"}),
    ),
    "seeds": ReportKind(SEEDS_REPORT, lambda facts: seeds_table(facts.seeds), frozenset({"seeds"})),
    "hosts": ReportKind("hosts-report.txt", _hosts, frozenset({"frontier", "queues"})),
    # Most URLs first, as in the next one.
    "mimetypes": ReportKind(
        "mimetype-report.txt",
        lambda facts: ReportTable(
            ("#urls", "#bytes", "mime-types"), ((urls, size, mime) for mime, urls, size in facts.accounts.mime_types())
        ),
    ),
    # Heritrix's code for URLs without an HTTP status.
    "response-codes": ReportKind(
        "responsecode-report.txt",
        lambda facts: ReportTable(("#urls", "rescode"), ((urls, code) for code, urls in facts.accounts.statuses())),
    ),
    "processors": ReportKind(
        "processors-report.txt",
        lambda facts: ReportTable(("processor", "counter", "number"), _processors(facts)),
        frozenset({"workers"}),
    ),
    "frontier-summary": ReportKind(
        "frontier-summary-report.txt",
        lambda facts: ReportTable((), list(_frontier_summary(facts))),
        frozenset({"frontier", "longest"}),
    ),
    "frontier-nonempty": ReportKind("frontier-nonempty-report.txt", _frontier_nonempty, frozenset({"queues"})),
    # The job's uniq-filter: who answered, its stages, what it loses.
    "filter": ReportKind(
        "filter-report.txt",
        lambda facts: filter_table(facts.frontier.seen if facts.frontier is not None else {}),
        frozenset({"frontier"}),
    ),
    "workers": ReportKind("threads-report.txt", _workers, frozenset({"workers"})),
    # How many URLs of each host a seed led to; `-` if the order has no source tags.
    "source": ReportKind(
        "source-report.txt", lambda facts: ReportTable(("source", "host", "#urls"), facts.accounts.sources())
    ),
}

#: What all reports need together.
ALL_NEEDS = frozenset().union(*(kind.needs for kind in REPORTS.values()))


def report_kind(name: object) -> ReportKind:
    """The report of that name. Raises: UsageError, which names all reports."""
    kind = REPORTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UsageError(f"there is no report {name!r}; choose one of {', '.join(REPORTS)}")
    return kind


def check_folder(folder: Path) -> None:
    """Check before the crawl that all reports can be written; nothing is changed. Raises: OSError."""
    for kind in REPORTS.values():
        with suppress(FileNotFoundError):
            os.close(os.open(folder / kind.file, os.O_WRONLY))
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error  # instead of the temporary file's name


def write_all(folder: Path, facts: JobFacts) -> None:
    """Write every report into its file. Memory: one row at a time of the large ones. Raises: OSError."""
    for kind in REPORTS.values():
        path = folder / kind.file
        with errors_named(path), path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(text_lines(kind.make(facts)))
