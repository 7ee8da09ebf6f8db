"""The verbs of `anabranch frontier` and `why`: what is given reaches the verb, what makes no sense does not."""

from __future__ import annotations

from datetime import datetime

import pytest
from typer.testing import CliRunner

from anabranch.crawler.cli import frontier
from anabranch.crawler.cli.app import app
from anabranch.crawler.cli.parameters import parse_moment, parse_positive_seconds, parse_units


@pytest.fixture
def commands(monkeypatch):
    """The commands that the command line makes, in place of running them."""
    made: list[tuple[str, str, dict[str, object], bool]] = []
    monkeypatch.setattr(frontier, "run_frontier", lambda *given, as_json, **_: made.append((*given, as_json)) or 0)
    return made


def run(*arguments):
    return CliRunner().invoke(app, arguments)


NOON = "2099-01-31T12:00:00+00:00"
NOON_S = datetime.fromisoformat(NOON).timestamp()


@pytest.mark.parametrize(
    ("line", "verb", "arguments"),
    [
        ("frontier ls J", "ls", {"state": None, "limit": 20}),
        ("frontier ls J --state paused --limit 5", "ls", {"state": "paused", "limit": 5}),
        ("frontier show J bkdr:5", "show", {"subject": "bkdr:5"}),
        ("frontier dump J", "dump", {"file": None}),
        ("frontier dump J -o -", "dump", {"file": None}),
        ("frontier dump J --output x.gz", "dump", {"file": "x.gz"}),
        ("frontier load J f", "load", {"file": "f", "failures": False, "disregarded": False}),
        (
            "frontier load J f --failures --disregarded",
            "load",
            {"file": "f", "failures": True, "disregarded": True},
        ),
        ("frontier block J a.test", "block", {"host": "a.test", "for_s": None, "until_s": None}),
        ("frontier block J a.test --for 2h", "block", {"host": "a.test", "for_s": 7200.0, "until_s": None}),
        (f"frontier block J a.test --until {NOON}", "block", {"host": "a.test", "for_s": None, "until_s": NOON_S}),
        ("frontier unblock J a.test", "unblock", {"host": "a.test"}),
        ("frontier pause J q", "pause", {"queue": "q"}),
        ("frontier resume J q", "resume", {"queue": "q"}),
        ("frontier retire J q", "retire", {"queue": "q"}),
        ("frontier set-budget J q 10", "set-budget", {"queue": "q", "units": 10}),
        ("frontier set-budget J q unlimited", "set-budget", {"queue": "q", "units": -1}),
        ("frontier set-budget J q order", "set-budget", {"queue": "q", "units": None}),
        ("frontier rm J --url x", "rm", {"url": "x", "queue": None, "yes": False}),
        ("frontier rm J --queue q --yes", "rm", {"url": None, "queue": "q", "yes": True}),
        ("why J http://a.test/", "why", {"url": "http://a.test/"}),
    ],
)
def test_each_verb_gets_what_was_given(commands, line, verb, arguments) -> None:
    """Nothing is lost on the way, and nothing is added."""
    result = run(*line.split())
    assert result.exit_code == 0, result.output
    assert commands == [(verb, "J", arguments, False)]


@pytest.mark.parametrize("line", ["frontier ls J", "frontier show J q", "why J http://a.test/"])
def test_what_looks_can_print_json(commands, line) -> None:
    """For scripts."""
    run(*line.split(), "--json")
    assert [as_json for *_, as_json in commands] == [True]


@pytest.mark.parametrize(
    "line",
    [
        "frontier",
        "frontier ls",
        "frontier ls J --limit -1",
        "frontier lsx J",
        "frontier block J",
        "frontier block J a.test --for soon",
        "frontier block J a.test --for 0s",
        "frontier block J a.test --until tomorrow",
        f"frontier block J a.test --for 1h --until {NOON}",
        "frontier set-budget J q",
        "frontier set-budget J q many",
        "frontier rm J",
        "frontier rm J --yes",
        "why J",
    ],
)
def test_a_command_line_that_makes_no_sense_exits_with_2(commands, line) -> None:
    """Nothing is run: `rm` without a condition above all."""
    assert run(*line.split()).exit_code == 2
    assert commands == []


def test_the_exit_code_is_the_runs(monkeypatch) -> None:
    """The command line adds nothing to it."""
    monkeypatch.setattr(frontier, "run_frontier", lambda *_, **__: 4)
    assert run("why", "J", "http://a.test/").exit_code == 4


def test_a_time_without_a_zone_is_local() -> None:
    """People mean local time; a date means its first moment."""
    assert parse_moment("2027-01-31T14:00") == datetime(2027, 1, 31, 14).astimezone().timestamp()
    assert parse_moment(" 2027-01-31 ") == datetime(2027, 1, 31).astimezone().timestamp()


def test_durations_and_units_are_as_people_write_them() -> None:
    """The words for budgets are two."""
    assert parse_positive_seconds("90s") == 90
    assert [parse_units(text) for text in ("0", "7", "unlimited", "order")] == [0, 7, -1, None]
