"""Gates: the unit of politeness. Pure; the time is an argument.

A gate has k slots. A lease takes one; after the fetch the slot rests, from the end of the fetch, for

    clamp(delay_factor × fetch seconds, min_delay, max_delay)          (Heritrix's politeness formula)

While a host has a Crawl-delay (`spacing_s`), or since it answered 429 (`throttle_s`) until it answers well, it has one slot,
which rests for at least that long. The n-th trouble in a row (429, 503, Retry-After, no connection) closes all slots for

    max(Retry-After, min(base × 2^(n-1), cap) + jitter)

The jitter keeps hosts that failed together from being asked together. It is derived from the gate and n, so that it is the same
after a restart. A group of hosts has a gate, too; each method acts on its own gate only, and the schedule asks both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.groups import is_group
from anabranch.frontier.policies.sheets import Settings, Sheets
from anabranch.frontier.records import GateKey, HostTrouble, name_id
from anabranch.frontier.stores.contract import GateRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Politeness:
    """The number of slots of a gate, and their rests."""

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


def check_politeness(politeness: Politeness) -> None:
    """Raises: PolicyError for numbers that make no sense."""
    numbers = (politeness.delay_factor, politeness.min_delay_s, politeness.max_delay_s)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise PolicyError("delays and the delay factor must be numbers that are not negative")
    if politeness.min_delay_s > politeness.max_delay_s:
        raise PolicyError(
            f"min_delay {politeness.min_delay_s:g} s is longer than max_delay {politeness.max_delay_s:g} s"
        )
    if politeness.slots < 1:
        raise PolicyError("a gate needs at least one slot")


#: The most doublings: more would leave the range of a float.
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
        """How long the gate stays closed after so many troubles in a row; `retry_after_s` = 0: the host asked for nothing."""
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
        self.group = group  #: the gate of its group, which a lease passes, too
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
        self.written_rest_s = politeness.min_delay_s  #: the rest in the row; the least one if it was never written
        self._changed = False  #: the row lacks another change
        self.served_s = 0.0  #: when a slot was last taken; of open gates the one that waits longest is first
        self._set_slots: int | None = None  #: the host's or the operator's k; None = the order's
        self._interval_s = 0.0  #: the longer of spacing and throttle; while there is one, there is one slot
        self._resumes_s = 0.0  #: no slot opens before: the rests that were left when the gate was last in memory
        self._started_s = -math.inf  #: when the latest fetch that has ended began
        self._idle_until_s = 0.0  #: the later of `_resumes_s` and the latest start + spacing
        self._closed_until_s = 0.0  #: the later of that and the block: no slot opens before

    def __repr__(self) -> str:
        return f"<Gate {self.key} {self.out}/{self.slots} out, blocked until {self.blocked_until_s:.3f}>"

    # Slots

    def opens_s(self) -> float:
        """The earliest time at which a slot can be taken; infinity while all are out. Ignores the group."""
        free = self.slots - self.out
        if free <= 0:
            return _NEVER
        rests, closed_until_s = self.rests, self._closed_until_s
        resting = len(rests)
        if resting < free:
            return closed_until_s
        # More rests than free slots, because the slots were lowered: the last rests count.
        rested_s = rests[0] if resting == free else sorted(rests)[-free]
        return rested_s if rested_s > closed_until_s else closed_until_s  # noqa: FURB136 - a call costs four times as much

    def take(self, now_s: float) -> None:
        """Take a slot of an open gate."""
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
        """Return a slot after a fetch; returns the end of its rest."""
        self.out -= 1
        self._started_s = max(self._started_s, start_s)
        self.last_rest_s = rest_s = max(self.politeness.rest_s(end_s - start_s), self._interval_s)
        until_s = end_s + rest_s
        if until_s > now_s:
            heappush(self.rests, until_s)
        return until_s

    def join(self, group: Gate | None) -> None:
        """Let leases pass the gate of this group, too."""
        self.group = group

    def stand_as(self, out: int, rests_until_s: float) -> None:
        """Copy the state that this gate has in another process: slots out, and the end of the rests."""
        self.out += out
        if rests_until_s > 0:
            self.rests += [rests_until_s] * max(self.slots - out, 0)

    # Changes of the rules

    def block(self, until_s: float, *, replaces: bool = False) -> None:
        """Keep the gate closed until then, or longer if it already is and this does not replace it."""
        self.blocked_until_s = until_s if replaces else max(self.blocked_until_s, until_s)
        self._settle()

    def unblock(self) -> None:
        """Remove every block and forget the troubles; rests and the Crawl-delay remain."""
        self.blocked_until_s = 0.0
        self.throttle_s = 0.0
        self.troubles = 0
        self._settle()

    def set_spacing(self, delay_s: float) -> None:
        """Keep starts so far apart, from the latest one on; 0 = no limit. Current rests remain."""
        self.spacing_s = delay_s
        self._settle()

    def set_politeness(self, politeness: Politeness) -> None:
        """Rest by other rules from the next fetch on. Current rests remain."""
        self.politeness = politeness
        self._settle()

    def set_slots(self, slots: int | None) -> None:
        """Allow so many fetches at once; None = the order's number. Current rests remain."""
        assert slots is None or slots >= 1, "a gate needs at least one slot"
        self._set_slots = slots
        self._settle()

    def trouble(self, kind: HostTrouble, retry_after_s: float, now_s: float) -> None:
        """Close the gate after a fetch that ended in trouble; after a 429, keep starts apart until `well`.

        Call it after `rest` or `give_back`. A trouble is counted only if a slot was taken since the last one: all fetches
        that were out meet the same trouble. NONE applies the host's Retry-After and counts nothing.
        """
        if kind is not HostTrouble.NONE:
            self._forgive(self.served_s)  # the failing fetch itself was not quiet time
            if not self.troubles or self.served_s > self.troubled_s:
                self.troubles += 1
            self.troubled_s = now_s
        if kind is HostTrouble.THROTTLED:
            self.throttle_s = self.backoff.interval_s(self.troubles)
        counted = self.troubles if kind is not HostTrouble.NONE else 0
        self.block(now_s + self.backoff.wait_s(counted, retry_after_s, self.id))

    def well(self, now_s: float) -> None:
        """End the throttle and count one trouble less, if the fetch began after the last trouble. Call it before `rest`."""
        if self.troubles and self.served_s > self.troubled_s:
            self._forgive(now_s)
            self.troubles = max(self.troubles - 1, 0)
            self._changed = True
            if self.throttle_s:
                self.throttle_s = 0.0
                self._settle()

    # The row in the store

    def row(self) -> GateRow:
        """The state to restore the gate from; the caller writes it."""
        self.written_rest_s = self.last_rest_s
        self._changed = False
        rests_until_s = max(self._idle_until_s, *self.rests) if self.rests else self._idle_until_s
        return GateRow(
            self.id, self.key, rests_until_s, self.blocked_until_s, self.spacing_s, self.last_rest_s, self.throttle_s,
            self.troubles, self.troubled_s, self._set_slots,
        )  # fmt: skip

    @property
    def must_be_written(self) -> bool:
        """Whether the row would be wrong after an unclean end, when every gate rests for its row's rest."""
        return self._changed or not self.written_rest_s / 2 <= self.last_rest_s <= self.written_rest_s

    def restore(self, row: GateRow, now_s: float, *, clean: bool, opened_s: float | None = None) -> None:
        """Restore the state of a gate that was in memory before; every slot rests until the last one had rested.

        After an unclean end a fetch may have been under way until the store was opened (`opened_s`; None = now), so the gate
        opens no earlier than its last rest after that. Rests are clamped to now + the longest rest.
        """
        self.blocked_until_s = row.blocked_until_s
        self.spacing_s = row.spacing_s
        self.throttle_s = row.throttle_s
        self.last_rest_s = self.written_rest_s = max(row.last_rest_s, self.politeness.min_delay_s)
        self.troubles = row.troubles
        self.troubled_s = row.troubled_s
        self._set_slots = row.slots
        self._settle()
        rest_s = max(self.last_rest_s, self._interval_s)
        under_way_s = -math.inf if clean else now_s if opened_s is None else opened_s
        until_s = max(row.rests_until_s, under_way_s + rest_s)
        # The number of slots may have changed, so the rest applies to all of them.
        self._resumes_s = min(until_s, now_s + max(self.politeness.max_delay_s, rest_s))
        # An estimate of the end of the latest fetch, for a Crawl-delay that is set later.
        ended_s = row.rests_until_s - max(row.last_rest_s, self._interval_s) if row.rests_until_s else -math.inf
        self._started_s = min(max(ended_s, under_way_s), now_s)
        self._settle()
        self._changed = False

    # Inside

    def _settle(self) -> None:
        """Derive slots and closing times from the settings; `out` and the rests do not need it."""
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
        """Forget troubles after long quiet; blocked time does not count."""
        if quiet_until_s - max(self.troubled_s, self.blocked_until_s) >= self.backoff.forgive_s:
            self.troubles = 0


class GateMaker:
    """Makes gates from keys, with the politeness of the host and its group."""

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
        """`group_of` gives a host's second gate; None = no groups. `is_off` = no politeness, overrides and groups for hosts."""
        self._is_off = is_off
        self.set_politeness(politeness, group_politeness)
        self._backoff = backoff
        self._sheets = sheets if sheets is not None and sheets.has_host_settings and not is_off else None
        self._group_of = group_of
        self.has_groups = group_of is not None and not is_off  #: hosts may belong to a group
        self._on_new_gate: Callable[[Gate], None] | None = None

    def set_politeness(self, politeness: Politeness, group_politeness: Politeness) -> None:
        """Make gates by these rules from now on."""
        self._politeness = _OFF if self._is_off else politeness
        self._group_politeness = group_politeness

    def politeness_of(self, key: GateKey) -> Politeness:
        """The rules of a host or a group."""
        if ":" in key and is_group(key):
            return self._group_politeness
        return self._politeness if self._sheets is None else _politeness_of(self._sheets, key, self._politeness)

    def on_new_gate(self, change: Callable[[Gate], None]) -> None:
        """Call `change` with each new gate of a host, see `Views.show_elsewhere`."""
        self._on_new_gate = change

    def host_gate(self, key: GateKey) -> Gate:
        """A new gate of a host; or of a group, if an operator names it before its hosts are known."""
        if ":" in key and is_group(key):
            gate = self.group_gate(key)
        else:
            gate = Gate(name_id(key), key, self.politeness_of(key), backoff=self._backoff)
        if self._on_new_gate is not None:
            self._on_new_gate(gate)
        return gate

    def group_gate(self, key: GateKey) -> Gate:
        """A new gate of a group."""
        return Gate(name_id(key), key, self._group_politeness, backoff=self._backoff)

    def group_of(self, key: GateKey) -> GateKey | None:
        """The group of a host, if it is known; a group has no group."""
        if not self.has_groups or self._group_of is None or is_group(key):
            return None
        return self._group_of(key)


def _politeness_of(sheets: Sheets, host: str, usual: Politeness) -> Politeness:
    """The politeness of a host by the sheets, where the order has the `usual` one."""
    order = Settings(usual.delay_factor, usual.min_delay_s, usual.max_delay_s, usual.slots)
    factor, least_s, most_s, slots = sheets.for_host(host).over(order)[:4]
    if factor is None or least_s is None or most_s is None or slots is None:
        raise AssertionError("the order leaves no setting open")
    return Politeness(delay_factor=factor, min_delay_s=least_s, max_delay_s=most_s, slots=slots)
