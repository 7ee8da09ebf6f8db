"""Python processes of our own: they import what this one does, from where this one does, whatever the current folder has."""

from __future__ import annotations

import sys
from pathlib import Path


def child_command(program: str, *arguments: str) -> list[str]:
    """The command that runs a line of Python in a process of its own, where `sys` is imported and `sys.argv[1:]` are these.

    It is isolated (`-I`): no folder named `crawler` and no `json.py` in the current folder comes before the real ones, unless
    this process was told to import from there, too.
    """
    places = [str(Path(place).absolute()) for place in sys.path]
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {places!r}; {program}", *arguments]
