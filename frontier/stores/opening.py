"""Opening a crawl's tables: make them, or make sure that they are those of this order, and read what the core starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection, inspect, select

from frontier.errors import FormatMismatch
from frontier.stores import statements
from frontier.stores.base import Counters, GateRow, LaneRow, Opening, QueueRow
from frontier.stores.reading import read_counters, read_waiting
from frontier.stores.tables import CRAWL, GATE, LANE, METADATA, QUEUE

#: Version of the tables; raise it with every change that an older program would misread.
FORMAT = "1"

_IDENTITY = "identity:"  # names in `crawl` of what may not change


def open_tables(connection: Connection, path: Path, identity: Mapping[str, str]) -> Opening:
    """Read all that the core keeps in memory and mark the store unclean, durably.

    Cost: O(queues + gates + waiting rows). Raises: FormatMismatch, naming each difference.
    """
    with connection.begin():
        if not inspect(connection).has_table(CRAWL.name):
            _create(connection, identity)
        facts = _facts(connection)
        _check(path, facts, identity)
        opening = _read(connection, clean=facts["clean"] == "1")
        mark(connection, clean=False)
    return opening


def mark(connection: Connection, *, clean: bool) -> None:
    """Note whether the last owner let go in order."""
    connection.exec_driver_sql(statements.PUT_CRAWL, ("clean", str(int(clean))))


def _create(connection: Connection, identity: Mapping[str, str]) -> None:
    METADATA.create_all(connection)
    facts = {
        "format": FORMAT,
        "clean": "1",
        "batch": "0",
        **{name: str(value) for name, value in Counters()._asdict().items()},
        **{_IDENTITY + name: value for name, value in identity.items()},
    }
    connection.exec_driver_sql(statements.PUT_CRAWL, list(facts.items()))


def _facts(connection: Connection) -> dict[str, str]:
    return dict(connection.execute(select(CRAWL.c.name, CRAWL.c.value)).all())


def _check(path: Path, facts: Mapping[str, str], identity: Mapping[str, str]) -> None:
    """The format first: another one may keep the identity elsewhere."""
    if facts["format"] != FORMAT:
        raise FormatMismatch(
            f"{path}: the format is {facts['format']} in the job, {FORMAT} in this program; start over or use its version"
        )
    kept = {name.removeprefix(_IDENTITY): value for name, value in facts.items() if name.startswith(_IDENTITY)}
    differences = [
        f"{name} is {kept.get(name, 'not set')} in the job, {identity.get(name, 'not set')} in the order"
        for name in sorted(kept.keys() | identity.keys())
        if kept.get(name) != identity.get(name)
    ]
    if differences:
        raise FormatMismatch(f"{path}: {'; '.join(differences)}")


def _read(connection: Connection, *, clean: bool) -> Opening:
    # The core announces a lane once in its life in memory: an empty one is made, and announced, again.
    connection.execute(LANE.delete().where(LANE.c.count == 0))
    return Opening(
        clean=clean,
        counters=read_counters(connection),
        queues=[QueueRow._make(row) for row in connection.execute(select(QUEUE))],
        lanes=[LaneRow._make(row) for row in connection.execute(select(LANE).order_by(LANE.c.arrival))],
        gates=[GateRow._make(row) for row in connection.execute(select(GATE))],
        waiting=read_waiting(connection),
    )
