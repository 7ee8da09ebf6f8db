"""What a run says on the terminal at its beginning and at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.orders.quantities import format_bytes
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.reporting.accounting import Totals
from anabranch.crawler.reporting.reports.seeds import SeedFact
from anabranch.crawler.reporting.statistics import CrawlStatistics
from anabranch.frontier.operating.statistics import FrontierCounts, FrontierStatistics
from anabranch.frontier.operating.timewords import duration_words

#: So many content types have a line of their own; the rest share one.
MIME_LINES = 10

#: Servers send what they like: longer types are cut.
_SHOWN_CHARS = 60

#: Fewer URLs than this are expected to be lost: the report says nothing is.
NEGLIGIBLE = 1e-6


class RunFacts(NamedTuple):
    """What the summary is made of."""

    job: str
    ended: str  #: why the run ended, in words
    elapsed_s: float
    seeds: list[SeedFact]
    run: CrawlStatistics
    frontier: FrontierStatistics  #: of the round
    round_number: int = 1
    all_rounds: Totals | None = None  #: from the second round on


def opening_line(job: JobFolder, counts: FrontierCounts, page_limit: int = 0) -> str:
    """The first line of a run: new, resumed, finished, or at its limit of pages (0: none) already."""
    ended = counts.done + counts.failed + counts.disregarded
    if not job.existed:
        return f"new job {job.directory}: {counts.pending} URLs queued"
    if job.new_round is not None:
        return f"round {job.new_round} of job {job.directory}: {counts.pending} URLs queued"
    if not counts.pending and counts.retired:
        return (
            f"job {job.directory}: {counts.retired} URLs are left, all in retired queues; raise total_budget to go on"
        )
    if not counts.pending:
        return f"job {job.directory} is finished: {counts.done} pages; use --again for another round"
    if 0 < page_limit <= counts.done:
        return (
            f"job {job.directory}: its limit of {page_limit} pages is reached, {counts.pending} URLs are queued; "
            "a higher --limit goes on (0: no limit)"
        )
    return f"resuming job {job.directory}: {ended} URLs done, {counts.pending} queued"


def crawl_report(facts: RunFacts) -> str:
    """The crawl summary: this run, its round from the second on, and the job as a whole."""
    run, frontier = facts.run, facts.frontier
    answered = sum(seed.is_answered for seed in facts.seeds)
    rate = run.pages / facts.elapsed_s if facts.elapsed_s else 0.0
    rows = [
        ("job", facts.job),
        ("ended", facts.ended),
        ("duration", duration_words(facts.elapsed_s)),
        ("seeds", f"{answered} answered, {len(facts.seeds) - answered} not"),
        ("this run", f"{run.pages} pages, {run.failed} failed, {run.excluded} excluded, {run.robots} robots.txt"),
        ("fetched", f"{format_bytes(run.fetched_bytes)}, {rate:.1f} pages/s"),
        *_so_far(facts),
        ("still queued", f"{frontier.pending + frontier.in_flight}"),
        *_held_back(frontier),
        (
            "lost to dedup",
            f"{lost:.1g} URLs expected" if (lost := _expected_lost(frontier)) >= NEGLIGIBLE else "nothing",
        ),
    ]
    lines = [f"{name:<14} {value}" for name, value in rows]
    lines += [f"{number:>14} {describe(status)}" for status, number in run.by_status.most_common()]
    lines += [f"{number:>14} {mime}" for mime, number in _mime_types(run.by_mime)]
    return "\n".join(lines) + "\n"


def _so_far(facts: RunFacts) -> Iterator[tuple[str, str]]:
    """A Frontier counts its round; the accounts, which the other reports show, count all of them."""
    frontier, total = facts.frontier, facts.all_rounds
    of_round = f"{frontier.done} pages, {frontier.failed} failed, {frontier.disregarded} excluded"
    if total is None:
        yield "job so far", of_round
        return
    yield f"round {facts.round_number}", of_round
    yield "all rounds", f"{total.pages} pages, {total.failures} failed, {total.disregards} excluded"


def _held_back(frontier: FrontierStatistics) -> Iterator[tuple[str, str]]:
    """What a crawl with budgets and leases that expire has beside: nothing is said where there is nothing."""
    if frontier.retired:
        yield "retired", f"{frontier.retired} URLs, in queues over their budget or put aside"
    if frontier.leases_lost:
        yield "leases lost", f"{frontier.leases_lost}, their URLs were fetched again"
    if "shared_twice" in frontier.seen:
        left, twice = (int(frontier.seen[name]) for name in ("shared_left", "shared_twice"))
        yield "shared dedup", f"{left} links left to other crawls, {twice} URLs taken by another crawl, too"


def _mime_types(by_mime: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent types, fit for a terminal, then the number of pages that all others have."""
    ranked = by_mime.most_common()
    shown = [(mime.encode("unicode_escape").decode()[:_SHOWN_CHARS], number) for mime, number in ranked[:MIME_LINES]]
    others = sum(number for _, number in ranked[MIME_LINES:])
    return shown + ([("other types", others)] if others else [])


def _expected_lost(frontier: FrontierStatistics) -> float:
    return frontier.seen.get("expected_lost", 0.0)
