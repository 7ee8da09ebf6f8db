"""Gates: the unit of politeness. Pure; the time is an argument.

A gate has k slots. A lease takes one; when the fetch has ended the slot rests for

    d = clamp(delay_factor × fetch seconds, min_delay, max_delay)          (Heritrix's politeness formula)

counted from the end of the fetch. So at most k fetches run at once, and the next start on a slot is at least d after the
last fetch's end, whatever the number of queues that pass the gate.

While a host has a Crawl-delay (`spacing_s`) it has one slot, which rests for at least that long: starts are then at least the
Crawl-delay apart, and no start can slip in while an earlier one is still on its way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush

from frontier.models import GateKey
from frontier.stores.base import GateRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Politeness:
    """How long a slot rests, and how many there are."""

    delay_factor: float = 5.0  #: rest = this × the fetch's duration …
    min_delay_s: float = 3.0  #: … but at least this
    max_delay_s: float = 30.0  #: … and at most this
    slots: int = 1  #: fetches at once per gate

    def rest_s(self, fetch_s: float) -> float:
        """The rest d after a fetch that took `fetch_s`."""
        return min(max(self.delay_factor * max(fetch_s, 0.0), self.min_delay_s), self.max_delay_s)


class Gate:
    """Slots of one host (or other key). Every operation costs O(log k), amortised."""

    __slots__ = (
        "_rested_s",
        "_rests",
        "blocked_until_s",
        "id",
        "key",
        "last_rest_s",
        "out",
        "politeness",
        "resumes_s",
        "served_s",
        "spacing_s",
    )

    def __init__(self, gate_id: int, key: GateKey, politeness: Politeness) -> None:
        self.id = gate_id
        self.key = key
        self.politeness = politeness
        self.out = 0  #: slots that are taken
        self.blocked_until_s = 0.0
        self.resumes_s = 0.0  #: no slot opens before: what was left of the rests when an earlier owner ended
        self.spacing_s = 0.0
        self.last_rest_s = politeness.min_delay_s
        self.served_s = 0.0  #: when a slot was last taken; among open gates the longest unserved is first
        self._rests: list[float] = []  #: heap: when each resting slot has rested; out + resting <= slots, unless spaced
        self._rested_s = 0.0  #: when the last of them has rested; 0 = none rests

    def __repr__(self) -> str:
        return f"<Gate {self.key} {self.out}/{self.slots} out, blocked until {self.blocked_until_s:.3f}>"

    @property
    def slots(self) -> int:
        """How many fetches may run at once now."""
        return 1 if self.spacing_s else self.politeness.slots

    def opens_s(self) -> float:
        """The earliest time at which a slot can be taken; infinity while all are out."""
        free = self.slots - self.out
        if free <= 0:
            return math.inf
        closed_until_s = max(self.blocked_until_s, self.resumes_s)
        resting = len(self._rests)
        if resting < free:
            return closed_until_s
        # More rests than slots: a Crawl-delay has left one slot of several, and it must be the last to have rested.
        return max(self._rests[0] if resting == free else self._rested_s, closed_until_s)

    def take(self, now_s: float) -> None:
        """Take a slot; the caller has seen that the gate is open."""
        assert self.opens_s() <= now_s, "a slot is taken through a closed gate"
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
        self._forget_rested(now_s)
        self.last_rest_s = max(self.politeness.rest_s(end_s - start_s), self.spacing_s)
        until_s = end_s + self.last_rest_s
        if until_s > now_s:
            heappush(self._rests, until_s)
            self._rested_s = max(self._rested_s, until_s)
        return until_s

    def block(self, until_s: float) -> None:
        """Keep it closed until then, or longer if it is closed for longer already."""
        self.blocked_until_s = max(self.blocked_until_s, until_s)

    def row(self) -> GateRow:
        """What must survive a restart."""
        rests_until_s = max(self._rested_s, self.resumes_s)
        return GateRow(self.id, self.key, rests_until_s, self.blocked_until_s, self.spacing_s, self.last_rest_s)

    def restore(self, row: GateRow, now_s: float, *, clean: bool) -> None:
        """Take up what an earlier owner left.

        Every slot rests until the last one had rested. After an unclean end a fetch may have been under way up to this
        moment, so it opens no earlier than now + its last rest. Rests are clamped to now + the longest rest there is, so
        that a clock that went back delays nothing for ever.
        """
        self.spacing_s = row.spacing_s
        self.last_rest_s = row.last_rest_s
        longest_s = max(self.politeness.max_delay_s, row.spacing_s)
        self.blocked_until_s = row.blocked_until_s
        until_s = row.rests_until_s if clean else max(row.rests_until_s, now_s + row.last_rest_s)
        # The number of slots may have changed since, so it is kept for all of them.
        self.resumes_s = min(until_s, now_s + longest_s)

    def _forget_rested(self, now_s: float) -> None:
        while self._rests and self._rests[0] <= now_s:
            heappop(self._rests)
        if not self._rests:
            self._rested_s = 0.0
