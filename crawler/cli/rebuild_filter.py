"""`anabranch frontier rebuild-filter`: rebuilds a job's filter from the rows of its store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from anabranch.crawler.cli.terminal import guarded, put, say
from anabranch.crawler.job.folder import JobFolder, take_job_lock
from anabranch.crawler.job.frontier import frontier_order, open_job
from anabranch.crawler.job.inspection import refuse_unwritable
from anabranch.crawler.job.orderfile import order_file, write_order
from anabranch.crawler.job.workerfolders import refuse_old_division, worker_folders
from anabranch.crawler.operate.finding import find_job
from anabranch.crawler.order.loading import Caller
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.sources import job_layer, read_layers
from anabranch.crawler.outcomes.errors import BadArgument, UsageError
from anabranch.crawler.report.filterreport import filter_line
from anabranch.frontier import FILTER_PARAMETERS, clear_filter
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.jobfolder import SEEN_FOLDER, STATE, has_store, is_embedded


def run_rebuild_filter(job: str, settings: Sequence[str], *, run_code: bool = False) -> int:
    """Rebuild it with these settings of `[dedup]`, which the job's order then keeps. A foreseeable error is one line.

    With `run_code` the user functions of its order run.
    """
    return guarded(lambda: _rebuild(job, settings, run_code=run_code))


def _rebuild(named: str, settings: Sequence[str], *, run_code: bool) -> None:
    keys = {f"dedup.{name}" for name in (*FILTER_PARAMETERS, "exact")}
    for setting in settings:
        if setting.partition("=")[0].strip() not in keys:
            raise UsageError(
                f"-s {setting!r}: only the filter's own keys can be changed here: {', '.join(sorted(keys))}"
            )
    directory = find_job(named)
    refuse_unwritable(directory)
    refuse_old_division(directory)
    with _held(directory):
        state, kept = directory / STATE, order_file(directory)
        if kept is None or not (has_store(state) or (state / SEEN_FOLDER).exists()):
            raise UsageError(f"{directory}: the job has no filter yet; a crawl makes it")
        order = _order(kept, settings, run_code=run_code)
        if order.frontier.is_shared:
            for folder in (directory, *worker_folders(directory)):
                clear_filter(folder / STATE)
            write_order(directory, dump_order(order))
            put("the filters of this folder's workers are empty now; the next crawl refills them from the job's URLs")
            return
        say(f"anabranch: {directory}: rebuilding its filter from its URLs …")
        clear_filter(state)
        try:
            with Console(stderr=True).status("marking URLs"), closing(open_job(state, order)) as frontier:
                seen = frontier.operations.statistics().seen
        except BaseException:
            clear_filter(state)  # any order can make the next one
            raise
        if settings and not is_embedded(directory):  # else its program writes it
            write_order(directory, dump_order(order))
    put(filter_line(seen))


def _order(kept: Path, settings: Sequence[str], *, run_code: bool) -> CrawlOrder:
    """The job's order with these settings.

    Raises: OrderError, PolicyError; CodeWithheld; BadArgument if a setting makes the filter wrong.
    """
    order = Caller(run_code, read_layers(None, {}, settings)).order_of(job_layer(kept))
    try:
        frontier_order(order)
    except PolicyError as error:
        raise (BadArgument if settings else PolicyError)(str(error)) from error
    return order


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Hold the job's lock inside. Raises: as `JobFolder.open`; JobInUse."""
    if not is_embedded(directory):
        with JobFolder.open(directory) as folder:
            try:
                yield
            finally:  # it queues nothing, so a job that was finished still is
                folder.left_as_found(had_work=False, is_done=True)
        return
    lock = take_job_lock(directory)
    try:
        yield
    finally:
        os.close(lock)
