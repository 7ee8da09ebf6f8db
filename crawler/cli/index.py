"""`anabranch index JOB`: the CDXJ index of a job's WARC files, made anew."""

from __future__ import annotations

from typing import Annotated

import typer


def index(
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="The job's folder, or its name below jobs/, or a folder of WARC files."),
    ],
) -> None:
    """Index the WARC files of JOB anew: NAME.cdxj beside each NAME.warc.gz, sorted, as pywb reads it."""
    from anabranch.crawler.cli.indexing import run_index  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_index(job))
