"""Holds: while a service is away, the gates that need it let nothing through. Pure; in memory only.

A hold names a service that many hosts share, such as the name servers or a proxy, and tells which gates need it. The schedule
asks only about a gate that it is about to serve. A held gate leaves the heap, and `lift` returns all of them at once: O(1) for
each gate and outage. Nothing is written to the store, so no hold outlives its process.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.frontier.records import GateKey, name_id
from anabranch.frontier.scheduling.readylist import ReadyList

#: Whether the URLs behind a gate need the service.
Needs = Callable[[GateKey], bool]


class ServiceHold:
    """The gates that one service keeps closed."""

    __slots__ = ("_lets_pass", "_passing", "lines", "needs", "refused")

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.refused: set[int] = set()  #: gates of URLs that met the service while it was away, whatever `needs` says
        self.lines: dict[int, ReadyList] = {}  #: lists out of the heap, by the id of their gate
        self._lets_pass = False  #: the next list may pass …
        self._passing: ReadyList | None = None  #: … which is this one, until a lease of it is taken

    def keeps(self, line: ReadyList) -> bool:
        """Whether this open list is kept; then it leaves its heap."""
        gate = line.gate
        if self._passing is line or not (gate.id in self.refused or self.needs(gate.key)):
            return False
        if self._lets_pass:
            self._lets_pass, self._passing = False, line
            return False
        self.lines[gate.id] = line
        line.hold()
        return True

    def let_pass(self) -> None:
        """Let one lease pass: that of the list that opens first. O(lists)."""
        self._lets_pass, self._passing = True, None
        line = min(self.lines.values(), key=ReadyList.opens_s, default=None)
        if line is not None:
            del self.lines[line.gate.id]
            line.free()

    def taken(self, line: ReadyList) -> None:
        """A lease of this list was taken: its next one does not pass."""
        if self._passing is line:
            self._passing = None


class ServiceHolds:
    """The holds of one schedule, by service."""

    __slots__ = ("_of_service", "are_any")

    def __init__(self) -> None:
        self._of_service: dict[str, ServiceHold] = {}
        self.are_any = False  #: a service is away

    @property
    def have_any(self) -> bool:
        """A gate is held now."""
        return any(hold.lines for hold in self._of_service.values())

    def of(self, gate: GateKey) -> str | None:
        """The service that keeps this gate closed, if one does."""
        gate_id = name_id(gate)
        for service, hold in self._of_service.items():
            if gate_id in hold.lines or gate_id in hold.refused or hold.needs(gate):
                return service
        return None

    def add(self, service: str, needs: Needs) -> None:
        """Hold the gates that need this service. Does nothing if it is held already."""
        if service not in self._of_service:
            self._of_service[service] = ServiceHold(needs)
            self.are_any = True

    def refuse(self, service: str, gate: GateKey) -> None:
        """Hold this gate, too: one of its URLs needed the service. Call it before its lease ends; nothing without a hold."""
        hold = self._of_service.get(service)
        if hold is not None:
            hold.refused.add(name_id(gate))

    def lift(self, service: str) -> None:
        """The service is back: all gates that it held are served again."""
        hold = self._of_service.pop(service, None)
        self.are_any = bool(self._of_service)
        for line in () if hold is None else hold.lines.values():
            line.free()

    def let_pass(self, service: str) -> None:
        """Let one lease pass, which finds out whether the service is back."""
        hold = self._of_service.get(service)
        if hold is not None:
            hold.let_pass()

    def keep(self, line: ReadyList) -> bool:
        """Whether a service keeps this open list; then it leaves its heap until the service is back."""
        return any(hold.keeps(line) for hold in self._of_service.values())

    def taken(self, line: ReadyList) -> None:
        """A lease of this list was taken."""
        for hold in self._of_service.values():
            hold.taken(line)
