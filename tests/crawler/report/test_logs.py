"""Tests of the place and the form of log events."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
import structlog

from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.report.logs import closing_logs, configure_logs


@pytest.fixture(autouse=True)
def _logs_as_before():
    yield
    structlog.reset_defaults()


def written(verbosity):
    """Log one event of each level, and return the text that is written."""
    out = io.StringIO()
    configure_logs(verbosity, out)
    log = structlog.get_logger("crawler.test")
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)(f"a {level}", url="http://a.test/")
    return out.getvalue()


@pytest.mark.parametrize(
    ("verbosity", "levels"),
    [
        (-5, ["error"]),
        (-1, ["error"]),
        (0, ["warning", "error"]),
        (1, ["info", "warning", "error"]),
        (2, ["debug", "info", "warning", "error"]),
        (9, ["debug", "info", "warning", "error"]),
    ],
)
def test_each_v_shows_one_level_more(verbosity, levels) -> None:
    """Quiet shows errors alone; beyond the last level there is nothing more to see."""
    assert re.findall(r"\[(\w+) *\]", written(verbosity)) == levels


def test_an_event_is_one_line_with_its_time_in_utc_and_its_values() -> None:
    """Without a terminal there are no colours."""
    lines = written(-1).splitlines()
    assert len(lines) == 1
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z \[error *\] a error +(\[crawler\.test\] +)?url=http://a\.test/", lines[0]
    )


def test_an_exception_is_shown_as_python_shows_it() -> None:
    """A plain traceback, without the values of local variables: they may hold pages."""
    out = io.StringIO()
    configure_logs(0, out)

    def read(page):
        return {}[len(page)]

    try:
        read("the body")
    except KeyError:
        structlog.get_logger().exception("processor failed")
    assert "Traceback (most recent call last):" in out.getvalue()
    assert out.getvalue().endswith("KeyError: 8\n")
    assert "the body" not in out.getvalue().replace('read("the body")', "")


def test_an_exception_is_escaped() -> None:
    """Its message may quote a site; its lines stay lines."""
    out = io.StringIO()
    configure_logs(0, out)
    structlog.get_logger().error("processor failed", exc_info=ValueError("boom \x1b[31m\n\u202esecond"))
    assert out.getvalue().endswith("\nValueError: boom \\x1b[31m\n\\u202esecond\n")


def test_events_go_to_the_standard_error_of_the_moment(monkeypatch) -> None:
    """A live display may stand in for it after the logs were configured."""
    configure_logs(0)
    log = structlog.get_logger()
    stand_in = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stand_in)
    log.warning("look here")
    assert "look here" in stand_in.getvalue()


def test_colours_are_for_terminals() -> None:
    """A terminal gets them."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    configure_logs(0, out)
    structlog.get_logger().error("look here")
    assert "\x1b[" in out.getvalue()


def test_json_events_are_one_object_a_line() -> None:
    """With time, level, words and values; an exception is text, what is no JSON is shown."""
    out = io.StringIO()
    configure_logs(0, out, style="json")
    try:
        int("x")
    except ValueError:
        structlog.get_logger().exception("processor failed", url="http://a.test/", worker=object)
    (line,) = out.getvalue().splitlines()
    said = json.loads(line)
    assert (said["event"], said["level"], said["url"]) == ("processor failed", "error", "http://a.test/")
    assert said["timestamp"].endswith("Z")
    assert said["worker"] == "<class 'object'>"
    assert "ValueError: invalid literal" in said["exception"]


def test_events_may_go_to_a_file_which_is_added_to(tmp_path, capsys) -> None:
    """A second run does not overwrite the first one's; nothing goes to standard error."""
    for _ in range(2):
        file = configure_logs(0, file=tmp_path / "events.log")
        structlog.get_logger().warning("look here", name="\ud800")
        assert file is not None
        file.close()
    lines = (tmp_path / "events.log").read_text().splitlines()
    assert [line.count("look here") for line in lines] == [1, 1]
    assert capsys.readouterr().err == ""


def test_a_file_of_events_may_be_moved(tmp_path) -> None:
    """The next event goes to the file that has the name then."""
    path = tmp_path / "events.log"
    with closing_logs(configure_logs(0, file=path)):
        structlog.get_logger().warning("first")
        path.rename(tmp_path / "events.log.1")
        structlog.get_logger().warning("second")
    assert "first" in (tmp_path / "events.log.1").read_text()
    assert path.read_text().count("\n") == 1
    assert "second" in path.read_text()


def test_a_file_that_cannot_be_opened_is_one_clear_line(tmp_path) -> None:
    """It names the key that is to be changed."""
    with pytest.raises(StorageError, match=r"choose another \[logs\] file"):
        configure_logs(0, file=tmp_path / "missing" / "events.log")


def test_what_a_terminal_would_obey_is_escaped_in_an_event(capsys) -> None:
    """An event may quote a site."""
    configure_logs(0)
    structlog.get_logger().warning("odd", host="a\x9b2Jb\x1b[0m")
    assert "\\x9b2Jb" in (err := capsys.readouterr().err)
    assert "\x9b" not in err
    assert "\x1b[0m" not in err
