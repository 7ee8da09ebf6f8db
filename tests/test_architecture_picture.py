"""The picture in docs/explanation/architecture.md shows the imports as they are."""

import re
from functools import cache
from pathlib import Path

from scripts.budgets import sources
from scripts.measures import run_time_imports

CLONE = Path(__file__).resolve().parent.parent
PAGE = CLONE / "docs" / "explanation" / "architecture.md"


def drawn() -> set[tuple[str, str]]:
    """The arrows of the picture."""
    picture = PAGE.read_text().partition("```mermaid\n")[2].partition("```")[0]
    return set(re.findall(r"^ *(\w+) --> (\w+)$", picture, re.MULTILINE))


def place(path: str) -> str:
    """Where a file is in the picture: a folder of the crawler, a file beside these, or another room."""
    room, _, rest = path.partition("/")
    return rest.partition("/")[0].removesuffix(".py") if room == "crawler" else room


@cache
def imports() -> dict[str, set[str]]:
    """Each place, and the places that it imports."""
    files = [file for file in sources(CLONE) if file.path != "crawler/__init__.py"]
    modules = {file.module: file.path for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        for module, _ in run_time_imports(file.tree, modules):
            here, there = place(file.path), place(modules[module])
            graph.setdefault(here, set()).update({there} - {here})
            graph.setdefault(there, set())
    return graph


def below(graph: dict[str, set[str]], start: str) -> set[str]:
    """All places that one leads to."""
    found, waiting = set[str](), [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_the_arrows_are_the_imports_without_those_that_follow_from_others() -> None:
    """None is missing, none is made up, and none leads up."""
    graph = imports()
    reached = {here: below(graph, here) for here in graph}
    assert not [here for here in graph if here in reached[here]], "these import each other"
    least = {
        (here, there)
        for here, places in graph.items()
        for there in places
        if not any(there in reached[other] for other in places)
    }
    assert drawn() == least


def test_each_folder_of_the_crawler_has_its_line() -> None:
    """The table names every folder."""
    table = PAGE.read_text().partition("| folder of `crawler` |")[2].partition("\n\n")[0]
    named = {name.removesuffix(".py") for name in re.findall(r"`([\w.]+)`", table)}
    assert named >= {here for here in imports() if here not in {"frontier", "dedup"}}
