"""`anabranch index`: rebuilds the index of a job's WARC files."""

from __future__ import annotations

from pathlib import Path

from anabranch.crawler.archive.files import OPEN, WARC, open_files, reindex
from anabranch.crawler.cli.terminal import guarded, put, say
from anabranch.crawler.operate.finding import find_job
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.frontier.jobfolder import JOBS


def run_index(job: str) -> int:
    """Index the WARC files; 1 if one is damaged. A foreseeable error becomes one line and its exit code."""

    def run() -> int:
        is_damaged = False
        folder = _folder(job)
        with storage_errors(folder, "JOB"):
            indexed = 0
            for done in reindex(folder):
                indexed += 1
                put(f"{done.path.name}: {done.answers} answers")
                if done.damaged_from is not None:
                    is_damaged = True
                    where = f"no whole record from byte {done.damaged_from} on"
                    say(f"anabranch: {done.path}: {where}; restore it from a copy")
            for path in open_files(folder):
                put(f"{path.name}: still open; the crawl indexes it when it is finished")
        if not indexed:
            put(f"{folder}: no finished WARC file")
        return int(is_damaged)

    return guarded(run)


def _folder(typed: str) -> Path:
    """The folder of the WARC files: the named one, its `warc`, or that of the job. Raises: UsageError."""
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
