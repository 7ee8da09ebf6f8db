"""Tables and panels of a comparison."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.crawler.lab.policies.report import (
    closing,
    crawler_words,
    ledger_words,
    panels,
    ratio_of_repeats,
    report_of,
    series_table,
    server_words,
    winner,
)
from anabranch.crawler.lab.policies.series import Balance, Busy, HostSeen, PolicyComparison
from tests.crawler.lab.policies.runs import repeats_of, run_of, setting_of

HOSTS = tuple(HostSeen(f"h{number}.test", 90 - number, number + 1, 0.05 * (number + 1), 1.5) for number in range(5))


def comparison_of(**more) -> PolicyComparison:
    runs = (run_of("host", active=(0, 5, 5, 5), hosts=HOSTS), run_of("bkdr:997", active=(0, 50, 50), hosts=HOSTS))
    return PolicyComparison(**({"setting": setting_of(), "runs": runs} | more))


def test_the_first_table_has_a_row_for_each_policy_the_winner_first() -> None:
    """Means are over the interval in which all had work; the duration is each one's own."""
    table = report_of("policies", [comparison_of()]).tables[0]
    assert table.title == "small web (5,000 URLs on 10 hosts), 100 workers, polite, k = 1"
    assert table.rows[0] == ("bkdr:997", 50.0, 50, 10, 50.0, 50.0, 2.0, "yes", "1 of 1")
    assert table.rows[1] == ("host", 5.0, 5, 10, 5.0, 5.0, 3.0, "yes", "1 of 1")
    assert "the first 2.0 s" in table.note


def test_the_second_table_says_how_urls_stood_in_queues() -> None:
    """Balance, and what the queues could do."""
    table = report_of("policies", [comparison_of()]).tables[1]
    assert table.rows[0] == ("bkdr:997", 100, 10, 20, 2.0, 4.0, 2.0, 1.0)


def test_the_third_table_has_the_worst_of_all_hosts_and_the_largest() -> None:
    """It shows the server's view; a run without that view gets no such table."""
    table = report_of("policies", [comparison_of()]).tables[2]
    assert [row[:4] for row in table.rows[:4]] == [
        ("bkdr:997", "all 5", 440, 5),
        ("bkdr:997", "h0.test", 90, 1),
        ("bkdr:997", "h1.test", 89, 2),
        ("bkdr:997", "h2.test", 88, 3),
    ]
    assert [round(row[4]) for row in table.rows[:2]] == [50, 50]
    assert len(report_of("policies", [comparison_of(runs=(run_of(), run_of("x")))]).tables) == 2


def test_there_are_three_panels_and_those_of_two_webs_stand_beside_each_other() -> None:
    """They are figures 4, 5 and 6 of the paper, with units on the axes."""
    one, other = comparison_of(), comparison_of(setting=setting_of(web="other web"))
    drawn = panels([one, other])
    assert [panel.title.partition(",")[0] for panel in drawn] == [
        "URLs a second: small web",
        "URLs a second: other web",
        "Active workers: small web",
        "Active workers: other web",
        "KB a second: small web",
        "KB a second: other web",
    ]
    assert {panel.x_label for panel in drawn} == {"time (s)"}
    assert [panel.y_label for panel in panels([one])] == ["URLs/s", "workers that hold a URL", "KB/s"]
    assert drawn[2].curves[1].y == (0, 50, 50)


def test_simulated_runs_are_dashed() -> None:
    """They lie on the curves of the same policies."""
    curves = panels([comparison_of(simulated=(run_of("host"),))])[0].curves
    assert [(curve.label, curve.is_dashed) for curve in curves] == [
        ("host", False),
        ("bkdr:997", False),
        ("host, simulated", True),
    ]


def test_every_sample_is_written_to_the_csv_file() -> None:
    """A row a second and policy, with what the panels show."""
    table = series_table(comparison_of(simulated=(run_of("host"),)))
    assert len(table.rows) == 4 + 3 + 3
    assert table.rows[1] == ("host", "live", 1.0, 5.0, 5.0, 5.0, 5, 4, 2, 1, 5, 5000)
    assert {row[1] for row in table.rows} == {"live", "simulated"}
    assert all(len(row) == len(table.columns) for row in table.rows)


FEW, MANY = Balance(5000, 10, 2000), Balance(5000, 997, 9)


def host_of(most: int, gap_s: float | None = 0.05) -> HostSeen:
    return HostSeen("www.a.test", 100, most, gap_s, 2.0)


def test_the_winner_is_named_with_its_factor_and_the_reason() -> None:
    """Under paper the reason is the number of queues; nine repeats show the factor."""
    runs = [
        run_of("host", active=(5, 5, 5), queue_lengths=FEW, repeats=repeats_of(*[5] * 9)),
        run_of("bkdr:997", active=(50, 50), queue_lengths=MANY, repeats=repeats_of(*[50] * 9)),
    ]
    assert winner(setting_of(politeness="paper"), runs) == (
        "small web: bkdr:997 won: it kept 50 of 100 workers active on average, 10 (95 %: 10 to 10) times the 5 of host; "
        "its URLs stood in 997 queues, those of host in 10, and a queue is served by one worker at a time and rests by itself."
    )


def test_nine_repeats_have_a_table_of_ratios() -> None:
    """Over each of the others; with fewer there is none."""
    runs = (
        run_of("host", active=(5, 5), repeats=repeats_of(*[5] * 9)),
        run_of("bkdr:997", active=(50, 50), repeats=repeats_of(*[50] * 9)),
    )
    table = report_of("policies", [comparison_of(runs=runs)]).tables[1]
    assert table.title == "small web: active workers of bkdr:997 over those of the others, by repeats"
    assert table.rows == (("host", 10.0, "10 to 10", 9),)
    assert "repeats" not in report_of("policies", [comparison_of()]).tables[1].title


def test_few_repeats_have_no_winner() -> None:
    """The figures are shown all the same; so are those of a comparison that was saved before repeats were."""
    runs = [run_of("host", active=(5, 5)), run_of("bkdr:997", active=(50, 50))]
    for repeats in ((), repeats_of(*[50] * 8)):
        told = winner(setting_of(politeness="off"), [runs[0], replace(runs[1], repeats=repeats)])
        assert told.startswith(
            "small web: most workers were active under bkdr:997: 50 of 100 workers on average, 10 times the 5 of host. "
        )
        assert "No verdict: that takes 9 repeats that count for both (--repeat 9 or a few more). Bounds: 10" in told


def test_repeats_that_do_not_agree_have_no_winner() -> None:
    """Nine of them, of which some say the opposite; a repeat that was dropped does not count."""
    host = run_of("host", active=(5, 5), repeats=repeats_of(*[5] * 10))
    uneven = run_of("bkdr:997", active=(50, 50), repeats=repeats_of(4, 6, 3, 7, 4, 6, 4, 8, 5, 900))
    told = winner(setting_of(politeness="off"), [host, uneven])
    assert "The repeats do not agree, so that no winner is shown. Bounds: " in told
    dropped = replace(uneven, repeats=(*uneven.repeats[:9], uneven.repeats[9]._replace(is_kept=False)))
    ratio = ratio_of_repeats(dropped, host)
    assert ratio is not None
    assert max(ratio.figures) == 1.6


def test_policies_that_are_near_each_other_have_no_winner() -> None:
    """Ten per cent is what two runs of one policy may differ by; the reason is what bounds them all."""
    runs = [
        run_of("host", active=(95, 95), queue_lengths=FEW),
        run_of("bkdr:997", active=(100, 100), queue_lengths=MANY),
    ]
    said = winner(setting_of(connections=1), runs)
    assert said.startswith("small web: no policy won: in active workers or in URLs a second all are within 10% of bkdr")
    assert said.endswith("10 hosts with 1 slot each allow 10 fetches at once at most under either policy.")


def test_who_shares_the_first_place_is_named() -> None:
    """Two hashes with as many queues are as good as each other."""
    runs = [
        run_of(name, active=(level, level), repeats=repeats_of(*[level] * 9))
        for name, level in (("host", 5), ("elf:997", 48), ("bkdr:997", 50))
    ]
    assert winner(setting_of(politeness="off"), runs).startswith(
        "small web: bkdr:997 won, together with elf:997: it kept"
    )


def test_where_the_processor_was_the_limit_as_many_urls_are_as_good() -> None:
    """Then the one with more active workers only had slower ones."""
    slow = run_of("elf:997", active=(80, 80), crawler=Busy(0.5, 0.9), queue_lengths=MANY, repeats=repeats_of(*[80] * 9))
    samples = (*slow.samples[:1], slow.samples[1]._replace(held_s=20))
    fast = run_of(
        "bkdr:997",
        queue_lengths=Balance(5000, 500, 20),
        samples=samples,
        duration_s=1.0,
        repeats=repeats_of(*[20] * 9),
    )
    runs = [run_of("host", active=(5, 5), repeats=repeats_of(*[5] * 9)), fast, slow]
    assert "elf:997 won, together with bkdr:997" in winner(setting_of(politeness="paper", workers=1000), runs)
    unhurried = [replace(run, crawler=None) for run in runs]
    assert "elf:997 won: it" in winner(setting_of(politeness="paper", workers=1000), unhurried)


def test_slots_are_the_reason_under_polite() -> None:
    """With k slots a host's queues may be served at once as far as the slots go."""
    runs = [run_of("host", active=(5, 5), queue_lengths=FEW), run_of("bkdr:997", active=(9, 9), queue_lengths=MANY)]
    assert winner(setting_of(connections=8), runs).endswith(
        "10 hosts with 8 slots each allow 80 fetches at once; under host 10 queues allow 10."
    )


def test_where_nothing_bounds_them_differently_that_is_said() -> None:
    """Five workers are too few for either: more queues are no reason then."""
    runs = [run_of("host", active=(5, 5), queue_lengths=FEW), run_of("bkdr:997", active=(3, 3), queue_lengths=MANY)]
    assert winner(setting_of(politeness="paper", workers=5), runs).endswith(
        "5 workers allow 5 fetches at once at most under either policy."
    )


def test_one_policy_alone_wins_nothing() -> None:
    """There must be two to compare."""
    assert winner(setting_of(), [run_of(active=(7, 7))]).endswith("there is nothing to compare it with.")


def test_a_run_in_which_nobody_was_active_is_no_divisor() -> None:
    """The factor is left out."""
    runs = [run_of("host", active=(0, 0)), run_of("bkdr:997", active=(9, 9))]
    assert "against 0 of host" in winner(setting_of(), runs)


def test_a_clean_ledger_is_told_once_and_a_broken_one_by_policy() -> None:
    """A reader must learn which policy broke it."""
    clean = run_of(hosts=(host_of(1),), verdict="never more than 1 at once, no gap below 50 ms")
    broken = run_of("elf:997", hosts=(host_of(2),), verdict="www.a.test had 2 at once", is_polite=False)
    assert list(ledger_words(setting_of(), [clean, clean])) == [
        (
            "small web: the server's ledger is clean under every policy: no start was too many at once or too early; "
            "the most requests at once on one host were 1, and no slot was taken again sooner than after 50.0 ms."
        )
    ]
    assert list(ledger_words(setting_of(), [clean, broken])) == [
        "small web: the server's ledger under elf:997: www.a.test had 2 at once."
    ]


def test_where_politeness_is_not_a_hosts_the_hits_are_told() -> None:
    """Under paper what hashing costs the hosts stands beside what it gains."""
    runs = [run_of(hosts=(host_of(1),)), run_of("bkdr:997", hosts=(host_of(40), host_of(2)))]
    assert list(ledger_words(setting_of(politeness="paper"), runs)) == [
        "small web: most requests at once on one host, as the server saw it: host 1, bkdr:997 40."
    ]
    assert not list(ledger_words(setting_of(), [run_of()])), "nobody looked"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Busy(0.4, 0.02), "the server had time to spare: it used 40% of a core at most, and was 20 ms late at worst."),
        (Busy(0.95, 0.02), "the server may have slowed the crawler under host: it used 95% of a core at most"),
        (Busy(0.4, 0.9), "the server may have slowed the crawler under host: it used 40% of a core at most"),
    ],
)
def test_whether_the_server_had_time_to_spare_is_said(server: Busy, said: str) -> None:
    """A server that was busy or late makes the figures its own, not the crawler's."""
    assert said in next(server_words(setting_of(), [run_of(server=server)]))


def test_policies_under_which_the_crawler_was_the_limit_are_named() -> None:
    """A worker that waits for the processor holds a URL, too: its figure is not what the web would allow."""
    runs = [run_of(crawler=Busy(0.3, 0.01)), run_of("bkdr:997", crawler=Busy(0.7, 1.2))]
    assert list(crawler_words(setting_of(), runs)) == [
        (
            "small web: the crawler itself was the limit under bkdr:997 (70% of a core, 1,200 ms late): of the active workers "
            "there, some waited for the processor alone."
        )
    ]
    assert list(crawler_words(setting_of(), runs[:1])) == [
        "small web: the crawler was not the limit: it used 30% of a core at most, and was 10 ms late at worst."
    ]
    assert not list(crawler_words(setting_of(), [run_of()])), "a simulation uses none"


def test_everything_is_said_about_each_web() -> None:
    """Repeats, delays and the machine's load, too."""
    runs = (run_of(runs=4, dropped=1, active=(9, 9)), run_of("bkdr:997", runs=5, active=(9, 9)))
    said = closing(PolicyComparison(setting=setting_of(machine="load 0.1"), runs=runs))
    assert "small web: means of 5 repeats; dropped as more than 3 median deviations off: 1 of host." in said
    assert said[-2:] == ("small web: delays: none to speak of.", "small web: load 0.1.")
