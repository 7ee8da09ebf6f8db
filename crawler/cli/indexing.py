"""What `anabranch index` does: the WARC files of a job, or of any folder, are indexed and told, a line each."""

from __future__ import annotations

from pathlib import Path

from anabranch.crawler.archiving.growing import OPEN, WARC
from anabranch.crawler.archiving.reindexing import open_files, reindex
from anabranch.crawler.cli.frontier import JOBS, find_job, put
from anabranch.crawler.cli.guarding import guarded
from anabranch.crawler.cli.saying import say
from anabranch.crawler.outcomes.errors import UsageError, storage_errors


def run_index(job: str) -> int:
    """Index the files and say so; 1 if one is damaged. Every foreseeable error is one line and its exit code."""
    return guarded(lambda: _run(job))


def _run(job: str) -> int:
    is_damaged = False
    folder = _folder(job)
    with storage_errors(folder, "JOB"):
        indexed = 0
        for done in reindex(folder):
            indexed += 1
            put(f"{done.path.name}: {done.answers} answers")
            if done.damaged_from is not None:
                is_damaged = True
                say(f"anabranch: {done.path}: no whole record from byte {done.damaged_from} on; restore it from a copy")
        for path in open_files(folder):
            put(f"{path.name}: still open; the crawl indexes it when it is finished")
    if not indexed:
        put(f"{folder}: no finished WARC file")
    return int(is_damaged)


def _folder(typed: str) -> Path:
    """Where the files are: in the folder that is named, in its `warc`, or in that of the job of this name.

    Raises: UsageError.
    """
    named = Path(typed)
    with storage_errors(named, "JOB"):
        if (named / "warc").is_dir():
            return named / "warc"
        if any(named.glob(f"*{WARC}")) or any(named.glob(f"*{WARC}{OPEN}")):
            return named
        try:
            job = find_job(typed)
        except UsageError as error:
            if named.is_dir():
                return named
            raise UsageError(
                f"{typed!r}: is not a folder, and there is no such job; "
                f"name a job's folder, its name below {JOBS}/, or a folder of WARC files"
            ) from error
        return job / "warc" if (job / "warc").is_dir() else job
