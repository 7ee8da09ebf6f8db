"""The measures of `scripts/budgets.py`, shown on sources small enough to count by hand."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from scripts import budgets
from scripts.budgets import Measured, complexity, excesses, main, measure, source, sources
from tests.rows import each_row


def measured(text: str, path: str = "dedup/smm/store.py") -> dict[str, Measured]:
    """Place without the file -> what was measured; the module's own key is empty."""
    found = measure(source(path, dedent(text)))
    return {what.place.removeprefix(path).removeprefix(":"): what for what in found}


def function_of(lines: int, path: str = "dedup/smm/store.py", name: str = "f") -> Measured:
    """A function whose body has that many lines."""
    return measured(f"def {name}():\n" + "    x = 1\n" * lines, path)[name]


def complexity_of(body: str) -> int:
    """The complexity of a function with this body."""
    function = ast.parse("async def f():\n" + "\n".join(f"    {line}" for line in dedent(body).splitlines())).body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    return complexity(function)


def test_a_body_is_counted_without_its_signature_and_docstring() -> None:
    """Blank lines inside count; what describes the function does not."""
    text = '''
    def f(
        a,
    ):
        """Rule.

        Cost.
        """
        x = 1

        return x
    '''
    assert measured(text)["f"].sizes["lines"] == 3


def test_a_body_of_nothing_but_a_docstring_has_no_lines() -> None:
    """A Protocol's method is free."""
    assert measured('def f():\n    """Rule."""')["f"].sizes["lines"] == 0


def test_a_body_begins_at_its_first_decorator() -> None:
    """A nested function's decorator is a line of the outer one."""
    assert measured("def f():\n    @cache\n    def g():\n        pass\n    return g")["f"].sizes["lines"] == 4


def test_nested_functions_and_methods_are_measured_with_dotted_names() -> None:
    """Nothing hides inside a class, a function or an `if`."""
    text = """
    class A:
        class B:
            def c(self): pass
    if True:
        async def d():
            def e(): pass
    """
    assert set(measured(text)) == {"", "A", "A.B", "A.B.c", "d", "d.e"}


@each_row(
    ("signature", "expected"),
    [("", 0), ("self, a, b", 2), ("cls, a", 1), ("a, /, b, *, c", 3), ("*args, **kwargs", 2), ("a, self", 2)],
)
def test_all_parameters_but_the_object_itself_count(signature: str, expected: int) -> None:
    """Positional-only, keyword-only and starred ones count one each; self and cls are not chosen by the caller."""
    assert measured(f"def f({signature}): pass")["f"].sizes["parameters"] == expected


@each_row(
    ("body", "expected"),
    [
        ("pass", 1),
        ("if a:\n  pass\nelif b:\n  pass\nelse:\n  pass", 3),
        ("for x in y:\n  pass\nelse:\n  pass", 2),
        ("async for x in y:\n  pass", 2),
        ("while a:\n  pass", 2),
        ("try:\n  pass\nexcept A:\n  pass\nexcept B:\n  pass\nfinally:\n  pass", 3),
        ("return a and b and c or d", 4),
        ("return a if b else c", 2),
        ("return [x for x in y if x if z]", 4),
        ("match a:\n  case 1:\n    pass\n  case 2 | 3:\n    pass\n  case _:\n    pass", 3),
        ("match a:\n  case _ if b:\n    pass\n  case c:\n    pass", 2),
        ("return lambda: a or b", 2),
        ("with a, b:\n  assert c", 1),
        ("def g():\n  if a:\n    pass\nclass H:\n  x = a or b", 1),
    ],
)
def test_complexity_counts_decisions(body: str, expected: int) -> None:
    """One, and one more for each way that the code may go; nested definitions stand for themselves."""
    assert complexity_of(body) == expected


def test_a_class_has_its_lines_and_its_public_methods() -> None:
    """A property and its setter are one; private and magic methods, and fields, are none."""
    text = """
    @frozen
    class A:
        field: int
        def __init__(self): pass
        def _own(self): pass
        def one(self): pass
        @property
        def two(self): pass
        @two.setter
        def two(self, value): pass
    """
    assert measured(text)["A"].sizes == {"lines": 10, "methods": 2}


def test_a_module_has_all_its_lines() -> None:
    """Comments and blank lines are read too."""
    assert measured("# a\n\nx = 1\n")[""].sizes == {"lines": 3}


@pytest.mark.parametrize(("lines", "above"), [(60, 0), (61, 1)])
def test_a_limit_itself_is_allowed(lines: int, above: int) -> None:
    """A value is above a limit from one more on."""
    assert len(excesses([function_of(lines)])) == above


@each_row(
    ("text", "broken"),
    [
        ("def f(a, b, c, d, e, g, h, i): pass", "8 parameters (limit 7)"),
        ("def f():\n    return " + " or ".join("abcdefghijklm"), "13 complexity (limit 12)"),
        ("class A:\n" + "    x = 1\n" * 500, "501 lines (limit 500)"),
        ("class A:\n" + "".join(f"    def m{i}(self): pass\n" for i in range(26)), "26 methods (limit 25)"),
        ("x = 1\n" * 701, "701 lines (limit 700)"),
    ],
)
def test_each_limit_can_break(text: str, broken: str) -> None:
    """Every measure has a source that exceeds it, and the line names the place, the value and the limit."""
    found = excesses(measure(source("dedup/smm/store.py", text)))
    assert [str(excess).endswith(broken) for excess in found] == [True]


def test_what_is_exempt_is_exempt_in_that_measure_alone() -> None:
    """A command may have many options, in its folder only, and no long body."""
    many = "def f(a, b, c, d, e, g, h, i): pass"
    assert excesses(measure(source("crawler/cli/crawl.py", many))) == []
    assert len(excesses(measure(source("crawler/client.py", many)))) == 1
    assert len(excesses([function_of(61, "crawler/cli/crawl.py")])) == 1


def test_an_exempt_class_is_named_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another class of the same file, or a longer name, is not exempt."""
    monkeypatch.setattr(budgets, "EXEMPT", (("class", "methods", "frontier/stores/sql/store.py:SqlStore"),))
    methods = "".join(f"    def m{i}(self): pass\n" for i in range(26))
    for name, count in (("SqlStore", 0), ("SqlStores", 1)):
        assert len(excesses(measure(source("frontier/stores/sql/store.py", f"class {name}:\n{methods}")))) == count


def test_only_the_rooms_are_measured(tmp_path: Path) -> None:
    """Tests and scripts are not; a package is known by its folder's name."""
    for name in ("crawler/cli/__init__.py", "dedup/smm/store.py", "tests/test_smm.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text("", encoding="utf-8")
    assert [file.module for file in sources(tmp_path)] == ["anabranch.crawler.cli", "anabranch.dedup.smm.store"]


def test_the_report_names_the_largest_and_fails_above_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints each room's two largest files and longest function, and its exit code is the verdict."""
    for room, lines in (("crawler", 61), ("frontier", 3)):
        for name in ("a", "b", "c"):
            file = tmp_path / room / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"def {name}():\n" + "    x = 1\n" * (lines if name == "c" else 2), encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[:8] == [
        "crawler: 3 files, 3 functions",
        "  file crawler/c.py: 62 lines",
        "  file crawler/a.py: 3 lines",
        "  function crawler/c.py:c: 61 lines",
        "frontier: 3 files, 3 functions",
        "  file frontier/c.py: 4 lines",
        "  file frontier/a.py: 3 lines",
        "  function frontier/c.py:c: 3 lines",
    ]
    assert "  crawler/c.py:c line 1: 61 lines (limit 60)" in printed
    (tmp_path / "crawler" / "c.py").unlink()
    assert main([str(tmp_path)]) == 0


def test_the_limits_are_those_of_the_house_rules() -> None:
    """A limit is changed on purpose, here and in the documents."""
    assert budgets.LIMITS == {
        "function": {"lines": 60, "parameters": 7, "complexity": 12},
        "class": {"lines": 500, "methods": 25},
        "module": {"lines": 700},
    }
