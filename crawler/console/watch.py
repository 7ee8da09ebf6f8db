"""What the pages look at: each job is asked at most once in a while, however many windows are open, and its past is kept.

A page is redrawn every two seconds. So a crawl that is watched answers one question for its status and one for its metrics in
that time: 0.5 ms of its process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.outcomes.endings import FORESEEABLE
from anabranch.crawler.report.logtail import last_lines
from anabranch.crawler.report.metrics import BUILD
from anabranch.crawler.report.progress_log import PROGRESS_LOG_FILE, parse_progress_line
from anabranch.crawler.run.status import STOPPED
from anabranch.crawler.run.verbs import Facts

#: Seconds between two questions to one job, and between two looks at all jobs.
EVERY_S = 2.0
#: Samples of a job that are kept: two hours.
_MOST_SAMPLES = 3600
#: Jobs whose samples are kept; those that were looked at last.
_MOST_WATCHED = 50
_LOG_BYTES = 1 << 20
#: Figures of a filter that are kept of each moment.
FILTER_FIGURES = ("keys", "asked", "dropped", "smm_fill", "false_drop_probability", "dsbf_leaves")


class Sample(NamedTuple):
    """One moment of a crawl. Rates are since the moment before; None: not known."""

    time_s: float  #: epoch seconds
    pages_per_s: float | None
    kb_per_s: float | None
    active: int
    queued: int
    pages: int = 0  #: of the run
    fetched_bytes: int = 0  #: of the run
    seen: float | None = None  #: URLs that the filter knows
    dropped: float = 0.0  #: links that the filter knew, of the run
    dropped_per_s: float | None = None
    fetches: int | None = None  #: of the run; None: from the log
    fetching_s: float = 0.0  #: what they took together
    latency_s: float | None = None  #: of a fetch, since the moment before
    classes: Mapping[str, float] = {}  #: answers by class, of the run
    filter: Mapping[str, float] = {}  #: of its figures those of `FILTER_FIGURES`


@dataclass
class _Watched:
    lock: Lock = field(default_factory=Lock)
    asked_s: float = -EVERY_S
    row: Facts | None = None  #: from which `status` was asked
    status: Facts | None = None
    version: str = ""  #: of the program that crawls
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_MOST_SAMPLES))
    is_new: bool = True


class JobWatch:
    """The jobs of one console. Its methods block, may be called by any thread, and raise nothing but NoSuchJob."""

    def __init__(self, jobs: ConsoleJobs, now_s: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._now_s = now_s
        self._rows: list[Facts] = []
        self._rows_s = -EVERY_S
        self._rows_lock = Lock()
        self._watched: dict[str, _Watched] = {}
        self._watched_lock = Lock()

    def rows(self) -> list[Facts]:
        """A row for each job."""
        with self._rows_lock:
            if self._now_s() - self._rows_s >= EVERY_S:
                self._rows, self._rows_s = self._jobs.rows(), self._now_s()
            return self._rows

    def row(self, name: str) -> Facts | None:
        """The row of one job; None without one."""
        return next((row for row in self.rows() if row["job"] == name), None)

    def status(self, name: str) -> Facts | None:
        """The status of a job; None if it cannot be had now. A stopped job is opened once, until something changes."""
        return self._look(name).status

    def version(self, name: str) -> str:
        """The version of the program that crawls a job; empty if nothing crawls it."""
        return self._look(name).version

    def samples(self, name: str) -> list[Sample]:
        """The past of a job, the oldest first: before it was watched from its progress log, then moment by moment."""
        return list(self._look(name).samples)

    def forget(self, name: str) -> None:
        """The job was changed: ask it again."""
        self._rows_s = -EVERY_S
        if name in self._watched:
            self._watched[name].asked_s = -EVERY_S

    def _look(self, name: str) -> _Watched:
        with self._watched_lock:
            watched = self._watched.pop(name, None) or _Watched()
            self._watched[name] = watched  # the last one
            while len(self._watched) > _MOST_WATCHED:
                self._watched.pop(next(iter(self._watched)))
        with watched.lock:
            if self._now_s() - watched.asked_s >= EVERY_S:
                watched.asked_s = self._now_s()
                if watched.is_new:
                    watched.samples.extend(_logged(self._jobs.directory(name)))
                    watched.is_new = False
                self._ask(name, watched)
        return watched

    def _ask(self, name: str, watched: _Watched) -> None:
        row = self.row(name)
        what = None if row is None else {**row, "free_disk_bytes": None, "last_trouble": None}
        is_stopped = row is not None and row["phase"] == STOPPED
        if is_stopped and watched.status is not None and what == watched.row:
            return
        try:
            job = self._jobs.job(name)
            watched.status, watched.row = job.status(), what
            metrics = {} if watched.status["phase"] == STOPPED else job.metrics() or {}
        except FORESEEABLE:
            watched.status, watched.version = None, ""
            return
        watched.version = str(metrics.get(BUILD, ""))
        if metrics:
            before = watched.samples[-1] if watched.samples else None
            watched.samples.append(sample(time.time(), watched.status, metrics, before))


def sample(time_s: float, status: Facts, metrics: Mapping[str, Any], before: Sample | None) -> Sample:
    """One moment, after the moment before. Pure."""
    facts = status["filter"] or {}
    now = Sample(
        time_s=time_s,
        pages_per_s=None,
        kb_per_s=None,
        active=status["active"],
        queued=status["pending"],
        pages=status["pages"],
        fetched_bytes=status["fetched_bytes"],
        seen=metrics.get("anabranch_filter_urls"),
        dropped=metrics.get("anabranch_filter_dropped_total", 0.0),
        fetches=metrics.get("anabranch_fetches_total", 0),
        fetching_s=metrics.get("anabranch_fetching_seconds_total", 0.0),
        classes=metrics.get("anabranch_ended_urls_total", {}),
        filter={name: facts[name] for name in FILTER_FIGURES if name in facts},
    )
    if before is None or before.fetches is None or now.pages < before.pages:  # of an earlier run
        return now
    span_s = max(time_s - before.time_s, 0.001)
    fetches = (now.fetches or 0) - before.fetches
    return now._replace(
        pages_per_s=(now.pages - before.pages) / span_s,
        kb_per_s=(now.fetched_bytes - before.fetched_bytes) / span_s / 1000,
        dropped_per_s=max(now.dropped - before.dropped, 0.0) / span_s,
        latency_s=(now.fetching_s - before.fetching_s) / fetches if fetches > 0 else None,
    )


def _logged(directory: Path | None) -> list[Sample]:
    """The samples of the progress log."""
    if directory is None:
        return []
    lines = [line.decode("utf-8", "replace") for line in last_lines(directory / "logs" / PROGRESS_LOG_FILE, _LOG_BYTES)]
    found = filter(None, map(parse_progress_line, lines))
    return [Sample(one.time_s, one.pages_per_s, one.kb_per_s, one.active, one.queued) for one in found][-_MOST_SAMPLES:]
