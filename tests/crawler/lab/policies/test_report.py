"""Tables and panels of a comparison."""

from __future__ import annotations

from anabranch.crawler.lab.policies.comparison import Comparison
from anabranch.crawler.lab.policies.report import panels, report_of, series_table
from anabranch.crawler.lab.policies.series import HostSeen
from tests.crawler.lab.policies.runs import run_of, setting_of

HOSTS = tuple(HostSeen(f"h{number}.test", 90 - number, number + 1, 0.05 * (number + 1), 1.5) for number in range(5))


def comparison_of(**more) -> Comparison:
    runs = (run_of("host", active=(0, 5, 5, 5), hosts=HOSTS), run_of("bkdr:997", active=(0, 50, 50), hosts=HOSTS))
    return Comparison(**({"setting": setting_of(), "runs": runs} | more))


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
    """What the server saw; where nobody looked there is no such table."""
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
    """As figures 4, 5 and 6 of the paper, with units on the axes."""
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
