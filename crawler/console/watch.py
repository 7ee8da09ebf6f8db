"""Watches jobs for pages and streams: each job is asked once in a while, however many look, and its past is kept.

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

from anabranch.crawler.console.asking import Asking
from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.operate import STOPPED, UNKNOWN, Facts, FrontierError
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE, RunMark, last_lines, parse_progress_line, run_marks
from anabranch.crawler.report.metrics import BUILD

#: Seconds between two questions to one job, and between two looks at all jobs.
EVERY_S = 2.0
#: Samples of a job that are kept: two hours.
_MOST_SAMPLES = 3600
#: Jobs whose samples are kept; those that were looked at last.
_MOST_WATCHED = 50
_LOG_BYTES = 1 << 20
#: Figures of a filter that are kept of each moment.
FILTER_FIGURES = ("keys", "asked", "dropped", "smm_fill", "false_drop_probability", "dsbf_leaves")

#: The state of a job whose process is gone without a word.
KILLED = "killed"
#: Keys of a row that change though nothing happens.
_CHANGING = frozenset({"free_disk_bytes", "last_trouble"})


def _steady(row: Facts) -> Facts:
    return {key: value for key, value in row.items() if key not in _CHANGING}


def is_at_rest(row: Facts | None) -> bool:
    """A stopped job, which would have to be opened, or one that does not answer and holds up whoever asks. Pure."""
    return row is not None and row["phase"] in {STOPPED, UNKNOWN}


class News:
    """Tells a page whether to ask a job: always while it runs, and once when it is at rest, until its row changes."""

    def __init__(self) -> None:
        self._known: Facts | None = None

    def has(self, row: Facts | None) -> bool:
        """Whether to ask the job with this row now."""
        known, self._known = self._known, _steady(row) if row is not None and is_at_rest(row) else None
        return self._known is None or self._known != known


class Moment(NamedTuple):
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


class _Answer(NamedTuple):
    status: Facts
    metrics: Facts | None


@dataclass
class _Watched:
    """The last answers of one job, and its samples."""

    lock: Lock = field(default_factory=Lock)
    asked_s: float = -EVERY_S
    row: Facts | None = None  #: from which `status` was asked
    status: Facts | CrawlerError | FrontierError | None = None  #: or what the job answered instead
    version: str = ""  #: of the program that crawls
    samples: deque[Moment] = field(default_factory=lambda: deque(maxlen=_MOST_SAMPLES))
    marks: list[RunMark] = field(default_factory=list)  #: of its runs, by its progress log
    marked: tuple[object, ...] = ()  #: state and process for which they were read
    is_new: bool = True

    def forget(self) -> None:
        """Ask again at the next look."""
        self.asked_s, self.row = -EVERY_S, None

    def look(self, jobs: ConsoleJobs, name: str, row: Facts, now_s: float, asking: Asking[_Answer]) -> None:
        """Ask the job, if that is due. `row` is the job's, without what changes though nothing happens."""
        with self.lock:
            if now_s - self.asked_s < EVERY_S:
                return
            if self.is_new:
                self.samples.extend(_logged(jobs.directory(name)))
                self.is_new = False
            self.asked_s = now_s
            marked = (row.get("state"), row.get("pid"))
            if marked != self.marked:
                self.marks, self.marked = _marks(jobs.directory(name), row), marked
            if not isinstance(self.status, dict) or row.get("phase") != STOPPED or row != self.row:
                self._take(asking.answers([name])[name], row)

    def _take(self, answer: _Answer | CrawlerError | FrontierError, row: Facts) -> None:
        if isinstance(answer, Exception):
            self.status, self.version = answer, ""
            return
        (status, metrics), self.row = answer, row
        self.status, self.version = status, str((metrics or {}).get(BUILD, ""))
        if metrics is not None:
            before = self.samples[-1] if self.samples else None
            self.samples.append(sample(time.time(), status, metrics, before))


class WatchedJobs:
    """The jobs of one console. Its methods block, may be called by any thread, and raise nothing but NoSuchJob."""

    def __init__(self, jobs: ConsoleJobs, now_s: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._now_s = now_s
        self._rows: list[Facts] = []
        self._rows_s = -EVERY_S
        self._rows_lock = Lock()
        self._watched: dict[str, _Watched] = {}
        self._watched_lock = Lock()
        self._asking = Asking(self._ask)

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
        status = self._look(name).status
        return None if isinstance(status, Exception) else status

    def answer(self, name: str) -> Facts:
        """Return the status of a job. Raises: CrawlerError or FrontierError, as the job answered."""
        status = self._look(name).status
        if isinstance(status, Exception):
            raise status
        assert status is not None
        return status

    def version(self, name: str) -> str:
        """The version of the program that crawls a job; empty if nothing crawls it."""
        return self._look(name).version

    def samples(self, name: str) -> list[Moment]:
        """The past of a job, the oldest first: before it was watched from its progress log, then moment by moment."""
        return list(self._look(name).samples)

    def marks(self, name: str) -> list[RunMark]:
        """When the job was started, paused, resumed, stopped and killed, by the end of its progress log."""
        return list(self._look(name).marks)

    def forget(self, name: str) -> None:
        """The job was changed: ask it again."""
        self._rows_s = -EVERY_S
        with self._watched_lock:
            watched = self._watched.get(name)
        if watched is not None:
            watched.forget()

    def _look(self, name: str) -> _Watched:
        with self._watched_lock:
            watched = self._watched.pop(name, None) or _Watched()
            self._watched[name] = watched  # the last one
            while len(self._watched) > _MOST_WATCHED:
                self._watched.pop(next(iter(self._watched)))
        watched.look(self._jobs, name, _steady(self.row(name) or {}), self._now_s(), self._asking)
        return watched

    def _ask(self, name: str) -> _Answer:
        status = self._jobs.job(name).status()
        return _Answer(status, None if status["phase"] == STOPPED else self._jobs.metrics(name))


def sample(time_s: float, status: Facts, metrics: Mapping[str, Any], before: Moment | None) -> Moment:
    """One moment, after the moment before. Pure."""
    facts = status["filter"] or {}
    now = Moment(
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
    if status["phase"] == STOPPED:  # the counts are of all runs
        return now
    span_s = max(time_s - before.time_s, 0.001)
    fetches = (now.fetches or 0) - before.fetches
    return now._replace(
        pages_per_s=(now.pages - before.pages) / span_s,
        kb_per_s=(now.fetched_bytes - before.fetched_bytes) / span_s / 1000,
        dropped_per_s=max(now.dropped - before.dropped, 0.0) / span_s,
        latency_s=(now.fetching_s - before.fetching_s) / fetches if fetches > 0 else None,
    )


def _marks(directory: Path | None, row: Facts) -> list[RunMark]:
    """The marks of the progress log, and that of a run that was killed after its last line."""
    if directory is None:
        return []
    found = run_marks(last_lines(directory / "logs" / PROGRESS_LOG_FILE, _LOG_BYTES))
    ended = row.get("ended")
    if row.get("state") == KILLED and ended and found and found[-1].what != "stop":
        found.append(RunMark(ended["time_s"], "kill"))
    return found


def _logged(directory: Path | None) -> list[Moment]:
    """The samples of the progress log."""
    if directory is None:
        return []
    lines = last_lines(directory / "logs" / PROGRESS_LOG_FILE, _LOG_BYTES)
    found = filter(None, map(parse_progress_line, lines))
    return [Moment(one.time_s, one.pages_per_s, one.kb_per_s, one.active, one.queued) for one in found][-_MOST_SAMPLES:]
