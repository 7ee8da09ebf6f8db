"""Processors of the operator's own: `[job] processors`, functions that see each fetched page before it is written.

    async def function(visit: Visit) -> Step | None

None is `Step.PROCEED`; after `Step.STOP` the URL has its line in `crawl.log`, which names the function, and nothing else: it
stands neither in `pages.jsonl` nor `links.jsonl` nor a WARC file, and its links are not followed.

A function gets a visit of its own to look at, with lists of its own. What it does to its `links` and `notes` is taken over when
it makes sense; anything else that it changed is a fault of it, which costs the page and harms nothing: ours was never touched.
The bodies alone are shared, since they may be files: they are sealed before, and closing one is noticed.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from anabranch.crawler.chain import Processor, Step
from anabranch.crawler.extracting.links import FOLLOWED, Link
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.ownfunctions import PROCESSOR, OwnFunction, OwnFunctionFailed, own_function
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.urls.parsing import canonical
from anabranch.crawler.visit import Visit

#: What a function may change.
_ITS_OWN = frozenset({"links", "notes"})
_OURS = tuple(field.name for field in fields(Visit) if field.name not in _ITS_OWN)
_GONE = object()


def own_processors(names: Sequence[str]) -> tuple[Processor, ...]:
    """The processors of these names, in their order. Raises: OrderError, one line that names the key."""
    return tuple(own_processor(name) for name in names)


def own_processor(name: str) -> Processor:
    """One of them. What it does wrong becomes an OwnFunctionFailed. Raises: OrderError if it is not to be had, or not async.

    Cost, beside the function's: 15 µs a page, and 3 µs for each link that it adds.
    """
    own = own_function(name, PROCESSOR, awaited=True)

    async def process(visit: Visit) -> Step:
        given = _to_look_at(visit)
        expected = {field: _as_it_is(getattr(given, field)) for field in _OURS}
        answer = await _answer(own, given)
        if answer is not None and type(answer) is not Step:
            raise own.answered(answer, "a Step or None")
        _check_untouched(own, given, expected)
        links, notes = _links(own, given, visit), _notes(own, given)
        visit.links, visit.notes = links, notes
        if answer is not Step.STOP:
            return Step.PROCEED
        visit.stopped_by = name
        return Step.STOP

    process.__name__ = name  # what reports call it by
    return process


def _to_look_at(visit: Visit) -> Visit:
    """A copy that shares nothing that can be changed; of the candidates it has none, since they come later."""
    for answer in (visit.response, visit.earlier):
        if answer is not None:
            answer.body.seal()
    return replace(visit, links=list(visit.links), lost=list(visit.lost), discovered=[])


def _as_it_is(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


async def _answer(own: OwnFunction, given: Visit) -> Any:
    """What the function answers. Raises: OwnFunctionFailed; FetchError, a verdict on the page with a status of its own.

    Who cancels the worker has the last word: the function may neither keep that to itself nor make something else of it. A
    cancellation that nobody asked for is the function's own: it waited for a task that was cancelled, say.
    """
    task = _task()
    before = 0 if task is None else task.cancelling()
    try:
        answer = await own.function(given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if _task() is None:  # the loop is gone, and the worker is being taken down
            raise
        if _is_cancelled(task, before):
            raise asyncio.CancelledError from error
        if isinstance(error, FetchError) and _is_verdict(error):
            raise
        raise own.failed(error) from error
    if _is_cancelled(task, before):
        raise asyncio.CancelledError
    return answer


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _is_cancelled(task: asyncio.Task[Any] | None, before: int) -> bool:
    """Somebody has asked for it since then, and has not taken it back (as a time limit does)."""
    return task is not None and task.cancelling() > before


def _is_verdict(error: FetchError) -> bool:
    """It has what the logs and the Frontier want of it."""
    status, annotation = getattr(error, "status", None), getattr(error, "annotation", None)
    return isinstance(status, FetchStatus) and isinstance(annotation, str)


def _check_untouched(own: OwnFunction, given: Visit, expected: dict[str, Any]) -> None:
    """The rest of the visit is as it was, and its bodies can still be read. Raises: OwnFunctionFailed."""
    for field, before in expected.items():
        if not _is_same(getattr(given, field, _GONE), before):
            raise _spoilt(own, field, "may not be changed")
    for answer in (given.response, given.earlier):
        if answer is not None and answer.body.is_closed:
            raise _spoilt(own, "response.body", "may not be closed")


def _is_same(after: object, before: object) -> bool:
    """Nothing that the function made is asked whether it is equal: that might be answered by a method of its own."""
    if isinstance(before, list):
        return type(after) is list and len(after) == len(before) and all(map(operator.is_, after, before))
    if isinstance(before, int | str):
        return type(after) is type(before) and after == before
    return after is before


def _notes(own: OwnFunction, given: Visit) -> tuple[str, ...]:
    notes = getattr(given, "notes", _GONE)
    if not isinstance(notes, tuple | list) or not all(isinstance(note, str) for note in notes):
        raise _spoilt(own, "notes", "must be a tuple of texts")
    return tuple(notes)


def _links(own: OwnFunction, given: Visit, visit: Visit) -> list[Link]:
    links = getattr(given, "links", _GONE)
    if not isinstance(links, tuple | list):
        raise _spoilt(own, "links", "must be a list of links")
    known = {id(link) for link in visit.links}
    if not all(id(link) in known or _is_link(link) for link in links):
        raise _spoilt(own, "links", "must be links: a canonical URL, one letter of a hop, a context")
    return list(links)


def _is_link(link: object) -> bool:
    """It is one that reading a page could have given."""
    if not isinstance(link, Link) or not all(isinstance(part, str) for part in link):
        return False
    return link.hop in FOLLOWED and link.context.isprintable() and canonical(link.url) == link.url


def _spoilt(own: OwnFunction, field: str, why: str) -> OwnFunctionFailed:
    return OwnFunctionFailed(own.role, own.name, f"has spoilt visit.{field}: it {why}")
