"""The verbs of `anabranch frontier`, `anabranch why`, and their options; what runs them is imported when they run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from anabranch.crawler.cli.option_types import Number, Text
from anabranch.crawler.orders.quantities import parse_duration

frontier = typer.Typer(
    help="Look at a job's queues and change them, while it is stopped or running.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: What `set-budget` takes beside a number.
_UNITS: Mapping[str, int | None] = {"unlimited": -1, "order": None}


def parse_seconds(text: str) -> float:
    """A duration above 0 as people write it, in seconds: `90s`, `2h`. Raises: typer.BadParameter."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not seconds:
        raise typer.BadParameter("must be more than 0")
    return seconds


def parse_moment(text: str) -> float:
    """A date, or a date and time, in the local zone unless it names one, as epoch seconds. Raises: typer.BadParameter."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise typer.BadParameter(f"must be like 2027-01-31 or 2027-01-31T14:00; not {text!r}") from error


def parse_units(text: str) -> int | None:
    """Cost units, -1 for a budget without end, None for the order's. Raises: typer.BadParameter."""
    if text in _UNITS:
        return _UNITS[text]
    if text.isascii() and text.isdecimal() and int(text) < 1 << 53:
        return int(text)
    raise typer.BadParameter(f"must be a whole number, or {' or '.join(_UNITS)}; not {text!r}")


Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's folder, or its name below jobs/.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's key, as ls shows it.")]
Host = Annotated[str, typer.Argument(metavar="HOST", help="The host, as in example.org.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@frontier.command()
def ls(
    job: Job,
    state: Annotated[
        Text, typer.Option(help="Only inactive, loading, ready, in-flight, snoozed, retired or paused ones.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Show so many queues.")] = 20,
    as_json: Json = False,
) -> None:
    """List the longest queues, then the totals, and why nothing runs."""
    _run("ls", job, {"state": state, "limit": limit}, as_json=as_json)


@frontier.command()
def show(
    job: Job,
    subject: Annotated[str, typer.Argument(metavar="QUEUE|URL", help="A queue's key, or a URL.")],
    as_json: Json = False,
) -> None:
    """Show why a queue or a URL is where it is, and the queue's gates."""
    _run("show", job, {"subject": subject}, as_json=as_json)


@frontier.command()
def dump(
    job: Job,
    output: Annotated[
        Text, typer.Option("-o", "--output", metavar="FILE", help="Write to this file (.gz: compressed).")
    ] = None,
) -> None:
    """Write all URLs, queued and ended, as JSON lines."""
    _run("dump", job, {"file": None if output == "-" else output})


@frontier.command()
def load(
    job: Job,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A dump, or Heritrix's frontier.recover; either may be .gz.")
    ],
    failures: Annotated[bool, typer.Option("--failures", help="Journal: what failed is not tried again.")] = False,
    disregarded: Annotated[
        bool, typer.Option("--disregarded", help="Journal: what was disregarded is not tried again.")
    ] = False,
) -> None:
    """Load URLs that another job or Heritrix knew: queued ones are queued, ended ones never fetched."""
    _run("load", job, {"file": file, "failures": failures, "disregarded": disregarded})


@frontier.command()
def block(
    job: Job,
    host: Host,
    for_: Annotated[
        Number, typer.Option("--for", metavar="TIME", parser=parse_seconds, help="So long, as in 30m or 2h.")
    ] = None,
    until: Annotated[
        Number, typer.Option(metavar="TIME", parser=parse_moment, help="Until then, as in 2027-01-31T14:00.")
    ] = None,
) -> None:
    """Fetch nothing more from a host, for a time or until it is unblocked."""
    if for_ is not None and until is not None:
        raise typer.BadParameter("--for and --until exclude each other; give one")
    _run("block", job, {"host": host, "for_s": for_, "until_s": until})


@frontier.command()
def unblock(job: Job, host: Host) -> None:
    """Take back every block of a host, also the one after 429 or 503."""
    _run("unblock", job, {"host": host})


@frontier.command()
def pause(job: Job, queue: Queue) -> None:
    """Serve nothing more of a queue until it is resumed."""
    _run("pause", job, {"queue": queue})


@frontier.command()
def resume(job: Job, queue: Queue) -> None:
    """Serve a queue again that was paused or retired."""
    _run("resume", job, {"queue": queue})


@frontier.command()
def retire(job: Job, queue: Queue) -> None:
    """Put a queue aside: the crawl may end without it; its URLs are kept."""
    _run("retire", job, {"queue": queue})


@frontier.command()
def set_budget(
    job: Job,
    queue: Queue,
    units: Annotated[str, typer.Argument(metavar="UNITS", help="A number, unlimited, or order: what the order says.")],
) -> None:
    """Give a queue a total budget of its own; it retires or wakes by it."""
    _run("set-budget", job, {"queue": queue, "units": parse_units(units)})


@frontier.command()
def rm(
    job: Job,
    url: Annotated[Text, typer.Option(metavar="REGEX", help="URLs in which this is found.")] = None,
    queue: Annotated[Text, typer.Option(metavar="QUEUE", help="URLs of this queue.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove queued URLs: they count as disregarded, and are never fetched."""
    if url is None and queue is None:
        raise typer.BadParameter("give --url REGEX, --queue QUEUE, or both")
    _run("rm", job, {"url": url, "queue": queue, "yes": yes})


def why(
    job: Job,
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL, as a seed is written.")],
    as_json: Json = False,
) -> None:
    """Say why a URL is where it is, and when it can be fetched at the earliest."""
    _run("why", job, {"url": url}, as_json=as_json)


def _run(verb: str, job: str, arguments: Mapping[str, Any], *, as_json: bool = False) -> None:
    from anabranch.crawler.cli.frontier import FrontierCommand, run_frontier  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_frontier(FrontierCommand(verb=verb, job=job, arguments=arguments, as_json=as_json)))
