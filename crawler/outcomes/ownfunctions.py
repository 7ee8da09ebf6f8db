"""Functions of the operator's own, named `package.module:function` in the order: imported at the start, called with care.

What such a function raises while the crawl runs is a defect of it, not the end of the crawl: it becomes an `OwnFunctionFailed`,
which a worker takes as it takes any processor's fault (status -5, the error in the log).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from crawler.outcomes.errors import OrderError

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_SHOWN = 200


class OwnFunctionFailed(Exception):
    """A function of the operator's own raised something, or answered what makes no sense; one line that names it."""


def is_own(name: str) -> bool:
    """The name is written like that of a function."""
    return _NAME.fullmatch(name) is not None


def shown(text: str) -> str:
    """The text for an error message, not longer than some lines."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def own_function(name: str, key: str) -> Callable[..., Any]:
    """The function of that name. Raises: OrderError, one line that begins with the order's key, as in `[scope] rules`."""
    module, _, function = name.partition(":")
    if not is_own(name):
        raise OrderError(f"{key} {shown(name)!r} is not of the form package.module:function")
    try:
        there = getattr(importlib.import_module(module), function)
    except Exception as error:  # importing runs the operator's module, which may raise anything
        raise OrderError(f"{key} {name} cannot be imported: {_words(error)}") from error
    if not callable(there):
        raise OrderError(f"{key} {name} is not a function")
    found: Callable[..., Any] = there
    return found


def call_own(name: str, function: Callable[..., Any], argument: object) -> Any:
    """What the function answers. Raises: OwnFunctionFailed."""
    try:
        return function(argument)
    except Exception as error:  # it is the operator's function, which may raise anything
        raise failed(name, error) from error


def failed(name: str, error: Exception) -> OwnFunctionFailed:
    """What is raised in place of what the function of that name raised."""
    return OwnFunctionFailed(f"{name} failed: {_words(error)}")


def _words(error: Exception) -> str:
    return ": ".join(filter(None, [type(error).__name__, " ".join(str(error).split())]))
