"""Tables of plain values, checked: names that are known, values of the kind that belongs there. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from anabranch.frontier.errors import PolicyError

#: What may stand in a table, as an error says it.
WORDS, WHOLE, NUMBER = "text", "a whole number", "a number that is not negative"
SEVERAL_WORDS, TABLES = "text, or a list of texts", "a list of tables"


def check_table(table: object, kinds: Mapping[str, str], what: str) -> None:
    """Raises: PolicyError, which names the first name that is not known and the first value that is of another kind."""
    if not isinstance(table, Mapping):
        raise PolicyError(f"{what} {table!r}: give a table of names and values")
    for name, value in table.items():
        kind = kinds.get(name)
        if kind is None:
            raise PolicyError(f"{name!r} is no setting of {what}; choose from {', '.join(kinds)}")
        if not _FITS[kind](value):
            raise PolicyError(f"{name} {value!r}: give {kind}")


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value) and not any(map(str.isspace, value))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _are_words(value: object) -> bool:
    return _is_word(value) or (isinstance(value, list | tuple) and bool(value) and all(map(_is_word, value)))


_FITS: Mapping[str, Callable[[object], bool]] = MappingProxyType(
    {
        WORDS: _is_word,
        WHOLE: _is_whole,
        NUMBER: _is_number,
        SEVERAL_WORDS: _are_words,
        TABLES: lambda value: isinstance(value, list | tuple),
    }
)
