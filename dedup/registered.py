"""Functions of the user's own, named `package.module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from dedup.errors import BadParameters


def imported(name: str, what: str, known: Iterable[str]) -> Callable[..., Any]:
    """The function of that name, imported.

    Raises: BadParameters, which says that there is no such `what` ("feature", "signature"), and names the `known` ones.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise BadParameters(f"{what} {name!r} is unknown; give package.module:function or {', '.join(known)}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, TypeError) as error:
        raise BadParameters(f"{what} {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise BadParameters(f"{what} {name!r} is not a function")
    return found  # type: ignore[no-any-return]
