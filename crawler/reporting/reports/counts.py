"""Reports that are tables of counts: hosts, media types, response codes, sources, processors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.crawler.reporting.accounting import Totals
from anabranch.crawler.reporting.reports.facts import JobFacts
from anabranch.crawler.reporting.reports.table import Cell, Report
from anabranch.frontier.operating.explain import QueueView

_HOST_HEADS = (
    "#urls", "#bytes", "host", "#robots", "#remaining", "#novel-urls", "#novel-bytes", "#dup-by-hash-urls",
    "#dup-by-hash-bytes", "#not-modified-urls", "#not-modified-bytes",
)  # fmt: skip


def hosts(facts: JobFacts) -> Report:
    """A row a host, most URLs first. What remains is known of hosts that have a queue to themselves, `-` of others."""
    return Report(_HOST_HEADS, _host_rows(facts, dict(_remaining(facts.queues))))


def _remaining(queues: Iterable[QueueView]) -> Iterator[tuple[str, int]]:
    """(host, URLs) of the queues that are named after the one host that they hold."""
    for view in queues:
        if view.lanes == 1 and view.gates and str(view.gates[0].key) == str(view.key):
            yield str(view.key), view.urls


def _host_rows(facts: JobFacts, remaining: dict[str, int]) -> Iterator[tuple[Cell, ...]]:
    is_all_done = facts.frontier is not None and not facts.frontier.pending + facts.frontier.retired
    for host, totals in facts.accounts.hosts():
        left = 0 if is_all_done else remaining.get(host)
        yield totals.urls, totals.bytes, host, totals.robots, left, *_by_novelty(totals)


def _by_novelty(totals: Totals) -> tuple[int, ...]:
    return (
        totals.novel_urls, totals.novel_bytes, totals.dup_urls, totals.dup_bytes, totals.not_modified_urls,
        totals.not_modified_bytes,
    )  # fmt: skip


def mime_types(facts: JobFacts) -> Report:
    """`[#urls] [#bytes] [mime-types]`, most URLs first."""
    return Report(
        ("#urls", "#bytes", "mime-types"), ((urls, size, mime) for mime, urls, size in facts.accounts.mime_types())
    )


def response_codes(facts: JobFacts) -> Report:
    """`[#urls] [rescode]`, most URLs first; what has no HTTP status has Heritrix's code."""
    return Report(("#urls", "rescode"), ((urls, status) for status, urls in facts.accounts.statuses()))


def sources(facts: JobFacts) -> Report:
    """`[source] [host] [#urls]`: which seed led to how much of which host; `-` if the order has no source tags."""
    return Report(("source", "host", "#urls"), facts.accounts.sources())


def processors(facts: JobFacts) -> Report:
    """A row for each counter of each processor of the job, then the times of this run."""
    return Report(("processor", "counter", "number"), _processor_rows(facts))


def _processor_rows(facts: JobFacts) -> Iterator[tuple[Cell, ...]]:
    yield from facts.accounts.processors()
    for name, time in facts.steps.items():
        yield name, "visits in this run", time.visits
        yield name, "mean ms in this run", time.mean_s * 1000
        yield name, "longest ms in this run", time.longest_s * 1000
