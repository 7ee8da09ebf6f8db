"""Why tries failed: the lines of `errors.jsonl`, and in memory the last trouble of each host."""

from __future__ import annotations

import json
import math
import traceback
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.accounts.crawl_log import iso_time
from anabranch.crawler.outcomes.failures import UNTRIED, NameTimeout
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.report.logtail import Trouble, error_files, last_failures
from anabranch.crawler.visit import ChainDecision, Visit
from anabranch.frontier.records import ENDING, GateKey, OutcomeKind

#: Gates with a last trouble in memory.
KEPT = 1000
#: The most URLs that are kept as failing.
MOST_FAILING = 100_000
#: Characters of an exception's message, and frames of its traceback, that are logged: both may repeat what a site sent.
_MESSAGE_CHARS = 1000
_FRAMES = 30

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


def names_logged(directory: Path) -> list[str]:
    """The URLs whose last try failed because their name only timed out, from the lines that `last_logged` reads."""
    last: dict[str, bool] = {}
    for file in error_files(directory):
        for failure in last_failures(file):
            last.setdefault(failure["url"], failure.get("exception") == NameTimeout.__name__ and not failure["final"])
    return [url for url, is_waiting in last.items() if is_waiting]


# The last troubles, in memory


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
