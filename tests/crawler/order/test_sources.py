"""The line in which a key stands."""

from __future__ import annotations

import os

import pytest

from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.sources import key_lines
from anabranch.crawler.outcomes.errors import BadArgument, ExitCode, OrderError, UsageError


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", {}),
        ("[a]\nx = 1\n\ny = 2", {("a", "x"): 2, ("a", "y"): 4}),
        ("# [b]\n[a]  # more\n'x' = 1", {("a", "x"): 3}),
        ("a.x = 1\n[b]\nx.y = 2", {("a", "x"): 1, ("b", "x"): 3}),
        ("a = {x = 1, y = 2}", {("a", "x"): 1, ("a", "y"): 1}),
        ("[a.x]\nk = 1", {("a", "x"): 1}),
        ('[a]\nx = """\n[b]\ny = 1\n"""\nz = 1', {("a", "x"): 2, ("a", "z"): 6}),
        ("[a]\nx = [\n  1,\n]\ny = 1", {("a", "x"): 2, ("a", "y"): 5}),
        ("[[o]]\nx = 1\n[a]\ny = 1\n[[o]]\ny = 2", {("a", "y"): 4}),
        ("\ufeff[a]\nx = 1".removeprefix("\ufeff"), {("a", "x"): 2}),
        ("[a]\r\nx = 1\r\n", {("a", "x"): 2}),
    ],
)
def test_each_key_of_a_section_has_the_line_where_its_statement_begins(text, lines) -> None:
    """Whatever the way of writing it; brackets in strings open no section."""
    assert key_lines(text) == lines


def test_a_value_without_end_stops_the_count() -> None:
    """Keys before it have their lines; nothing is guessed, and a long list takes no quadratic time."""
    text = "[a]\nx = 1\ny = [\n" + "  1,\n" * 200_000 + "]\nz = 2"
    assert key_lines(text) == {("a", "x"): 2}


@pytest.fixture(autouse=True)
def _no_settings_of_the_outside(monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("setting", "section", "field", "value"),
    [
        ("crawl.workers=7", "crawl", "workers", 7),
        ("dns.timeout=5s", "dns", "timeout_s", 5.0),
        ("frontier.store=postgresql://h/d?a=b", "frontier", "store", "postgresql://h/d?a=b"),
        ("dns.servers=1.1.1.1 [::1]:53", "dns", "servers", ("1.1.1.1", "[::1]:53")),
        ('dns.servers=["1.1.1.1"]', "dns", "servers", ("1.1.1.1",)),
        ("dns.hosts=a.test=127.0.0.1:80", "dns", "hosts", {"a.test": "127.0.0.1:80"}),
        ('dns.hosts={"a.test" = "127.0.0.1:80"}', "dns", "hosts", {"a.test": "127.0.0.1:80"}),
        ("fetch.allow_private=true", "fetch", "allow_private", True),
        ("agent.contact=", "agent", "contact", ""),
    ],
)
def test_a_setting_sets_any_key(setting, section, field, value) -> None:
    """Also those that have no flag; a list is words, or written as in TOML."""
    order = load_order(None, {}, [setting])
    assert getattr(getattr(order, section), field) == value


def test_a_flag_wins_over_a_setting_over_a_variable(monkeypatch) -> None:
    """The more special wins; of two settings the last."""
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKERS", "2")
    settings = ["crawl.workers=3", "crawl.workers=4"]
    assert load_order(None, {}, settings).crawl.workers == 4
    assert load_order(None, {"workers": 5}, settings).crawl.workers == 5


@pytest.mark.parametrize("setting", ["workers=3", "crawl.workers", "=3", "crawl.=3", ""])
def test_what_is_no_setting_is_a_wrong_command_line(setting) -> None:
    """It says how one is written."""
    with pytest.raises(UsageError, match=r"write it as section\.key=value"):
        load_order(None, {}, [setting])


def test_entries_cannot_be_set() -> None:
    """They stand in files only."""
    with pytest.raises(UsageError, match="can only be in a file"):
        load_order(None, {}, ["override.surt=a.test"])


def test_a_wrong_setting_is_named() -> None:
    """The message has the setting as it was written, without its value."""
    with pytest.raises(OrderError, match=r"-s crawl\.workres is unknown; did you mean workers\?"):
        load_order(None, {}, ["crawl.workres=3"])
    with pytest.raises(
        OrderError, match=r"-s crawls\.workers is unknown: there is no section \[crawls\]; did you mean \[crawl\]\?"
    ):
        load_order(None, {}, ["crawls.workers=3"])
    with pytest.raises(OrderError, match=r"-s foo\.bar is unknown: there is no section \[foo\]$"):
        load_order(None, {}, ["foo.bar=1"])
    with pytest.raises(OrderError, match=r"-s limits\.pages must be a whole number; not 'x'"):
        load_order(None, {}, ["limits.pages=x"])


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        ({"limit": -1}, []),
        ({"min_delay": "60"}, []),
        ({"nosuch": 1}, []),
        ({}, ["limits.pages=x"]),
        ({}, ["foo.bar=1"]),
    ],
)
def test_what_is_wrong_on_the_command_line_has_the_code_of_wrong_usage(tmp_path, flags, settings) -> None:
    """Every slip on the command line has it. A fault in a file or a variable is a bad order, whatever the flags."""
    with pytest.raises(BadArgument) as raised:
        load_order(None, flags, settings)
    assert raised.value.exit_code is ExitCode.USAGE
    file = tmp_path / "x.toml"
    file.write_text("[limits]\npages = -1")
    with pytest.raises(OrderError) as raised:
        load_order(file, {"workers": 3}, ["fetch.timeout=3s"])
    assert raised.value.exit_code is ExitCode.BAD_ORDER


def test_a_flag_that_is_named_differently_than_its_key_is_at_fault_by_its_own_name() -> None:
    """--limit is [limits] pages."""
    with pytest.raises(OrderError, match=r"^--limit must be at least 0; not -1"):
        load_order(None, {"limit": -1})
    with pytest.raises(OrderError, match=r"^--size-limit must be"):
        load_order(None, {"size_limit": "x"})
