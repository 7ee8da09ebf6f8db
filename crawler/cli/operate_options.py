"""The verbs that an operator has for a crawl as a whole, and their options; what runs them is imported when they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from anabranch.crawler.cli.option_types import Texts

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's folder, or its name below jobs/.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def pause(job: Job) -> None:
    """Have a running crawl begin no more fetches, until it is resumed or ends."""
    _run("pause", job)


def resume(job: Job) -> None:
    """Have a paused crawl go on, beyond the limit that paused it, too."""
    _run("resume", job)


def stop(
    job: Job,
    now: Annotated[bool, typer.Option("--now", help="Give up the fetches that are under way.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Come back when the crawl has ended.")] = False,
) -> None:
    """End a running crawl in order: fetches under way may end; the same command goes on later."""
    _run("stop", job, {"now": now}, wait=wait)


def status(
    job: Job,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every two seconds, until the crawl ends.")] = False,
) -> None:
    """Say how a crawl is doing, or how a job was left."""
    _run("status", job, as_json=as_json, watch=watch)


def add(
    job: Job,
    seeds: Annotated[
        Texts, typer.Argument(metavar="SEED...", help="URLs, files of URLs, or - for standard input.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Add seeds to a job, running or not; one that is not running is crawled on by `anabranch crawl`."""
    if not seeds:
        raise typer.BadParameter("name a URL, a file of URLs, or - for standard input")
    _run("add", job, {"sources": list(seeds)}, as_json=as_json)


def _run(verb: str, job: str, arguments: Mapping[str, Any] | None = None, **how: bool) -> None:
    from anabranch.crawler.cli.operate import OperateCommand, run_operate  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_operate(OperateCommand(verb=verb, job=job, arguments=arguments or {}, **how)))
