"""The domains of the hosts in memory, and those that crowd the window."""

from __future__ import annotations

from anabranch.frontier.records import GateKey, Turn, turn_of
from anabranch.frontier.scheduling.domains import LONGEST_SWAP_S, SPREAD, SWAP_S, Domains
from anabranch.frontier.scheduling.gates import GateMaker, Politeness
from anabranch.frontier.scheduling.heaps import GateHeap
from anabranch.frontier.scheduling.readylist import ReadyList

TURN = turn_of(3, 7)
MAKER = GateMaker(Politeness(), Politeness())


def line(host: str) -> ReadyList:
    return ReadyList(MAKER.host_gate(GateKey(host)), GateHeap())


def crowded(gates: int = 32) -> tuple[Domains, list[ReadyList]]:
    """`wild.org` crowds a window of so many gates; `small.org` has one host there."""
    domains = Domains(gates)
    lines = [line(f"s{number}.wild.org") for number in range(gates // 16 + 1)]
    for one in [*lines, line("small.org")]:
        domains.add(one, 8)
    return domains, lines


def behind(turn: Turn) -> int:
    return (turn - TURN) // SPREAD


def test_a_domain_crowds_the_window_with_more_than_a_sixteenth_of_its_gates_until_some_leave() -> None:
    domains, lines = crowded()
    assert domains.crowd is domains.of("any.wild.org")
    domains.remove(lines[0])
    assert domains.crowd is None
    for one in lines[1:]:
        domains.remove(one)
    assert domains.of("wild.org") is None
    assert len(domains) == 1


def test_a_crowd_keeps_out_hosts_of_domains_with_less_than_half_as_many_gates() -> None:
    domains, _ = crowded(64)
    crowd = domains.crowd
    assert crowd is not None
    assert domains.crowd_before(GateKey("new.example")) is crowd
    assert domains.crowd_before(GateKey("small.org")) is crowd
    assert domains.crowd_before(GateKey("s9.wild.org")) is None
    domains.add(line("a.small.org"), 8)
    domains.add(line("b.small.org"), 8)
    assert domains.crowd_before(GateKey("small.org")) is None, "3 of 5"


def test_each_gate_of_a_crowd_goes_to_the_store_behind_those_that_went_before() -> None:
    domains, _ = crowded()
    assert [behind(domains.spread(gate, GateKey(f"t{gate}.wild.org"), TURN)) for gate in (1, 2, 3)] == [0, 1, 2]
    assert domains.spread(4, GateKey("small.org"), TURN) == TURN


def test_a_gate_in_the_store_counts_once_however_many_urls_it_gets() -> None:
    domains, _ = crowded()
    for _ in range(50):
        domains.spread(1, GateKey("t1.wild.org"), TURN)
    assert behind(domains.spread(2, GateKey("t2.wild.org"), TURN)) == 1


def test_a_gate_that_was_read_again_counts_no_more() -> None:
    domains, lines = crowded()
    for one in lines:
        domains.spread(one.gate.id, one.gate.key, TURN)
    for one in lines:
        domains.note_read(one)
    assert behind(domains.spread(1, GateKey("t1.wild.org"), TURN)) == 0


def test_no_more_gates_in_the_store_are_remembered_than_may_be_in_memory() -> None:
    domains, _ = crowded(32)
    for gate in range(100):
        turn = domains.spread(gate, GateKey(f"t{gate}.wild.org"), TURN)
    assert behind(turn) == 32


def test_exchanges_of_gates_that_bring_nothing_come_later_and_later() -> None:
    domains, _ = crowded()
    now_s, waits = 100.0, []
    for _ in range(20):
        domains.swap_began(now_s, is_asked=True)
        assert domains.crowd_to_swap(now_s + 1e6) is None, "until it is answered"
        domains.swap_answered([GateKey("s1.wild.org")], now_s)
        waits.append(SWAP_S if not waits else min(waits[-1] * 1.5, LONGEST_SWAP_S))
        assert domains.crowd_to_swap(now_s + waits[-1] - 0.01) is None
        now_s += waits[-1]
        assert domains.crowd_to_swap(now_s) is domains.crowd
    domains.swap_began(now_s, is_asked=True)
    domains.swap_answered([GateKey("new.example")], now_s)
    assert domains.crowd_to_swap(now_s + SWAP_S) is domains.crowd
