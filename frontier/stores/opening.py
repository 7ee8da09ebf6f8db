"""Opening a crawl's tables: make them, or make sure that they are those of this order, and set right what an owner left.

Nothing here grows with what is queued: facts are read, and gates that an owner held, at most as many as the core holds.
Only a clock that went back costs a look at every gate.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, inspect

from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.stores import statements
from anabranch.frontier.stores.base import Counters, Opening
from anabranch.frontier.stores.dialect import execute, fetch, fetch_locked, write
from anabranch.frontier.stores.migrating import IDENTITY, STEPS, migrate
from anabranch.frontier.stores.tables import CRAWL, METADATA

#: Version of the tables; raise it with every change that an older program would misread, and bring older ones up (`migrating`).
FORMAT = "4"

#: The formats that can be read: today's, and those that it can be made of.
READ = (*sorted(STEPS), FORMAT)

#: A clock may be set right by so much without any time being moved.
CLOCK_SLACK_S = 1.0

#: First part of the names in `crawl` of what `FrontierStore.note` keeps.
NOTE = "note:"


def open_tables(connection: Connection, place: str, identity: Mapping[str, str], now_s: float) -> Opening:
    """Read the facts, free the gates that were held, and mark the store unclean under a new epoch: one transaction.

    `place` names the store in errors. If `now_s` lies before the time of the last batch, every time in the store is moved
    back by as much. Tables of an older format are brought to this one. Cost: O(gates that were held); once for each older
    format what `migrating` says. Raises: FormatMismatch, naming each difference.
    """
    with connection.begin():
        if not inspect(connection).has_table(CRAWL.name):
            _create(connection, identity, now_s)
        fetch_locked(
            connection, statements.FACT, ("epoch",), "UPDATE"
        )  # a former owner's last commit comes before or never
        facts: dict[str, str] = dict(fetch(connection, statements.FACTS))
        _check(place, facts, identity)
        if facts["format"] != FORMAT:
            migrate(connection, facts)
            facts = dict(fetch(connection, statements.FACTS))
        execute(connection, statements.FREE_HELD)
        _follow_clock(connection, float(facts["now_s"]), now_s)
        epoch = int(facts["epoch"]) + 1
        _put(connection, {"epoch": str(epoch), "clean": "0"})
    return Opening(
        clean=facts["clean"] == "1",
        counters=counters_of(facts),
        notes={name.removeprefix(NOTE): value for name, value in facts.items() if name.startswith(NOTE)},
        epoch=epoch,
    )


def mark(connection: Connection, clean: bool) -> None:
    """Note whether the last owner let go in order, in the running transaction."""
    _put(connection, {"clean": str(int(clean))})


def put_notes(connection: Connection, notes: Mapping[str, str]) -> None:
    """Keep these facts by name, in the running transaction; the next opening tells them."""
    _put(connection, {NOTE + name: value for name, value in notes.items()})


def counters_of(facts: Mapping[str, str]) -> Counters:
    """The totals among the facts of `crawl`."""
    return Counters(**{name: int(facts[name]) for name in Counters._fields})


def _create(connection: Connection, identity: Mapping[str, str], now_s: float) -> None:
    METADATA.create_all(connection)
    facts = {
        "format": FORMAT,
        "clean": "1",
        "epoch": "0",
        "batch": "0",
        "now_s": repr(now_s),
        **{name: str(value) for name, value in Counters()._asdict().items()},
        **{IDENTITY + name: value for name, value in identity.items()},
    }
    _put(connection, facts)


def _check(place: str, facts: Mapping[str, str], identity: Mapping[str, str]) -> None:
    """The format first: another one may keep the identity elsewhere."""
    if facts.get("format") not in READ:
        raise FormatMismatch(
            f"{place}: the format is {facts.get('format', 'not named')} in the job, and this program reads "
            f"{', '.join(READ)}; use the version of the program that wrote it"
        )
    kept = {name.removeprefix(IDENTITY): value for name, value in facts.items() if name.startswith(IDENTITY)}
    differences = [
        f"{name} is {kept.get(name, 'not set')} in the job, {identity.get(name, 'not set')} in the order"
        for name in sorted(kept.keys() | identity.keys())
        if kept.get(name) != identity.get(name)
    ]
    if differences:
        raise FormatMismatch(f"{place}: {'; '.join(differences)}")


def _follow_clock(connection: Connection, then_s: float, now_s: float) -> None:
    """Move every time back as far as the clock went back, or what was to open soon would stay closed."""
    back_s = then_s - now_s
    if back_s <= CLOCK_SLACK_S:
        return
    execute(connection, statements.MOVE_GATES, (back_s, back_s, back_s, back_s))
    execute(connection, statements.MOVE_RETRIES, (back_s,))
    _put(connection, {"now_s": repr(now_s)})


def _put(connection: Connection, facts: Mapping[str, str]) -> None:
    write(connection, statements.PUT_FACTS, list(facts.items()))
