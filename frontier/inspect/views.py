"""Read-only views of the crawl: queues, gates, URLs and statistics, from memory where possible, else from the store.

Each view is a generator of steps (`frontier.parts`), so a running crawl continues while the store answers. A view combines
facts from different moments; each fact was true at one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from anabranch.frontier.completion import LeaseElsewhere
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.inspect.explain import (
    Explanation,
    GateView,
    QueueView,
    UrlFacts,
    explain_queue,
    explain_url,
    rate_per_s,
    why_closed,
)
from anabranch.frontier.inspect.statistics import FrontierStatistics, ReadyQueues, examine, ready
from anabranch.frontier.parts import Parts, Steps, asked, flushed
from anabranch.frontier.records import GateKey, QueueKey, UrlRecord, name_id, precedence_of
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import FrontierStore, LaneId, LaneRow, Place, QueueFacts, Standing
from anabranch.frontier.times import counted

#: Gates of a queue that a view looks at.
GATES = 20
#: The most URLs that are counted before one, and searched for the first retry of a queue.
AHEAD = 10_000
#: Queues or rows that are read at a time.
PAGE = 1000
#: The most rows of one URL that are explained.
OF_URL = 100

_STANDINGS = {Standing.PAUSED: QueueState.PAUSED, Standing.RETIRED: QueueState.RETIRED}
#: States of a queue that is served and has no lease here.
_SERVED = frozenset({QueueState.INACTIVE, QueueState.LOADING, QueueState.READY})
_BY_STATE = {QueueState.PAUSED: Standing.PAUSED, QueueState.RETIRED: Standing.RETIRED}
#: The whole numbers of a store are below this.
_MAX_INTEGER = 1 << 63


class InMemory(NamedTuple):
    """The queues and gates that a Frontier has in memory."""

    queues: list[tuple[QueueKey, QueueState, int]]  #: key, state, leases
    gates: list[tuple[GateKey, float, int]]  #: key, seconds until it opens, leases


class Views:
    """Views that change nothing; what was reported is written first. Errors: UnknownQueue; StoreUnavailable."""

    def __init__(self, store: FrontierStore, seen: SeenFilter, parts: Parts, clock: Callable[[], float]) -> None:
        self._store = store
        self._seen = seen
        self._parts = parts
        self._clock = clock
        #: Leases by queue of the process that owns the state, if this is a view of a copy.
        self._elsewhere: Counter[int] = Counter()

    def statistics(self) -> Steps[FrontierStatistics]:
        """The counts and more, and why nothing runs. Costs a look at every lane, and at every gate in memory."""
        self._parts.store_link.drain()
        behind = self._parts.store_link.unacknowledged.behind
        yield from self.flush()
        tally = yield from asked(self._store.tally)
        statistics = examine(self._parts, tally, behind, self._clock())
        queues = yield from self._tally(statistics.queues)
        counts = self._parts.admission.marking.counts
        return statistics._replace(queues=queues, seen={**self._seen.facts(), **counts.facts()})

    def ready(self) -> ReadyQueues:
        """The queues in memory that may be served now; never waits. Costs a look at the lanes of open gates."""
        return ready(self._parts, self._clock())

    def in_memory(self, limit: int) -> InMemory:
        """The queues and gates in memory, those with most leases first; never waits. Costs 2 µs for each in memory."""
        _check_numbers(limit)
        schedule, now_s = self._parts.schedule, self._clock()
        known = (queue for queue in schedule.index if queue.is_known)
        queues = nlargest(limit, known, key=lambda queue: (queue.out, queue.heads))
        gates = nlargest(limit, (line.gate for line in schedule.window), key=lambda gate: gate.out)
        return InMemory(
            [(queue.key, queue.state, queue.out) for queue in queues],
            [(gate.key, max(gate.opens_s() - now_s, 0.0), gate.out) for gate in gates],
        )

    def busiest(self, limit: int) -> list[tuple[GateKey, str]]:
        """Return the gates in memory with most leases, then those that have URLs, and in words what each waits for.

        It never waits. Costs 1 µs for each gate in memory.
        """
        _check_numbers(limit)
        now_s = self._clock()
        lines = nlargest(limit, self._parts.schedule.window, key=lambda line: (line.gate.out, line.has_work))
        return [(line.gate.key, _busy_words(line.gate, now_s)) for line in lines if line.gate.out or line.has_work]

    def queues(
        self, state: QueueState | None = None, after: int | None = None, limit: int = PAGE
    ) -> Steps[list[QueueView]]:
        """Queues that have rows or are held back, of one state if given, by id after one. Costs their number at worst."""
        if not isinstance(state, QueueState | None):
            raise TypeError(f"a queue's state is a QueueState, such as QueueState.PAUSED; not {state!r}")
        _check_numbers(limit, 0 if after is None else after)
        yield from self.flush()
        views: list[QueueView] = []
        standing = None if state is None else _BY_STATE.get(state)
        while len(views) < limit and (page := (yield from asked(self._store.queues, standing, after, PAGE))):
            after = page[-1].row.id
            for facts in page:
                if state is None or state is self._state(facts):
                    view = yield from self._queue(facts)
                    views.append(view)
        return views[:limit]

    def longest(self, limit: int = 20) -> Steps[list[QueueView]]:
        """The queues with most URLs, longest first. Costs the store a look at every lane."""
        _check_numbers(limit)
        yield from self.flush()
        views: list[QueueView] = []
        for facts in (yield from asked(self._store.queues, None, None, limit, True)):
            view = yield from self._queue(facts)
            views.append(view)
        return views

    def view(self, queue: QueueKey) -> Steps[QueueView]:
        """One queue, with the first of its gates. Raises: UnknownQueue."""
        return (yield from self._queue((yield from self.facts(queue))))

    def gate(self, gate: GateKey) -> Steps[GateView]:
        """One gate: live if it is in memory, else as it was written last; a new one for a host that is not known."""
        yield from self.flush()
        return self._gate_view((yield from self._gate(gate)))

    def knows_gate(self, gate: GateKey) -> Steps[bool]:
        """Whether this gate has ever had a URL, or was changed."""
        yield from self.flush()
        return (yield from asked(self._store.gate, name_id(gate))) is not None

    def explain(self, subject: str, key: bytes | None = None) -> Steps[Explanation]:
        """Why a URL (it has "://") or a queue is where it is, and when it can go on. Raises: UnknownQueue.

        `key` is the dedup key of the URL; the URL in UTF-8 if None.
        """
        if not isinstance(subject, str):
            raise TypeError(f"a URL or a queue's key is text; not {subject!r}")
        if "://" not in subject:
            return explain_queue((yield from self.view(QueueKey(subject))), self._clock())
        self._parts.store_link.drain()
        is_behind = self._parts.store_link.unacknowledged.is_full
        yield from self.flush()
        place = self._parts.admission.assignment.of_url(subject)
        if place is None:
            nowhere = UrlFacts(subject, None, seen=False, refused="it has no host; an absolute URL is needed")
            return explain_url(nowhere, self._clock())
        key = subject.encode("utf-8", "surrogatepass") if key is None else key
        lane = self._parts.admission.assignment.lane_of(subject)
        record = yield from asked(self._store.look_up, key, lane)
        is_seen = record is not None or not (self._seen.blocks or self._seen.unseen([key])[0])
        facts = yield from self._url_facts(subject, record, place, is_seen=is_seen)
        return explain_url(facts._replace(store_behind=is_behind), self._clock())

    def records(self, urls: Sequence[tuple[str, bytes]]) -> Steps[list[UrlRecord | None]]:
        """The store's record of each URL with its dedup key, in order; None: the store does not have it.

        It sees all that was scheduled before. Cost: a few seeks each.
        """
        yield from self.flush()
        records: list[UrlRecord | None] = []
        for url, key in urls:
            lane = self._parts.admission.assignment.lane_of(url)
            record = yield from asked(self._store.look_up, key, lane)
            records.append(record)
        return records

    def explain_all(self, url: str, words: Callable[[int], str] = str) -> Steps[list[Explanation]]:
        """Explain each row of a URL, whatever its dedup key: a host program's requests have keys of their own.

        `words` describes a status. Costs the store a look at every row. Empty without such a row.
        """
        yield from self.flush()
        place = self._parts.admission.assignment.of_url(url)
        if place is None:
            return []
        found: list[Explanation] = []
        for record in (yield from asked(self._store.of_url, url, OF_URL)):
            facts = yield from self._url_facts(url, record, place, is_seen=True)
            found.append(
                explain_url(facts._replace(status_words=words(record.status) if record.status else ""), self._clock())
            )
        return found

    def show_elsewhere(self, leases: Sequence[LeaseElsewhere], rests: Mapping[int, float]) -> None:
        """View a copy as the process does that owns the state: it has these leases, and these gates rest until then.

        For a Frontier that is only viewed.
        """
        self._parts.leases.show_elsewhere(leases)
        self._elsewhere = Counter(lease.queue for lease in leases)
        out = Counter(lease.gate for lease in leases)
        self._parts.schedule.window.maker.on_new_gate(lambda gate: gate.stand_as(out[gate.id], rests.get(gate.id, 0.0)))

    def facts(self, queue: QueueKey) -> Steps[QueueFacts]:
        """The store's facts of a queue. Raises: UnknownQueue."""
        yield from self.flush()
        facts = yield from asked(self._store.queue, name_id(queue))
        if facts is None:
            raise UnknownQueue(f"there is no queue {queue}; `frontier ls` shows those that hold URLs")
        return facts

    def flush(self) -> Steps[None]:
        """Make all that was reported durable."""
        yield from flushed(self._parts, self._store)

    def _url_facts(
        self, url: str, record: UrlRecord | None, place: tuple[QueueKey, GateKey], *, is_seen: bool
    ) -> Steps[UrlFacts]:
        """All facts of a URL; `place` is where it would go without a row."""
        queue_key, gate_key = place
        facts = None if record is None or not record.queue else (yield from asked(self._store.queue, record.queue))
        leased_since_s = None if record is None else self._parts.leases.since_s(record.ordinal)
        return UrlFacts(
            url=url,
            record=record,
            seen=is_seen,
            queue=QueueView(queue_key, QueueState.EMPTY) if facts is None else (yield from self._queue(facts)),
            gate=self._gate_view((yield from self._gate(gate_key))),
            leased_since_s=leased_since_s,
            ahead=None if record is None or leased_since_s is not None else (yield from self._ahead(record)),
        )

    def _queue(self, facts: QueueFacts) -> Steps[QueueView]:
        """A queue of the store, with its facts in memory."""
        row = facts.row
        lanes = yield from asked(self._store.lanes, row.id, None, GATES)
        gates: list[GateView] = []
        for lane in lanes:
            gate = yield from self._gate_of(lane)
            gates += [] if gate is None else [gate]
        active = self._parts.schedule.index.get(row.id)
        out = self._elsewhere[row.id] if active is None else active.out
        state = self._state(facts)
        due_s = (yield from self._first_due(row.id)) if state is QueueState.SNOOZED else None
        return QueueView(
            key=row.key,
            state=state,
            urls=facts.count,
            waiting=facts.waiting,
            out=out,
            precedence=min((precedence_of(lane.turn) for lane in lanes), default=row.precedence),
            spent=row.spent,
            budget=self._parts.rules.total_budget(row.key, row.budget),
            due_s=due_s,
            lanes=facts.lanes,
            gates=gates,
            floor=self._parts.rules.floor,
        )

    def _tally(self, queues: Mapping[str, int]) -> Steps[Mapping[str, int]]:
        """Correct the numbers of queues by state: a queue that has leases elsewhere counts as in flight."""
        counted = Counter(queues)
        for queue in self._elsewhere:
            facts = yield from asked(self._store.queue, queue)
            if facts is not None:
                counted[self._state_here(facts).value] -= 1
                counted[self._state(facts).value] += 1
        return dict(counted)

    def _state_here(self, facts: QueueFacts) -> QueueState:
        active = self._parts.schedule.index.get(facts.row.id)
        return _state(facts) if active is None else active.state

    def _state(self, facts: QueueFacts) -> QueueState:
        state = self._state_here(facts)
        out = self._elsewhere[facts.row.id]
        is_all = out >= min(self._parts.rules.per_queue, facts.count - facts.waiting)
        return QueueState.IN_FLIGHT if out and is_all and state in _SERVED else state

    def _gate(self, key: GateKey) -> Steps[Gate]:
        window = self._parts.schedule.window
        listed = window.groups.get(name_id(key)) or window.get(name_id(key))
        if listed is not None and not listed.is_loading:
            return listed.gate
        gate = window.maker.host_gate(key)
        row = yield from asked(self._store.gate, gate.id)
        if row is not None:
            gate.restore(row, self._clock(), clean=True)
        group = window.maker.group_of(key)
        gate.join(None if group is None else (yield from self._gate(group)))
        return gate

    def _first_due(self, queue: int) -> Steps[float | None]:
        """When the first retry of a queue is due, if all its rows wait; None if there are too many to look at."""
        due_s: list[float] = []
        after: Place = (queue, -(1 << 63), -1, 0)
        while len(due_s) < AHEAD:
            page = yield from asked(self._store.queued, after, PAGE)
            due_s += [head.row.due_s for head in page if head.row.queue == queue and head.row.due_s is not None]
            if len(page) < PAGE or page[-1].row.queue != queue:
                return min(due_s, default=None)
            after = page[-1].row[:4]
        return None

    def _gate_of(self, lane: LaneRow) -> Steps[GateView | None]:
        line = self._parts.schedule.window.get(lane.gate)
        row = None if line is not None else (yield from asked(self._store.gate, lane.gate))
        key = line.gate.key if line is not None else None if row is None else row.key
        return None if key is None else self._gate_view((yield from self._gate(key)))

    def _gate_view(self, gate: Gate) -> GateView:
        now_s = self._clock()
        group = None if gate.group is None else self._gate_view(gate.group)
        return GateView(gate.key, gate.opens_s(), rate_per_s(gate), why_closed(gate, now_s), group)

    def _ahead(self, record: UrlRecord) -> Steps[int | None]:
        """How many rows of its lane are before a queued URL; None if it is leased, ended or far behind."""
        if not record.queue:
            return None
        lane: LaneId = (record.queue, record.gate)
        count, after = 0, (*lane, -1, 0)
        while count < AHEAD and (page := (yield from asked(self._store.queued, after, PAGE))):
            for head in page:
                if head.row[:2] != lane:
                    return None
                if head.row.ordinal == record.ordinal:
                    return count
                count += head.row.due_s is None
            after = page[-1].row[:4]
        return None


def _busy_words(gate: Gate, now_s: float) -> str:
    if gate.out:
        return f"{counted(gate.out, 'fetch', 'fetches')} under way"
    return why_closed(gate, now_s) or "next"


def _check_numbers(*numbers: int) -> None:
    """Raises: TypeError. Anything else would make the store fail."""
    for number in numbers:
        if not isinstance(number, int) or not -_MAX_INTEGER <= number < _MAX_INTEGER:
            raise TypeError(f"a limit, or a queue's id, is a whole number of 64 bits; not {number!r}")


def _state(facts: QueueFacts) -> QueueState:
    """The state of a queue that has nothing in memory."""
    held = _STANDINGS.get(Standing(facts.row.standing))
    if held is not None:
        return held
    if facts.count > facts.waiting:
        return QueueState.INACTIVE
    return QueueState.SNOOZED if facts.waiting else QueueState.EMPTY
