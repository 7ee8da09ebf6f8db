"""`anabranch pause|resume|stop|status|add`: what an operator wants of a crawl as a whole.

A running crawl answers through its control socket. Of one that is not running only the status can be told, and seeds can be
added: for both the job is opened, as a crawl opens it, and closed in order. Any foreseeable error is one line and an exit code.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.cli.frontier import find_job, opened, put
from anabranch.crawler.cli.frontier_tables import totals_lines, trouble_line
from anabranch.crawler.cli.guarding import guarded
from anabranch.crawler.cli.saying import say
from anabranch.crawler.jobs.copying import refuse_unwritable, to_be_read
from anabranch.crawler.jobs.holding import until_free, who_holds
from anabranch.crawler.jobs.job import refuse_embedded
from anabranch.crawler.jobs.seeds import SEED_BOOK, Seed, SeedBook, none_left, read_seeds
from anabranch.crawler.operating.arguments import Arguments, Facts
from anabranch.crawler.operating.control import ask
from anabranch.crawler.operating.crawl_verbs import ADD, PAUSE, RESUME, STATUS, STOP, add_to_stopped
from anabranch.crawler.operating.status import STOPPED, stopped_facts
from anabranch.crawler.operating.verbs import JobRuns, answer
from anabranch.crawler.outcomes.errors import JobInUse, NoSeeds, UsageError
from anabranch.crawler.processes.folders import ShareOf, refuse_share, share_of, shares_of
from anabranch.crawler.processes.stopped import opened_job
from anabranch.crawler.reporting.escaping import escaped
from anabranch.crawler.reporting.troubles import last_logged
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.models import VerdictKind

#: Between two looks of `--watch`.
WATCH_S = 2.0
#: Bytes of seeds in one question to a running crawl; it reads lines of up to 1 MiB.
_QUESTION_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class OperateCommand:
    """What stands on the command line."""

    verb: str
    job: str  #: a folder, or a name below `jobs`
    arguments: Arguments
    as_json: bool = False
    watch: bool = False
    wait: bool = False


def run_operate(command: OperateCommand) -> int:
    """Run it; every foreseeable error is one line on standard error and its exit code."""
    return guarded(lambda: _run(command))


def _run(command: OperateCommand) -> None:
    directory = find_job(command.job)
    refuse_embedded(directory)
    if command.verb == "add":
        refuse_share(directory)
        _add(directory, command)
    elif command.verb == "status":
        _status(directory, command)
    else:
        put(_steered(directory, command))
        if command.wait:
            until_free(directory)


def _steered(directory: Path, command: OperateCommand) -> str:
    """Pause, resume or stop; the line that says what now holds."""
    verb = {"pause": PAUSE, "resume": RESUME, "stop": STOP}[command.verb]
    facts = ask(directory / "state", verb, command.arguments)
    if facts is None:
        _refuse_if_held(directory)
        raise UsageError(f"{directory}: no crawl of this job is running; there is nothing to {command.verb}")
    return status_line(facts)


def _refuse_if_held(directory: Path) -> None:
    """Raises: JobInUse if the job is taken, though nobody answers."""
    held, pid = who_holds(directory)
    if held:
        raise JobInUse(directory, pid, "the job is being opened, closed or changed: ask again in a moment")


# Status


def _status(directory: Path, command: OperateCommand) -> None:
    facts = ask(directory / "state", STATUS, {})
    if facts is None:
        facts = _left(directory)
    _show_status(facts, command)
    while command.watch and facts is not None and facts["phase"] != STOPPED:
        threading.Event().wait(WATCH_S)
        facts = ask(directory / "state", STATUS, {})
        if facts is not None:
            _show_status(facts, command)


def _left(directory: Path) -> Facts:
    """How a job stands that nobody crawls."""
    now_s, job = time.time(), directory.resolve().name
    share = share_of(directory)
    if share is not None and who_holds(directory)[0]:
        raise JobRuns(f"{directory}: is {share}, which is crawled; ask how the job is doing, {share.job}")
    _refuse_if_held(directory)
    whose = None if share is None else {"number": share.share, "of": share.shares, "job": str(share.job)}
    trouble = last_logged(directory, now_s)
    if shares_of(directory):
        with to_be_read(directory) as place, opened_job(place) as shared:
            return stopped_facts(job, shared.answer("ls", {"limit": 0})["totals"], trouble, is_done=shared.is_done)
    with to_be_read(directory) as place, opened(place) as (frontier, _):
        totals = answer(frontier, "ls", {"limit": 0})["totals"]
        return stopped_facts(job, totals, trouble, is_done=frontier.is_done, share=whose)


def _show_status(facts: Facts, command: OperateCommand) -> None:
    put(json.dumps(facts, indent=None if command.watch else 2) if command.as_json else status_line(facts))


def status_line(facts: Facts) -> str:
    """Lines for the eye: what the crawl does now, or how the job was left. Pure."""
    if facts["phase"] == STOPPED:
        return "\n".join([_how_left(facts), *totals_lines(facts["totals"], is_running=False), *_trouble_left(facts)])
    now = f"{facts['phase']} (process {facts['pid']})"
    return f"{now}: {facts['line']}" if facts["line"] else now


def _trouble_left(facts: Facts) -> Iterator[str]:
    """Of a job that is not finished, why the last try failed."""
    if facts["last_trouble"] is not None and not facts["is_finished"]:
        yield trouble_line(facts["last_trouble"])


def _how_left(facts: Facts) -> str:
    """Of a share it is said that it is one: what it has left is not all that its job has."""
    if facts["share"] is None:
        return str(facts["line"])
    share = ShareOf(facts["share"]["number"], facts["share"]["of"], Path(facts["share"]["job"]))
    return f"{share}, {share.job}\n{facts['line']}"


# Seeds


def _add(directory: Path, command: OperateCommand) -> None:
    seeds, bad = _seeds(command.arguments["sources"])
    state = directory / "state"
    answers: list[Facts] = []
    is_running = False
    for chunk in _chunks(seeds):
        listed = [{"url": seed.url, "source": seed.source} for seed in chunk]
        facts = ask(state, ADD, {"seeds": listed})
        is_running = facts is not None
        answers += (_add_to_stopped(directory, chunk) if facts is None else facts)["seeds"]
    if command.as_json:
        put(json.dumps({"running": is_running, "seeds": answers}, indent=2))
    else:
        for line in added_lines(answers, is_running=is_running):
            put(line)
    _refuse_if_left(answers, bad)


def _refuse_if_left(answers: Sequence[Facts], bad: int) -> None:
    """What is good has been added; who runs this by a script must hear that not all was. Raises: NoSeeds."""
    left = bad + sum(seed["verdict"] == VerdictKind.REFUSED.value for seed in answers)
    if left:
        raise NoSeeds(f"{left} of {len(answers) + bad} seeds could not be added")


def _add_to_stopped(directory: Path, seeds: Sequence[Seed]) -> Facts:
    _refuse_if_held(directory)
    refuse_unwritable(directory)
    if shares_of(directory):
        with opened_job(directory) as job:
            return job.add(seeds)
    with opened(directory) as (frontier, order), SeedBook(directory / "state" / SEED_BOOK) as book:
        return add_to_stopped(frontier, book, seeds, Canonicalizer(order.urls.canonicalization).key)


def _seeds(sources: Sequence[str]) -> tuple[tuple[Seed, ...], int]:
    """The seeds that the sources name; what is none is said, and counted. Raises: NoSeeds if there is no seed."""
    found = read_seeds(sources, io.BytesIO() if sys.stdin is None else sys.stdin.buffer)
    reports = [escaped(f"{bad.source}: {bad.text!r}: {bad.reason}") for bad in found.bad]
    if not found.seeds:
        raise NoSeeds(none_left(reports))
    for report in reports:
        say(f"anabranch: {report}; skipped")
    return found.seeds, len(found.bad)


def _chunks(seeds: Sequence[Seed]) -> Iterator[list[Seed]]:
    """The seeds in parts that fit into a question each."""
    chunk: list[Seed] = []
    size_bytes = 0
    for seed in seeds:
        size_bytes += 2 * len(seed.url) + len(seed.source.encode()) + 64
        chunk.append(seed)
        if size_bytes > _QUESTION_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def added_lines(answers: Sequence[Facts], *, is_running: bool) -> Iterator[str]:
    """A line for each seed, then what comes of them. Pure."""
    for seed in answers:
        reason = f" ({seed['reason']})" if seed["reason"] else ""
        yield escaped(f"{seed['verdict']:<8} {seed['url']}{reason}")
    if not is_running:
        yield "no crawl of this job is running; `anabranch crawl` goes on with it"
