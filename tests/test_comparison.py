"""README's table of crawlers and the page with its sources agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "explanation" / "comparison.md").read_text(encoding="utf-8")

#: Each section of the page after its head: its title, and the first cells of its lines.
SECTIONS = {
    title: re.findall(r"^\| ([^|]+) \|", body, re.MULTILINE)[1:]
    for title, body in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", PAGE, re.MULTILINE)
}
NAMED = re.findall(r"`(tests/[^`\s]+?\.py)::(\w+)`", PAGE)


def table() -> list[list[str]]:
    """The cells of README's table, its head first, without the rule below it."""
    (text,) = re.findall(r"^## Compared with other crawlers\n\n((?:\|.*\n)+)", README, re.MULTILINE)
    head, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()]
    return [head, *rows]


def test_each_row_has_a_section_in_the_same_order() -> None:
    """A row without sources, and a section that no reader of the table looks for, are both faults."""
    assert [row[0].casefold() for row in table()[1:]] == [title.casefold() for title in SECTIONS]


def test_each_crawler_has_a_line_in_each_section() -> None:
    """A cell without a source is a claim that nobody can check."""
    crawlers = table()[0][1:]
    lacking = [
        (title, crawler)
        for title, cells in SECTIONS.items()
        for crawler in crawlers
        if crawler.removesuffix(" 3") not in " ".join(cells)
    ]
    assert not lacking


def test_each_test_that_is_named_exists() -> None:
    """Also as a method of a class; a test that is renamed is renamed on the page."""
    lacking = [f"{file}::{name}" for file, name in NAMED if name not in functions(ROOT / file)]
    assert len(NAMED) == PAGE.count("`tests/") >= 20
    assert not lacking


def functions(file: Path) -> set[str]:
    """The names of all functions in a file; none if there is no such file."""
    if not file.is_file():
        return set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
