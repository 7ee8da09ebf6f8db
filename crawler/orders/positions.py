"""In which line of an order's file a key stands: `tomllib` does not tell."""

from __future__ import annotations

import tomllib
from typing import Any

#: A value that goes on for more lines is not followed: each line more costs a look at all of them.
_LONGEST = 100


def key_lines(text: str) -> dict[tuple[str, str], int]:
    """(section, key) -> line, from 1, for what stands in sections of a sound TOML text; lists of tables are left out.

    The text is cut into statements, the shortest runs of lines that are TOML by themselves: no guess about strings and
    brackets. After a value of more than 100 lines nothing more is told.
    """
    found: dict[tuple[str, str], int] = {}
    here: tuple[str, ...] | None = ()  # the table that stands open; None inside a list of tables
    lines = text.splitlines()
    first = 0
    while first < len(lines):
        statement, count = _statement(lines, first)
        if statement is None:
            break
        if lines[first].lstrip().startswith("["):
            here = _opened(statement)
        elif here is not None:
            for path in _paths(statement, here):
                found.setdefault(path, first + 1)
        if here is not None and len(here) == 2:
            found.setdefault((here[0], here[1]), first + 1)
        first += count
    return found


def _statement(lines: list[str], first: int) -> tuple[dict[str, Any] | None, int]:
    """What begins in a line, and in how many lines it is written; None if it goes on for too long."""
    for count in range(1, _LONGEST + 1):
        try:
            return tomllib.loads("\n".join(lines[first : first + count])), count
        except tomllib.TOMLDecodeError:
            continue
    return None, 0


def _opened(statement: dict[str, Any]) -> tuple[str, ...] | None:
    path: list[str] = []
    inner: Any = statement
    while isinstance(inner, dict) and inner:
        ((name, inner),) = inner.items()
        path.append(name)
    return tuple(path) if isinstance(inner, dict) else None


def _paths(statement: dict[str, Any], here: tuple[str, ...]) -> list[tuple[str, str]]:
    """The section and key that a statement speaks of; a whole section may be written in one."""
    paths = []
    for name, inner in statement.items():
        path = (*here, name)
        if len(path) >= 2:
            paths.append((path[0], path[1]))
        elif isinstance(inner, dict):
            paths += [(name, key) for key in inner]
    return paths
