"""Draws the life of a work queue in docs/explanation/lifecycle.md from the tables of `frontier/scheduling/lifecycle.py`.

`python scripts/lifecycle_diagram.py` writes the parts between the markers of that page; with `--check` it only exits 1 if they
are out of date. `tests/test_lifecycle_diagram.py` checks the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from anabranch.frontier.scheduling.lifecycle import NEVER, NEXT, RESTS_IN, STEPS, Holds, QueueState

PAGE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "lifecycle.md"
COMMAND = "python scripts/lifecycle_diagram.py"

#: States drawn outside the box: an arrow from or to the box represents one from or to each state in it.
OUTSIDE = (QueueState.RETIRED, QueueState.PAUSED)
INSIDE = tuple(state for state in QueueState if state not in OUTSIDE)
BOX = "RUNNING"


def diagram() -> str:
    """A Mermaid state diagram of every step: each state with what a queue holds in it, so that the arrows need no text.

    Raises: ValueError if an arrow of the box does not hold for each state in it.
    """
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [
        f'    state "{state.name}" as {state.name}\n    {state.name}: {_holding(state).value}' for state in QueueState
    ]
    lines += [f"    [*] --> {BOX}", f"    state {BOX} {{"]
    lines += [
        f"        {_arrow(state.name, holds)}" for state in INSIDE for holds in _steps(state) if _is_inside(holds)
    ]
    lines.append("    }")
    for state in OUTSIDE:
        _require_every_step(state)
        lines += [f"    {BOX} --> {state.name}", f"    {state.name} --> {BOX}"]
        lines += [f"    {_arrow(state.name, holds)}" for holds in _steps(state) if not _is_inside(holds)]
    return "\n".join([*lines, "```"])


def steps_table() -> str:
    """Every step, with its reason."""
    rows = (
        [state.name, holds.value, RESTS_IN[holds].name, steps[holds]]
        for state, steps in STEPS.items()
        for holds in _steps(state)
    )
    return _table(["from", "it now holds", "to", "because"], rows)


def never_table() -> str:
    """Every step that cannot happen, with the reason."""
    return _table(
        ["in", "it never comes to hold", "because"], ([s.name, h.value, why] for (s, h), why in NEVER.items())
    )


#: The parts between `<!-- NAME -->` and `<!-- end of NAME -->`.
PARTS: dict[str, Callable[[], str]] = {"diagram": diagram, "steps": steps_table, "never": never_table}


def renewed(page: str) -> str:
    """The page with its parts generated again. Raises: ValueError if a marker is missing."""
    for name, part in PARTS.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not begin or not end:
            raise ValueError(f"{PAGE.name} has no markers of the part {name!r}")
        page = f"{before}{begin}{part()}\n{end}{after}"
    return page


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    """Update the page; with `--check`, return 1 if it is out of date."""
    if list(arguments) not in ([], ["--check"]):
        print(f"usage: {COMMAND} [--check]")
        return 2
    text = page.read_text()
    made = renewed(text)
    if not arguments:
        page.write_text(made)
    elif made != text:
        print(f"{page} differs from the tables of frontier/scheduling/lifecycle.py; run {COMMAND}")
        return 1
    return 0


def _steps(state: QueueState) -> list[Holds]:
    """The holdings that take a queue out of this state, strongest first."""
    return [holds for holds in Holds if (state, holds) in NEXT]


def _is_inside(holds: Holds) -> bool:
    return RESTS_IN[holds] in INSIDE


def _holding(state: QueueState) -> Holds:
    return next(holds for holds, rest in RESTS_IN.items() if rest is state)


def _arrow(origin: str, holds: Holds) -> str:
    return f"{origin} --> {RESTS_IN[holds].name}"


def _require_every_step(outside: QueueState) -> None:
    """The arrows from the box and back are drawn once, so they must exist for each state in it."""
    into = {state for state in INSIDE if (state, _holding(outside)) in NEXT}
    back = {RESTS_IN[holds] for holds in _steps(outside)} & set(INSIDE)
    if into != set(INSIDE) or back != set(INSIDE):
        raise ValueError(f"{outside.name} cannot be entered from, or left for, every state: draw its steps one by one")


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
