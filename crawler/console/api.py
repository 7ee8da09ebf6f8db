"""`/api/v1`: the verbs and the facts of the commands, as JSON of the same shapes (`operate/facts.schema.json`).

A request has a token (`Authorization: Bearer …`). What cannot be done is answered by {"error": a line, "code": the exit code of
the command}. Streams are server-sent events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import chain
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Body, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.routing import Match

from anabranch.crawler.console.access import Holder
from anabranch.crawler.console.audit import seeds_note
from anabranch.crawler.console.bodies import (
    Block,
    Budget,
    NewJob,
    NewSeeds,
    NewTemplate,
    Retry,
    Setting,
    Start,
    Stop,
    Tags,
)
from anabranch.crawler.console.guard import HeadRequests
from anabranch.crawler.console.jobs import JobExists, NoSuchJob
from anabranch.crawler.console.routing import (
    REFUSALS,
    Console,
    Here,
    JsonAnswer,
    TokenRoute,
    Who,
    answers_of,
    refusal,
    still_has_token,
)
from anabranch.crawler.console.streams import EventStream, event, line_events, status_events
from anabranch.crawler.console.templates import NoSuchTemplate
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
#: Methods that a request may have; those that a path does not have are answered by 405.
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
#: A worker that drains is waited for this long.
_DRAIN_PATIENCE_S = 30.0

Name = Annotated[str, Field(description="A job, by its name.")]


#: The facts of a job that is started by hand.
NO_SCHEDULE: Facts = {
    "schedule": "", "zone": "UTC", "starts": "again", "next_s": None, "overdue": 0, "missed": 0, "runs": []
}  # fmt: skip

router = APIRouter(prefix="/api/v1", route_class=TokenRoute)


@router.get("/jobs", summary="The jobs", **answers_of("JobRow", is_list=True))
def jobs(here: Here) -> Any:
    """A row for each job."""
    return JsonAnswer(here.jobs.rows())


@router.post("/jobs", summary="Create a job", **answers_of("JobRow", status=201))
def create_job(here: Here, who: Who, asked: NewJob) -> Any:
    """Create a job from seeds and an order, and start its crawl in a process that outlives the console."""
    seeds = asked.seeds if isinstance(asked.seeds, str) else "\n".join(asked.seeds) + "\n"

    def do() -> Facts:
        template = here.templates.tables(asked.template) if asked.template else None
        made = here.jobs.create(asked.name, seeds, asked.order, template=template, tags=asked.tags, starts=asked.start)
        facts = {"warnings": [*made.warnings], "seeds": made.seeds, "refused": len(made.refused)}
        return {**here.jobs.row(asked.name), **facts}

    note = {"start": asked.start, **({"template": asked.template} if asked.template else {})}
    return _changed(here, who, "create", asked.name, note, do, status=201)


@router.get("/jobs/{name}", summary="The status of a job", **answers_of("Status"))
def status(here: Here, name: Name) -> Any:
    """Return the status of a running crawl, or the state in which a stopped job was left."""
    return JsonAnswer(here.jobs.job(name).status())


@router.delete("/jobs/{name}", summary="Move a job aside", **answers_of("Moved"))
def remove(here: Here, who: Who, name: Name) -> Any:
    """Rename its folder; nothing is deleted."""
    return _changed(here, who, "remove", name, {}, lambda: {"moved_to": here.jobs.remove(name)})


@router.post("/jobs/{name}/start", summary="Crawl a job", **answers_of("JobRow"))
def start(here: Here, who: Who, name: Name, asked: Annotated[Start, Body()] = Start()) -> Any:  # noqa: B008 - as FastAPI reads it
    """Start a separate process that crawls the job."""

    def do() -> Facts:
        here.jobs.start(name, again=asked.again)
        return here.jobs.row(name)

    return _changed(here, who, "start", name, asked.model_dump(), do)


@router.post("/jobs/{name}/pause", summary="Pause a crawl", **answers_of("Status"))
def pause(here: Here, who: Who, name: Name) -> Any:
    """Start no fetches until it is resumed."""
    return _changed(here, who, "pause", name, {}, lambda: here.jobs.job(name).steer("pause", {}))


@router.post("/jobs/{name}/resume", summary="Resume a crawl", **answers_of("Status"))
def resume(here: Here, who: Who, name: Name) -> Any:
    """Continue, even past the limit that paused it. The workers of a job in a database that is stopped may start again."""
    return _changed(here, who, "resume", name, {}, lambda: here.jobs.job(name).steer("resume", {}))


@router.post("/jobs/{name}/stop", summary="Stop a crawl", **answers_of("Status"))
def stop(here: Here, who: Who, name: Name, asked: Annotated[Stop, Body()] = Stop()) -> Any:  # noqa: B008
    """Let fetches under way end, then end the crawl. It can be started again."""
    arguments = asked.model_dump()
    return _changed(here, who, "stop", name, arguments, lambda: here.jobs.job(name).steer("stop", arguments))


@router.post("/jobs/{name}/seeds", summary="Add seeds", **answers_of("Seeds"))
def add(here: Here, who: Who, name: Name, asked: NewSeeds) -> Any:
    """Works on running and stopped jobs. A text that is not a URL is refused; the others are added."""
    do = partial(here.jobs.add, name, asked.seeds, force=asked.force)
    note = {**seeds_note(asked.seeds), **asked.model_dump(exclude_defaults=True, exclude={"seeds"})}
    return _changed(here, who, "add", name, note, do)


@router.get("/jobs/{name}/seeds/refused", summary="Lines that were no seeds", **answers_of("LogLines"))
def refused_seeds(here: Here, name: Name) -> Any:
    """The lines that were no seeds when the job was created, each with the reason behind a `#`."""
    return JsonAnswer({"lines": here.jobs.refused_seeds(name)})


@router.put("/jobs/{name}/tags", summary="Tag a job", **answers_of("JobRow"))
def tag(here: Here, who: Who, name: Name, asked: Tags) -> Any:
    """Give the job these tags instead of its own."""

    def do() -> Facts:
        here.jobs.set_tags(name, asked.tags)
        return here.jobs.row(name)

    return _changed(here, who, "tag", name, {"tags": asked.tags}, do)


@router.get("/templates", summary="The templates", **answers_of("Template", is_list=True))
def templates(here: Here) -> Any:
    """The orders that were saved for new jobs."""
    return JsonAnswer([here.templates.template(name)._asdict() for name in here.templates.names])


@router.put("/templates/{template}", summary="Save a template", **answers_of("Template"))
def save_template(here: Here, who: Who, template: str, asked: NewTemplate) -> Any:
    """Save an order, in place of the template of this name."""

    def do() -> Facts:
        return here.templates.save(template, asked.order)._asdict()

    return _changed(here, who, "template", "", {"template": template}, do)


@router.delete("/templates/{template}", summary="Remove a template", **answers_of("Removed"))
def remove_template(here: Here, who: Who, template: str) -> Any:
    """Jobs that were made with it keep their orders."""

    def do() -> Facts:
        return {"removed": here.templates.remove(template)}

    return _changed(here, who, "template-remove", "", {"template": template}, do)


@router.post("/jobs/{name}/retry", summary="Queue failures again", **answers_of("Retried"))
def retry(here: Here, who: Who, name: Name, asked: Annotated[Retry, Body()] = Retry()) -> Any:  # noqa: B008
    """Queue failures again, as `anabranch retry` does, of a running or stopped job.

    Limits, retired queues and blocks stay in force.
    """
    arguments = asked.model_dump(exclude_defaults=True)
    return _changed(here, who, "retry", name, arguments, lambda: here.jobs.retry(name, arguments))


@router.get("/jobs/{name}/schedule", summary="When a job is started", **answers_of("Schedule"))
def schedule(here: Here, name: Name) -> Any:
    """Return the schedule of a job, its next run and the last ones; `schedule` is empty for a job without one."""
    return JsonAnswer(here.schedule(name) or NO_SCHEDULE)


@router.get("/jobs/{name}/notices", summary="Notices that were not delivered", **answers_of("Notice", is_list=True))
def notices(here: Here, name: Name) -> Any:
    """List the notices of ended runs that the command or the webhook of the console has not taken."""
    return JsonAnswer([] if here.keeper is None else here.keeper.notices(name))


@router.get("/jobs/{name}/why", summary="Where a URL is, and why", **answers_of("Explained"))
def why(here: Here, name: Name, url: Annotated[str, Query(min_length=1)]) -> Any:
    """Explain the state of a URL, as `anabranch why` does."""
    return _answered(here, name, "why", {"url": url})


@router.get("/jobs/{name}/queues", summary="The longest queues", **answers_of("Queues"))
def queues(
    here: Here,
    name: Name,
    limit: Annotated[int, Query(ge=0, le=10_000)] = 20,
    state: Annotated[str | None, Query()] = None,
) -> Any:
    """List the queues, as `anabranch frontier ls` does."""
    return _answered(here, name, "ls", {"limit": limit, "state": state})


@router.get("/jobs/{name}/queues/{queue:path}", summary="A queue", **answers_of("Explained"))
def queue(here: Here, name: Name, queue: str) -> Any:
    """Explain one queue, as `anabranch frontier show` does."""
    return _answered(here, name, "show", {"subject": queue})


QueueVerb = Literal["pause", "resume", "retire"]


@router.post("/jobs/{name}/queues/{queue:path}/{verb}", summary="Change a queue", **answers_of("QueueChanged"))
def change_queue(here: Here, who: Who, name: Name, queue: str, verb: QueueVerb) -> Any:
    """Pause, resume or retire it."""
    return _commanded(here, who, name, verb, {"queue": queue})


@router.put("/jobs/{name}/queues/{queue:path}/budget", summary="A queue's budget", **answers_of("QueueChanged"))
def set_budget(here: Here, who: Who, name: Name, queue: str, asked: Budget) -> Any:
    """Set a queue's total budget. This may retire the queue or make it active again."""
    return _commanded(here, who, name, "set-budget", {"queue": queue, "units": asked.units})


@router.put("/jobs/{name}/hosts/{host}/block", summary="Block a host", **answers_of("GateChanged"))
def block(here: Here, who: Who, name: Name, host: str, asked: Annotated[Block, Body()] = Block()) -> Any:  # noqa: B008
    """Fetch nothing from it, for a time or until it is unblocked. This replaces any earlier block of it."""
    return _commanded(here, who, name, "block", {"host": host, "replaces": True, **asked.model_dump()})


@router.delete("/jobs/{name}/hosts/{host}/block", summary="Unblock a host", **answers_of("GateChanged"))
def unblock(here: Here, who: Who, name: Name, host: str) -> Any:
    """Remove every block of it, also that after 429 or 503."""
    return _commanded(here, who, name, "unblock", {"host": host})


@router.get("/jobs/{name}/order", summary="The order of a job", **answers_of("Order"))
def order(here: Here, name: Name) -> Any:
    """All sections and keys, as an object and as TOML."""
    found = here.jobs.job(name).order()
    return JsonAnswer({"order": found.model_dump(mode="json", by_alias=True), "toml": dump_order(found)})


@router.patch("/jobs/{name}/order", summary="Change the order of a job", **answers_of("Changes"))
def change_order(here: Here, who: Who, name: Name, asked: Annotated[dict[str, Setting], Body()]) -> Any:
    """Change the order, as `anabranch set` does: `{"limits.pages": 500}`; a key that ends with + adds to a list."""
    if not asked:
        raise UsageError('the body names no key; give an object like {"limits.pages": 500}')
    settings = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in asked.items()]
    return _changed(here, who, "set", name, asked, lambda: here.jobs.job(name).change_order(settings))


@router.get("/jobs/{name}/reports/{report}", summary="A report", **answers_of("Report"))
def report(here: Here, name: Name, report: str, limit: Annotated[int, Query(ge=0, le=100_000)] = 1000) -> Any:
    """Return a report, as `anabranch report` does."""
    return JsonAnswer(here.jobs.job(name).report({"name": report, "limit": limit}))


@router.get("/jobs/{name}/rounds", summary="Compare two rounds", **answers_of("Rounds"))
def rounds(
    here: Here,
    name: Name,
    before: Annotated[int | None, Query(ge=1)] = None,
    after: Annotated[int | None, Query(ge=1)] = None,
    change: Annotated[str, Query()] = "",
    limit: Annotated[int, Query(ge=0, le=100_000)] = 1000,
) -> Any:
    """URLs that are new, gone, changed, or answered with another status, as `anabranch report JOB rounds` lists them."""
    return JsonAnswer(here.jobs.compare_rounds(name, before, after, change=change, limit=limit).facts)


@router.get("/jobs/{name}/workers", summary="The workers of a job", **answers_of("Worker", is_list=True))
def workers(here: Here, name: Name) -> Any:
    """List the workers of a job that several workers can crawl; the list of any other job is empty."""
    return JsonAnswer(here.jobs.job(name).workers() or [])


@router.post("/jobs/{name}/workers/{worker}/drain", summary="Drain a worker", **answers_of("Worker", is_list=True))
def drain(here: Here, who: Who, name: Name, worker: str) -> Any:
    """It ends in order. The answer comes when it has ended; after 30 seconds an error does, and it drains all the same."""

    def do() -> Any:
        job = here.jobs.job(name)
        job.drain(worker, _DRAIN_PATIENCE_S)
        return job.workers()

    return _changed(here, who, "drain", name, {"worker": worker}, do)


@router.post(
    "/jobs/{name}/workers/{worker}/resume", summary="Let a worker come back", **answers_of("Worker", is_list=True)
)
def let_back(here: Here, who: Who, name: Name, worker: str) -> Any:
    """A worker of a database that was drained may join again when it is started."""

    def do() -> Any:
        job = here.jobs.job(name)
        job.steer("resume", {"worker": worker})
        return job.workers()

    return _changed(here, who, "resume", name, {"worker": worker}, do)


@router.get("/jobs/{name}/logs/{log}", summary="The end of a log", **answers_of("LogLines"))
def log_lines(
    here: Here,
    name: Name,
    log: LogName,
    lines: Annotated[int, Query(ge=1, le=10_000)] = 100,
    contains: Annotated[str, Query()] = "",
) -> Any:
    """The last lines, or of the last 4 MiB those that contain a text."""
    found = last_lines(here.jobs.log(name, log), _MOST_LOG_BYTES)
    return JsonAnswer({"lines": [line for line in found if contains in line][-lines:]})


_EVENTS: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {
        200: {"description": "server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        429: {"description": "the token has too many streams open"},
        **{code: facts for code, facts in answers_of("Error")["responses"].items() if code != 200},
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
            if not still_has_token(request):
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
            if not still_has_token(request):
                return
            if text:
                yield text
            elif not await asyncio.to_thread(folder.is_dir):
                yield event("error", _error_facts(NoSuchJob(name)))
                return

    return EventStream(here.streams, who, stream())


@router.get("/version", summary="The version of the console", **answers_of("Version"))
def version() -> Any:
    """A crawl may have another version."""
    return JsonAnswer({"version": VERSION})


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


metrics_router = APIRouter(route_class=TokenRoute)


@metrics_router.get(
    "/metrics",
    summary="The metrics of all jobs",
    response_class=PlainTextResponse,
    responses={code: refusal(code) for code in (401, 405, 422, 503)},
)
def metrics(here: Here) -> Any:
    """For Prometheus. All jobs are asked at the same time; of one that does not answer `anabranch_up` is 0."""
    found = here.jobs.all_metrics()
    kept = {} if here.keeper is None else here.keeper.numbers(found)
    numbers = {name: one and {**one, **kept.get(name, {})} for name, one in found.items()}
    return Response(exposition(numbers), media_type=CONTENT_TYPE)


# What the routes share


def _answered(here: Console, name: str, verb: str, arguments: dict[str, Any]) -> Response:
    return JsonAnswer(here.jobs.job(name).answer(verb, arguments).facts)


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
    return JsonAnswer(here.change(who, action, name, arguments, do), status)


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
    if isinstance(error, NoSuchJob | NoSuchTemplate | UnknownQueue):
        status = 404
    if isinstance(error, JobExists):
        status = 409
    return JsonAnswer({"error": str(error), "code": int(code)}, status)


async def _malformed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return JsonAnswer({"error": _fault_line(error.errors()), "code": int(ExitCode.USAGE)}, 400)


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
    return JsonAnswer({"error": words, "code": int(ExitCode.USAGE)}, error.status_code, headers)


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
                if operation["responses"].get("422", {}).get("description") != REFUSALS[422]:
                    operation["responses"].pop("422", None)  # FastAPI's own
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema
