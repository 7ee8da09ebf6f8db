"""Counts of one run of the crawler; snapshots of them feed progress and reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from crawler.visit import Visit
from frontier.models import OutcomeKind


@dataclass(slots=True)
class CrawlStatistics:
    """What this run has done so far (earlier runs of the job are in the Frontier's totals)."""

    started_s: float  #: epoch seconds
    pages: int = 0  #: URLs that were answered
    failed: int = 0  #: URLs given up
    excluded: int = 0  #: URLs that were not fetched on purpose
    retries: int = 0  #: tries that will be repeated
    robots: int = 0  #: robots.txt fetched
    fetched_bytes: int = 0  #: bodies, as they came
    active: int = 0  #: workers that hold a URL
    by_status: Counter[int] = field(default_factory=Counter)
    by_mime: Counter[str] = field(default_factory=Counter)
    seed_failures: dict[str, str] = field(default_factory=dict)  #: seed -> why its last try failed

    def count(self, visit: Visit, kind: OutcomeKind) -> None:
        """Count one ended visit."""
        if visit.response is not None:
            self.fetched_bytes += visit.response.body.size
        if visit.failure is None:
            self.seed_failures.pop(visit.lease.url, None)
        elif not visit.lease.hops:
            self.seed_failures[visit.lease.url] = str(visit.failure)
        match kind:
            case OutcomeKind.RETRY:
                self.retries += 1
                return
            case OutcomeKind.DEFERRED | OutcomeKind.RETIRE:
                return
            case OutcomeKind.DONE:
                self.pages += 1
                self.by_mime[visit.mime or "no-type"] += 1
            case OutcomeKind.FAILED:
                self.failed += 1
            case OutcomeKind.DISREGARDED:
                self.excluded += 1
        self.by_status[visit.status] += 1
