"""`anabranch pause|resume|stop|status|add|report|index`: the commands on a crawl as a whole.

A running crawl answers through its control socket. If no crawl runs, status, add and report open the job as a crawl opens it
and close it in order; pause, resume and stop have nothing to do. `index` reads the WARC files alone.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.crawler.archive.files import OPEN, WARC, open_files, reindex
from anabranch.crawler.cli.command import JOBS, find_job, guarded, opened, put
from anabranch.crawler.cli.console import say
from anabranch.crawler.cli.tables import totals_lines, trouble_line
from anabranch.crawler.job.folder import refuse_embedded, wait_until_free, who_holds
from anabranch.crawler.job.inspection import readable_job, refuse_unwritable
from anabranch.crawler.job.seeds import SEED_BOOK, Seed, SeedBook, none_left, read_seeds
from anabranch.crawler.outcomes.errors import JobInUse, NoSeeds, UsageError, storage_errors
from anabranch.crawler.processes.folders import ShareOf, refuse_share, share_of, shares_of
from anabranch.crawler.processes.stopped import opened_job
from anabranch.crawler.report.reports import report_kind
from anabranch.crawler.report.table import escaped, report_of, text_lines
from anabranch.crawler.report.troubles import last_logged
from anabranch.crawler.run.control import ask
from anabranch.crawler.run.crawl_verbs import ADD, PAUSE, RESUME, STATUS, STOP, add_to_stopped, report_of_stopped
from anabranch.crawler.run.status import STOPPED, stopped_facts
from anabranch.crawler.run.verbs import Arguments, Facts, JobIsRunning, answer
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.records import VerdictKind

#: Between two looks of `--watch`.
WATCH_S = 2.0
#: Bytes of seeds in one question to a running crawl; it reads lines of up to 1 MiB.
_QUESTION_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class OperateCommand:
    """The parsed command line."""

    verb: str
    job: str  #: a folder, or a name below `jobs`
    arguments: Arguments
    as_json: bool = False
    watch: bool = False
    wait: bool = False


def run_operate(command: OperateCommand) -> int:
    """Run it. A foreseeable error becomes one line on standard error and its exit code."""
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
            wait_until_free(directory)


def _steered(directory: Path, command: OperateCommand) -> str:
    """Pause, resume or stop; the line that says what now holds."""
    verb = {"pause": PAUSE, "resume": RESUME, "stop": STOP}[command.verb]
    facts = ask(directory / "state", verb, command.arguments)
    if facts is None:
        _refuse_if_held(directory)
        raise UsageError(f"{directory}: no crawl of this job is running; there is nothing to {command.verb}")
    return status_line(facts)


def _refuse_if_held(directory: Path) -> None:
    """Raises: JobInUse if the job is locked but its process does not answer."""
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
    """The status of a job that no process crawls."""
    now_s, job = time.time(), directory.resolve().name
    share = share_of(directory)
    if share is not None and who_holds(directory)[0]:
        raise JobIsRunning(f"{directory}: is {share}, which is crawled; ask how the job is doing, {share.job}")
    _refuse_if_held(directory)
    whose = None if share is None else {"number": share.share, "of": share.shares, "job": str(share.job)}
    trouble = last_logged(directory, now_s)
    if shares_of(directory):
        with readable_job(directory) as place, opened_job(place) as shared:
            return stopped_facts(job, shared.answer("ls", {"limit": 0})["totals"], trouble, is_done=shared.is_done)
    with readable_job(directory) as place, opened(place) as (frontier, _):
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
    seeds, bad = _read_sources(command.arguments["sources"])
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


def _read_sources(sources: Sequence[str]) -> tuple[tuple[Seed, ...], int]:
    """The seeds that the sources name; other lines are reported and counted. Raises: NoSeeds if there is no seed."""
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


def run_report(job: str, name: str, *, limit: int, as_json: bool) -> int:
    """Print it; every foreseeable error is one line on standard error and its exit code."""

    def tell() -> None:
        report_kind(name)  # before the job is opened
        _print(_facts(find_job(job), {"name": name, "limit": limit}), as_json=as_json)

    return guarded(tell)


def _facts(directory: Path, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of the running crawl, or of the job as it was left."""
    refuse_embedded(directory)
    answer = ask(directory / "state", "report", arguments)
    if answer is not None:
        return answer
    if shares_of(directory):
        with readable_job(directory) as place, opened_job(place) as job:
            return job.report(arguments)
    with (
        readable_job(directory) as place,
        opened(place) as (frontier, order),
        SeedBook(place / "state" / SEED_BOOK) as seeds,
    ):
        rules = order.urls.canonicalization
        return report_of_stopped(place, frontier, seeds, lambda: Canonicalizer(rules).key, arguments)


def _print(facts: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        put(json.dumps(facts, indent=2))
        return
    more = "… and more; --limit shows them, reports/ holds all at the end\n" if facts.get("more") else ""
    put("".join([*text_lines(report_of(dict(facts))), more]).removesuffix("\n"))


def run_index(job: str) -> int:
    """Index the files and say so; 1 if one is damaged. Every foreseeable error is one line and its exit code."""
    return guarded(lambda: _index(job))


def _index(job: str) -> int:
    is_damaged = False
    folder = _folder(job)
    with storage_errors(folder, "JOB"):
        indexed = 0
        for done in reindex(folder):
            indexed += 1
            put(f"{done.path.name}: {done.answers} answers")
            if done.damaged_from is not None:
                is_damaged = True
                say(f"anabranch: {done.path}: no whole record from byte {done.damaged_from} on; restore it from a copy")
        for path in open_files(folder):
            put(f"{path.name}: still open; the crawl indexes it when it is finished")
    if not indexed:
        put(f"{folder}: no finished WARC file")
    return int(is_damaged)


def _folder(typed: str) -> Path:
    """Where the files are: in the folder that is named, in its `warc`, or in that of the job of this name.

    Raises: UsageError.
    """
    named = Path(typed)
    with storage_errors(named, "JOB"):
        if (named / "warc").is_dir():
            return named / "warc"
        if any(named.glob(f"*{WARC}")) or any(named.glob(f"*{WARC}{OPEN}")):
            return named
        try:
            job = find_job(typed)
        except UsageError as error:
            if named.is_dir():
                return named
            raise UsageError(
                f"{typed!r}: is not a folder, and there is no such job; "
                f"name a job's folder, its name below {JOBS}/, or a folder of WARC files"
            ) from error
        return job / "warc" if (job / "warc").is_dir() else job
