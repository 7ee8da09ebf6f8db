"""`anabranch pause|resume|stop|status|add|report`: the commands on a crawl as a whole.

A running crawl answers through its control socket. If no crawl runs, status, add and report open the job.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anabranch.crawler.cli.command import find_job, guarded, opened, put, shared_address
from anabranch.crawler.cli.console import say
from anabranch.crawler.cli.tables import totals_lines, trouble_line
from anabranch.crawler.job.folder import refuse_embedded, wait_until_free, who_holds
from anabranch.crawler.job.inspection import readable_job, refuse_unwritable
from anabranch.crawler.job.seeds import SEED_BOOK, Seed, SeedBook, none_left, read_seeds
from anabranch.crawler.outcomes.errors import JobInUse, NoSeeds, UsageError
from anabranch.crawler.report.filterreport import filter_line
from anabranch.crawler.report.reports import report_kind
from anabranch.crawler.report.table import escaped, report_of, text_lines
from anabranch.crawler.report.troubles import last_logged
from anabranch.crawler.run.control import ask
from anabranch.crawler.run.crawl_verbs import ADD, PAUSE, RESUME, STATUS, STOP
from anabranch.crawler.run.status import STOPPED, stopped_facts
from anabranch.crawler.run.verbs import Arguments, Facts, answer
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.records import VerdictKind

#: Seconds between two questions of `--watch`.
WATCH_S = 2.0
#: Bytes of seeds in one question to a running crawl; it reads lines of up to 1 MiB.
_QUESTION_BYTES = 1 << 18


def run_operate(
    verb: str, job: str, arguments: Arguments, *, as_json: bool = False, watch: bool = False, wait: bool = False
) -> int:
    """Run a verb on a job, named by its folder or below `jobs`. A foreseeable error is one line and its exit code."""

    def run() -> None:
        address = shared_address(job)
        if address is not None:
            from anabranch.crawler.cli.shared_job import operate  # noqa: PLC0415 - most jobs have no database

            operate(verb, address, arguments, as_json=as_json, watch=watch, wait=wait)
            return
        directory = find_job(job)
        refuse_embedded(directory)
        if verb == "add":
            _add(directory, arguments["sources"], as_json=as_json)
            return
        if verb == "status":
            _status(directory, as_json=as_json, watch=watch)
            return
        facts = ask(directory / "state", {"pause": PAUSE, "resume": RESUME, "stop": STOP}[verb], arguments)
        if facts is None:
            _refuse_if_held(directory)
            raise UsageError(f"{directory}: no crawl of this job is running; there is nothing to {verb}")
        put(status_line(facts))
        if wait:
            wait_until_free(directory)

    return guarded(run)


def _refuse_if_held(directory: Path) -> None:
    """Raises: JobInUse if the job is locked but its process does not answer."""
    held, pid = who_holds(directory)
    if held:
        raise JobInUse(directory, pid, "the job is being opened, closed or changed: ask again in a moment")


# Status


def _status(directory: Path, *, as_json: bool, watch: bool) -> None:
    facts = ask(directory / "state", STATUS, {})
    if facts is None:
        facts = _status_of_stopped(directory)
    while facts is not None:
        put(json.dumps(facts, indent=None if watch else 2) if as_json else status_line(facts))
        if not watch or facts["phase"] == STOPPED:
            break
        threading.Event().wait(WATCH_S)
        facts = ask(directory / "state", STATUS, {})


def _status_of_stopped(directory: Path) -> Facts:
    now_s, job = time.time(), directory.resolve().name
    _refuse_if_held(directory)
    trouble = last_logged(directory, now_s)
    with readable_job(directory) as place, opened(place) as (frontier, _):
        totals = answer(frontier, "ls", {"limit": 0})["totals"]
        seen = frontier.operations.statistics().seen
        return stopped_facts(job, totals, trouble, seen, is_done=frontier.is_done)


def status_line(facts: Facts) -> str:
    """Lines for the eye: what the crawl does now, or how the job was left, and its filter. Pure."""
    seen = escaped(filter_line(facts.get("filter") or {}))
    if facts["phase"] != STOPPED:
        now = facts["phase"] if facts["pid"] is None else f"{facts['phase']} (process {facts['pid']})"
        now = f"{now}: {facts['line']}" if facts["line"] else now
        return "\n".join(filter(None, [now, seen]))
    lines = [str(facts["line"]), *totals_lines(facts["totals"], is_running=False), *filter(None, [seen])]
    if facts["last_trouble"] is not None and not facts["is_finished"]:
        lines.append(trouble_line(facts["last_trouble"]))
    return "\n".join(lines)


# Seeds


def _add(directory: Path, sources: Sequence[str], *, as_json: bool) -> None:
    found = read_seeds(sources, io.BytesIO() if sys.stdin is None else sys.stdin.buffer)
    reports = [escaped(f"{bad.source}: {bad.text!r}: {bad.reason}") for bad in found.bad]
    if not found.seeds:
        raise NoSeeds(none_left(reports))
    for line in reports:
        say(f"anabranch: {line}; skipped")
    answers: list[Facts] = []
    is_running = False
    for chunk in chunks_of(found.seeds):
        listed = [{"url": seed.url, "source": seed.source} for seed in chunk]
        facts = ask(directory / "state", ADD, {"seeds": listed})
        is_running = facts is not None
        answers += (_add_to_stopped(directory, chunk) if facts is None else facts)["seeds"]
    if as_json:
        put(json.dumps({"running": is_running, "seeds": answers}, indent=2))
    else:
        for line in added_lines(answers, is_running=is_running):
            put(line)
    refused = len(found.bad) + sum(seed["verdict"] == VerdictKind.REFUSED.value for seed in answers)
    if refused:  # the others have been added; a script sees the exit code
        raise NoSeeds(f"{refused} of {len(answers) + len(found.bad)} seeds could not be added")


def _add_to_stopped(directory: Path, seeds: Sequence[Seed]) -> Facts:
    _refuse_if_held(directory)
    refuse_unwritable(directory)
    from anabranch.crawler.run.stopped_verbs import add_to_stopped  # noqa: PLC0415 - commands on a running crawl do not need it

    with opened(directory) as (frontier, order), SeedBook(directory / "state" / SEED_BOOK) as book:
        return add_to_stopped(frontier, book, seeds, Canonicalizer(order.urls.canonicalization).key)


def chunks_of(seeds: Sequence[Seed]) -> Iterator[list[Seed]]:
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
    """Print a report. A foreseeable error becomes one line on standard error and its exit code."""

    def run() -> None:
        report_kind(name)  # before the job is opened
        address, arguments = shared_address(job), {"name": name, "limit": limit}
        if address is None:
            facts = _report_facts(find_job(job), arguments)
        else:
            from anabranch.crawler.cli.shared_job import report  # noqa: PLC0415 - most jobs have no database

            facts = report(address, arguments)
        if as_json:
            put(json.dumps(facts, indent=2))
            return
        more = "… and more; --limit shows them, reports/ holds all at the end\n" if facts.get("more") else ""
        put("".join([*text_lines(report_of(dict(facts))), more]).removesuffix("\n"))

    return guarded(run)


def _report_facts(directory: Path, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """From the running crawl, or from the job as it was left."""
    refuse_embedded(directory)
    answer = ask(directory / "state", "report", arguments)
    if answer is not None:
        return answer
    from anabranch.crawler.run.stopped_verbs import report_of_stopped  # noqa: PLC0415 - commands on a running crawl do not need it

    with (
        readable_job(directory) as place,
        opened(place) as (frontier, order),
        SeedBook(place / "state" / SEED_BOOK) as seeds,
    ):
        rules = order.urls.canonicalization
        return report_of_stopped(place, frontier, seeds, lambda: Canonicalizer(rules).key, arguments)
