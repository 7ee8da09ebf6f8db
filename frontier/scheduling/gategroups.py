"""The groups of gates that are in memory: they come with the first of their hosts and go with the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import GateKey
from anabranch.frontier.outbox import Outbox
from anabranch.frontier.scheduling.gatelines import GateHeap, Group, Line
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.stores.messages import LeftGate


class GateMaker:
    """Makes gates from keys: which politeness a host has, and which group it belongs to."""

    def __init__(
        self,
        host_gate: Callable[[GateKey], Gate],
        group_gate: Callable[[GateKey], Gate],
        group_of: Callable[[str], GateKey | None] | None,
    ) -> None:
        self._host_gate = host_gate
        self.group_gate = group_gate
        self.group_of = group_of  #: the second gate of a host; None = there are no groups
        #: Makes a host's new gate stand as elsewhere, see `Looking.beside`; None = nothing is known of elsewhere.
        self.stand: Callable[[Gate], None] | None = None

    def host_gate(self, key: GateKey) -> Gate:
        """A new gate of a host."""
        gate = self._host_gate(key)
        if self.stand is not None:
            self.stand(gate)
        return gate


class Groups:
    """Groups by the id of their gate. Every operation costs O(1)."""

    def __init__(self, maker: GateMaker, outbox: Outbox, heap: GateHeap) -> None:
        self._maker = maker
        self._outbox = outbox
        self._heap = heap
        self._groups: dict[int, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    @property
    def exist(self) -> bool:
        """Hosts may belong to a group."""
        return self._maker.group_of is not None

    def get(self, gate_id: int) -> Group | None:
        """The group with this gate, if it is in memory."""
        return self._groups.get(gate_id)

    def join(self, line: Line, take_out: Callable[[int], Line | None]) -> None:
        """Find the group that the line's host belongs to, if that is known by now.

        `take_out` takes a gate's line out of memory: an operator may have named the group before any of its hosts came.
        """
        group_of = self._maker.group_of
        key = group_of(line.gate.key) if group_of is not None and line.group is None else None
        if key is None:
            return
        group = self._groups.get(name_id(key)) or self._load(key, take_out)
        group.lines += 1
        group.asked += sum(lane.is_asked for lane in line.lanes.values())
        group.gate.out += line.gate.out  # its leases that are out come back through both gates
        line.group = group
        line.gate.group = group.gate
        line.entry = line.turn = None  # it stands in the group's heap from now on

    def leave(self, line: Line) -> None:
        """The line leaves memory, and its group with the last line."""
        group = line.group
        if group is None:
            return
        group.lines -= 1
        if not group.lines and not group.gate.out and not group.is_loading:
            group.entry = None
            del self._groups[group.gate.id]
            self._outbox.batch.gates.append(group.gate.row())
            self._outbox.batch.left.append(LeftGate(group.gate.id, None, None))

    def _load(self, key: GateKey, take_out: Callable[[int], Line | None]) -> Group:
        group_id = name_id(key)
        group = self._groups[group_id] = Group(self._maker.group_gate(key), self._heap)
        self._outbox.gates.append(group)
        named = take_out(group_id)
        if named is not None:
            group.later, named.entry = named.later, None
        return group
