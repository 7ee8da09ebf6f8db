"""`anabranch frontier …` and `anabranch why`: what an operator asks of a job and orders it to do.

A job that is running answers through its control socket. One that is stopped is opened, as a crawl opens it, and closed in
order. That of a host program that runs is looked at by a snapshot. Any foreseeable error is one line and an exit code.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.crawler.cli.frontier_files import is_journal, load_file, write_dump
from anabranch.crawler.cli.frontier_tables import explained, gate_line, listing, queue_line
from anabranch.crawler.cli.guarding import guarded
from anabranch.crawler.cli.saying import consents, say
from anabranch.crawler.jobs.copying import refuse_unwritable, to_be_read
from anabranch.crawler.jobs.embedded import Snapshot, opened_embedded
from anabranch.crawler.jobs.job import JobFolder, is_embedded, is_job
from anabranch.crawler.jobs.opening import has_begun, open_job, refuse_forgotten
from anabranch.crawler.jobs.orderfile import order_file
from anabranch.crawler.operating.arguments import Arguments, Facts
from anabranch.crawler.operating.control import ask
from anabranch.crawler.operating.judging import ABOUT_URLS, opened_judge
from anabranch.crawler.operating.removing import noting
from anabranch.crawler.operating.verbs import WHATEVER_KEY, answer
from anabranch.crawler.orders.frontier import MEMORY
from anabranch.crawler.orders.order import VERSION, CrawlOrder
from anabranch.crawler.orders.sources import load_order
from anabranch.crawler.outcomes.errors import UsageError, storage_error
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.crawler.processes.folders import shares_of, unfinish_job_of
from anabranch.crawler.processes.stopped import opened_job
from anabranch.crawler.reporting.escaping import escaped
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.composition import has_store
from anabranch.frontier.core import Frontier
from anabranch.frontier.models import Head, QueueKey
from anabranch.frontier.operating.load import LoadReport
from anabranch.frontier.operating.timewords import clock_words, counted

#: Verbs that change nothing, so that a job which cannot be written will do.
_READING = frozenset({"ls", "show", "why", "dump"})
#: Where jobs that are called by name live.
JOBS = Path("jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierCommand:
    """What stands on the command line."""

    verb: str
    job: str  #: a folder, or a name below `jobs`
    arguments: Arguments  #: of the verb
    as_json: bool = False


def run_frontier(command: FrontierCommand) -> int:
    """Run it; every foreseeable error is one line on standard error and its exit code."""
    return guarded(lambda: _run(command))


def _run(command: FrontierCommand) -> int | None:
    directory = find_job(command.job)
    if is_embedded(directory):
        return _run_embedded(command, directory)
    facts = ask(directory / "state", command.verb, command.arguments)
    if facts is not None:
        _show(command, facts, is_running=True)
        return None
    reads = command.verb in _READING
    if not reads:
        refuse_unwritable(directory)
    # What is changed is never a copy.
    to_be_opened = to_be_read(directory) if reads else nullcontext(directory)
    if shares_of(directory):
        with to_be_opened as place, opened_job(place) as stopped:
            _show(command, stopped.answer(command.verb, command.arguments), is_running=False)
        return None
    prepared = _prepared(command, directory)
    with to_be_opened as place, opened(place) as (frontier, order):
        if not reads:
            unfinish_job_of(place)
        if prepared is not None:
            return prepared(frontier, order)
        _show(command, _answered(command, place, frontier, order), is_running=False)
    return None


def _run_embedded(command: FrontierCommand, directory: Path) -> int | None:
    """On the job of a host program, which is looked at by a snapshot while the host holds it."""
    prepared = _prepared(command, None)
    reads = command.verb in _READING
    if not reads:
        refuse_unwritable(directory)
    with opened_embedded(directory, reads=reads) as (frontier, order, snapshot):
        if snapshot is not None:
            say(_told(directory, snapshot))
        if prepared is not None:
            return prepared(frontier, order)
        facts = answer(frontier, command.verb, {**command.arguments, WHATEVER_KEY: True})
        _show(command, facts, is_running=snapshot is not None)
    return None


def _told(directory: Path, snapshot: Snapshot) -> str:
    holder = "another process" if snapshot.process is None else f"process {snapshot.process}"
    unknown = "" if snapshot.in_flight is not None else "; what is in flight is not known"
    taken = clock_words(snapshot.taken_s, snapshot.taken_s)
    return f"anabranch: {directory}: {holder} runs it; this is a snapshot of what was durable at {taken}{unknown}"


def _answered(command: FrontierCommand, directory: Path, frontier: Frontier, order: CrawlOrder) -> Facts:
    if command.verb not in ABOUT_URLS:
        return answer(frontier, command.verb, command.arguments)
    with opened_judge(directory, order) as judge:
        return judge.told(command.verb, answer(frontier, command.verb, judge.keyed(command.verb, command.arguments)))


def find_job(typed: str) -> Path:
    """The folder of a job, named as a folder or by its name. Raises: UsageError."""
    for directory in (Path(typed), JOBS / typed):
        if typed and is_job(directory):
            return directory
    raise UsageError(f"{typed!r}: there is no such job; name its folder, or its name below {JOBS}/")


@contextmanager
def opened(directory: Path) -> Iterator[tuple[Frontier, CrawlOrder]]:
    """The job's Frontier, and the job's order, by which it was opened; closed in order at the end.

    A job that has nothing left stays a finished one.

    Raises: UsageError if nothing was ever queued, StoreLost, QueueForgotten, JobInUse; as a crawl does.
    """
    with JobFolder.open(directory) as job:
        kept = order_file(directory)
        if kept is None:
            raise UsageError(f"{directory}: the job has not begun; `anabranch crawl` begins it")
        order = load_order(kept, {})
        refuse_forgotten(job.state)
        if order.frontier.store in {"", MEMORY} and not has_begun(job.state) and not has_store(job.state):
            raise UsageError(f"{directory}: the job has no queue yet; `anabranch crawl` begins it")
        with open_job(job.state, order) as frontier:
            yield frontier, order
            if frontier.is_done:
                job.mark_finished()


# Verbs that take their time


def _prepared(command: FrontierCommand, job: Path | None) -> Callable[[Frontier, CrawlOrder], int | None] | None:
    """What to do with the Frontier, for verbs that a running crawl refuses; whatever can fail before has been tried. `job` is
    the folder with the crawl's logs, if it is a crawl's.
    """
    arguments = command.arguments
    if command.verb == "dump":
        return lambda frontier, order: _dump(frontier, order, arguments["file"])
    if command.verb == "load":
        is_journal(Path(arguments["file"]))
        return lambda frontier, order: _load(frontier, order, arguments)
    if command.verb == "rm":
        matches = _pattern(arguments["url"])
        return lambda frontier, order: _remove(frontier, order, arguments, matches, job)
    return None


def _dump(frontier: Frontier, order: CrawlOrder, file: str | None) -> None:
    lines = frontier.dump({"policy": order.frontier.policy, "program": f"anabranch {VERSION}"})
    if file is not None:
        write_dump(lines, Path(file))
        return
    try:
        write_dump(lines, None)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, Path("standard output")) from error


def _load(frontier: Frontier, order: CrawlOrder, arguments: Arguments) -> int:
    file = Path(arguments["file"])
    report = load_file(
        frontier,
        file,
        Canonicalizer(order.urls.canonicalization).key,
        failures=arguments["failures"],
        disregarded=arguments["disregarded"],
    )
    for line in not_loaded(report):
        say(f"anabranch: {escaped(line)}")
    put(loaded_line(report))
    is_cut = bool(report.cuts) and not is_journal(file)  # a journal ends as Heritrix was killed
    return ExitCode.NO_SEED_ANSWERED if is_cut else ExitCode.DONE


def not_loaded(report: LoadReport) -> Iterator[str]:
    """What was left out, and why; what other shares take in one line, since it may be most of the file. Pure."""
    for refusal in report.refusals:
        yield f"{refusal.place}: {refusal.url}: {refusal.reason}; not loaded"
    if (first := report.first_foreign) is not None:
        more = f", and {report.foreign - 1:,} more of the kind" if report.foreign > 1 else ""
        yield f"{first.place}: {first.url}{more}: {first.reason}; load the file there"
    yield from report.cuts


def loaded_line(report: LoadReport) -> str:
    """What became of the entries, in one line."""
    parts = {
        "queued": report.queued,
        "kept as ended": report.known,
        "known before": report.seen,
        "left to the filter": report.later,
        "refused": report.refused,
        "sent to other shares": report.sent,
        "of other shares": report.foreign,
        "skipped": report.skipped,
        "not understood": report.unknown,
    }
    return "loaded: " + ", ".join(f"{number:,} {what}" for what, number in parts.items() if number or what == "queued")


def _pattern(text: str | None) -> Callable[[str], object]:
    try:
        return re.compile(text or "").search
    except re.error as error:
        raise UsageError(f"--url {text!r}: no regular expression: {error}") from error


def _remove(
    frontier: Frontier, order: CrawlOrder, arguments: Arguments, matches: Callable[[str], object], job: Path | None
) -> None:
    queue = None if arguments["queue"] is None else QueueKey(arguments["queue"])
    operations = frontier.operations
    if queue is not None:
        operations.view(queue)  # an unknown queue is told, not taken for an empty one
    found = operations.matching(lambda url: bool(matches(url)), queue)
    if found and not arguments["yes"] and not consents(f"remove {counted(found, 'queued URL')}? [y/N] "):
        raise UsageError("nothing was removed; add --yes to remove without being asked")
    removed = 0
    if found:
        noted = nullcontext(_unnoted) if job is None else noting(job, frontier.now_s, extra_info=order.logs.extra_info)
        with noted as note:
            removed = operations.remove(lambda url: bool(matches(url)), queue, note)
    put(f"removed {counted(removed, 'URL')}")


def _unnoted(_: Sequence[Head]) -> None:
    """A program that embeds the Frontier has no log of ours."""


# What is shown


def _show(command: FrontierCommand, facts: Facts, *, is_running: bool) -> None:
    if command.as_json:
        put(json.dumps(_finite(facts), indent=2))
    elif command.verb == "ls":
        put(listing(facts, is_running=is_running))
    elif "explanation" in facts:
        put(explained(facts))
    elif command.verb in {"block", "unblock"}:
        put(gate_line(facts))
    else:
        put(queue_line(facts))


def _finite(value: Any) -> Any:
    """The same without infinity, which JSON does not have: None in its place."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if value == math.inf else value


def put(text: str) -> None:
    """Lines on standard output, whatever it can write. Raises: BrokenPipeError, StorageError."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201 - the command's own output
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, Path("standard output")) from error
