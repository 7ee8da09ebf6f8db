"""The table of the hosts' tests that cannot apply."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.hosts import table
from scripts.hosts.suites import SUITES
from scripts.hosts.table import Exemption, TableError

A = Exemption("tests/test_a.py::test_one", "why")


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
    """By a glob; one that no file has any more is told."""
    suite = written(tmp_path, '[suites.a.outside]\n"tests/test_x*" = "why"\n"tests/gone.py" = "why"\n')["a"]
    assert suite.reason_outside("tests/test_xy.py") == "why"
    assert suite.reason_outside("tests/test_y.py") is None
    assert suite.unused(["tests/test_xy.py"]) == ["tests/gone.py"]
    suite = written(tmp_path, '[suites.a]\ninside = ["tests/b*"]\nothers = "because"\n')["a"]
    assert suite.reason_outside("tests/bc.py") is None
    assert suite.reason_outside("tests/c.py") == "because"


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
    ],
)
def test_a_table_that_means_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """Above all one that gives no reason."""
    with pytest.raises(TableError, match=words):
        written(tmp_path, text)
