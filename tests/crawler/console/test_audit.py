"""The audit log: who changed what, in one line each."""

import json
import tomllib
from hashlib import sha256

import structlog.testing

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.console.audit import AuditLog, order_note, seeds_note
from anabranch.crawler.order.order import CrawlOrder, dump_order

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


def test_no_secret_is_noted(tmp_path):
    """Not the value of a header, a password, or the user info of a URL: in arguments, names and errors, at any depth."""
    audit = AuditLog(tmp_path)
    for key in ("fetch.headers", "fetch.headers+", "header"):
        for given in ("X-Key: hush", ["X-Key: hush", "hush"], {"X-Key": "hush"}, "hush"):
            audit.note(WHO, "set", "news", {key: given})
    for url in ("http://ada:hush@a.test/", "http://hush@a.test/", "ada:hu@sh@a.test/", "HTTPS://:hush@a.test"):
        audit.note(WHO, "retry", "news", {"url": url, "sites": [{"surt": url, url: url}]}, f"{url!r} is refused")
    audit.note(WHO, "x", "news", {"password": "hush", "password_env": "NAME", "site": [{"headers": {"A": "hush"}}]})
    audit.note(WHO, "x", "news", {"site": [{"login_fields": {"pin": "hush"}, "login_secrets": {"pin": "NAME"}}]})
    text = (tmp_path / "audit.jsonl").read_text()
    assert [word for word in ("hush", "hu@", "@sh") if word in text] == []
    assert [word for word in ("X-Key", "a.test", "NAME", "is refused") if word not in text] == []


def test_an_order_is_noted_whole_with_its_digest(tmp_path):
    """The digest is that of the text that the API shows; the noted text has no secrets."""
    order = CrawlOrder.model_validate({"fetch": {"headers": {"X-Key": "Bearer hush"}, "timeout": "77s"}})
    AuditLog(tmp_path).note(WHO, "create", "news", {"order": order_note(order)})
    (entry,) = noted(tmp_path)
    kept = entry["arguments"]["order"]
    assert kept["sha256"] == sha256(dump_order(order).encode()).hexdigest()
    tables = tomllib.loads(kept["toml"])
    assert tables == {**tomllib.loads(dump_order(order)), "fetch": tables["fetch"]}
    assert (tables["fetch"]["headers"], tables["fetch"]["timeout"]) == ({"X-Key": "***"}, "77s")


def test_seeds_are_counted(tmp_path):
    """The first of them are noted, without user info."""
    seeds = [f"http://ada:hush@{number}.test/" for number in range(100)]
    AuditLog(tmp_path).note(WHO, "add", "news", seeds_note(seeds))
    given = noted(tmp_path)[0]["arguments"]
    assert (given["seeds"], len(given["first"]), given["first"][0]) == (100, 20, "http://***@0.test/")


def test_only_its_owner_reads_the_log(tmp_path):
    """It has orders, which may name what is nobody else's business."""
    AuditLog(tmp_path).note(WHO, "stop", "news", {})
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o077 == 0
