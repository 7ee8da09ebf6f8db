"""The text that commands show. Pure. Names from the web are escaped and cut."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from anabranch.crawler.lab.report import NOT_RECOVERABLE, LabReport, Table, shown
from anabranch.crawler.report.jobstatus import totals_line, trouble_line
from anabranch.crawler.report.table import escaped, plain_table
from anabranch.crawler.run.verbs import Facts
from anabranch.frontier import Explanation, text_of
from anabranch.frontier.times import counted, duration_words, rate_words

#: Characters of a name that are shown in a table.
_SHOWN = 48
#: Parts of a queue's reason that other columns show.
_SHOWN_ELSEWHERE = ("it holds ", "it waits for its turn")

_QUEUE_HEADS = (
    "queue", "state", "URLs", "waiting", "in flight", "prec", "spent/budget", "gate", "opens in", "reason",
)  # fmt: skip
_GATE_HEADS = ("gate", "opens in", "at most", "why closed")


def listing(facts: Facts, *, is_running: bool) -> str:
    """The table of `ls`, then the totals, then why nothing runs."""
    queues: Sequence[Facts] = facts["queues"]
    lines = (
        list(plain_table(_QUEUE_HEADS, [_queue_cells(queue) for queue in queues])) if queues else ["no queue to show"]
    )
    return "\n".join([*lines, "", *totals_lines(facts["totals"], is_running=is_running)])


def totals_lines(totals: Facts, *, is_running: bool) -> Iterator[str]:
    """How many URLs and queues there are in each state, in one line; in a second one why nothing is served."""
    yield totals_line(totals)
    why = totals["why_idle"]
    if is_running:
        yield f"nothing can be leased now: {why}" if why else "URLs can be leased now"
    else:
        yield f"Not running. If started now: {why or 'it can fetch at once'}"


def explained(facts: Facts) -> str:
    """The explanation of a URL, or of all requests of it, or of a queue, and the gates of a queue."""
    texts = []
    for fields in (facts["explanation"], *facts.get("others", ())):
        given: dict[str, Any] = {
            key: escaped(value) if isinstance(value, str) else value for key, value in fields.items()
        }
        texts.append(text_of(Explanation(**given), facts["now_s"]))
    text = "\n".join(texts)
    if "scope" in facts:
        text = "\n  ".join([text, *map(escaped, facts["scope"].splitlines())])
    if "robots" in facts:
        text = f"{text}\n  robots.txt: {escaped(facts['robots'])}"
    if "body" in facts:
        text = "\n  ".join([text, *map(escaped, f"body: {facts['body']}".splitlines())])
    if "last_trouble" in facts:
        text = f"{text}\n  {trouble_line(facts['last_trouble'])}"
    if facts.get("not_run"):
        text = f"{text}\n  {escaped(not_run_line(facts['not_run']))}"
    gates: Sequence[Facts] = facts.get("gates", ())
    if not gates:
        return text
    hidden = facts["queue"]["gates"] - len(gates)
    more = [f"and {counted(hidden, 'more gate')}"] if hidden > 0 else []
    return "\n".join([text, "", *plain_table(_GATE_HEADS, [_gate_cells(gate) for gate in gates]), *more])


def not_run_line(functions: Sequence[str]) -> str:
    """Which rules an explanation leaves out, and why. Pure."""
    return f"not run, because only the job itself names it: {', '.join(functions)} (--run-code runs it)"


def gate_line(facts: Facts) -> str:
    """How a gate is now, after an order."""
    gate = facts["gate"]
    return "\n".join(
        filter(None, [f"gate {name(gate['gate'])}: {gate['why_closed'] or 'open'}", escaped(facts.get("note", ""))])
    )


def queue_line(facts: Facts) -> str:
    """How a queue is now, after an order."""
    queue = facts["queue"]
    return f"queue {name(queue['queue'])}: {queue['state']}; {escaped(queue['reason'])}"


def name(text: str) -> str:
    """A name that fits into a table."""
    shown = escaped(text)
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"


def _queue_cells(queue: Facts) -> tuple[str, ...]:
    gate = "" if queue["gate"] is None else name(queue["gate"])
    if queue["gates"] > 1:
        gate = f"{gate} +{queue['gates'] - 1:,}"
    budget = "-" if queue["budget"] is None else f"{queue['budget']:,}"
    reasons = [part for part in queue["reason"].split("; ") if not part.startswith(_SHOWN_ELSEWHERE)]
    return (
        name(queue["queue"]),
        queue["state"],
        f"{queue['urls']:,}",
        f"{queue['waiting']:,}",
        f"{queue['in_flight']:,}",
        str(queue["precedence"]),
        f"{queue['spent']:,}/{budget}",
        gate,
        _opens_in(queue),
        escaped("; ".join(reasons)),
    )


def _gate_cells(gate: Facts) -> tuple[str, ...]:
    rate = gate["rate_per_s"]
    words = rate_words(float("inf") if rate is None else rate)
    group = gate["group"]
    shown = name(gate["gate"]) if group is None else f"{name(gate['gate'])} in {name(group['gate'])}"
    why = [gate["why_closed"], *([] if group is None else [group["why_closed"]])]
    return shown, _opens_in(gate), words, escaped("; ".join(filter(None, why)))


def _opens_in(facts: Facts) -> str:
    seconds = facts["opens_in_s"]
    if seconds is None:
        return "-"
    return duration_words(seconds) if seconds > 0 else "open"


#: The width where the output is a pipe or a file.
PIPE_WIDTH = 100

_GAPS = (2, 1)  # blanks between columns, if they fit and if not
_KEPT_WHOLE = 28  # a cell up to this length is not broken between its words


def report_text(report: LabReport, *, width: int = PIPE_WIDTH, is_terminal: bool = False) -> str:
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
    """The lines of a table, each with its style: the heads, a rule, the rows. Numbers are right-aligned, texts left-aligned."""
    widths = column_widths(table, width)
    gap = next((gap for gap in _GAPS if _total(widths, gap) <= width), _GAPS[-1])
    is_right = [
        all(not isinstance(row[place], str) or row[place] == NOT_RECOVERABLE for row in table.rows)
        for place in range(len(widths))
    ]
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
    """A row: as many lines as its longest text takes. Heads are aligned at the bottom, cells at the top."""
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
