"""The table of the hosts' tests that cannot apply."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.hosts import table
from scripts.hosts.suites import SUITES
from scripts.hosts.table import Exemption, TableError

A = Exemption("tests/test_a.py::test_one", "why")
V = (2, 14, 2)  # a host's version


def written(folder: Path, text: str) -> dict[str, table.Suite]:
    path = folder / "table.toml"
    path.write_text(text, encoding="utf-8")
    return table.read(path)


def test_the_repositorys_table_can_be_read_and_has_every_suite() -> None:
    """Each suite says which files it runs, and none stands there that is not run."""
    suites = table.read()
    assert set(suites) == {suite.name for suite in SUITES}
    assert all(suite.outside or suite.inside for suite in suites.values())
    variants = {suite.name: set(suite.variants) for suite in SUITES}
    assert all(one.only <= variants[name] for name, suite in suites.items() for one in suite.exemptions)


def test_an_id_covers_its_parameters_and_no_other_test() -> None:
    """`test_one` is not `test_one_more`."""
    assert A.covers("tests/test_a.py::test_one")
    assert A.covers("tests/test_a.py::test_one[x]")
    assert not A.covers("tests/test_a.py::test_one_more")
    assert not Exemption(f"{A.id}[x]", "why").covers(f"{A.id}[y]")


def test_an_id_that_no_test_has_any_more_is_told() -> None:
    """So that the table says nothing of tests that are gone."""
    gone = Exemption("tests/test_a.py::test_gone", "why")
    parameter = Exemption("tests/test_a.py::test_one[y]", "why")
    assert table.unknown([A, gone, parameter], ["tests/test_a.py::test_one[x]"]) == sorted([gone.id, parameter.id])


def test_an_exemption_may_hold_for_some_variants_and_versions(tmp_path: Path) -> None:
    """Versions are compared as numbers."""
    entry = 'reason = "why"\nids = ["f::t"]\nonly = ["none"]\nsince = "2.9"\nbefore = "2.18"'
    (one,) = written(tmp_path, f"[[suites.a.tests]]\n{entry}\n")["a"].exemptions
    assert one.holds("none", (2, 14, 0))
    assert not one.holds("asyncio", (2, 14, 0))
    assert not one.holds("none", (2, 18, 0))
    assert not one.holds("none", (2, 8))


def test_a_file_is_outside_with_its_reason(tmp_path: Path) -> None:
    """By a glob; one that no file has is told."""
    suite = written(tmp_path, '[suites.a.outside]\n"tests/test_x*" = "why"\n"tests/gone.py" = "why"\n')["a"]
    assert suite.reason_outside("tests/test_xy.py", V) == "why"
    assert suite.reason_outside("tests/test_y.py", V) is None
    assert suite.unused(["tests/test_xy.py"], V) == ["tests/gone.py"]
    suite = written(tmp_path, '[suites.a]\ninside = ["tests/b*"]\nothers = "because"\n')["a"]
    assert suite.reason_outside("tests/bc.py", V) is None
    assert suite.reason_outside("tests/c.py", V) == "because"


def test_a_file_may_be_outside_in_some_versions(tmp_path: Path) -> None:
    """In a host that has no such file yet, it is not missed."""
    text = '[suites.a.outside]\n"tests/new.py" = { reason = "why", since = "2.18" }\n'
    suite = written(tmp_path, text)["a"]
    assert suite.reason_outside("tests/new.py", (2, 18, 0)) == "why"
    assert suite.reason_outside("tests/new.py", V) is None
    assert suite.unused([], V) == []
    assert suite.unused([], (2, 18, 0)) == ["tests/new.py"]


def test_a_variant_is_run_with_hosts_that_know_it() -> None:
    """Scrapy runs without a reactor since 2.15."""
    suite = next(one for one in SUITES if one.name == "scrapy-scheduler")
    assert suite.variants_of("2.14.2") == ["asyncio", "default"]
    assert suite.variants_of("2.15.0") == ["asyncio", "default", "none"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[suites.a.tests]]\nids = ["f::t"]', "reason"),
        ('[[suites.a.tests]]\nreason = "two\\nlines"\nids = ["f::t"]', "one line"),
        ('[[suites.a.tests]]\nreason = "why"', "names no test"),
        ('[[suites.a.tests]]\nreason = "why"\nids = ["f.py"]', "outside"),
        ('[[suites.a.tests]]\nreason = "why"\nids = ["f::t", "f::t"]', "twice"),
        ('[[suites.a.tests]]\nreason = "why"\nids = ["f::t"]\nmaybe = 1', "maybe"),
        ('[[suites.a.tests]]\nreason = "why"\nids = ["f::t"]\nsince = "new"', "version"),
        ('[suites.a]\ninside = ["f"]', "reason"),
        ('[suites.a.outside]\n"f" = ""', "reason"),
        ('[suites.a.outside]\n"f" = { since = "2" }', "reason"),
        ('[suites.a.outside]\n"f" = { reason = "why", only = "2" }', "only"),
    ],
)
def test_a_table_that_means_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """Above all one that gives no reason."""
    with pytest.raises(TableError, match=words):
        written(tmp_path, text)
