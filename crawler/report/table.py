"""A report as a table, and the table as text and JSON. Pure. It imports no module of ours, so that commands start fast.

The text is in Heritrix's format: heads in brackets, cells separated by one space. Rows may be an iterator, so that a report
of a million hosts is written line by line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from textwrap import wrap
from typing import Any, NamedTuple

Cell = str | int | float | None


class ReportTable(NamedTuple):
    """Rows under heads; or, without heads, facts: rows of a name and a value."""

    heads: Sequence[str]  #: empty for facts
    rows: Iterable[Sequence[Cell]]
    right: Sequence[int] = ()  #: widths of the first cells, negative for left-aligned; other cells have no width


def escaped(text: str) -> str:
    """The text with unprintable characters and lone surrogates escaped, so that a terminal obeys none of it."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )


def escaped_lines(text: str) -> str:
    """Escape a text of several lines like `escaped`, but keep its lines."""
    return "\n".join(map(escaped, text.split("\n")))


def folded(text: str, width: int) -> str:
    """Fold lines that are longer than the width, between words. What follows is indented; a word stays whole."""
    return "\n".join(
        "\n".join(wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""])
        for line in text.split("\n")
    )


def text_lines(table: ReportTable) -> Iterator[str]:
    """The lines of the table, with newlines. A missing cell is `-`; all text is escaped."""
    if table.heads:
        yield " ".join(f"[{head}]" for head in table.heads) + "\n"
    for row in table.rows:
        cells = [
            "-" if cell is None else _number(cell, table) if isinstance(cell, float) else escaped(str(cell))
            for cell in row
        ]
        if not table.heads:
            yield f"{cells[0]}: {cells[1]}\n"
            continue
        for number, width in enumerate(table.right):
            cells[number] = cells[number].rjust(width) if width > 0 else cells[number].ljust(-width)
        yield " ".join(cells).rstrip() + "\n"


def _number(value: float, table: ReportTable) -> str:
    """With two decimals; a small one in a table with two digits that count."""
    return f"{value:.2g}" if table.heads and 0 < abs(value) < _SMALL else f"{value:.2f}"


#: Below it two decimals would show little or nothing.
_SMALL = 0.01


def json_facts(table: ReportTable, limit: int) -> dict[str, Any]:
    """The table as JSON, with at most `limit` rows.

    `{"heads": […], "rows": [{head: cell}, …], "more": bool, "widths": […]}`, or `{"facts": {name: value}}`.
    """
    if not table.heads:
        return {"facts": {str(row[0]): row[1] for row in table.rows}}
    rows = iter(table.rows)
    shown = [dict(zip(table.heads, row, strict=True)) for row in islice(rows, limit)]
    more = next(rows, None) is not None
    return {"heads": list(table.heads), "rows": shown, "more": more, "widths": list(table.right)}


def report_of(facts: dict[str, Any]) -> ReportTable:
    """The table from which `json_facts` made these facts."""
    if "facts" in facts:
        return ReportTable((), list(facts["facts"].items()))
    return ReportTable(
        facts["heads"], [[row[head] for head in facts["heads"]] for row in facts["rows"]], facts["widths"]
    )


#: Columns of numbers, which are right-aligned.
_RIGHT = frozenset(
    {"queued", "failed", "free"}
    | {"URLs", "waiting", "in flight", "prec", "spent/budget", "opens in", "shares", "pages", "pages/s", "active"}
)


def plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table: the heads, then the rows. Numbers are right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            cell.rjust(width) if head in _RIGHT else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
