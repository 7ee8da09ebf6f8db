"""`anabranch report`: a report of a job, running or stopped, as text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.crawler.cli.frontier import find_job, opened
from anabranch.crawler.cli.guarding import guarded
from anabranch.crawler.jobs.copying import to_be_read
from anabranch.crawler.jobs.job import refuse_embedded
from anabranch.crawler.jobs.seeds import SEED_BOOK, SeedBook
from anabranch.crawler.operating.control import ask
from anabranch.crawler.operating.reporting import report_of_stopped
from anabranch.crawler.processes.folders import shares_of
from anabranch.crawler.processes.stopped import opened_job
from anabranch.crawler.reporting.reports.catalogue import report_kind
from anabranch.crawler.reporting.reports.table import report_of, text_lines
from anabranch.crawler.urls.canonicalization import Canonicalizer


def run_report(job: str, name: str, *, limit: int, as_json: bool) -> int:
    """Print it; every foreseeable error is one line on standard error and its exit code."""

    def tell() -> None:
        report_kind(name)  # before the job is opened
        _print(_facts(find_job(job), {"name": name, "limit": limit}), as_json=as_json)

    return guarded(tell)


def _facts(directory: Path, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of the running crawl, or of the job as it was left."""
    refuse_embedded(directory)
    answer = ask(directory / "state", "report", arguments)
    if answer is not None:
        return answer
    if shares_of(directory):
        with to_be_read(directory) as place, opened_job(place) as job:
            return job.report(arguments)
    with (
        to_be_read(directory) as place,
        opened(place) as (frontier, order),
        SeedBook(place / "state" / SEED_BOOK) as seeds,
    ):
        rules = order.urls.canonicalization
        return report_of_stopped(place, frontier, seeds, lambda: Canonicalizer(rules).key, arguments)


def _print(facts: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        lines = [json.dumps(facts, indent=2) + "\n"]
    else:
        lines = list(text_lines(report_of(dict(facts))))
        if facts.get("more"):
            lines.append("… and more; --limit shows them, reports/ holds all at the end\n")
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in lines:
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
