"""The operator's own functions, named `package.module:function` in the order: imported at the start, called with care.

Whatever such a function raises while the crawl runs becomes a `UserFunctionFailed`, which costs one URL (status -5) or one
link; only `KeyboardInterrupt` passes through. The Frontier has the rules for names, checks and messages.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.failures import ServiceAway
from anabranch.frontier.policies.userfunctions import (
    accepts,
    answers_later,
    is_async,
    is_user_function,
    shown,
    words_of,
)


class Role(NamedTuple):
    """The role of a user function, in the words of messages, logs and the order."""

    words: str  #: what messages call it
    note: str  #: what crawl.log calls it
    key: str  #: the order's key that names it
    argument: str  #: what it is asked about


RULE = Role("rule", "rule", "[scope] rules", "target")
KEY = Role("key function", "key", "[urls] canonicalization", "url")
BODY_RULE = Role("body rule", "body_rule", "[fetch] body_rules", "head")
PROCESSOR = Role("processor", "processor", "[job] processors", "visit")
SINK = Role("sink", "sink", "[job] sinks", "folder")


class UserFunctionFailed(Exception):
    """A user function raised an error or returned a value that makes no sense; the message is one line that names it."""

    def __init__(self, role: Role, name: str, what: str) -> None:
        """`what` it did: "failed: KeyError: 'x'"."""
        super().__init__(f"{role.words} {name} {what}")
        self.role = role
        self.name = name

    @property
    def annotation(self) -> str:
        """The note in crawl.log: "rule=ours:no_prints"."""
        return f"{self.role.note}={self.name}"


class UserFunction(NamedTuple):
    """A user function that was found and checked."""

    role: Role
    name: str
    function: Callable[..., Any]

    def __call__(self, argument: object) -> Any:
        """Call the function. Raises: UserFunctionFailed; ServiceAway if the function does."""
        try:
            return self.function(argument)
        except (KeyboardInterrupt, ServiceAway):
            raise
        except BaseException as error:  # only the function can have raised it
            raise self.failed(error) from error

    def failed(self, error: BaseException) -> UserFunctionFailed:
        """The error that replaces what the function raised."""
        return UserFunctionFailed(self.role, self.name, f"failed: {words_of(error)}")

    def answered(self, answer: object, wanted: str) -> UserFunctionFailed:
        """The error for a return value that is not what is `wanted`."""
        if inspect.iscoroutine(answer):
            answer.close()  # a plain function that calls an async one; Python would complain of it later
        try:
            text = shown(repr(answer))
        except Exception:  # noqa: BLE001 - the value's class may be the operator's, too
            text = f"a {type(answer).__name__}"
        return UserFunctionFailed(self.role, self.name, f"answered {text}; it must be {wanted}")


def import_first_from(folder: Path | None) -> None:
    """Put the folder first on Python's path, so that the operator's modules are found there. None changes nothing."""
    if folder is None:
        return
    path = str(folder.absolute())
    with suppress(ValueError):
        sys.path.remove(path)
    sys.path.insert(0, path)


def user_function(name: str, role: Role, *, awaited: bool = False) -> UserFunction:
    """Import a function and check that it takes one argument and is async if `awaited`. Raises: OrderError, one line."""
    there = _imported(name, role)
    written = f"`{'async ' if awaited else ''}def {name.rpartition(':')[2]}({role.argument})`"
    if awaited and not is_async(there):
        raise OrderError(f"{role.key} {name} is not async; write {written}")
    if not awaited and answers_later(there):
        raise OrderError(f"{role.key} {name} is async, and a {role.words} must answer at once; write {written}")
    if not accepts(there, 1):
        raise OrderError(f"{role.key} {name} cannot be called with one argument, as it will be; write {written}")
    return UserFunction(role, name, there)


def user_sink(name: str) -> UserFunction:
    """Import the class of a sink, and check that it has `write`. Raises: OrderError, one line."""
    found = user_function(name, SINK)
    write = getattr(found.function, "write", None)
    if write is None or not is_async(write) or not accepts(write, 2):
        raise OrderError(f"{SINK.key} {name} is no class with `async def write(self, pages)`")
    return found


def _imported(name: str, role: Role) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    if not is_user_function(name):
        raise OrderError(f"{role.key} {shown(name)!r} is not of the form package.module:function")
    try:
        there = getattr(importlib.import_module(module), function)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing runs the operator's module, which may raise anything
        first = ""
        if isinstance(error, ModuleNotFoundError):
            first = f" (looked first in {sys.path[0] or '.'}; PYTHONPATH=FOLDER adds a folder)"
        raise OrderError(f"{role.key} {name} cannot be imported: {words_of(error)}{first}") from error
    if not callable(there):
        raise OrderError(f"{role.key} {name} is not a function")
    found: Callable[..., Any] = there
    return found
