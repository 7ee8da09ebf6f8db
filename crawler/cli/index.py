"""`anabranch index JOB`: the CDXJ index of a job's WARC files, made anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def index(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job folder, or a folder of WARC files.")],
) -> None:
    """Index the WARC files of JOB anew: NAME.cdxj beside each NAME.warc.gz, sorted, as pywb reads it."""
    from crawler.outcomes.errors import CrawlerError  # noqa: PLC0415 - help must be fast

    try:
        code = run_index(job)
    except CrawlerError as error:
        print(f"anabranch: {error}", file=sys.stderr)  # noqa: T201 - the command's own output
        raise typer.Exit(error.exit_code) from error
    raise typer.Exit(code)


def run_index(job: Path) -> int:
    """Index the files and say so, a line each; 1 if one is damaged. Raises: StorageError, UsageError."""
    from crawler.archiving.reindexing import open_files, reindex  # noqa: PLC0415 - as above
    from crawler.outcomes.errors import UsageError, storage_errors  # noqa: PLC0415 - as above

    folder = job / "warc" if (job / "warc").is_dir() else job
    if not folder.is_dir():
        raise UsageError(f"{job}: is not a folder")
    is_damaged = False
    with storage_errors(folder, "JOB"):
        indexed = 0
        for done in reindex(folder):
            indexed += 1
            print(f"{done.path.name}: {done.answers} answers")  # noqa: T201 - as above
            if done.damaged_from is not None:
                is_damaged = True
                print(  # noqa: T201 - as above
                    f"anabranch: {done.path}: no whole record from byte {done.damaged_from} on; restore it from a copy",
                    file=sys.stderr,
                )
        for path in open_files(folder):
            print(f"{path.name}: still open; the crawl indexes it when it is finished")  # noqa: T201 - as above
    if not indexed:
        print(f"{folder}: no finished WARC file")  # noqa: T201 - as above
    return int(is_damaged)
