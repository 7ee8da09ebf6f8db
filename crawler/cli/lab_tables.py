"""A report as text: aligned columns, on a terminal with some weight and colour, in a pipe with nothing but ASCII lines."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, Report, Table, shown

#: Of a pipe or file, where nobody says how wide it is.
PIPE_WIDTH = 100

_GAPS = (2, 1)  # blanks between columns, if they fit and if not
_KEPT_WHOLE = 28  # a cell up to this length is not broken between its words


def report_text(report: Report, *, width: int = PIPE_WIDTH, is_terminal: bool = False) -> str:
    """Tables with their notes, then the closing sentences. A table that cannot be narrower is wider than `width`."""
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=is_terminal, markup=False, highlight=False, emoji=False)
    for table in report.tables:
        console.print(Text(textwrap.fill(table.title, width), style="bold"))
        for line, style in table_lines(table, width):
            console.print(Text(line, style=style), no_wrap=True, crop=False, overflow="ignore")
        if table.note:
            console.print(Text(textwrap.fill(table.note, width), style="dim"))
        console.print()
    for line in report.closing:
        console.print(textwrap.fill(line, width, initial_indent="* ", subsequent_indent="  "))
    return text.getvalue()


def table_lines(table: Table, width: int = PIPE_WIDTH) -> Iterator[tuple[str, str]]:
    """The lines of a table, each with its style: the heads, a rule, the rows. Numbers stand right, texts left."""
    widths = column_widths(table, width)
    gap = next((gap for gap in _GAPS if _total(widths, gap) <= width), _GAPS[-1])
    is_right = [all(_is_right(row[place]) for row in table.rows) for place in range(len(widths))]
    heads = _padded(_wrapped(table.columns, widths), is_head=True)
    yield from ((_line(texts, widths, is_right, gap), "bold") for texts in heads)
    yield "-" * _total(widths, gap), "dim"
    for row in table.rows:
        cells = _padded(_wrapped([*map(shown, row)], widths), is_head=False)
        yield from ((_line(texts, widths, is_right, gap), "") for texts in cells)


def column_widths(table: Table, width: int) -> list[int]:
    """The widths of the columns: heads and long texts are broken between words, the widest first, until the table fits."""
    columns = [(head, [*map(shown, cells)]) for head, *cells in zip(table.columns, *table.rows, strict=True)]
    least = [max([_least(head, 0), *(_least(cell, _KEPT_WHOLE) for cell in cells)]) for head, cells in columns]
    widths = [max(1, *map(len, [head, *cells])) for head, cells in columns]
    while _total(widths, _GAPS[0]) > width and widths != least:
        widest = max(range(len(widths)), key=lambda place: (widths[place] > least[place], widths[place]))
        widths[widest] -= 1
    return widths


def _least(text: str, kept_whole: int) -> int:
    """The width below which a text is not broken."""
    return len(text) if len(text) <= kept_whole else max(map(len, text.split()))


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _wrapped(texts: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    return [textwrap.wrap(text, width) for text, width in zip(texts, widths, strict=True)]


def _padded(cells: Sequence[list[str]], *, is_head: bool) -> Iterator[tuple[str, ...]]:
    """A row: as many lines as its longest text takes. Heads stand on the rule, cells hang from the top."""
    height = max(1, *map(len, cells))
    blank = [[""] * (height - len(cell)) for cell in cells]
    pairs = zip(blank, cells, strict=True) if is_head else zip(cells, blank, strict=True)
    return zip(*(upper + lower for upper, lower in pairs), strict=True)


def _line(texts: Sequence[str], widths: Sequence[int], is_right: Sequence[bool], gap: int) -> str:
    aligned = (
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(texts, widths, is_right, strict=True)
    )
    return (" " * gap).join(aligned).rstrip()


def _is_right(cell: Cell) -> bool:
    return not isinstance(cell, str) or cell == NOT_RECOVERABLE
