"""The line in which a key stands."""

import pytest

from anabranch.crawler.orders.positions import key_lines


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
    """What stands before it is told; nothing is guessed, and a long list costs no quadratic time."""
    text = "[a]\nx = 1\ny = [\n" + "  1,\n" * 200_000 + "]\nz = 2"
    assert key_lines(text) == {("a", "x"): 2}
