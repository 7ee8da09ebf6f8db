"""The opening of the tables, facts about the whole in `crawl`, and the step from the format before."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import DDL, Connection, inspect
from sqlalchemy.exc import IntegrityError, ProgrammingError

from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.policies.hosts import authority, surt_key, unescaped_surt_host
from anabranch.frontier.records import WAITING, name_id, precedence_of, turn_of
from anabranch.frontier.stores import sql
from anabranch.frontier.stores.contract import Counters, LaneId, Opening, Place
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.execution import Values, execute, fetch, fetch_for, write
from anabranch.frontier.stores.totals import FORMAT, IDENTITY, counters_of, is_shared

#: For those who copy all tables, or ask whether they are there.
METADATA, CRAWL = sql.METADATA, sql.CRAWL
#: The formats that can be read.
READ = ("3", "4", "5", "6", "7", FORMAT)

#: A clock may be corrected by so much without any time being moved.
CLOCK_SLACK_S = 1.0

#: First part of the names in `crawl` of notes.
NOTE = "note:"
#: Name of the list of openings in `crawl`, JSON; an older program leaves it as it is.
_OPENINGS = "openings"
#: Name of the store's own name in `crawl`.
_NAME = "name"
#: Openings that are remembered: a filter that took part in none of these is made anew.
MOST_OPENINGS = 64
#: Name of the format in which the store was made.
MADE = "made"


def open_tables(connection: Connection, place: str, identity: Mapping[str, str], now_s: float) -> Opening:
    """Read the facts, free the gates that were held, and mark the store unclean under a new epoch: one transaction.

    `place` names the store in errors. If `now_s` is before the time of the last batch, every time in the store is moved
    back by as much. Tables of older formats are converted. Cost: O(gates that were held). Raises: FormatMismatch, naming each
    difference.
    """
    with connection.begin():
        if not inspect(connection).has_table(CRAWL.name):
            _create(connection, identity, now_s)
        # A former owner's last commit comes before this or never.
        fetch(connection, statements.FACT_FOR_UPDATE, ("epoch",))
        facts: dict[str, str] = dict(fetch(connection, statements.FACTS))
        _check(place, facts, identity)
        if facts["format"] != FORMAT:
            facts = _convert(connection, facts)
        execute(connection, statements.FREE_HELD, (0,))
        _follow_clock(connection, float(facts["now_s"]), now_s)
        epoch = int(facts["epoch"]) + 1
        earlier, history = _history(facts), secrets.token_hex(8)
        openings = json.dumps([*list(earlier.items())[1 - MOST_OPENINGS :], (history, 0)])
        _put(connection, {"epoch": str(epoch), "clean": "0", "batch": "0", _OPENINGS: openings})
        named = identity_of(connection, facts)
    return Opening(
        clean=facts["clean"] == "1",
        counters=counters_of(facts),
        notes={name.removeprefix(NOTE): value for name, value in facts.items() if name.startswith(NOTE)},
        epoch=epoch,
        identity=named,
        first_format=facts.get(MADE, ""),
        history=history,
        earlier=earlier,
    )


def identity_of(connection: Connection, facts: Mapping[str, str]) -> str:
    """The store's name, which a store of an earlier version gets now, in the running transaction."""
    if _NAME not in facts:
        _put(connection, {_NAME: secrets.token_hex(16)})
    return facts.get(_NAME) or str(fetch(connection, statements.FACT, (_NAME,))[0][0])


def kept_identity(connection: Connection) -> dict[str, str]:
    """The facts that may not change, with which the store must be opened."""
    facts: dict[str, str] = dict(fetch(connection, statements.FACTS))
    return {name.removeprefix(IDENTITY): value for name, value in facts.items() if name.startswith(IDENTITY)}


def openings(connection: Connection) -> dict[str, int]:
    """All openings of a sole owner that are remembered, with the number of the last batch of each."""
    return _history(dict(fetch(connection, statements.FACTS)))


def _history(facts: Mapping[str, str]) -> dict[str, int]:
    """The last openings, the oldest first, and the number of the last batch of each; the last one's is a fact of its own."""
    listed: list[list[Any]] = json.loads(facts.get(_OPENINGS, "[]"))
    if listed:
        listed[-1][1] = int(facts["batch"])
    return {name: number for name, number in listed}  # noqa: C416  typed so


def open_shared(
    connection: Connection, place: str, identity: Mapping[str, str], now_s: float, shares: int
) -> dict[str, str]:
    """Make the tables of a job of so many shares, unless they are there; returns its facts.

    Of several workers that begin at once, one makes them. Raises: FormatMismatch, naming each difference.
    """
    try:
        with connection.begin():
            if not inspect(connection).has_table(CRAWL.name):
                _create(connection, identity, now_s)
                write(connection, statements.INSERT_SHARE, [(share, None, 0, 0.0) for share in range(shares)])
    except (IntegrityError, ProgrammingError):
        if not inspect(connection).has_table(CRAWL.name):
            raise
        connection.rollback()
    with connection.begin():
        renew_shared(connection)
        facts: dict[str, str] = dict(fetch(connection, statements.FACTS))
        _check(place, facts, identity)
    return facts


def renew_shared(connection: Connection) -> None:
    """Convert the tables of a job of several workers from an older format, in the running transaction.

    Tables of one owner, those of an unknown format and missing ones are left. Cost: a look at the facts.
    """
    if not inspect(connection).has_table(CRAWL.name):
        return
    facts: dict[str, str] = dict(fetch(connection, statements.FACTS))
    if not is_shared(facts) or facts.get("format") == FORMAT or facts.get("format") not in READ:
        return
    # Of several workers that find an older format, one converts it.
    fetch(connection, statements.FACT_FOR_UPDATE, ("epoch",))
    facts = dict(fetch(connection, statements.FACTS))
    if facts["format"] != FORMAT:
        _convert(connection, facts)


def mark(connection: Connection, clean: bool) -> None:
    """Note whether the owner closes the store in order, in the running transaction."""
    _put(connection, {"clean": str(int(clean))})


def put_notes(connection: Connection, notes: Mapping[str, str]) -> None:
    """Keep these facts by name, in the running transaction; `Opening` has them."""
    _put(connection, {NOTE + name: value for name, value in notes.items()})


def _create(connection: Connection, identity: Mapping[str, str], now_s: float) -> None:
    METADATA.create_all(connection, checkfirst=False)  # of two that begin at once, one must fail
    facts = {
        "format": FORMAT,
        MADE: FORMAT,
        "clean": "1",
        "epoch": "0",
        "batch": "0",
        "now_s": repr(now_s),
        **{name: str(value) for name, value in Counters()._asdict().items()},
        **{IDENTITY + name: value for name, value in identity.items()},
    }
    _put(connection, facts)


def _check(place: str, facts: Mapping[str, str], identity: Mapping[str, str]) -> None:
    """The format first: another one may keep the identity in another way."""
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


def _convert(connection: Connection, facts: Mapping[str, str]) -> dict[str, str]:
    """From an older format, in the running transaction; the facts after it."""
    if facts["format"] in {"3", "4"}:
        for index in sql.GATE.indexes:
            index.drop(connection)
        connection.execute(_added("gate", "share"))
    if facts["format"] not in {"6", "7"}:
        connection.execute(_added("done", "worker"))
    if facts["format"] != "7":
        _keep_failures(connection)
    _cluster_links(connection)
    for index in (*sql.GATE.indexes, *sql.DONE.indexes):
        index.create(connection, checkfirst=True)
    if facts["format"] == "3":
        _escape_commas(connection, facts)
    _put(connection, {"format": FORMAT})
    return dict(fetch(connection, statements.FACTS))


def _added(table: str, column: str) -> DDL:
    """Add a column that is 0 in the rows that are there. SQLAlchemy has no expression for it."""
    return DDL(f"ALTER TABLE {table} ADD COLUMN {column} BIGINT NOT NULL DEFAULT 0")  # type: ignore[no-untyped-call]


def _keep_failures(connection: Connection) -> None:
    """6 to 7: failures that are queued again are counted. Those of older formats get no row of `failure`."""
    if inspect(connection).has_table(sql.WORKER.name):
        connection.execute(_added("worker", "retried"))
    _put(connection, {"retried": "0"})


def _cluster_links(connection: Connection) -> None:
    """7 to 8, and tables that an older format lacks: links are clustered by share. Those on their way stay so.

    Their keys are in `seen` already, each with its link's number; so the receiver takes them.
    """
    links: Sequence[Values] = []
    if inspect(connection).has_table(sql.LINK.name):
        links = fetch(connection, statements.ALL_LINKS)
        sql.LINK.drop(connection)
    METADATA.create_all(connection)
    write(connection, statements.INSERT_LINK, links)


_PAGE = 10_000


def _escape_commas(connection: Connection, facts: Mapping[str, str]) -> None:
    """3 to 4: under the policy `surt` hosts with a comma leave the queue that they shared with another host.

    The host comes from a row's URL. Cost: nothing under other policies; else a scan of the rows with a comma in their URL, and
    a move of those with a comma in their host. Gates that were held still are.
    """
    if facts.get(f"{IDENTITY}policy") != "surt":
        return
    moved: dict[tuple[LaneId, LaneId], list[Place]] = defaultdict(list)
    keys: dict[int, str] = {}
    for place, url in _with_commas(connection):
        found = authority(url)
        if found is None or "," not in found.host:
            continue
        key = surt_key(found.name)
        port = key.partition("#")[1:]
        if place[0] != name_id(unescaped_surt_host(found.host) + "".join(port)):
            continue  # an override names its queue
        queue = name_id(key)
        keys[queue] = key
        own_gate = queue if place[1] == place[0] else place[1]  # with politeness "queue" the gate is the queue's
        moved[place[:2], (queue, own_gate)].append(place)
    number = int(facts["last_ordinal"])
    for (old, new), places in moved.items():
        number += 1
        _move(connection, old, new, keys[new[0]], places, number)
    queues = fetch(connection, statements.COUNT_QUEUES)[0][0]
    write(connection, statements.PUT_FACTS, [("last_ordinal", str(number)), ("queues", str(queues))])


def _with_commas(connection: Connection) -> Iterator[tuple[Place, str]]:
    """Places and URLs of the rows with a comma in their URL, read in pages."""
    last: Place = (-(1 << 63), 0, 0, 0)
    while rows := fetch(connection, statements.PLACES_OF_URLS_LIKE, ("%,%", *last, _PAGE)):
        last = rows[-1][:4]
        yield from ((row[:4], row[4]) for row in rows)


def _move(connection: Connection, old: LaneId, new: LaneId, key: str, places: list[Place], number: int) -> None:
    """Move rows of one lane to another, in the queue of this key: with the standing of the old queue, and last in line."""
    for place in places:
        execute(connection, statements.MOVE_URL, (*new, *place))
    waiting = sum(place[2] >= WAITING for place in places)
    (lane,) = fetch_for(connection, statements.READ_LANES, [old])
    turn, count, kept_waiting, shelved = lane[2:]
    queue = fetch(connection, statements.QUEUE, (old[0],))[0]
    write(connection, statements.NAME_QUEUES, [(new[0], key, *queue[2:4], 0, queue[5], 0, 0)])
    if new[1] != old[1]:
        gate = fetch(connection, statements.GATE, (old[1],))[0]
        write(connection, statements.NAME_GATES, [(new[1], key, *gate[2:], 1, None, None, 0)])
    rest = (*old, turn, count - len(places), kept_waiting - waiting, shelved)
    behind = turn_of(precedence_of(turn), number)
    write(
        connection,
        statements.PUT_LANES,
        [_with_servable(rest), _with_servable((*new, behind, len(places), waiting, shelved))],
    )
    if count == len(places):
        write(connection, statements.DELETE_LANES, [old])
    write(connection, statements.HOLD_GATES, [(old[1],), (new[1],)])  # so they are freed like any held gate


def _with_servable(lane: Values) -> Values:
    count, waiting, shelved = lane[3:]
    return (*lane, int(count > waiting and not shelved))
