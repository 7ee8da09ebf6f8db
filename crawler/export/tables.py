"""A job as tables: pages, crawl_log, errors, links, and the link graph as nodes and edges; as CSV, SQLite or Parquet.

Rows are made from the lines of the logs and written in batches. Texts come from the web: what no file of text can hold is
replaced, and CSV has no cell that a spreadsheet would run. pyarrow, an extra, is imported for Parquet only.
"""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from anabranch.crawler.accounts.crawl_log import NotALogLine, iso_time, parse_crawl_log_line
from anabranch.crawler.archive.databases import as_system_errors
from anabranch.crawler.export.cut import CRAWL_LOG, ERRORS, LINKS, PAGES, JobCut
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.extras import install_command

#: The formats of tables.
FORMATS: Final = ("parquet", "sqlite", "csv")
Kind = Literal["text", "integer", "boolean", "time"]
Cell = str | int | bool | None
Row = Sequence[Cell]

#: Rows that are written at once, and fewer if their texts are long.
_BATCH_ROWS: Final = 10_000
_BATCH_CHARS: Final = 1 << 24
#: SQLite's and Parquet's integers.
_LARGEST: Final = (1 << 63) - 1


class ExportedTable(NamedTuple):
    """A table: the names and kinds of its columns, and what makes its rows."""

    name: str
    columns: Mapping[str, Kind]
    rows: Callable[[JobCut], Iterator[Row]]


def _objects(cut: JobCut, log: str) -> Iterator[dict[str, Any]]:
    """The objects of a log of JSON lines; a line that is none is counted."""
    for line in cut.lines(log):
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict) and isinstance(fields.get("url"), str):
            yield fields
        else:
            cut.damaged[log] += 1


def pages_of(cut: JobCut) -> Iterator[dict[str, Any]]:
    """The objects of `pages.jsonl`."""
    return _objects(cut, PAGES)


def _of_columns(columns: Mapping[str, Kind], log: str) -> Callable[[JobCut], Iterator[Row]]:
    """Rows of the fields that have the names of the columns."""

    def rows(cut: JobCut) -> Iterator[Row]:
        for fields in _objects(cut, log):
            yield [_fit(fields.get(name), kind) for name, kind in columns.items()]

    return rows


def _crawl_log_rows(cut: JobCut) -> Iterator[Row]:
    for line in cut.lines(CRAWL_LOG):
        try:
            entry = parse_crawl_log_line(line)
        except NotALogLine:
            cut.damaged[CRAWL_LOG] += 1
            continue
        begun, ended, extra = entry.start_s, entry.end_s, entry.extra or {}
        duration_ms = None if begun is None or ended is None else round((ended - begun) * 1000)
        yield [
            iso_time(entry.logged_s),
            entry.status,
            _fit(entry.size_bytes, "integer"),
            entry.url,
            entry.hops,
            entry.via,
            entry.mime,
            entry.worker,
            None if begun is None else iso_time(begun),
            duration_ms,
            entry.digest,
            entry.source,
            ",".join(entry.annotations),
            _fit(extra.get("warcFilename"), "text"),
            _fit(extra.get("warcFileOffset"), "integer"),
        ]


def _link_rows(cut: JobCut) -> Iterator[Row]:
    for page in _objects(cut, LINKS):
        source = _fit(page["url"], "text")
        for link in _links_in(page):
            yield [source, *(_fit(link.get(name), "text") for name in ("url", "hop", "context"))]


def _links_in(page: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    links = page.get("links")
    if isinstance(links, list):
        yield from (link for link in links if isinstance(link, dict) and isinstance(link.get("url"), str))


def _fit(value: object, kind: Kind) -> Cell:
    """The value, if it is of this kind, as files can hold it; else None."""
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "integer":
        return value if type(value) is int and -_LARGEST <= value <= _LARGEST else None
    if not isinstance(value, str):
        return None
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "�").encode("utf-8", "replace").decode()


_PAGE_COLUMNS: Mapping[str, Kind] = {
    "url": "text",
    "status": "integer",
    "mime": "text",
    "size": "integer",
    "hops": "text",
    "via": "text",
    "fetch_time": "time",
    "digest": "text",
    "round": "integer",
    "title": "text",
    "text": "text",
}
_LOG_COLUMNS: Mapping[str, Kind] = {
    "logged": "time",
    "status": "integer",
    "size": "integer",
    "url": "text",
    "hops": "text",
    "via": "text",
    "mime": "text",
    "worker": "integer",
    "fetch_time": "time",
    "duration_ms": "integer",
    "digest": "text",
    "source": "text",
    "annotations": "text",
    "warc_filename": "text",
    "warc_offset": "integer",
}
_ERROR_COLUMNS: Mapping[str, Kind] = {
    "time": "time",
    "url": "text",
    "status": "integer",
    "words": "text",
    "exception": "text",
    "message": "text",
    "attempt": "integer",
    "final": "boolean",
    "hops": "text",
    "via": "text",
    "worker": "integer",
}

#: The tables that are made of one log each.
TABLES: Sequence[ExportedTable] = (
    ExportedTable("pages", _PAGE_COLUMNS, _of_columns(_PAGE_COLUMNS, PAGES)),
    ExportedTable("crawl_log", _LOG_COLUMNS, _crawl_log_rows),
    ExportedTable("errors", _ERROR_COLUMNS, _of_columns(_ERROR_COLUMNS, ERRORS)),
    ExportedTable("links", {"source": "text", "target": "text", "hop": "text", "context": "text"}, _link_rows),
)


@contextmanager
def _database_errors(file: Path) -> Iterator[None]:
    with storage_errors(file, "--out"), as_system_errors(file):
        yield


class LinkGraph:
    """The links with each URL once, in a file of SQLite: memory does not grow with it. Raises: StorageError."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;"
            "CREATE TABLE nodes (id INTEGER PRIMARY KEY, url TEXT UNIQUE NOT NULL, is_page INTEGER NOT NULL);"
            "CREATE TABLE edges (source INTEGER, target INTEGER, links INTEGER, PRIMARY KEY (source, target)) "
            "WITHOUT ROWID;"
        )

    def read(self, cut: JobCut) -> None:
        """Add the links of a job."""
        for page in _objects(cut, LINKS):
            with _database_errors(self._file):
                source = self._node(page["url"], is_page=True)
                targets = [(source, self._node(link["url"], is_page=False)) for link in _links_in(page)]
                sql = "INSERT INTO edges VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET links = links + 1"
                self._database.executemany(sql, targets)

    def tables(self) -> Sequence[ExportedTable]:
        """Its tables; a node is a page if its links were read."""
        return (
            ExportedTable("nodes", {"id": "integer", "url": "text", "is_page": "boolean"}, self._nodes),
            ExportedTable("edges", {"source": "integer", "target": "integer", "links": "integer"}, self._edges),
        )

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _node(self, url: str, *, is_page: bool) -> int:
        sql = (
            "INSERT INTO nodes (url, is_page) VALUES (?, ?) "
            "ON CONFLICT DO UPDATE SET is_page = is_page OR excluded.is_page RETURNING id"
        )
        ((number,),) = self._database.execute(sql, (_fit(url, "text"), is_page)).fetchall()
        return int(number)

    def _nodes(self, _: JobCut) -> Iterator[Row]:
        for number, url, is_page in self._database.execute("SELECT id, url, is_page FROM nodes ORDER BY id"):
            yield [number, url, bool(is_page)]

    def _edges(self, _: JobCut) -> Iterator[Row]:
        yield from self._database.execute("SELECT source, target, links FROM edges ORDER BY source, target")


def write_tables(cut: JobCut, writer: TableWriter, scratch: Path) -> dict[str, int]:
    """Write all tables of a job; returns the number of rows of each. `scratch` is a folder for the link graph.

    Raises: StorageError.
    """
    written: dict[str, int] = {}
    with ExitStack() as opened:
        tables = [*TABLES]
        if cut.has(LINKS):
            graph = opened.enter_context(closing(LinkGraph(scratch / "graph.sqlite")))
            graph.read(cut)
            tables += graph.tables()
        for table in tables:
            writer.begin(table)
            written[table.name] = 0
            for batch in _batches(table.rows(cut)):
                writer.write(batch)
                written[table.name] += len(batch)
            writer.end()
    return written


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Rows that are written together: so many, or fewer if their texts are long."""
    while batch := list(_batch(rows)):
        yield batch


def _batch(rows: Iterator[Row]) -> Iterator[Row]:
    chars = 0
    for row in islice(rows, _BATCH_ROWS):
        yield row
        chars += sum(len(cell) for cell in row if isinstance(cell, str))
        if chars > _BATCH_CHARS:
            return


class TableWriter(ABC):
    """Writes tables one after the other, each in batches. Raises: StorageError."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def begin(self, table: ExportedTable) -> None:
        """Begin a table."""

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Add rows to the table that was begun."""

    @abstractmethod
    def end(self) -> None:
        """End the table that was begun."""

    @abstractmethod
    def close(self) -> None:
        """Close the file. A second call does nothing."""


#: What a spreadsheet takes for a formula (OWASP: CSV injection), and what a terminal would obey.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class CsvWriter(TableWriter):
    """A file for each table, as RFC 4180 has them, in UTF-8; a missing value is an empty cell."""

    def __init__(self, file_of: Callable[[str], Path]) -> None:
        """`file_of` gives the path of a file by its name."""
        self._file_of = file_of
        self._opened = ExitStack()
        self._path = Path()

    def begin(self, table: ExportedTable) -> None:
        """Write the names of the columns."""
        self._path = self._file_of(f"{table.name}.csv")
        with storage_errors(self._path, "--out"):
            self._out = csv.writer(self._opened.enter_context(self._path.open("w", newline="", encoding="utf-8")))
            self._out.writerow(table.columns)

    def write(self, rows: Sequence[Row]) -> None:
        """Write lines; texts are made harmless."""
        with storage_errors(self._path, "--out"):
            self._out.writerows([[harmless(cell) if isinstance(cell, str) else cell for cell in row] for row in rows])

    def end(self) -> None:
        """Close the table's file."""
        self.close()

    def close(self) -> None:
        """Close the file that is open."""
        with storage_errors(self._path, "--out"):
            self._opened.close()


def harmless(text: str) -> str:
    """The text with `'` before what a spreadsheet would run, and controls but tab and newline escaped. Pure."""
    if _CONTROLS.search(text) is not None:
        text = _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return f"'{text}" if text.startswith(_FORMULA) else text


class SqliteWriter(TableWriter):
    """A database with all tables, and an index of each column that is a URL."""

    _TYPES: Final[Mapping[Kind, str]] = {"text": "TEXT", "integer": "INTEGER", "boolean": "INTEGER", "time": "TEXT"}
    _INDEXED: Final = ("url", "source", "target")

    def __init__(self, file: Path) -> None:
        self._file = file
        with _database_errors(self._file):
            self._database = sqlite3.connect(file, isolation_level=None)
            self._database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")

    def begin(self, table: ExportedTable) -> None:
        """Make the table."""
        self._table = table
        columns = ", ".join(f"{name} {self._TYPES[kind]}" for name, kind in table.columns.items())
        self._insert = f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})"  # noqa: S608 - names of ours
        with _database_errors(self._file):
            self._database.execute("BEGIN")
            self._database.execute(f"CREATE TABLE {table.name} ({columns})")

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows."""
        with _database_errors(self._file):
            self._database.executemany(self._insert, rows)

    def end(self) -> None:
        """Make the indexes, and commit."""
        with _database_errors(self._file):
            for column in self._table.columns:
                if column in self._INDEXED:
                    name = self._table.name
                    self._database.execute(f"CREATE INDEX {name}_{column} ON {name} ({column})")
            self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class ParquetWriter(TableWriter):
    """A file for each table; times are timestamps in UTC. Raises: UsageError without pyarrow."""

    def __init__(self, file_of: Callable[[str], Path]) -> None:
        """`file_of` gives the path of a file by its name."""
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra
            import pyarrow.parquet  # noqa: PLC0415 - which does not import it by itself
        except ModuleNotFoundError as error:
            raise UsageError(f"--to parquet: needs pyarrow; {install_command('export')}") from error
        self._arrow = pa
        self._file_of = file_of
        self._writer: Any = None

    def begin(self, table: ExportedTable) -> None:
        """Begin the table's file."""
        arrow = self._arrow
        types = {
            "text": arrow.string(),
            "integer": arrow.int64(),
            "boolean": arrow.bool_(),
            "time": arrow.timestamp("ms", tz="UTC"),
        }
        self._times = [number for number, kind in enumerate(table.columns.values()) if kind == "time"]
        self._schema = arrow.schema([(name, types[kind]) for name, kind in table.columns.items()])
        self._path = self._file_of(f"{table.name}.parquet")
        with storage_errors(self._path, "--out"):
            self._writer = arrow.parquet.ParquetWriter(str(self._path), self._schema, compression="zstd")

    def write(self, rows: Sequence[Row]) -> None:
        """Write a group of rows."""
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        for number in self._times:
            columns[number] = [_moment(cell) for cell in columns[number]]
        arrays = [
            self._arrow.array(column, type=field.type) for column, field in zip(columns, self._schema, strict=True)
        ]
        with storage_errors(self._path, "--out"):
            self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))

    def end(self) -> None:
        """End the file."""
        self.close()

    def close(self) -> None:
        """Close the file that is open."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with storage_errors(self._path, "--out"):
                writer.close()


def _moment(text: Cell) -> datetime | None:
    """The moment that a log names; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def writer_of(kind: str, file_of: Callable[[str], Path]) -> TableWriter:
    """The writer of a format; `file_of` gives the path of a file by its name. Raises: UsageError without what it needs."""
    if kind == "sqlite":
        return SqliteWriter(file_of(""))
    return CsvWriter(file_of) if kind == "csv" else ParquetWriter(file_of)
