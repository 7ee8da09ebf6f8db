"""The rows about several workers, and what they count as waiting for each other."""

from __future__ import annotations

from collections import Counter

from scripts.benchmarks.crawl.workers import Figures, Team, rows


def team(waits_s: dict[str, float], *, took_s: float = 10.0) -> Team:
    return Team(
        workers=2,
        pages=1000,
        took_s=took_s,
        worker_s=2.0,
        server_s=0.5,
        figures=Figures(wal_bytes=2_000_000.0, commits=300.0, rows=9000.0),
        waits_s=Counter(waits_s),
        connections=4,
    )


def test_only_locks_count_as_waiting_for_each_other() -> None:
    """Not the disk, the program or another kind of latch; and all workers' seconds together are part of the run's."""
    waits_s = {
        "Lock/transactionid: INSERT": 0.5,
        "Lock/extend: COPY": 0.25,
        "LWLock/WALWrite: COMMIT": 7.0,
        "working": 9.0,
    }
    locked = [*rows([team(waits_s)])][-1]
    assert (locked.name, locked.measured, locked.target, locked.is_bound) == ("workers/2/locked", 0.075, 0.01, True)
    assert locked.note.startswith("Lock/transactionid: INSERT 0.50 s; Lock/extend: COPY 0.25 s; working 9.00 s")


def test_figures_are_of_a_page_and_medians_of_the_crawls() -> None:
    """A disturbed crawl changes nothing."""
    teams = [team({}), team({}), team({"Lock/tuple: UPDATE": 90.0}, took_s=100.0)]
    figures = {row.name.rpartition("/")[2]: row.measured for row in rows(teams)}
    assert figures == {"worker": 2.0, "server": 0.5, "wal_bytes": 2000.0, "rows": 9.0, "commits": 0.3, "locked": 0.0}
