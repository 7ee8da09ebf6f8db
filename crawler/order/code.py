"""The user functions that an order names, and those of them that must not run; `vouching` decides which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier.policies.userfunctions import is_user_function

#: Section and key that may name user functions.
CODE_KEYS: Sequence[tuple[str, str]] = (
    ("job", "processors"),
    ("job", "sinks"),
    ("urls", "canonicalization"),
    ("scope", "rules"),
    ("frontier", "policy"),
    ("frontier", "cost"),
    ("frontier", "uri_precedence"),
    ("frontier", "queue_precedence"),
    ("politeness", "group"),
    ("fetch", "body_rules"),
    ("dedup", "filter"),
    ("dedup", "signature"),
    ("dedup", "similar_features"),
)
#: Those of them that the Frontier runs, its filter included.
_OF_FRONTIER = frozenset({"frontier", "politeness", "dedup"})
_OF_SIMILARITY = ("dedup", "similar_features")


class NamedFunction(NamedTuple):
    """A user function in an order."""

    section: str
    key: str
    name: str  #: package.module:function

    def __str__(self) -> str:
        return f"[{self.section}] {self.key} {self.name}"

    @property
    def is_of_frontier(self) -> bool:
        """The Frontier runs it, or its filter."""
        return self.section in _OF_FRONTIER and (self.section, self.key) != _OF_SIMILARITY


class UserCode(NamedTuple):
    """Says which user functions of an order may run."""

    folder: Path | None = None  #: goes first on Python's path
    withheld: Sequence[NamedFunction] = ()  #: must not be imported

    @property
    def names(self) -> frozenset[str]:
        """The names of the withheld functions."""
        return frozenset(one.name for one in self.withheld)

    @property
    def of_frontier(self) -> list[NamedFunction]:
        """Those without which the Frontier cannot be opened as it is, only viewed."""
        return [one for one in self.withheld if one.is_of_frontier]


class CodeWithheld(UsageError):
    """A request needs code that only the job itself names."""


def refuse_withheld(withheld: Sequence[NamedFunction], place: object, needs: str) -> None:
    """Raises: CodeWithheld, which names the ways, if any function is withheld. `place` is the job, `needs` what runs it."""
    if withheld:
        named = ", ".join(map(str, withheld))
        raise CodeWithheld(
            f"{place}: {needs} would run code that only the job itself names: {named}; to let it run, name the module's folder "
            "(PYTHONPATH=FOLDER) or the order (-c FILE), or trust the job (--run-code)"
        )


def functions_of(sections: object) -> Iterator[NamedFunction]:
    """Find the user functions that an order names, each place of them; `sections` has its sections as attributes. Pure."""
    for section, key in CODE_KEYS:
        value = getattr(getattr(sections, section), key)
        for name in texts_of(value):
            if is_user_function(name) or (section == "dedup" and ":" in name):
                yield NamedFunction(section, key, name)


def texts_of(value: Any) -> Iterator[str]:
    """The texts of a value of an order: the value, or those of a list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        yield from (one for one in value if isinstance(one, str))
