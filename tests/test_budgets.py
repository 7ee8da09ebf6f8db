"""What `scripts/budgets.py` measures, shown on sources small enough to count by hand."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from scripts import budgets
from scripts.budgets import Measured, complaints, complexity, excesses, main, measure, soft_shares, source, sources


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


@pytest.mark.parametrize(
    ("signature", "expected"),
    [("", 0), ("self, a, b", 2), ("cls, a", 1), ("a, /, b, *, c", 3), ("*args, **kwargs", 2), ("a, self", 2)],
)
def test_all_parameters_but_the_object_itself_count(signature: str, expected: int) -> None:
    """Positional-only, keyword-only and starred ones count one each; self and cls are not chosen by the caller."""
    assert measured(f"def f({signature}): pass")["f"].sizes["parameters"] == expected


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(("lines", "soft", "hard"), [(25, 0, 0), (26, 1, 0), (50, 1, 0), (51, 1, 1)])
def test_a_limit_itself_is_allowed(lines: int, soft: int, hard: int) -> None:
    """A value is above a limit from one more on."""
    function = function_of(lines)
    assert len(excesses([function], hard=False)) == soft
    assert len(excesses([function], hard=True)) == hard


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("def f(a, b, c, d, e, g, h, i): pass", "8 parameters (limit 7)"),
        ("def f():\n    return " + " or ".join("abcdefghijklm"), "13 complexity (limit 12)"),
        ("class A:\n" + "    x = 1\n" * 200, "201 lines (limit 200)"),
        ("class A:\n" + "".join(f"    def m{i}(self): pass\n" for i in range(16)), "16 methods (limit 15)"),
        ("x = 1\n" * 401, "401 lines (limit 400)"),
    ],
)
def test_each_hard_limit_can_break(text: str, broken: str) -> None:
    """Every measure has a source that exceeds it, and the line names the place, the value and the limit."""
    found = [line for line in complaints(measure(source("dedup/smm/store.py", text))) if "dedup/smm/store.py" in line]
    assert len(found) == 1
    assert found[0].endswith(broken)


def test_more_than_a_tenth_above_a_soft_limit_is_broken() -> None:
    """One long function in ten is allowed, two in eleven are not."""
    ten = [function_of(26), *[function_of(1, name=f"g{i}") for i in range(9)]]
    assert complaints(ten) == []
    assert soft_shares(ten) == {"function": 0.1, "module": 0.0}
    eleven = [*ten, function_of(26, name="h")]
    assert complaints(eleven) == ["18% of the functions exceed a soft limit (at most 10% may)"]


def test_what_is_exempt_is_exempt_in_that_measure_alone() -> None:
    """A command may have many options, in its folder only, and no long body."""
    many = "def f(a, b, c, d, e, g, h, i): pass"
    assert excesses(measure(source("crawler/cli/crawl.py", many)), hard=False) == []
    assert len(excesses(measure(source("crawler/client.py", many)), hard=False)) == 1
    assert len(excesses([function_of(51, "crawler/cli/crawl.py")], hard=True)) == 1


def test_an_exempt_class_is_named_in_full() -> None:
    """Another class of the same file, or a longer name, is not exempt."""
    methods = "".join(f"    def m{i}(self): pass\n" for i in range(16))
    for name, count in (("Frontier", 0), ("Frontiers", 1)):
        assert len(excesses(measure(source("frontier/core.py", f"class {name}:\n{methods}")), hard=True)) == count


def test_only_the_rooms_are_measured(tmp_path: Path) -> None:
    """Tests and scripts are not; a package is known by its folder's name."""
    for name in ("crawler/cli/__init__.py", "dedup/smm/store.py", "tests/test_smm.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text("", encoding="utf-8")
    assert [file.module for file in sources(tmp_path)] == ["crawler.cli", "dedup.smm.store"]


def test_the_report_names_the_largest_and_fails_above_a_hard_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints each room's two largest files and longest function, and its exit code is the verdict."""
    for room, lines in (("crawler", 51), ("frontier", 3)):
        for name in ("a", "b", "c"):
            file = tmp_path / room / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"def {name}():\n" + "    x = 1\n" * (lines if name == "c" else 2), encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[:8] == [
        "crawler: 3 files, 3 functions",
        "  file crawler/c.py: 52 lines",
        "  file crawler/a.py: 3 lines",
        "  function crawler/c.py:c: 51 lines",
        "frontier: 3 files, 3 functions",
        "  file frontier/c.py: 4 lines",
        "  file frontier/a.py: 3 lines",
        "  function frontier/c.py:c: 3 lines",
    ]
    assert "  crawler/c.py:c line 1: 51 lines (limit 50)" in printed
    (tmp_path / "crawler" / "c.py").unlink()
    assert main([str(tmp_path)]) == 0


def test_the_limits_are_those_of_the_house_rules() -> None:
    """A limit is changed on purpose, here and in the documents."""
    assert budgets.FUNCTION_LIMITS == {"lines": (25, 50), "parameters": (5, 7), "complexity": (8, 12)}
    assert budgets.MODULE_LIMITS == {"lines": (300, 400)}
    assert budgets.CLASS_LIMITS == {"lines": (200, 200), "methods": (15, 15)}
    assert budgets.SOFT_SHARE == 0.10
