"""What can be told of one URL, one queue, one gate: facts from memory where it has them, from the store where not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.leases import LeaseElsewhere
from anabranch.frontier.models import GateKey, QueueKey, UrlRecord
from anabranch.frontier.operating.explain import GateView, QueueView, UrlFacts
from anabranch.frontier.operating.gatewords import rate_per_s, why_closed
from anabranch.frontier.operating.steps import Steps, asked
from anabranch.frontier.parts import Parts
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.base import FrontierStore, QueueFacts
from anabranch.frontier.stores.messages import LaneId, LaneRow, Place, Standing
from anabranch.frontier.turns import precedence_of

#: Gates of a queue that a view looks at.
GATES = 20
#: URLs that are counted before one, and that are looked at for the first retry of a queue.
AHEAD = 10_000
#: Queues, or rows, that are read at a time.
PAGE = 1000
#: Rows of one URL that are told.
OF_URL = 100

_STANDINGS = {Standing.PAUSED: QueueState.PAUSED, Standing.RETIRED: QueueState.RETIRED}
#: States of a queue of whose URLs none is out that are served.
_SERVED = frozenset({QueueState.INACTIVE, QueueState.LOADING, QueueState.READY})
_BY_STATE = {QueueState.PAUSED: Standing.PAUSED, QueueState.RETIRED: Standing.RETIRED}


class Views:
    """Answers questions about single things, in steps; the caller has flushed."""

    def __init__(self, store: FrontierStore, seen: SeenFilter, parts: Parts, clock: Callable[[], float]) -> None:
        self._store = store
        self._seen = seen
        self._parts = parts
        self._clock = clock
        #: URLs by queue that the process has out of whose state this is a copy.
        self._elsewhere: Counter[int] = Counter()

    def beside(self, leases: Iterable[LeaseElsewhere]) -> None:
        """From now on these are leases that are out, though not from here."""
        self._elsewhere = Counter(lease.queue for lease in leases)

    def url(self, url: str, given_key: bytes | None = None) -> Steps[UrlFacts]:
        """All that is known of a URL; `given_key` is what dedup knows it by, if that is not the URL."""
        place = self._parts.intake.assign(url)
        if place is None:
            return UrlFacts(url, None, seen=False, refused="it has no host; an absolute URL is needed")
        queue_key, gate_key = place
        key = url.encode("utf-8", "surrogatepass") if given_key is None else given_key
        record = yield from asked(self._store.look_up, key, (name_id(queue_key), name_id(gate_key)))
        is_seen = record is not None or not (self._seen.blocks or self._seen.unseen([key])[0])
        return (yield from self._standing(url, record, (queue_key, gate_key), is_seen=is_seen))

    def urls(self, url: str) -> Steps[list[UrlFacts]]:
        """All that is known of each row of this URL, whatever dedup knows it by; of none if there is none."""
        place = self._parts.intake.assign(url)
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
        """Where a row stands; `place` is where it would go if there is none."""
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
        gate.group = None if group is None else (yield from self._gate(group))
        return gate

    def _first_due(self, queue: int) -> Steps[float | None]:
        """When the first retry of a queue is due all of whose rows wait; None if there are too many to look at."""
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
        """How many rows of its lane stand before a queued URL; None if it is leased, ended or far behind."""
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
