from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.userfunctions import imported
from tests.rows import each_row


def test_a_function_is_imported_by_its_name() -> None:
    """`package.module:function`, from wherever Python finds it."""
    assert imported("os.path:basename", "feature", ())("a/b") == "b"


@each_row(
    ("name", "message"),
    [
        ("basename", "thing 'basename' is unknown; give package.module:function or one, two"),
        (":basename", "is unknown"),
        ("os.path:", "is unknown"),
        ("os.nothing:basename", r"cannot be imported: ModuleNotFoundError: No module .* \(looked first in .*\)"),
        ("os.path:nothing", "cannot be imported"),
        (".path:basename", "cannot be imported"),
        ("os.path:sep", "thing 'os.path:sep' is not a function"),
        ("os.path:\0", "cannot be imported: AttributeError"),
    ],
)
def test_what_is_no_function_is_refused(name: str, message: str) -> None:
    """One line that names what was asked for and what there is."""
    with pytest.raises(BadParameters, match=message):
        imported(name, "thing", ["one", "two"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('one\\ntwo')", "cannot be imported: ValueError: one two$"),
        ("f = (", "cannot be imported: SyntaxError: .* line 1"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3$"),
    ],
)
def test_a_module_that_fails_when_it_is_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """Whatever it raises, the message names the function that was asked for."""
    name = f"fails_{abs(zlib.crc32(text.encode()))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadParameters, match=f"thing '{name}:f' {message}") as refused:
        imported(f"{name}:f", "thing", [])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("zlib:crc32", ("text",), "thing 'zlib:crc32' failed for 'text': TypeError: a bytes-like object is required"),
        ("os.path:join", (), r"thing 'os.path:join' failed for : TypeError: join\(\) missing"),
        ("builtins:next", (iter(()),), "failed for .*: StopIteration$"),
    ],
)
def test_a_function_that_fails_names_itself_and_what_it_was_given(
    name: str, given: tuple[object], message: str
) -> None:
    """Also one that takes another number of arguments, and an error without words."""
    with pytest.raises(BadParameters, match=message):
        imported(name, "thing", [])(*given)


def test_a_function_may_end_the_process() -> None:
    """Its author meant that."""
    with pytest.raises(SystemExit):
        imported("sys:exit", "thing", [])(3)
