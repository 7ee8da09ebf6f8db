"""Starts one real crawl in a process of its own, reads what it says, and sees to its end whatever comes in between."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from anabranch.crawler.children import child_command
from anabranch.crawler.lab.miniweb import Served
from anabranch.crawler.lab.policies.crawling import ORDER_FILE
from anabranch.crawler.lab.policies.series import Busy, RunResult, Sample, at
from anabranch.crawler.orders.order import ENVIRONMENT, CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import CrawlerError, DiskFull
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.frontier.policies.balance import Balance

#: What the child runs.
_PROGRAM = "from anabranch.crawler.lab.policies.crawling import main; sys.exit(main(sys.argv[1:]))"
#: The child's log, beside its job, and how much of its end is read if it breaks.
_LOG_FILE = "log"
_LOG_TAIL_BYTES = 4096

_READ_BYTES = 1 << 16


class Ending(NamedTuple):
    """How a crawl ended, as its process says it."""

    ended_s: float
    is_drained: bool
    busy: Busy
    queue_lengths: Balance


def run_once(order: CrawlOrder, seconds: float, tell: Callable[[Sample], None], web: Served | None = None) -> RunResult:
    """Crawl by the order, in a new folder, until it is drained or for so many seconds; `tell` hears of each sample.

    It ends at once if the web that it crawls is lost. Process and folder are gone afterwards, also on an interrupt.
    Raises: CrawlerError if the crawl breaks; WebLost; OSError.
    """
    with _new_folder() as folder:
        limited = order.limits.model_copy(update={"time_s": seconds})
        (folder / ORDER_FILE).write_text(dump_order(order.model_copy(update={"limits": limited})), encoding="utf-8")
        with _started(folder) as (process, stream):
            samples, ending = _heard(_lines(stream, web), tell)
            code = process.wait()
        if ending is None or code:
            kind = DiskFull if code == ExitCode.DISK_FULL else CrawlerError
            raise kind(f"the crawl with {order.frontier.policy} broke: {_why(folder / _LOG_FILE, code)}")
    return result_of(order.frontier.policy, samples, ending, seconds)


def result_of(policy: str, samples: Sequence[Sample], ending: Ending, seconds: float) -> RunResult:
    """The run up to its end, or to its last second: what was still under way then may have ended later. Pure."""
    duration_s = min(ending.ended_s, seconds)
    whole = RunResult(
        policy=policy,
        samples=tuple(samples),
        duration_s=ending.ended_s,
        is_drained=ending.is_drained,
        queue_lengths=ending.queue_lengths,
        crawler=ending.busy,
    )
    inside = (sample for sample in samples if sample.at_s < duration_s)
    return replace(whole, samples=(*inside, at(whole, duration_s)), duration_s=duration_s)


@contextmanager
def _new_folder() -> Iterator[Path]:
    """A folder that is gone afterwards. An interrupt while it is being removed, which may take seconds, waits for that."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-policies-"))
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except KeyboardInterrupt:
            shutil.rmtree(folder, ignore_errors=True)
            raise


@contextmanager
def _started(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The process and what it says. It is in a session of its own: Ctrl-C is for the command, which then ends it."""
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as stream:
        with os.fdopen(write, "wb") as theirs, (folder / _LOG_FILE).open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - this program
                child_command(_PROGRAM, str(folder), str(write)),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env={name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)},
                start_new_session=True,
            )
        assert process.stdin is not None
        try:
            yield process, stream
        finally:
            if process.poll() is None:
                # Its helpers, in sessions of their own, end by themselves when it has ended.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdin.close()


def _lines(stream: IO[bytes], web: Served | None) -> Iterator[bytes]:
    """What the process says, line by line, until it says no more. Raises: WebLost."""
    waited: list[IO[bytes] | Served] = [stream] if web is None else [stream, web]
    begun = b""
    while True:
        ready, _, _ = select.select(waited, [], [])
        if web is not None and web in ready:
            raise web.lost()
        data = os.read(stream.fileno(), _READ_BYTES)
        if not data:
            return
        *lines, begun = (begun + data).split(b"\n")
        yield from lines


def _heard(lines: Iterable[bytes], tell: Callable[[Sample], None]) -> tuple[list[Sample], Ending | None]:
    """All samples that the process tells; and how it ended, if it said so."""
    samples: list[Sample] = []
    ending: Ending | None = None
    for line in lines:
        value: Any = json.loads(line)
        if isinstance(value, list):
            samples.append(Sample(*value))
            tell(samples[-1])
        else:
            ending = Ending(
                ended_s=value["ended_s"],
                is_drained=value["is_drained"],
                busy=Busy(*value["busy"]),
                queue_lengths=Balance(*value["queue_lengths"]),
            )
    return samples, ending


def _why(log: Path, code: int) -> str:
    """The last line of its log."""
    lines = log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last or f"exit code {code}"
