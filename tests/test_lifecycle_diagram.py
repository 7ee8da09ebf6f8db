"""docs/explanation/lifecycle.md is made from the table of a queue's life, and is up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.frontier.scheduling.lifecycle import NEVER, NEXT, RESTS_IN, Holds, QueueState
from scripts import lifecycle_diagram
from scripts.lifecycle_diagram import BOX, INSIDE, OUTSIDE, PAGE, diagram, main, never_table, renewed, steps_table
from tests.rows import each_row

EMPTY_PAGE = "".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in lifecycle_diagram.PARTS)


def drawn(text: str) -> set[tuple[str, str]]:
    """(from, to) of each arrow of a Mermaid diagram."""
    return set(re.findall(r"^\s*(\S+) --> (\w+)", text, re.MULTILINE))


def test_the_page_is_what_the_tables_say() -> None:
    """Whoever changes the table draws it again."""
    assert main(["--check"]) == 0


def test_every_step_is_drawn_and_nothing_else() -> None:
    """Read back from the drawing, the arrows are the steps of the table: an arrow at the box is one for each state in it."""
    arrows = drawn(diagram())
    boxed = {state.name for state in INSIDE}
    read = set()
    for origin, after in arrows - {("[*]", BOX)}:
        read |= {
            (one, other)
            for one in (boxed if origin == BOX else {origin})
            for other in (boxed if after == BOX else {after})
        }
    assert read == {(state.name, after.name) for (state, _), after in NEXT.items()}


def test_each_state_says_what_a_queue_holds_in_it() -> None:
    """In the words of the error that a wrong step raises."""
    said = dict(re.findall(r"^ +(\w+): (.+)$", diagram(), re.MULTILINE))
    assert said == {rest.name: holds.value for holds, rest in RESTS_IN.items()}
    assert said["IN_FLIGHT"] == "all the leases it may have"


def test_every_step_has_a_line() -> None:
    """The list has one line for each step and two for its head."""
    assert len(steps_table().splitlines()) == len(NEXT) + 2
    assert "| READY | all the leases it may have | IN_FLIGHT | its head is leased |" in steps_table()


def test_every_impossible_step_has_a_line() -> None:
    """The list says of each why it cannot happen."""
    assert len(never_table().splitlines()) == len(NEVER) + 2
    assert all(why in never_table() for why in NEVER.values())


@each_row("state", list(QueueState))
def test_every_state_has_a_paragraph(state: QueueState) -> None:
    """No state is without its words, with Heritrix's beside them."""
    paragraph = re.search(rf"^\*\*{state.name}\.\*\* .*?(?=\n\n)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert paragraph is not None
    assert "Heritrix" in paragraph[0]


def test_the_page_tells_the_order_of_holdings() -> None:
    """Strongest first, as the table has them."""
    assert ", ".join(holds.value for holds in Holds) in " ".join(PAGE.read_text().split())


def test_a_page_is_renewed_in_place(tmp_path: Path) -> None:
    """The text between the markers is replaced and the rest stays; a second renewal changes nothing."""
    page = tmp_path / "lifecycle.md"
    page.write_text("before\n" + EMPTY_PAGE + "after\n")
    assert main([], page) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- diagram -->\n```mermaid")
    assert text.endswith("<!-- end of never -->\nafter\n")
    assert renewed(text) == text


def test_a_stale_page_is_told_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A check answers 1, says what to run, and writes nothing."""
    page = tmp_path / "lifecycle.md"
    page.write_text(EMPTY_PAGE)
    main([], page)
    stale = page.read_text().replace("its head is leased", "it is leased")
    page.write_text(stale)
    assert main(["--check"], page) == 1
    assert "run python scripts/lifecycle_diagram.py" in capsys.readouterr().out
    assert page.read_text() == stale


def test_a_page_without_markers_is_refused() -> None:
    """The parts are not put where nobody asked for them."""
    with pytest.raises(ValueError, match="no markers of the part 'diagram'"):
        renewed("# The life of a work queue\n")


@pytest.mark.parametrize("missing", ["into", "back"])
def test_a_box_that_would_lie_is_not_drawn(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An arrow at the box is true only if each state in it has that step."""
    step = (INSIDE[0], Holds[OUTSIDE[0].name]) if missing == "into" else (OUTSIDE[0], Holds.ROWS)
    monkeypatch.delitem(NEXT, step)
    with pytest.raises(ValueError, match=f"{OUTSIDE[0].name} cannot be entered from, or left for, every state"):
        diagram()


def test_another_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt flag does not rewrite the page."""
    assert main(["--chek"]) == 2
    assert "usage: python scripts/lifecycle_diagram.py [--check]" in capsys.readouterr().out
