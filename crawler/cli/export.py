"""`anabranch export`: what counts of a job, in the formats of other programs."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from anabranch.crawler.cli.terminal import guarded, put, say
from anabranch.crawler.export.cut import LINKS, JobCut, cut_of, write_files
from anabranch.crawler.export.destination import Destination
from anabranch.crawler.export.tables import FORMATS, write_tables, writer_of
from anabranch.crawler.export.wacz import refuse_unfit, write_wacz
from anabranch.crawler.job.folder import refuse_foreign
from anabranch.crawler.job.workerfolders import refuse_worker
from anabranch.crawler.operate.finding import find_job
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.frontier.jobfolder import is_embedded
from anabranch.frontier.times import counted

_WACZ, _FILES = "wacz", "files"
#: The formats that are a folder of files.
_FOLDERS = frozenset({"parquet", "csv", _FILES})


def run_export(job: str, to: str, out: Path | None, warcs: Path | None, *, force: bool) -> int:
    """Export a job; 1 if lines of its logs were damaged. A foreseeable error becomes one line and its exit code."""

    def run() -> int:
        known = (_WACZ, *FORMATS, _FILES)
        if to not in known:
            raise UsageError(f"--to {to}: is unknown; name {', '.join(known)}")
        if warcs is not None and not (warcs.is_dir() and to in {_WACZ, _FILES}):
            raise UsageError(f"--warcs {warcs}: must be a folder of WARC files, for --to wacz or files")
        directory = _exported_job(job)
        name, is_folder = directory.resolve().name, to in _FOLDERS
        path = out or Path(f"{name}-{to}" if is_folder else f"{name}.{to}")
        cut = cut_of(directory, warcs)
        if to == _WACZ:
            refuse_unfit(cut)
        with (
            Destination(path, directory, is_folder=is_folder, force=force) as target,
            storage_errors(path, "--out"),
            TemporaryDirectory(prefix=".anabranch-", dir=target.folder) as scratch,
        ):
            words = _exported(cut, to, target, Path(scratch))
        put(f"{path}: {words}")
        for log, lines in cut.damaged.items():
            say(f"anabranch: {directory / log}: {counted(lines, 'line')} that cannot be read, left out")
        return int(bool(cut.damaged))

    return guarded(run)


def _exported_job(typed: str) -> Path:
    """The folder of the job. Raises: UsageError for what has no files of its own."""
    if typed.startswith(DATABASES):
        raise UsageError("the files of a job in a database are with its workers; name the job folder of each worker")
    directory = find_job(typed)
    refuse_foreign(directory)
    refuse_worker(directory)
    if is_embedded(directory):
        raise UsageError(
            f"{directory}: the job belongs to a program that embeds the Frontier and keeps the pages itself"
        )
    return directory


def _exported(cut: JobCut, to: str, target: Destination, scratch: Path) -> str:
    """Write the export; what it has, in words."""
    if to == _WACZ:
        facts = write_wacz(cut, target.file(), scratch, time.time())
        pages = f"{counted(facts.seeds, 'seed')}, {counted(facts.others, 'other page')}"
        return f"{pages}, {counted(facts.records, 'record')} in {counted(facts.warcs, 'WARC file')}"
    if to == _FILES:
        return ", ".join(write_files(cut, target.file, scratch))
    with writer_of(to, target.file) as writer:
        rows = write_tables(cut, writer, scratch)
    without = "" if cut.has(LINKS) else "; no links: crawl with --links to have them"
    return ", ".join(f"{number:,} {name}" for name, number in rows.items()) + without
