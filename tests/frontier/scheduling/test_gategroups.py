"""Groups of gates in memory: they come with the first of their hosts and go with the last."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import GateKey
from anabranch.frontier.outbox import Outbox
from anabranch.frontier.scheduling.gategroups import GateMaker, Groups
from anabranch.frontier.scheduling.gatelines import GateHeap, Group, Line
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.workqueues import Lane, WorkQueue
from anabranch.frontier.stores.messages import LeftGate
from anabranch.frontier.turns import Turn

KEY = GateKey("group:one")
ID = name_id(KEY)


def gate(key: GateKey) -> Gate:
    return Gate(name_id(key), key, Politeness(slots=4))


@dataclass
class Town:
    """Groups, and the hosts that are in memory; every host whose name ends in `.one` belongs to the group."""

    known: bool = True  #: whose address is known
    lines: dict[int, Line] = field(default_factory=dict)
    outbox: Outbox = field(default_factory=lambda: Outbox(0))
    heap: GateHeap = field(default_factory=GateHeap)

    def __post_init__(self) -> None:
        self.groups = Groups(GateMaker(gate, gate, self.group_of), self.outbox, self.heap)

    def group_of(self, host: str) -> GateKey | None:
        return KEY if self.known and host.endswith(".one") else None

    def line(self, host: str) -> Line:
        """The line of a host, with something to serve, that has looked for its group."""
        line = self.lines[name_id(host)] = Line(gate(GateKey(host)), self.heap)
        line.waiting.ask()
        line.waiting.answer([(Turn(1), 1)], 16)
        line.is_loading = False
        self.join(line)
        return line

    def join(self, line: Line) -> None:
        self.groups.join(line, lambda gate_id: self.lines.pop(gate_id, None))

    @property
    def group(self) -> Group:
        (group,) = self.groups
        return group


def test_the_first_host_brings_its_group_and_the_others_join_it() -> None:
    """One gate for all of them, asked for once; nothing passes before its row was read."""
    town = Town()
    hosts = [town.line("a.one"), town.line("b.one")]
    assert [line.group for line in hosts] == [town.group, town.group]
    assert all(line.gate.group is town.group.gate for line in hosts)
    assert (town.group.gate.key, town.group.lines, town.group.is_loading) == (KEY, 2, True)
    assert town.outbox.gates == [town.group]
    assert town.groups.get(ID) is town.group


def test_a_host_of_no_group_stands_alone() -> None:
    """So does one whose address is not known yet; it is asked again, and joins only once."""
    town = Town(known=False)
    alone, late = town.line("a.test"), town.line("a.one")
    assert (alone.group, late.group, list(town.groups)) == (None, None, [])
    town.known = True
    for line in (alone, late, late):
        town.join(line)
    assert (alone.group, late.group, town.group.lines) == (None, town.group, 1)


def test_an_order_without_groups_has_none() -> None:
    """Nobody is asked."""
    groups = Groups(GateMaker(gate, gate, None), Outbox(0), GateHeap())
    line = Line(gate(GateKey("a.one")), GateHeap())
    groups.join(line, lambda _: None)
    assert (groups.exist, line.group, list(groups)) == (False, None, [])
    assert Town().groups.exist


def test_a_host_that_joins_late_brings_its_leases_and_its_questions_along() -> None:
    """They come back through both gates."""
    town = Town(known=False)
    line = town.line("a.one")
    for _ in range(2):
        line.gate.take(1000.0)
    for queue_id in range(3):
        lane = line.lanes[queue_id] = Lane(WorkQueue(queue_id, 1), line, Turn(queue_id), 3000)
        if queue_id:
            lane.ask()
    town.known = True
    town.join(line)
    assert (town.group.gate.out, town.group.asked) == (2, 2)


def test_a_host_that_joins_leaves_the_outer_heap_for_its_groups() -> None:
    """A closed group costs nothing: none of its hosts is looked at."""
    town = Town(known=False)
    line = town.line("a.one")
    line.enlist()
    assert town.heap.first_open(1000.0) is line
    town.known = True
    town.join(line)
    line.enlist()
    assert town.heap.first_open(1000.0) is None, "the group's row was not read"
    town.group.is_loading = False
    town.group.enlist()
    assert town.heap.first_open(1000.0) is line
    town.group.gate.block(2000.0)
    town.group.enlist()
    assert town.heap.first_open(1000.0) is None
    assert town.heap.next_time() == 2000.0


def test_a_group_that_an_operator_named_before_keeps_his_orders() -> None:
    """It stood as a host's line until then; what waits for its row is done to the group."""
    town = Town(known=False)
    named = town.line(KEY)
    named.later.append(lambda changed: changed.block(2000.0))
    town.known = True
    town.line("a.one")
    assert ID not in town.lines
    for change in town.group.later:
        change(town.group.gate)
    assert town.group.gate.blocked_until_s == 2000.0


def test_a_group_goes_with_its_last_host() -> None:
    """Its row is written, and the store told that it left; the next host brings it again."""
    town = Town()
    first, last = town.line("a.one"), town.line("b.one")
    group = town.group
    group.is_loading = False
    group.gate.block(2000.0)
    town.groups.leave(first)
    assert (town.group, town.outbox.batch.left) == (group, [])
    town.groups.leave(last)
    assert list(town.groups) == []
    assert [(row.key, row.blocked_until_s) for row in town.outbox.batch.gates] == [(KEY, 2000.0)]
    assert town.outbox.batch.left == [LeftGate(ID, None, None)]
    town.line("c.one")
    assert town.group is not group


def test_a_group_stays_while_a_lease_is_out_or_its_row_is_on_its_way() -> None:
    """Whoever comes back must find it."""
    for is_loading, out in ((True, 0), (False, 1)):
        town = Town()
        line = town.line("a.one")
        town.group.is_loading, town.group.gate.out = is_loading, out
        town.groups.leave(line)
        assert town.group.lines == 0
        assert town.outbox.batch.left == []


def test_a_host_without_a_group_leaves_none() -> None:
    """Nothing is written."""
    town = Town()
    town.line("a.one")
    town.groups.leave(town.line("a.test"))
    assert (town.group.lines, town.outbox.batch.gates) == (1, [])
