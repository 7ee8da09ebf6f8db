"""Functions of the operator's own, named `package.module:function` in the order."""

from __future__ import annotations

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
    """The function of that name. Raises: PolicyError, which says that it is this `what` ("policy", "group")."""
    if imported is None:
        raise PolicyError(f"{what} {name}: functions cannot be imported here; pass `imported`, which does it")
    return imported(name)


def call_own(function: Callable[..., Any], argument: object, whose: str) -> Any:
    """What the function answers. Raises: PolicyError that begins with `whose` and says in one line what was raised."""
    try:
        return function(argument)
    except Exception as error:  # it is the operator's function, which may raise anything
        words = ": ".join(filter(None, [type(error).__name__, " ".join(str(error).split())]))
        raise PolicyError(f"{whose} failed: {words}") from error


def shown(text: str) -> str:
    """The text for an error message, not longer than some lines."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
