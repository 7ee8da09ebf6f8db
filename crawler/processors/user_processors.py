"""The user's processors: `[job] processors`, functions that see each fetched page before it is written.

    async def function(visit: Visit) -> Step | None

None means `Step.PROCEED`. After `Step.STOP` the URL has its line in `crawl.log`, which names the function, and nothing else.

A function gets a copy of the visit with lists of its own. Valid changes to `links` and `notes` are taken over; any other change
is an error of the function and fails the page. The bodies are shared: they are sealed first, and closing one is noticed.
"""

from __future__ import annotations

import asyncio
import operator
from dataclasses import fields, replace
from typing import Any

from anabranch.crawler.extract.links import FOLLOWED, Link
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.outcomes.userfunctions import PROCESSOR, UserFunction, UserFunctionFailed, user_function
from anabranch.crawler.urls.parsing import canonical
from anabranch.crawler.visit import Processor, Step, Visit

#: The fields that a function may change, and the others.
_EDITABLE = frozenset({"links", "notes"})
_READ_ONLY = tuple(field.name for field in fields(Visit) if field.name not in _EDITABLE)
_MISSING = object()


def user_processor(name: str) -> Processor:
    """The processor of this name; its errors become UserFunctionFailed. Cost: 15 µs a page. Raises: OrderError (import)."""
    function = user_function(name, PROCESSOR, awaited=True)

    async def process(visit: Visit) -> Step:
        for response in (visit.response, visit.archived):
            if response is not None:
                response.body.seal()
        # A copy that shares nothing mutable. It has no candidates, since they come later.
        given = replace(visit, links=list(visit.links), lost=list(visit.lost), discovered=[])
        values = {field: getattr(given, field) for field in _READ_ONLY}
        before = {field: list(value) if isinstance(value, list) else value for field, value in values.items()}
        step = await _call(function, given)
        if step is not None and type(step) is not Step:
            raise function.answered(step, "a Step or None")
        _check_untouched(function, given, before)
        is_stopped = step is Step.STOP
        visit.edited(
            _links(function, given, visit), _notes(function, given), stopped_by=name if is_stopped else visit.stopped_by
        )
        return Step.STOP if is_stopped else Step.PROCEED

    return process


async def _call(function: UserFunction, given: Visit) -> Any:
    """The function's result. Raises: UserFunctionFailed; FetchError, its verdict; CancelledError if the worker is cancelled."""
    task = _current_task()
    requests = 0 if task is None else task.cancelling()
    try:
        step = await function.function(given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if _current_task() is None:  # the loop is gone, and the worker is being destroyed
            raise
        if _is_cancelled(task, requests):
            raise asyncio.CancelledError from error
        is_fetch_error = isinstance(error, FetchError) and isinstance(getattr(error, "status", None), FetchStatus)
        if is_fetch_error and isinstance(getattr(error, "annotation", None), str):
            raise
        raise function.failed(error) from error
    if _is_cancelled(task, requests):
        raise asyncio.CancelledError
    return step


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _is_cancelled(task: asyncio.Task[Any] | None, requests: int) -> bool:
    """A cancellation was requested since then, and has not been taken back (as a time limit does)."""
    return task is not None and task.cancelling() > requests


def _check_untouched(function: UserFunction, given: Visit, before: dict[str, Any]) -> None:
    """The rest of the visit is as it was, and its bodies can still be read. Raises: UserFunctionFailed."""
    for field, value in before.items():
        if not _is_same(getattr(given, field, _MISSING), value):
            raise _spoilt(function, field, "may not be changed")
    for response in (given.response, given.archived):
        if response is not None and response.body.is_closed:
            raise _spoilt(function, "response.body", "may not be closed")


def _is_same(after: object, before: object) -> bool:
    """Compares by identity: objects that the function made might answer `==` by a method of their own."""
    if isinstance(before, list):
        return type(after) is list and len(after) == len(before) and all(map(operator.is_, after, before))
    if isinstance(before, int | str):
        return type(after) is type(before) and after == before
    return after is before


def _notes(function: UserFunction, given: Visit) -> tuple[str, ...]:
    notes = getattr(given, "notes", _MISSING)
    if not isinstance(notes, tuple | list) or not all(isinstance(note, str) for note in notes):
        raise _spoilt(function, "notes", "must be a tuple of texts")
    return tuple(notes)


def _links(function: UserFunction, given: Visit, visit: Visit) -> list[Link]:
    links = getattr(given, "links", _MISSING)
    if not isinstance(links, tuple | list):
        raise _spoilt(function, "links", "must be a list of links")
    ours = {id(link) for link in visit.links}
    for link in links:
        if id(link) in ours:
            continue
        is_link = isinstance(link, Link) and all(isinstance(part, str) for part in link)
        if not (is_link and link.hop in FOLLOWED and link.context.isprintable() and canonical(link.url) == link.url):
            raise _spoilt(function, "links", "must be links: a canonical URL, one letter of a hop, a context")
    return list(links)


def _spoilt(function: UserFunction, field: str, why: str) -> UserFunctionFailed:
    return UserFunctionFailed(function.role, function.name, f"has spoilt visit.{field}: it {why}")
