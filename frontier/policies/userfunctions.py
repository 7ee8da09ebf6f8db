"""User functions, named `package.module:function` in the order; the crawler uses these helpers, too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from anabranch.frontier.errors import PolicyError

#: Gives the function of such a name. Raises: PolicyError, if it cannot be imported.
Import = Callable[[str], Callable[..., Any]]

_SHOWN = 200


def is_user_function(name: str) -> bool:
    """The name is written like that of a function."""
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def user_function(name: str, what: str, imported: Import | None, arguments: str = "url") -> Callable[..., Any]:
    """The function of that name, checked. Raises: PolicyError, as `checked` does, and if `imported` is None."""
    if imported is None:
        raise PolicyError(f"{what} {name}: functions cannot be imported here; pass `imported`, which does it")
    return checked(imported(name), name, what, arguments)


def checked(function: Callable[..., Any], name: str, what: str, arguments: str) -> Callable[..., Any]:
    """The function, if it is plain and takes these `arguments` ("url, via, hops"). Raises: PolicyError about `what`."""
    if answers_later(function):
        raise PolicyError(f"{what} {name} is async, and must answer at once; write a plain `def`")
    if not accepts(function, len(arguments.split(","))):
        written = f"def {name.rpartition(':')[2]}({arguments})"
        raise PolicyError(f"{what} {name} cannot be called with what it will be given; write `{written}`")
    return function


def is_async(function: Callable[..., Any]) -> bool:
    """It must be awaited: an `async def`, a partial of one, or an object with such a `__call__`."""
    return _is_kind(inspect.iscoroutinefunction, function)


def answers_later(function: Callable[..., Any]) -> bool:
    """It is async, or an async generator."""
    return is_async(function) or _is_kind(inspect.isasyncgenfunction, function)


def _is_kind(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    # The `__call__` of a class applies to its instances; calling the class makes an instance.
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Whether it takes so many positional arguments; True for functions without a signature, as some built-in ones."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def call_user_function(function: Callable[..., Any], argument: object, call: str) -> Any:
    """The function's return value. Raises: PolicyError in one line, which begins with the description of the `call`."""
    try:
        return function(argument)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # only the function can have raised it, SystemExit and the like included
        raise PolicyError(f"{call} failed: {words_of(error)}") from error


def words_of(error: BaseException) -> str:
    """The error's kind and text as one line, cut to a length that fits an error message."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the error's class may be the operator's, too
        text = "its text cannot be read"
    return ": ".join(filter(None, [type(error).__name__, shown(text)]))


def shown(text: str) -> str:
    """The text cut to a length that fits an error message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


MOST_CHARS = 10_000


def check_name(name: object, source: str) -> str:
    """The name, if it is 1 to 10,000 printable characters. Raises: PolicyError, which begins with its `source`."""
    if not isinstance(name, str):
        raise PolicyError(f"{source} gave {type(name).__name__}; text is needed")
    if not 1 <= len(name) <= MOST_CHARS:
        raise PolicyError(f"{source} gave {len(name)} characters; 1 to {MOST_CHARS} are allowed")
    if not name.isprintable():
        raise PolicyError(f"{source} gave {name[:100]!r}, which has characters that cannot be printed")
    return name
