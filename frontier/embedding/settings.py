"""What a host program says of its Frontier in plain values, and the order that comes of it. Pure.

The names are those of `[frontier]` and `[politeness]` in a crawl order, all in one table, for no name stands in both.
Durations are seconds. The same values make the `order.toml` by which `anabranch frontier` opens the job's folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from frontier.errors import PolicyError
from frontier.order import FrontierOrder
from frontier.policies.assignment import PolitenessScope
from frontier.policies.budgets import Budgets
from frontier.scheduling.backoff import Backoff
from frontier.scheduling.gates import Politeness

#: Text and numbers, by name; checked.
Settings = Mapping[str, Any]

_WORDS, _WHOLE, _NUMBER = "text", "a whole number", "a number that is not negative"

#: section of an order -> name -> what stands there.
_SECTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "frontier": {
            "policy": _WORDS,
            "politeness": _WORDS,
            "balance_replenish": _WHOLE,
            "total_budget": _WHOLE,
            "error_penalty": _WHOLE,
            "cost": _WORDS,
            "uri_precedence": _WORDS,
            "queue_precedence": _WORDS,
            "precedence_floor": _WHOLE,
            "per_queue": _WHOLE,
            "checkpoint": _NUMBER,
            "gates_in_memory": _WHOLE,
        },
        "politeness": {
            "delay_factor": _NUMBER,
            "min_delay": _NUMBER,
            "max_delay": _NUMBER,
            "max_connections": _WHOLE,
            "backoff_base": _NUMBER,
            "backoff_cap": _NUMBER,
            "backoff_jitter": _NUMBER,
            "backoff_forgive": _NUMBER,
            "max_retry_after": _NUMBER,
            "group": _WORDS,
            "group_delay_factor": _NUMBER,
            "group_min_delay": _NUMBER,
            "group_max_delay": _NUMBER,
            "group_max_connections": _WHOLE,
        },
    }
)

_KINDS: Mapping[str, str] = MappingProxyType(
    {name: kind for section in _SECTIONS.values() for name, kind in section.items()}
)

_FITS: Mapping[str, Callable[[object], bool]] = MappingProxyType(
    {
        _WORDS: lambda value: isinstance(value, str) and bool(value) and not any(map(str.isspace, value)),
        _WHOLE: lambda value: isinstance(value, int) and not isinstance(value, bool),
        _NUMBER: lambda value: (
            isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        ),
    }
)


def check_settings(settings: Mapping[str, object]) -> Settings:
    """The same, all names known and all values of the kind that belongs there. Raises: PolicyError, which names the first."""
    for name, value in settings.items():
        kind = _KINDS.get(name)
        if kind is None:
            raise PolicyError(f"{name!r} is no setting of the Frontier; choose from {', '.join(_KINDS)}")
        if not _FITS[kind](value):
            raise PolicyError(f"{name} {value!r}: give {kind}")
    return settings


def order_of(settings: Mapping[str, object]) -> FrontierOrder:
    """The order; what is not said is as in a crawl. Raises: PolicyError."""
    given = check_settings(settings)
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
        **_named(given, _PLAIN),
    )


def order_text(settings: Mapping[str, object]) -> str:
    """The same as an order file (TOML) for `anabranch frontier`. Raises: PolicyError."""
    given = check_settings(settings)
    lines: list[str] = []
    for section, names in _SECTIONS.items():
        lines.append(f"[{section}]")
        # JSON's strings and numbers are TOML's, as long as no value is without end.
        lines += [f"{name} = {json.dumps(given[name])}" for name in names if name in given]
    return "\n".join((*lines, ""))


#: name of a setting -> field of the record that has it.
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


def _named(given: Settings, fields: Mapping[str, str]) -> dict[str, Any]:
    return {field: given[name] for name, field in fields.items() if name in given}
