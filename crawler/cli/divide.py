"""`anabranch divide`: divides a job that was begun for one process among shares."""

from __future__ import annotations

from rich.console import Console

from anabranch.crawler.cli.command import find_job, guarded, put
from anabranch.crawler.job.inspection import refuse_unwritable
from anabranch.crawler.processes.dividing import divide, divided_line


def run_divide(job: str, shares: int) -> int:
    """Divide it. A foreseeable error becomes one line and its exit code."""

    def run() -> None:
        directory = find_job(job)
        refuse_unwritable(directory)
        with Console(stderr=True).status("moving URLs"):
            divided = divide(directory, shares)
        put(f"{directory}: {divided_line(divided)}")

    return guarded(run)
