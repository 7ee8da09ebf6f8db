"""Why tries failed: the lines of `errors.jsonl`, and in memory the last trouble of each host."""

from __future__ import annotations

import json
import math
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.accounts.crawl_log import iso_time
from anabranch.crawler.outcomes.failures import UNTRIED, NameTimeout
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.report.logtail import last_lines
from anabranch.crawler.report.table import escaped
from anabranch.crawler.visit import ChainDecision, Visit
from anabranch.frontier.records import ENDING, GateKey, OutcomeKind
from anabranch.frontier.times import duration_words

#: The file of failed tries, below a job's folder.
ERRORS = "logs/errors.jsonl"
#: Gates with a last trouble in memory.
KEPT = 1000
#: The most URLs that are kept as failing.
MOST_FAILING = 100_000
#: Characters of an exception's message, and frames of its traceback, that are logged: both may repeat what a site sent.
_MESSAGE_CHARS = 1000
_FRAMES = 30
#: Characters of a URL and of a reason that are kept: both may be a site's words.
_URL_CHARS = 200
_REASON_CHARS = 300
#: How much of the end of errors.jsonl is read.
_TAIL_BYTES = 1 << 18

# errors.jsonl


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How one try failed."""

    time_s: float  #: epoch seconds
    url: str
    status: int  #: fetch status
    attempt: int  #: from 1; 0 for a link that was never tried, because a user function failed for it
    is_final: bool  #: the URL is given up; else it is tried again
    error: BaseException | None = None
    is_ours: bool = False  #: a processor raised it: its traceback is logged
    hops: str = ""
    via: str | None = None
    worker: int = 0


def error_line(failure: Failure) -> bytes:
    """The line, with its newline: compact JSON in ASCII. A try that was answered with a failing status has no exception."""
    error = failure.error
    fields: dict[str, object] = {
        "time": iso_time(failure.time_s),
        "url": failure.url,
        "status": failure.status,
        "words": describe(failure.status),
        "exception": None if error is None else type(error).__name__,
        "message": None if error is None else str(error)[:_MESSAGE_CHARS],
        "attempt": failure.attempt,
        "final": failure.is_final,
        "hops": failure.hops,
        "via": failure.via,
        "worker": failure.worker,
    }
    if failure.is_ours and error is not None:
        cause = error.__cause__ if isinstance(error, UserFunctionFailed) else None  # raised in the user's module
        raised = cause or error
        fields["traceback"] = [frame.rstrip("\n") for frame in traceback.format_tb(raised.__traceback__)[-_FRAMES:]]
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def last_logged(directory: Path, now_s: float, url: str = "") -> Trouble | None:
    """The last trouble of a stopped job, or of one of its URLs, from the ends of its errors.jsonl and those of its workers."""
    found = []
    for file in _error_files(directory):
        failure = next((failure for failure in _last_failures(file) if not url or failure["url"] == url), None)
        if failure is not None:
            ago_s = max(now_s - datetime.fromisoformat(failure["time"]).timestamp(), 0.0)
            reason = failure["message"] or failure["words"]
            found.append(Trouble.of(failure["url"], reason, ago_s=ago_s, is_final=failure["final"]))
    return min(found, key=lambda trouble: trouble.ago_s, default=None)


def failures_logged(directory: Path, most: int) -> list[Mapping[str, Any]]:
    """The fields of the last lines, the last one first, from the ends of the job's errors.jsonl and those of its workers."""
    found = chain.from_iterable(islice(_last_failures(file), most) for file in _error_files(directory))
    return sorted(found, key=lambda failure: str(failure["time"]), reverse=True)[:most]


def reasons_logged(directory: Path) -> dict[str, str]:
    """Why the last failed try of each URL failed, by URL, from the lines that `last_logged` reads."""
    reasons: dict[str, str] = {}
    for file in _error_files(directory):
        for failure in _last_failures(file):
            reasons.setdefault(failure["url"], _printable(failure["message"] or failure["words"], _REASON_CHARS))
    return reasons


def names_logged(directory: Path) -> list[str]:
    """The URLs whose last try failed because their name only timed out, from the lines that `last_logged` reads."""
    last: dict[str, bool] = {}
    for file in _error_files(directory):
        for failure in _last_failures(file):
            last.setdefault(failure["url"], failure.get("exception") == NameTimeout.__name__ and not failure["final"])
    return [url for url, is_waiting in last.items() if is_waiting]


def _error_files(directory: Path) -> list[Path]:
    return [directory / ERRORS, *directory.glob(f"workers/*/{ERRORS}")]


def _last_failures(errors: Path) -> Iterator[Mapping[str, Any]]:
    """The lines at the end of errors.jsonl, the last one first, without malformed ones; none if the file cannot be read."""
    for line in reversed(last_lines(errors, _TAIL_BYTES)):
        with suppress(ValueError, RecursionError):
            fields: dict[str, Any] = json.loads(line)
            match fields:
                case {"url": str(), "words": str(), "message": str() | None, "final": bool(), "time": str(time)}:
                    datetime.fromisoformat(time)
                    yield fields


# The last troubles, in memory


class Trouble(NamedTuple):
    """Why a try failed, seen from a later moment. All its text is printable."""

    url: str
    reason: str
    ago_s: float
    is_final: bool  #: the URL was given up
    again_in_s: float | None  #: it is not tried again before; None: it is given up, or the time is not known

    @classmethod
    def of(
        cls, url: str, reason: str, *, ago_s: float = 0.0, is_final: bool, again_in_s: float | None = None
    ) -> Trouble:
        """A trouble with its text made printable and short."""
        return cls(_printable(url, _URL_CHARS), _printable(reason, _REASON_CHARS), ago_s, is_final, again_in_s)

    def describe(self) -> str:
        """`http://a.test/: connection refused, tried again in 40s`."""
        if self.is_final:
            then = "given up"
        elif self.again_in_s is None:
            then = "to be tried again"
        else:
            then = f"tried again in {duration_words(max(self.again_in_s, 0.0))}"
        return f"{self.url}: {self.reason}, {then}"


class Troubles:
    """Records how tries end. Cost: O(1) a try; memory: a row for each of `KEPT` gates, a URL for each of `MOST_FAILING`."""

    def __init__(self) -> None:
        self._of_gate: OrderedDict[GateKey, tuple[float, Trouble]] = OrderedDict()  # with its epoch seconds
        self._earlier: tuple[float, Trouble] | None = None  # the last one of an earlier run
        self._failing: set[str] = set()
        self._is_answered = False

    @property
    def failing(self) -> int:
        """Queued URLs for which the last try in this run failed; 0 once a page was answered."""
        return len(self._failing)

    def record(self, visit: Visit, kind: OutcomeKind, at_s: float, again_s: float | None) -> None:
        """Record a try that ended `at_s`, and is not repeated before `again_s` (epoch seconds). An answer ends a trouble.

        A URL that the order excludes ended as it should: no trouble.
        """
        lease, reason = visit.lease, reason_of(visit, kind)
        if reason:
            is_final = kind in ENDING
            in_s = None if is_final or again_s is None or again_s == math.inf else again_s - at_s
            self._of_gate[lease.gate] = at_s, Trouble.of(lease.url, reason, is_final=is_final, again_in_s=in_s)
            self._of_gate.move_to_end(lease.gate)
            if len(self._of_gate) > KEPT:
                self._of_gate.popitem(last=False)
        elif visit.response is not None:
            self._earlier = None
            self._of_gate.pop(lease.gate, None)
        if kind is OutcomeKind.DONE:
            self._is_answered = True
            self._failing.clear()
        elif self._is_answered:
            return
        elif not reason or kind in ENDING:
            self._failing.discard(lease.url)
        elif len(self._failing) < MOST_FAILING:
            self._failing.add(lease.url)

    def restore(self, trouble: Trouble | None, now_s: float) -> None:
        """Set the last trouble of an earlier run, seen from now: it counts until this run has one, or an answer."""
        self._earlier = None if trouble is None else (now_s - trouble.ago_s, trouble._replace(ago_s=0.0))

    def last(self, now_s: float) -> Trouble | None:
        """The latest trouble that is not over."""
        return _seen_from(next(reversed(self._of_gate.values()), self._earlier), now_s)

    def of(self, gate: GateKey, now_s: float) -> Trouble | None:
        """The last trouble of a host, if it is not over."""
        return _seen_from(self._of_gate.get(gate), now_s)


def reason_of(visit: Visit, kind: OutcomeKind) -> str:
    """Why a try failed, in the words of the site or of our error; empty if it did not fail or the order excluded the URL."""
    if kind is OutcomeKind.DISREGARDED:
        return ""
    if visit.broken is not None:
        return f"{type(visit.broken).__name__}: {visit.broken}"
    if visit.failure is not None:
        return "" if isinstance(visit.failure, UNTRIED) else str(visit.failure) or describe(visit.status)
    if visit.response is None:
        return ""
    if visit.decision is ChainDecision.NO_RULES:
        return f"its robots.txt was answered with {describe(visit.response.status)}"
    return f"answered with {describe(visit.response.status)}" if visit.is_busy else ""


def _seen_from(recorded: tuple[float, Trouble] | None, now_s: float) -> Trouble | None:
    """The trouble with its times as they are `now_s`."""
    if recorded is None:
        return None
    at_s, trouble = recorded
    in_s = trouble.again_in_s
    return trouble._replace(ago_s=now_s - at_s, again_in_s=None if in_s is None else at_s + in_s - now_s)


def _printable(text: str, most: int) -> str:
    text = escaped(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
