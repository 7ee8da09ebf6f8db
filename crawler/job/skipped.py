"""`state/skipped.sqlite`: URLs that were skipped because a parameter changes nothing, and their rules (`scope.parameters`).

A URL is in the file before its queue ends it, so it can be queued again: when its rule is undone, or by the operator. The file
is made with the first URL. It is of one round of the job: the next round begins without it. About 300 bytes a URL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.archive.databases import as_system_errors, connected, is_damaged, reason
from anabranch.crawler.job.seeds import queued_again
from anabranch.crawler.job.state import SKIPPED
from anabranch.crawler.outcomes.errors import ExitCode, StorageError, storage_error
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.scope.parameters import Template
from anabranch.crawler.urls.canonicalization import KeyOf
from anabranch.frontier.records import Candidate, UrlRecord

#: The file's name in the state folder.
#: URLs that are read at a time.
PAGE = 500

_ADVICE = "remove it and what begins with its name: URLs that were skipped before are not queued again then"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS round (number INTEGER NOT NULL)",
    # Without a signature it was undone.
    """CREATE TABLE IF NOT EXISTS rule (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, url TEXT NOT NULL, signature BLOB, UNIQUE (name, url)
    )""",
    """CREATE TABLE IF NOT EXISTS skipped (
        url TEXT PRIMARY KEY, hops TEXT NOT NULL, via TEXT, payload BLOB, rule INTEGER NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS skipped_rule ON skipped (rule, url)",
)
#: URLs are ended by the queue when they are in the file.
_DURABLE = ("PRAGMA synchronous = FULL",)


class SkippedDamaged(StorageError):
    """The file is not what was written to it."""

    exit_code = ExitCode.BAD_ORDER


class SkippedUrl(NamedTuple):
    """A URL that was skipped, and what it takes to queue it again."""

    url: str
    hops: str  #: the path from the seed
    via: str | None  #: the page it was found on
    payload: bytes | None  #: that of its candidate


class KeptRule(NamedTuple):
    """A rule that has skipped URLs."""

    template: Template
    signature: bytes | None  #: what its answered URLs had in common; None: it was undone
    skipped: int  #: its URLs in the file


class SkippedUrls:
    """The file of one job. All methods block, and may be called by any thread. They raise StorageError."""

    def __init__(self, state: Path, round_number: int | None = None) -> None:
        """Open the file if there is one. What is in it of another round than this is removed; None: look at any."""
        self._path = state / SKIPPED
        self._round = round_number
        self._lock = threading.Lock()
        self._connection: Any = None
        if self._path.exists():
            with self._lock, self._errors():
                self._open()

    def rules(self) -> list[KeptRule]:
        """The rules that have skipped URLs, those that were undone, too."""
        found = self._read(
            "SELECT name, url, signature, (SELECT count(*) FROM skipped WHERE skipped.rule = rule.id) FROM rule ORDER BY id"
        )
        return [KeptRule(Template(name, url), signature, count) for name, url, signature, count in found]

    def add(self, skipped: Sequence[tuple[Template, SkippedUrl]], signatures: Mapping[Template, bytes]) -> None:
        """Record URLs that are about to be skipped, durably. `signatures` has their rules."""
        with self._writing() as connection:
            for template, signature in signatures.items():
                connection.exec_driver_sql(
                    "INSERT INTO rule (name, url, signature) VALUES (?, ?, ?) "
                    "ON CONFLICT (name, url) DO UPDATE SET signature = excluded.signature",
                    (*template, signature),
                )
            connection.exec_driver_sql(
                "INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?, (SELECT id FROM rule WHERE name = ? AND url = ?))",
                [(*row, *template) for template, row in skipped],
            )

    def undo(self, template: Template) -> None:
        """Record that a rule is undone, durably."""
        if self._connection is not None:  # it has skipped nothing
            with self._writing() as connection:
                connection.exec_driver_sql(
                    "UPDATE rule SET signature = NULL WHERE name = ? AND url = ?", tuple(template)
                )

    def pages(self, template: Template) -> Iterator[list[SkippedUrl]]:
        """The skipped URLs of a rule, `PAGE` at a time."""
        after = ""
        while page := self._read(
            "SELECT skipped.url, hops, via, payload FROM skipped JOIN rule ON rule.id = skipped.rule "
            "WHERE rule.name = ? AND rule.url = ? AND skipped.url > ? ORDER BY skipped.url LIMIT ?",
            (*template, after, PAGE),
        ):
            yield [SkippedUrl(*row) for row in page]
            after = page[-1][0]

    def remove(self, skipped: Sequence[SkippedUrl]) -> None:
        """Forget URLs: they are queued again, or were fetched."""
        if not skipped:
            return
        with self._writing() as connection:
            connection.exec_driver_sql("DELETE FROM skipped WHERE url = ?", [(row.url,) for row in skipped])

    def rule_of(self, url: str) -> Template | None:
        """The rule by which a URL was skipped."""
        found = self._read(
            "SELECT name, rule.url FROM rule JOIN skipped ON rule.id = skipped.rule WHERE skipped.url = ?", (url,)
        )
        return Template(*found[0]) if found else None

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._errors():
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _read(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        if self._connection is None:
            return []
        with self._lock, self._errors(), self._connection.begin():
            return list(self._connection.exec_driver_sql(statement, values).fetchall())

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._lock, self._errors():
            self._open()
            with self._connection.begin():
                yield self._connection

    def _open(self) -> None:
        if self._connection is not None:
            return
        self._connection = connected(self._path, pragmas=_DURABLE, begin=self._begin)

    def _begin(self, connection: Any) -> None:
        for statement in _TABLES:
            connection.exec_driver_sql(statement)
        if self._round is not None:
            self._begin_round(connection, self._round)

    @staticmethod
    def _begin_round(connection: Any, number: int) -> None:
        if connection.exec_driver_sql("SELECT number FROM round WHERE number = ?", (number,)).first() is None:
            for statement in ("DELETE FROM round", "DELETE FROM rule", "DELETE FROM skipped"):
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql("INSERT INTO round VALUES (?)", (number,))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with as_system_errors(self._path):
                yield
        except OSError as error:
            if is_damaged(error) and error.__cause__ is not None:
                raise SkippedDamaged(f"{self._path}: {reason(error.__cause__).lower()}; {_ADVICE}") from error
            raise storage_error(error, self._path) from error


def due_again(
    skipped: Sequence[SkippedUrl], ended: Callable[[list[bytes]], Mapping[bytes, UrlRecord]], key: KeyOf
) -> tuple[list[Candidate], list[SkippedUrl]]:
    """The candidates for those URLs that the store's records of `ended` URLs call skipped, so that none is queued twice.

    And the URLs that the file need not keep then: one that is being skipped has not ended yet.
    """
    keys = [key(row.url) or row.url.encode() for row in skipped]
    records = ended(keys)
    known = [(row, records[one]) for row, one in zip(skipped, keys, strict=True) if one in records]
    due = [
        Candidate(row.url, key(row.url), row.hops, queued_again(row.payload), force=True)
        for row, record in known
        if record.status == FetchStatus.SKIPPED
    ]
    return due, [row for row, _ in known]
