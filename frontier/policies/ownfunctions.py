"""Functions of the operator's own, named `package.module:function` in the order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from frontier.errors import PolicyError

#: Gives the function of such a name. Raises: PolicyError, if it cannot be imported.
Import = Callable[[str], Callable[..., Any]]

_SHOWN = 200


def is_own(name: str) -> bool:
    """The name is written like that of a function."""
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def own_function(name: str, what: str, imported: Import | None) -> Callable[..., Any]:
    """The function of that name. Raises: PolicyError, which says that it is this `what` ("policy", "group").

    It must answer at once, so one that is async is refused.
    """
    if imported is None:
        raise PolicyError(f"{what} {name}: functions cannot be imported here; pass `imported`, which does it")
    function = imported(name)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise PolicyError(f"{what} {name} is async, and must answer at once; write a plain `def`")
    return function


def call_own(function: Callable[..., Any], argument: object, whose: str) -> Any:
    """What the function answers. Raises: PolicyError that begins with `whose` and says in one line what was raised."""
    try:
        return function(argument)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # nobody but the function can have raised it here, SystemExit and the like included
        raise PolicyError(f"{whose} failed: {_words(error)}") from error


def _words(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the error's class may be the operator's, too
        text = "its text cannot be had"
    return ": ".join(filter(None, [type(error).__name__, text]))


def shown(text: str) -> str:
    """The text for an error message, not longer than some lines."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
