"""Settings from the command line, and all faults at once."""

import os

import pytest

from crawler.orders.complaints import faults
from crawler.orders.sources import load_order, read_layers
from crawler.outcomes.errors import BadArgument, OrderError, UsageError
from crawler.outcomes.exits import ExitCode


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
    with pytest.raises(UsageError, match="stand in a file only"):
        load_order(None, {}, ["override.surt=a.test"])


def test_a_wrong_setting_is_named() -> None:
    """As it was written, without its value."""
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
    """As every other slip of it; what is wrong in a file or a variable is a bad order, whatever the command line says."""
    with pytest.raises(BadArgument) as raised:
        load_order(None, flags, settings)
    assert raised.value.exit_code is ExitCode.USAGE
    file = tmp_path / "x.toml"
    file.write_text("[limits]\npages = -1")
    with pytest.raises(OrderError) as raised:
        load_order(file, {"workers": 3}, ["fetch.timeout=3s"])
    assert raised.value.exit_code is ExitCode.BAD_ORDER


def test_two_sources_that_are_both_wrong_are_told_without_a_traceback(tmp_path, monkeypatch) -> None:
    """One gives no section, the other a bad value of it."""
    file = tmp_path / "x.toml"
    file.write_text("crawl = 3")
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKERS", "x")
    assert faults(read_layers(file, {}, [])) == [
        f"{file}: [crawl] must be a section with keys, not 3",
        "environment: ANABRANCH_CRAWL__WORKERS must be a whole number; not 'x'",
    ]


def test_a_flag_that_is_named_differently_than_its_key_is_at_fault_by_its_own_name() -> None:
    """--limit is [limits] pages."""
    with pytest.raises(OrderError, match=r"^--limit must be at least 0; not -1"):
        load_order(None, {"limit": -1})
    with pytest.raises(OrderError, match=r"^--size-limit must be"):
        load_order(None, {"size_limit": "x"})


def test_all_faults_of_all_sources_are_told_at_once(tmp_path, monkeypatch) -> None:
    """One line each; what is unknown first, without hiding what is wrong beside it."""
    file = tmp_path / "x.toml"
    file.write_text(
        "[politenes]\nx = 1\n[crawl]\nworkers = 'many'\n[fetch]\ntimeout = 0\nmax_bodi = 3\nmax_body = 'x'\n"
        "[dns]\nhosts = 3\n[[override]]\nsurt = []\nsort = 1\n[politeness]\nmin_delay = 60\n"
    )
    monkeypatch.setenv("ANABRANCH_SCOPE__MAX_HOPS", "-1")
    lines = [line.replace(str(file), "FILE") for line in faults(read_layers(file, {}, []))]
    assert sorted(lines) == sorted(
        [
            "FILE: [politenes] is unknown; did you mean [politeness]?",
            "FILE: [fetch] max_bodi is unknown; did you mean max_body?",
            "FILE: [[override]] 1 sort is unknown; did you mean surt?",
            "environment: ANABRANCH_SCOPE__MAX_HOPS must be at least 0; not '-1'",
            "FILE: [politeness] min_delay: max_delay (30s) is less than min_delay (1m); raise the one or lower the other",
            "FILE: [crawl] workers must be a whole number; not 'many'",
            "FILE: [fetch] timeout must be more than 0; not 0",
            "FILE: [fetch] max_body must be a number of bytes, or like 8KB, 10MB, 16MiB, 1GB; not 'x'",
            "FILE: [dns] hosts must be a section with keys; not 3",
            "FILE: [[override]] 1 surt must not be empty; not []",
        ]
    )


@pytest.mark.parametrize("text", ["crawl = 3", "override = 3", "[override]\nx = 1"])
def test_what_has_not_the_form_of_a_section_is_one_fault(tmp_path, text) -> None:
    """And no other one comes of it."""
    file = tmp_path / "x.toml"
    file.write_text(text)
    assert len(faults(read_layers(file, {}, []))) == 1


def test_an_order_in_order_has_no_fault() -> None:
    """Nothing is said about defaults."""
    assert faults(read_layers(None, {}, [])) == []
