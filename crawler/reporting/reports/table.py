"""A report as rows, and how rows become text and JSON. Pure.

Text is as Heritrix writes it: heads in brackets, cells parted by one space, so that its tools read ours. Rows may be an
iterator: a report of a million hosts is written line by line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from anabranch.crawler.reporting.escaping import escaped

Cell = str | int | float | None


class Report(NamedTuple):
    """What a report says: rows under heads, or facts (rows of two cells, whose first is the head)."""

    heads: Sequence[str]  #: empty for facts
    rows: Iterable[Sequence[Cell]]
    right: Sequence[int] = ()  #: widths of the first cells, below 0: left-aligned; none: as they are


def text_lines(report: Report) -> Iterator[str]:
    """The lines, newlines included. A missing cell is `-`; what a terminal would obey is escaped."""
    if report.heads:
        yield " ".join(f"[{head}]" for head in report.heads) + "\n"
    for row in report.rows:
        cells = [_shown(cell) for cell in row]
        if not report.heads:
            yield f"{cells[0]}: {cells[1]}\n"
            continue
        for number, width in enumerate(report.right):
            cells[number] = cells[number].rjust(width) if width > 0 else cells[number].ljust(-width)
        yield " ".join(cells).rstrip() + "\n"


def json_facts(report: Report, limit: int) -> dict[str, Any]:
    """As JSON holds it, with at most `limit` rows.

    `{"heads": […], "rows": [{head: cell}, …], "more": bool, "widths": […]}`, or `{"facts": {name: value}}`.
    """
    if not report.heads:
        return {"facts": {str(row[0]): row[1] for row in report.rows}}
    rows = iter(report.rows)
    shown = [dict(zip(report.heads, row, strict=True)) for row in islice(rows, limit)]
    more = next(rows, None) is not None
    return {"heads": list(report.heads), "rows": shown, "more": more, "widths": list(report.right)}


def report_of(facts: dict[str, Any]) -> Report:
    """The report that `json_facts` was made of."""
    if "facts" in facts:
        return Report((), list(facts["facts"].items()))
    return Report(facts["heads"], [[row[head] for head in facts["heads"]] for row in facts["rows"]], facts["widths"])


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.2f}"
    text = str(cell)
    return escaped(text)
