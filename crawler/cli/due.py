"""`anabranch run-due`: starts the jobs of a folder that are due, or lists the schedules."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from anabranch.crawler.cli.parameters import OnEnd
from anabranch.crawler.cli.terminal import guarded, put, say
from anabranch.crawler.console.launching import Launcher
from anabranch.crawler.job.scheduledruns import RunOutcome, ScheduledRun
from anabranch.crawler.operate.due import schedule_facts, start_due
from anabranch.crawler.operate.finding import operated_folder
from anabranch.crawler.operate.listing import job_folders
from anabranch.crawler.outcomes.endings import FORESEEABLE
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, UsageError
from anabranch.crawler.report.table import escaped, plain_table
from anabranch.crawler.run.verbs import Facts
from anabranch.frontier.times import clock_words, counted

_HEADS = ("job", "schedule", "next run (local)", "last run", "missed")


class SomeFailed(CrawlerError):
    """Some jobs were due, and could not be started."""

    exit_code = ExitCode.STORE_OR_JOB_IN_USE


def run_due(place: str, on_end: OnEnd, *, run_code: bool) -> int:
    """Start what is due; each crawl gets the options `on_end`. A foreseeable error is one line and its exit code."""

    def run() -> None:
        on_end.targets(os.environ)  # before anything is started
        launcher = Launcher(run_code=run_code)

        def start(directory: Path, asked: Sequence[str], lock: int) -> None:
            launcher.start(directory, [*asked, *on_end.arguments], operated_folder(directory), lock)

        failed = 0
        for directory in _folders(place):
            try:
                done = start_due(directory, time.time(), start, f"run-due, process {os.getpid()}")
            except FORESEEABLE as error:
                say(f"anabranch: {directory}: {error}")
                failed += 1
                continue
            if done is not None:
                put(escaped(f"{directory}: {run_line(done, time.time())}"))
                failed += done.outcome is RunOutcome.FAILED
        if failed:
            raise SomeFailed(f"{counted(failed, 'job')} could not be started, or not be read; the lines above say why")

    return guarded(run)


def run_schedules(place: str, *, as_json: bool) -> int:
    """List the schedules. A foreseeable error is one line and its exit code."""

    def run() -> None:
        now_s, rows = time.time(), []
        for directory in _folders(place):
            try:
                facts = schedule_facts(directory, now_s)
            except FORESEEABLE as error:
                say(f"anabranch: {directory}: {error}")
                continue
            if facts is not None:
                rows.append({"job": directory.resolve().name, **facts})
        if as_json:
            put(json.dumps(rows, indent=2))
        elif rows:
            put("\n".join(plain_table(_HEADS, [_cells(row, now_s) for row in rows])))
        else:
            put(f"{place}: no job has a schedule; `anabranch set JOB job.schedule='30 3 * * MON'` gives one")

    return guarded(run)


def _folders(place: str) -> list[Path]:
    """Raises: UsageError."""
    if not Path(place).is_dir():
        raise UsageError(f"{place}: there is no such folder; name one that holds jobs")
    return job_folders(Path(place))


def run_line(run: ScheduledRun, now_s: float) -> str:
    """Say what came of a run. Pure."""
    words = {
        RunOutcome.STARTED: "started",
        RunOutcome.STARTING: "is being started",
        RunOutcome.FAILED: f"not started: {run.words}",
        RunOutcome.STILL_RUNNING: "not started: the run before it still goes",
    }[run.outcome]
    missed = f"; {counted(run.missed, 'earlier run')} missed" if run.missed else ""
    return f"due {clock_words(run.due_s, now_s)}: {words}{missed}"


def _cells(row: Facts, now_s: float) -> tuple[str, ...]:
    zone = "" if row["schedule"].startswith("every ") or row["zone"] == "UTC" else f" {row['zone']}"
    next_s, runs = row["next_s"], row["runs"]
    waits = f" ({counted(row['overdue'], 'run')} due)" if row["overdue"] else ""
    last = f"{clock_words(runs[0]['due_s'], now_s)}: {runs[0]['outcome']}" if runs else "none yet"
    return (
        escaped(row["job"]), escaped(f"{row['schedule']}{zone}"),
        f"{'never' if next_s is None else clock_words(next_s, now_s)}{waits}", last, f"{row['missed']:,}",
    )  # fmt: skip
