"""`anabranch index` and `archive`: the index of a job's WARC files, their conversion, a dictionary for the next ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from anabranch.crawler.archive.compression import ZSTD_FILE, trained_dictionary
from anabranch.crawler.archive.files import (
    Indexed,
    convert,
    finished_files,
    open_files,
    reindex,
    sampled_records,
)
from anabranch.crawler.cli.terminal import guarded, put, say
from anabranch.crawler.operate.finding import find_job
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.frontier.jobfolder import JOBS
from anabranch.frontier.times import counted


def run_index(job: str) -> int:
    """Index the WARC files; 1 if one is damaged. A foreseeable error becomes one line and its exit code."""

    def run() -> int:
        folder = _folder(job)
        with storage_errors(folder, "JOB"):
            indexed, damaged = _shown(reindex(folder))
            for path in open_files(folder):
                put(f"{path.name}: still open; the crawl indexes it when it is finished")
        if not indexed:
            put(f"{folder}: no finished WARC file")
        return int(damaged > 0)

    return guarded(run)


def run_convert(job: str, target: Path) -> int:
    """Convert zstd files to gzip; 1 if one is damaged. A foreseeable error becomes one line and its exit code."""

    def run() -> int:
        folder = _folder(job)
        if target.exists() and target.samefile(folder):
            raise UsageError(f"{target}: has the files that are to be converted; name another folder")
        with storage_errors(target, "FOLDER"):
            target.mkdir(parents=True, exist_ok=True)
        with storage_errors(folder, "JOB"):
            converted, damaged = _shown(convert(folder, target))
            for path in open_files(folder):
                put(f"{path.name}: still open; convert it when the crawl has finished it")
            left = sum(path.name.endswith(ZSTD_FILE) for path in finished_files(folder)) - converted
        if left:
            put(f"{target}: {counted(left, 'file')} {'was' if left == 1 else 'were'} there already")
        elif not converted:
            put(f"{folder}: no finished {ZSTD_FILE} file")
        return int(damaged > 0)

    return guarded(run)


def _shown(done: Iterable[Indexed]) -> tuple[int, int]:
    """Print a line for each file; returns how many there are, and how many of them are damaged."""
    files = damaged = 0
    for one in done:
        files += 1
        put(f"{one.path.name}: {one.answers} answers")
        if one.damaged_from is not None:
            damaged += 1
            say(f"anabranch: {one.source}: no whole record from byte {one.damaged_from} on; restore it from a copy")
    return files, damaged


def run_dictionary(job: str, file: Path) -> int:
    """Train a dictionary. A foreseeable error becomes one line and its exit code."""

    def run() -> None:
        folder = _folder(job)
        if file.exists():
            raise UsageError(f"{file}: exists; name a new file")
        with storage_errors(folder, "JOB"):
            samples = sampled_records(folder)
        content = trained_dictionary(samples)
        with storage_errors(file, "FILE"):
            file.write_bytes(content)
        put(f"{file}: {format_bytes(len(content))}, from {len(samples):,} records")

    return guarded(run)


def _folder(typed: str) -> Path:
    """The folder of the WARC files: the named one, its `warc`, or that of the job. Raises: UsageError."""
    named = Path(typed)
    with storage_errors(named, "JOB"):
        if (named / "warc").is_dir():
            return named / "warc"
        if finished_files(named) or open_files(named):
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
