"""Answers to the core's questions (heads, lanes, gates, retries), to questions about URLs, keys and queues; the recount.

Gates that are taken are marked as held in the running transaction: from its commit on the core holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.records import (
    ENDING,
    WAITING,
    GateKey,
    Head,
    OutcomeKind,
    Row,
    Turn,
    UrlRecord,
    UrlState,
    seen_fingerprint,
)
from anabranch.frontier.stores.contract import (
    Answer,
    Batch,
    Counters,
    EndedRecord,
    FailedRecord,
    GateRead,
    GateRow,
    GatesRead,
    HeadsRead,
    JobCounts,
    LaneId,
    LaneRow,
    LanesRead,
    LinkRow,
    Place,
    QueueFacts,
    QueueRow,
    RetriesRead,
    ShareOf,
    Standing,
    in_one_share,
)
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.execution import Values, execute, fetch, fetch_for, write
from anabranch.frontier.stores.totals import counters_of, is_shared

#: Before every id, and every place in `url`.
FIRST_ID = -(1 << 63)
FIRST_PLACE: Place = (FIRST_ID, FIRST_ID, -1, 0)

#: Closed gates that one question opens at most, so that it stays short after a long night.
_OPENED_AT_ONCE = 10_000

#: Most lanes to read heads of by one statement.
_HEADS_AT_ONCE = 16

#: The window of a gate that was only named: not held, nothing to serve. Its share comes after it.
NO_WINDOW = (0, None, None)

#: Where a gate's turn is, after the facts of its row.
_TURN = len(GateRow._fields)
#: A share that no gate has.
_NO_SHARE = -1


class Asked(NamedTuple):
    """A question of the core. Its answer is posted as soon as it is read."""

    read: Callable[..., Answer]  #: called with the connection and the arguments
    arguments: tuple[object, ...]
    takes: bool = False  #: it writes too: gates are held from now on


@dataclass(frozen=True, slots=True)
class Question:
    """A question with a caller that waits; the answer comes after the commit. It may be asked more than once."""

    ask: Callable[[Connection], Any]
    answer: Future[Any] = field(default_factory=Future)


Item = Batch | Asked | Question


# For the core


def read_all(connection: Connection, read: Callable[..., Answer], asked: Sequence[tuple[Any, ...]]) -> list[Answer]:
    """The answers of one kind of read to several questions, in their order. Heads and gates cost less than one by one."""
    if len(asked) > 1 and read is read_heads:
        return [*_read_heads_together(connection, asked)]
    if len(asked) > 1 and read is take_gate:
        return [*_take_gates_together(connection, asked)]
    return [read(connection, *arguments) for arguments in asked]


def read_heads(connection: Connection, lane: LaneId, limit: int, with_queue: bool = False) -> HeadsRead:
    """The first rows of a lane that do not wait. Cost: a seek, and one per row for the URL of its `via`."""
    rows = fetch(connection, statements.HEADS, (*lane, WAITING, limit))
    return HeadsRead(lane, _heads(connection, rows), read_queue(connection, lane[0]) if with_queue else None)


def _read_heads_together(connection: Connection, asked: Sequence[tuple[LaneId, int, bool]]) -> list[HeadsRead]:
    wanted = sorted({lane[0] for lane, _, with_queue in asked if with_queue})
    found = fetch_for(connection, statements.QUEUES_BY_ID, [(queue,) for queue in wanted])
    queues = {row[0]: queue_row(row) for row in found}
    heads = _heads_by_lane(connection, {lane: limit for lane, limit, _ in sorted(asked)})
    return [
        HeadsRead(lane, heads.get(lane, [])[:limit], queues.get(lane[0]) if with_queue else None)
        for lane, limit, with_queue in asked
    ]


def _heads_by_lane(connection: Connection, limits: Mapping[LaneId, int]) -> dict[LaneId, list[Head]]:
    """Up to so many first rows of each of these lanes; lanes without rows are left out."""
    heads: dict[LaneId, list[Head]] = {}
    wanted = [(*lane, WAITING, limit) for lane, limit in limits.items()]
    start = 0
    while (left := len(wanted) - start) > 0:
        size = min(_HEADS_AT_ONCE, 1 << left.bit_length() - 1)
        heads_of = statements.repeated(statements.HEADS, size)
        rows = fetch(connection, heads_of, list(chain.from_iterable(wanted[start : start + size])))
        for head in _heads(connection, rows):
            heads.setdefault(head[0][:2], []).append(head)
        start += size
    for found in heads.values():
        found.sort()  # UNION ALL promises no order
    return heads


def read_lanes(connection: Connection, gate: int, after: Turn | None, limit: int) -> LanesRead:
    """The servable lanes of a gate after a turn. Cost: one seek."""
    return LanesRead(gate, _line(connection, gate, -1 if after is None else after, limit))


def take_gate(
    connection: Connection, gate: int, key: GateKey, lanes: int, share_of: ShareOf = in_one_share
) -> GatesRead:
    """Hold one gate, with its first lanes, made if it is new. Cost: four seeks."""
    return _take_gates_together(connection, [(gate, key, lanes, share_of)])[0]


def _take_gates_together(connection: Connection, asked: Sequence[tuple[int, GateKey, int, ShareOf]]) -> list[GatesRead]:
    names = {gate: (key, share_of(key)) for gate, key, _, share_of in reversed(asked)}
    ids = [(gate,) for gate in sorted(names)]
    write(connection, statements.NAME_GATES, [gate_values(gate, *names[gate]) for (gate,) in ids])
    write(connection, statements.HOLD_GATES, ids)
    rows = {row[0]: GateRow._make(row) for row in fetch_for(connection, statements.GATES_BY_ID, ids)}
    return [
        GatesRead([GateRead(rows[gate], _line(connection, gate, -1, lanes))], gate, None) for gate, _, lanes, _ in asked
    ]


def gate_values(gate: int, key: GateKey, share: int = 0) -> Values:
    """The row of a gate that was only named."""
    return (gate, key, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, None, *NO_WINDOW, share)


def take_gates(
    connection: Connection, now_s: float, limit: int, lanes: int, shares: Collection[int] = (0,)
) -> GatesRead:
    """Hold the open gates of these shares with the smallest turns, with their first lanes.

    A gate with nothing left to serve loses its turn. If more than 10,000 closed gates have come due since the last question,
    the latest of them open with the next question. Cost: two seeks a gate, three a share.
    """
    if not shares:
        return GatesRead([], None, None)
    times, values = _for_shares(shares, (now_s, max(limit, _OPENED_AT_ONCE)))
    execute(connection, statements.open_gates(times), values)
    taken: list[GateRead] = []
    while wanted := limit - len(taken):
        times, values = _for_shares(shares, (wanted,))
        rows = fetch(connection, statements.repeated(statements.NEXT_GATES, times), values)
        rows = sorted(rows, key=itemgetter(_TURN))[:wanted]
        reads = [GateRead(GateRow._make(row[:_TURN]), _line(connection, row[0], -1, lanes)) for row in rows]
        with_lanes = [read for read in reads if read.lanes]
        write(connection, statements.HOLD_GATES, [(read.row.id,) for read in with_lanes])
        write(connection, statements.REST_GATES, [(read.row.id,) for read in reads if not read.lanes])
        taken += with_lanes
        if len(rows) < wanted:
            break
    times, values = _for_shares(shares, ())
    wakes = fetch(connection, statements.repeated(statements.NEXT_WAKE, times), values)
    return GatesRead(taken, None, min((wakes_s for (wakes_s,) in wakes if wakes_s is not None), default=None))


def _for_shares(shares: Collection[int], parameters: Values) -> tuple[int, list[Any]]:
    """How often to repeat a statement to ask for all these shares at once, a power of two, and its parameters then."""
    asked = [*sorted(shares)]
    asked += [_NO_SHARE] * ((1 << (len(asked) - 1).bit_length()) - len(asked))
    return len(asked), [value for share in asked for value in (share, *parameters)]


def read_retries(
    connection: Connection, after: tuple[float, int] | None, limit: int, epoch: int | None = None
) -> RetriesRead:
    """Waiting rows after (due_s, ordinal); with `epoch`, of a worker's shares. Cost: one seek, and one more per row."""
    place = (*(after or (float("-inf"), 0)), limit)
    if epoch is None:
        rows = fetch(connection, statements.RETRIES, place)
    else:
        rows = fetch(connection, statements.RETRIES_OF_SHARES, (epoch, *place))
    return RetriesRead(list(map(row_of, rows)))


def read_queue(connection: Connection, queue: int) -> QueueRow | None:
    """One queue. Cost: one seek."""
    rows = fetch(connection, statements.QUEUE, (queue,))
    return queue_row(rows[0]) if rows else None


def queue_row(values: Values) -> QueueRow:
    """A row of the table `queue`."""
    return QueueRow._make((*values[:2], Standing(values[2]), *values[3:8]))


def read_queued(connection: Connection, after: Place | None, limit: int) -> list[Head]:
    """Rows of `url` by place, after `after`. Cost: one seek, and one more per row."""
    return _heads(connection, fetch(connection, statements.QUEUED, (*(after or FIRST_PLACE), limit)))


def _heads(connection: Connection, rows: Sequence[Values]) -> list[Head]:
    if rows and min([row[7] for row in rows]) < 0:  # found on pages of other shares
        ordinals = sorted({-row[7] for row in rows if row[7] < 0})
        pages: dict[int, str] = dict(fetch_for(connection, statements.PAGES, [(ordinal,) for ordinal in ordinals]))
        rows = [(*row[:11], pages.get(-row[7], row[11])) for row in rows]
    # `_make` twice a row would cost more than reading it.
    return [Head(row_of(row[:11]), row[11]) for row in rows]


#: A row of the table `url`, whose columns are in the order of the fields.
row_of: Callable[[Values], Row] = Row._make


def _line(connection: Connection, gate: int, after: int, limit: int) -> list[LaneRow]:
    return list(map(LaneRow._make, fetch(connection, statements.LINE, (gate, after, limit))))


def read_parcels(connection: Connection, after: tuple[int, int], limit: int) -> list[tuple[int, int, bytes]]:
    """Links that a share of a job had for others, in an earlier version: (share, number, content), after (share, number)."""
    return [
        (share, number, content) for share, number, content in fetch(connection, statements.PARCELS, (*after, limit))
    ]


# One URL


def seen_ordinals(connection: Connection, fingerprints: Sequence[int]) -> dict[int, int]:
    """The ordinal of each known one of these fingerprints. Cost: one seek each."""
    return dict(fetch_for(connection, statements.SEEN, [(fingerprint,) for fingerprint in fingerprints]))


def look_up(connection: Connection, key: bytes, lane: LaneId | None = None) -> UrlRecord | None:
    """The record of the URL with this key. Raises: InvariantBroken if it was seen and has no row.

    Cost: two seeks for a URL that has ended, a few for one that is queued in `lane`, a look at the links on their way for one
    that is unknown, else a scan of `url`. An index by ordinal would cost every queued URL about 30 bytes and a second random
    write, for a rare question.
    """
    fingerprint = seen_fingerprint(key)
    ordinal = seen_ordinals(connection, [fingerprint]).get(fingerprint)
    if ordinal is None:
        return _link_of(connection, key)
    if ended := fetch_for(connection, statements.DONE, [(ordinal,)]):
        return _ended_record(ended[0])
    found = [] if lane is None else _seek(connection, lane, ordinal)
    found = found or fetch(connection, statements.URL_ANYWHERE, (ordinal,))
    if not found and (link := _link_of(connection, key)):
        return link
    if not found:
        raise InvariantBroken(f"the key {key!r} is seen at row {ordinal}, which is neither queued nor ended")
    return row_of(found[0]).record()


def of_url(connection: Connection, url: str, limit: int) -> list[UrlRecord]:
    """Answer `FrontierStore.of_url`. Cost: a scan of `url` and `done`, half a second a million rows that are in memory.

    The key of a host's request does not follow from its URL, and an index would cost each row a random write.
    """
    queued = fetch(connection, statements.URL_OF, (url, limit))
    ended = fetch(connection, statements.DONE_OF, (url, limit))
    records = [(_key(row[5], url), row_of(row).record()) for row in queued]
    records += [(_key(row[2], url), _ended_record(row)) for row in ended]
    latest = set(seen_ordinals(connection, sorted({seen_fingerprint(key) for key, _ in records})).values())
    return sorted((record for _, record in records if record.ordinal in latest), key=lambda record: record.ordinal)


def look_up_ended(connection: Connection, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
    """The records of those of these URLs that have ended, by key. Cost: two seeks for each."""
    fingerprints = {key: seen_fingerprint(key) for key in keys}
    known = seen_ordinals(connection, list(fingerprints.values()))
    ended = fetch_for(connection, statements.DONE, [(ordinal,) for ordinal in sorted(set(known.values()))])
    records = {row[0]: _ended_record(row) for row in ended}
    places = {key: known.get(fingerprint) for key, fingerprint in fingerprints.items()}
    return {key: records[ordinal] for key, ordinal in places.items() if ordinal in records}


def _link_of(connection: Connection, key: bytes) -> UrlRecord | None:
    """The record of a URL on its way to another worker, of several links the first one's."""
    rows = fetch(connection, statements.LINKS_OF, (key, key.decode(errors="replace")))
    links = [link for link in map(LinkRow._make, rows) if link.dedup_key() == key]
    if not links:
        return None
    link = min(links, key=lambda link: link.ordinal)
    record = UrlRecord(link.url, UrlState.QUEUED, 0, "", 0, link.ordinal, hops=link.hops)
    return record._replace(payload=link.payload, precedence=link.precedence, via=link.via)


def _seek(connection: Connection, lane: LaneId, ordinal: int) -> list[Values]:
    """The row in this lane, at any of its precedences, which are few: two seeks each."""
    precedence: int | None = -1
    while True:
        ((precedence,),) = fetch(connection, statements.NEXT_PRECEDENCE, (*lane, precedence))
        if precedence is None:
            return []
        if rows := fetch(connection, statements.URL_AT, (*lane, precedence, ordinal)):
            return rows


def _ended_record(row: Values) -> UrlRecord:
    """A row of `done` as the record that callers get."""
    ended = ended_of(row)
    return UrlRecord(ended.url, UrlState.ENDED, ended.status, ended.outcome.value, ended.attempts, ended.ordinal)


def ended_of(values: Values) -> EndedRecord:
    """A row of the table `done`, without the worker."""
    return EndedRecord._make((*values[:4], OutcomeKind(values[4]), values[5]))


# Keys and queues


def queued_keys(connection: Connection, after: Place | None, limit: int, above: int = 0) -> list[tuple[bytes, Place]]:
    """Key and place of the rows after a place in `url` with an ordinal above one. Cost: all pages are a scan of `url`."""
    rows = fetch(connection, statements.QUEUED_KEYS, (*(after or FIRST_PLACE), above, limit))
    return [(_key(key, url), tuple(place)) for key, url, *place in rows]


def ended_keys(connection: Connection, after: int, limit: int) -> list[tuple[bytes, int]]:
    """Key and ordinal of the rows after an ordinal in `done`."""
    return [(_key(key, url), ordinal) for key, url, ordinal in fetch(connection, statements.ENDED_KEYS, (after, limit))]


def _key(key: bytes | None, url: str) -> bytes:
    return url.encode() if key is None else key


def queue(connection: Connection, queue: int) -> QueueFacts | None:
    """One queue, with the sums over its lanes. Cost: O(its lanes)."""
    rows = fetch(connection, statements.QUEUE_FACTS, (queue,))
    return _facts(rows[0]) if rows else None


def queues(
    connection: Connection, standing: Standing | None, after: int | None, limit: int, longest_first: bool = False
) -> list[QueueFacts]:
    """Answer `FrontierStore.queues`; equally long queues come by id.

    Cost: O(queues passed), or O(lanes of the crawl) with `longest_first`.
    """
    if longest_first:
        found = [queue(connection, id_) for id_, _ in fetch(connection, statements.LONGEST, (limit,))]
        return [facts for facts in found if facts is not None]
    first = FIRST_ID if after is None else after + 1
    if standing:
        rows = fetch(connection, statements.CLOSED_QUEUES, (int(standing), first, limit))
    else:
        rows = fetch(connection, statements.QUEUES if standing is None else statements.OPEN_QUEUES, (first, limit))
    return [_facts(row) for row in rows]


def lanes(connection: Connection, queue: int, after: int | None, limit: int) -> list[LaneRow]:
    """The lanes of a queue that have rows, by gate, after `after`. Cost: one seek."""
    rows = fetch(connection, statements.LANES_OF_QUEUE, (queue, FIRST_ID if after is None else after + 1, limit))
    return [LaneRow._make(row) for row in rows]


def gate(connection: Connection, gate: int) -> GateRow | None:
    """One gate. Cost: one seek."""
    rows = fetch(connection, statements.GATE, (gate,))
    return GateRow._make(rows[0]) if rows else None


def ended_after(connection: Connection, after: int, limit: int) -> list[EndedRecord]:
    """Rows of `done` by ordinal, above one. Cost: one seek."""
    rows = fetch(connection, statements.ENDED, (after, limit))
    return list(map(ended_of, rows))


def failed_after(connection: Connection, after: int, limit: int) -> list[FailedRecord]:
    """Failed rows of `done` by ordinal, above one. Cost: three seeks a row."""
    rows = fetch(connection, statements.FAILED_AFTER, (after, limit))
    return [FailedRecord._make((*row[:5], row[5] or 0, *row[6:])) for row in rows]


def failures(connection: Connection) -> Mapping[int, int]:
    """How many rows have failed, by status. Cost: a seek for each."""
    return dict(fetch(connection, statements.FAILED_BY_STATUS))


def blocked(connection: Connection, now_s: float) -> set[int]:
    """The gates that are blocked for longer. Cost: a scan of the gates."""
    return {gate for (gate,) in fetch(connection, statements.BLOCKED_GATES, (now_s,))}


def tally(connection: Connection) -> Mapping[str, int]:
    """How many queues are in each state. Cost: O(lanes and queues of the crawl)."""
    return Counter(dict(fetch(connection, statements.TALLY)))


def _facts(row: Values) -> QueueFacts:
    return QueueFacts(queue_row(row), int(row[8]), int(row[9]), row[10])


_CHUNK = 10_000


def job_counts(connection: Connection) -> JobCounts:
    """A job of several workers as a whole. Cost: O(times that workers have joined), and of links that are on their way."""
    ((*totals, links),) = fetch(connection, statements.JOB_COUNTS)
    return JobCounts(Counters._make(map(int, totals)), links)


def _kept(connection: Connection) -> Counters:
    """The totals of the one owner, or the sum over all workers."""
    facts: dict[str, str] = dict(fetch(connection, statements.FACTS))
    return job_counts(connection).counters if is_shared(facts) else counters_of(facts)


def recount(connection: Connection) -> Counters:
    """Count the rows and compare with every kept count. Raises: InvariantBroken, naming the first difference.

    The last number of the sequence is taken as it is kept: its row may be gone. Cost: a scan of every table and a look into
    `seen` for each row.
    """
    kept = _kept(connection)
    ((queued, last_row, waiting),) = fetch(connection, statements.COUNT_URLS, (WAITING,))
    ((queues,),) = fetch(connection, statements.COUNT_QUEUES)
    ended = {outcome: (count, last) for outcome, count, last in fetch(connection, statements.COUNT_DONE)}
    closed: dict[int, int] = dict(fetch(connection, statements.COUNT_CLOSED))
    counted = Counters(
        last_ordinal=max(last_row or 0, 0, *(last for _, last in ended.values())),
        queued=queued,
        **{kind.value: ended.get(kind.value, (0, 0))[0] for kind in ENDING},
        retired=int(closed.get(Standing.RETIRED, 0)),
        paused=int(closed.get(Standing.PAUSED, 0)),
        waiting=int(waiting),
        queues=queues,
        retried=kept.retried,  # no row tells
    )
    if counted.last_ordinal > kept.last_ordinal:
        raise InvariantBroken(f"a row has the number {counted.last_ordinal}, the last is {kept.last_ordinal}")
    counted = counted._replace(last_ordinal=kept.last_ordinal)
    if counted != kept:
        raise InvariantBroken(f"the rows make {counted}, the counters say {kept}")
    _check_lanes(connection, counted.queued)
    _check_seen(connection)
    return counted


def _check_lanes(connection: Connection, queued: int) -> None:
    for wrong in fetch(connection, statements.WRONG_LANE, (WAITING,)):
        raise InvariantBroken("the lane ({}, {}) counts {} rows and {} waiting, and holds {} and {}".format(*wrong))
    for wrong in fetch(connection, statements.WRONG_SHELF):
        raise InvariantBroken("the lane ({}, {}) is shelved as {}, its queue has {}".format(*wrong))
    for wrong in fetch(connection, statements.WRONG_LINE):
        raise InvariantBroken("the lane ({}, {}) is kept as servable {}, against its counts".format(*wrong))
    ((total,),) = fetch(connection, statements.SUM_LANES)
    if total != queued:
        raise InvariantBroken(f"the lanes count {total} rows, the table url holds {queued}")


def _check_seen(connection: Connection) -> None:
    """Each key is in `seen` with the ordinal of its last row; nothing else is there.

    A link to another worker need not be: the receiver enters its key. Forced ones are, and so are those of older formats.
    """
    links = [LinkRow._make(row) for row in fetch(connection, statements.ALL_LINKS)]
    sent = seen_ordinals(connection, [seen_fingerprint(link.dedup_key()) for link in links])
    last_rows = len({link.ordinal for link in links} & set(sent.values()))
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
    while rows := queued_keys(connection, place, _CHUNK):
        place = rows[-1][1]
        yield [(key, place[3]) for key, place in rows]
    last = 0
    while ended := ended_keys(connection, last, _CHUNK):
        last = ended[-1][1]
        yield ended
