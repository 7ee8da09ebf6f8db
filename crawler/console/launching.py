"""Starts crawls as separate processes, which outlive the console."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock
from time import monotonic

from anabranch.crawler.job.seeds import NONE_LEFT
from anabranch.crawler.operate import Job
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, storage_errors
from anabranch.crawler.report.logtail import last_lines

#: How long a crawl is given to open its job, before it counts as started.
_OPENING_S = 30.0
_LOOK_S = 0.05
#: What the crawls print, below a job's folder.
OUTPUT_FILE = "logs/console.out"
_MOST_OUTPUT_BYTES = 1 << 16
#: Exit codes of crawls that were stopped, or whose seeds did not answer.
_IN_ORDER = frozenset({ExitCode.DRAINED, ExitCode.FORCED, ExitCode.NO_SEED_ANSWERED, ExitCode.MOSTLY_FAILED})
#: How a message of ours begins.
_OURS = "anabranch: "


class StartFailed(CrawlerError):
    """A crawl ended with an error. `exit_code` is the crawl's own, if it is one of ours."""

    def __init__(self, words: str, returned: int) -> None:
        super().__init__(words or f"the crawl ended with exit code {returned}; see {OUTPUT_FILE}")
        with suppress(ValueError):
            self.exit_code = ExitCode(returned)


class Launcher:
    """Starts crawls, and takes note of their ends, so that none stays a zombie."""

    def __init__(self, *, run_code: bool = False) -> None:
        """`run_code`: the crawls run user functions that only the jobs' own orders name."""
        self._trust = ["--run-code"] if run_code else []
        self._running: list[subprocess.Popen[bytes]] = []
        self._opening: dict[Path, subprocess.Popen[bytes] | None] = {}  # by the job's folder; None: its process begins
        self._lock = Lock()

    def is_opening(self, directory: Path) -> bool:
        """Whether a process was started that crawls the job, and has neither answered nor ended yet."""
        with self._lock:
            if directory not in self._opening:
                return False
            process = self._opening[directory]
            if process is None or process.poll() is None:
                return True
            del self._opening[directory]
        return False

    def has_opened(self, directory: Path) -> None:
        """Take note that the crawl of a job answers."""
        with self._lock:
            self._opening.pop(directory, None)

    def start(self, directory: Path, options: Sequence[str], job: Job, *inherited: int) -> int:
        """Have a process crawl the job of a folder; its id, when the crawl answers or has ended in order (blocks).

        It inherits these descriptors. One that takes longer to open its job goes on to open it. Raises: StartFailed with what
        it said.
        """
        with self._lock:
            self._opening[directory] = None
        try:
            return self._start(directory, options, job, *inherited)
        finally:
            with self._lock:
                process = self._opening.get(directory)
                if process is None or process.poll() is not None:
                    self._opening.pop(directory, None)

    def _start(self, directory: Path, options: Sequence[str], job: Job, *inherited: int) -> int:
        output = directory / OUTPUT_FILE
        with storage_errors(output):
            output.parent.mkdir(exist_ok=True)
            with output.open("ab") as file:
                begin = file.tell()
                process = subprocess.Popen(  # noqa: S603 - our own program
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "anabranch",
                        "crawl",
                        "--job",
                        str(directory),
                        "--quiet",
                        *self._trust,
                        *options,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                    pass_fds=inherited,
                )
        with self._lock:
            self._running = [*(one for one in self._running if one.poll() is None), process]
            self._opening[directory] = process
        latest_s, pause = monotonic() + _OPENING_S, Event()
        while process.poll() is None and monotonic() < latest_s:
            status = job.running_status()
            if status is not None and status["pid"] == process.pid:
                self.has_opened(directory)
                return process.pid
            pause.wait(_LOOK_S)
        if not process.returncode:
            return process.pid
        words = _last_words(output, begin)
        if process.returncode in _IN_ORDER and not words.startswith(NONE_LEFT):
            return process.pid
        if " --" in words:
            words = f"{words} (these are options of `anabranch crawl`)"
        raise StartFailed(words, process.returncode)


def _last_words(output: Path, begin: int) -> str:
    """The last message of a command that wrote behind `begin`; empty without one."""
    with storage_errors(output):
        written = last_lines(output, min(max(output.stat().st_size - begin, 0), _MOST_OUTPUT_BYTES))
    return next((line for line in reversed(written) if line.startswith(_OURS)), "").removeprefix(_OURS)
