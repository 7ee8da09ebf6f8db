"""`anabranch move` and `divide`: a job gets another place, or several shares."""

from __future__ import annotations

from shlex import quote

from rich.console import Console

from anabranch.crawler.cli.terminal import guarded, put
from anabranch.crawler.job.inspection import refuse_unwritable
from anabranch.crawler.operate.finding import find_job
from anabranch.crawler.operate.moving import AlreadyDivided, MovedJob, divide, divided_line, move
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.order.loading import Caller
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.table import escaped


def run_divide(job: str, shares: int, *, run_code: bool = False) -> int:
    """Divide it. A foreseeable error becomes one line and its exit code. With `run_code` its order's user functions run."""

    def run() -> None:
        if job.startswith(DATABASES):
            raise UsageError(f"{job}: a job in a database is divided already; name a job in a folder")
        directory = find_job(job)
        refuse_unwritable(directory)
        try:
            with Console(stderr=True).status("moving URLs"):
                divided = divide(directory, shares, Caller(run_code))
        except AlreadyDivided as error:  # a script may repeat the command
            put(str(error))
        else:
            put(f"{directory}: {divided_line(divided)}")

    return guarded(run)


def run_move(source: str, target: str, shares: int, *, run_code: bool = False) -> int:
    """Move a job. A foreseeable error becomes one line and its exit code. With `run_code` its order's user functions run."""

    def run() -> None:
        with Console(stderr=True).status("moving the job"):
            moved = move(source, target, shares, Caller(run_code))
        put(escaped(moved_line(source, moved)))

    return guarded(run)


def moved_line(source: str, moved: MovedJob) -> str:
    """Say what was done, and how to go on. Pure."""
    counts = "" if moved.counts is None else f", {divided_line(moved.counts)}"
    begins = "--store" if moved.place.startswith(DATABASES) else "--job"
    return f"{source}: moved to {moved.place}{counts}; `anabranch crawl {begins} {quote(moved.place)}` goes on with it"
