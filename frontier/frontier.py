"""The Frontier: which URL may be fetched next, and when.

A synchronous core: it reads one injected clock, keeps its decisions in memory, and hands the changes of each call to the store
as one batch. Each call first takes the store's answers and marks a slice of the durable keys in the filter. Other I/O is in
the methods that are documented to block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from anabranch.frontier.admission import Prepared
from anabranch.frontier.checkpoints import Checkpoints
from anabranch.frontier.completion import check_outcome
from anabranch.frontier.errors import PolicyError, unwritable
from anabranch.frontier.inspect.operations import Operations
from anabranch.frontier.inspect.statistics import FrontierCounts, count
from anabranch.frontier.parts import Advancing, Parts, flushed, run
from anabranch.frontier.records import BUSY, Candidate, GateKey, Lease, Outcome, OutcomeKind, Verdict, Wake, name_id
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import FrontierStore

#: The upper limit of `set_slots`.
_MOST_SLOTS = 1_000_000


class Frontier:
    """Work queues behind gates, over a store and a filter. Not thread-safe; many may exist in one process.

    Only "Blocking" methods and `operations` wait for the store. After the store or the filter failed, every call but
    `close` raises that failure (`StoreUnavailable`).
    """

    def __init__(
        self,
        *,
        store: FrontierStore,
        seen: SeenFilter,
        parts: Parts,
        checkpoints: Checkpoints,
        clock: Callable[[], float],
        filter_renewed: str = "",
        first_format: str = "",
    ) -> None:
        """`filter_renewed`: why the filter was made anew from the store at this opening; empty if it was not.

        `first_format`: the one in which the store was made; empty: by a version that did not keep it.
        """
        self._store = store
        self._seen = seen
        self._parts = parts
        self._store_link = parts.store_link
        self._schedule = parts.schedule
        self._leases = parts.leases
        self._completion = parts.completion
        self._admission = parts.admission
        self._rules = parts.rules
        self._checkpoints = checkpoints
        self._clock = clock
        self._is_closed = False
        self.filter_renewed = filter_renewed
        self.first_format = first_format
        self.operations = Operations(store, seen, parts, checkpoints, clock)  #: the operator's calls
        self.advancing = Advancing(store, parts)  #: moves queued URLs to the front
        #: What the store has got and has not made durable: the numbers of the last calls that changed anything.
        self.unacknowledged = parts.store_link.unacknowledged
        self.holds = parts.schedule.holds  #: services that are away, and what waits for them
        self.known = parts.admission.marking.counts  #: links that are known; the host counts those that it remembers
        self.hosting = parts.store_link.hosting  #: the shares of one of several workers; None: it has the whole job

    def __enter__(self) -> Frontier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Frontier {self.pending} pending, {self.in_flight} in flight>"

    # URLs in

    def schedule(self, candidates: Sequence[Candidate], found_on: Lease | None = None) -> list[Verdict]:
        """Enqueue new candidates, of the page `found_on`; one verdict each, BUSY for all while the store is behind."""
        self._store_link.drain()
        if self._store_link.unacknowledged.is_full:
            return [BUSY] * len(candidates)
        if found_on is None:
            verdicts = self._admission.accept(candidates, 0)
        else:
            self._leases.remember(found_on)
            verdicts = self._admission.accept(candidates, found_on.ordinal, found_on.url)
        self._store_link.send()
        return verdicts

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each dedup key, whether its URL may be new; changes nothing. With a filter that blocks: always True."""
        self._store_link.drain()
        return self._admission.unseen(keys)

    # URLs out

    def lease(self) -> Lease | None:
        """The next URL that may be fetched now, or None; `wake()` says when to ask again."""
        self._store_link.drain()
        if not self._store_link.may_lease:
            self._store.hurry()
            return None
        while True:
            now_s = self._clock()
            if self._completion.waiting or self._leases.may_expire:
                self._parts.wake_up(now_s)
            served = self._schedule.lease(now_s)
            if served is not None:
                lane, head = served
                if self._parts.outbox.has_questions():
                    self._store_link.ask()
                return self._leases.hand_out(lane, head, now_s)
            self._store_link.send()  # such as a queue over its budget, which may end the crawl
            if not self._store_link.drain():
                # The questions are urgent, and so are the last changes of a crawl without leases.
                wanted = self._schedule.placement.loading or self._store_link.asked
                if wanted or not (self._leases or self._store_link.unacknowledged.is_empty):
                    self._store.hurry()
                return None

    def wake(self) -> Wake:
        """When `lease()` may have an answer, and the events that it waits for."""
        self._store_link.drain()
        return self._parts.wake(self._clock())

    def prepare(self, lease: Lease, kind: OutcomeKind, discovered: Sequence[Candidate]) -> Prepared:
        """Ask the filter and the policies what `finish` of this lease will need of them, and change nothing.

        For callers who write down a page before they finish it, if a user function may fail. Raises: LeaseLost, PolicyError.
        """
        _, lane, head = self._leases.find(lease)
        return self._admission.prepare(self._rules.charge(lane.queue, head, kind), discovered, lease.url)

    def finish(
        self,
        lease: Lease,
        outcome: Outcome,
        discovered: Sequence[Candidate] = (),
        prepared: Prepared | None = None,
    ) -> list[Verdict]:
        """Give a lease back with its outcome and the page's outlinks, as one transaction; never BUSY.

        `prepared`: by `prepare`, for the same outcome and candidates, so that no policy is asked.

        Raises, before any change: LeaseLost; PolicyError for a bad outcome (`check_outcome`) and failed user functions.
        """
        check_outcome(lease, outcome)
        self._store_link.drain()
        held = self._leases.find(lease)
        charge = self._rules.charge(held[1].queue, held[2], outcome.kind) if prepared is None else prepared.charge
        verdicts = self._admission.accept(discovered, lease.ordinal, lease.url, prepared) if discovered else []
        self._leases.drop(held)
        self._completion.end(held, outcome, charge, self._clock())
        self._store_link.send(1)
        self._store_link.lease_ended(lease)
        return verdicts

    def release(self, lease: Lease) -> None:
        """Give a lease back unprocessed: the URL is first again, and the slot does not rest. Raises: LeaseLost."""
        held = self._leases.take_back(lease)  # first: after a failure of the store nothing is in flight either
        self._completion.release(held, self._clock())
        self._store_link.drain()
        self._store_link.send()
        self._store_link.lease_ended(lease)

    def renew(self, lease: Lease) -> Lease:
        """Extend a lease by its full time; the result replaces it. Raises: LeaseLost."""
        return self._leases.renew(lease, self._clock())

    # Gates

    def set_delay(self, gate: GateKey, delay_s: float) -> None:
        """Start fetches of this gate at least so far apart (a robots Crawl-delay); 0 = no limit. Raises: PolicyError."""
        if not math.isfinite(delay_s):
            raise PolicyError(f"a delay of {delay_s} s for {gate}: give a finite number")
        self._change_gate(gate, lambda changed: changed.set_spacing(max(delay_s, 0.0)))

    def set_slots(self, gate: GateKey, slots: int | None) -> None:
        """Let so many fetches of this gate run at once; None = the order's number. Raises: PolicyError."""
        if slots is not None and not (type(slots) is int and 1 <= slots <= _MOST_SLOTS):
            raise PolicyError(f"{slots} slots for {gate}: give a whole number from 1 to {_MOST_SLOTS}, or None")
        self._change_gate(gate, lambda changed: changed.set_slots(slots))

    def block(self, gate: GateKey, until_s: float, *, replaces: bool = False) -> None:
        """Let nothing through this gate before `until_s`; infinity = until it is unblocked. A block that lasts longer stays,
        unless this one `replaces` it. Raises: PolicyError.
        """
        if math.isnan(until_s):
            raise PolicyError(f"{gate} blocked until {until_s}: give a time in epoch seconds, or infinity")
        self._change_gate(gate, lambda changed: changed.block(until_s, replaces=replaces))

    def unblock(self, gate: GateKey) -> None:
        """Remove a block; the rests of slots remain."""
        self._change_gate(gate, lambda changed: changed.unblock())

    # Counts

    def now_s(self) -> float:
        """The injected clock's time."""
        return self._clock()

    @property
    def pending(self) -> int:
        """URLs queued and not leased, without those of retired queues."""
        return self._parts.pending

    @property
    def in_flight(self) -> int:
        """Leases out."""
        return len(self._leases)

    @property
    def is_done(self) -> bool:
        """Nothing is leased, and nothing is queued that may be leased; retired queues keep their URLs.

        Of one worker of several: at no worker of the job, as the store has seen it since this one's last change.
        """
        return self._parts.is_done

    def can_lease(self) -> bool:
        """Whether `lease()` may have an answer now. It may still be None while heads are being read."""
        self._store_link.drain()
        return not self._store_link.unacknowledged.is_full and self._parts.can_lease(self._clock())

    def on_trouble(self, report: Callable[[str], None]) -> None:
        """Call `report` with the reason when the store or the filter retries a failed write, with "" when it succeeds."""
        self._store_link.on_trouble(report)

    def hurry(self) -> int:
        """Make the store commit soon, because a caller waits for it; returns `unacknowledged.last`."""
        self._store.hurry()
        return self.unacknowledged.last

    def take_answers(self) -> None:
        """Take the store's answers, as every other call does first. Raises: StoreUnavailable."""
        self._store_link.drain()

    def counts(self) -> FrontierCounts:
        """The counts for displays that are refreshed often, O(1)."""
        self._store_link.drain()
        return count(self._parts, self._clock())

    # Blocking

    def wait_until_durable(self) -> None:
        """Return when all changes so far are durable in the store (blocks; any thread)."""
        self._store.flush()

    def flush(self) -> None:
        """Return when all changes so far are durable and marked in the filter (blocks). Raises: StoreUnavailable."""
        self._store_link.drain()
        run(flushed(self._parts, self._store))

    def close(self) -> None:
        """Write all, sync the filter, mark the state clean, release the store (blocks). A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        link, clean = self._store_link, False
        try:
            try:  # no exit stack: it loses an error when the next part fails, too
                try:
                    if link.failure is None:
                        self._write_all(self._clock())
                finally:
                    self._checkpoints.close(final=link.failure is None)
            finally:
                self._seen.close()
            clean = link.failure is None
        except OSError as error:
            raise unwritable("the filter", error) from error
        finally:
            self._store.close(clean=clean)

    # Inside

    def _write_all(self, now_s: float) -> None:
        """End leases that are still out as if lost, and write all rows and gates."""
        for held in list(self._leases):
            self._leases.drop(held)
            self._completion.expire(held, now_s)
        run(flushed(self._parts, self._store))
        self._schedule.window.leave_all(now_s)
        run(flushed(self._parts, self._store))

    def _change_gate(self, key: GateKey, change: Callable[[Gate], None]) -> None:
        """Change the gate at once, or when it is read; nothing if another worker serves it by now."""
        self._store_link.drain()
        if self._store_link.hosting is not None and not self._store_link.hosting.is_ours(key):
            return
        listed = self._schedule.window.named(name_id(key), key)
        if listed.is_loading:
            listed.later.append(change)
        else:
            change(listed.gate)
            self._parts.outbox.batch.gates.append(listed.gate.row())
            listed.enlist()
        self._store_link.send()
