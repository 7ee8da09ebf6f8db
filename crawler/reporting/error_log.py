"""The lines of `errors.jsonl`: one JSON object for each try that failed, each processor of ours that broke, each link
that was lost to a function of the operator's own. Pure.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime

from anabranch.crawler.outcomes.ownfunctions import OwnFunctionFailed
from anabranch.crawler.outcomes.status import describe

#: Characters of an exception's words, and frames of its traceback, that are kept: both may repeat what a site sent.
_WORDS = 1000
_FRAMES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong with one try."""

    time_s: float  #: epoch seconds
    url: str
    status: int  #: fetch status
    attempt: int  #: from 1; 0 for a link that was never tried, since a function of the operator's own failed for it
    is_final: bool  #: the URL is given up; else it is tried again
    error: BaseException | None = None
    is_ours: bool = False  #: a processor broke: its traceback is kept
    hops: str = ""
    via: str | None = None
    worker: int = 0


def error_line(failure: Failure) -> bytes:
    """The line, with its newline: compact JSON in ASCII; a try that was answered with a failing status has no exception."""
    error = failure.error
    fields: dict[str, object] = {
        "time": _iso(failure.time_s),
        "url": failure.url,
        "status": failure.status,
        "words": describe(failure.status),
        "exception": None if error is None else type(error).__name__,
        "message": None if error is None else str(error)[:_WORDS],
        "attempt": failure.attempt,
        "final": failure.is_final,
        "hops": failure.hops,
        "via": failure.via,
        "worker": failure.worker,
    }
    if failure.is_ours and error is not None:
        cause = error.__cause__ if isinstance(error, OwnFunctionFailed) else None  # where the operator must look
        raised = cause or error
        fields["traceback"] = [frame.rstrip("\n") for frame in traceback.format_tb(raised.__traceback__)[-_FRAMES:]]
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def _iso(time_s: float) -> str:
    return datetime.fromtimestamp(round(time_s, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
