"""Questions to the tables: heads, one URL, all keys, and the recount for checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select
from sqlalchemy import Row as SqlRow

from frontier.errors import InvariantBroken
from frontier.fingerprints import seen_fingerprint
from frontier.models import WAITING, Head, OutcomeKind, Row, UrlRecord, UrlState
from frontier.stores import statements
from frontier.stores.base import Counters, LaneId
from frontier.stores.tables import CRAWL, DONE, LANE, SEEN, URL

#: Before every place in `url` and every ordinal in `done`.
FIRST_PLACE = (-(1 << 63), -(1 << 63), -1, 0)
FIRST_ORDINAL = (0,)

_CHUNK = 500
_LOOK = "SELECT fp, ordinal FROM seen WHERE fp IN (%s)"


def read_heads(connection: Connection, lane: LaneId, limit: int) -> list[Head]:
    """The first rows of a lane that do not wait. Cost: one seek, and one more per row for the URL of its `via`."""
    rows = connection.exec_driver_sql(statements.HEADS, (*lane, WAITING, limit))
    return [Head(Row._make(row[:-1]), row[-1]) for row in rows]


def read_waiting(connection: Connection) -> list[Head]:
    """The rows that wait for a retry, soonest first."""
    rows = connection.exec_driver_sql(statements.WAITING_ROWS)
    return [Head(Row._make(row[:-1]), row[-1]) for row in rows]


def read_counters(connection: Connection) -> Counters:
    """The totals, as they were written with what they count."""
    facts = select(CRAWL.c.name, CRAWL.c.value).where(CRAWL.c.name.in_(Counters._fields))
    values = dict(connection.execute(facts).all())
    return Counters(**{name: int(value) for name, value in values.items()})


def seen_ordinals(connection: Connection, fingerprints: Sequence[int]) -> dict[int, int]:
    """Which row each of these fingerprints stands for, if it is known at all."""
    known: dict[int, int] = {}
    for start in range(0, len(fingerprints), _CHUNK):
        chunk = tuple(fingerprints[start : start + _CHUNK])
        marks = ", ".join("?" * len(chunk))
        known.update(connection.exec_driver_sql(_LOOK % marks, chunk).all())
    return known


def look_up(connection: Connection, key: bytes) -> UrlRecord | None:
    """What is known of the URL with this key.

    Cost: two seeks for a URL that is unknown or has ended. A queued one is found by a scan of `url`: an index by ordinal would
    cost every queued URL about 30 bytes and a second random write, for a question that an operator asks now and then.
    """
    ordinal = seen_ordinals(connection, [seen_fingerprint(key)]).get(seen_fingerprint(key))
    if ordinal is None:
        return None
    ended = connection.execute(select(DONE).where(DONE.c.ordinal == ordinal)).one_or_none()
    if ended is not None:
        return _ended_record(ended)
    columns = select(URL.c.url, URL.c.due_s, URL.c.attempts)
    url, due_s, attempts = connection.execute(columns.where(URL.c.ordinal == ordinal).limit(1)).one()
    return UrlRecord(url, UrlState.QUEUED if due_s is None else UrlState.WAITING, 0, "", attempts, ordinal)


def look_up_ended(connection: Connection, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
    """What is known of those of these URLs that have ended, by key. Cost: two seeks for each."""
    fingerprints = {key: seen_fingerprint(key) for key in keys}
    known = seen_ordinals(connection, list(fingerprints.values()))
    ordinals = sorted(known.values())
    records: dict[int, UrlRecord] = {}
    for start in range(0, len(ordinals), _CHUNK):
        rows = connection.execute(select(DONE).where(DONE.c.ordinal.in_(ordinals[start : start + _CHUNK])))
        records.update((row.ordinal, _ended_record(row)) for row in rows)
    places = {key: known.get(fingerprint) for key, fingerprint in fingerprints.items()}
    return {key: records[ordinal] for key, ordinal in places.items() if ordinal in records}


KeyPage = tuple[list[bytes], tuple[int, ...] | None]  # (keys, where to go on; None = that was all)


def queued_keys(connection: Connection, after: tuple[int, ...], limit: int) -> KeyPage:
    """The keys of the rows behind a place in `url`."""
    return _keys(connection, statements.QUEUED_KEYS, after, limit)


def ended_keys(connection: Connection, after: tuple[int, ...], limit: int) -> KeyPage:
    """The keys of the rows behind an ordinal in `done`."""
    return _keys(connection, statements.ENDED_KEYS, after, limit)


def recount(connection: Connection) -> Counters:
    """Count the rows and compare with all that is kept beside them.

    Cost: a scan of every table and a look into `seen` for each row. Raises: InvariantBroken, naming the first difference.
    """
    counted = _count_rows(connection)
    kept = read_counters(connection)
    if counted != kept:
        raise InvariantBroken(f"the rows make {counted}, the counters say {kept}")
    _check_lanes(connection, counted.queued)
    _check_seen(connection)
    return counted


def _ended_record(row: SqlRow[Any]) -> UrlRecord:
    """A row of `done` as the record that callers get."""
    return UrlRecord(row.url, UrlState.ENDED, row.status, row.outcome, row.attempts, row.ordinal)


def _keys(connection: Connection, statement: str, after: tuple[int, ...], limit: int) -> KeyPage:
    rows = connection.exec_driver_sql(statement, (*after, limit)).all()
    keys = [_as_bytes(key) for key, *_ in rows]
    return keys, tuple(rows[-1][1:]) if len(rows) == limit else None


def _count_rows(connection: Connection) -> Counters:
    queued, last = connection.execute(select(func.count(), func.max(URL.c.ordinal)).select_from(URL)).one()
    outcomes = select(DONE.c.outcome, func.count(), func.max(DONE.c.ordinal)).group_by(DONE.c.outcome)
    ended = {outcome: (count, highest) for outcome, count, highest in connection.execute(outcomes)}
    return Counters(
        last_ordinal=max(last or 0, *(highest for _, highest in ended.values()), 0),
        queued=queued,
        done=ended.get(OutcomeKind.DONE.value, (0, 0))[0],
        failed=ended.get(OutcomeKind.FAILED.value, (0, 0))[0],
        disregarded=ended.get(OutcomeKind.DISREGARDED.value, (0, 0))[0],
    )


def _check_lanes(connection: Connection, queued: int) -> None:
    wrong = connection.exec_driver_sql(statements.WRONG_LANES).first()
    if wrong is not None:
        raise InvariantBroken("the lane ({}, {}) counts {} rows and holds {}".format(*wrong))
    total = connection.execute(select(func.coalesce(func.sum(LANE.c.count), 0))).scalar_one()
    if total != queued:
        raise InvariantBroken(f"the lanes count {total} rows, the table url holds {queued}")


def _check_seen(connection: Connection) -> None:
    """Each key is seen, and stands for its last row; nothing else is seen."""
    last_rows = 0
    for rows in connection.exec_driver_sql(statements.KEYED_ROWS).partitions(_CHUNK):
        ordinals = [(seen_fingerprint(_as_bytes(key)), ordinal) for key, ordinal in rows]
        known = seen_ordinals(connection, [fingerprint for fingerprint, _ in ordinals])
        for fingerprint, ordinal in ordinals:
            seen = known.get(fingerprint)
            if seen is None or seen < ordinal:
                raise InvariantBroken(f"the key of row {ordinal} is seen at {seen}")
            last_rows += seen == ordinal
    total = connection.execute(select(func.count()).select_from(SEEN)).scalar_one()
    if total != last_rows:
        raise InvariantBroken(f"{total} keys are seen, {last_rows} of them have a row")


def _as_bytes(key: bytes | str) -> bytes:
    return key if isinstance(key, bytes) else key.encode()
