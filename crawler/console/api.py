"""`/api/v1`: the verbs and the facts of the commands, as JSON of the same shapes (`operate/facts.schema.json`).

A request has a token (`Authorization: Bearer …`). What cannot be done is answered by {"error": a line, "code": the exit code of
the command}. Streams are server-sent events.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import Semaphore
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar, get_args
from weakref import WeakValueDictionary

from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.routing import Match
from starlette.types import Message

from anabranch.crawler.console.access import Access, ConsoleRole, Holder
from anabranch.crawler.console.audit import AuditLog, order_note, seeds_note
from anabranch.crawler.console.bodies import Block, Budget, NewJob, NewSeeds, Retry, Setting, Start, Stop
from anabranch.crawler.console.guard import IS_KNOWN, HeadRequests
from anabranch.crawler.console.jobs import ConsoleJobs, JobExists, NoSuchJob, NotStarted
from anabranch.crawler.console.streams import EventStream, event, line_events, status_events
from anabranch.crawler.console.timekeeper import Timekeeper
from anabranch.crawler.console.watch import WatchedJobs
from anabranch.crawler.operate import Facts, FrontierError, JobIsRunning, UnknownQueue
from anabranch.crawler.order.order import dump_order
from anabranch.crawler.order.sections import VERSION
from anabranch.crawler.outcomes.endings import failure_code
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, JobInUse, UsageError
from anabranch.crawler.report.exposition import CONTENT_TYPE, exposition
from anabranch.crawler.report.logtail import LogFollower, last_lines

#: Exit code of a command -> status of an answer; 503 for others.
_STATUSES = {ExitCode.USAGE: 400, ExitCode.BAD_ORDER: 400, ExitCode.NO_SEED_ANSWERED: 400, ExitCode.DISK_FULL: 507}
#: The logs of a job, by the name in a URL.
LogName = Literal["crawl.log", "errors.jsonl", "progress-statistics.log", "console.out"]
LOGS: tuple[str, ...] = get_args(LogName)
_MOST_LOG_BYTES = 4 << 20
_MOST_BODY_BYTES = 8 << 20  #: JSON is whole in memory; more seeds are added in parts
#: Methods that a request may have; those that a path does not have are answered by 405.
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
#: Requests of one job at once; further ones wait this long. So a job that does not answer leaves threads to the others.
_MOST_THREADS_OF_JOB, _TURN_S = 4, 10.0
#: A worker that drains is waited for this long.
_DRAIN_PATIENCE_S = 30.0

Name = Annotated[str, Field(description="A job, by its name.")]


#: The facts of a job that is started by hand.
NO_SCHEDULE: Facts = {
    "schedule": "", "zone": "UTC", "starts": "again", "next_s": None, "overdue": 0, "missed": 0, "runs": []
}  # fmt: skip

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


class _Json(JSONResponse):
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


def _still_has_token(request: Request) -> bool:
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


class _TokenRoute(APIRoute):
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


def _answers(kind: str, *, is_list: bool = False, status: int = 200) -> dict[str, Any]:
    """The description of a route that answers facts of this kind."""
    ref: dict[str, Any] = {"$ref": f"#/components/schemas/{kind}"}
    schema = {"type": "array", "items": ref} if is_list else ref
    refused = {code: _refusal(code) for code in _REFUSALS}
    answered = {"description": "done", "content": {"application/json": {"schema": schema}}}
    return {"responses": {status: answered, **refused}, "status_code": status, "response_class": _Json}


def _refusal(code: int) -> dict[str, Any]:
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    return {"description": _REFUSALS[code], **error}


_REFUSALS = {
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

router = APIRouter(prefix="/api/v1", route_class=_TokenRoute)


@router.get("/jobs", summary="The jobs", **_answers("JobRow", is_list=True))
def jobs(here: Here) -> Any:
    """A row for each job."""
    return _Json(here.jobs.rows())


@router.post("/jobs", summary="Create a job", **_answers("JobRow", status=201))
def create_job(here: Here, who: Who, asked: NewJob) -> Any:
    """Create a job from seeds and an order, and start its crawl in a process that outlives the console."""
    seeds = asked.seeds if isinstance(asked.seeds, str) else "\n".join(asked.seeds) + "\n"

    def do() -> Facts:
        warnings = here.jobs.create(asked.name, seeds, asked.order, starts=asked.start)
        return {**here.jobs.row(asked.name), "warnings": warnings}

    return _changed(here, who, "create", asked.name, {"start": asked.start}, do, status=201)


@router.get("/jobs/{name}", summary="The status of a job", **_answers("Status"))
def status(here: Here, name: Name) -> Any:
    """Return the status of a running crawl, or the state in which a stopped job was left."""
    return _Json(here.jobs.job(name).status())


@router.delete("/jobs/{name}", summary="Move a job aside", **_answers("Moved"))
def remove(here: Here, who: Who, name: Name) -> Any:
    """Rename its folder; nothing is deleted."""
    return _changed(here, who, "remove", name, {}, lambda: {"moved_to": here.jobs.remove(name)})


@router.post("/jobs/{name}/start", summary="Crawl a job", **_answers("JobRow"))
def start(here: Here, who: Who, name: Name, asked: Annotated[Start, Body()] = Start()) -> Any:  # noqa: B008 - as FastAPI reads it
    """Start a separate process that crawls the job."""

    def do() -> Facts:
        here.jobs.start(name, again=asked.again)
        return here.jobs.row(name)

    return _changed(here, who, "start", name, asked.model_dump(), do)


@router.post("/jobs/{name}/pause", summary="Pause a crawl", **_answers("Status"))
def pause(here: Here, who: Who, name: Name) -> Any:
    """Start no fetches until it is resumed."""
    return _changed(here, who, "pause", name, {}, lambda: here.jobs.job(name).steer("pause", {}))


@router.post("/jobs/{name}/resume", summary="Resume a crawl", **_answers("Status"))
def resume(here: Here, who: Who, name: Name) -> Any:
    """Continue, even past the limit that paused it. The workers of a job in a database that is stopped may start again."""
    return _changed(here, who, "resume", name, {}, lambda: here.jobs.job(name).steer("resume", {}))


@router.post("/jobs/{name}/stop", summary="Stop a crawl", **_answers("Status"))
def stop(here: Here, who: Who, name: Name, asked: Annotated[Stop, Body()] = Stop()) -> Any:  # noqa: B008
    """Let fetches under way end, then end the crawl. It can be started again."""
    arguments = asked.model_dump()
    return _changed(here, who, "stop", name, arguments, lambda: here.jobs.job(name).steer("stop", arguments))


@router.post("/jobs/{name}/seeds", summary="Add seeds", **_answers("Seeds"))
def add(here: Here, who: Who, name: Name, asked: NewSeeds) -> Any:
    """Works on running and stopped jobs. A text that is not a URL is refused; the others are added."""
    do = partial(here.jobs.add, name, asked.seeds, force=asked.force)
    note = {**seeds_note(asked.seeds), **asked.model_dump(exclude_defaults=True, exclude={"seeds"})}
    return _changed(here, who, "add", name, note, do)


@router.post("/jobs/{name}/retry", summary="Queue failures again", **_answers("Retried"))
def retry(here: Here, who: Who, name: Name, asked: Annotated[Retry, Body()] = Retry()) -> Any:  # noqa: B008
    """Queue failures again, as `anabranch retry` does, of a running or stopped job.

    Limits, retired queues and blocks stay in force.
    """
    arguments = asked.model_dump(exclude_defaults=True)
    return _changed(here, who, "retry", name, arguments, lambda: here.jobs.retry(name, arguments))


@router.get("/jobs/{name}/schedule", summary="When a job is started", **_answers("Schedule"))
def schedule(here: Here, name: Name) -> Any:
    """Return the schedule of a job, its next run and the last ones; `schedule` is empty for a job without one."""
    return _Json(here.schedule(name) or NO_SCHEDULE)


@router.get("/jobs/{name}/notices", summary="Notices that were not delivered", **_answers("Notice", is_list=True))
def notices(here: Here, name: Name) -> Any:
    """List the notices of ended runs that the command or the webhook of the console has not taken."""
    return _Json([] if here.keeper is None else here.keeper.notices(name))


@router.get("/jobs/{name}/why", summary="Where a URL is, and why", **_answers("Explained"))
def why(here: Here, name: Name, url: Annotated[str, Query(min_length=1)]) -> Any:
    """Explain the state of a URL, as `anabranch why` does."""
    return _answered(here, name, "why", {"url": url})


@router.get("/jobs/{name}/queues", summary="The longest queues", **_answers("Queues"))
def queues(
    here: Here,
    name: Name,
    limit: Annotated[int, Query(ge=0, le=10_000)] = 20,
    state: Annotated[str | None, Query()] = None,
) -> Any:
    """List the queues, as `anabranch frontier ls` does."""
    return _answered(here, name, "ls", {"limit": limit, "state": state})


@router.get("/jobs/{name}/queues/{queue:path}", summary="A queue", **_answers("Explained"))
def queue(here: Here, name: Name, queue: str) -> Any:
    """Explain one queue, as `anabranch frontier show` does."""
    return _answered(here, name, "show", {"subject": queue})


QueueVerb = Literal["pause", "resume", "retire"]


@router.post("/jobs/{name}/queues/{queue:path}/{verb}", summary="Change a queue", **_answers("QueueChanged"))
def change_queue(here: Here, who: Who, name: Name, queue: str, verb: QueueVerb) -> Any:
    """Pause, resume or retire it."""
    return _commanded(here, who, name, verb, {"queue": queue})


@router.put("/jobs/{name}/queues/{queue:path}/budget", summary="A queue's budget", **_answers("QueueChanged"))
def set_budget(here: Here, who: Who, name: Name, queue: str, asked: Budget) -> Any:
    """Set a queue's total budget. This may retire the queue or make it active again."""
    return _commanded(here, who, name, "set-budget", {"queue": queue, "units": asked.units})


@router.put("/jobs/{name}/hosts/{host}/block", summary="Block a host", **_answers("GateChanged"))
def block(here: Here, who: Who, name: Name, host: str, asked: Annotated[Block, Body()] = Block()) -> Any:  # noqa: B008
    """Fetch nothing from it, for a time or until it is unblocked. This replaces any earlier block of it."""
    return _commanded(here, who, name, "block", {"host": host, "replaces": True, **asked.model_dump()})


@router.delete("/jobs/{name}/hosts/{host}/block", summary="Unblock a host", **_answers("GateChanged"))
def unblock(here: Here, who: Who, name: Name, host: str) -> Any:
    """Remove every block of it, also that after 429 or 503."""
    return _commanded(here, who, name, "unblock", {"host": host})


@router.get("/jobs/{name}/order", summary="The order of a job", **_answers("Order"))
def order(here: Here, name: Name) -> Any:
    """All sections and keys, as an object and as TOML."""
    found = here.jobs.job(name).order()
    return _Json({"order": found.model_dump(mode="json", by_alias=True), "toml": dump_order(found)})


@router.patch("/jobs/{name}/order", summary="Change the order of a job", **_answers("Changes"))
def change_order(here: Here, who: Who, name: Name, asked: Annotated[dict[str, Setting], Body()]) -> Any:
    """Change the order, as `anabranch set` does: `{"limits.pages": 500}`; a key that ends with + adds to a list."""
    if not asked:
        raise UsageError('the body names no key; give an object like {"limits.pages": 500}')
    settings = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in asked.items()]
    return _changed(here, who, "set", name, asked, lambda: here.jobs.job(name).change_order(settings))


@router.get("/jobs/{name}/reports/{report}", summary="A report", **_answers("Report"))
def report(here: Here, name: Name, report: str, limit: Annotated[int, Query(ge=0, le=100_000)] = 1000) -> Any:
    """Return a report, as `anabranch report` does."""
    return _Json(here.jobs.job(name).report({"name": report, "limit": limit}))


@router.get("/jobs/{name}/workers", summary="The workers of a job", **_answers("Worker", is_list=True))
def workers(here: Here, name: Name) -> Any:
    """List the workers of a job that several workers can crawl; the list of any other job is empty."""
    return _Json(here.jobs.job(name).workers() or [])


@router.post("/jobs/{name}/workers/{worker}/drain", summary="Drain a worker", **_answers("Worker", is_list=True))
def drain(here: Here, who: Who, name: Name, worker: str) -> Any:
    """It ends in order. The answer comes when it has ended; after 30 seconds an error does, and it drains all the same."""

    def do() -> Any:
        job = here.jobs.job(name)
        job.drain(worker, _DRAIN_PATIENCE_S)
        return job.workers()

    return _changed(here, who, "drain", name, {"worker": worker}, do)


@router.post(
    "/jobs/{name}/workers/{worker}/resume", summary="Let a worker come back", **_answers("Worker", is_list=True)
)
def let_back(here: Here, who: Who, name: Name, worker: str) -> Any:
    """A worker of a database that was drained may join again when it is started."""

    def do() -> Any:
        job = here.jobs.job(name)
        job.steer("resume", {"worker": worker})
        return job.workers()

    return _changed(here, who, "resume", name, {"worker": worker}, do)


@router.get("/jobs/{name}/logs/{log}", summary="The end of a log", **_answers("LogLines"))
def log_lines(
    here: Here,
    name: Name,
    log: LogName,
    lines: Annotated[int, Query(ge=1, le=10_000)] = 100,
    contains: Annotated[str, Query()] = "",
) -> Any:
    """The last lines, or of the last 4 MiB those that contain a text."""
    found = last_lines(here.jobs.log(name, log), _MOST_LOG_BYTES)
    return _Json({"lines": [line for line in found if contains in line][-lines:]})


_EVENTS: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {
        200: {"description": "server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        429: {"description": "the token has too many streams open"},
        **{code: facts for code, facts in _answers("Error")["responses"].items() if code != 200},
    },
}


@router.get("/jobs/{name}/events", summary="The status of a job, as events", **_EVENTS)
async def events(
    here: Here, who: Who, request: Request, name: Name, every_s: Annotated[float, Query(ge=0.5, le=3600)] = 2.0
) -> Any:
    """An event `status` at each interval, with facts up to 2 s old, also when the crawl has ended; it ends with the job."""
    await asyncio.to_thread(here.jobs.job, name)

    def look() -> tuple[str, Facts, bool]:
        try:
            return "status", here.watch.answer(name), False
        except (CrawlerError, FrontierError) as error:
            return "error", _error_facts(error), isinstance(error, NoSuchJob)

    async def stream() -> AsyncIterator[str]:
        async for text in status_events(look, every_s):
            if not _still_has_token(request):
                return
            yield text

    return EventStream(here.streams, who, stream())


@router.get("/jobs/{name}/logs/{log}/events", summary="New lines of a log, as events", **_EVENTS)
async def log_events(
    here: Here, who: Who, request: Request, name: Name, log: LogName, contains: Annotated[str, Query()] = ""
) -> Any:
    """An event `line` for each line that is added, if it contains the text; it ends with the job.

    With the header `Last-Event-ID` all lines since that event come first.
    """
    path = await asyncio.to_thread(here.jobs.log, name, log)
    folder = path.parent.parent

    async def stream() -> AsyncIterator[str]:
        async for text in line_events(LogFollower(path), contains, request.headers.get("last-event-id", "")):
            if not _still_has_token(request):
                return
            if text:
                yield text
            elif not await asyncio.to_thread(folder.is_dir):
                yield event("error", _error_facts(NoSuchJob(name)))
                return

    return EventStream(here.streams, who, stream())


@router.get("/version", summary="The version of the console", **_answers("Version"))
def version() -> Any:
    """A crawl may have another version."""
    return _Json({"version": VERSION})


@router.api_route("", methods=_METHODS, include_in_schema=False)
@router.api_route("/{rest:path}", methods=_METHODS, include_in_schema=False)
def nothing(request: Request, rest: str = "") -> Any:
    """The last route: what the others do not know is no page for browsers."""
    allowed = _allowed_methods(request)
    if allowed:
        raise HTTPException(405)
    raise HTTPException(404, f"/api/v1/{rest}: no such endpoint; see /api/v1/openapi.json")


def _allowed_methods(request: Request) -> str:
    """The methods that other routes have for the path of a request; empty if there is no such path."""
    known = [*router.routes, *metrics_router.routes]
    routes = (route for route in known if isinstance(route, APIRoute) and route.endpoint is not nothing)
    fitting = [route.methods or () for route in routes if route.matches(request.scope)[0] is Match.PARTIAL]
    methods = set(chain.from_iterable(fitting))
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


metrics_router = APIRouter(route_class=_TokenRoute)


@metrics_router.get(
    "/metrics",
    summary="The metrics of all jobs",
    response_class=PlainTextResponse,
    responses={code: _refusal(code) for code in (401, 405, 422, 503)},
)
def metrics(here: Here) -> Any:
    """For Prometheus. All jobs are asked at the same time; of one that does not answer `anabranch_up` is 0."""
    found = here.jobs.all_metrics()
    kept = {} if here.keeper is None else here.keeper.numbers(found)
    numbers = {name: one and {**one, **kept.get(name, {})} for name, one in found.items()}
    return Response(exposition(numbers), media_type=CONTENT_TYPE)


# What the routes share


def _answered(here: Console, name: str, verb: str, arguments: dict[str, Any]) -> Response:
    return _Json(here.jobs.job(name).answer(verb, arguments).facts)


def _commanded(here: Console, who: Holder, name: str, verb: str, arguments: dict[str, Any]) -> Response:
    return _changed(here, who, verb, name, arguments, lambda: here.jobs.job(name).answer(verb, arguments).facts)


def _changed(
    here: Console,
    who: Holder,
    action: str,
    name: str,
    arguments: dict[str, Any],
    do: Callable[[], Any],
    status: int = 200,
) -> Response:
    """The answer to a change, which the audit log notes."""
    return _Json(here.change(who, action, name, arguments, do), status)


def _error_facts(error: Exception) -> Facts:
    return {"error": str(error), "code": int(failure_code(error))}


# The application


def api_app(console: Console) -> FastAPI:
    """An application with the routes of the API, and nothing else."""
    app = FastAPI(title="Anabranch", version=VERSION, openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None)
    app.state.console = console
    app.add_middleware(HeadRequests)
    app.include_router(router)
    app.include_router(metrics_router)
    app.add_exception_handler(CrawlerError, _refused)
    app.add_exception_handler(FrontierError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(AnyHTTPException, _http_error)
    app.openapi = partial(_openapi, app)  # type: ignore[method-assign]  # as FastAPI's documentation has it
    return app


async def _refused(_request: Request, error: Exception) -> Response:
    code = failure_code(error)
    status = _STATUSES.get(code, 409 if isinstance(error, JobInUse | JobIsRunning) else 503)
    if isinstance(error, NoSuchJob | UnknownQueue):
        status = 404
    if isinstance(error, JobExists):
        status = 409
    return _Json({"error": str(error), "code": int(code)}, status)


async def _malformed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _Json({"error": _fault_line(error.errors()), "code": int(ExitCode.USAGE)}, 400)


def _fault_line(faults: Sequence[Mapping[str, Any]]) -> str:
    """The line for the first key at fault; a key that takes several types has a fault for each of them. Pure."""
    first = faults[0]
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first['ctx']['error'].lower()} at character {first['loc'][1]}"
    place = first["loc"][:2]
    words = [fault["msg"].lower().removeprefix("input should be ") for fault in faults if fault["loc"][:2] == place]
    start = "input should be " if first["msg"].lower().startswith("input should be ") else ""
    return f"{place[1] if len(place) > 1 else 'the body'}: {start}{' or '.join(dict.fromkeys(words))}"


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    words, headers = str(error.detail), error.headers
    if error.status_code == 405 and (allowed := _allowed_methods(request)):
        words = f"{request.method} {request.url.path}: no such endpoint; the methods of this path are: {allowed}"
        headers = {"Allow": allowed}
    return _Json({"error": words, "code": int(ExitCode.USAGE)}, error.status_code, headers)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The document: FastAPI's of the routes, with the shapes of the facts."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemas = document["components"]["schemas"]
        text = (files("anabranch.crawler.operate") / "facts.schema.json").read_text()
        schemas |= json.loads(text.replace("#/$defs/", "#/components/schemas/"))["$defs"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for route in document["paths"].values():
            for operation in route.values():
                if operation["responses"].get("422", {}).get("description") != _REFUSALS[422]:
                    operation["responses"].pop("422", None)  # FastAPI's own
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema
