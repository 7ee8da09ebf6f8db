"""Brings the tables of an older format to today's, one step for each format, in the transaction that opens them.

A step leaves what the program of the next format would have written. A process that is killed leaves the old format or the
new one. To change the format: raise `opening.FORMAT`, add a step here, and keep jobs of the format that it replaces
(`tests/formats`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from sqlalchemy import Connection

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import WAITING
from anabranch.frontier.policies.authority import authority
from anabranch.frontier.policies.surt import surt_key, unescaped_surt_host
from anabranch.frontier.stores import statements
from anabranch.frontier.stores.dialect import Values, execute, fetch, fetch_for, write
from anabranch.frontier.stores.messages import LaneId, Place
from anabranch.frontier.turns import precedence_of, turn_of

#: First part of the names in `crawl` of what may not change.
IDENTITY = "identity:"

_PAGE = 10_000


def migrate(connection: Connection, facts: Mapping[str, str]) -> None:
    """Take the steps from the format that the facts name, in the running transaction. Gates that were held still are."""
    number = facts["format"]
    while number in STEPS:
        STEPS[number](connection, facts)
        number = str(int(number) + 1)
        facts = {**dict(fetch(connection, statements.FACTS)), "format": number}
    write(connection, statements.PUT_FACTS, [("format", number)])


def _escape_commas(connection: Connection, facts: Mapping[str, str]) -> None:
    """3 to 4: under the policy `surt` hosts with a comma leave the queue that they shared with another host.

    The URL of a row says which host it is of. Cost: nothing under other policies; else a scan of the rows whose URL has a
    comma, and a move of those whose host has one.
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
    """Where rows are whose URL has a comma, in pages."""
    last: Place = (-(1 << 63), 0, 0, 0)
    while rows := fetch(connection, statements.PLACES_OF_URLS_LIKE, ("%,%", *last, _PAGE)):
        last = rows[-1][:4]
        yield from ((row[:4], row[4]) for row in rows)


def _move(connection: Connection, old: LaneId, new: LaneId, key: str, places: list[Place], number: int) -> None:
    """Move rows of one lane to another, which has a queue of this key: it stands as the old one does, and last in line."""
    for place in places:
        execute(connection, statements.MOVE_URL, (*new, *place))
    waiting = sum(place[2] >= WAITING for place in places)
    ((_, _, turn, count, kept_waiting, shelved),) = fetch_for(connection, statements.READ_LANES, [old])
    queue = fetch(connection, statements.QUEUE, (old[0],))[0]
    write(connection, statements.NAME_QUEUES, [(new[0], key, *queue[2:4], 0, queue[5], 0, 0)])
    if new[1] != old[1]:
        gate = fetch(connection, statements.GATE, (old[1],))[0]
        write(connection, statements.NAME_GATES, [(new[1], key, *gate[2:], 1, None, None)])
    rest = (*old, turn, count - len(places), kept_waiting - waiting, shelved)
    behind = turn_of(precedence_of(turn), number)
    write(
        connection,
        statements.PUT_LANES,
        [_with_servable(rest), _with_servable((*new, behind, len(places), waiting, shelved))],
    )
    if count == len(places):
        write(connection, statements.DELETE_LANES, [old])
    write(connection, statements.HOLD_GATES, [(old[1],), (new[1],)])  # freed like any: its place in line is worked out


def _with_servable(lane: Values) -> Values:
    _, _, _, count, waiting, shelved = lane
    return (*lane, int(count > waiting and not shelved))


#: From a format to what makes the next one of it.
STEPS: Mapping[str, Callable[[Connection, Mapping[str, str]], None]] = MappingProxyType({"3": _escape_commas})
