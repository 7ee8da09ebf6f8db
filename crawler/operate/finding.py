"""Which job a name, a folder or the URL of a database means."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from anabranch.crawler.job.folder import refuse_moved
from anabranch.crawler.job.workerfolders import last_order, refuse_old_division, refuse_worker, shared_file
from anabranch.crawler.operate.answers import Notify
from anabranch.crawler.operate.job import Job
from anabranch.crawler.order.frontier import DATABASES, holds_password
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.run.control import PATIENCE_S
from anabranch.frontier.jobfolder import JOBS, is_embedded, named_job


def find_job(typed: str) -> Path:
    """The folder of a job that is given by its folder or by its name. Raises: UsageError."""
    directory = named_job(typed)
    if directory is not None:
        return directory
    if "://" in typed:
        raise UsageError(f"{typed!r}: the URL of a job's database begins with postgresql://")
    raise UsageError(f"{typed!r}: there is no such job; name its folder, or its name below {JOBS}/")


def operated(typed: str, notify: Notify = lambda _: None, caller: Caller = BY_VARIABLES) -> Job:
    """The job that is named by its folder, below `jobs`, or by the URL of its database. Raises: UsageError.

    `notify` gets lines about what keeps the operator waiting. The `caller` vouches for code of the job's order.
    """
    if typed.startswith(DATABASES):
        refuse_password(typed)
        return Job(None, typed, notify=notify, caller=caller)
    return operated_folder(find_job(typed), notify, caller=caller)


def operated_folder(
    directory: Path,
    notify: Notify = lambda _: None,
    turn: AbstractContextManager[object] | None = None,
    patience_s: float = PATIENCE_S,
    caller: Caller = BY_VARIABLES,
) -> Job:
    """The job of a folder, which may be that of a worker. It is opened in its `turn`; its crawl is silent after `patience_s`.

    Raises: UsageError, JobMoved.
    """
    turn = turn or nullcontext()
    refuse_moved(directory)
    database = None if is_embedded(directory) else _database(directory)
    return Job(
        None if isinstance(database, str) else directory,
        database,
        is_embedded(directory),
        notify=notify,
        turn=turn,
        patience_s=patience_s,
        caller=caller,
    )


def _database(directory: Path) -> str | Path | None:
    """The database of a job of several workers, or its file; None for other jobs. Raises: UsageError."""
    refuse_worker(directory)
    refuse_old_division(directory)
    order = last_order(directory)
    if order is None or not order.frontier.is_shared:
        return None
    if not order.frontier.is_in_database:
        return shared_file(directory)
    refuse_password(order.frontier.store)
    return order.frontier.store


def refuse_password(url: str) -> None:
    """Raises: UsageError if the URL of a database holds a password."""
    if holds_password(url):
        raise UsageError("the URL holds a password, which other users can see; put it into ~/.pgpass or PGPASSWORD")
