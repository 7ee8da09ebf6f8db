"""A report is data: how its cells are shown, and its tables as CSV."""

import csv
import io

from anabranch.crawler.lab.report import NOT_RECOVERABLE, Ratio, Table, csv_of, in_turns, interval, ratio_of, shown
from tests.rows import each_row


def table(title, *rows, columns=("a", "b, c")):
    return Table(title=title, columns=columns, rows=rows)


@each_row(
    ("cell", "text"),
    [
        (None, ""),
        ("", ""),
        (NOT_RECOVERABLE, "not recoverable"),
        (0, "0"),
        (75_012, "75,012"),
        (0.0, "0"),
        (2.2376, "2.238"),
        (170_205.4, "170,205"),
        (999.96, "1,000"),
        (1000.4, "1,000"),
        (0.01, "0.01"),
        (0.60842, "0.6084"),
        (0.0093, "9.3e-03"),
        (-0.0093, "-9.3e-03"),
        (3.3e-11, "3.3e-11"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_is_shown_so_that_it_can_be_read(cell, text) -> None:
    """Four significant digits, thousands separated, rates below 1 % by their exponent."""
    assert shown(cell) == text


def test_a_csv_has_every_digit_and_every_cell() -> None:
    """Values are read back as they were measured; commas, quotes and line ends in a text do no harm."""
    rows = (("x", 0.1 + 0.2), ('a "quoted", one', 10**12), ("two\nlines", None))
    read = list(csv.reader(io.StringIO(csv_of([table("Of all", *rows)]), newline="")))
    assert read[:2] == [["Of all"], ["a", "b, c"]]
    assert [tuple(row) for row in read[2:]] == [("x", repr(0.1 + 0.2)), (rows[1][0], str(10**12)), ("two\nlines", "")]


def test_tables_of_a_csv_are_parted_by_an_empty_line() -> None:
    """Each stands below its title, and none is lost."""
    text = csv_of([table("one", (1, 2)), table("two", (3, 4))])
    assert text == 'one\r\na,"b, c"\r\n1,2\r\n\r\ntwo\r\na,"b, c"\r\n3,4\r\n'
    assert csv_of([]) == ""


def test_an_interval_holds_the_median_and_narrows_with_the_rounds() -> None:
    """Nine rounds that agree leave little doubt; two that differ leave all between them."""
    ratios = [0.97, 0.98, 1.0, 1.01, 1.01, 1.02, 1.03, 1.05, 1.4]
    low, high = interval(ratios)
    assert 0.97 <= low < 1.01 < high < 1.4
    assert interval([0.5, 2.0]) == (0.5, 2.0)


def test_one_figure_has_no_interval() -> None:
    """Its error is unknown, so nothing is said of it."""
    assert interval([1.0]) is None
    assert interval([]) is None
    assert interval([1.0, 1.0, 1.0]) == (1.0, 1.0)


def test_a_ratio_has_a_verdict_only_if_its_interval_excludes_1() -> None:
    """Nine rounds that all lie on one side show it; one that straddles 1 shows nothing."""
    faster = ratio_of([2.0] * 8 + [1.5], [1.0] * 9)
    assert (faster.median, faster.is_above(), faster.is_below()) == (2.0, True, False)
    slower = Ratio(figures=(0.5, 0.6, 0.7, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1))
    assert (slower.is_above(), slower.is_below()) == (False, True)
    noise = Ratio(figures=(0.9, 1.1, 1.2, 0.8, 1.0, 1.1, 0.9, 1.2, 0.95))
    assert (noise.is_above(), noise.is_below()) == (False, False)


def test_fewer_than_nine_rounds_show_nothing() -> None:
    """However far apart the figures are; the words say why."""
    few = Ratio(figures=(5.0,) * 8)
    assert (few.interval, few.is_above(), few.is_below()) == (None, False, False)
    assert str(few) == "5 (8 rounds: no interval)"
    assert str(Ratio(figures=(2.0,))) == "2 (1 round: no interval)"
    assert str(Ratio(figures=(2.0,) * 9)) == "2 (95 %: 2 to 2)"


def test_contestants_take_turns_in_an_order_that_reverses() -> None:
    """Neighbours stay neighbours, and nobody is always first."""
    turns = list(in_turns("abc", 3))
    assert "".join(one for _, one in turns) == "abccbaabc"
    assert [number for number, _ in turns] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
