"""All that is wrong with an order, in one look; what is left of it is sound."""

from __future__ import annotations

import os

import pytest

from anabranch.crawler.order.loading import examine
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sources import read_layers


@pytest.fixture(autouse=True)
def _no_settings_of_the_outside(monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


def faults(layers):
    return list(examine(layers).faults)


def examined(text, tmp_path):
    (tmp_path / "x.toml").write_text(text)
    return examine(read_layers(tmp_path / "x.toml", {}, []))


def faults_of(text, tmp_path):
    return [line.removeprefix(f"{tmp_path / 'x.toml'}: ") for line in examined(text, tmp_path).faults]


def test_two_sources_that_are_both_wrong_are_told_without_a_traceback(tmp_path, monkeypatch) -> None:
    """One gives no section, the other a bad value of it."""
    file = tmp_path / "x.toml"
    file.write_text("crawl = 3")
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKERS", "x")
    assert faults(read_layers(file, {}, [])) == [
        f"{file}: [crawl] must be a section with keys, not 3",
        "environment: ANABRANCH_CRAWL__WORKERS must be a whole number; not 'x'",
    ]


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
            "FILE: [dns] hosts must be a table of keys and values; not 3",
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


def test_a_contradiction_is_told_although_another_key_of_the_section_is_wrong(tmp_path) -> None:
    """In sections and in entries, several of a section too; none of them waits for the next look."""
    text = (
        "[politeness]\nmin_delay = 9\nmax_delay = 1\nbackoff_base = 5\nbackoff_cap = 1\nmax_connections = 0\n"
        "[[override]]\nmin_delay = 9\nmax_delay = 1\nmax_connections = 0\n"
    )
    assert sorted(line.partition(":")[0] for line in faults_of(text, tmp_path)) == [
        "[[override]] 1 max_connections must be at least 1; not 0",
        "[[override]] 1 max_delay",
        "[[override]] 1 surt must be given",
        "[politeness] backoff_cap",
        "[politeness] max_connections must be at least 1; not 0",
        "[politeness] max_delay",
    ]


def test_no_fault_comes_of_the_default_that_stands_in_for_a_wrong_value(tmp_path) -> None:
    """A max_delay of 1s contradicts the default of min_delay, which nobody asked for."""
    (fault,) = faults_of("[politeness]\nmin_delay = 'x'\nmax_delay = 1\n", tmp_path)
    assert fault.startswith("[politeness] min_delay must be a number of seconds")


def test_what_is_left_is_an_order_without_the_wrong_values(tmp_path) -> None:
    """An entry of which something is wrong is left out whole; the numbers of the others stay theirs."""
    text = (
        "[crawl]\nworkers = 0\n[limits]\npages = 7\n"
        "[[override]]\nsurt = ''\nmin_delay = 1\n[[override]]\nsurt = 'b.test'\nmin_delay = 2\n"
        "[[override]]\nsurt = 'c.test'\nmin_delay = 'x'\n"
    )
    found = examined(text, tmp_path)
    assert (found.order.crawl.workers, found.order.limits.pages) == (CrawlOrder().crawl.workers, 7)
    assert [entry.surt for entry in found.order.override] == [("b.test",)]
    assert found.left_out == {("crawl", "workers"), ("override", "surt"), ("override", "min_delay")}
    assert [line[:16] for line in faults_of(text, tmp_path)[1:]] == ["[[override]] 1 s", "[[override]] 3 m"]


@pytest.mark.parametrize(
    ("section", "line", "said"),
    [
        ("write", "warc_size = '60KB'", "warc_size must be at least 1MiB; not '60KB'"),
        ("robots", "cache = '3d'", "cache must be at most 1d; not '3d'"),
        ("fetch", "max_body = 0", "max_body must be more than 0; not 0"),
        ("dedup", "false_positive = 3", "false_positive must be less than 1; not 3"),
        ("politeness", "backoff_jitter = 1.5", "backoff_jitter must be at most 1; not 1.5"),
        ("crawl", "workers = 10001", "workers must be at most 10000; not 10001"),
    ],
)
def test_a_bound_is_told_as_an_order_writes_it(tmp_path, section, line, said) -> None:
    """With a unit if it is a size or a duration."""
    assert faults_of(f"[{section}]\n{line}\n", tmp_path) == [f"[{section}] {said}"]
