"""All reports by name, and how they are written. A new report is an entry here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.reporting.reports.counts import hosts, mime_types, processors, response_codes, sources
from anabranch.crawler.reporting.reports.facts import JobFacts
from anabranch.crawler.reporting.reports.queues import frontier_nonempty, frontier_summary
from anabranch.crawler.reporting.reports.seeds import SEEDS_REPORT, seeds_table
from anabranch.crawler.reporting.reports.summary import summary
from anabranch.crawler.reporting.reports.table import Report, text_lines
from anabranch.crawler.reporting.reports.workers import workers


class ReportKind(NamedTuple):
    """One report: its file below `reports/`, what makes it, and what of the job it needs beside the accounts."""

    file: str
    make: Callable[[JobFacts], Report]
    needs: frozenset[str] = frozenset()  #: seeds, frontier, longest, queues, workers


def _needs(*parts: str) -> frozenset[str]:
    return frozenset(parts)


REPORTS: Mapping[str, ReportKind] = MappingProxyType({
    "crawl-summary": ReportKind("crawl-report.txt", summary, _needs("seeds", "frontier")),
    "seeds": ReportKind(SEEDS_REPORT, lambda facts: seeds_table(facts.seeds), _needs("seeds")),
    "hosts": ReportKind("hosts-report.txt", hosts, _needs("frontier", "queues")),
    "mimetypes": ReportKind("mimetype-report.txt", mime_types),
    "response-codes": ReportKind("responsecode-report.txt", response_codes),
    "processors": ReportKind("processors-report.txt", processors, _needs("workers")),
    "frontier-summary": ReportKind("frontier-summary-report.txt", frontier_summary, _needs("frontier", "longest")),
    "frontier-nonempty": ReportKind("frontier-nonempty-report.txt", frontier_nonempty, _needs("queues")),
    "workers": ReportKind("threads-report.txt", workers, _needs("workers")),
    "source": ReportKind("source-report.txt", sources),
})  # fmt: skip

#: What all reports need together.
ALL_NEEDS = frozenset().union(*(kind.needs for kind in REPORTS.values()))


def report_kind(name: object) -> ReportKind:
    """The report of that name. Raises: UsageError, which names those there are."""
    kind = REPORTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UsageError(f"there is no report {name!r}; choose one of {', '.join(REPORTS)}")
    return kind


def write_all(folder: Path, facts: JobFacts) -> None:
    """Write every report into its file. Memory: a row at a time of the large ones. Raises: OSError."""
    for kind in REPORTS.values():
        with (folder / kind.file).open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(text_lines(kind.make(facts)))


def check_folder(folder: Path) -> None:
    """Make sure, before the crawl, that every report can be written after it; nothing is changed. Raises: OSError."""
    for kind in REPORTS.values():
        with suppress(FileNotFoundError):
            os.close(os.open(folder / kind.file, os.O_WRONLY))
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error  # not the name that was tried
