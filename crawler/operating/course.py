"""The course of a run: it goes on, it is paused for one cause or several, or it is to end.

Signals, limits, the disk and the operator each say here what they want, and none undoes what another wants: a crawl goes on
when the last cause of its pause is gone. A pause lasts as long as the process: the next run of the job begins unpaused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from anabranch.crawler.outcomes.endings import WhyEnded, told
from anabranch.frontier.aio import AsyncFrontier


class Cause(Enum):
    """Who pauses a crawl; the value is what the others say."""

    OPERATOR = "paused by the operator"
    PAGES = "paused by --limit"
    BYTES = "paused by --size-limit"
    TIME = "paused by --time-limit"
    DISK = "paused by min_free_disk"


class Phase(Enum):
    """How far a run is."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"


class _Pause(NamedTuple):
    words: str
    lift: Callable[[], None]  #: what the operator's going on does beside


class Course:
    """What is wanted of a run. Used on the loop only; nothing here waits but `stopped` and `hurried`."""

    def __init__(self, say: Callable[[str], None], *, lasts: bool = True) -> None:
        """`lasts`: the job can be gone on with after the run."""
        self.ending = WhyEnded.FINISHED  #: why the run ends, once it is stopped
        self.stopped = asyncio.Event()  #: no fetch begins any more
        self.hurried = asyncio.Event()  #: and those under way are given up
        self._say = say
        self._lasts = lasts
        self._pauses: dict[Cause, _Pause] = {}
        self._frontier: AsyncFrontier | None = None
        self._told = Phase.STARTING
        self._tell: Callable[[Phase, str], None] = lambda *_: None

    def tell_phases(self, tell: Callable[[Phase, str], None]) -> None:
        """From now on `tell` hears of each change of the phase, and why."""
        self._tell = tell

    def steer(self, frontier: AsyncFrontier) -> None:
        """From now on there is something to pause; what was wanted before holds."""
        self._frontier = frontier
        self._apply()

    def pause(self, cause: Cause, words: str = "", lift: Callable[[], None] = lambda: None) -> None:
        """Begin no fetch until the cause is gone. `lift` is called if it is the operator who has the crawl go on."""
        is_new = cause not in self._pauses
        self._pauses[cause] = _Pause(words or cause.value, lift)
        self._apply()
        if is_new and not self.stopped.is_set():
            self._say(f"{self._pauses[cause].words}; fetches under way may end")

    def resume(self, cause: Cause) -> None:
        """The cause is gone."""
        if self._pauses.pop(cause, None) is not None:
            self._apply()
            self._say(self.words or "going on")

    def go_on(self) -> None:
        """The operator's word ends every pause but the disk's; a limit that paused the crawl holds no more in this run."""
        lifted = [cause for cause in self._pauses if cause is not Cause.DISK]
        for cause in lifted:
            self._pauses[cause].lift()
            self.resume(cause)

    def stop(self, ending: WhyEnded, *, at_once: bool = False) -> None:
        """End the run in order; the first reason counts, unless it is now to end at once."""
        if not self.stopped.is_set() or (at_once and not self.hurried.is_set()):
            self.ending = ending
        self.stopped.set()
        if at_once:
            self.hurried.set()
        self._phase_changed()

    @property
    def words(self) -> str:
        """Why no fetch begins; empty if none is kept from it."""
        return "; ".join(pause.words for pause in self._pauses.values())

    @property
    def why_ended(self) -> str:
        """Why the run ends, and what can be done then, in words."""
        return told(self.ending, lasts=self._lasts)

    @property
    def in_words(self) -> str:
        """How far the run is, for a report."""
        if self.stopped.is_set():
            return self.why_ended
        return self.words or self.phase.value

    @property
    def phase(self) -> Phase:
        """How far the run is."""
        if self.stopped.is_set():
            return Phase.DRAINING
        if self._frontier is None:
            return Phase.STARTING
        return Phase.PAUSED if self._pauses else Phase.RUNNING

    def _phase_changed(self) -> None:
        phase = self.phase
        if phase is not self._told:
            self._told = phase
            self._tell(phase, self.why_ended if phase is Phase.DRAINING else self.words or phase.value)

    def _apply(self) -> None:
        self._phase_changed()
        if self._frontier is None:
            return
        if self._pauses:
            self._frontier.pause_leasing()
        else:
            self._frontier.resume_leasing()
