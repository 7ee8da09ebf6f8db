"""Crawlee's requests as candidates, leases as its requests again, and the run of a crawler that has a request.

Crawlee does not report that a run was aborted, by an error or by a second Ctrl-C. The requests of its workers would stay in
progress for ever, and no later run would end. But its pool asks a queue for work in one task, makes its workers in that task,
so that they inherit its context, and ends the task after the last worker: that task identifies the run.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

from crawlee import Request, RequestState
from yarl import URL

from anabranch.frontier.policies.hosts import authority
from anabranch.frontier.records import Candidate, HostTrouble, Lease, Outcome, OutcomeKind, UrlRecord

#: Heritrix's status of a URL that robots.txt forbids.
ROBOTS_PRECLUDED = -9998
#: `handled_at` of requests that are looked up, since the time is not kept.
_SOME_TIME = datetime.fromtimestamp(0, UTC)
THROTTLED = 429


@dataclass(slots=True)
class RequestInProgress:
    """A request that a crawler has, with its lease."""

    lease: Lease
    request: Request
    run: Run | None = None  #: the run of the worker that has it
    trouble: HostTrouble = HostTrouble.NONE
    retry_after_s: float = 0.0

    def throttled(self, retry_after_s: float) -> None:
        """Its host answered 429, and asked for so many seconds."""
        self.trouble, self.retry_after_s = HostTrouble.THROTTLED, retry_after_s

    def changed(self, request: Request) -> None:
        """Crawlee gives it back as it is now."""
        self.request = request

    def outcome(self, kind: OutcomeKind, now_s: float) -> Outcome:
        """The outcome if it ends now. The fetch lasts as long as the lease, since Crawlee does not report its times.

        A skipped request was not fetched, so no gate rests.
        """
        if self.request.state is RequestState.SKIPPED:
            return Outcome(kind, ROBOTS_PRECLUDED)
        status = 0 if self.trouble is HostTrouble.NONE else THROTTLED
        times = (self.lease.since_s, now_s)
        return Outcome(kind, status, *times, trouble=self.trouble, retry_after_s=self.retry_after_s)


def key_of(unique_key: str) -> bytes:
    """The dedup key of a request."""
    return unique_key.encode()


def candidate_of(request: Request, *, front: bool, force: bool = False) -> Candidate:
    """The request as it is now. Raises: ValueError if JSON cannot hold its data, as in Crawlee's own storages."""
    payload = request.model_dump_json(by_alias=True).encode()
    return Candidate(ascii_url(request.url), key_of(request.unique_key), payload=payload, front=front, force=force)


def request_of(url: str, key: bytes, payload: bytes | None) -> Request:
    """The request of a row; a row of another program has only its URL. Raises: ValueError for a foreign payload."""
    if payload is None:
        return Request.from_url(url, unique_key=key.decode())
    return Request.model_validate_json(payload)


def handled_request(record: UrlRecord, unique_key: str) -> Request:
    """A request that was handled: its URL, its key, and how it ended."""
    request = Request.from_url(record.url, unique_key=unique_key, handled_at=_SOME_TIME)
    if record.status == ROBOTS_PRECLUDED:
        request.state = RequestState.SKIPPED
    else:
        request.state = RequestState.ERROR if record.outcome == OutcomeKind.FAILED.value else RequestState.DONE
    return request


def ascii_url(url: str) -> str:
    """The URL in ASCII, so that a host has one gate however its name is written."""
    return url if url.isascii() else str(URL(url))


def host_of(url: str) -> str | None:
    """The host of the URL's gate; None without a host."""
    found = authority(ascii_url(url))
    return None if found is None else found.host


#: The name of the task of Crawlee's AutoscaledPool. Requests of other tasks are never taken back.
_POOL_TASK = "autoscaled pool worker task orchestrator"

Run = asyncio.Task[object]

_RUN: ContextVar[Run | None] = ContextVar("anabranch.frontier.hosts.crawlee.requests", default=None)


def pool_run() -> Run | None:
    """The run of the pool that calls, if one does; workers that it makes from now on are recognised as its own."""
    task = asyncio.current_task()
    if task is None or task.get_name() != _POOL_TASK:
        return None
    _RUN.set(task)
    return task


def current_run() -> Run | None:
    """The run of the worker that calls."""
    return _RUN.get()


def is_run_over(run: Run) -> bool:
    """Whether none of its workers is alive any more."""
    return run.done() or run.get_loop().is_closed()


class Runs:
    """The runs that have asked one queue."""

    def __init__(self) -> None:
        self._known: set[Run] = set()

    def over(self) -> set[Run]:
        """The runs that have ended since the last call; remembers the run that calls."""
        if (run := pool_run()) is not None:
            self._known.add(run)
        over = {run for run in self._known if is_run_over(run)}
        self._known -= over
        return over
