"""The Frontier: which URL may be fetched next, and when.

A synchronous core that waits for no store and no time: it reads one injected clock, keeps decisions in memory and says
every change to its store as one batch per call. What the store answers is drained at the start of each call; of what became
durable each marks a slice in the filter, which writes to its buffers and mapped files (and splits a full leaf) there and
then. All other I/O is in the methods whose docstring says that they block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from anabranch.frontier.advancing import Advancing
from anabranch.frontier.checkpoints import Checkpoints
from anabranch.frontier.division.exchange import exchange_of
from anabranch.frontier.endings import check_outcome
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.leases import Board
from anabranch.frontier.models import BUSY, Candidate, GateKey, Lease, Outcome, UrlRecord, Verdict, Wake
from anabranch.frontier.operating.audit import audit
from anabranch.frontier.operating.dump import dump_lines
from anabranch.frontier.operating.load import Entry, LoadReport, load
from anabranch.frontier.operating.loading import Loading
from anabranch.frontier.operating.operations import Operations
from anabranch.frontier.operating.statistics import FrontierCounts, FrontierStatistics, count
from anabranch.frontier.operating.steps import run
from anabranch.frontier.parts import Parts
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.base import FrontierStore

#: More fetches at once than any host is sent.
_MOST_SLOTS = 1_000_000


class Frontier:
    """Work queues behind gates, over a store and a filter. Not thread-safe; many may live in one process.

    schedule, unseen, lease, wake, finish, release, renew, block, unblock, set_delay, set_slots and the counts never wait for
    the store; `operations` has what an operator does, which may. Errors: after the store or the filter failed, every call but
    `close` raises what it failed with (`StoreUnavailable`).
    """

    def __init__(
        self,
        *,
        store: FrontierStore,
        seen: SeenFilter,
        parts: Parts,
        checkpoints: Checkpoints,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._seen = seen
        self._parts = parts
        self._books = parts.books
        self._schedule = parts.schedule
        self._leases = parts.leases
        self._endings = parts.endings
        self._marking = parts.intake.marking
        self._rules = parts.rules
        self._checkpoints = checkpoints
        self._clock = clock
        self._is_closed = False
        self.operations = Operations(store, seen, parts, clock)  #: what an operator asks and orders
        self.loading = Loading(store, parts, clock)  #: what a dump or a journal is loaded into
        self.advancing = Advancing(store, parts)  #: what is queued, to the front of its queue
        self.exchange = exchange_of(store, parts)  #: with the other shares of the crawl; None: this is all of it

    def __enter__(self) -> Frontier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Frontier {self.pending} pending, {self.in_flight} in flight>"

    # URLs in

    def schedule(self, candidates: Sequence[Candidate], found_on: Lease | None = None) -> list[Verdict]:
        """Enqueue what is new; one verdict per candidate, in order. BUSY for all while the store is behind.

        `found_on` is the page of very many links, of which some are sent before its end.
        """
        self._drain()
        if self._books.backlog.is_full:
            return [BUSY] * len(candidates)
        if found_on is None:
            verdicts = self._books.accept(candidates, 0)
        else:
            self._leases.remember(found_on)
            verdicts = self._books.accept(candidates, found_on.ordinal, found_on.url)
        self._books.say()
        return verdicts

    def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """What `schedule` would answer now; changes nothing. LATER of all with a filter that blocks."""
        self._drain()
        return self._parts.intake.judge(candidates)[0]

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each dedup key, whether `schedule` may call its URL new; changes nothing. With a filter that blocks: True."""
        self._drain()
        return self._parts.intake.unseen(keys)

    # URLs out

    def lease(self) -> Lease | None:
        """The next URL that may be fetched now, or None; `wake()` says when to ask again."""
        self._drain()
        if self._books.backlog.is_full:
            self._store.hurry()
            return None
        while True:
            now_s = self._clock()
            if self._endings.waiting or self._leases.may_expire:
                self._parts.wake_up(now_s)
            served = self._schedule.lease(now_s)
            if served is not None:
                lane, head = served
                if self._parts.outbox.has_questions():
                    self._books.ask()
                return self._leases.hand_out(lane, head, now_s)
            self._books.say()  # such as that a queue was over its budget, with which the crawl may end
            if not self._drain():
                self._parts.hurry(self._store)
                return None

    def wake(self) -> Wake:
        """When `lease()` may have an answer, and what it waits for."""
        self._drain()
        return self._parts.wake(self._clock())

    def finish(self, lease: Lease, outcome: Outcome, discovered: Sequence[Candidate] = ()) -> list[Verdict]:
        """Give a lease back with its outcome and the page's outlinks, as one transaction.

        Never refused for being busy. Raises, before any change: LeaseLost; PolicyError for times that are no numbers, an
        `after_s` without end, a status that no store can hold, and of a user's own functions.
        """
        check_outcome(lease, outcome)
        self._drain()
        held = self._leases.find(lease)
        charge = self._rules.charge(held[1].queue, held[2], outcome[0])
        verdicts = self._books.accept(discovered, lease.ordinal, lease.url) if discovered else []
        self._leases.drop(held)
        self._endings.end(held, outcome, charge, self._clock())
        self._books.say(1)
        return verdicts

    def release(self, lease: Lease) -> None:
        """Give a lease back unprocessed: the URL is first again and the slot does not rest. Raises: LeaseLost."""
        held = self._leases.take_back(lease)
        self._endings.release(held, self._clock())
        self._drain()
        self._books.say()

    def renew(self, lease: Lease) -> Lease:
        """Keep a lease for as long again; the answer takes its place. Raises: LeaseLost."""
        return self._leases.renew(lease, self._clock())

    # Gates

    def set_delay(self, gate: GateKey, delay_s: float) -> None:
        """Start fetches of this gate at least so far apart (a robots Crawl-delay); 0 takes it back. Raises: PolicyError."""
        if not math.isfinite(delay_s):
            raise PolicyError(f"a delay of {delay_s} s for {gate}: give a finite number")
        self._change_gate(gate, lambda changed: changed.set_spacing(max(delay_s, 0.0)))

    def set_slots(self, gate: GateKey, slots: int | None) -> None:
        """Let so many fetches of this gate run at once; None = as many as the order says. Raises: PolicyError."""
        if slots is not None and not (type(slots) is int and 1 <= slots <= _MOST_SLOTS):
            raise PolicyError(f"{slots} slots for {gate}: give a whole number from 1 to {_MOST_SLOTS}, or None")
        self._change_gate(gate, lambda changed: changed.set_slots(slots))

    def block(self, gate: GateKey, until_s: float) -> None:
        """Let nothing through this gate before `until_s`; infinity = until it is unblocked. Raises: PolicyError."""
        if math.isnan(until_s):
            raise PolicyError(f"{gate} blocked until {until_s}: give a time in epoch seconds, or infinity")
        self._change_gate(gate, lambda changed: changed.block(until_s))

    def unblock(self, gate: GateKey) -> None:
        """Take a block back; slots that rest go on resting."""
        self._change_gate(gate, lambda changed: changed.unblock())

    # Counts

    def now_s(self) -> float:
        """The injected clock's time; all times of this Frontier are its."""
        return self._clock()

    @property
    def pending(self) -> int:
        """URLs queued and not leased, those of retired queues left out."""
        return self._parts.pending

    @property
    def in_flight(self) -> int:
        """Leases out."""
        return len(self._leases)

    @property
    def is_done(self) -> bool:
        """Nothing is leased, and nothing is queued that may be leased (queues that are retired keep theirs)."""
        return self._parts.is_done

    def can_lease(self) -> bool:
        """Whether `lease()` may have an answer now; it may still be None, as heads can be on their way."""
        self._drain()
        return not self._books.backlog.is_full and self._parts.can_lease(self._clock())

    @property
    def said(self) -> int:
        """The number of the last call that changed anything; it is acknowledged when `durable` has reached it."""
        return self._books.backlog.said

    @property
    def durable(self) -> int:
        """The number of the last call whose changes are committed and synced."""
        return self._books.backlog.durable

    def trouble(self) -> str:
        """What the store or the filter, which fails and is tried again, is waited for, and how long; empty if nothing."""
        self._drain()
        return self._parts.trouble(self._clock())

    def tell_troubles(self, tell: Callable[[str], None]) -> None:
        """From now on `tell` hears why the store or the filter cannot write and tries again; an empty text: it has written."""
        self._books.tell = tell

    def show_leases(self, board: Board) -> None:
        """From now on `board` is told what is leased here."""
        self._leases.board = self._endings.board = board

    def hurry(self) -> int:
        """Have what was said durable soon, as somebody waits for it: the store gathers no longer. Answers `said`."""
        self._store.hurry()
        return self.said

    def take_answers(self) -> None:
        """Take what the store has answered, as every other call does first. Raises: StoreUnavailable."""
        self._drain()

    def opens_s(self, gate: GateKey) -> float | None:
        """When a gate opens (epoch seconds), or since when it is open; infinity if time alone does not open it. O(1).

        None if it is not in memory.
        """
        line = self._schedule.window.get(name_id(gate))
        return None if line is None else line.opens_s()

    def counts(self) -> FrontierCounts:
        """How much of what there is, O(1): for displays that are renewed often."""
        self._drain()
        return count(self._parts)

    # Blocking

    def statistics(self) -> FrontierStatistics:
        """The counts and more, with the reason if nothing runs (blocks). Costs a look at every lane and gate."""
        self._drain()
        return run(self.operations.looking.statistics())

    def get(self, key: bytes) -> UrlRecord | None:
        """What is known of the URL with this dedup key (blocks, for a queued one as long as a scan takes; any thread)."""
        _check_key(key)
        return self._store.look_up(key)

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """What is known of those of these URLs that have ended, by dedup key (blocks; may be called from any thread)."""
        for key in keys:
            _check_key(key)
        return self._store.ended(keys)

    def wait_until_durable(self) -> None:
        """Return when the store has all that was said (blocks; may be called from any thread)."""
        self._store.flush()

    def flush(self) -> None:
        """Return when all that was said is durable (blocks). Raises: StoreUnavailable."""
        self._drain()
        self._parts.flush(self._store)

    def dump(self, facts: Mapping[str, str | float] | None = None, *, with_ended: bool = True) -> Iterator[str]:
        """The lines of a dump, see `frontier.operating.dump` (blocks; call nothing else until the last line)."""
        self.flush()
        under_way = () if self.exchange is None else self.exchange.under_way()
        return dump_lines(self._store, facts, with_ended=with_ended, under_way=under_way)

    def load(self, entries: Iterable[Entry]) -> LoadReport:
        """Take over what another Frontier knew, see `frontier.operating.load` (blocks)."""
        return load(entries, self.loading)

    def checkpoint(self) -> None:
        """Make the filter durable up to what is marked, so that an unclean end costs less (blocks; any thread)."""
        self._checkpoints.now()

    def check(self) -> None:
        """Recount what is in memory, and compare the totals with the store's, whose rows are recounted too (blocks).

        Costs a scan. Raises: InvariantBroken, naming the first difference.
        """
        self.flush()
        audit(self._parts, self._store)

    def close(self) -> None:
        """Write all, sync the filter, mark the state clean, let go (blocks). A second call is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        self._parts.close(self._store, self._seen, self._checkpoints, self._clock())

    # Inside

    def _drain(self) -> bool:
        books, failure = self._books, self._checkpoints.failure
        if failure is not None and books.failure is None:
            books.failure = failure
        has_answers = books.drain()
        self._checkpoints.marked(self._marking.ordinal)
        return has_answers

    def _change_gate(self, key: GateKey, change: Callable[[Gate], None]) -> None:
        self._drain()
        listed = self._schedule.window.named(name_id(key), key)
        if listed.is_loading:
            listed.later.append(change)
        else:
            change(listed.gate)
            self._parts.outbox.batch.gates.append(listed.gate.row())
            listed.enlist()
        self._books.say()


def _check_key(key: bytes) -> None:
    """Raises: TypeError. A store that is asked for anything else fails, and all with it."""
    if not isinstance(key, bytes):
        raise TypeError(f"a dedup key is bytes, such as url.encode(); not {key!r}")
