"""The tables of the store in memory: a sorted index, ended rows, gates, lanes with their rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar

from anabranch.frontier.records import WAITING, GateKey, OutcomeKind, Row, Turn, UrlRecord, UrlState
from anabranch.frontier.stores.contract import EndedRecord, FailedRecord, GateRow, LaneId, LaneRow, Standing

EntryT = TypeVar("EntryT", bound=tuple[Any, ...])


class Ascending(Generic[EntryT]):
    """Tuples in rising order, no two equal, in chunks of at most twice `chunk`.

    Each chunk has a bound: its entries do not exceed it, later ones do. Adding at the end is O(1); adding and discarding
    elsewhere is one search and a shift within one chunk.
    """

    __slots__ = ("_bounds", "_chunk", "_chunks")

    def __init__(self, chunk: int = 500) -> None:
        self._chunk = chunk
        self._chunks: list[list[EntryT]] = []
        self._bounds: list[EntryT] = []

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __iter__(self) -> Iterator[EntryT]:
        return (entry for chunk in self._chunks for entry in chunk)

    def add(self, entry: EntryT) -> None:
        """Insert a new entry."""
        bounds, chunks = self._bounds, self._chunks
        if not bounds:
            chunks.append([entry])
            bounds.append(entry)
            return
        if bounds[-1] < entry:
            place = -1
            bounds[-1] = entry
            chunks[-1].append(entry)
        else:
            place = bisect_left(bounds, entry)
            insort(chunks[place], entry)
        if len(chunks[place]) > 2 * self._chunk:
            self._split(place % len(chunks))

    def discard(self, entry: EntryT) -> bool:
        """Remove an entry; False if it is missing."""
        number = bisect_left(self._bounds, entry)
        if number == len(self._bounds):
            return False
        chunk = self._chunks[number]
        place = bisect_left(chunk, entry)
        if place == len(chunk) or chunk[place] != entry:
            return False
        del chunk[place]
        if not chunk:
            del self._chunks[number], self._bounds[number]
        return True

    def first(self) -> EntryT | None:
        """The smallest entry."""
        return self._chunks[0][0] if self._chunks else None

    def since(self, bound: tuple[Any, ...], limit: int) -> list[EntryT]:
        """The first entries that are not below a tuple, which may be shorter than they. O(log n + limit)."""
        number = bisect_left(self._bounds, bound)
        if number == len(self._bounds):
            return []
        place = bisect_left(self._chunks[number], bound)
        found = self._chunks[number][place : place + limit]
        while len(found) < limit and (number := number + 1) < len(self._chunks):
            found += islice(self._chunks[number], limit - len(found))
        return found

    def _split(self, number: int) -> None:
        chunk = self._chunks[number]
        lower, upper = chunk[: self._chunk], chunk[self._chunk :]
        self._chunks[number : number + 1] = [lower, upper]
        self._bounds.insert(number, lower[-1])


_KINDS: Final = tuple(OutcomeKind)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
#: A row's number of attempts is packed as attempts << 3 | kind.
_KIND_BITS: Final = 3
_KIND: Final = (1 << _KIND_BITS) - 1


class SortedKeys:
    """The keys of a growing dict in rising order. They are sorted again only after it has grown."""

    def __init__(self, grows: Mapping[int, object]) -> None:
        self._grows = grows
        self._sorted: list[int] = []

    def shrunk(self) -> None:
        """The dict has lost a key, which it does seldom."""
        self._sorted = []

    def behind(self, after: int | None) -> Iterator[int]:
        """All keys above one."""
        if len(self._sorted) != len(self._grows):
            self._sorted = sorted(self._grows)
        ids = self._sorted
        return islice(ids, 0 if after is None else bisect_right(ids, after), None)


class EndedRows:
    """Rows that have ended, by ordinal. O(1), except for lists.

    May be read from any thread: `_status` is written last, so each of its ordinals is in the other dicts, unless it is a
    failure that is queued again at this moment.
    """

    def __init__(self) -> None:
        #: What it takes to queue failures again: hops, via, precedence, time, payload. Plain tuples, which the collector skips.
        self._failures: dict[int, tuple[str | None, int, int | None, float | None, bytes | None]] = {}
        self._failed_ordinals = SortedKeys(self._failures)
        self._urls: dict[int, str] = {}
        self._keys: dict[int, bytes] = {}  # of rows with a key other than the URL
        self._how: dict[int, int] = {}  # attempts and kind
        self._status: dict[int, int] = {}
        self._ordinals = SortedKeys(self._status)

    def add(self, row: Row, status: int, kind: OutcomeKind, ended_s: float | None = None) -> None:
        """The row has ended. Without a time it ended elsewhere, and its way there is not known."""
        ordinal, key = row.ordinal, row.key
        if kind is OutcomeKind.FAILED:
            known = row.hops, row.via, row.precedence % WAITING, ended_s, row.payload
            self._failures[ordinal] = (None, 0, None, None, None) if ended_s is None else known
        self._urls[ordinal] = row.url
        if key is not None:
            self._keys[ordinal] = key
        self._how[ordinal] = row.attempts << _KIND_BITS | _NUMBERS[kind]
        self._status[ordinal] = status

    def take_failed(self, ordinal: int) -> bool:
        """The row is no failure any more, since its URL is queued again; False if it was none."""
        if self._failures.pop(ordinal, None) is None:
            return False
        del self._status[ordinal]
        del self._urls[ordinal], self._how[ordinal]
        self._keys.pop(ordinal, None)
        self._ordinals.shrunk()
        self._failed_ordinals.shrunk()
        return True

    def failed_after(self, after: int, limit: int) -> list[FailedRecord]:
        """The first failures above this ordinal."""
        found: list[FailedRecord] = []
        for ordinal in islice(self._failed_ordinals.behind(after), limit):
            row, failure = self._row(ordinal), self._failures.get(ordinal)
            if row is not None and failure is not None:
                hops, via, precedence, ended_s, payload = failure
                found.append(FailedRecord(*row[:4], hops, via, precedence, ended_s, payload))
        return found

    def failures(self) -> Counter[int]:
        """How many have failed, by status."""
        return Counter(self._status.get(ordinal, 0) for ordinal in list(self._failures))

    def note_page(self, ordinal: int, url: str) -> None:
        """A page of another share of the crawl; `url` finds it by the negative of its ordinal."""
        self._urls[-ordinal] = url

    def url(self, ordinal: int) -> str | None:
        """The URL with this ordinal, if it has ended; of a negative one the page of another share."""
        return self._urls.get(ordinal)

    def record(self, ordinal: int) -> UrlRecord | None:
        """Its record, if it has ended."""
        row = self._row(ordinal)
        if row is None:
            return None
        return UrlRecord(row.url, UrlState.ENDED, row.status, row.outcome.value, row.attempts, ordinal)

    def of_url(self, url: str) -> Iterator[tuple[bytes, UrlRecord]]:
        """The dedup key and the record of each row with this URL. O(rows)."""
        for ordinal in list(self._status):
            record = self.record(ordinal) if self._urls.get(ordinal) == url else None
            if record is not None:
                yield self._keys.get(ordinal, url.encode()), record

    def after(self, ordinal: int, limit: int) -> list[EndedRecord]:
        """The first ones above this ordinal. The ordinals are sorted again if there are more than at the last question."""
        found = (self._row(one) for one in self._ordinals.behind(ordinal))
        return list(islice((row for row in found if row is not None), limit))

    def keys(self) -> Iterator[tuple[int, bytes]]:
        """The ordinal and the dedup key of each."""
        for ordinal in list(self._status):
            if (row := self._row(ordinal)) is not None:
                yield ordinal, row.url.encode() if row.key is None else row.key

    def kinds(self) -> Counter[OutcomeKind]:
        """How many have ended in each way."""
        return Counter(_KINDS[how & _KIND] for how in list(self._how.values()))

    def _row(self, ordinal: int) -> EndedRecord | None:
        status, url, how = self._status.get(ordinal), self._urls.get(ordinal), self._how.get(ordinal)
        if status is None or url is None or how is None:
            return None
        return EndedRecord(ordinal, url, self._keys.get(ordinal), status, _KINDS[how & _KIND], how >> _KIND_BITS)


class Gates:
    """A gate is held, or has a turn (and a time before which it is closed), or has nothing to serve.

    O(log gates) per change of a turn, O(1) for a gate's facts.
    """

    def __init__(self) -> None:
        self.rows: dict[int, GateRow] = {}
        self.held: set[int] = set()
        self._windows: dict[int, tuple[Turn, float | None]] = {}  # those not held that have a turn: (turn, wakes_s)
        self._open: Ascending[tuple[Turn, int]] = Ascending()
        self._closed: Ascending[tuple[float, int]] = Ascending()  # (wakes_s, gate)

    def name(self, gate: int, key: GateKey) -> None:
        """Make the row of a gate that has none."""
        if gate not in self.rows:
            self.rows[gate] = GateRow(gate, key, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, None)

    def hold(self, gate: int) -> None:
        """The core takes it into memory."""
        self._forget_window(gate)
        self.held.add(gate)

    def leave(self, gate: int, turn: Turn | None, wakes_s: float | None) -> None:
        """The core drops it from memory. An unknown gate is ignored."""
        if gate in self.rows:
            self.held.discard(gate)
            self._set_window(gate, turn, wakes_s)

    def wake(self, gate: int, turn: Turn) -> None:
        """It has something to serve with this turn. Ignored for a gate that is held, unknown, or earlier anyway."""
        if gate in self.held or gate not in self.rows:
            return
        old_turn, wakes_s = self._windows.get(gate, (None, None))
        if old_turn is None or turn < old_turn:
            self._set_window(gate, turn, wakes_s)

    def rest(self, gate: int) -> None:
        """It has nothing to serve."""
        self._set_window(gate, None, None)

    def first_open(self, now_s: float) -> int | None:
        """The gate with the smallest turn that is neither held nor known to be closed."""
        while (first := self._closed.first()) is not None and first[0] <= now_s:
            _, gate = first
            turn, _ = self._windows[gate]
            self._set_window(gate, turn, None)
        soonest = self._open.first()
        return None if soonest is None else soonest[1]

    def next_opening(self) -> float | None:
        """When the next closed gate opens; to be called right after `first_open`."""
        first = self._closed.first()
        return None if first is None else first[0]

    def blocked(self, now_s: float) -> set[int]:
        """The gates that are blocked longer than this."""
        return {gate for gate, row in list(self.rows.items()) if row.blocked_until_s > now_s}

    def move_times(self, by_s: float) -> None:
        """Add a duration to every time."""
        for gate, row in self.rows.items():
            self.rows[gate] = row._replace(
                rests_until_s=row.rests_until_s + by_s,
                blocked_until_s=row.blocked_until_s + by_s,
                troubled_s=row.troubled_s + by_s,
            )
        for gate, (turn, wakes_s) in list(self._windows.items()):
            if wakes_s is not None:
                self._set_window(gate, turn, wakes_s + by_s)

    def _set_window(self, gate: int, turn: Turn | None, wakes_s: float | None) -> None:
        self._forget_window(gate)
        if turn is None:
            return
        self._windows[gate] = turn, wakes_s
        if wakes_s is None:
            self._open.add((turn, gate))
        else:
            self._closed.add((wakes_s, gate))

    def _forget_window(self, gate: int) -> None:
        window = self._windows.pop(gate, None)
        if window is None:
            return
        turn, wakes_s = window
        if wakes_s is None:
            self._open.discard((turn, gate))
        else:
            self._closed.discard((wakes_s, gate))


class FailuresInMemory:
    """Answers a retry's questions about ended rows and gates."""

    def __init__(self, ended: EndedRows, gates: Gates) -> None:
        self._ended = ended
        self._gates = gates

    def failed_after(self, after: int, limit: int) -> list[FailedRecord]:
        """The ordinals are sorted again if there are others than at the last question."""
        return self._ended.failed_after(after, limit)

    def by_status(self) -> Mapping[int, int]:
        """O(failed rows)."""
        return self._ended.failures()

    def blocked(self, now_s: float) -> set[int]:
        """O(gates)."""
        return self._gates.blocked(now_s)


class StoredLane:
    """The rows of one queue at one gate."""

    __slots__ = ("gate", "levels", "queue", "ready", "returned", "standing", "turn", "waiting")

    def __init__(self, queue: int, gate: int, turn: Turn, standing: Standing) -> None:
        self.queue = queue
        self.gate = gate
        self.turn = turn
        self.standing = standing  #: its queue's; unless OPEN the lane is shelved
        self.ready = 0  #: rows that can be served, leased ones included
        self.waiting = 0  #: rows that wait for a retry
        #: Rows by precedence, then in the order they came: rising ordinals, but for rows that wait.
        self.levels: dict[int, OrderedDict[int, Row]] = {}
        #: Rows to serve that came back after later ones of their precedence: (precedence, ordinal, row).
        self.returned: Ascending[tuple[int, int, Row]] | None = None

    @property
    def is_servable(self) -> bool:
        """It is in its gate's line."""
        return self.ready > 0 and not self.standing

    @property
    def count(self) -> int:
        """All its rows."""
        return self.ready + self.waiting

    def as_row(self) -> LaneRow:
        """The lane as a row of the contract."""
        return LaneRow(self.queue, self.gate, self.turn, self.ready + self.waiting, self.waiting)

    def heads(self, limit: int) -> Iterable[Row]:
        """The first rows that do not wait."""
        levels = self.levels
        served = [precedence for precedence in levels if precedence < WAITING]
        if not self.returned and len(served) == 1:
            return islice(levels[served[0]].values(), limit)
        in_order = chain.from_iterable([levels[precedence].values() for precedence in sorted(served)])
        returned = [] if self.returned is None else [row for _, _, row in self.returned.since((), limit)]
        return islice(merge(in_order, returned, key=place_in_lane), limit)

    def find(self, ordinal: int) -> Row | None:
        """The row with this number. O(precedences), and O(rows that came back)."""
        found = (level.get(ordinal) for level in list(self.levels.values()))
        row = next((row for row in found if row is not None), None)
        if row is None and self.returned is not None:
            row = next((row for _, number, row in list(self.returned) if number == ordinal), None)
        return row

    def rows(self) -> list[Row]:
        """All rows, in no order."""
        returned = [] if self.returned is None else [row for _, _, row in self.returned]
        return list(chain(*(list(level.values()) for level in list(self.levels.values())), returned))

    def set_turn(self, turn: Turn) -> None:
        """Give it another turn."""
        self.turn = turn

    def set_standing(self, standing: Standing) -> None:
        """Open, pause or retire it, with its queue."""
        self.standing = standing

    def put(self, row: Row, *, is_newest: bool) -> None:
        """Add a row; `is_newest`: no row of any lane has a larger ordinal."""
        precedence, ordinal = row.precedence, row.ordinal
        level = self.levels.get(precedence)
        if level is None:
            level = self.levels[precedence] = OrderedDict()
        if is_newest or not level or precedence >= WAITING or next(reversed(level)) < ordinal:
            level[ordinal] = row
        else:
            if self.returned is None:
                self.returned = Ascending()
            self.returned.add((precedence, ordinal, row))
        if precedence >= WAITING:
            self.waiting += 1
        else:
            self.ready += 1

    def take(self, precedence: int, ordinal: int) -> Row:
        """Take a row out. Raises: KeyError if it is missing."""
        level = self.levels.get(precedence)
        kept = None if level is None else level.pop(ordinal, None)
        if kept is None:
            kept = self._take_returned(precedence, ordinal)
        elif not level:
            del self.levels[precedence]
        if precedence >= WAITING:
            self.waiting -= 1
        else:
            self.ready -= 1
        return kept

    def _take_returned(self, precedence: int, ordinal: int) -> Row:
        """Take a row out of `returned`. Raises: KeyError."""
        found = [] if self.returned is None else self.returned.since((precedence, ordinal), 1)
        if self.returned is None or not found or found[0][:2] != (precedence, ordinal):
            raise KeyError(ordinal)
        self.returned.discard(found[0])
        return found[0][2]


def place_in_lane(row: Row) -> tuple[int, ...]:
    """Rows of a lane are served by precedence, then in the order of acceptance."""
    return row[2:4]


class Lanes:
    """All lanes, the servable ones of each gate in line by turn, and all waiting rows by the time of their retry.

    Putting and taking out a row is O(1); O(log n) for one that waits, comes back, or changes whether its lane is servable.
    """

    def __init__(self) -> None:
        self._by_queue: dict[int, dict[int, StoredLane]] = {}
        self._lines: dict[int, Ascending[tuple[Turn, int]]] = {}  # by gate: (turn, queue) of servable lanes
        self._retries: Ascending[tuple[float, int, Row]] = Ascending()  # (due_s, ordinal, row)
        self._stopped: dict[int, Standing] = {}  # queues that are not open
        self.rows_stopped = [0] * len(Standing)  #: by standing, how many rows are in such queues; open ones count none
        self._last_ordinal = 0

    # Lanes

    def lane(self, lane: LaneId) -> StoredLane | None:
        """The lane, if it was announced and not removed."""
        return self._by_queue.get(lane[0], {}).get(lane[1])

    def of_queue(self, queue: int) -> list[StoredLane]:
        """All lanes of a queue, empty ones too."""
        return list(self._by_queue.get(queue, {}).values())

    def all(self) -> Iterator[StoredLane]:
        """All lanes, empty ones too."""
        return (lane for lanes in list(self._by_queue.values()) for lane in list(lanes.values()))

    def announce(self, queue: int, gate: int, turn: Turn) -> None:
        """Make the lane if it is new; the turn is taken unless the lane is servable."""
        lanes = self._by_queue.setdefault(queue, {})
        lane = lanes.get(gate)
        if lane is None:
            lanes[gate] = StoredLane(queue, gate, turn, self._stopped.get(queue, Standing.OPEN))
        elif not lane.is_servable:
            lane.set_turn(turn)

    def set_turn(self, lane_id: LaneId, turn: Turn) -> None:
        """Give a lane another turn; an unknown lane is ignored."""
        lane = self.lane(lane_id)
        if lane is None:
            return
        if not lane.is_servable:
            lane.set_turn(turn)
            return
        self._leave_line(lane)
        lane.set_turn(turn)
        self._join_line(lane)

    def remove(self, lane_id: LaneId) -> None:
        """Forget a lane if it has no rows."""
        lane = self.lane(lane_id)
        if lane is None or lane.count:
            return
        lanes = self._by_queue[lane.queue]
        del lanes[lane.gate]
        if not lanes:
            del self._by_queue[lane.queue]

    # Rows

    def put(self, row: Row) -> None:
        """Add a row to its lane. Raises: KeyError if the lane was not announced."""
        precedence, ordinal = row.precedence, row.ordinal
        lane = self._by_queue[row.queue][row.gate]
        lane.put(row, is_newest=ordinal > self._last_ordinal)
        self._last_ordinal = max(self._last_ordinal, ordinal)
        if precedence >= WAITING:
            self._retries.add(_as_retry(row))
        elif lane.ready == 1 and not lane.standing:
            self._join_line(lane)
        if lane.standing:
            self.rows_stopped[lane.standing] += 1

    def take_out(self, row: Row) -> None:
        """Take a row from its place. Raises: KeyError if it is missing."""
        lane = self._by_queue[row.queue][row.gate]
        kept = lane.take(row.precedence, row.ordinal)
        if row.precedence >= WAITING:
            self._retries.discard(_as_retry(kept))
        elif not lane.ready and not lane.standing:
            self._leave_line(lane)
        if lane.standing:
            self.rows_stopped[lane.standing] -= 1

    def retries(self, after: tuple[float, int] | None, limit: int) -> list[Row]:
        """Waiting rows by (due_s, ordinal), after a place."""
        bound = () if after is None else (after[0], after[1] + 1)
        return [row for _, _, row in self._retries.since(bound, limit)]

    def move_times(self, by_s: float) -> None:
        """Add a duration to the time of every retry."""
        for due_s, _, row in list(self._retries):
            self.take_out(row)
            self.put(row._replace(due_s=due_s + by_s))

    # The lines at the gates

    def line(self, gate: int, after: Turn | None, limit: int) -> list[LaneRow]:
        """The servable lanes of a gate after a turn, by turn."""
        line = self._lines.get(gate)
        if line is None:
            return []
        places = line.since(() if after is None else (after + 1,), limit)
        return [self._by_queue[queue][gate].as_row() for _, queue in places]

    def first_turn(self, gate: int) -> Turn | None:
        """The turn of the first servable lane of a gate."""
        line = self._lines.get(gate)
        first = None if line is None else line.first()
        return None if first is None else first[0]

    # Standings

    def standing(self, queue: int) -> Standing:
        """Whether a queue is open."""
        return self._stopped.get(queue, Standing.OPEN)

    def set_standing(self, queue: int, standing: Standing) -> list[int]:
        """Open, pause or retire a queue; the result is the gates at which it becomes servable."""
        if standing:
            self._stopped[queue] = standing
        else:
            self._stopped.pop(queue, None)
        opened = []
        for lane in self.of_queue(queue):
            was_servable = lane.is_servable
            self._count_stopped(lane, -lane.count)
            lane.set_standing(standing)
            self._count_stopped(lane, lane.count)
            if was_servable and standing:
                self._leave_line(lane)
            elif lane.is_servable and not was_servable:
                self._join_line(lane)
                opened.append(lane.gate)
        return opened

    def _count_stopped(self, lane: StoredLane, rows: int) -> None:
        if lane.standing:
            self.rows_stopped[lane.standing] += rows

    def _join_line(self, lane: StoredLane) -> None:
        line = self._lines.get(lane.gate)
        if line is None:
            line = self._lines[lane.gate] = Ascending()
        line.add((lane.turn, lane.queue))

    def _leave_line(self, lane: StoredLane) -> None:
        line = self._lines[lane.gate]
        line.discard((lane.turn, lane.queue))
        if not line:
            del self._lines[lane.gate]


def _as_retry(row: Row) -> tuple[float, int, Row]:
    return (row.due_s or 0.0, row.ordinal, row)
