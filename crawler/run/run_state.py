"""The state of a run: starting, running, waiting, paused for one cause or several, or draining.

Signals, limits, the disk and the operator ask here, and none undoes what another asked: a crawl resumes when the last cause
of its pause is gone. A pause lasts as long as the process: the next run of the job begins unpaused.

What outlives the process is a record in the job: that it is to run, that it is to end, and why it ended.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import structlog

from anabranch.crawler.job.state import FAILED, RUN_FILE, RunRecord, keep_record
from anabranch.crawler.outcomes.endings import ASKED_FOR, WhyEnded, ending_text
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.frontier import AsyncFrontier

log = structlog.get_logger(__name__)


class Cause(Enum):
    """Causes of a pause; the value is the reason for the operator."""

    OPERATOR = "paused by the operator"
    PAGES = "paused by limits.pages"
    BYTES = "paused by limits.bytes"
    TIME = "paused by limits.time"
    DISK = "paused by min_free_disk"
    SINK = "paused by a sink"


class Phase(Enum):
    """The phase of a run."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  #: for a service that many hosts share, or for names without an answer; see `services`
    PAUSED = "paused"
    DRAINING = "draining"


class _Pause(NamedTuple):
    reason: str
    lift: Callable[[], None] | None  #: called if the operator resumes the crawl


class RunState:
    """The wanted and the current state of a run. Used on the event loop only; only `stopped` and `hurried` are waited for."""

    def __init__(
        self,
        notify: Callable[[str], None],
        on_phase: Callable[[Phase, str], None] | None = None,
        *,
        is_resumable: bool = True,
    ) -> None:
        """`on_phase` is called with each new phase and its reason. `is_resumable`: a later run can go on with the job."""
        self.ending = WhyEnded.FINISHED  #: why the run ends, once it is stopped
        self.verdict: WhyEnded | None = None  #: the same, when it is known whether failures dominate
        self.stopped = asyncio.Event()  #: no fetch begins any more
        self.hurried = asyncio.Event()  #: and those under way are given up
        self.asked = asyncio.Event()  #: a signal or the operator wants the end, whatever is left
        self._notify = notify
        self._on_phase = on_phase
        self._is_resumable = is_resumable
        self._pauses: dict[Cause, _Pause] = {}
        self.lifted: set[Cause] = (
            set()
        )  #: limits beyond which the operator has gone on; also of a worker that joins again
        self._frontier: AsyncFrontier | None = None  # None: the run is starting
        self._reported = Phase.STARTING
        self.detail = ""  #: names what ended the run
        self.wait_reason = ""  #: what the crawl waits for, and since when; empty if it waits for nothing

    def begin(self, frontier: AsyncFrontier) -> None:
        """The run is open and begins to lease; earlier requests hold. A worker that joins again finds out anew who is away."""
        self._frontier, self.wait_reason = frontier, ""
        self._apply()

    def pause(self, cause: Cause, reason: str = "", lift: Callable[[], None] | None = None) -> None:
        """Begin no fetch until the cause is gone. `lift` is called if the operator resumes the crawl."""
        is_new = cause not in self._pauses
        self._pauses[cause] = _Pause(reason or cause.value, lift)
        self._apply()
        if is_new and not self.stopped.is_set():
            self._notify(f"{self._pauses[cause].reason}; fetches under way may end")

    def resume(self, cause: Cause) -> None:
        """The cause is gone."""
        if self._pauses.pop(cause, None) is not None:
            self._apply()
            self._notify(self.pause_reason or "resumed")

    def resume_all(self) -> None:
        """The operator ends every pause but those of disk and sinks; a limit that paused it no longer holds in this run."""
        for cause in [cause for cause in self._pauses if cause not in {Cause.DISK, Cause.SINK}]:
            lift = self._pauses[cause].lift
            if lift is not None:
                lift()
            self.resume(cause)

    def wait(self, reason: str) -> None:
        """The crawl waits for this; empty: for nothing any more. What does not need it goes on."""
        self.wait_reason = reason
        self._apply()

    def stop(self, ending: WhyEnded, *, at_once: bool = False, detail: str = "") -> None:
        """End the run in order; the first reason counts, unless it is now to end at once. `detail` names the cause."""
        if not self.stopped.is_set() or (at_once and not self.hurried.is_set()):
            self.ending, self.detail = ending, detail
        self.stopped.set()
        if ending in ASKED_FOR:
            self.asked.set()
        if at_once:
            self.hurried.set()
        self._apply()

    def nothing_left(self, ending: WhyEnded) -> None:
        """The workers have ended, and nothing is left to fetch: this replaces any earlier reason."""
        self.ending, self.detail = ending, ""

    def judge(self, verdict: WhyEnded) -> None:
        """Nothing is fetched any more: the ending, as `with_failures` judges it."""
        self.verdict = verdict

    def is_paused_by(self, cause: Cause) -> bool:
        """Whether this is among the causes of a pause."""
        return cause in self._pauses

    @property
    def pause_reason(self) -> str:
        """Why no fetch begins; empty if the run is not paused."""
        return "; ".join(pause.reason for pause in self._pauses.values())

    @property
    def end_reason(self) -> str:
        """Why the run ends, and what can be done then, in words."""
        return ending_text(self.ending, lasts=self._is_resumable, detail=self.detail, verdict=self.verdict)

    @property
    def in_words(self) -> str:
        """The phase or the reason, for a report."""
        return self.end_reason if self.stopped.is_set() else self.pause_reason or self.wait_reason or self.phase.value

    @property
    def phase(self) -> Phase:
        """The current phase."""
        if self.stopped.is_set():
            return Phase.DRAINING
        if self._frontier is None:
            return Phase.STARTING
        if self._pauses:
            return Phase.PAUSED
        return Phase.WAITING if self.wait_reason else Phase.RUNNING

    def _apply(self) -> None:
        """Report a new phase, and have the Frontier lease or not."""
        phase = self.phase
        if phase is not self._reported:
            self._reported = phase
            if self._on_phase is not None:
                self._on_phase(phase, self.in_words)
        if self._frontier is None or phase is Phase.DRAINING:
            return
        if self._pauses:
            self._frontier.pause_leasing()
        else:
            self._frontier.resume_leasing()


class RunNote:
    """Keeps the record of one run in its job: that it is to run, that it is to end, and why it ended."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._record = RunRecord(0.0)

    def begin(self) -> None:
        """The run begins (blocks). Raises: StorageError."""
        self._record = RunRecord(time.time(), pid=os.getpid())
        with storage_errors(self._state / RUN_FILE):
            keep_record(self._state, self._record)

    def unwanted(self) -> None:
        """The run is to end: if it is killed from now on, nothing is amiss (blocks)."""
        if self._record.began_s and self._record.is_wanted:
            self._keep(self._record._replace(is_wanted=False))

    def end(self, why: str, words: str) -> None:
        """The run has ended, and its process says so (blocks)."""
        if self._record.began_s:
            self._keep(self._record._replace(is_wanted=why == FAILED, ended_s=time.time(), why=why, words=words))

    def _keep(self, record: RunRecord) -> None:
        self._record = record
        try:
            keep_record(self._state, record)
        except OSError as error:
            log.warning(
                "the record of the run cannot be written", file=str(self._state / RUN_FILE), reason=error.strerror
            )
