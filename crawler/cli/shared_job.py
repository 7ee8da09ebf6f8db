"""The commands on a job of several workers, which answer from any machine: by its database, or by the folder of a worker."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from anabranch.crawler.cli.command import find_job, guarded, put, shared_address
from anabranch.crawler.cli.console import say
from anabranch.crawler.cli.operate import added_lines, chunks_of, status_line
from anabranch.crawler.cli.tables import plain_table
from anabranch.crawler.cluster.commands import Wish
from anabranch.crawler.cluster.database import JobDatabase
from anabranch.crawler.job.folder import wait_until_free, who_holds
from anabranch.crawler.job.inspection import readable_job, refuse_unwritable
from anabranch.crawler.job.seeds import Seed, none_left, read_seeds
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import NoSeeds, UsageError
from anabranch.crawler.report.table import escaped
from anabranch.crawler.run.crawl_verbs import ADD, REPORT
from anabranch.crawler.run.explain import explainer_of
from anabranch.crawler.run.shared_job import (
    NoWorkers,
    SharedJob,
    WorkerLine,
    opened_whole,
    report_of_whole,
    workers,
)
from anabranch.crawler.run.stopped_verbs import add_to_stopped
from anabranch.crawler.run.verbs import Arguments, Facts, answer
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.jobfolder import STATE, STORE_FILE
from anabranch.frontier.records import VerdictKind
from anabranch.frontier.times import counted, duration_words

_WISHES = {"pause": Wish.PAUSE, "resume": Wish.RESUME, "stop": Wish.STOP}
_WATCH_S = 2.0
#: Between two looks whether a worker has left.
_LOOK_S = 0.2

_HEADS = ("worker", "state", "shares", "pages", "pages/s", "active", "last beat", "machine")


@contextmanager
def _job_at(address: str | Path, *, reads: bool) -> Iterator[SharedJob]:
    """The job at this address. If nobody crawls it, and it cannot be written or its disk is full, a copy of it is read."""
    with ExitStack() as opened:
        if isinstance(address, Path):
            directory = address.parent.parent
            if not reads:
                refuse_unwritable(directory)
            elif not who_holds(directory)[0]:
                address = opened.enter_context(readable_job(directory)) / STATE / STORE_FILE
        database = opened.enter_context(closing(JobDatabase(address)))
        yield SharedJob(database)


def operate(verb: str, address: str | Path, arguments: Arguments, *, as_json: bool, watch: bool, wait: bool) -> None:
    """`pause`, `resume`, `stop`, `status`, `add` of the whole job."""
    with _job_at(address, reads=verb == "status") as job:
        if verb == "add":
            _add(job, arguments["sources"], as_json=as_json)
        elif verb == "status":
            while True:
                facts = job.status()
                put(json.dumps(facts, indent=None if watch else 2) if as_json else status_line(facts))
                if not watch or facts["phase"] == "stopped":
                    return
                threading.Event().wait(_WATCH_S)
        else:
            wanted = Wish.STOP_NOW if verb == "stop" and arguments.get("now") else _WISHES[verb]
            put(status_line(_wanted(job, wanted, wait=wait)))


def _wanted(job: SharedJob, wanted: Wish, *, wait: bool) -> Facts:
    """Have all workers do it; the job's status then, or if asked when none is at work any more."""
    facts = job.want(wanted, say)
    if not wait:
        return facts
    while job.at_work():
        threading.Event().wait(_LOOK_S)
    if job.folder is not None:
        wait_until_free(job.folder)
    return job.status()


def run_verb(
    verb: str,
    address: str | Path,
    arguments: Arguments,
    prepared: Callable[[Frontier, CrawlOrder], int | None] | None,
    *,
    reads: bool,
) -> Facts | int | None:
    """A verb of `frontier`, or `why`: by the workers, or on the whole job if no worker is at work.

    `prepared` does what needs the job for itself. Returns facts, or what `prepared` returns.
    """
    with _job_at(address, reads=reads) as job:
        if prepared is None:
            try:
                return job.answer(verb, arguments)
            except NoWorkers:
                pass
        with opened_whole(job) as (frontier, order, seeds):
            if prepared is not None:
                return prepared(frontier, order)
            explainer = explainer_of(order, seeds, job.folder)
            return explainer.explained(verb, answer(frontier, verb, explainer.with_key(verb, arguments)))


def is_at_work(address: str | Path) -> bool:
    """A worker of the job is at work."""
    with _job_at(address, reads=True) as job:
        return bool(job.at_work())


def report(address: str | Path, arguments: Mapping[str, Any]) -> Facts:
    """A report of the whole job."""
    with _job_at(address, reads=True) as job:
        try:
            return job.answer(REPORT, arguments)
        except NoWorkers:
            with opened_whole(job) as whole:
                return report_of_whole(whole, job, arguments)


def run_workers(job: str, drained: str | None, *, as_json: bool) -> int:
    """List the workers, or have one end. A foreseeable error becomes one line and its exit code."""

    def run() -> None:
        address = _shared(job)
        if drained is None:
            list_workers(address, as_json=as_json)
        else:
            drain(address, drained)

    return guarded(run)


def run_requeue(job: str, lost: str) -> int:
    """Queue a worker's lost pages again. A foreseeable error becomes one line and its exit code."""

    def run() -> None:
        with _job_at(_shared(job), reads=False) as shared:
            if not shared.has_uploads(lost):
                say(f"no file of {lost} was copied elsewhere ([write] upload), so all its pages count as lost")
            count = shared.requeue(lost)
            put(f"{counted(count, 'page')} of {lost} queued again")

    return guarded(run)


def _shared(job: str) -> str | Path:
    """The database or file of a job of several workers. Raises: UsageError for another job."""
    address = shared_address(job)
    if address is None:
        find_job(job)
        raise UsageError(f"{job}: one worker crawls this job; this is for jobs of several")
    return address


def list_workers(address: str | Path, *, as_json: bool) -> None:
    """Who is at work, and how."""
    with _job_at(address, reads=True) as job:
        lines = job.database.do(workers) if job.folder is None else job.at_work()
    if as_json:
        put(json.dumps([_worker_facts(line) for line in lines], indent=2))
        return
    if not lines:
        put("no worker is at work")
        return
    put("\n".join(plain_table(_HEADS, [_cells(line) for line in lines])))


def drain(address: str | Path, name: str) -> None:
    """Have a worker end in order, and wait until it has."""
    with _job_at(address, reads=False) as job:
        job.drain(name, say)
        put(f"worker {name} has left")


def _worker_facts(line: WorkerLine) -> dict[str, Any]:
    status = line.status or {}
    return {
        "name": line.name,
        "state": _state(line),
        "shares": line.shares,
        "pages": status.get("pages", 0),
        "pages_per_s": _rate(status),
        "active": status.get("active", 0),
        "last_beat_s": line.silent_s,
        "lease_s": line.lease_s,
        "machine": status.get("machine", ""),
        "pid": status.get("pid"),
    }


def _state(line: WorkerLine) -> str:
    if line.lease_s <= 0:
        return "late"
    if line.drains:
        return "draining"
    if line.status is None:
        return "joining"
    return "paused" if line.status.get("paused") else "running"


def _rate(status: Mapping[str, Any]) -> float:
    elapsed_s = float(status.get("elapsed_s", 0.0))
    return float(status.get("pages", 0)) / elapsed_s if elapsed_s > 0 else 0.0


def _cells(line: WorkerLine) -> tuple[str, ...]:
    facts = _worker_facts(line)
    return (
        escaped(line.name), facts["state"], f"{line.shares:,}", f"{facts['pages']:,}", f"{facts['pages_per_s']:.1f}",
        f"{facts['active']:,}", f"{duration_words(max(line.silent_s, 0.0))} ago", escaped(str(facts["machine"])),
    )  # fmt: skip


def _add(job: SharedJob, sources: Sequence[str], *, as_json: bool) -> None:
    found = read_seeds(sources, io.BytesIO() if sys.stdin is None else sys.stdin.buffer)
    reports = [escaped(f"{bad.source}: {bad.text!r}: {bad.reason}") for bad in found.bad]
    if not found.seeds:
        raise NoSeeds(none_left(reports))
    for line in reports:
        say(f"anabranch: {line}; skipped")
    answers: list[Facts] = []
    is_running = bool(job.at_work())
    for chunk in chunks_of(found.seeds):
        answers += _added(job, chunk)
    if as_json:
        put(json.dumps({"running": is_running, "seeds": answers}, indent=2))
    else:
        for line in added_lines(answers, is_running=is_running):
            put(line)
    refused = len(found.bad) + sum(seed["verdict"] == VerdictKind.REFUSED.value for seed in answers)
    if refused:
        raise NoSeeds(f"{refused} of {len(answers) + len(found.bad)} seeds could not be added")


def _added(job: SharedJob, seeds: Sequence[Seed]) -> Iterator[Facts]:
    listed = [{"url": seed.url, "source": seed.source} for seed in seeds]
    try:
        yield from job.answer(ADD, {"seeds": listed})["seeds"]
    except NoWorkers:
        with opened_whole(job) as (frontier, order, book):
            key = Canonicalizer(order.urls.canonicalization).key
            yield from add_to_stopped(frontier, book, seeds, key)["seeds"]
