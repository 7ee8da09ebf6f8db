"""A service that many hosts share is away: nothing that needs it is leased, and all of it comes back at once."""

from __future__ import annotations

from anabranch.frontier.records import GateKey, WaitsFor
from tests.frontier.builder import HASTE, CountingStore, Rig, build

HOSTS = [f"h{number}.test" for number in range(5)]


def rig_with(*hosts: str, pages: int = 2, **order: object) -> Rig:
    """A Frontier with a few pages of each host, and no rests to speak of."""
    rig = build(politeness=HASTE, **order)
    rig.add(*(f"http://{host}/{page}" for page in range(pages) for host in hosts))
    return rig


def test_nothing_that_needs_the_service_is_leased_while_it_is_away() -> None:
    """The others go on."""
    rig = rig_with(*HOSTS)
    rig.core.holds.add("name servers", lambda gate: gate != "h3.test")
    assert [lease.split("/")[2] for lease in rig.drain()] == ["h3.test"] * 2
    assert rig.core.pending == 8
    assert rig.core.wake() == (None, WaitsFor.SERVICE)


def test_all_come_back_at_once_when_the_service_does() -> None:
    """Each URL once, without a look at the clock."""
    rig = rig_with(*HOSTS)
    rig.core.holds.add("network", lambda _: True)
    assert rig.lease_all() == []
    rig.core.holds.lift("network")
    assert len(rig.lease_all()) == len(HOSTS)


def test_a_held_gate_costs_one_look_an_outage() -> None:
    """It leaves the heap: whatever asks for a lease meanwhile does not see it again, and no row is written."""
    store = CountingStore()
    rig = rig_with(*HOSTS, store=store)
    looks: list[GateKey] = []
    under_way = rig.lease_now()
    rig.core.holds.add("network", lambda gate: looks.append(gate) or True)
    before = len(store.batches)
    for _ in range(20):
        assert rig.lease() is None
    rig.add(*(f"http://{host}/more" for host in HOSTS))
    rig.release(under_way)
    for _ in range(20):
        assert rig.lease() is None
    assert sorted(looks) == HOSTS
    assert all(not batch.gates for batch in store.batches[before:])


def test_a_gate_is_held_after_one_of_its_urls_met_the_service() -> None:
    """Though `needs` denies: else its URLs were leased and given back for ever."""
    rig = rig_with("a.test")
    rig.core.holds.add("proxy", lambda _: False)
    lease = rig.lease_now()
    rig.core.holds.refuse("proxy", GateKey("a.test"))
    rig.release(lease)
    assert rig.lease_all() == []
    rig.core.holds.lift("proxy")
    assert rig.lease_now().url == lease.url


def test_a_gate_that_needs_two_services_waits_for_both() -> None:
    """In whichever order they come back."""
    for first, second in (("one", "two"), ("two", "one")):
        rig = rig_with("a.test")
        rig.core.holds.add("one", lambda _: True)
        rig.core.holds.add("two", lambda _: True)
        assert rig.lease_all() == []
        rig.core.holds.lift(first)
        assert rig.lease_all() == []
        rig.core.holds.lift(second)
        assert rig.lease_now()


def test_one_lease_may_pass_to_find_out_whether_the_service_is_back() -> None:
    """One only, also of a host whose URLs come later."""
    rig = rig_with(*HOSTS)
    rig.core.holds.add("mine", lambda _: True)
    assert rig.lease_all() == []
    rig.core.holds.let_pass("mine")
    (lease,) = rig.lease_all()
    rig.core.holds.refuse("mine", lease.gate)
    rig.release(lease)
    assert rig.lease_all() == []


def test_a_group_of_hosts_is_held_as_its_hosts_are() -> None:
    """A host that the service holds leaves the heap of its group; another one of the group is served."""
    rig = build(politeness=HASTE, group="domain")
    rig.add("http://a.held.test/", "http://b.held.test/")
    rig.core.holds.add("name servers", lambda gate: gate == "a.held.test")
    assert rig.drain() == ["http://b.held.test/"]
    rig.core.holds.lift("name servers")
    assert rig.drain() == ["http://a.held.test/"]


def test_a_gate_that_leaves_memory_is_held_again_when_it_is_read_again() -> None:
    """And comes back with the others."""
    rig = rig_with(*HOSTS)
    rig.core.holds.add("network", lambda _: True)
    assert rig.lease_all() == []
    rig.schedule.window.leave_all(rig.clock.now_s)
    assert rig.lease_next() is None
    rig.core.holds.lift("network")
    assert len(rig.drain()) == 2 * len(HOSTS)
