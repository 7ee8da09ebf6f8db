"""The recount for checks: what the rows say, compared with all that is kept beside them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.fingerprints import seen_fingerprint
from anabranch.frontier.models import WAITING, OutcomeKind
from anabranch.frontier.stores import statements
from anabranch.frontier.stores.base import Counters
from anabranch.frontier.stores.dialect import fetch
from anabranch.frontier.stores.messages import Standing
from anabranch.frontier.stores.opening import counters_of
from anabranch.frontier.stores.reading import ended_keyed, queued_keyed, seen_ordinals

_CHUNK = 10_000


def recount(connection: Connection) -> Counters:
    """Count the rows and compare with all that is kept beside them.

    The last number of the sequence is told as it is kept: the row that had it may be gone. Cost: a scan of every
    table and a look into `seen` for each row. Raises: InvariantBroken, naming the first difference.
    """
    kept = counters_of(dict(fetch(connection, statements.FACTS)))
    counted = _count_rows(connection)
    if counted.last_ordinal > kept.last_ordinal:
        raise InvariantBroken(f"a row has the number {counted.last_ordinal}, the last is {kept.last_ordinal}")
    counted = counted._replace(last_ordinal=kept.last_ordinal)
    if counted != kept:
        raise InvariantBroken(f"the rows make {counted}, the counters say {kept}")
    _check_lanes(connection, counted.queued)
    _check_seen(connection)
    return counted


def _count_rows(connection: Connection) -> Counters:
    ((queued, last_row, waiting),) = fetch(connection, statements.COUNT_URLS, (WAITING,))
    ((queues,),) = fetch(connection, statements.COUNT_QUEUES)
    ended = {outcome: (count, last) for outcome, count, last in fetch(connection, statements.COUNT_DONE)}
    closed: dict[int, int] = dict(fetch(connection, statements.COUNT_CLOSED))
    return Counters(
        last_ordinal=max(last_row or 0, 0, *(last for _, last in ended.values())),
        queued=queued,
        done=ended.get(OutcomeKind.DONE.value, (0, 0))[0],
        failed=ended.get(OutcomeKind.FAILED.value, (0, 0))[0],
        disregarded=ended.get(OutcomeKind.DISREGARDED.value, (0, 0))[0],
        retired=int(closed.get(Standing.RETIRED, 0)),
        paused=int(closed.get(Standing.PAUSED, 0)),
        waiting=int(waiting),
        queues=queues,
    )


def _check_lanes(connection: Connection, queued: int) -> None:
    for wrong in fetch(connection, statements.WRONG_LANE, (WAITING,)):
        raise InvariantBroken("the lane ({}, {}) counts {} rows and {} waiting, and holds {} and {}".format(*wrong))
    for wrong in fetch(connection, statements.WRONG_SHELF):
        raise InvariantBroken("the lane ({}, {}) stands at {}, its queue at {}".format(*wrong))
    for wrong in fetch(connection, statements.WRONG_LINE):
        raise InvariantBroken("the lane ({}, {}) is kept as servable {}, against its counts".format(*wrong))
    ((total,),) = fetch(connection, statements.SUM_LANES)
    if total != queued:
        raise InvariantBroken(f"the lanes count {total} rows, the table url holds {queued}")


def _check_seen(connection: Connection) -> None:
    """Each key is seen, and stands for its last row; nothing else is seen."""
    last_rows = 0
    for rows in _keyed_rows(connection):
        ordinals = [(seen_fingerprint(key), ordinal) for key, ordinal in rows]
        known = seen_ordinals(connection, [fingerprint for fingerprint, _ in ordinals])
        for fingerprint, ordinal in ordinals:
            seen = known.get(fingerprint)
            if seen is None or seen < ordinal:
                raise InvariantBroken(f"the key of row {ordinal} is seen at {seen}")
            last_rows += seen == ordinal
    ((total,),) = fetch(connection, statements.COUNT_SEEN)
    if total != last_rows:
        raise InvariantBroken(f"{total} keys are seen, {last_rows} of them have a row")


def _keyed_rows(connection: Connection) -> Iterator[list[tuple[bytes, int]]]:
    """Every row's key and ordinal, in pages."""
    place = None
    while rows := queued_keyed(connection, place, _CHUNK):
        place = rows[-1][1]
        yield [(key, place[3]) for key, place in rows]
    last = 0
    while ended := ended_keyed(connection, last, _CHUNK):
        last = ended[-1][1]
        yield ended
