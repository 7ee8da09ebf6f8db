"""Read-only views of the crawl: queues, gates, URLs and statistics, from memory where possible, else from the store.

Each view is a generator of steps (`frontier.parts`), so a running crawl continues while the store answers. A view combines
facts from different moments; each fact was true at one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

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

#: Gates of a queue that a view looks at.
GATES = 20
#: URLs that are counted before one, and that are looked at for the first retry of a queue.
AHEAD = 10_000
#: Queues, or rows, that are read at a time.
PAGE = 1000
#: Most rows shown of one URL.
OF_URL = 100

_STANDINGS = {Standing.PAUSED: QueueState.PAUSED, Standing.RETIRED: QueueState.RETIRED}
#: States of a queue without leased URLs that is served.
_SERVED = frozenset({QueueState.INACTIVE, QueueState.LOADING, QueueState.READY})
_BY_STATE = {QueueState.PAUSED: Standing.PAUSED, QueueState.RETIRED: Standing.RETIRED}
#: What a store's whole numbers stay below.
_MAX_INTEGER = 1 << 63


class Looking:
    """Looks that change nothing; what was said is written first. Errors: UnknownQueue; StoreUnavailable as everywhere."""

    def __init__(self, store: FrontierStore, seen: SeenFilter, parts: Parts, clock: Callable[[], float]) -> None:
        self._store = store
        self._seen = seen
        self._parts = parts
        self._views = Views(store, seen, parts, clock)
        self._clock = clock

    def statistics(self) -> Steps[FrontierStatistics]:
        """The counts and more, with the reason if nothing runs. Costs a look at every lane, and at every gate in memory."""
        self._parts.store_link.drain()
        behind = self._parts.store_link.unacknowledged.behind
        yield from self.flush()
        tally = yield from asked(self._store.tally)
        statistics = examine(self._parts, tally, behind, self._clock())
        queues = yield from self._views.tally(statistics.queues)
        return statistics._replace(queues=queues, seen=self._seen.facts())

    def ready(self) -> ReadyQueues:
        """The queues that may be served now, by what is in memory; never waits. Costs a look at the lanes of open gates."""
        return ready(self._parts, self._clock())

    def queues(
        self, state: QueueState | None = None, after: int | None = None, limit: int = PAGE
    ) -> Steps[list[QueueView]]:
        """Queues that have rows or are held back, of one state if given, by id behind one. Costs their number at worst."""
        if not isinstance(state, QueueState | None):
            raise TypeError(f"a queue's state is a QueueState, such as QueueState.PAUSED; not {state!r}")
        _check_numbers(limit, 0 if after is None else after)
        yield from self.flush()
        return (yield from self._views.queues(state, after, limit))

    def longest(self, limit: int = 20) -> Steps[list[QueueView]]:
        """The queues with most URLs, longest first. Costs the store a look at every lane."""
        _check_numbers(limit)
        yield from self.flush()
        views: list[QueueView] = []
        for facts in (yield from asked(self._store.queues, None, None, limit, True)):
            view = yield from self._views.queue(facts)
            views.append(view)
        return views

    def view(self, queue: QueueKey) -> Steps[QueueView]:
        """One queue, with the first of its gates. Raises: UnknownQueue."""
        return (yield from self._views.queue((yield from self.facts(queue))))

    def gate(self, gate: GateKey) -> Steps[GateView]:
        """One gate: live if it is in memory, else as last written; a new one for an unknown host."""
        yield from self.flush()
        return (yield from self._views.gate(gate))

    def explain(self, subject: str, key: bytes | None = None) -> Steps[Explanation]:
        """Why a URL (it has "://") or a queue is where it is, and when it can go on. Raises: UnknownQueue.

        `key` is what dedup knows the URL by; the URL in UTF-8 if None.
        """
        if not isinstance(subject, str):
            raise TypeError(f"a URL or a queue's key is text; not {subject!r}")
        if "://" not in subject:
            return explain_queue((yield from self.view(QueueKey(subject))), self._clock())
        self._parts.store_link.drain()
        is_behind = self._parts.store_link.unacknowledged.is_full
        yield from self.flush()
        facts = yield from self._views.url(subject, key)
        return explain_url(facts._replace(store_behind=is_behind), self._clock())

    def explain_all(self, url: str, words: Callable[[int], str] = str) -> Steps[list[Explanation]]:
        """The same of each row of a URL, whatever dedup knows it by: a host's requests have keys of their own.

        `words` describes a status. Costs the store a scan. Empty if there is no such row.
        """
        yield from self.flush()
        found: list[Explanation] = []
        for facts in (yield from self._views.urls(url)):
            status = facts.record.status if facts.record is not None else 0
            found.append(explain_url(facts._replace(status_words=words(status) if status else ""), self._clock()))
        return found

    def beside(self, leases: Sequence[LeaseElsewhere], rests: Mapping[int, float]) -> None:
        """Add the live state of the process that this is a copy of: its leases, and until when its gates rest.

        For a Frontier that is only looked at.
        """
        self._parts.leases.show_elsewhere(leases)
        self._views.beside(leases)
        out = Counter(lease.gate for lease in leases)

        self._parts.schedule.window.maker.on_new_gate(lambda gate: gate.stand_as(out[gate.id], rests.get(gate.id, 0.0)))

    def facts(self, queue: QueueKey) -> Steps[QueueFacts]:
        """What the store has of a queue. Raises: UnknownQueue."""
        yield from self.flush()
        facts = yield from asked(self._store.queue, name_id(queue))
        if facts is None:
            raise UnknownQueue(f"there is no queue {queue}; `frontier ls` shows those that hold URLs")
        return facts

    def flush(self) -> Steps[None]:
        """All that was said is durable."""
        yield from flushed(self._parts, self._store)


def _check_numbers(*numbers: int) -> None:
    """Raises: TypeError. A store that is asked for anything else fails, and all with it."""
    for number in numbers:
        if not isinstance(number, int) or not -_MAX_INTEGER <= number < _MAX_INTEGER:
            raise TypeError(f"a limit, or a queue's id, is a whole number of 64 bits; not {number!r}")


class Views:
    """Answers questions about single things, in steps; the caller has flushed."""

    def __init__(self, store: FrontierStore, seen: SeenFilter, parts: Parts, clock: Callable[[], float]) -> None:
        self._store = store
        self._seen = seen
        self._parts = parts
        self._clock = clock
        #: Leased URLs by queue, of the process that this state is a copy of.
        self._elsewhere: Counter[int] = Counter()

    def beside(self, leases: Iterable[LeaseElsewhere]) -> None:
        """From now on these are leases that are out, though not from here."""
        self._elsewhere = Counter(lease.queue for lease in leases)

    def url(self, url: str, given_key: bytes | None = None) -> Steps[UrlFacts]:
        """All that is known of a URL; `given_key` is what dedup knows it by, if that is not the URL."""
        place = self._parts.admission.assign(url)
        if place is None:
            return UrlFacts(url, None, seen=False, refused="it has no host; an absolute URL is needed")
        queue_key, gate_key = place
        key = url.encode("utf-8", "surrogatepass") if given_key is None else given_key
        record = yield from asked(self._store.look_up, key, (name_id(queue_key), name_id(gate_key)))
        is_seen = record is not None or not (self._seen.blocks or self._seen.unseen([key])[0])
        return (yield from self._standing(url, record, (queue_key, gate_key), is_seen=is_seen))

    def urls(self, url: str) -> Steps[list[UrlFacts]]:
        """All that is known of each row of this URL, under any dedup key; of an unscheduled URL if there is no row."""
        place = self._parts.admission.assign(url)
        if place is None:
            return []
        found: list[UrlFacts] = []
        for record in (yield from asked(self._store.of_url, url, OF_URL)):
            facts = yield from self._standing(url, record, place, is_seen=True)
            found.append(facts)
        return found

    def _standing(
        self, url: str, record: UrlRecord | None, place: tuple[QueueKey, GateKey], *, is_seen: bool
    ) -> Steps[UrlFacts]:
        """The position of a row; `place` is the position that it would get if there is none."""
        queue_key, gate_key = place
        facts = None if record is None or not record.queue else (yield from asked(self._store.queue, record.queue))
        leased_since_s = None if record is None else self._parts.leases.since_s(record.ordinal)
        return UrlFacts(
            url=url,
            record=record,
            seen=is_seen,
            queue=QueueView(queue_key, QueueState.EMPTY) if facts is None else (yield from self.queue(facts)),
            gate=(yield from self.gate(gate_key)),
            leased_since_s=leased_since_s,
            ahead=None if record is None or leased_since_s is not None else (yield from self._ahead(record)),
        )

    def queue(self, facts: QueueFacts) -> Steps[QueueView]:
        """A queue of the store, with what memory knows of it."""
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

    def queues(self, state: QueueState | None, after: int | None, limit: int) -> Steps[list[QueueView]]:
        """Queues by id, of one state if given."""
        views: list[QueueView] = []
        standing = None if state is None else _BY_STATE.get(state)
        while len(views) < limit and (page := (yield from asked(self._store.queues, standing, after, PAGE))):
            after = page[-1].row.id
            for facts in page:
                if state is None or state is self._state(facts):
                    view = yield from self.queue(facts)
                    views.append(view)
        return views[:limit]

    def tally(self, queues: Mapping[str, int]) -> Steps[Mapping[str, int]]:
        """The same numbers of queues by state, with those in flight that have their leases out elsewhere."""
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

    def gate(self, key: GateKey) -> Steps[GateView]:
        """A host's gate with its group's, or a group's: live if it is in memory, as it was written last if not."""
        return self._view((yield from self._gate(key)))

    def _gate(self, key: GateKey) -> Steps[Gate]:
        window = self._parts.schedule.window
        listed = window.groups.get(name_id(key)) or window.get(name_id(key))
        if listed is not None and not listed.is_loading:
            return listed.gate
        gate = window.maker.host_gate(key)
        row = yield from asked(self._store.gate, gate.id)
        if row is not None:
            gate.restore(row, self._clock(), clean=True)
        group = None if window.maker.group_of is None else window.maker.group_of(key)
        gate.join(None if group is None else (yield from self._gate(group)))
        return gate

    def _first_due(self, queue: int) -> Steps[float | None]:
        """When the first retry is due of a queue with waiting rows only; None if there are too many to look at."""
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
        if line is not None:
            return (yield from self.gate(line.gate.key))
        row = yield from asked(self._store.gate, lane.gate)
        return None if row is None else (yield from self.gate(row.key))

    def _view(self, gate: Gate) -> GateView:
        now_s = self._clock()
        group = None if gate.group is None else self._view(gate.group)
        return GateView(gate.key, gate.opens_s(), rate_per_s(gate), why_closed(gate, now_s), group)

    def _ahead(self, record: UrlRecord) -> Steps[int | None]:
        """Rows of its lane before a queued URL; None if it is leased, ended or far behind."""
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


def _state(facts: QueueFacts) -> QueueState:
    """The state of a queue that has nothing in memory."""
    held = _STANDINGS.get(Standing(facts.row.standing))
    if held is not None:
        return held
    if facts.count > facts.waiting:
        return QueueState.INACTIVE
    return QueueState.SNOOZED if facts.waiting else QueueState.EMPTY
