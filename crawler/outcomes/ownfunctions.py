"""Functions of the operator's own, named `package.module:function` in the order: imported at the start, called with care.

What such a function raises while the crawl runs is a defect of it, not the end of the crawl: it becomes an `OwnFunctionFailed`,
which costs the URL or the link that it was asked for (status -5, the error in the log). So does what is meant to end programs
or tasks, `SystemExit`, `GeneratorExit` and the like; `KeyboardInterrupt` alone is the operator's and passes through.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from crawler.outcomes.errors import OrderError

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_SHOWN = 200


class Role(NamedTuple):
    """What a function is for."""

    words: str  #: what messages call it
    note: str  #: what crawl.log calls it
    key: str  #: the order's key that names it
    argument: str  #: what it is asked about


RULE = Role("rule", "rule", "[scope] rules", "target")
KEY = Role("key function", "key", "[urls] canonicalization", "url")
PROCESSOR = Role("processor", "processor", "[job] processors", "visit")


class OwnFunctionFailed(Exception):
    """A function of the operator's own raised something, or answered what makes no sense; one line that names it."""

    def __init__(self, role: Role, name: str, what: str) -> None:
        """`what` it did: "failed: KeyError: 'x'"."""
        super().__init__(f"{role.words} {name} {what}")
        self.role = role
        self.name = name

    @property
    def annotation(self) -> str:
        """What crawl.log notes: "rule=ours:no_prints"."""
        return f"{self.role.note}={self.name}"


class OwnFunction(NamedTuple):
    """One of them."""

    role: Role
    name: str
    function: Callable[..., Any]

    def __call__(self, argument: object) -> Any:
        """What the function answers. Raises: OwnFunctionFailed."""
        try:
            return self.function(argument)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever it is, nobody but the function can have raised it here
            raise self.failed(error) from error

    def failed(self, error: BaseException) -> OwnFunctionFailed:
        """What is raised in place of what the function raised."""
        return OwnFunctionFailed(self.role, self.name, f"failed: {_words(error)}")

    def answered(self, answer: object, wanted: str) -> OwnFunctionFailed:
        """What is raised for an answer that is not what is `wanted`."""
        if inspect.iscoroutine(answer):
            answer.close()  # a plain function that calls an async one; Python would complain of it later
        return OwnFunctionFailed(self.role, self.name, f"answered {_shown_value(answer)}; it must be {wanted}")


def is_own(name: str) -> bool:
    """The name is written like that of a function."""
    return _NAME.fullmatch(name) is not None


def shown(text: str) -> str:
    """The text for an error message, not longer than some lines."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def own_function(name: str, role: Role, *, is_async: bool = False) -> OwnFunction:
    """The function of that name, which is async or not as it must be.

    Raises: OrderError, one line that begins with the order's key, as in `[scope] rules`.
    """
    there = _imported(name, role)
    function = name.rpartition(":")[2]
    if is_async and not _is_coroutine(there):
        raise OrderError(f"{role.key} {name} is not async; write `async def {function}({role.argument})`")
    if not is_async and (_is_coroutine(there) or _is_any(inspect.isasyncgenfunction, there)):
        written = f"`def {function}({role.argument})`"
        raise OrderError(f"{role.key} {name} is async, and a {role.words} must answer at once; write {written}")
    return OwnFunction(role, name, there)


def _imported(name: str, role: Role) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    if not is_own(name):
        raise OrderError(f"{role.key} {shown(name)!r} is not of the form package.module:function")
    try:
        there = getattr(importlib.import_module(module), function)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing runs the operator's module, which may raise anything
        raise OrderError(f"{role.key} {name} cannot be imported: {_words(error)}") from error
    if not callable(there):
        raise OrderError(f"{role.key} {name} is not a function")
    found: Callable[..., Any] = there
    return found


def _is_coroutine(function: Callable[..., Any]) -> bool:
    return _is_any(inspect.iscoroutinefunction, function)


def _is_any(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """It is of the kind, or an object whose call is."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004


def _words(error: BaseException) -> str:
    """The error's kind and text as one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the error's class may be the operator's, too
        text = "its text cannot be had"
    return ": ".join(filter(None, [type(error).__name__, shown(text)]))


def _shown_value(value: object) -> str:
    try:
        return shown(repr(value))
    except Exception:  # noqa: BLE001 - the value's class may be the operator's, too
        return f"a {type(value).__name__}"
