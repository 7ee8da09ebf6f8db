"""The verb `anabranch report` and its options; what runs it is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

#: As `crawler.reporting.reports.catalogue.REPORTS` has them; help must be fast, so it is written here.
NAMES = (
    "crawl-summary, seeds, hosts, mimetypes, response-codes, processors, frontier-summary, frontier-nonempty, workers"
)


def report(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's folder, or its name below jobs/.")],
    name: Annotated[str, typer.Argument(metavar="[NAME]", help=f"One of {NAMES}, source.")] = "crawl-summary",
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Show so many rows.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a report of a job that runs or has ended."""
    from anabranch.crawler.cli.report import run_report  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_report(job, name, limit=limit, as_json=as_json))
