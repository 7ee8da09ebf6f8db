"""All queues and gates of a store as tables that can be sorted, filtered and paged at any place, while the crawl goes on.

`make_tables` reads the tables `queue`, `lane` and `gate` once, from a copy of the file or in one transaction of PostgreSQL, and
writes a file for each column: the rows by key, and for each column the order of the rows by its values. `BrowsedTable` maps
these files. A page without a filter is a slice of an order; a filter looks at every row, which takes some milliseconds a
million. An index in a database would find the middle of filtered rows only by reading all rows before it.

    make_tables("jobs/news/state/frontier.db", folder, is_running=True)     # 1,000,000 queues: some seconds
    queues, gates = browsed_tables(folder)
    found = queues.find(PageQuery(sort="urls", descending=True, text="example", offset=600_000))
    [(queues.key(row), queues.values(row)["urls"]) for row in found.rows]
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.records import WAITING, name_id
from anabranch.frontier.stores.contract import Standing
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.execution import Statement, fetch, stream
from anabranch.frontier.stores.sql.livecopy import copy_live
from anabranch.frontier.stores.sql.postgres import PostgresDatabase
from anabranch.frontier.stores.sql.sqlite import log_of, reader, translated

Column = NDArray[Any]

#: Folders of the two tables, and the copy of a store in a file.
QUEUES, GATES, COPY = "queues", "gates", "frontier.db"
#: States of queues, in the order of a sort. Rows tell "ready" where a gate of the queue is in the memory of the crawl, which
#: knows the state itself; "in-flight" and "loading" only it knows.
QUEUE_STATES = ("in-flight", "ready", "loading", "inactive", "snoozed", "paused", "retired", "empty")
#: States of gates; "in-flight", with fetches under way, only a running crawl knows.
GATE_STATES = ("in-flight", "open", "resting", "blocked")
#: Columns of the tables that can be sorted, besides the key and the state. Times are epoch seconds.
QUEUE_COLUMNS = ("urls", "waiting", "precedence", "spent", "budget", "gates", "successes", "errors")
GATE_COLUMNS = (
    "urls", "queues", "blocked_until_s", "rests_until_s", "spacing_s", "throttle_s", "troubles", "slots", "held"
)  # fmt: skip
KEY, STATE = "key", "state"
#: A number that is not set, and so by the order.
NOT_SET = -(1 << 31)
#: Between two keys; no text has this byte.
_BETWEEN = b"\xff"
_ROWS_AT_ONCE = 50_000
#: Room that the disk must keep.
_SPARE_BYTES = 64 << 20
#: Lanes of a queue or gate whose first URLs are read.
_LANES = 50


#: Columns that close a gate until then, and its state.
_CLOSED = (("blocked_until_s", "blocked"), ("rests_until_s", "resting"))
NOTHING_KNOWN: Mapping[int, str] = MappingProxyType({})


class PageQuery(NamedTuple):
    """Which rows to show. A page begins after a row, or at an offset."""

    sort: str = KEY
    descending: bool = False  #: the whole order reversed; rows with equal values are ordered by their keys
    text: str = ""  #: part of the key; capitals of ASCII make no difference
    states: tuple[str, ...] = ()  #: none = all
    least_urls: int = 0
    after: tuple[Any, str] | None = None  #: value of the sorted column, and key, of the last row of the page before
    offset: int = 0  #: without `after`
    limit: int = 100


class FoundRows(NamedTuple):
    """The numbers of the rows of a page."""

    rows: list[int]
    total: int  #: rows that match
    offset: int  #: of the first one


class QueuedUrl(NamedTuple):
    """A queued URL, the sooner to be fetched the earlier it comes."""

    url: str
    queue: str
    gate: str
    precedence: int  #: smaller is served first
    attempts: int
    due_s: float | None  #: it waits for a retry until then


class BrowsedTable:
    """The table in a folder. Its files may be removed while it is in use."""

    def __init__(self, folder: Path) -> None:
        self._names = QUEUE_STATES if folder.name == QUEUES else GATE_STATES
        files = {file.name.removesuffix(".npy"): _mapped(file) for file in folder.iterdir()}
        self._orders = {name: files.pop(f"{name}.order") for name in [*files] if f"{name}.order" in files}
        self._keys, self._ends = files.pop("keys"), files.pop("ends")
        self._columns = files

    def __len__(self) -> int:
        return len(self._ends) - 1

    def key(self, row: int) -> str:
        """The key of a row."""
        return self._key(row).decode()

    def value(self, name: str, row: int) -> Any:
        """A number of a row; None if it is not set."""
        value = self._columns[name][row].item()
        return None if value == NOT_SET else value

    def values(self, row: int) -> dict[str, Any]:
        """All numbers of a row, by the columns that can be sorted; None if one is not set."""
        return {name: self.value(name, row) for name in self._orders}

    def number_of(self, key: str) -> int | None:
        """The row with this key, if there is one."""
        row, encoded = self._rank(key), key.encode("utf-8", "surrogatepass")
        return row if row < len(self) and self._key(row) == encoded else None

    def state(self, row: int, now_s: float, known: Mapping[int, str] = NOTHING_KNOWN) -> str:
        """The state of a row."""
        return known[row] if row in known else self._names[self._states(now_s, slice(row, row + 1))[0]]

    def find(self, query: PageQuery, now_s: float = 0.0, known: Mapping[int, str] = NOTHING_KNOWN) -> FoundRows:
        """The page. `known` are states by row that count instead. Cost: some 10 ms a million rows with a filter, else none.

        Raises: PolicyError for an unknown column or state.
        """
        if query.sort not in {KEY, STATE, *self._orders}:
            raise PolicyError(f"{query.sort!r} is no column; choose one of key, state, {', '.join(self._orders)}")
        states = None
        if query.states or query.sort == STATE:
            states = self._states(now_s, slice(None)).copy()
            states[list(known)] = [self._number(state) for state in known.values()]
        values = states if query.sort == STATE else self._columns.get(query.sort)
        if values is states and states is not None:
            order = np.argsort(states, kind="stable")
        else:
            order = np.arange(len(self)) if values is None else self._orders[query.sort]
        chosen = self._matching(query, states)
        if chosen is not None:
            order = order[chosen[order]]
        start = max(query.offset, 0) if query.after is None else self._start(query, order, values)
        if query.descending:
            order = order[::-1]
        return FoundRows(order[start : start + query.limit].tolist(), len(order), start)

    def _states(self, now_s: float, rows: slice) -> Column:
        """Numbers of states; of a gate they follow from the time."""
        if self._names is QUEUE_STATES:
            return self._columns[STATE][rows]
        closed = [(self._columns[name][rows] > now_s, state) for name, state in _CLOSED]
        numbers = [self._number(state) for _, state in closed]
        return np.select([where for where, _ in closed], numbers, default=self._number("open")).astype(np.int8)

    def _matching(self, query: PageQuery, states: Column | None) -> NDArray[np.bool_] | None:
        """Which rows match; None for all."""
        masks = []
        if query.states:
            assert states is not None
            wanted = np.zeros(len(self._names), bool)
            for state in query.states:
                wanted[self._number(state)] = True
            masks.append(wanted[states])
        if query.least_urls > 0:
            masks.append(self._columns["urls"] >= query.least_urls)
        if query.text:
            masks.append(self._with_text(query.text.encode("utf-8", "surrogatepass")))
        return np.logical_and.reduce(masks) if masks else None

    def _with_text(self, text: bytes) -> NDArray[np.bool_]:
        """Rows with this text in their key: the places of its first byte, then those of them where the next one follows, …"""
        mask = np.zeros(len(self), bool)
        places: Column | None = None
        last = len(self._keys) - len(text)  # no match begins after it
        if last < 0:
            return mask
        for offset, (low, high) in enumerate(zip(text.lower(), text.upper(), strict=True)):
            found = self._keys[: last + 1] if places is None else self._keys[places + offset]
            hits = np.flatnonzero((found == low) | (found == high)) if low != high else np.flatnonzero(found == low)
            places = hits if places is None else places[hits]
        assert places is not None
        mask[np.searchsorted(self._ends, places, side="right") - 1] = True
        return mask

    def _start(self, query: PageQuery, order: Column, values: Column | None) -> int:
        """Return the position of the row after `query.after`, which itself may have been removed."""
        assert query.after is not None
        value, key = query.after
        first, end = 0, len(order)
        if values is not None:
            sought = self._number(value) if query.sort == STATE else NOT_SET if value is None else value
            first = bisect_left(order, sought, key=values.__getitem__)
            end = bisect_right(order, sought, first, key=values.__getitem__)
        rank = self._rank(key)
        place = bisect_left(order, rank, first, end)
        if query.descending:
            return len(order) - place
        has_row = place < end and order[place] == rank and self.number_of(key) == rank
        return place + has_row

    def _number(self, state: Any) -> int:
        if state not in self._names:
            raise PolicyError(f"{state!r} is no state; choose one of {', '.join(self._names)}")
        return self._names.index(state)

    def _rank(self, key: str) -> int:
        """How many keys are smaller."""
        return bisect_left(range(len(self)), key.encode("utf-8", "surrogatepass"), key=self._key)

    def _key(self, row: int) -> bytes:
        return self._keys[self._ends[row] : self._ends[row + 1] - 1].tobytes()


def browsed_tables(folder: Path) -> tuple[BrowsedTable, BrowsedTable]:
    """The tables of queues and of gates in a folder, in which `make_tables` or `write_facts` wrote them. Raises: OSError."""
    return BrowsedTable(folder / QUEUES), BrowsedTable(folder / GATES)


# Making them


def make_tables(source: Path | str, folder: Path, *, is_running: bool) -> None:
    """Write the tables of the store in a file, of which a copy is kept, or at a URL, into an empty folder (blocks).

    `is_running`: a crawl holds gates in its memory. Cost: 8 to 15 µs of CPU a queue, and a copy of the file. Raises:
    StoreUnavailable, FormatMismatch; OSError.
    """
    if isinstance(source, Path):
        _refuse_lack_of_room(source, folder)
        copy_live(source, folder / COPY)
    with reading(source, folder) as connection:
        gates = _read(connection, statements.BROWSED_GATES, 9)
        queues = _read(connection, statements.BROWSED_QUEUES, 8)
        lanes = _read(connection, statements.BROWSED_LANES, 5)
    ids, keys, standing, *numbers = queues
    gate_ids, gate_keys, *gate_numbers = gates
    lane_queue, lane_gate, count, waiting, servable = lanes
    by_queue, by_gate = _places(ids, lane_queue), _places(gate_ids, lane_gate)
    urls, of_retries = _sums(by_queue, count, len(ids)), _sums(by_queue, waiting, len(ids))
    held = np.append(gate_numbers[-1], 0) if is_running else np.zeros(len(gate_ids) + 1, int)
    ready = _sums(by_queue, servable * held[by_gate], len(ids))
    conditions = [
        (standing == Standing.PAUSED, "paused"),
        (standing == Standing.RETIRED, "retired"),
        (urls == 0, "empty"),
        (urls == of_retries, "snoozed"),
        (ready > 0, "ready"),
    ]
    states = np.select(
        [where for where, _ in conditions],
        [QUEUE_STATES.index(state) for _, state in conditions],
        default=QUEUE_STATES.index("inactive"),
    )
    precedence, spent, budget, successes, errors = numbers
    lanes_of = _sums(by_queue, np.ones(len(count), int), len(ids))
    columns = (urls, of_retries, precedence, spent, budget, lanes_of, successes, errors)
    write_table(folder / QUEUES, keys, dict(zip(QUEUE_COLUMNS, columns, strict=True)), states.astype(np.int8))
    of_gate = (_sums(by_gate, count, len(gate_ids)), _sums(by_gate, np.ones(len(count), int), len(gate_ids)))
    write_table(folder / GATES, gate_keys, dict(zip(GATE_COLUMNS, (*of_gate, *gate_numbers), strict=True)))


def write_facts(folder: Path, queues: Sequence[Mapping[str, Any]]) -> None:
    """Write the tables of a store without a file, from facts of its queues; no gates. Raises: OSError."""
    columns = {
        name: np.array([NOT_SET if (value := one.get(name)) is None else value for one in queues], np.int64)
        for name in QUEUE_COLUMNS
    }
    states = np.array([QUEUE_STATES.index(one[STATE]) for one in queues], np.int8)
    write_table(folder / QUEUES, [one["queue"] for one in queues], columns, states)
    write_table(folder / GATES, [], {name: np.zeros(0) for name in GATE_COLUMNS})


def write_table(folder: Path, keys: Sequence[str], columns: Mapping[str, Column], states: Column | None = None) -> None:
    """Write a table of these rows, in any order. Raises: OSError."""
    folder.mkdir()
    by_key = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    encoded = [keys[row].encode("utf-8", "surrogatepass") + _BETWEEN for row in by_key.tolist()]
    ends = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(list(map(len, encoded)), out=ends[1:])
    np.save(folder / "keys", np.frombuffer(b"".join(encoded), np.uint8))
    np.save(folder / "ends", ends)
    if states is not None:
        np.save(folder / STATE, states[by_key])
    for name, values in columns.items():
        column = _narrow(np.asarray(values)[by_key])
        np.save(folder / name, column)
        np.save(folder / f"{name}.order", np.argsort(column, kind="stable").astype(np.int32))


@contextmanager
def reading(source: Path | str, folder: Path) -> Iterator[Connection]:
    """A read-only connection to the copy in this folder, or to the database, as of one moment. Raises: StoreUnavailable."""
    if isinstance(source, Path):
        opened = reader(folder / COPY)
        translate: Callable[[Exception], Exception] = lambda error: translated(source, error)  # noqa: E731
    else:
        database = PostgresDatabase(source, lock_s=None)
        opened, translate = database.reader(), database.translated
    try:
        with opened as connection, connection.begin():
            yield connection
    except Exception as error:
        if isinstance(error, DBAPIError) or type(error).__module__.partition(".")[0] in {"psycopg", "sqlite3"}:
            raise translate(error) from error
        raise


def first_urls(
    source: Path | str, folder: Path, limit: int, *, queue: str | None = None, gate: str | None = None
) -> list[QueuedUrl]:
    """The URLs of a queue or a gate that are fetched next, from the copy in this folder, or from the database.

    Cost: two seeks a lane, of the first 50 lanes. Raises: StoreUnavailable.
    """
    with reading(source, folder) as connection:
        if queue is not None:
            lanes = fetch(connection, statements.LANES_TO_BROWSE_OF_QUEUE, (name_id(queue), _LANES))
        else:
            assert gate is not None
            lanes = fetch(connection, statements.LANES_TO_BROWSE_OF_GATE, (name_id(gate), _LANES))
        found: list[tuple[tuple[bool, int, int, int], QueuedUrl]] = []
        for turn, queue_id, gate_id, queue_key, gate_key in lanes:
            for url, precedence, ordinal, attempts, due_s in fetch(
                connection, statements.URLS_TO_BROWSE, (queue_id, gate_id, limit)
            ):
                place = (precedence >= WAITING, 0 if gate is None else turn, precedence, ordinal)
                found.append((place, QueuedUrl(url, queue_key, gate_key, precedence % WAITING, attempts, due_s)))
    return [url for _, url in sorted(found, key=lambda one: one[0])[:limit]]


def size_of(source: Path) -> int:
    """Bytes of a store's file and its log. Raises: OSError."""
    log = log_of(source)
    return source.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _refuse_lack_of_room(source: Path, folder: Path) -> None:
    disk, needed = os.statvfs(folder), size_of(source) + _SPARE_BYTES
    if disk.f_bavail * disk.f_frsize < needed:
        raise OSError(errno.ENOSPC, f"no room for a copy of the queue ({needed >> 20} MiB)", str(folder))


def _read(connection: Connection, statement: Statement, columns: int) -> list[Any]:
    """The columns of an answer: arrays of numbers, and a list of texts."""
    parts: list[list[Any]] = [[] for _ in range(columns)]
    for rows in stream(connection, statement, _ROWS_AT_ONCE):
        for part, values in zip(parts, zip(*rows, strict=True), strict=True):
            part.append(values if isinstance(values[0], str) else np.array(values))
    return [_joined(part) for part in parts]


def _joined(part: list[Any]) -> Any:
    if not part:
        return np.zeros(0, np.int64)
    return [text for texts in part for text in texts] if isinstance(part[0], tuple) else np.concatenate(part)


def _places(ids: Column, wanted: Column) -> Column:
    """Return the index of each wanted id among the sorted ids; the number of ids for one that is not there."""
    places = np.searchsorted(ids, wanted)
    is_there = np.append(ids, 0)[places] == wanted
    return np.where(is_there & (places < len(ids)), places, len(ids))


def _sums(places: Column, values: Column, number: int) -> Column:
    sums: Column = np.bincount(places, weights=values, minlength=number + 1)[:number].astype(np.int64)
    return sums


def _narrow(values: Column) -> Column:
    """In 32 bits, if they fit."""
    if values.dtype.kind != "i" or not len(values):
        return values
    return values.astype(np.int32) if values.min() >= -(1 << 31) and values.max() < 1 << 31 else values


def _mapped(file: Path) -> Column:
    mapped: Column = np.load(file, mmap_mode="r")
    return mapped.view(np.ndarray)  # a plain array: each slice of a `memmap` costs 5 µs more
