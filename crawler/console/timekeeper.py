"""Starts the jobs of a console that are due, and has the ends of runs delivered, whoever started these.

    look ─┬─ due by its schedule ──▶ start, in a thread of its own
          └─ a run has ended ──────▶ NoticeOutbox ──▶ the thread that delivers

It sleeps until a job is due. The end of a crawl, whose lock a thread waits for, and changes by the console wake it earlier.
Other processes change orders and start crawls without a word, so it looks at the times of the jobs' files once a minute.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Lock, Semaphore, Thread
from typing import Self

import structlog

from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.outbox import KnownEnds, NoticeOutbox
from anabranch.crawler.job.folder import wait_until_free, who_holds
from anabranch.crawler.operate import Facts, FrontierError, Schedules, ended_run, notice_of, schedule_facts, start_due
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.report.metrics import MISSED_RUNS, NEXT_RUN, UNDELIVERED

log = structlog.get_logger(__name__)

#: Between two looks at what other processes may have changed.
_LOOK_S = 60.0
#: Crawls that are started at once.
_STARTS_AT_ONCE = 4
#: How long the end of the console waits for its threads; what they had not done is done after the next start.
_ENDING_S = 1.0


class Timekeeper:
    """Works from entry to exit, in threads of its own. Its other methods may be called by any thread."""

    def __init__(
        self, jobs: ConsoleJobs, outbox: NoticeOutbox, known: KnownEnds | None, clock: Callable[[], float] = time.time
    ) -> None:
        """`known` None: no ends are noticed here."""
        self._jobs, self._outbox, self._known, self._clock = jobs, outbox, known, clock
        self._schedules = Schedules()
        self._woken, self._has_notice = Event(), Event()
        self._is_ending = False
        self._busy: set[tuple[str, Path]] = set()  #: threads that start a job or wait for its end
        self._changing = Lock()
        self._starts = Semaphore(_STARTS_AT_ONCE)
        self._faults: dict[Path, str] = {}

    def __enter__(self) -> Self:
        does = (self._keep, self._deliver) if self._known is not None else (self._keep,)
        self._threads = [Thread(target=do, daemon=True) for do in does]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending = True
        for event in (self._woken, self._has_notice):
            event.set()
        for thread in self._threads:
            thread.join(_ENDING_S)

    def wake(self) -> None:
        """Look now: a job was changed."""
        self._woken.set()

    def schedule(self, name: str) -> Facts | None:
        """The facts of a job's schedule; None without one. Raises: CrawlerError, FrontierError."""
        directory = self._jobs.directory(name)
        return None if directory is None else schedule_facts(directory, self._clock())

    def notices(self, name: str) -> list[Facts]:
        """The notices of a job that were not delivered."""
        return self._outbox.facts(name)

    def numbers(self, names: Mapping[str, object]) -> dict[str, dict[str, float]]:
        """The metrics of schedules and notices, by the name of a job."""
        found: dict[str, dict[str, float]] = {name: {UNDELIVERED: 0} for name in names}
        for job in self._outbox.failed():
            if job in found:
                found[job][UNDELIVERED] += 1
        for directory in self._jobs.folders():
            numbers = found.get(directory.resolve().name)
            try:
                due = None if numbers is None else self._schedules.of(directory)
            except (CrawlerError, FrontierError, OSError):
                continue  # `_look_at` logs it
            if numbers is not None and due is not None:
                next_s = due.next_s(self._clock())
                numbers[MISSED_RUNS] = sum(run.missed for run in due.kept.runs)
                numbers |= {} if next_s is None else {NEXT_RUN: next_s}
        return found

    def _keep(self) -> None:
        while not self._is_ending:
            self._woken.clear()
            now_s = self._clock()
            next_s = min((self._look_at(directory, now_s) for directory in self._jobs.folders()), default=math.inf)
            self._woken.wait(min(max(next_s - self._clock(), 0.0), _LOOK_S))

    def _look_at(self, directory: Path, now_s: float) -> float:
        """Start a job that is due, and notice the end of its run; when to look again at the latest."""
        try:
            if self._known is not None:
                self._notice_end(directory, now_s, self._known)
            found = self._schedules.of(directory)
        except (CrawlerError, FrontierError, OSError) as error:
            if self._faults.get(directory) != str(error):
                log.warning("a job cannot be read for its schedule", job=directory.name, reason=str(error))
            self._faults[directory] = str(error)
            return math.inf
        self._faults.pop(directory, None)
        next_s = None if found is None else found.next_s(now_s)
        if found is not None and (found.is_new or (next_s is not None and next_s <= now_s)):
            self._in_thread("start", directory, lambda: self._start(directory, is_new=found.is_new))
            return math.inf  # that thread wakes this one
        return math.inf if next_s is None else next_s

    def _start(self, directory: Path, *, is_new: bool) -> bool:
        """Start a job; whether there is a new time to sleep for."""
        who = f"console, process {os.getpid()}"
        with self._starts:
            run = start_due(directory, self._clock(), self._jobs.start_scheduled, who)
        if run is not None:
            log.info(
                "scheduled run", job=directory.name, outcome=run.outcome.value, missed=run.missed, reason=run.words
            )
        return is_new or run is not None

    def _notice_end(self, directory: Path, now_s: float, known: KnownEnds) -> None:
        if who_holds(directory)[0]:
            self._in_thread("wait", directory, lambda: _wait(directory))
            return
        run, place = ended_run(directory), str(directory.resolve())
        if run is None:
            return
        if known.is_news(place, *run):
            facts = self._jobs.job(directory.resolve().name).status()
            self._outbox.add(notice_of(place, run.began_s, facts, now_s))
            self._has_notice.set()
        known.note(place, run.began_s)

    def _deliver(self) -> None:
        while not self._is_ending:
            self._has_notice.clear()
            try:
                next_s = self._outbox.deliver_due(self._clock())
            except CrawlerError as error:
                log.warning("a notice cannot be kept", reason=str(error))
                next_s = self._clock() + _LOOK_S
            self._has_notice.wait(None if next_s is None else max(next_s - self._clock(), 0.0))

    def _in_thread(self, what: str, directory: Path, do: Callable[[], bool]) -> None:
        """Do something with a job in a thread, unless one does so already; then look again if it says so."""
        key = (what, directory)

        def run() -> None:
            is_news = False
            try:
                is_news = do()
            except (CrawlerError, FrontierError, OSError) as error:
                log.warning("a job cannot be read for its schedule", job=directory.name, reason=str(error))
            finally:
                with self._changing:
                    self._busy.discard(key)
                if is_news:
                    self.wake()

        with self._changing:
            if key in self._busy:
                return
            self._busy.add(key)
        Thread(target=run, daemon=True).start()


def _wait(directory: Path) -> bool:
    """Wait until nobody holds the job (blocks)."""
    wait_until_free(directory)
    return True
