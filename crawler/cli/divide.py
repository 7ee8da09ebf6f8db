"""`anabranch divide`: divides a job that was begun for one process among shares."""

from __future__ import annotations

from rich.console import Console

from anabranch.crawler.cli.command import find_job, guarded, put
from anabranch.crawler.job.inspection import refuse_unwritable
from anabranch.crawler.job.workerfolders import is_old_division, shared_file
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.processes.dividing import divide, divided_line


def run_divide(job: str, shares: int) -> int:
    """Divide it. A foreseeable error becomes one line and its exit code."""

    def run() -> None:
        if job.startswith(DATABASES):
            raise UsageError(f"{job}: a job in a database is divided from its begin; this is for jobs in folders")
        directory = find_job(job)
        if shared_file(directory) is not None and not is_old_division(directory):
            put(f"{directory}: the job has several shares already; their number is fixed for a job")
            return
        refuse_unwritable(directory)
        with Console(stderr=True).status("moving URLs"):
            divided = divide(directory, shares)
        put(f"{directory}: {divided_line(divided)}")

    return guarded(run)
