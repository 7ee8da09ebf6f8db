"""None"""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest

from anabranch.crawler.lab.web.ledger import (
    HostAccount,
    HostAccounts,
    HostEntry,
    PolitenessLedger,
    PolitenessRule,
    ledger_table,
)


def noted(*visits: tuple[float, float], rule: PolitenessRule, crawl_delay_s: float | None = None) -> HostEntry:
    """The account of requests (start, end) to one host."""
    books = HostAccount("a.test", rule, crawl_delay_s)
    moments = [(start, 1, start, end) for start, end in visits] + [(end, 0, start, end) for start, end in visits]
    for now_s, starts, start, _ in sorted(moments):
        if starts:
            books.begin(now_s)
        else:
            books.end(start, now_s, 100)
    return books.entry()


def ledger_of(*entries: HostEntry, rule: PolitenessRule | None = None) -> PolitenessLedger:
    return PolitenessLedger(
        rule=rule or PolitenessRule(), hosts=entries, strangers=0, wall_s=2.0, cpu_s=0.5, longest_lag_s=0.001
    )


def test_one_after_the_other_with_a_rest_is_in_order() -> None:
    """The gap is from an end to the next start."""
    entry = noted((1.0, 2.0), (2.5, 3.0), (3.75, 4.0), rule=PolitenessRule(min_delay_s=0.5))
    assert (entry.requests, entry.most_at_once, entry.too_many, entry.too_early) == (3, 1, 0, 0)
    assert entry.shortest_gap_s == 0.5
    assert entry.shortest_start_gap_s == 1.25
    assert entry.starts_per_s == pytest.approx(2 / 2.75)
    assert entry.size_bytes == 300


def test_more_at_once_than_slots_is_a_breach() -> None:
    """Each start while all slots are taken counts."""
    entry = noted((1.0, 5.0), (2.0, 5.0), (3.0, 5.0), rule=PolitenessRule(slots=2))
    assert (entry.most_at_once, entry.too_many) == (3, 1)


def test_a_start_before_its_slot_has_rested_is_a_breach() -> None:
    """The rest is that of the rule; a little less is too little."""
    rule = PolitenessRule(min_delay_s=0.5)
    assert noted((1.0, 2.0), (2.499, 3.0), rule=rule).too_early == 1
    assert noted((1.0, 2.0), (2.5, 3.0), rule=rule).too_early == 0


def test_a_long_request_is_owed_a_long_rest() -> None:
    """The factor of its time, between the bounds."""
    rule = PolitenessRule(delay_factor=5.0, min_delay_s=0.5, max_delay_s=3.0)
    assert [rule.rest_s(took_s) for took_s in (0.01, 0.2, 60.0)] == [0.5, 1.0, 3.0]
    assert noted((1.0, 1.2), (2.1, 2.2), rule=rule).too_early == 1
    assert noted((1.0, 1.2), (2.2, 2.3), rule=rule).too_early == 0


def test_with_two_slots_the_one_that_is_free_longer_is_taken() -> None:
    """Two starts may follow each other at once; the third waits for the first slot's rest, not the second's."""
    rule = PolitenessRule(slots=2, min_delay_s=1.0)
    entry = noted((1.0, 2.0), (1.1, 2.8), (3.0, 3.9), (3.8, 4.0), rule=rule)
    assert (entry.too_many, entry.too_early, entry.shortest_gap_s) == (0, 0, pytest.approx(1.0))
    assert noted((1.0, 2.0), (1.1, 2.8), (3.0, 3.9), (3.7, 4.0), rule=rule).too_early == 1


def test_a_start_beside_one_in_service_takes_the_slot_that_ended_last() -> None:
    """The other slot is held by what is in service, so its earlier ends say nothing."""
    rule = PolitenessRule(slots=2, min_delay_s=1.0)
    entry = noted((1.0, 9.0), (1.0, 2.0), (2.5, 3.0), rule=rule)
    assert (entry.too_early, entry.shortest_gap_s) == (1, 0.5)


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_whoever_keeps_slots_with_rests_is_in_order(slots: int, seed: int) -> None:
    """A client that lays requests into k slots, each at rest after each, is never accused, whichever slots it takes."""
    dice, rule = random.Random(seed), PolitenessRule(slots=slots, delay_factor=2.0, min_delay_s=0.2, max_delay_s=1.0)
    free, visits, now_s = [0.0] * slots, [], 0.0
    for _ in range(400):
        slot = dice.randrange(slots)
        now_s = max(now_s, free[slot]) + dice.expovariate(20.0)
        end_s = now_s + dice.expovariate(3.0)
        visits.append((now_s, end_s))
        free[slot] = end_s + rule.rest_s(end_s - now_s)
    entry = noted(*visits, rule=rule)
    assert (entry.too_many, entry.too_early) == (0, 0)
    assert entry.shortest_gap_s is not None
    assert entry.shortest_gap_s >= 0.2


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_the_count_agrees_with_a_count_of_overlaps(slots: int) -> None:
    """It accuses exactly those random requests at whose start too many others run or rest."""
    dice, rule = random.Random(slots), PolitenessRule(slots=slots, delay_factor=1.0, min_delay_s=0.1, max_delay_s=0.5)
    starts = sorted(dice.uniform(0.0, 60.0) for _ in range(300))
    visits = [(start, start + dice.expovariate(5.0)) for start in starts]
    held = [(start, end + rule.rest_s(end - start)) for start, end in visits]
    accused = sum(sum(begun < start < free for begun, free in held) >= slots for start in starts)
    entry = noted(*visits, rule=rule)
    assert 0 < accused == entry.too_many + entry.too_early


def test_a_crawl_delay_parts_starts_whatever_the_slots() -> None:
    """robots.txt itself, from which it is learnt, does not count."""
    books = HostAccount("a.test", PolitenessRule(slots=8), 1.0)
    for now_s, is_robots in ((1.0, True), (1.5, False), (2.5, False), (3.4, False)):
        books.begin(now_s, is_robots=is_robots)
        books.end(now_s, now_s + 0.01, 1)
    assert books.entry().too_early == 1
    assert books.entry().shortest_start_gap_s == pytest.approx(0.9)


def aborted(rule: PolitenessRule, *visits: tuple[float, float]) -> HostEntry:
    """The account of requests whose client went away at their end."""
    books = HostAccount("a.test", rule, None)
    for now_s, end_s in visits:
        books.begin(now_s)
        books.end(now_s, end_s, 0, is_gone=True)
    return books.entry()


def test_a_client_that_went_away_is_noticed_late() -> None:
    """Its end is known to some milliseconds only, so the rest after it is asked with that slack, and no more."""
    entry = aborted(PolitenessRule(min_delay_s=1.0), (1.0, 2.0), (2.981, 3.0), (3.979, 4.0))
    assert (entry.gone, entry.too_early) == (3, 1)


@pytest.mark.parametrize(
    ("took_s", "excuse_s"),
    [
        (0.001, 0.005),  # a tenth of the least rest
        (0.05, 0.025),  # a tenth of 250 ms; the request was up to 20 ms shorter, its rest 100 ms
        (0.115, 0.045),  # 500 ms, which 95 ms make 475 ms
        (60.0, 0.02),  # the longest rest, whatever it took
    ],
)
def test_a_late_notice_makes_a_request_and_its_rest_longer(took_s: float, excuse_s: float) -> None:
    """Both are excused, up to a tenth of the rest."""
    rule = PolitenessRule(delay_factor=5.0, min_delay_s=0.05, max_delay_s=0.5)
    assert rule.excuse_s(took_s) == pytest.approx(excuse_s)


@pytest.mark.parametrize("slots", [1, 4])
def test_a_client_that_aborts_again_and_again_is_found(slots: int) -> None:
    """A hundred requests half a millisecond apart, each of which is owed 50 ms: going away is no way round a rest."""
    entry = aborted(
        PolitenessRule(slots=slots, min_delay_s=0.05),
        *((number * 0.0005, number * 0.0005 + 0.0004) for number in range(100)),
    )
    assert (entry.gone, entry.too_early) == (100, 100 - slots)


def test_the_verdict_says_kept_with_the_worst_that_was_seen() -> None:
    """And broken with where and how often; one host is enough."""
    rule = PolitenessRule(slots=2, delay_factor=5.0, min_delay_s=0.05, max_delay_s=0.5)
    good = noted((1.0, 1.1), (1.0, 1.1), (2.0, 2.1), rule=rule)._replace(host="good.test")
    bad = noted((1.0, 1.1), (1.0, 1.1), (1.05, 1.1), (1.2, 1.3), rule=rule)._replace(host="bad.test")
    kept = ledger_of(good, rule=rule)
    assert kept.is_kept
    assert "kept on 1 hosts" in kept.verdict()
    assert "the most at once was 2, the shortest gap was 900.0 ms" in kept.verdict()
    broken = ledger_of(good, bad, rule=rule)
    assert not broken.is_kept
    assert broken.broken == (bad,)
    assert "BROKEN on 1 of 2 hosts" in broken.verdict()
    assert "1 starts too many at once, 1 too early; worst bad.test with 3 at once" in broken.verdict()


def test_a_ledger_says_how_busy_the_server_was() -> None:
    """CPU seconds per second: near 1 the server is what was measured."""
    assert ledger_of().busy == 0.25
    assert ledger_of().requests == 0
    assert "no slot was used twice" in ledger_of().verdict()


def test_the_books_are_bounded_whatever_is_asked() -> None:
    """A hundred thousand requests take no more memory than a few."""
    books = HostAccounts({"a.test": None}, PolitenessRule(slots=4), lambda: 0.0)

    def ask(times: int) -> None:
        for number in range(times):
            books.of("a.test").begin(number)
            books.of("a.test").end(number, number + 0.5, 1)

    ask(100)
    tracemalloc.start()
    try:
        ask(20_000)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown < 10_000
    assert books.ledger().requests == 20_100


def test_the_busiest_host_stands_first() -> None:
    """Hosts with equally many requests are sorted by name."""
    now_s = iter(range(sys.maxsize))
    books = HostAccounts({"b.test": 2.0}, PolitenessRule(), lambda: float(next(now_s)))
    for host in ("a.test", "c.test", "b.test", "c.test"):
        books.of(host).begin(0.0)
    ledger = books.ledger()
    assert [(entry.host, entry.requests, entry.crawl_delay_s) for entry in ledger.hosts] == [
        ("c.test", 2, None),
        ("a.test", 1, None),
        ("b.test", 1, 2.0),
    ]
    assert ledger.wall_s == 1.0


def entry(host: str, requests: int, *, together: int = 1) -> HostEntry:
    """So many requests of a second, one each two seconds, or so many together."""
    books = HostAccount(host, PolitenessRule(), None)
    for number in range(requests):
        for _ in range(together):
            books.begin(2.0 * number)
        for _ in range(together):
            books.end(2.0 * number, 2.0 * number + 1, 5_000)
    return books.entry()


def shown_ledger(*entries: HostEntry, strangers: int = 0) -> PolitenessLedger:
    return PolitenessLedger(
        rule=PolitenessRule(), hosts=entries, strangers=strangers, wall_s=10.0, cpu_s=2.5, longest_lag_s=0.012
    )


def test_a_row_says_what_the_host_has_borne() -> None:
    """Gaps in milliseconds, bodies in kilobytes; the note says how busy the server was."""
    table = ledger_table(shown_ledger(entry("a.test", 3), entry("b.test", 1)))
    assert table.rows[0] == ("a.test", 3, 1, 1000.0, 2000.0, 0.5, 15, 0, 0, 0)
    assert table.rows[1] == ("b.test", 1, 1, None, None, None, 5, 0, 0, 0)
    assert "took 25% of a core and was at worst 12.0 ms late." in table.note
    assert "does not have" not in table.note


def test_who_was_wronged_stands_first() -> None:
    """Whatever its size."""
    table = ledger_table(shown_ledger(entry("large.test", 9), entry("wronged.test", 1, together=2)))
    assert [row[0] for row in table.rows] == ["wronged.test", "large.test"]
    assert table.rows[0][-2] == 1


def test_small_hosts_share_a_row() -> None:
    """With their sums, and the worst of them."""
    hosts = [entry(f"h{number}.test", 5 - number) for number in range(5)]
    table = ledger_table(shown_ledger(*hosts, strangers=2), rows=2)
    assert [row[:3] for row in table.rows] == [("h0.test", 5, 1), ("h1.test", 4, 1), ("3 others", 6, 1)]
    assert "2 requests were for hosts that the web does not have" in table.note
