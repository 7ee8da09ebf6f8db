"""The crawl summary: the job in all, in Heritrix's words and order."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.crawler.jobs.rounds import Round
from anabranch.crawler.reporting.accounting import Totals
from anabranch.crawler.reporting.reports.facts import JobFacts
from anabranch.crawler.reporting.reports.table import Cell, Report
from anabranch.frontier.operating.statistics import FrontierStatistics
from anabranch.frontier.operating.timewords import duration_words


def summary(facts: JobFacts) -> Report:
    """Name, status, time, seeds, hosts, what became of the URLs, bytes by novelty, rates."""
    return Report((), list(_rows(facts)))


def _rows(facts: JobFacts) -> Iterator[tuple[str, Cell]]:
    total, duration_s = facts.accounts.total(), facts.accounts.duration_s()
    crawled = sum(seed.is_answered for seed in facts.seeds)
    yield "Crawl Name", facts.name
    yield "Crawl Status", facts.status
    if facts.round.number > 1:
        yield "Round", facts.round.number
        yield "URIs Processed in This Round", processed_in(facts.round, total)
    yield "Duration Time", duration_words(duration_s)
    yield "Total Seeds Crawled", crawled
    yield "Total Seeds not Crawled", len(facts.seeds) - crawled
    yield "Total Hosts Crawled", facts.accounts.hosts_visited()
    yield "URIs Processed", total.processed
    yield "URIs Crawled successfully", total.urls
    yield "URIs Failed to Crawl", total.failures
    yield "URIs Disregarded", total.disregards
    yield "Novel URIs", total.novel_urls
    yield "Duplicate-by-hash URIs", total.dup_urls
    yield "Not-modified URIs", total.not_modified_urls
    yield from _shared(facts.frontier)
    yield "Total Crawled Bytes", total.bytes
    yield "Novel Bytes", total.novel_bytes
    yield "Duplicate-by-hash Bytes", total.dup_bytes
    yield "Not-modified Bytes", total.not_modified_bytes
    yield "URIs/sec", total.urls / duration_s if duration_s > 0 else 0.0
    yield "KB/sec", total.bytes / 1024 / duration_s if duration_s > 0 else 0.0


def processed_in(round_: Round, total: Totals) -> int:
    """URLs that the round has processed, of what all rounds have; fewer are known where the accounts were removed."""
    return max(total.processed - round_.urls_before, 0)


def _shared(frontier: FrontierStatistics | None) -> Iterator[tuple[str, Cell]]:
    """What was left to crawls that share a filter with this one, and what they took all the same; nothing without one."""
    if frontier is not None and "shared_twice" in frontier.seen:
        yield "Links left to other crawls", int(frontier.seen["shared_left"])
        yield "URIs taken by another crawl, too", int(frontier.seen["shared_twice"])
