"""What the routes of the API share: the console that they work on, who may ask, and how a question is bounded and answered."""

from __future__ import annotations

import asyncio
import json
from asyncio import Semaphore
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from weakref import WeakValueDictionary

from fastapi import Depends, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.types import Message

from anabranch.crawler.console.access import Access, ConsoleRole, Holder
from anabranch.crawler.console.audit import AuditLog, order_note
from anabranch.crawler.console.guard import IS_KNOWN
from anabranch.crawler.console.jobs import ConsoleJobs, NotStarted
from anabranch.crawler.console.templates import Templates
from anabranch.crawler.console.timekeeper import Timekeeper
from anabranch.crawler.console.watch import WatchedJobs
from anabranch.crawler.operate import Facts, FrontierError
from anabranch.crawler.outcomes.errors import CrawlerError

_MOST_BODY_BYTES = 8 << 20  #: JSON is whole in memory; more seeds are added in parts
#: Requests of one job at once; further ones wait this long. So a job that does not answer leaves threads to the others.
_MOST_THREADS_OF_JOB, _TURN_S = 4, 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Console:
    """The objects that the routes work on."""

    jobs: ConsoleJobs
    watch: WatchedJobs
    access: Access
    audit: AuditLog
    keeper: Timekeeper | None = None  #: None: no jobs are started, and no ends noticed
    streams: Counter[Holder] = field(default_factory=Counter)  #: of whom how many are open
    turns: WeakValueDictionary[str, Semaphore] = field(default_factory=WeakValueDictionary)  #: of requests, by job

    @property
    def templates(self) -> Templates:
        """The orders that were saved, in the console's own folder."""
        return Templates(self.audit.path.parent / "templates")

    def change(self, who: Holder, action: str, job: str, arguments: Mapping[str, object], do: Callable[[], T]) -> T:
        """Do it and note it in the audit log, also if it fails (blocks)."""
        try:
            result = do()
        except BaseException as error:
            ordered = self._ordered(action, job) if isinstance(error, NotStarted) else {}
            self.audit.note(who, action, job, {**arguments, **ordered}, str(error) or repr(error))
            raise
        finally:
            self.watch.forget(job)
            if self.keeper is not None:
                self.keeper.wake()
        self.audit.note(who, action, job, {**arguments, **self._ordered(action, job)})
        return result

    def schedule(self, job: str) -> Facts | None:
        """The facts of a job's schedule; None without one. Raises: CrawlerError, FrontierError."""
        return None if self.keeper is None else self.keeper.schedule(job)

    def _ordered(self, action: str, job: str) -> dict[str, object]:
        """The order of a job that was created or changed, and the seeds of a new one, for the audit log."""
        if action not in {"create", "set"}:
            return {}
        try:
            order = order_note(self.jobs.job(job).order())
            return {"order": order, **({"seeds": self.jobs.seed_count(job)} if action == "create" else {})}
        except (CrawlerError, FrontierError):  # it was removed meanwhile, or its database is away
            return {}


class JsonAnswer(JSONResponse):
    """In ASCII, so that whatever a site or a client wrote can be sent, also half a surrogate pair."""

    def render(self, content: Any) -> bytes:
        """The text."""
        return json.dumps(content).encode()


def _console(request: Request) -> Console:
    console: Console = request.app.state.console
    return console


def _holder(request: Request) -> Holder:
    """The holder of the token. Raises: HTTPException, 401 without a valid one and 403 if a reader wants to change something."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    found = _console(request).access.holder(text.strip()) if kind.lower() == "bearer" else None
    if found is None:
        raise HTTPException(
            401, "no valid token; send the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
        )
    request.scope.setdefault("state", {})[IS_KNOWN] = True
    if found.role is ConsoleRole.READER and request.method not in {"GET", "HEAD"}:
        raise HTTPException(403, f"the token {found.name} is read-only")
    return found


def still_has_token(request: Request) -> bool:
    """The token of a stream may be revoked while it lasts."""
    try:
        _holder(request)
    except (HTTPException, CrawlerError):
        return False
    return True


def _known(request: Request) -> Holder:
    found: Holder = request.state.holder
    return found


@asynccontextmanager
async def _turn(here: Console, job: str) -> AsyncIterator[None]:
    """The turn of a request of a job. Raises: HTTPException, 503 if the requests before it take too long."""
    turn = here.turns.setdefault(job, Semaphore(_MOST_THREADS_OF_JOB))
    try:
        await asyncio.wait_for(turn.acquire(), _TURN_S)
    except TimeoutError as error:
        raise HTTPException(
            503, f"{job}: {_MOST_THREADS_OF_JOB} requests wait for its answer; ask again later"
        ) from error
    try:
        yield
    finally:
        turn.release()


def _bounded(request: Request) -> Request:
    """The request, of whose body no more is read than it may have. Raises: HTTPException, 413 if it says that it has more."""
    refused = HTTPException(413, f"the body has more than {_MOST_BODY_BYTES >> 20} MiB; add seeds in parts")
    read = 0

    async def receive() -> Message:
        nonlocal read
        message = await request.receive()
        read += len(message.get("body", b""))
        if read > _MOST_BODY_BYTES:
            raise refused
        return message

    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > _MOST_BODY_BYTES:
        raise refused
    return Request(request.scope, receive)


class TokenRoute(APIRoute):
    """A route that asks for the token, and whether there is such a job, before it reads the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's, behind the questions."""
        answer = super().get_route_handler()
        known = {parameter.alias for parameter in self.dependant.query_params}

        async def answer_to_holder(request: Request) -> Response:
            request.state.holder = _holder(request)
            if unknown := request.query_params.keys() - known:
                words = (
                    f"the parameters are: {', '.join(sorted(known))}" if known else "this address takes no parameters"
                )
                raise HTTPException(422, f"{min(unknown)}: is no query parameter; {words}")
            try:
                job = request.path_params.get("name")
                if job is not None:  # before all that may be wrong with the request
                    await asyncio.to_thread(_console(request).jobs.directory, str(job))
                bounded = _bounded(request)
                if job is None or self.path.endswith("/events"):  # streams share one question
                    return await answer(bounded)
                async with _turn(_console(request), str(job)):
                    return await answer(bounded)
            except UnicodeEncodeError as error:  # JSON can have it, and no file or URL
                raise HTTPException(400, "a text has an unpaired surrogate; send valid Unicode") from error

        return answer_to_holder


Here = Annotated[Console, Depends(_console)]
Who = Annotated[Holder, Depends(_known)]


def answers_of(kind: str, *, is_list: bool = False, status: int = 200) -> dict[str, Any]:
    """The description of a route that answers facts of this kind."""
    ref: dict[str, Any] = {"$ref": f"#/components/schemas/{kind}"}
    schema = {"type": "array", "items": ref} if is_list else ref
    refused = {code: refusal(code) for code in REFUSALS}
    answered = {"description": "done", "content": {"application/json": {"schema": schema}}}
    return {"responses": {status: answered, **refused}, "status_code": status, "response_class": JsonAnswer}


def refusal(code: int) -> dict[str, Any]:
    """The description of an answer that refuses a request."""
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    return {"description": REFUSALS[code], **error}


REFUSALS = {
    400: "the request does not fit this job, or the order is wrong",
    401: "no valid token",
    403: "the token may not do this",
    404: "there is no such job, queue or request",
    405: "the path has other methods, which the header Allow names",
    409: "the job is in use, or there is one of this name",
    413: "the body is too large",
    422: "there is no such query parameter",
    503: "the job or its store does not answer",
    507: "the disk is full",
}
