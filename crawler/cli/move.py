"""`anabranch divide`: divides a job that was begun for one process among shares."""

from __future__ import annotations

from rich.console import Console

from anabranch.crawler.cli.command import guarded, put
from anabranch.crawler.job.inspection import refuse_unwritable
from anabranch.crawler.operate.finding import find_job
from anabranch.crawler.operate.moving import AlreadyDivided, divide, divided_line
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.order.loading import Caller
from anabranch.crawler.outcomes.errors import UsageError


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
