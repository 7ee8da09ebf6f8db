"""The gates of services that many hosts share, in virtual time."""

from __future__ import annotations

import math

from anabranch.crawler.run.service_gates import LONGEST_S, ServiceGates
from tests.rows import each_row

NOW_S = 1_000_000.0
DNS = "name servers"


def gates(first_s: float = 60.0, most_s: float = 86_400.0, salt: str = "") -> ServiceGates:
    return ServiceGates(first_s, most_s, salt)


def test_a_service_is_missed_once_however_many_visits_meet_it() -> None:
    """Since the first of them; the reason is the last one's."""
    table = gates()
    assert table.shut(DNS, "refused", NOW_S)
    assert not table.shut(DNS, "time-out", NOW_S + 5)
    assert (table.away[DNS].since_s, table.away[DNS].reason) == (NOW_S, "time-out")
    assert table.open(DNS, NOW_S + 9) is not None
    assert table.open(DNS, NOW_S + 9) is None
    assert table.away == {}


def test_probes_come_at_growing_distance_up_to_a_minute() -> None:
    """1, 2, 4 ... 60 s after the one before, and up to a tenth more."""
    table, now_s, waits = gates(), NOW_S, []
    table.shut(DNS, "", now_s)
    for _ in range(9):
        due_s = table.away[DNS].next_s
        assert table.due(due_s - 0.001) == []
        assert table.due(due_s) == [DNS]
        waits.append(due_s - now_s)
        now_s = due_s
        table.failed(DNS, now_s)
    wanted = [1, 2, 4, 8, 16, 32, LONGEST_S, LONGEST_S, LONGEST_S]
    assert all(least <= wait <= 1.1 * least for wait, least in zip(waits, wanted, strict=True))


def test_workers_of_a_job_do_not_probe_together() -> None:
    """The jitter of each is its own, and the same whenever it is computed."""
    times = []
    for salt in ("a", "b", "a"):
        table = gates(salt=salt)
        table.shut(DNS, "", NOW_S)
        times.append(table.away[DNS].next_s)
    assert times[0] == times[2] != times[1]


def test_a_service_that_comes_and_goes_is_asked_less_and_less_often() -> None:
    """Within a minute of its return the count of probes goes on; after a longer time it begins anew."""
    table, now_s, waits = gates(), NOW_S, []
    for pause_s in (1.0, 1.0, LONGEST_S):
        table.shut(DNS, "", now_s)
        waits.append(table.away[DNS].next_s - now_s)
        now_s = table.away[DNS].next_s
        table.open(DNS, now_s)
        now_s += pause_s
    table.shut(DNS, "", now_s)
    waits.append(table.away[DNS].next_s - now_s)
    assert [int(wait) for wait in waits] == [1, 2, 4, 1]


@each_row(
    ("most_s", "has_worked", "waited_s"),
    [(86_400.0, False, 60.0), (86_400.0, True, 86_400.0), (0.0, True, math.inf), (0.0, False, 60.0), (5.0, False, 5.0)],
)
def test_what_has_not_worked_in_this_run_is_waited_for_less_long(
    most_s: float, has_worked: bool, waited_s: float
) -> None:
    """0 is no bound of what has worked."""
    table = gates(60.0, most_s)
    table.shut(DNS, "", NOW_S)
    assert table.given_up_s(DNS, has_worked=has_worked) == NOW_S + waited_s
