"""The last trouble of each host, and whether any seed has answered: what an operator wants to know who sees nothing move."""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.outcomes.failures import KeptConnectionClosed
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.reporting.escaping import escaped
from anabranch.crawler.visit import Ending, Visit
from anabranch.frontier.models import ENDING, GateKey, OutcomeKind
from anabranch.frontier.operating.timewords import duration_words

#: Below a job's folder.
ERRORS = "logs/errors.jsonl"
#: Gates whose last trouble is kept in memory.
KEPT = 1000
#: URLs that are still queued and have failed; behind so many it is not said that no seed has answered.
MOST_FAILING = 100_000
#: Characters of a URL and of a reason that are kept: both may be a site's words.
_URL_CHARS = 200
_REASON_CHARS = 300
#: What is read of the end of errors.jsonl.
_TAIL_BYTES = 1 << 18


class Trouble(NamedTuple):
    """Why a try failed, seen from a moment after it. All its text is printable."""

    url: str
    reason: str
    ago_s: float
    is_final: bool  #: the URL was given up
    again_in_s: float | None  #: it is not tried again before; None: it is given up, or that is not known

    def words(self) -> str:
        """`http://a.test/: connection refused, tried again in 40s`."""
        if self.is_final:
            then = "given up"
        elif self.again_in_s is None:
            then = "to be tried again"
        else:
            then = f"tried again in {duration_words(max(self.again_in_s, 0.0))}"
        return f"{self.url}: {self.reason}, {then}"


class Troubles:
    """Notes how tries end. Cost: O(1) a try; memory: a row for each of `KEPT` gates, a URL for each of `MOST_FAILING`."""

    def __init__(self) -> None:
        self._of_gate: OrderedDict[GateKey, tuple[float, Trouble]] = OrderedDict()  # with when it was met
        self._earlier: tuple[float, Trouble] | None = None  # the last one of an earlier run
        self._failing: set[str] = set()
        self._is_answered = False

    @property
    def failing(self) -> int:
        """URLs that are still queued, and whose last try in this run failed. Not counted once a page was answered."""
        return len(self._failing)

    def note(self, visit: Visit, kind: OutcomeKind, at_s: float, again_s: float | None) -> None:
        """A try has ended so, `at_s`; the URL is not tried again before `again_s` (epoch seconds both).

        A host that answers without trouble has none any more.
        """
        lease, reason = visit.lease, reason_of(visit)
        if not reason:
            if visit.response is not None:
                self._earlier = None
                self._of_gate.pop(lease.gate, None)
        else:
            is_final = kind in ENDING
            in_s = None if is_final or again_s is None or again_s == math.inf else again_s - at_s
            self._of_gate[lease.gate] = at_s, _trouble(lease.url, reason, is_final=is_final, again_in_s=in_s)
            self._of_gate.move_to_end(lease.gate)
            if len(self._of_gate) > KEPT:
                self._of_gate.popitem(last=False)
        if not self._is_answered:
            self._note_failing(lease.url, kind, is_failing=bool(reason) and kind not in ENDING)

    def _note_failing(self, url: str, kind: OutcomeKind, *, is_failing: bool) -> None:
        if kind is OutcomeKind.DONE:
            self._is_answered = True
            self._failing.clear()
        elif not is_failing:
            self._failing.discard(url)
        elif len(self._failing) < MOST_FAILING:
            self._failing.add(url)

    def recall(self, trouble: Trouble | None, now_s: float) -> None:
        """The last trouble of an earlier run, seen from now: it counts until this run has one, or an answer."""
        self._earlier = None if trouble is None else (now_s - trouble.ago_s, trouble._replace(ago_s=0.0))

    def last(self, now_s: float) -> Trouble | None:
        """The latest trouble of those that are not over."""
        return _seen(next(reversed(self._of_gate.values()), self._earlier), now_s)

    def of(self, gate: GateKey, now_s: float) -> Trouble | None:
        """The last trouble of a host, if it is not over."""
        return _seen(self._of_gate.get(gate), now_s)


def reason_of(visit: Visit) -> str:
    """Why a try failed, as a site or we say it; empty if it did not fail."""
    if visit.broken is not None:
        return f"{type(visit.broken).__name__}: {visit.broken}"
    if visit.failure is not None:
        return "" if isinstance(visit.failure, KeptConnectionClosed) else str(visit.failure) or describe(visit.status)
    if visit.response is None:
        return ""
    if visit.ending is Ending.UNRULED:
        return f"its robots.txt was answered with {describe(visit.response.status)}"
    return f"answered with {describe(visit.response.status)}" if visit.is_busy else ""


def last_logged(directory: Path, now_s: float, url: str = "") -> Trouble | None:
    """The last trouble of a job that nobody crawls, or of one of its URLs, as its errors.jsonl and its shares' have it.

    Only the end of each file is read, and lines that are none are passed over. None if nothing is found.
    """
    found = [trouble for file in _error_files(directory) if (trouble := _last_in(file, now_s, url)) is not None]
    return min(found, key=lambda trouble: trouble.ago_s, default=None)


def reasons_logged(directory: Path) -> dict[str, str]:
    """Why the last failed try of each URL failed, by URL, from what `last_logged` reads."""
    reasons: dict[str, str] = {}
    for file in _error_files(directory):
        for line in _last_lines(file):
            if (said := _logged(line)) is not None:
                reasons.setdefault(said["url"], _cut(escaped(said["message"] or said["words"]), _REASON_CHARS))
    return reasons


def _error_files(directory: Path) -> list[Path]:
    return [directory / ERRORS, *directory.glob(f"shares/*/{ERRORS}")]


def _last_in(errors: Path, now_s: float, url: str) -> Trouble | None:
    for line in _last_lines(errors):
        said = _logged(line)
        if said is not None and (not url or said["url"] == url):
            reason = said["message"] or said["words"]
            ago_s = max(now_s - datetime.fromisoformat(said["time"]).timestamp(), 0.0)
            return _trouble(said["url"], reason, is_final=said["final"], again_in_s=None)._replace(ago_s=ago_s)
    return None


def _logged(line: bytes) -> Mapping[str, Any] | None:
    """A line of errors.jsonl, if it is a whole one."""
    try:
        read: dict[str, Any] = json.loads(line)
        match read:
            case {"url": str(), "words": str(), "message": str() | None, "final": bool(), "time": str(time)}:
                datetime.fromisoformat(time)
                return read
    except (ValueError, RecursionError):
        pass
    return None


def _last_lines(path: Path) -> Iterator[bytes]:
    """From the last one on; none if the file cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            text = file.read(_TAIL_BYTES)
    except OSError:
        return
    yield from reversed(text.splitlines())


def _trouble(url: str, reason: str, *, is_final: bool, again_in_s: float | None) -> Trouble:
    return Trouble(_cut(escaped(url), _URL_CHARS), _cut(escaped(reason), _REASON_CHARS), 0.0, is_final, again_in_s)


def _seen(noted: tuple[float, Trouble] | None, now_s: float) -> Trouble | None:
    """As it is `now_s`."""
    if noted is None:
        return None
    at_s, trouble = noted
    in_s = trouble.again_in_s
    return trouble._replace(ago_s=now_s - at_s, again_in_s=None if in_s is None else at_s + in_s - now_s)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
