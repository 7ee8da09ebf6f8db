"""Limits of workers by domain, and of new and slow hosts: a crawl in virtual time, with workers that fetch at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count

import pytest

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.inspect.audit import check_memory
from anabranch.frontier.order import FrontierOrder, check_numbers
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.sheets import Override, Settings
from anabranch.frontier.records import GateKey, Lease, Outcome, OutcomeKind, name_id
from anabranch.frontier.scheduling.fairness import FairHeap, WorkerLimits
from anabranch.frontier.scheduling.gates import Politeness
from tests.frontier.builder import HASTE, START_S, Rig, build, candidates, pages

QUICK = Politeness(delay_factor=5.0, min_delay_s=0.1, max_delay_s=2.0)
#: A host -> seconds of a fetch, and whether it answers.
Fetch = Callable[[str], tuple[float, bool]]


def crawl(
    seeds: Sequence[str],
    fetch: Fetch,
    *,
    seconds: float,
    workers: int | None = 64,
    links: Callable[[str], Sequence[str]] = lambda _: (),
    **order: object,
) -> tuple[Rig, Counter[str]]:
    """Crawl for so long with 64 workers that never rest; answers the fetches that ended, by host."""
    rig = build(workers=workers, politeness=order.pop("politeness", QUICK), **order)
    rig.add(*seeds)
    done: Counter[str] = Counter()
    out: list[tuple[float, int, Lease, bool]] = []
    for number in count():
        while len(out) < 64 and (lease := rig.core.lease()) is not None:
            took_s, answers = fetch(lease.gate)
            heappush(out, (rig.clock.now_s + took_s, number + len(out) * 10**9, lease, answers))
        at_s = rig.core.wake().at_s if len(out) < 64 else None
        times = [time_s for time_s in (out[0][0] if out else None, at_s) if time_s is not None]
        if not times or min(times) > START_S + seconds:
            break
        rig.clock.advance_to(min(times))
        while out and out[0][0] <= rig.clock.now_s:
            _, _, lease, answers = heappop(out)
            done[lease.gate] += 1
            kind, status = (OutcomeKind.DONE, 200) if answers else (OutcomeKind.FAILED, -2)
            outcome = Outcome(kind, status, lease.since_s, rig.clock.now_s)
            rig.core.finish(lease, outcome, candidates(*links(lease.url)) if answers else ())
    check_memory(rig.parts)
    return rig, done


def good_hosts(domain: str = "good.org") -> list[str]:
    return [url for number in range(10) for url in pages(f"g{number}.{domain}", 400)]


def of(done: Counter[str], part: str) -> int:
    return sum(number for host, number in done.items() if part in host)


def fetch(host: str) -> tuple[float, bool]:
    """Good hosts answer at once, hosts of the wildcard domain soon, others run into the time-out."""
    return (0.03, True) if "good" in host else (0.3, True) if "wild" in host else (20.0, False)


def wild_links(names: int = 3000, each: int = 50) -> Callable[[str], list[str]]:
    chance = random.Random(20261128)
    return lambda url: [f"http://s{chance.randrange(names)}.wild.org/" for _ in range(each)] if "wild" in url else []


ALONE = of(crawl(good_hosts(), fetch, seconds=10)[1], "good")


# Good hosts and bad neighbours


@pytest.mark.parametrize("gates", [10_000, 200, 40])
def test_good_hosts_keep_their_rate_beside_a_domain_with_any_number_of_hosts(gates: int) -> None:
    """Also when its gates are many more than may be in memory."""
    seeds = [*good_hosts(), "http://wild.org/"]
    rig, done = crawl(seeds, fetch, seconds=10, links=wild_links(), gates_in_memory=gates)
    assert of(done, "good") >= 0.9 * ALONE
    assert len(rig.schedule.window) <= gates
    assert of(done, "wild") > 200, "the wildcard domain has its share"


def test_without_the_limits_good_hosts_wait_behind_all_hosts_of_a_domain() -> None:
    _, done = crawl([*good_hosts(), "http://wild.org/"], fetch, seconds=10, links=wild_links(), workers=None)
    assert of(done, "good") < 0.5 * ALONE


@pytest.mark.parametrize("is_mixed", [True, False])
def test_good_hosts_keep_their_rate_beside_hosts_that_never_answer(is_mixed: bool) -> None:
    """Each of a domain of its own; whoever comes first."""
    slow, good = [f"http://slow{number}.net{number}.org/" for number in range(244)], good_hosts()
    seeds = [url for pair in zip(slow[:240:24], good[::400], strict=True) for url in pair] if is_mixed else []
    _, done = crawl([*seeds, *good, *slow], fetch, seconds=10)
    assert of(done, "good") >= 0.9 * ALONE


def test_good_hosts_keep_their_rate_beside_hosts_that_answer_slowly() -> None:
    """Also when these come first."""
    slow = [url for number in range(244) for url in pages(f"slow{number}.net{number}.org", 20)]
    took = lambda host: (0.03 if "good" in host else 3.0, True)  # noqa: E731
    _, done = crawl([*slow[:100], *good_hosts(), *slow[100:]], took, seconds=10)
    assert of(done, "good") >= 0.9 * ALONE


def test_fast_hosts_that_need_all_workers_get_three_quarters_beside_slow_ones() -> None:
    good = [url for number in range(200) for url in pages(f"good{number}.org", 20)]
    slow = [f"http://slow{number}.net{number}.org/" for number in range(244)]
    took = lambda host: (0.5, True) if "good" in host else (20.0, False)  # noqa: E731
    alone = of(crawl(good, took, seconds=10)[1], "good")
    _, done = crawl([*slow[:30], *good, *slow[30:]], took, seconds=10)
    assert of(done, "good") >= 0.7 * alone


def test_good_hosts_of_domains_of_their_own_keep_their_rate_beside_both() -> None:
    good = [url for number in range(10) for url in pages(f"good{number}.org", 400)]
    slow = [f"http://slow{number}.net{number}.org/" for number in range(244)]
    _, done = crawl([*good, "http://wild.org/", *slow], fetch, seconds=10, links=wild_links())
    assert of(done, "good") >= 0.9 * ALONE


def test_a_good_host_that_is_found_late_is_served_though_the_window_is_full_of_another_domain() -> None:
    rig, _ = crawl(["http://wild.org/"], fetch, seconds=3, links=wild_links(), gates_in_memory=100)
    assert rig.schedule.window.stored.more
    rig.add(*pages("late.good.org", 50))
    assert rig.schedule.window.get(name_id("late.good.org")) is not None
    assert len(rig.schedule.window) <= 100


def test_a_good_host_that_has_spent_its_session_stays_in_memory() -> None:
    """The gates of the other domain that are rows do not come before it."""
    from anabranch.frontier.policies.budgets import Budgets

    seeds = [*good_hosts(), "http://wild.org/"]
    budgets = Budgets(balance_replenish=5)
    rig, done = crawl(seeds, fetch, seconds=10, links=wild_links(), gates_in_memory=60, budgets=budgets)
    assert of(done, "good") >= 0.9 * ALONE
    assert all(rig.schedule.window.get(name_id(f"g{number}.good.org")) for number in range(10))


def test_gates_behind_those_of_a_domain_in_the_store_come_into_memory() -> None:
    """After an opening all gates are rows of the store."""
    rig = build(gates_in_memory=100)  # without limits: the store has the gates in the order of their arrival
    rig.add(*(f"http://s{number}.wild.org/" for number in range(200)), *pages("g1.good.org", 3))
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, workers=8, gates_in_memory=100, politeness=HASTE)
    served: list[str] = []
    while not any("good" in host for host in served[-7:]):
        leases = [again.settled() for _ in range(7)]
        served += [lease.gate for lease in leases]
        again.clock.advance(2.0)
        for lease in leases:
            again.finish(lease)
        assert len(served) < 100


# No worker idles for a limit


@pytest.mark.parametrize("others", [0, 30])
def test_one_portal_occupies_all_workers(others: int) -> None:
    """Also beside hosts that are blocked."""
    portal = [url for number in range(300) for url in pages(f"p{number}.portal.org", 20)]
    quick = lambda host: (0.5, True)  # noqa: E731
    _, plain = crawl(portal, quick, seconds=20, workers=None)
    rig = build(workers=64, politeness=QUICK)
    rig.add(*portal, *(f"http://b{number}.org/" for number in range(others)))
    for number in range(others):
        rig.block(f"b{number}.org", START_S + 1e6)
    _, done = crawl(portal, quick, seconds=20)
    assert of(done, "portal") >= 0.99 * of(plain, "portal") - 64 // 8
    assert sum(lease is not None for lease in [rig.core.lease() for _ in range(64)]) >= 56


def test_one_portal_of_slow_hosts_occupies_all_workers() -> None:
    """Nothing is kept for others while there are none."""
    portal = [url for number in range(300) for url in pages(f"p{number}.portal.org", 5)]
    took = lambda host: (2.0, True)  # noqa: E731
    _, plain = crawl(portal, took, seconds=20, workers=None)
    _, done = crawl(portal, took, seconds=20)
    assert of(done, "portal") == of(plain, "portal")


def test_domains_are_not_looked_up_while_no_limit_is_near() -> None:
    """So a small crawl needs no list of public suffixes."""
    rig = build(workers=64, politeness=HASTE)
    rig.add(*(f"http://h{number}.site.org/" for number in range(7)))
    assert len(rig.lease_all()) == 7
    assert rig.lease() is None
    assert not fair_of(rig).domains
    rig.add("http://h7.site.org/", "http://h8.site.org/")
    assert len(rig.lease_all()) == 2
    assert leases_of(rig, "site.org") == 9


def test_a_host_that_has_nothing_to_serve_gives_its_place_to_another_of_its_domain() -> None:
    """Though a third domain keeps the workers busy: no host that is set aside is forgotten."""
    rig = build(workers=8, politeness=HASTE)
    rig.add(*(f"http://h{number}.site.org/" for number in range(4)), *pages("other.org", 3))
    leases = [rig.settled() for _ in range(2)]
    assert sorted(lease.gate for lease in leases) == ["h0.site.org", "other.org"]
    rig.block("h1.site.org", START_S + 1e6)
    rig.fetch(next(lease for lease in leases if "site" in lease.gate), 0.1)
    assert rig.settled().gate == "h2.site.org"


def test_a_host_whose_service_is_away_gives_its_place_to_another_of_its_domain() -> None:
    """Though there is always an open host of another domain."""
    rig = build(workers=8, politeness=HASTE)
    rig.add(*(f"http://h{number}.site.org/" for number in range(3)), *pages("other.org", 30))
    first = [rig.settled() for _ in range(2)]
    rig.schedule.holds.add("proxy", lambda gate: gate == "h1.site.org")
    for lease in first:
        rig.fetch(lease, 0.1)
    served = []
    for _ in range(10):
        lease = rig.settled()
        served.append(lease.gate)
        rig.fetch(lease, 0.01)
    assert "h2.site.org" in served


def test_two_portals_have_half_of_the_workers_each() -> None:
    portals = [f"http://h{number}.{name}.org/" for name in ("one", "two") for number in range(400)]
    _, done = crawl(portals, lambda _: (0.5, True), seconds=5)
    assert abs(of(done, ".one.") - of(done, ".two.")) <= 64
    assert sum(done.values()) >= 600


def test_hosts_of_domains_of_their_own_are_served_as_without_limits() -> None:
    hosts = [url for number in range(1000) for url in pages(f"host{number}.org", 2)]
    quick = lambda host: (0.5, True)  # noqa: E731
    _, plain = crawl(hosts, quick, seconds=20, workers=None)
    _, done = crawl(hosts, quick, seconds=20)
    assert sum(done.values()) >= 0.97 * sum(plain.values())


def test_hosts_that_never_answer_occupy_all_workers_in_the_end_if_there_are_no_others() -> None:
    rig = build(workers=8)
    rig.add(*(f"http://slow{number}.net{number}.org/" for number in range(20)))
    leases = rig.lease_all()
    assert len(leases) == 7
    at_s = rig.core.wake().at_s
    assert at_s == START_S + 1.0, "a fast host would have answered by then"
    rig.clock.advance_to(at_s)
    assert len(rig.lease_all()) == 1


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_few_workers_serve_every_host(workers: int) -> None:
    urls = [f"http://{name}{number}.{name}.org/" for name in ("a", "b") for number in range(5)]
    rig = build(workers=workers, politeness=HASTE)
    rig.add(*urls)
    assert sorted(rig.drain()) == sorted(urls)


def test_a_host_has_all_its_connections_however_few_the_workers_are() -> None:
    """Up to half of them, also while another domain is active."""
    many = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=6)
    one = Override(("http://(org,a,",), Settings(max_connections=1))
    rig = build(workers=8, politeness=many, per_queue=6, overrides=(one,))
    rig.add(*pages("a.org", 3), *pages("b.org", 9))
    for _ in range(2):
        rig.fetch(rig.settled(), 0.1)
    assert Counter(lease.gate for lease in rig.lease_all()) == {"a.org": 1, "b.org": 4}


# Whose limit


def domain_of_host(rig: Rig, host: str) -> tuple[str, int]:
    heap = rig.parts.schedule.window.heap
    domain = None if heap.domains is None else heap.domains.by_gate.get(name_id(host))
    assert domain is not None
    return domain.key, domain.limit


def test_private_suffixes_and_addresses_separate_and_an_override_raises_a_limit() -> None:
    wide = Override(("http://(com,portal,",), Settings(domain_workers=0.5))
    rig = build(workers=100, overrides=(wide,))
    hosts = [
        "a.github.io",
        "b.github.io",
        "192.0.2.1",
        "192.0.2.2",
        "a.example.co.uk",
        "b.example.co.uk",
        "w.portal.com",
    ]
    rig.add(*(f"http://{host}/" for host in hosts))
    fair_of(rig).count_all()
    assert [domain_of_host(rig, host) for host in hosts] == [
        ("a.github.io", 12),
        ("b.github.io", 12),
        ("192.0.2.1", 12),
        ("192.0.2.2", 12),
        ("example.co.uk", 12),
        ("example.co.uk", 12),
        ("portal.com", 50),
    ]


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"workers": 10, "worker_limits": WorkerLimits(domain=1.0, slow=1.0)},
        {"workers": 10, "scope": PolitenessScope.QUEUE},
    ],
)
def test_without_workers_or_limits_or_hosts_nothing_is_limited(order: dict[str, object]) -> None:
    assert not isinstance(build(**order).schedule.window.heap, FairHeap)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"workers": 0}, "workers 0"),
        ({"worker_limits": WorkerLimits(domain=0.0)}, "domain 0"),
        ({"worker_limits": WorkerLimits(slow=1.5)}, "slow 1.5"),
        ({"worker_limits": WorkerLimits(slow_s=0.0)}, "slow_s 0"),
    ],
)
def test_limits_that_make_no_sense_are_refused(order: dict[str, object], reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        check_numbers(FrontierOrder(**order))  # type: ignore[arg-type]


# Counts


def fair_of(rig: Rig) -> FairHeap:
    heap = rig.schedule.window.heap
    assert isinstance(heap, FairHeap)
    return heap


def leases_of(rig: Rig, domain: str) -> int:
    found = fair_of(rig).domains.of(domain)
    assert found is not None
    return found.out


def test_workers_on_new_and_slow_hosts_are_counted() -> None:
    rig = build(workers=8, politeness=HASTE)
    rig.add(*pages("a.org", 3), *pages("b.org", 3))
    first, second = rig.lease_now(), rig.lease_now()
    assert rig.core.counts().on_slow_hosts == 2
    rig.fetch(first, 0.5)
    assert rig.core.counts().on_slow_hosts == 1
    rig.fetch(second, 5.0)
    assert rig.core.counts().on_slow_hosts == 0
    again = [rig.lease_now(), rig.lease_now()]
    assert rig.core.counts().on_slow_hosts == 1, "the host that took 5 s"
    for lease in again:
        rig.fetch(lease, 0.1)
    assert rig.core.counts().on_slow_hosts == 0


def test_a_released_lease_is_given_back_to_its_domain() -> None:
    rig = build(workers=8, politeness=HASTE)
    rig.add(*pages("a.org", 2))
    fair_of(rig).count_all()
    lease = rig.lease_now()
    assert leases_of(rig, "a.org") == 1
    rig.release(lease)
    assert leases_of(rig, "a.org") == 0
    assert rig.core.counts().on_slow_hosts == 0


def test_a_host_that_answered_fast_is_known_as_such_when_its_row_is_read_again() -> None:
    rig = build(workers=8)
    rig.add(*pages("a.org", 2), *pages("b.org", 2))
    rig.fetch(rig.lease_now(), 0.1)
    rig.fetch(rig.lease_now(), 9.0)
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, workers=8)
    again.clock.advance(100.0)
    leases = again.lease_all()
    assert len(leases) == 2
    assert again.core.counts().on_slow_hosts == 1


def test_hosts_of_a_group_are_counted_for_their_domain_and_classed_together() -> None:
    rig = build(workers=8, group="domain", group_politeness=HASTE, politeness=HASTE)
    rig.add("http://a.one.org/", "http://b.one.org/")
    lease = rig.lease_now()
    fair_of(rig).count_all()
    group = rig.schedule.window.groups[name_id(GateKey("domain:one.org"))]
    assert leases_of(rig, "one.org") == 1
    assert rig.core.counts().on_slow_hosts == 1
    rig.fetch(lease)
    assert leases_of(rig, "one.org") == 0
    rig.lease_now()
    assert group.is_fast
    assert rig.core.counts().on_slow_hosts == 0
