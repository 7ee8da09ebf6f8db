"""What each worker does at the moment: Heritrix's threads report."""

from __future__ import annotations

from anabranch.crawler.reporting.reports.facts import JobFacts
from anabranch.crawler.reporting.reports.table import Report


def workers(facts: JobFacts) -> Report:
    """A row a worker that holds a URL: its number, the processor, seconds there, seconds since the lease, tries, URL."""
    rows = [
        (f"#{fact.number:03}", fact.step, fact.in_step_s, fact.since_lease_s, fact.attempts + 1, fact.url)
        for fact in sorted(facts.workers, key=lambda fact: -fact.since_lease_s)
    ]
    return Report(("worker", "processor", "step-s", "lease-s", "try", "uri"), rows)
