"""`anabranch status` and `jobs`: how a job goes or was left, in text or JSON. What a stopped job needs is imported at once."""

from __future__ import annotations

import json
import time
from pathlib import Path

from anabranch.crawler.cli.terminal import fitted, guarded, put
from anabranch.crawler.job.state import FAILED
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.report.jobstatus import KILLED, UNKNOWN, Facts, status_as_left, stopped_lines
from anabranch.crawler.report.table import escaped, plain_table
from anabranch.frontier.jobfolder import named_job

_HEADS = ("job", "state", "pages", "pages/s", "queued", "failed", "free", "last trouble")


def run_status(job: str, *, as_json: bool, watch: bool) -> int:
    """Show the status of a job. A foreseeable error becomes one line on standard error and its exit code."""
    directory = named_job(job)
    facts = None if directory is None else status_as_left(directory, time.time())
    if facts is None:
        from anabranch.crawler.cli.operate import run_operate  # noqa: PLC0415 - a stopped job needs none of it

        return run_operate("status", job, {}, as_json=as_json, watch=watch)
    text = json.dumps(facts, indent=None if watch else 2) if as_json else fitted("\n".join(stopped_lines(facts)))
    return guarded(lambda: put(text), verbosity=None)


def run_jobs(place: str, *, as_json: bool) -> int:
    """List the jobs in a folder or a database. A foreseeable error becomes one line on standard error and its exit code."""
    from anabranch.crawler.operate.listing import listed_databases, listed_jobs  # noqa: PLC0415 - `status` does not need it

    def run() -> None:
        rows = list(listed_jobs(Path(place)) if Path(place).is_dir() else listed_databases(place))
        if as_json:
            put(json.dumps(rows, indent=2))
        elif rows:
            put("\n".join(plain_table(_HEADS, [_cells(row) for row in rows])))
        else:
            put(f"{place}: no jobs; `anabranch crawl` starts one")

    return guarded(run)


def _cells(row: Facts) -> tuple[str, ...]:
    trouble = row["last_trouble"]
    phase = row["state"]
    says_why = row["phase"] == UNKNOWN or phase in {KILLED, FAILED}
    words = row["line"] if says_why else "" if trouble is None else trouble["reason"]
    return (
        escaped(row["job"]), phase, f"{row['pages']:,}", f"{row['pages_per_s']:.1f}", f"{row['queued']:,}",
        f"{row['failed']:,}", "" if row["free_disk_bytes"] is None else format_bytes(row["free_disk_bytes"]), escaped(words),
    )  # fmt: skip
