"""Tables as text: aligned, readable in a hundred columns, nothing cut off."""

import pytest

from anabranch.crawler.cli.lab_tables import PIPE_WIDTH, column_widths, report_text, table_lines
from anabranch.crawler.lab.report import NOT_RECOVERABLE, Report, Table


def table(*rows, columns, note=""):
    return Table(title="T", columns=columns, rows=rows, note=note)


def text_of(*tables, closing=(), **how):
    return report_text(Report(name="x", tables=tables, panels=(), closing=closing), **how)


def lines(what, width=PIPE_WIDTH):
    return [line for line, _ in table_lines(what, width)]


def test_numbers_stand_right_and_texts_left() -> None:
    """A lost figure among numbers does not change that."""
    shown = lines(table(("a", 1, NOT_RECOVERABLE), ("bbb", 20_000, None), columns=("name", "n", "published")))
    assert shown == [
        "name       n        published",
        "-----------------------------",
        "a          1  not recoverable",
        "bbb   20,000",
    ]


def test_heads_are_broken_between_words_until_the_table_fits() -> None:
    """The widest first; they stand on the rule."""
    shown = lines(table((1, 2), columns=("query of the whole table", "n")), width=14)
    assert shown == ["   query of", "  the whole", "      table  n", "--------------", "          1  2"]


def test_a_table_that_fits_is_not_broken() -> None:
    """However wide the terminal is."""
    assert lines(table((1, 2), columns=("query of all", "n")))[0] == "query of all  n"


def test_cells_are_whole_even_where_the_table_cannot_fit() -> None:
    """It is wider then: half a number is worse than a long line."""
    what = table((2_038_838, "Bloom m=8,000,000 k=10"), columns=("first", "method"))
    assert lines(what, width=10)[-1] == "2,038,838 Bloom m=8,000,000 k=10"


def test_columns_move_together_before_a_table_is_too_wide() -> None:
    """One blank between them is enough to read it."""
    what = table((10_000, 20_000), columns=("a", "b"))
    assert lines(what, width=14)[-1] == "10,000  20,000"
    assert lines(what, width=13)[1:] == ["-------------", "10,000 20,000"]


def test_a_long_text_in_a_cell_is_broken_between_words() -> None:
    """The row takes more lines then, and hangs from its first one."""
    long = "overflow for portals, waste on small sites"
    shown = lines(table((long, 7), columns=("published", "n")), width=25)
    assert shown[2:] == ["overflow for portals,   7", "waste on small sites"]


@pytest.mark.parametrize(
    ("rows", "head", "shown"),
    [
        ((), "c", ["c", "-"]),
        ((("x",),), "c", ["c", "-", "x"]),
        (((None,),), "", ["", "-", ""]),
        ((("",),), "c", ["c", "-", ""]),
    ],
)
def test_a_table_may_be_small(rows, head, shown) -> None:
    """No rows, one cell, or nothing in it."""
    assert column_widths(table(*rows, columns=(head,)), 100) == [1]
    assert lines(table(*rows, columns=(head,))) == shown


def test_a_report_is_title_table_note_and_closing() -> None:
    """In plain ASCII lines in a pipe, none wider than asked, no blanks at the ends."""
    note, closing = "word " * 60, "sentence " * 40
    shown = text_of(table((1,), columns=("n",), note=note), closing=(closing, "[end]"))
    assert shown.startswith("T\nn\n-\n1\nword word")
    assert shown.endswith("* [end]\n")
    assert max(map(len, shown.splitlines())) <= 100
    assert all(line == line.rstrip() for line in shown.splitlines())
    assert shown.count("word") == 60
    assert shown.count("sentence") == 40
    assert "\x1b" not in shown


def test_on_a_terminal_titles_stand_out(monkeypatch) -> None:
    """The words are the same."""
    monkeypatch.setenv("TERM", "xterm")
    shown = text_of(table((1,), columns=("n",)), width=40, is_terminal=True)
    assert "\x1b[1mT" in shown


def test_what_looks_like_markup_is_text() -> None:
    """Units in brackets are no style."""
    shown = text_of(table(("[bold]",), columns=("[µs]",)))
    assert "[µs]" in shown
    assert "[bold]" in shown
