"""The parts of a Frontier, the decisions that concern several of them, and work in steps.

A function in steps is a generator that yields its questions (calls that may block) and receives their answers. `run` answers
them in the caller's thread; `AsyncFrontier.look` in another one, while the crawl continues. State that was read before a
question may be outdated after it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from anabranch.frontier.admission import Admission
from anabranch.frontier.completion import Completion, Leases
from anabranch.frontier.policies.precedence import in_front
from anabranch.frontier.records import Candidate, Row, UrlState, WaitsFor, Wake
from anabranch.frontier.scheduling.heaps import Retries
from anabranch.frontier.scheduling.queues import QueueRules
from anabranch.frontier.scheduling.readylist import Outbox
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.storelink import StoreLink
from anabranch.frontier.stores.contract import FrontierStore, Moved

T = TypeVar("T")

# The flags as bits, and every combination of them.
_TIME: Final = WaitsFor.TIME.value
_STORE: Final = WaitsFor.STORE.value
_URLS: Final = WaitsFor.URLS.value
_FINISH: Final = WaitsFor.FINISH.value
_OPERATOR: Final = WaitsFor.OPERATOR.value
_SERVICE: Final = WaitsFor.SERVICE.value
_WAITS: Final = tuple(WaitsFor(bits) for bits in range(2 * _SERVICE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one Frontier. Every method costs O(1)."""

    outbox: Outbox
    rules: QueueRules
    schedule: Schedule
    retries: Retries
    leases: Leases
    admission: Admission
    completion: Completion
    store_link: StoreLink

    @property
    def pending(self) -> int:
        """URLs queued and not leased, without those of retired queues."""
        store_link = self.store_link
        return store_link.queued - store_link.retired - len(self.leases) + self.schedule.placement.retired_out

    @property
    def is_done(self) -> bool:
        """Nothing is leased, and nothing is queued that may be leased."""
        if self.leases or self.pending > 0:
            return False
        # The number of rows of retired queues is known when the store has all.
        if self.store_link.queued and not self.store_link.unacknowledged.is_empty:
            return False
        return self.store_link.is_job_done

    def wake_up(self, now_s: float) -> None:
        """Do what is due by the clock: wake retries and read the next ones, expire leases."""
        retries = self.retries
        if self.completion.waiting:
            due_s = retries.next_time()
            if due_s is not None and due_s <= now_s:
                self.completion.wake_retries(now_s)
            if retries.wants_more:
                self.outbox.ask_retries(retries.ask())
        if self.leases.may_expire:
            for held in self.leases.take_expired(now_s):
                self.completion.expire(held, now_s)

    def wake(self, now_s: float) -> Wake:
        """When to ask for a lease, and the events that it waits for."""
        if self.store_link.unacknowledged.is_full:
            return Wake(None, WaitsFor.STORE)
        at_s = self.schedule.next_time(now_s)
        if self.completion.waiting:
            at_s = _earlier(at_s, self.retries.next_time())
        if self.leases.may_expire:
            at_s = _earlier(at_s, self.leases.next_expiry())
        bits = _STORE if self.is_reading else 0
        if at_s is None and not bits and self.may_read_on:
            at_s = now_s  # the next lease asks for them
        if at_s is not None:
            bits |= _TIME
        if len(self.leases):
            bits |= _FINISH
        return Wake(at_s, _WAITS[bits | self._lacks()])

    def _lacks(self) -> int:
        """Return, as bits of `WaitsFor`, why no queued URL can be leased however long one waits; 0 if one can."""
        pending = self.pending
        if pending <= 0:
            return _URLS
        if pending <= self.store_link.paused:
            return _OPERATOR
        return _SERVICE if self.schedule.holds.are_any and self.schedule.holds.have_any else 0

    @property
    def is_reading(self) -> bool:
        """The store was asked for rows that may be leased."""
        return self.schedule.placement.asked > 0 or self.store_link.asked > 0

    @property
    def may_read_on(self) -> bool:
        """The store may have gates that could serve, and there is room for them."""
        window = self.schedule.window
        return window.stored.more and not window.is_full

    def can_lease(self, now_s: float) -> bool:
        """A gate with something to serve is open."""
        self.schedule.placement.bring_back()
        at_s = self.schedule.window.heap.soonest(now_s)
        return at_s is not None and at_s <= now_s


def _earlier(one_s: float | None, other_s: float | None) -> float | None:
    if one_s is None or other_s is None:
        return one_s if other_s is None else other_s
    return min(one_s, other_s)


#: Yields questions, receives answers, and returns a result.
Steps = Generator[Callable[[], Any], Any, T]


def asked(question: Callable[..., T], *arguments: Any) -> Steps[T]:
    """One step: a call that may block, and that any thread may make."""
    answer: T = yield lambda: question(*arguments)
    return answer


def run(steps: Steps[T]) -> T:
    """Run all steps in this thread (blocks). Raises: what the steps or their questions raise."""
    try:
        question = next(steps)
        while True:
            try:
                answer = question()
            except Exception as error:  # noqa: BLE001  the steps may handle it
                question = steps.throw(error)
            else:
                question = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _no_question() -> None:
    """Lets an event loop run between two steps."""


def flushed(parts: Parts, store: FrontierStore) -> Steps[None]:
    """Return when all changes so far are durable and marked, and the answers are taken. Raises: StoreUnavailable."""
    parts.store_link.drain()
    parts.schedule.index.save_all()
    while True:
        parts.store_link.send()
        yield from asked(store.flush)
        parts.store_link.drain()
        if parts.outbox.batch.is_empty:  # else answers have led to more, such as the change of a gate that was read
            break
    for _ in range(parts.admission.marking.slices):  # a step for each slice, so that an event loop can run in between
        yield from asked(_no_question)
        parts.store_link.drain()


class Advancing:
    """Moves queued URLs to the front of their lanes, in two calls: `rows(...)()` in any thread, then `advance`."""

    def __init__(self, store: FrontierStore, parts: Parts) -> None:
        self._store = store
        self._parts = parts

    def rows(self, candidates: Sequence[Candidate]) -> Callable[[], list[Row]]:
        """A question (blocks; any thread): the rows of the candidates that are queued. Errors: StoreUnavailable.

        Costs a few seeks each; a key that was queued for another host's URL costs a scan of all that is queued.
        """
        places = [(one, self._parts.admission.assignment.lane_of(one.url)) for one in candidates]
        lanes = [(one, lane) for one, lane in places if lane is not None]
        return lambda: [row for one, lane in lanes if (row := self._queued(one, lane)) is not None]

    def advance(self, rows: Sequence[Row]) -> None:
        """Serve these rows before the others of their lanes, in the order of acceptance; leased ones stay as they are.

        None of them may have been leased and ended since it was found: the caller must leave those out.
        """
        parts = self._parts
        parts.store_link.drain()
        leased = parts.leases.ordinals()
        for row in {row.ordinal: row for row in rows}.values():
            front = row._replace(precedence=in_front(row.precedence))
            if row.ordinal in leased or front.precedence >= row.precedence:
                continue
            parts.outbox.batch.moved.append(Moved(row, front))
            line = parts.schedule.window.get(row.gate)
            lane = None if line is None else line.lanes.get(row.queue)
            if lane is not None:
                parts.schedule.row_stored(lane, front)
        parts.store_link.send()

    def _queued(self, candidate: Candidate, lane: tuple[int, int]) -> Row | None:
        found = self._store.look_up(candidate.dedup_key(), lane)
        if found is None or found.state is not UrlState.QUEUED:
            return None
        return Row(
            queue=found.queue,
            gate=found.gate,
            precedence=found.precedence,
            ordinal=found.ordinal,
            url=found.url,
            key=candidate.key,
            hops=found.hops or "",
            via=found.via,
            attempts=found.attempts,
            due_s=None,
            payload=found.payload,
        )
