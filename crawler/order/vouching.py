"""Decides which user functions of an order may run: those that the caller names, not those that only the job names.

A job folder may come from anybody, and importing a module runs it. So a function runs only if the caller names it: by
`-c FILE`, an option, a variable, a keyword of a program, or by a folder for its module (`[job] modules` from one of these, or
an entry of PYTHONPATH). A function that only the order in the job's folder or database names is withheld. It is not enough
that its module can be imported: `os:system` can be imported everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from anabranch.crawler.order.code import CODE_KEYS, UserCode, functions_of, texts_of
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sources import Layer, folder_of, merged
from anabranch.frontier.jobfolder import is_job


def code_of(order: CrawlOrder, layers: Sequence[Layer]) -> UserCode | None:
    """Return the folder and the withheld functions of an order read from these layers; None: all its code may run.

    It imports nothing. It looks for files in the folders that the caller names.
    """
    callers = [layer for layer in layers if not layer.is_jobs]
    if len(callers) == len(layers):
        return None
    given = merged(callers)
    modules = given.get("job", {}).get("modules")
    folder = Path(modules) if isinstance(modules, str | Path) else folder_of(callers)
    named = set[str]()
    for section, key in CODE_KEYS:
        named.update(texts_of(given.get(section, {}).get(key)))
    places = [*([] if folder is None else [str(folder.absolute())]), *python_path(os.environ, sys.path)]
    withheld = [one for one in functions_of(order) if one.name not in named and not _is_in(one.name, places)]
    return None if not withheld and folder == order.job.modules else UserCode(folder, tuple(withheld))


def python_path(environment: Mapping[str, str], path: Iterable[str]) -> list[str]:
    """The folders of the variable PYTHONPATH that Python uses; an empty entry, the current folder, does not count. Pure."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    used = {os.path.abspath(entry) for entry in path}  # noqa: PTH100 - an entry may be the name of a zip file, or none
    return [entry for entry in map(os.path.abspath, filter(None, entries)) if entry in used]


def _is_in(name: str, places: list[str]) -> bool:
    """The function's module is in one of these folders, is no part of Python, and is not in a job that lies there."""
    parts = name.partition(":")[0].split(".")
    if not places or parts[0] in sys.stdlib_module_names:
        return False
    found = PathFinder.find_spec(parts[0], places)
    if found is None or found.origin is None:  # a folder without __init__.py may be anything, jobs/ too
        return False
    below = (Path(place, *parts[:count]) for place in places for count in range(1, len(parts) + 1))
    return not any(map(is_job, below))
