"""TCP segments in the order they were captured, to the URLs of the HTTP requests in them.

Sequence numbers are compared modulo 2^32 (RFC 9293 §3.4). Memory is bounded per flow and in the number of flows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from anabranch.dedup.capture.httprequests import HttpRequests
from anabranch.dedup.capture.packets import Segment
from anabranch.dedup.capture.statistics import CaptureStatistics

#: a segment farther away than this is no reordering: the reader goes on there
WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Bounds of what is remembered: at most flows × (early_bytes + a head of 32 KiB), 336 MiB when all are filled."""

    #: directions of connections; the one unused for longest is forgotten first
    flows: int = 2048
    #: bytes per flow that came before bytes that belong in front of them
    early_bytes: int = 131_072
    #: segments per flow of the same kind
    early_segments: int = 64


class _Flow:
    """One direction of one connection: puts segments in order and feeds the requests' parser."""

    __slots__ = ("_counts", "_early", "_limits", "_next", "opened_at", "requests")

    def __init__(self, sequence: int, limits: FlowLimits, counts: CaptureStatistics) -> None:
        self.requests = HttpRequests(counts)
        #: sequence number of the first byte, if the opening segment was captured
        self.opened_at: int | None = None
        self._limits = limits
        self._counts = counts
        self._next = sequence  # of the next byte to feed
        self._early: dict[int, Segment] = {}

    def take(self, segment: Segment) -> list[bytes]:
        distance = _distance(self._next, segment.sequence)
        if 0 < distance <= self.requests.skippable_bytes:  # the hole lies in a body
            self._pass_over(distance)
            distance = 0
        if abs(distance) > WINDOW_BYTES:
            return self._move_to(segment)
        if distance > 0:
            return self._keep(segment)
        return self._accept(segment) + self._drain()

    def give_up_waiting(self) -> list[bytes]:
        """Go on behind every hole, in order, and break off what is incomplete."""
        urls: list[bytes] = []
        while self._early:
            urls += self._jump()
        return urls + self.requests.break_off()

    def _break_off(self) -> list[bytes]:
        self._counts.gaps += 1
        return self.requests.break_off()

    def _pass_over(self, count: int) -> None:
        self.requests.skip(count)
        self._next = ((self._next) + count) & 0xFFFFFFFF

    def _move_to(self, segment: Segment) -> list[bytes]:
        urls = self.give_up_waiting()
        self._counts.gaps += 1
        self._next = segment.sequence
        return urls + self._accept(segment)

    def _keep(self, segment: Segment) -> list[bytes]:
        known = self._early.get(segment.sequence)
        if known is None or len(known.payload) < len(segment.payload):
            self._early[segment.sequence] = segment
        else:
            self._counts.retransmissions += 1
        held = sum(len(early.payload) for early in self._early.values())
        if held > self._limits.early_bytes or len(self._early) > self._limits.early_segments:
            return self._jump()
        return []

    def _jump(self) -> list[bytes]:
        """The hole will not be filled: go on at the first segment behind it."""
        urls = self._break_off()
        self._next = min(self._early, key=lambda sequence: _distance(self._next, sequence))
        return urls + self._drain()

    def _drain(self) -> list[bytes]:
        urls: list[bytes] = []
        while ready := [s for s in self._early if self._is_reached(s)]:
            urls += self._accept(self._early.pop(min(ready, key=lambda s: _distance(self._next, s))))
        return urls

    def _is_reached(self, sequence: int) -> bool:
        return _distance(self._next, sequence) <= self.requests.skippable_bytes

    def _accept(self, segment: Segment) -> list[bytes]:
        """Feed what is new of a segment that begins at or before the next byte, or within a body that may be skipped."""
        distance = _distance(self._next, segment.sequence)
        if distance > 0:
            self._pass_over(distance)
            distance = 0
        sent = len(segment.payload) + segment.missing_bytes
        if sent + distance <= 0:
            self._counts.retransmissions += 1
            return []
        self._next = (segment.sequence + sent) & 0xFFFFFFFF
        urls = self.requests.feed(segment.payload[-distance:])
        missing = min(segment.missing_bytes, sent + distance)
        return urls + self._leave_out(missing) if missing else urls

    def _leave_out(self, missing: int) -> list[bytes]:
        if missing <= self.requests.skippable_bytes:
            self.requests.skip(missing)
            return []
        return self._break_off()


class TcpFlows:
    """All flows of one capture. Takes segments, gives back URLs; forgets the one unused for longest when there are too many."""

    __slots__ = ("_counts", "_flows", "_limits")

    def __init__(self, counts: CaptureStatistics, limits: FlowLimits | None = None) -> None:
        self._counts = counts
        self._limits = limits or FlowLimits()
        self._flows: OrderedDict[bytes, _Flow] = OrderedDict()

    def __len__(self) -> int:
        return len(self._flows)

    def take(self, segment: Segment) -> list[bytes]:
        """The URLs that this segment completes, in the order of their flow."""
        if segment.resets:
            gone = self._flows.pop(segment.flow, None)
            return gone.give_up_waiting() if gone else []
        urls = self._opened(segment) if segment.opens or segment.answers else []
        if segment.payload or segment.missing_bytes:
            urls += self._use(segment)
        return urls

    def finish(self) -> list[bytes]:
        """No more segments come: the URLs behind holes and of heads that show their Host but not their end."""
        urls = [url for flow in self._flows.values() for url in flow.give_up_waiting()]
        self._flows.clear()
        return urls

    def _opened(self, segment: Segment) -> list[bytes]:
        """A connection begins, perhaps on the ports of an earlier one; a repeated opening changes nothing."""
        known = self._flows.get(segment.flow)
        if known is not None and known.opened_at == segment.sequence:
            return []
        flow = _Flow(segment.sequence, self._limits, self._counts)
        flow.opened_at = segment.sequence
        if segment.answers:
            flow.requests.end()
        self._flows[segment.flow] = flow
        return (known.give_up_waiting() if known else []) + self._evict()

    def _use(self, segment: Segment) -> list[bytes]:
        flow = self._flows.get(segment.flow)
        if flow is None:
            flow = self._flows[segment.flow] = _Flow(segment.sequence, self._limits, self._counts)
        self._flows.move_to_end(segment.flow)
        if flow.requests.is_over:
            return []
        return flow.take(segment) + self._evict()

    def _evict(self) -> list[bytes]:
        urls: list[bytes] = []
        while len(self._flows) > self._limits.flows:
            _, oldest = self._flows.popitem(last=False)
            self._counts.evicted_flows += 1
            urls += oldest.give_up_waiting()
        return urls


def _distance(start: int, end: int) -> int:
    """How far `end` lies behind `start`, from -2^31 to 2^31 - 1, on the circle of 2^32."""
    return ((end - start + 0x80000000) & 0xFFFFFFFF) - 0x80000000
