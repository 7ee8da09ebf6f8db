"""The text that a run prints at its begin, and the crawl summary at its end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.crawler.accounts.totals import Totals
from anabranch.crawler.extract.links import FAULTS
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.outcomes.errors import ExitCode
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.report.filterreport import known_line
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.frontier import FrontierCounts, FrontierStatistics
from anabranch.frontier.times import counted, duration_words

#: How many content types have a line of their own; the others share one.
MIME_LINES = 10
#: Servers send what they like: longer types are cut.
_SHOWN_CHARS = 60


class RunFacts(NamedTuple):
    """The facts of the crawl summary."""

    job: str
    ended: str  #: why the run ended, in words
    elapsed_s: float
    seeds: list[SeedFact]
    run: CrawlStatistics
    frontier: FrontierStatistics  #: of the round
    round_number: int = 1
    all_rounds: Totals | None = None  #: from the second round on
    code: ExitCode = ExitCode.DONE  #: of the command
    reasons: Sequence[tuple[int, int]] = ()  #: if failures dominate: the most frequent statuses, and how many have each


def opening_line(job: JobFolder, counts: FrontierCounts, page_limit: int = 0) -> str:
    """The first line of a run: whether the job is new, resumed, finished, or at its limit of pages (0: no limit)."""
    ended = counts.done + counts.failed + counts.disregarded
    if not job.existed:
        return f"new job {job.directory}: {counted(counts.pending, 'URL')} queued"
    if job.new_round is not None:
        return f"round {job.new_round} of job {job.directory}: {counted(counts.pending, 'URL')} queued"
    if not counts.pending and counts.retired:
        return f"job {job.directory}: {counted(counts.retired, 'URL')} left, all in retired queues; raise total_budget to go on"
    if not counts.pending:
        return f"job {job.directory} is finished: {counted(counts.done, 'page')}; use --again for another round"
    if 0 < page_limit <= counts.done:
        return (
            f"job {job.directory}: its limit of {counted(page_limit, 'page')} is reached, "
            f"{counted(counts.pending, 'URL')} queued; "
            "a higher --limit goes on (0: no limit)"
        )
    return f"resuming job {job.directory}: {counted(ended, 'URL')} done, {counts.pending:,} queued"


def crawl_report(facts: RunFacts) -> str:
    """The crawl summary: this run, its round from the second on, and the job as a whole."""
    run = facts.run
    lines = [f"{name:<14} {value}" for name, value in _summary_rows(facts) if value]
    lines += [f"{number:>14} {describe(status)}" for status, number in run.by_status.most_common()]
    ranked = run.by_mime.most_common()
    # Types are escaped for a terminal.
    shown = [(mime.encode("unicode_escape").decode()[:_SHOWN_CHARS], number) for mime, number in ranked[:MIME_LINES]]
    lines += [f"{number:>14} {mime}" for mime, number in shown]
    if others := sum(number for _, number in ranked[MIME_LINES:]):
        lines.append(f"{others:>14} other types")
    return "\n".join(lines) + "\n"


def _summary_rows(facts: RunFacts) -> Iterator[tuple[str, str]]:
    run, frontier, total = facts.run, facts.frontier, facts.all_rounds
    answered = sum(seed.is_answered for seed in facts.seeds)
    rate = run.pages / facts.elapsed_s if facts.elapsed_s else 0.0
    yield "job", facts.job
    yield "ended", facts.ended
    yield "reasons", "; ".join(f"{number:,} × {describe(status)}" for status, number in facts.reasons)
    yield "duration", duration_words(facts.elapsed_s)
    yield "seeds", f"{answered:,} answered, {len(facts.seeds) - answered:,} not".removesuffix(", 0 not")
    yield "this run", f"{_ended(run.pages, run.failed, run.excluded)}, {run.robots:,} robots.txt"
    yield "fetched", f"{format_bytes(run.fetched_bytes)}, {rate:.1f} pages/s"
    yield from _sitemap_row(run)
    if run.cdx_unanswered:
        yield "CDX servers", f"gave no answer for {counted(run.cdx_unanswered, 'page')}, which may be archived twice"
    # The Frontier counts its round; the accounts, as in the other reports, count all rounds.
    of_round = _ended(frontier.done, frontier.failed, frontier.disregarded)
    yield "job so far" if total is None else f"round {facts.round_number}", of_round
    if total is not None:
        yield "all rounds", _ended(total.pages, total.failures, total.disregards)
    yield "still queued", f"{frontier.pending + frontier.in_flight:,}"
    if frontier.retired:
        yield "retired", f"{counted(frontier.retired, 'URL')}, in queues over their budget or put aside"
    if frontier.leases_lost:
        yield "leases lost", f"{frontier.leases_lost:,}, their URLs were fetched again"
    if "shared_twice" in frontier.seen:
        left, twice = (int(frontier.seen[name]) for name in ("shared_left", "shared_twice"))
        links, urls = counted(left, "link"), counted(twice, "URL")
        yield "shared dedup", f"{links} left to other crawls, {urls} taken by another crawl, too"
    yield "dedup", known_line(frontier.seen)


def _ended(pages: int, failed: int, excluded: int) -> str:
    return f"{counted(pages, 'page')}, {failed:,} failed, {excluded:,} excluded"


def _sitemap_row(run: CrawlStatistics) -> Iterator[tuple[str, str]]:
    """The row about faults in sitemaps and feeds; none without faults."""
    counts = run.sitemap_faults
    if counts:
        faults = ", ".join(f"{words} ({counts[kind]:,})" for kind, words in FAULTS.items() if counts[kind])
        yield "sitemaps", f"{counts['sitemaps']:,} had faults and were read as far as possible: {faults}"
