"""The parts that commands on jobs share: errors to exit codes, output, the job by its name, its Frontier opened."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.crawler.cli.console import say
from anabranch.crawler.cli.parameters import JOBS
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.orderfile import order_file
from anabranch.crawler.job.workerfolders import last_order, refuse_old_division, refuse_worker, shared_file
from anabranch.crawler.order.frontier import DATABASES, MEMORY, holds_password
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code
from anabranch.crawler.outcomes.errors import ExitCode, UsageError, deciding, storage_error
from anabranch.crawler.report.logs import configure_logs
from anabranch.crawler.report.table import escaped
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.inspect.dump import DumpDamaged
from anabranch.frontier.jobfolder import has_store, is_job

#: Characters of an error that are shown.
_MOST_CHARS = 1000


def guarded(run: Callable[[], int | None], *, verbosity: int = 0, interrupted: ExitCode = ExitCode.INTERRUPTED) -> int:
    """Run a command and return its exit code. A foreseeable error becomes one line on standard error and its exit code."""
    configure_logs(verbosity)
    try:
        with deciding():
            return run() or ExitCode.DONE
    except BrokenPipeError:
        # What is flushed at the end of the process must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.READER_GONE
    except (UnknownQueue, DumpDamaged, *FORESEEABLE) as error:
        code = ExitCode.USAGE if isinstance(error, DumpDamaged) else failure_code(error)
        message = escaped(str(error))
        if len(message) > _MOST_CHARS:  # it quotes the command line, or a name from the web
            message = f"{message[: _MOST_CHARS * 3 // 4]} … {message[-_MOST_CHARS // 4 :]}"
        say(f"anabranch: {message}")
        return code
    except KeyboardInterrupt:
        return interrupted


def put(text: str) -> None:
    """Print lines on standard output; characters that it cannot encode are escaped. Raises: BrokenPipeError, StorageError."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201 - the command's own output
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, Path("standard output")) from error


def find_job(typed: str) -> Path:
    """The folder of a job that is given by its folder or by its name. Raises: UsageError."""
    for directory in (Path(typed), JOBS / typed):
        if typed and is_job(directory):
            return directory
    if "://" in typed:
        raise UsageError(f"{typed!r}: the URL of a job's database begins with postgresql://")
    raise UsageError(f"{typed!r}: there is no such job; name its folder, or its name below {JOBS}/")


def shared_address(typed: str) -> str | Path | None:
    """The database of a job of several workers that is named by its URL or by a worker's folder, or the file of a job that
    several processes crawl; None for other jobs. Raises: UsageError.
    """
    if typed.startswith(DATABASES):
        if holds_password(typed):
            raise UsageError("the URL holds a password, which other users can see; put it into ~/.pgpass or PGPASSWORD")
        return typed
    for directory in (Path(typed), JOBS / typed):
        if typed and is_job(directory):
            refuse_worker(directory)
            refuse_old_division(directory)
            order = last_order(directory)
            if order is None or not order.frontier.is_shared:
                return None
            return order.frontier.store if order.frontier.is_in_database else shared_file(directory)
    return None


@contextmanager
def opened(directory: Path) -> Iterator[tuple[Frontier, CrawlOrder]]:
    """The Frontier and the order of a stopped job. Raises: UsageError if nothing was ever queued; as a crawl does."""
    from anabranch.crawler.job.frontier import has_begun, open_job, refuse_lost_queue  # noqa: PLC0415 - commands on a running crawl do not need it

    with JobFolder.open(directory) as job:
        kept = order_file(directory)
        if kept is None:
            raise UsageError(f"{directory}: the job has not begun; `anabranch crawl` begins it")
        order = load_order(kept, {})
        refuse_lost_queue(job.state)
        if order.frontier.store in {"", MEMORY} and not has_begun(job.state) and not has_store(job.state):
            raise UsageError(f"{directory}: the job has no queue yet; `anabranch crawl` begins it")
        with open_job(job.state, order) as frontier:
            yield frontier, order
            if frontier.is_done:
                job.mark_finished()
