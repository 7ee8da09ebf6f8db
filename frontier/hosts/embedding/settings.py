"""The settings of a host program, checked, and the FrontierOrder that they make. Pure.

The names are those of `[frontier]` and `[politeness]` in a crawl order, in one table, since no name occurs in both.
`override` is a list of such tables for parts of the web: each has `surt`, which says where, and the names of `[[override]]`.
Durations are seconds. The same values make the `order.toml` with which `anabranch frontier` opens the job's folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.sheets import Override, Settings
from anabranch.frontier.scheduling.gates import Backoff, Politeness

#: Kinds of values, in the words of an error message.
WORDS, WHOLE, NUMBER = "text", "a whole number", "a number that is not negative"
SEVERAL_WORDS, TABLES = "text, or a list of texts", "a list of tables"


def check_table(table: object, kinds: Mapping[str, str], what: str) -> None:
    """Raises: PolicyError, which names the first unknown name or the first value of another kind."""
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


_WHERE = "surt"
#: name -> (kind of value, field of `policies.sheets.Settings`)
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
_OVERRIDE_KINDS = {_WHERE: SEVERAL_WORDS} | {name: kind for name, (kind, _) in _NAMES.items()}


def overrides_of(entries: Iterable[object]) -> tuple[Override, ...]:
    """Raises: PolicyError, which names the entry or the value."""
    return tuple(map(_override, entries))


def override_lines(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The entries as lines of an order file (TOML); they are checked already."""
    lines: list[str] = []
    for entry in entries:
        # JSON's strings, numbers and lists of strings are TOML's.
        lines += ["[[override]]", *(f"{name} = {json.dumps(value)}" for name, value in entry.items())]
    return lines


def _override(entry: Any) -> Override:
    check_table(entry, _OVERRIDE_KINDS, "override")
    where = entry.get(_WHERE, ())
    values = {_NAMES[name][1]: value for name, value in entry.items() if name != _WHERE}
    return Override((where,) if isinstance(where, str) else tuple(where), Settings(**values))


#: Text, numbers and lists of overrides, by name; checked.
CheckedSettings = Mapping[str, Any]

#: section of an order -> name -> kind of value.
_SECTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "frontier": {
            "policy": WORDS,
            "politeness": WORDS,
            "balance_replenish": WHOLE,
            "total_budget": WHOLE,
            "error_penalty": WHOLE,
            "cost": WORDS,
            "uri_precedence": WORDS,
            "queue_precedence": WORDS,
            "precedence_floor": WHOLE,
            "per_queue": WHOLE,
            "checkpoint": NUMBER,
            "gates_in_memory": WHOLE,
        },
        "politeness": {
            "delay_factor": NUMBER,
            "min_delay": NUMBER,
            "max_delay": NUMBER,
            "max_connections": WHOLE,
            "backoff_base": NUMBER,
            "backoff_cap": NUMBER,
            "backoff_jitter": NUMBER,
            "backoff_forgive": NUMBER,
            "max_retry_after": NUMBER,
            "group": WORDS,
            "group_delay_factor": NUMBER,
            "group_min_delay": NUMBER,
            "group_max_delay": NUMBER,
            "group_max_connections": WHOLE,
        },
    }
)

_OVERRIDE = "override"
_KINDS: Mapping[str, str] = MappingProxyType(
    {name: kind for section in _SECTIONS.values() for name, kind in section.items()} | {_OVERRIDE: TABLES}
)


def settled(settings: Mapping[str, object]) -> CheckedSettings:
    """The settings, checked, with two defaults that differ from a crawl's.

    The policy is `host`, so that the host program's order (a priority, a place in front) holds for a whole site. `per_queue` is
    the number of connections to a host, since the one queue of a host would otherwise leave all but one idle. Raises:
    PolicyError, which names the first that makes no sense.
    """
    check_table(settings, _KINDS, "the Frontier")
    given: dict[str, Any] = dict(settings)
    tables = [table for table in given.get(_OVERRIDE, ()) if isinstance(table, Mapping)]
    connections = [table["max_connections"] for table in (given, *tables) if "max_connections" in table]
    whole = [number for number in connections if isinstance(number, int)]
    return {"policy": "host", **({"per_queue": max(whole)} if whole else {}), **given}


def order_of(settings: Mapping[str, object]) -> FrontierOrder:
    """The order; settings that are not given have the defaults of a crawl. Raises: PolicyError."""
    given = settled(settings)
    scope = given.get("politeness", PolitenessScope.HOST.value)
    scopes = [each.value for each in PolitenessScope]
    if scope not in scopes:
        raise PolicyError(f"politeness {scope!r}: choose one of {', '.join(scopes)}")
    return FrontierOrder(
        scope=PolitenessScope(scope),
        politeness=Politeness(**_named(given, _POLITENESS)),
        backoff=Backoff(**_named(given, _BACKOFF)),
        group_politeness=Politeness(**_named(given, _GROUP_POLITENESS)),
        budgets=Budgets(**_named(given, _BUDGETS)),
        overrides=overrides_of(given.get(_OVERRIDE, ())),
        **_named(given, _PLAIN),
    )


def order_text(settings: Mapping[str, object]) -> str:
    """The settings as an order file (TOML) for `anabranch frontier`. Raises: PolicyError."""
    given = settled(settings)
    lines: list[str] = []
    for section, names in _SECTIONS.items():
        lines.append(f"[{section}]")
        # JSON's strings and numbers are TOML's, as long as no value is without end.
        lines += [f"{name} = {json.dumps(given[name])}" for name in names if name in given]
    return "\n".join((*lines, *override_lines(given.get(_OVERRIDE, ())), ""))


#: name of a setting -> field of its record.
_POLITENESS = {
    "delay_factor": "delay_factor",
    "min_delay": "min_delay_s",
    "max_delay": "max_delay_s",
    "max_connections": "slots",
}
_GROUP_POLITENESS = {f"group_{name}": field for name, field in _POLITENESS.items()}
_BACKOFF = {
    "backoff_base": "base_s",
    "backoff_cap": "cap_s",
    "backoff_jitter": "jitter",
    "backoff_forgive": "forgive_s",
    "max_retry_after": "longest_retry_after_s",
}
_BUDGETS = {name: name for name in ("balance_replenish", "total_budget", "error_penalty")}
_PLAIN = {
    **{name: name for name in ("policy", "cost", "uri_precedence", "queue_precedence", "precedence_floor")},
    "per_queue": "per_queue",
    "gates_in_memory": "gates_in_memory",
    "group": "group",
    "checkpoint": "checkpoint_s",
}


def _named(given: CheckedSettings, fields: Mapping[str, str]) -> dict[str, Any]:
    return {field: given[name] for name, field in fields.items() if name in given}
