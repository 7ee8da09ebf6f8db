"""The operator's own functions: what they are named like, and how they fail."""

from __future__ import annotations

import pytest

from crawler.outcomes.errors import OrderError
from crawler.outcomes.ownfunctions import OwnFunctionFailed, call_own, is_own, own_function, shown


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("a:b", True), ("a.b_1.c:d", True), ("a", False), ("a:", False), (":b", False), ("a.:b", False), ("1a:b", False),
     ("a:b.c", False), ("http://a:b", False), ("a b:c", False)],
)  # fmt: skip
def test_a_function_is_named_by_its_module(name: str, is_one: bool) -> None:
    """package.module:function, and nothing else."""
    assert is_own(name) is is_one


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine", "'mine' is not of the form package.module:function"),
        ("no.such:f", "no.such:f cannot be imported: ModuleNotFoundError: No module named 'no'"),
        ("json:nothing", "json:nothing cannot be imported: AttributeError: module 'json' has no attribute 'nothing'"),
        ("json:__name__", "json:__name__ is not a function"),
    ],
)
def test_what_cannot_be_had_is_said_with_the_key_of_the_order(name: str, words: str) -> None:
    """One line, before the crawl begins."""
    with pytest.raises(OrderError) as raised:
        own_function(name, "[scope] rules")
    assert str(raised.value) == f"[scope] rules {words}"


def test_what_a_function_raises_is_one_line_that_names_it() -> None:
    """The kind and the text of the error."""
    loads = own_function("json:loads", "[x] y")
    assert call_own("json:loads", loads, "[1]") == [1]
    with pytest.raises(
        OwnFunctionFailed, match=r"^json:loads failed: JSONDecodeError: Expecting value: line 1 column 1"
    ):
        call_own("json:loads", loads, "x")


def test_long_texts_are_cut() -> None:
    """For a line in a terminal."""
    assert (shown("x" * 200), shown("x" * 201)) == ("x" * 200, "x" * 200 + "…")
