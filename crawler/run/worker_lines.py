"""The workers of a job as rows, and as the command `workers` shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from anabranch.crawler.job.database import fetch, has_workers, server_time
from anabranch.crawler.report.metrics import Numbers
from anabranch.crawler.run.control import SILENT_S
from anabranch.crawler.run.verbs import Facts
from anabranch.frontier.times import duration_words


class WorkerLine(NamedTuple):
    """A worker of a job."""

    epoch: int
    name: str
    shares: int
    lease_s: float  #: so long its lease lasts from now on; below 0: it is late
    joined_s: float  #: epoch seconds, by the server's clock
    silent_s: float  #: seconds since its last status
    drains: bool
    obeyed: int  #: number of the operator's last wish that it has followed
    status: Mapping[str, Any] | None  #: None: there is none yet

    @property
    def is_silent(self) -> bool:
        """It hangs, or is gone: it writes its status each second. One that joins has none yet."""
        return self.silent_s > SILENT_S and (self.status is not None or self.lease_s <= 0)

    @property
    def silence(self) -> str:
        """That it does not answer, in words."""
        process = "" if self.status is None else f" (process {self.status['pid']})"
        return f"{self.name}{process} has not answered for {duration_words(self.silent_s)}"


def workers(connection: Connection) -> list[WorkerLine]:
    """The workers that have not left, the first to join first."""
    if not has_workers(connection):
        return []
    now_s = server_time(connection)
    rows = fetch(
        connection,
        """SELECT worker.epoch, worker.name, (SELECT count(*) FROM share WHERE share.epoch = worker.epoch),
           until_s - :now_s, joined_s, :now_s - coalesce(status_s, joined_s), coalesce(drains, 0),
           coalesce(obeyed, 0), status
           FROM worker LEFT JOIN job_worker ON job_worker.epoch = worker.epoch
           WHERE until_s > 0 ORDER BY worker.epoch""",
        now_s=now_s,
    )
    return [
        WorkerLine(
            epoch, name, shares, float(lease_s), float(joined_s), float(silent_s), bool(drains), obeyed,
            None if status is None else json.loads(status),
        )
        for epoch, name, shares, lease_s, joined_s, silent_s, drains, obeyed, status in rows
    ]  # fmt: skip


def silences(lines: Sequence[WorkerLine]) -> str:
    """That these workers do not answer, in words; empty for none. Pure."""
    return ", ".join(line.silence for line in lines)


def worker_numbers(lines: Iterable[WorkerLine]) -> dict[tuple[str, int], Numbers]:
    """The metrics of each worker that has a status, by its machine and process. Pure."""
    statuses = (line.status for line in lines if line.status is not None)
    return {(status["machine"], status["pid"]): status.get("metrics", {}) for status in statuses}


def worker_facts(line: WorkerLine) -> Facts:
    """A worker as `workers --json` shows it. Pure."""
    status = line.status or {}
    return {
        "name": line.name,
        "state": _worker_state(line),
        "shares": line.shares,
        "pages": status.get("pages", 0),
        "pages_per_s": _rate(status),
        "active": status.get("active", 0),
        "last_beat_s": line.silent_s,
        "lease_s": line.lease_s,
        "machine": status.get("machine", ""),
        "pid": status.get("pid"),
    }


def drained_facts(name: str) -> Facts:
    """A worker that was drained and has left, as `workers --json` shows it. Pure."""
    counts: Facts = dict.fromkeys(("shares", "pages", "active"), 0)
    times: Facts = dict.fromkeys(("pages_per_s", "last_beat_s", "lease_s"), 0.0)
    return {"name": name, "state": "drained", **counts, **times, "machine": "", "pid": None}


def _worker_state(line: WorkerLine) -> str:
    if line.lease_s <= 0:
        return "late"
    if line.is_silent:
        return "silent"
    if line.drains:
        return "draining"
    if line.status is None:
        return "joining"
    return "paused" if line.status.get("paused") else "waiting" if line.status.get("awaits") else "running"


def _rate(status: Mapping[str, Any]) -> float:
    elapsed_s = float(status.get("elapsed_s", 0.0))
    return float(status.get("pages", 0)) / elapsed_s if elapsed_s > 0 else 0.0
