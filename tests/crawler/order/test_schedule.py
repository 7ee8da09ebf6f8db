"""When a job is due, by its schedule."""

from datetime import datetime

import pytest

from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.schedule import MOST_MISSED, Due, JobSchedule, check_schedule, check_zone
from tests.rows import each_row

DAY_S = 86_400


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@each_row(
    ("text", "zone", "after", "expected"),
    [
        ("30 3 * * MON", "UTC", "2026-11-30T03:29:59Z", "2026-11-30T03:30:00Z"),
        ("30 3 * * MON", "UTC", "2026-11-30T03:30:00Z", "2026-12-07T03:30:00Z"),
        ("0 0 1 * *", "Europe/Berlin", "2026-06-15T00:00:00Z", "2026-07-01T00:00:00+02:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-29T03:00:00+02:00"),  # there is no 2:30
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"),  # 2:30 comes twice
        ("every 90m", "UTC", "2026-11-30T00:00:00Z", "2026-11-30T01:30:00Z"),
    ],
)
def test_the_next_time_is_after_the_given_one(text, zone, after, expected) -> None:
    """Also where clocks change: a time that does not exist comes at once, one that comes twice counts once."""
    assert JobSchedule(text, zone).next_after(at(after)) == at(expected)


@pytest.mark.parametrize("text", ["0 0 * * *", "every 24h"])
def test_of_several_missed_times_the_last_one_is_due(text) -> None:
    """The others are counted, up to a bound."""
    schedule = JobSchedule(text, "UTC")
    handled_s = at("2026-11-01T00:00:00Z")
    assert schedule.due(handled_s, handled_s + DAY_S - 1) is None
    assert schedule.due(handled_s, handled_s + DAY_S) == Due(handled_s + DAY_S, 0)
    assert schedule.due(handled_s, handled_s + 3.5 * DAY_S) == Due(handled_s + 3 * DAY_S, 2)
    assert schedule.due(handled_s, handled_s + 2000.5 * DAY_S) == Due(handled_s + 2000 * DAY_S, MOST_MISSED)


def test_no_time_is_due_while_the_clock_is_before_the_last_one() -> None:
    """A clock that was set back starts no job twice."""
    assert JobSchedule("* * * * *", "UTC").due(at("2026-11-30T00:00:00Z"), at("2026-11-29T00:00:00Z")) is None


@each_row(
    "text",
    ["hourly", "* * * *", "* * * * * *", "61 * * * *", "every day", "every 30s", "every", "@daily", "0 0 30 2 *"],
)
def test_another_text_is_no_schedule(text) -> None:
    """The line says what one is like, and repeats the text."""
    with pytest.raises(ValueError, match=r"^must be .*not '") as raised:
        check_schedule(text)
    assert repr(text) in str(raised.value)


@each_row("name", ["Mars/Olympus", "", "../UTC", "/etc/passwd"])
def test_another_name_is_no_time_zone(name) -> None:
    """Whatever is at such a path."""
    with pytest.raises(ValueError, match="must be the name of a time zone"):
        check_zone(name)


def test_a_job_has_no_schedule_unless_its_order_names_one() -> None:
    """The zone is UTC."""
    assert CrawlOrder().job.when is None
    assert CrawlOrder.model_validate({"job": {"schedule": "every 6h"}}).job.when == JobSchedule("every 6h", "UTC")
