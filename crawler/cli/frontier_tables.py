"""What the verbs of `crawler.operating.verbs` answer, as lines for the eye. Pure.

Names come from the web: what is not plain printable text is escaped, and long ones are cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anabranch.crawler.operating.arguments import Facts
from anabranch.crawler.reporting.escaping import escaped
from anabranch.crawler.reporting.troubles import Trouble
from anabranch.frontier.operating.explain import Explanation, text_of
from anabranch.frontier.operating.timewords import counted, duration_words, rate_words

#: Characters of a name that are shown in a table.
_SHOWN = 48
#: What of a queue's reason the other columns say.
_SAID = ("it holds ", "it waits for its turn")

_QUEUE_HEADS = (
    "queue", "state", "URLs", "waiting", "in flight", "prec", "spent/budget", "gate", "opens in", "reason",
)  # fmt: skip
_GATE_HEADS = ("gate", "opens in", "at most", "why closed")
#: Columns of numbers, which stand right.
_RIGHT = frozenset({"URLs", "waiting", "in flight", "prec", "spent/budget", "opens in"})


def listing(facts: Facts, *, is_running: bool) -> str:
    """The table of `ls`, then the totals, then why nothing runs."""
    queues: Sequence[Facts] = facts["queues"]
    lines = list(_table(_QUEUE_HEADS, [_queue_cells(queue) for queue in queues])) if queues else ["no queue to show"]
    return "\n".join([*lines, "", *totals_lines(facts["totals"], is_running=is_running)])


def totals_lines(totals: Facts, *, is_running: bool) -> Iterator[str]:
    """How much there is of what, in one line; in a second one why nothing is served."""
    queues = " ".join(f"{number:,} {state}" for state, number in totals["queues"].items() if number)
    yield (
        f"{totals['pending']:,} URLs queued ({totals['waiting']:,} wait for a retry), {totals['in_flight']:,} in flight, "
        f"{totals['retired']:,} in retired queues; {totals['done']:,} done, {totals['failed']:,} failed, "
        f"{totals['disregarded']:,} disregarded; queues: {queues or 'none'}"
    )
    why = totals["why_idle"]
    if is_running:
        yield f"nothing can be leased now: {why}" if why else "URLs can be leased now"
    else:
        yield f"no crawl runs; for one that did: {why or 'URLs can be leased at once'}"


def explained(facts: Facts) -> str:
    """The explanation of a URL, or of all requests of it, or of a queue, and the gates of a queue."""
    text = "\n".join(_explanation(said, facts["now_s"]) for said in (facts["explanation"], *facts.get("others", ())))
    if "scope" in facts:
        text = "\n  ".join([text, *map(escaped, facts["scope"].splitlines())])
    if "last_trouble" in facts:
        text = f"{text}\n  {trouble_line(facts['last_trouble'])}"
    gates: Sequence[Facts] = facts.get("gates", ())
    if not gates:
        return text
    hidden = facts["queue"]["gates"] - len(gates)
    more = [f"and {counted(hidden, 'more gate')}"] if hidden > 0 else []
    return "\n".join([text, "", *_table(_GATE_HEADS, [_gate_cells(gate) for gate in gates]), *more])


def _explanation(said: Mapping[str, Any], now_s: float) -> str:
    given: dict[str, Any] = {key: escaped(value) if isinstance(value, str) else value for key, value in said.items()}
    return text_of(Explanation(**given), now_s)


def trouble_line(facts: Facts) -> str:
    """Why the last try failed, at a host or of all."""
    trouble = Trouble(**facts)
    return f"last trouble, {duration_words(trouble.ago_s)} ago: {escaped(trouble.words())}"


def gate_line(facts: Facts) -> str:
    """How a gate is now, after an order."""
    gate = facts["gate"]
    return f"gate {name(gate['gate'])}: {gate['why_closed'] or 'open'}"


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
    reasons = [part for part in queue["reason"].split("; ") if not part.startswith(_SAID)]
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


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            cell.rjust(width) if head in _RIGHT else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
