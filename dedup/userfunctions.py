"""User functions (plug-ins), named `package.module:function`: any exception they raise becomes one line that names them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from anabranch.dedup.errors import BadParameters


def found(name: str, what: str, known: Iterable[str]) -> Callable[..., Any]:
    """The function of that name. `what` ("feature", "signature") and the `known` names go into the message of BadParameters."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise BadParameters(f"{what} {name!r} is unknown; give package.module:function or {', '.join(known)}")
    try:
        function_found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing runs the user's module, which may raise anything
        first = ""
        if isinstance(error, ModuleNotFoundError):
            first = f" (looked first in {sys.path[0] or '.'}; PYTHONPATH=FOLDER adds a folder)"
        raise BadParameters(f"{what} {name!r} cannot be imported: {_one_line(error)}{first}") from error
    if not callable(function_found):
        raise BadParameters(f"{what} {name!r} is not a function")
    return function_found


def imported(name: str, what: str, known: Iterable[str]) -> Callable[..., Any]:
    """Return the function of that name, as `found` does; an exception that a call raises becomes BadParameters."""
    function = found(name, what, known)

    def call(*arguments: object) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # a user function may raise anything
            given = ", ".join(map(repr, arguments))
            raise BadParameters(f"{what} {name!r} failed for {given}: {_one_line(error)}") from error

    return call


def _one_line(error: BaseException) -> str:
    """The error's kind and text as one line."""
    return ": ".join(filter(None, [type(error).__name__, " ".join(str(error).split())]))
