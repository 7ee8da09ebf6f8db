"""The audit log: who changed what, in one line each."""

import json

import structlog.testing

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.console.audit import AuditLog

WHO = Holder("ci", ConsoleRole.OPERATOR)


def noted(folder):
    return [json.loads(line) for line in (folder / "audit.jsonl").read_bytes().splitlines()]


def test_a_change_is_a_line(tmp_path):
    """A refused change has its reason; an argument that was not given is left out."""
    audit = AuditLog(tmp_path)
    audit.note(WHO, "stop", "news", {"now": True, "then": None})
    audit.note(WHO, "pause", "news", {}, "no crawl runs")
    first, second = noted(tmp_path)
    assert {**first, "time": ""} == {
        "time": "",
        "who": "ci",
        "action": "stop",
        "job": "news",
        "arguments": {"now": True},
    }
    assert second["error"] == "no crawl runs"


def test_no_value_breaks_or_swells_a_line(tmp_path):
    """Control characters are escaped; long values, lists and tables are cut, at any depth."""
    nasty = "a\nb\x1b[31m\u202e\ud800"
    AuditLog(tmp_path).note(
        WHO, "add", nasty, {"seeds": [nasty, "x" * 10_000, *["y"] * 100], "order": {"a": {"b": ["z" * 9999]}}}
    )
    (line,) = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert line.isascii()
    assert len(line) < 2_000
    assert noted(tmp_path)[0]["arguments"]["seeds"][0] == nasty


def test_a_log_that_cannot_be_written_is_a_warning(tmp_path):
    """The change is made all the same."""
    (tmp_path / "audit.jsonl").mkdir()
    with structlog.testing.capture_logs() as logs:
        AuditLog(tmp_path).note(WHO, "stop", "news", {})
    assert [entry["event"] for entry in logs] == ["the audit log cannot be written"]
