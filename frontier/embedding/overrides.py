"""What is different for parts of the web, in plain values. Pure.

An entry has the names of `[[override]]` in a crawl order: `surt`, which says where, and what is different there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from anabranch.frontier.embedding.tables import NUMBER, SEVERAL_WORDS, WHOLE, WORDS, check_table
from anabranch.frontier.policies.sheets import Override, Settings

_WHERE = "surt"
#: name -> (what stands there, the field that has it)
_NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "delay_factor": (NUMBER, "delay_factor"),
        "min_delay": (NUMBER, "min_delay_s"),
        "max_delay": (NUMBER, "max_delay_s"),
        "max_connections": (WHOLE, "max_connections"),
        "balance_replenish": (WHOLE, "session_budget"),
        "total_budget": (WHOLE, "total_budget"),
        "queue_precedence": (WHOLE, "queue_precedence"),
        "key": (WORDS, "key"),
        "uri_precedence": (WHOLE, "uri_precedence"),
    }
)
_KINDS = {_WHERE: SEVERAL_WORDS} | {name: kind for name, (kind, _) in _NAMES.items()}


def overrides_of(entries: Iterable[object]) -> tuple[Override, ...]:
    """Raises: PolicyError, which names the entry or the value."""
    return tuple(map(_override, entries))


def override_lines(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The same in an order file (TOML); the entries are checked."""
    lines: list[str] = []
    for entry in entries:
        # JSON's strings, numbers and lists of strings are TOML's.
        lines += ["[[override]]", *(f"{name} = {json.dumps(value)}" for name, value in entry.items())]
    return lines


def _override(entry: Any) -> Override:
    check_table(entry, _KINDS, "override")
    where = entry.get(_WHERE, ())
    values = {_NAMES[name][1]: value for name, value in entry.items() if name != _WHERE}
    return Override((where,) if isinstance(where, str) else tuple(where), Settings(**values))
