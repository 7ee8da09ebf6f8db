"""`state/accounts.sqlite`: the tables of a job's totals, the connection that adds to them, and a view for reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Double,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    bindparam,
    func,
    inspect,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.sqlite import Insert, insert

from anabranch.crawler.accounts.totals import DNS, SUMS, Additions, Totals
from anabranch.crawler.archive.databases import as_system_errors, connected
from anabranch.frontier.stores.sql.sqlite import twice

#: The file's name in the state folder.
ACCOUNTS_FILE = "accounts.sqlite"

# Tables

_METADATA = MetaData()
_FIRST, _LAST = "first_success_s", "last_success_s"


def _totals_columns() -> list[Column[Any]]:
    """The fields of `Totals`, in their order."""
    return [*map(_count, SUMS), Column(_FIRST, Double), Column(_LAST, Double)]


def _counted(name: str, keys: Sequence[str], *columns: Column[Any]) -> Table:
    """A table with these texts as its key."""
    return Table(
        name, _METADATA, *[Column(key, String, primary_key=True) for key in keys], *columns, sqlite_with_rowid=False
    )


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False)


_HOST = _counted("host", ["host"], *_totals_columns())
#: One row, number 0.
_TOTAL = Table("total", _METADATA, Column("id", Integer, primary_key=True), *_totals_columns())
_MIME = _counted("mime", ["mime"], _count("urls"), _count("bytes"))
_STATUS = Table("status", _METADATA, Column("status", Integer, primary_key=True), _count("urls"))
_SOURCE = _counted("source", ["source", "host"], _count("urls"))
_PROCESSOR = _counted("processor", ["processor", "counter"], _count("number"))
#: The hosts whose answers were bad HTTP. Files of earlier versions get the table when they are opened for writing.
_BAD_HTTP = _counted("bad_http", ["host"], _count("urls"))
#: When each run of the job began, and the last time at which it is known to have run.
_RUN = Table("run", _METADATA, Column("started_s", Double, primary_key=True), Column("until_s", Double, nullable=False))
#: One row, number 0: the place of the journal up to which the rows count. No row before the first journal.
_PLACE = Table("place", _METADATA, Column("id", Integer, primary_key=True), Column("place", Integer, nullable=False))
#: One row, number 0: how much of crawl.log was counted before there was a journal.
_COVERED = Table(
    "covered", _METADATA, Column("id", Integer, primary_key=True), Column("bytes", Integer, nullable=False)
)

#: The tables of sums.
_SUM_TABLES = (_HOST, _TOTAL, _MIME, _STATUS, _SOURCE, _PROCESSOR, _BAD_HTTP)

# Statements


def _adding(table: Table) -> Insert:
    """Add a row's numbers to the row with its key, or insert it. First times take the least, last the greatest."""
    statement = insert(table)
    changed: dict[str, ColumnElement[Any]] = {}
    for column in table.columns:
        new = statement.excluded[column.name]
        if column.primary_key:
            continue
        if column.name in {_FIRST, _LAST}:
            either = func.coalesce(column, new), func.coalesce(new, column)
            changed[column.name] = func.min(*either) if column.name == _FIRST else func.max(*either)
        else:
            changed[column.name] = column + new
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)


_ADD = {table.name: _adding(table) for table in _SUM_TABLES}
_SET_RUN, _SET_PLACE, _SET_COVERED = (insert(table).prefix_with("OR REPLACE") for table in (_RUN, _PLACE, _COVERED))
#: The place and the host's row, read in one statement.
_ROW_OF_HOST = select(_PLACE.c.place, *(column for column in _HOST.columns if not column.primary_key)).select_from(
    _PLACE.outerjoin(_HOST, _HOST.c.host == bindparam("asked"))
)

#: A commit is synced, because the journal forgets what it holds.
_DURABLE = ("PRAGMA synchronous = FULL",)
#: Rows that are read at a time.
_PAGE = 1000


def _totals_of(columns: Sequence[float | None]) -> Totals:
    """The totals of a row of `host` or `total` without its key."""
    return Totals(*columns)  # type: ignore[arg-type]


def _columns_of(totals: Totals) -> dict[str, float | None]:
    return {name: getattr(totals, name) for name in (*SUMS, _FIRST, _LAST)}


class CountedRow(NamedTuple):
    """A row of one of the tables."""

    kind: str  #: the table
    key: list[Any]
    value: list[Any]  #: the columns that are no key


class AccountsDatabase:
    """The rows of a job's accounts: one connection writes, another one reads. Raises: OSError, as for every file."""

    def __init__(self, path: Path) -> None:
        """Connect, and create missing tables."""
        self._path = path
        with as_system_errors(path):
            self._writer = connected(path, pragmas=_DURABLE, begin=_METADATA.create_all)
            try:
                self._reader = connected(path, is_reader=True)
            except BaseException:
                self._writer.close()
                raise

    def is_consistent(self) -> bool:
        """Whether the file is undamaged, and the sums of the hosts are those of `total`. Cost: linear in the file."""
        with as_system_errors(self._path):
            checked = self._reader.execute(text("PRAGMA quick_check(1)")).scalars().all()
            of_hosts = self._reader.execute(select(*(func.total(_HOST.c[name]) for name in SUMS))).one()
            of_all = self._reader.execute(select(*(func.total(_TOTAL.c[name]) for name in SUMS))).one()
            self._reader.rollback()
        return checked == ["ok"] and tuple(of_hosts) == tuple(of_all)

    def places(self) -> tuple[int | None, int]:
        """The place of the journal up to which the rows count (None: no journal yet), and how much of crawl.log they count."""
        with as_system_errors(self._path):
            place = self._reader.execute(select(_PLACE.c.place)).scalar_one_or_none()
            covered = self._reader.execute(select(_COVERED.c.bytes)).scalar_one_or_none()
            self._reader.rollback()
        return place, covered or 0

    def totals_of_host(self, host: str) -> tuple[int, Totals]:
        """The place of the journal up to which the rows count, and the host's totals, both of the same moment."""
        with as_system_errors(self._path):
            row = self._reader.execute(_ROW_OF_HOST, {"asked": host}).one_or_none()
            self._reader.rollback()
        if row is None:
            return 0, Totals()
        return row[0], _totals_of(row[1:]) if row[1] is not None else Totals()

    def types(self, limit: int) -> list[str]:
        """The media types that have a row, at most `limit`."""
        with as_system_errors(self._path):
            names = list(self._reader.execute(select(_MIME.c.mime).limit(limit)).scalars())
            self._reader.rollback()
        return names

    def write(self, added: Additions, run: tuple[float, float], *, place: int | None = None, covered: int = 0) -> None:
        """Add to the rows durably; then they count the journal up to `place`, or without one crawl.log up to `covered`."""
        with as_system_errors(self._path):
            twice(lambda: self._write(added, run, place, covered))

    def cover(self, crawl_log: Path) -> None:
        """Take all lines of a crawl.log for counted, in a database that has counted none: others have them."""
        size = crawl_log.stat().st_size if crawl_log.exists() else 0
        self.write(Additions(), (0.0, 0.0), covered=size)

    def _write(self, added: Additions, run: tuple[float, float], place: int | None, covered: int) -> None:
        with self._writer.begin():
            of_mime, of_source, of_processor = added.mime_urls.items(), added.sources.items(), added.processors.items()
            additions: dict[Table, list[dict[str, Any]]] = {
                _HOST: [{"host": host, **_columns_of(totals)} for host, totals in added.hosts.items()],
                _TOTAL: [{"id": 0, **_columns_of(added.total)}],
                _MIME: [{"mime": mime, "urls": urls, "bytes": added.mime_bytes[mime]} for mime, urls in of_mime],
                _STATUS: [{"status": status, "urls": urls} for status, urls in added.statuses.items()],
                _SOURCE: [{"source": tag, "host": host, "urls": urls} for (tag, host), urls in of_source],
                _PROCESSOR: [{"processor": name, "counter": of, "number": n} for (name, of), n in of_processor],
                _BAD_HTTP: [{"host": host, "urls": urls} for host, urls in added.bad_http.items()],
            }
            for table, rows in additions.items():
                if rows:
                    self._writer.execute(_ADD[table.name], rows)
            self._writer.execute(_SET_RUN, {"started_s": run[0], "until_s": run[1]})
            if place is not None:
                self._writer.execute(_SET_PLACE, {"id": 0, "place": place})
            else:
                self._writer.execute(_SET_COVERED, {"id": 0, "bytes": covered})

    def extend_run(self, before_s: float, until_s: float) -> None:
        """The last run that began before that time lasted at least until `until_s`."""
        last = select(func.max(_RUN.c.started_s)).where(_RUN.c.started_s < before_s).scalar_subquery()
        with as_system_errors(self._path), self._writer.begin():
            self._writer.execute(
                update(_RUN).where(_RUN.c.started_s == last, _RUN.c.until_s < until_s).values(until_s=until_s)
            )

    def rows_of(self, added: Additions | None) -> list[CountedRow]:
        """The rows to which these additions were made, and the runs; None: all rows. Any thread. Cost: a seek each."""
        wanted: dict[Table, list[Any] | None] = dict.fromkeys((*_SUM_TABLES, _RUN))
        if added is not None:
            wanted |= {
                _HOST: list(added.hosts),
                _MIME: list(added.mime_urls),
                _STATUS: list(added.statuses),
                _SOURCE: list(added.sources),
                _PROCESSOR: list(added.processors),
                _BAD_HTTP: list(added.bad_http),
            }
        found: list[CountedRow] = []
        with as_system_errors(self._path), connected(self._path, is_reader=True) as reader:
            for table, keys in wanted.items():
                found += _rows_of(reader, table, keys)
        return found

    def add_rows(self, rows: Iterable[CountedRow], runs: Iterable[tuple[float, float]]) -> None:
        """Add rows of several databases, and put the times of their runs in."""
        tables: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            columns = _METADATA.tables[row.kind].columns
            names = [*(column.name for column in columns if column.primary_key)]
            names += [column.name for column in columns if not column.primary_key]
            tables.setdefault(row.kind, []).append(dict(zip(names, [*row.key, *row.value], strict=True)))
        with as_system_errors(self._path), self._writer.begin():
            for name, listed in tables.items():
                self._writer.execute(_ADD[name], listed)
            for started_s, until_s in runs:
                self._writer.execute(_SET_RUN, {"started_s": started_s, "until_s": until_s})

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file, so that the file alone holds everything."""
        with as_system_errors(self._path):
            self._writer.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").close()  # in no transaction

    def close(self) -> None:
        """Close both connections. A second call does nothing."""
        self._writer.close()
        self._reader.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._writer.closed


def rows_added(added: Additions) -> list[CountedRow]:
    """Sum these additions into rows of their own. Pure. Cost: 1 µs a row."""
    tables: dict[Table, Mapping[Any, list[Any]]] = {
        _HOST: {(host,): _values_of(totals) for host, totals in added.hosts.items()},
        _TOTAL: {(0,): _values_of(added.total)},
        _MIME: {(mime,): [urls, added.mime_bytes[mime]] for mime, urls in added.mime_urls.items()},
        _STATUS: {(status,): [urls] for status, urls in added.statuses.items()},
        _SOURCE: {key: [urls] for key, urls in added.sources.items()},
        _PROCESSOR: {key: [number] for key, number in added.processors.items()},
        _BAD_HTTP: {(host,): [urls] for host, urls in added.bad_http.items()},
    }
    return [CountedRow(table.name, [*key], value) for table, rows in tables.items() for key, value in rows.items()]


def sum_of(one: CountedRow, other: CountedRow) -> CountedRow:
    """Two rows with the same key as one. Pure."""
    if one.kind not in {_HOST.name, _TOTAL.name}:
        return one._replace(value=[mine + more for mine, more in zip(one.value, other.value, strict=True)])
    totals = Totals(*one.value)
    totals.add(Totals(*other.value))
    return one._replace(value=_values_of(totals))


def _values_of(totals: Totals) -> list[Any]:
    return [*_columns_of(totals).values()]


def _rows_of(reader: Connection, table: Table, keys: list[Any] | None) -> Iterator[CountedRow]:
    """The rows of a table with these keys, or all."""
    own = list(table.primary_key)
    named = own[0] if len(own) == 1 else tuple_(*own)
    chunks = [None] if keys is None else [keys[at : at + _PAGE] for at in range(0, len(keys), _PAGE)]
    for chunk in chunks:
        query = select(*own, *(column for column in table.columns if not column.primary_key))
        for row in reader.execute(query if chunk is None else query.where(named.in_(chunk))):
            yield CountedRow(table.name, list(row[: len(own)]), list(row[len(own) :]))


Row = tuple[Any, ...]


class AccountsView(AbstractContextManager["AccountsView"]):
    """Reads the accounts of a job as they were last written (`Accounts.sync`). Memory: a page of rows. Raises: OSError."""

    def __init__(self, state: Path, temporary: TemporaryDirectory[str] | None = None) -> None:
        """`temporary`: a folder that is removed with the view."""
        self._temporary = temporary
        self._file = state / ACCOUNTS_FILE
        if not self._file.is_file():
            raise FileNotFoundError(2, "there are no accounts yet", str(self._file))
        with as_system_errors(self._file):
            self._connection = connected(self._file, is_reader=True)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        if not self._connection.closed:
            self._connection.close()
            if self._temporary is not None:
                self._temporary.cleanup()

    def total(self) -> Totals:
        """The totals of all hosts together."""
        row = next(self._rows(select(*list(_TOTAL.columns)[1:])), None)
        return Totals() if row is None else _totals_of(row)

    def hosts_visited(self) -> int:
        """The number of hosts that answered; DNS look-ups do not count."""
        return int(next(self._rows(select(func.count()).where(_HOST.c.urls > 0, _HOST.c.host != DNS)))[0])

    def hosts(self) -> Iterator[tuple[str, Totals]]:
        """Every host with its totals, most URLs first."""
        for host, *columns in self._rows(select(*_HOST.columns).order_by(_HOST.c.urls.desc(), _HOST.c.host)):
            yield host, _totals_of(columns)

    def bad_http(self) -> dict[str, int]:
        """The hosts whose answers were bad HTTP, with the number of their URLs. Empty for a job of an earlier version."""
        with as_system_errors(self._file):
            is_there = inspect(self._connection).has_table(_BAD_HTTP.name)
        return dict(self._rows(select(*_BAD_HTTP.columns))) if is_there else {}

    def mime_types(self) -> Iterator[Row]:
        """(type, URLs, bytes), most URLs first."""
        return self._rows(select(*_MIME.columns).order_by(_MIME.c.urls.desc(), _MIME.c.mime))

    def statuses(self) -> Iterator[Row]:
        """(status, URLs), most URLs first."""
        return self._rows(select(*_STATUS.columns).order_by(_STATUS.c.urls.desc(), _STATUS.c.status))

    def sources(self) -> Iterator[Row]:
        """(seed, host, URLs), by seed, most URLs first."""
        return self._rows(select(*_SOURCE.columns).order_by(_SOURCE.c.source, _SOURCE.c.urls.desc(), _SOURCE.c.host))

    def processors(self) -> Iterator[Row]:
        """(processor, counter, number)."""
        return self._rows(select(*_PROCESSOR.columns).order_by(_PROCESSOR.c.processor, _PROCESSOR.c.counter))

    def duration_s(self) -> float:
        """How long the job has run, all runs together."""
        found = next(self._rows(select(func.coalesce(func.sum(_RUN.c.until_s - _RUN.c.started_s), 0.0))))
        return float(found[0])

    def _rows(self, query: Select[Any]) -> Iterator[Row]:
        with as_system_errors(self._file):
            result = self._connection.execution_options(yield_per=_PAGE).execute(query)
            try:
                for row in result:
                    yield tuple(row)
            finally:
                result.close()
