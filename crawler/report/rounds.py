"""Compares two rounds of a job by the lines of crawl.log: URLs that are new, gone, changed, or answered with another status.

The lines of both rounds go through a temporary SQLite database on the disk, so memory does not grow with the job. A URL counts
by its last line of a round.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.job.workerfolders import worker_folders
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.crawler.report.table import ReportTable

#: The name of the comparison, among those of the reports.
ROUNDS = "rounds"
#: What became of a URL. A 304 says that nothing has changed.
NEW, GONE, CHANGED, STATUS = "new", "gone", "changed", "status"
CHANGES = (NEW, GONE, CHANGED, STATUS)

_HEADS = ("change", "url", "status-before", "status-after")
_ROUND = b"round:"
#: Fields of a line that count; see `accounts.crawl_log`.
_FIELDS = 12
_BATCH = 10_000
_TWO = 2
_TABLE = """CREATE TABLE line (url TEXT PRIMARY KEY, status_before INTEGER, digest_before TEXT, status_after INTEGER,
digest_after TEXT) WITHOUT ROWID"""
_BEFORE = """INSERT INTO line (url, status_before, digest_before) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET status_before = excluded.status_before, digest_before = excluded.digest_before"""
_AFTER = """INSERT INTO line (url, status_after, digest_after) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET status_after = excluded.status_after, digest_after = excluded.digest_after"""
_CHANGE = """CASE WHEN status_before IS NULL THEN 'new' WHEN status_after IS NULL THEN 'gone'
WHEN status_after = 304 AND status_before BETWEEN 200 AND 299 THEN NULL
WHEN status_before <> status_after AND NOT (status_before = 304 AND status_after BETWEEN 200 AND 299) THEN 'status'
WHEN digest_before <> digest_after AND digest_before <> '-' AND digest_after <> '-' THEN 'changed' END"""
_COUNTS = f"SELECT {_CHANGE} AS change, COUNT(*) FROM line GROUP BY change"  # noqa: S608 - constants
_ROWS = f"""SELECT {_CHANGE} AS change, url, status_before, status_after FROM line
WHERE change IS NOT NULL AND (?1 = '' OR change = ?1) ORDER BY change, url LIMIT ?2"""  # noqa: S608 - constants


class RoundChange(NamedTuple):
    """A URL that is not in one round as in the other."""

    change: str  #: one of `CHANGES`
    url: str
    status_before: int | None
    status_after: int | None


class ComparedRounds(NamedTuple):
    """What has changed from one round to another."""

    rounds: Sequence[int]  #: those that have lines
    before: int
    after: int
    counts: dict[str, int]  #: by change, in the order of `CHANGES`
    unchanged: int
    rows: Sequence[RoundChange]
    more: bool  #: there are more rows

    @property
    def table(self) -> ReportTable:
        """The rows, as a report."""
        return ReportTable(_HEADS, self.rows, right=(-8,))

    @property
    def facts(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {**self._asdict(), "rounds": [*self.rounds], "rows": [row._asdict() for row in self.rows]}

    @property
    def line(self) -> str:
        """`round 1 to 2: 3 new, 1 gone, 4 changed, 2 status, 90 unchanged`."""
        counts = ", ".join(f"{number:,} {change}" for change, number in self.counts.items())
        return f"round {self.before} to {self.after}: {counts}, {self.unchanged:,} unchanged"


def compare_rounds(
    directory: Path, before: int | None = None, after: int | None = None, *, change: str = "", limit: int = 1000
) -> ComparedRounds:
    """Compare two rounds of a job, by default the last two. `change`: rows of this one alone. Blocks, for minutes if the logs
    are large.

    Raises: UsageError for a round without lines, or a job of one round; StorageError.
    """
    if change and change not in CHANGES:
        raise UsageError(f"{change!r}: is no change; the changes are: {', '.join(CHANGES)}")
    files = _logs(directory)
    rounds = sorted({number for number, *_ in _lines(files)})
    pair = _pair(directory.name, rounds, before, after)
    with closing(sqlite3.connect("", isolation_level=None)) as database:  # a file that nobody else sees
        database.execute("PRAGMA journal_mode = OFF")
        database.execute(_TABLE)
        for statement, number in zip((_BEFORE, _AFTER), pair, strict=True):
            lines = (fields for own, *fields in _lines(files) if own == number)
            while batch := list(islice(lines, _BATCH)):
                database.executemany(statement, batch)
        found = dict(database.execute(_COUNTS).fetchall())
        rows = [RoundChange(*row) for row in database.execute(_ROWS, (change, limit + 1))]
    counts = {name: found.get(name, 0) for name in CHANGES}
    return ComparedRounds(rounds, *pair, counts, found.get(None, 0), rows[:limit], len(rows) > limit)


def _pair(job: str, rounds: Sequence[int], before: int | None, after: int | None) -> tuple[int, int]:
    """The rounds to compare: those that are named, else the last one and the one before. Raises: UsageError. Pure."""
    if (before, after) == (None, None) and len(rounds) < _TWO:
        has = "one round" if rounds else "no lines of a round yet"
        raise UsageError(
            f"{job}: has {has}; `anabranch crawl --again` begins another one, which can be compared with it"
        )
    later = max(rounds, default=1) if after is None else after
    earlier = max((number for number in rounds if number < later), default=later - 1) if before is None else before
    for number in (later, earlier):
        if number not in rounds:
            known = ", ".join(map(str, rounds))
            raise UsageError(f"{job}: crawl.log has no lines of round {number}; rounds that it has: {known}")
    if earlier == later:
        raise UsageError(f"rounds: {earlier} is compared with itself; name two")
    return earlier, later


def _logs(directory: Path) -> list[Path]:
    """The logs of a job and its workers, the rotated ones first, without compressed ones and links out of the job."""
    found: list[Path] = []
    for folder in (directory, *worker_folders(directory)):
        rotated = [one for one in (folder / "logs").glob("crawl.log.*") if one.suffix[1:].isdecimal()]
        found += [*sorted(rotated, key=lambda one: -int(one.suffix[1:])), folder / "logs" / "crawl.log"]
    return [one for one in found if one.is_file() and one.resolve().is_relative_to(directory.resolve())]


def _lines(files: Iterable[Path]) -> Iterator[tuple[int, str, int, str]]:
    """Round, URL, status and digest of each line about a page. Lines of before rounds were noted are of the first one."""
    for file in files:
        with storage_errors(file), file.open("rb") as lines:
            for line in lines:
                fields = line.split(None, _FIELDS)
                if len(fields) < _FIELDS or not fields[3].startswith((b"http:", b"https:")):
                    continue
                noted = fields[11].rpartition(_ROUND)[2] if _ROUND in fields[11] else b"1"
                try:
                    yield (
                        int(noted),
                        fields[3].decode("ascii", "replace"),
                        int(fields[1]),
                        fields[9].decode("ascii", "replace"),
                    )
                except ValueError:
                    continue
