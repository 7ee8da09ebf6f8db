"""The commands on a crawl as a whole: pause, resume, stop, status, add, retry, report, workers, requeue, divide, move."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

from rich.console import Console

from anabranch.crawler.cli.terminal import fitted, guarded, put, say
from anabranch.crawler.job.inspection import refuse_unwritable
from anabranch.crawler.job.seeding import HIDDEN
from anabranch.crawler.job.seeds import chunks_of, none_left, read_seeds
from anabranch.crawler.operate.answers import needs_several, retried_lines, skipped_line
from anabranch.crawler.operate.finding import find_job, operated
from anabranch.crawler.operate.job import Job, retried_facts
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.order.loading import BY_VARIABLES, Caller, caller_of
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.outcomes.errors import NoSeeds, UsageError
from anabranch.crawler.report.filterreport import known_line
from anabranch.crawler.report.jobstatus import STOPPED, UNKNOWN, ended_line, stopped_lines
from anabranch.crawler.report.reports import report_kind
from anabranch.crawler.report.rounds import ROUNDS, compare_rounds
from anabranch.crawler.report.table import escaped, plain_table, report_of, text_lines
from anabranch.crawler.run.control import ControlSilent
from anabranch.crawler.run.verbs import RETRY, Arguments, Facts
from anabranch.frontier.jobfolder import named_job
from anabranch.frontier.records import VerdictKind
from anabranch.frontier.times import counted, duration_words

#: Seconds between two questions of `--watch`.
WATCH_S = 2.0

_WORKER_HEADS = ("worker", "state", "shares", "pages", "pages/s", "active", "last beat", "machine")


def run_operate(
    verb: str,
    job: str,
    arguments: Arguments,
    *,
    as_json: bool = False,
    watch: bool = False,
    wait: bool = False,
    **code: Any,
) -> int:
    """Run a verb on a job, named by its folder or below `jobs`. A foreseeable error is one line and its exit code.

    `code` are the options by which the command vouches for code of the job, as `caller_of` takes them.
    """

    def run() -> None:
        found = operated(job, say, caller_of(**code) if code else BY_VARIABLES)
        if verb == "add":
            _add(found, arguments["sources"], force=arguments["force"], as_json=as_json)
        elif verb == "status":
            _status(found, as_json=as_json, watch=watch)
        elif verb == RETRY:
            facts = retried_facts(found, arguments)
            lines = [skipped_line(facts)] if arguments.get("trap") else retried_lines(facts)
            put(json.dumps(facts, indent=2) if as_json else "\n".join(lines))
        else:
            facts = found.steer(verb, arguments)
            put(status_line((wait and found.wait()) or facts))

    return guarded(run)


# Status


def _status(job: Job, *, as_json: bool, watch: bool) -> None:
    facts: Facts | None = job.status()
    while facts is not None:
        text = json.dumps(facts, indent=None if watch else 2) if as_json else status_line(facts)
        put(text if as_json or watch else fitted(text))
        if not watch or facts["phase"] == STOPPED:
            break
        threading.Event().wait(WATCH_S)
        try:
            facts = job.running_status()
        except ControlSilent:
            facts = job.status()


def status_line(facts: Facts) -> str:
    """The status as lines of text: what the crawl does now, or how the job ended, and its filter. Pure."""
    seen = escaped(known_line(facts.get("filter") or {}))
    if facts["phase"] == UNKNOWN and facts["totals"] is not None:
        return "\n".join([escaped(facts["line"]), ended_line(facts["totals"])])
    if facts["phase"] != STOPPED:
        now = facts["phase"] if facts["pid"] is None else f"{facts['phase']} (process {facts['pid']})"
        now = f"{now}: {facts['line']}" if facts["line"] else now
        return "\n".join(filter(None, [now, _memory_line(facts), seen]))
    return "\n".join([*stopped_lines(facts), *filter(None, [seen])])


def _memory_line(facts: Facts) -> str:
    """The resident memory of the crawl's processes; empty if it is not known."""
    memory = facts.get("memory_bytes") or {}
    if not memory.get("anonymous"):
        return ""
    own, mapped = (format_bytes(memory[kind]) for kind in ("anonymous", "mapped"))
    return f"memory: {own} of its own, {mapped} of mapped files"


# Seeds

#: The filter may take a URL for seen that the store does not have.
_NOT_ADDED = frozenset({VerdictKind.REFUSED.value, HIDDEN.verdict})


def _add(job: Job, sources: Sequence[str], *, force: bool, as_json: bool) -> None:
    found = read_seeds(sources, io.BytesIO() if sys.stdin is None else sys.stdin.buffer)
    reports = [escaped(f"{bad.source}: {bad.text!r}: {bad.reason}") for bad in found.bad]
    if not found.seeds:
        raise NoSeeds(none_left(reports))
    for line in reports:
        say(f"anabranch: {line}; skipped")
    answers: list[Facts] = []
    is_running = False
    for chunk in chunks_of(found.seeds):
        is_running, verdicts = job.add(chunk, force=force)
        answers += verdicts
    start = "" if is_running else job.start_hint()
    if as_json:
        put(json.dumps({"running": is_running, "start": start, "seeds": answers}, indent=2))
    else:
        for line in added_lines(answers, start):
            put(line)
    refused = len(found.bad) + sum(seed["verdict"] in _NOT_ADDED for seed in answers)
    if refused:  # the others have been added; the exit code tells a script
        raise NoSeeds(f"{refused} of {len(answers) + len(found.bad)} seeds could not be added")


def added_lines(answers: Sequence[Facts], start: str) -> Iterator[str]:
    """A line for each seed, and what is to be started if no crawl is running. Pure."""
    for seed in answers:
        reason = f" ({seed['reason']})" if seed["reason"] else ""
        yield escaped(f"{seed['verdict']:<8} {seed['url']}{reason}")
    if start:
        yield escaped(start)


# The order


def run_set(job: str, settings: Sequence[str], *, as_json: bool) -> int:
    """Change the order of a job. A foreseeable error becomes one line on standard error and its exit code."""

    def run() -> None:
        facts = operated(job, say).change_order(settings)
        if as_json:
            put(json.dumps(facts, indent=2))
        else:
            lines = [change["line"] for change in facts["changes"]] or ["nothing changed"]
            put("\n".join(filter(None, [*lines, facts.get("note", "")])))

    return guarded(run)


# Reports


def run_report(job: str, name: str, *, limit: int, as_json: bool, run_code: bool = False) -> int:
    """Print a report. A foreseeable error becomes one line on standard error and its exit code.

    With `run_code` the user functions of the job's order run.
    """

    def run() -> None:
        report_kind(name)  # before the job is opened
        facts = operated(job, say, Caller(run_code)).report({"name": name, "limit": limit})
        if as_json:
            put(json.dumps(facts, indent=2))
            return
        more = "… and more; --limit shows them, reports/ holds all at the end\n" if facts.get("more") else ""
        put("".join([*text_lines(report_of(dict(facts))), more]).removesuffix("\n"))

    return guarded(run)


def run_rounds(job: str, name: str, rounds: str | None, *, limit: int, as_json: bool) -> int:
    """Compare two rounds of a job in a folder. A foreseeable error becomes one line on standard error and its exit code."""

    def run() -> None:
        if name != ROUNDS:
            raise UsageError(f"--rounds: is of the report {ROUNDS}, and not of {name}")
        before, comma, after = (rounds or "").partition(",")
        if rounds is not None and not (comma and before.strip().isdecimal() and after.strip().isdecimal()):
            raise UsageError(f"--rounds {rounds}: name two, as in 1,2")
        directory = named_job(job)
        if directory is None:
            operated(job, say)  # which says so if there is no such job
            raise UsageError(f"{job}: the logs of this job are on the machines of its workers")
        numbers = (int(before), int(after)) if comma else (None, None)
        found = compare_rounds(directory, *numbers, limit=limit)
        if as_json:
            put(json.dumps(found.facts, indent=2))
            return
        more = ["… and more; --limit shows them\n"] if found.more else []
        put("".join([f"{found.line}\n", *text_lines(found.table), *more]).removesuffix("\n"))

    return guarded(run)


# Jobs of several workers


def run_workers(job: str, drained: str | None, *, as_json: bool) -> int:
    """List the workers, or make one end. A foreseeable error becomes one line and its exit code."""

    def run() -> None:
        found = operated(job, say)
        if drained is not None:
            found.drain(drained)
            put(f"worker {drained} has left")
            return
        lines = found.workers()
        if lines is None:
            raise needs_several(job)
        if as_json:
            put(json.dumps(lines, indent=2))
        elif lines:
            put("\n".join(plain_table(_WORKER_HEADS, [_worker_cells(line) for line in lines])))
        else:
            put("no worker is running")

    return guarded(run)


def run_requeue(job: str, lost: str) -> int:
    """Queue a worker's lost pages again. A foreseeable error becomes one line and its exit code."""

    def run() -> None:
        count = operated(job, say).requeue(lost)
        put(f"{counted(count, 'page')} of {lost} queued again")

    return guarded(run)


def _worker_cells(facts: Facts) -> tuple[str, ...]:
    return (
        escaped(facts["name"]), facts["state"], f"{facts['shares']:,}", f"{facts['pages']:,}", f"{facts['pages_per_s']:.1f}",
        f"{facts['active']:,}", f"{duration_words(max(facts['last_beat_s'], 0.0))} ago", escaped(str(facts["machine"])),
    )  # fmt: skip


def run_divide(job: str, shares: int, *, run_code: bool = False) -> int:
    """Divide it. A foreseeable error becomes one line and its exit code. With `run_code` its order's user functions run."""
    from anabranch.crawler.operate.moving import AlreadyDivided, divide, divided_line  # noqa: PLC0415 - others are faster

    def run() -> None:
        if job.startswith(DATABASES):
            raise UsageError(f"{job}: a job in a database is divided already; name a job in a folder")
        directory = find_job(job)
        refuse_unwritable(directory)
        try:
            with Console(stderr=True).status("moving URLs"):
                divided = divide(directory, shares, Caller(run_code))
        except AlreadyDivided as error:  # a script may repeat the command
            put(str(error))
        else:
            put(f"{directory}: {divided_line(divided)}")

    return guarded(run)


def run_move(source: str, target: str, shares: int, *, run_code: bool = False) -> int:
    """Move a job. A foreseeable error becomes one line and its exit code. With `run_code` its order's user functions run."""
    from anabranch.crawler.operate.moving import divided_line, move  # noqa: PLC0415 - others are faster

    def run() -> None:
        with Console(stderr=True).status("moving the job"):
            moved = move(source, target, shares, Caller(run_code))
        counts = "" if moved.counts is None else f", {divided_line(moved.counts)}"
        place = f"{'--store' if moved.place.startswith(DATABASES) else '--job'} {quote(moved.place)}"
        put(escaped(f"{source}: moved to {moved.place}{counts}; `anabranch crawl {place}` goes on with it"))

    return guarded(run)
