"""What a verb is told, checked, and what it answers: values as JSON holds them. All raise UsageError, in one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier.scheduling.lifecycle import QueueState

#: What a verb is told, by name.
Arguments = Mapping[str, Any]
#: What it answers, by name; what a command shows.
Facts = Mapping[str, Any]


def text(given: Arguments, name: str) -> str:
    """Text that is not empty."""
    value = given.get(name)
    if value == "":
        raise UsageError(f"{name} is empty; give one")
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text; it is {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} {value!r}: it is not UTF-8") from error
    return value


def number(given: Arguments, name: str) -> float:
    """A number that is not without end."""
    value = given.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise UsageError(f"{name} must be a number; it is {value!r}")


def whole(given: Arguments, name: str, *, least: int) -> int:
    """A whole number from `least` on, such as every store can hold."""
    value = given.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 53:
        return value
    raise UsageError(f"{name} must be a whole number from {least}, below 2^53; it is {value!r}")


def state_named(name: object) -> QueueState:
    """A state of queues that are listed."""
    try:
        return QueueState(name)
    except ValueError as error:
        states = ", ".join(state.value for state in _listed())
        raise UsageError(f"state {name!r} is unknown; choose one of {states}") from error


def _listed() -> Sequence[QueueState]:
    """States of queues that are listed: an empty one is not."""
    return [state for state in QueueState if state is not QueueState.EMPTY]
