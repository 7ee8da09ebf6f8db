"""Gates: the unit of politeness. Pure; the time is an argument.

A gate has k slots. A lease takes one; when the fetch has ended the slot rests for

    d = clamp(delay_factor × fetch seconds, min_delay, max_delay)          (Heritrix's politeness formula)

counted from the end of the fetch. So at most k fetches run at once, and the next start on a slot is at least d after the
last fetch's end, whatever the number of queues that pass the gate.

While a host has a Crawl-delay (`spacing_s`), or has answered 429 (`throttle_s`) and not yet well again, it has one slot, which
rests for at least that long: starts are then at least so far apart, and no start can slip in while an earlier one is still on
its way. A trouble (429, 503, Retry-After, no connection) closes all slots for a time that doubles with each in a row
(`Backoff`).

The n-th trouble in a row closes its gate for

    max(what Retry-After asked for, min(base × 2^(n-1), cap)) and up to a tenth of the second on top

The part on top (jitter) keeps hosts that failed together from being asked together again. It is derived from the gate and n,
not drawn, so that a restart and a test find the same time. Heritrix has nothing of this kind.

A group of hosts has a gate like any other. Each method acts on its own gate only: the schedule asks both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from anabranch.frontier.policies.groups import is_group
from anabranch.frontier.policies.sheets import Delays, Sheets
from anabranch.frontier.records import GateKey, HostTrouble, name_id
from anabranch.frontier.stores.contract import GateRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Politeness:
    """How long a slot rests, and how many there are."""

    delay_factor: float = 5.0  #: rest = this × the fetch's duration …
    min_delay_s: float = 3.0  #: … but at least this
    max_delay_s: float = 30.0  #: … and at most this
    slots: int = 1  #: fetches at once per gate

    def rest_s(self, fetch_s: float) -> float:
        """The rest d after a fetch that took `fetch_s`."""
        rest_s = self.delay_factor * fetch_s
        if rest_s <= self.min_delay_s:  # also of a clock that went back
            return self.min_delay_s
        return min(rest_s, self.max_delay_s)


#: Doublings after which nothing changes any more: more would leave the range of a float.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a gate stays closed after a trouble; durations in seconds."""

    base_s: float = 60.0  #: after the first trouble; doubled with each further one in a row …
    cap_s: float = 3600.0  #: … up to this
    jitter: float = 0.1  #: at most this share of it is added
    forgive_s: float = 600.0  #: after so much time open and without trouble the count starts anew
    longest_retry_after_s: float = 86_400.0  #: a host may ask for at most this

    def interval_s(self, troubles: int) -> float:
        """The wait after so many troubles in a row (from 1), without jitter; 0 after none."""
        if troubles <= 0:
            return 0.0
        return min(self.base_s * 2.0 ** min(troubles - 1, _MOST_DOUBLINGS), self.cap_s)

    def wait_s(self, troubles: int, retry_after_s: float, gate_id: int) -> float:
        """How long the gate stays closed after so many troubles in a row, if the host asked for `retry_after_s` (0 = nothing).

        Never shorter than asked, up to `longest_retry_after_s`.
        """
        share = (name_id(f"{gate_id} {troubles}") + (1 << 63)) / (1 << 64)
        own_s = self.interval_s(troubles) * (1.0 + self.jitter * share)
        return max(own_s, min(max(0.0, retry_after_s), self.longest_retry_after_s))


_BACKOFF = Backoff()
_NEVER: Final = math.inf
_OFF: Final = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=1_000_000)


class Gate:
    """Slots of one host (or of another key, or of a group). Every operation costs O(log k), amortised."""

    # fmt: off
    __slots__ = (
        "_changed", "_closed_until_s", "_idle_until_s", "_interval_s", "_resumes_s", "_set_slots", "_started_s",
        "backoff", "blocked_until_s", "group", "id", "key", "last_rest_s", "out", "politeness", "rests", "served_s", "slots",
        "spacing_s", "throttle_s", "troubled_s", "troubles", "written_rest_s",
    )
    # fmt: on

    def __init__(
        self, gate_id: int, key: GateKey, politeness: Politeness, group: Gate | None = None, backoff: Backoff = _BACKOFF
    ) -> None:
        self.id = gate_id
        self.key = key
        self.politeness = politeness
        self.group = group  #: the gate of its group, which a lease passes too
        self.backoff = backoff
        self.out = 0  #: slots that are taken
        self.rests: list[float] = []  #: heap: when each resting slot has rested
        self.slots = politeness.slots  #: how many fetches may run at once now
        self.blocked_until_s = 0.0
        self.spacing_s = 0.0  #: the host's Crawl-delay, 0 = none; see `set_spacing`
        self.throttle_s = 0.0  #: starts are at least so far apart since a 429, 0 = none
        self.troubles = 0  #: in a row, until forgiven
        self.troubled_s = 0.0  #: when the last one was
        self.last_rest_s = politeness.min_delay_s
        self.written_rest_s = politeness.min_delay_s  #: the rest that the row has; one never written has the least
        self._changed = False  #: something else that must survive is not in the row
        self.served_s = 0.0  #: when a slot was last taken; among open gates the longest unserved is first
        self._set_slots: int | None = None  #: the host's or the operator's k; None = the order's
        self._interval_s = 0.0  #: the longer of spacing and throttle; while there is one, there is one slot
        self._resumes_s = 0.0  #: no slot opens before: what was left of the rests when the gate was last in memory
        self._started_s = -math.inf  #: when the latest fetch that has ended began
        self._idle_until_s = 0.0  #: the later of `_resumes_s` and the latest start + spacing
        self._closed_until_s = 0.0  #: the later of that and the block: no slot opens before

    def __repr__(self) -> str:
        return f"<Gate {self.key} {self.out}/{self.slots} out, blocked until {self.blocked_until_s:.3f}>"

    # Slots

    def opens_s(self) -> float:
        """The earliest time at which a slot can be taken; infinity while all are out. The group is not asked."""
        free = self.slots - self.out
        if free <= 0:
            return _NEVER
        rests, closed_until_s = self.rests, self._closed_until_s
        resting = len(rests)
        if resting < free:
            return closed_until_s
        # More rests than free slots: slots were lowered, and the last ones to have rested count.
        rested_s = rests[0] if resting == free else sorted(rests)[-free]
        return rested_s if rested_s > closed_until_s else closed_until_s  # noqa: FURB136 - a call costs four times as much

    def take(self, now_s: float) -> None:
        """Take a slot; the caller has seen that the gate is open."""
        assert self.opens_s() <= now_s, "a slot is taken through a closed gate"
        if self.rests:
            self._forget_rested(now_s)
        self.out += 1
        self.served_s = now_s

    def give_back(self, now_s: float) -> None:
        """Return a slot that fetched nothing: it does not rest."""
        self.out -= 1
        self._forget_rested(now_s)

    def rest(self, start_s: float, end_s: float, now_s: float) -> float:
        """Return a slot after a fetch; answers when it has rested."""
        self.out -= 1
        self._started_s = max(self._started_s, start_s)
        self.last_rest_s = rest_s = max(self.politeness.rest_s(end_s - start_s), self._interval_s)
        until_s = end_s + rest_s
        if until_s > now_s:
            heappush(self.rests, until_s)
        return until_s

    def add_out(self, count: int) -> None:
        """So many slots more are taken: leases of a host that joined this group."""
        self.out += count

    def join(self, group: Gate | None) -> None:
        """A lease passes the gate of this group, too."""
        self.group = group

    def stand_as(self, out: int, rests_until_s: float) -> None:
        """Stand as this gate does in another process, which has so many slots out; none opens earlier than `rests_until_s`."""
        self.out += out
        if rests_until_s > 0:
            self.rests += [rests_until_s] * max(self.slots - out, 0)

    # What changes the rules

    def block(self, until_s: float) -> None:
        """Keep it closed until then, or longer if it is closed for longer already."""
        self.blocked_until_s = max(self.blocked_until_s, until_s)
        self._settle()

    def unblock(self) -> None:
        """Take back every block and forget the troubles, as if the host had never had any; rests and the Crawl-delay stay."""
        self.blocked_until_s = 0.0
        self.throttle_s = 0.0
        self.troubles = 0
        self._settle()

    def set_spacing(self, delay_s: float) -> None:
        """Keep starts so far apart, from the latest one on; 0 takes it back. Rests that have begun go on."""
        self.spacing_s = delay_s
        self._settle()

    def set_slots(self, slots: int | None) -> None:
        """Allow so many fetches at once (None: as the order does). An added slot may open at once; other rests go on."""
        assert slots is None or slots >= 1, "a gate needs at least one slot"
        self._set_slots = slots
        self._settle()

    def trouble(self, kind: HostTrouble, retry_after_s: float, now_s: float) -> None:
        """A fetch ended in trouble: the gate closes for the backoff's wait; after a 429, starts are kept apart until `well`.

        Called after `rest` or `give_back`. Fetches that were out when the gate closed tell of the same trouble: a further one
        is counted only if a slot was taken since the last. With NONE, what the host asked for is kept and nothing is counted.
        """
        if kind is not HostTrouble.NONE:
            self._forgive(self.served_s)  # the time that the failing fetch itself took was not quiet
            if not self.troubles or self.served_s > self.troubled_s:
                self.troubles += 1
            self.troubled_s = now_s
        if kind is HostTrouble.THROTTLED:
            self.throttle_s = self.backoff.interval_s(self.troubles)
        counted = self.troubles if kind is not HostTrouble.NONE else 0
        self.block(now_s + self.backoff.wait_s(counted, retry_after_s, self.id))

    def well(self, now_s: float) -> None:
        """The host has answered without trouble: starts are kept apart no more, and the row of troubles is one shorter.

        Called before `rest`, so that the slot rests as usual. A fetch that was out already when the last trouble came proves
        nothing.
        """
        if self.troubles and self.served_s > self.troubled_s:
            self._forgive(now_s)
            self.troubles = max(self.troubles - 1, 0)
            self._changed = True
            if self.throttle_s:
                self.throttle_s = 0.0
                self._settle()

    # What survives, what is told

    def row(self) -> GateRow:
        """What must survive until the gate is in memory again; the caller has it written."""
        self.written_rest_s = self.last_rest_s
        self._changed = False
        rests_until_s = max(self._idle_until_s, *self.rests) if self.rests else self._idle_until_s
        return GateRow(
            self.id, self.key, rests_until_s, self.blocked_until_s, self.spacing_s, self.last_rest_s, self.throttle_s,
            self.troubles, self.troubled_s, self._set_slots,
        )  # fmt: skip

    @property
    def must_be_written(self) -> bool:
        """Whether an unclean end now would be impolite, or forget: after one every gate rests for its row's rest."""
        return self._changed or not self.written_rest_s / 2 <= self.last_rest_s <= self.written_rest_s

    def restore(self, row: GateRow, now_s: float, *, clean: bool, opened_s: float | None = None) -> None:
        """Take up what the row says of a gate that was in memory before.

        Every slot rests until the last one had rested. After an unclean end a fetch may have been under way up to the moment
        when the store was opened (`opened_s`; None = now), so the gate opens no earlier than its last rest after that.
        Rests are clamped to now + the longest rest there is, or was: an operator may have taken back what made it long.
        """
        self.blocked_until_s = row.blocked_until_s
        self.spacing_s = row.spacing_s
        self.throttle_s = row.throttle_s
        self.last_rest_s = self.written_rest_s = max(row.last_rest_s, self.politeness.min_delay_s)
        self.troubles = row.troubles
        self.troubled_s = row.troubled_s
        self._set_slots = row.slots
        self._settle()
        # Its first fetch may have left no rest in the row yet.
        rest_s = max(self.last_rest_s, self._interval_s)
        under_way_s = -math.inf if clean else now_s if opened_s is None else opened_s
        until_s = max(row.rests_until_s, under_way_s + rest_s)
        # The number of slots may have changed since, so it is kept for all of them.
        self._resumes_s = min(until_s, now_s + max(self.politeness.max_delay_s, rest_s))
        # About the end of the latest fetch, for a Crawl-delay that is told later.
        ended_s = row.rests_until_s - max(row.last_rest_s, self._interval_s) if row.rests_until_s else -math.inf
        self._started_s = min(max(ended_s, under_way_s), now_s)
        self._settle()
        self._changed = False

    # Inside

    def _settle(self) -> None:
        """Work out what follows from slots, intervals, blocks and what was restored. `out` and the rests need it not."""
        self._changed = True
        self._interval_s = max(self.spacing_s, self.throttle_s)
        own = self.politeness.slots if self._set_slots is None else self._set_slots
        self.slots = 1 if self._interval_s else own
        # After a 429 the block lasts at least as long as the throttle keeps the next start apart.
        spaced_until_s = self._started_s + self.spacing_s if self.spacing_s else 0.0
        self._idle_until_s = max(self._resumes_s, spaced_until_s)
        self._closed_until_s = max(self._idle_until_s, self.blocked_until_s)

    def _forget_rested(self, now_s: float) -> None:
        while self.rests and self.rests[0] <= now_s:
            heappop(self.rests)

    def _forgive(self, quiet_until_s: float) -> None:
        """Forget troubles after long quiet; time under a block proves nothing."""
        if quiet_until_s - max(self.troubled_s, self.blocked_until_s) >= self.backoff.forgive_s:
            self.troubles = 0


class GateMaker:
    """Makes gates from keys: which politeness a host has, and which group it belongs to."""

    def __init__(
        self,
        politeness: Politeness,
        group_politeness: Politeness,
        backoff: Backoff = _BACKOFF,
        sheets: Sheets | None = None,
        group_of: Callable[[str], GateKey | None] | None = None,
        *,
        is_off: bool = False,
    ) -> None:
        """`sheets`: what is different for parts of the web. `group_of`: the second gate of a host; None = there are no groups.

        `is_off`: hosts are left without politeness, overrides and groups.
        """
        self._politeness = _OFF if is_off else politeness
        self._group_politeness = group_politeness
        self._backoff = backoff
        self._sheets = sheets if sheets is not None and sheets.has_host_settings and not is_off else None
        self._group_of = group_of
        self.has_groups = group_of is not None and not is_off  #: hosts may belong to a group
        self._on_new_gate: Callable[[Gate], None] = lambda _: None

    def on_new_gate(self, change: Callable[[Gate], None]) -> None:
        """Call `change` with each new gate of a host, see `Looking.show_elsewhere`."""
        self._on_new_gate = change

    def host_gate(self, key: GateKey) -> Gate:
        """A new gate of a host; of a group, if an operator names one before any of its hosts came."""
        if ":" in key and is_group(key):
            gate = self.group_gate(key)
        else:
            politeness = (
                self._politeness if self._sheets is None else _politeness_of(self._sheets, key, self._politeness)
            )
            gate = Gate(name_id(key), key, politeness, backoff=self._backoff)
        self._on_new_gate(gate)
        return gate

    def group_gate(self, key: GateKey) -> Gate:
        """A new gate of a group."""
        return Gate(name_id(key), key, self._group_politeness, backoff=self._backoff)

    def group_of(self, key: GateKey) -> GateKey | None:
        """The group of a host, if it has one and that is known by now; a group belongs to no other."""
        if not self.has_groups or self._group_of is None or is_group(key):
            return None
        return self._group_of(key)


def _politeness_of(sheets: Sheets, host: GateKey, usual: Politeness) -> Politeness:
    settings = sheets.for_host(host)
    delays = settings.delays(Delays(usual.delay_factor, usual.min_delay_s, usual.max_delay_s))
    slots = usual.slots if settings.max_connections is None else settings.max_connections
    return Politeness(
        delay_factor=delays.delay_factor,
        min_delay_s=delays.min_delay_s,
        max_delay_s=delays.max_delay_s,
        slots=slots,
    )
