"""What a host program says of its Frontier in plain values, and the order that comes of it. Pure.

The names are those of `[frontier]` and `[politeness]` in a crawl order, all in one table, for no name stands in both.
Durations are seconds. `override` is a list of such tables for parts of the web (`overrides.py`). The same values make the
`order.toml` by which `anabranch frontier` opens the job's folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from anabranch.frontier.embedding.overrides import override_lines, overrides_of
from anabranch.frontier.embedding.tables import NUMBER, TABLES, WHOLE, WORDS, check_table
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.scheduling.backoff import Backoff
from anabranch.frontier.scheduling.gates import Politeness

#: Text, numbers and lists of overrides, by name; checked.
Settings = Mapping[str, Any]

#: section of an order -> name -> what stands there.
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


def settled(settings: Mapping[str, object]) -> Settings:
    """The same, all names known and all values of the kind that belongs there, with two that are not as in a crawl.

    The policy is `host`, so that what a host program says of order (a priority, a place in front) holds for all of a site; and
    a queue gives as many URLs at a time as a host has connections, since the one queue of a host would else leave the others
    idle. Raises: PolicyError, which names the first that makes no sense.
    """
    check_table(settings, _KINDS, "the Frontier")
    given: dict[str, Any] = dict(settings)
    tables = [table for table in given.get(_OVERRIDE, ()) if isinstance(table, Mapping)]
    connections = [table["max_connections"] for table in (given, *tables) if "max_connections" in table]
    whole = [number for number in connections if isinstance(number, int)]
    return {"policy": "host", **({"per_queue": max(whole)} if whole else {}), **given}


def order_of(settings: Mapping[str, object]) -> FrontierOrder:
    """The order; what `settled` leaves open is as in a crawl. Raises: PolicyError."""
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
    """The same as an order file (TOML) for `anabranch frontier`. Raises: PolicyError."""
    given = settled(settings)
    lines: list[str] = []
    for section, names in _SECTIONS.items():
        lines.append(f"[{section}]")
        # JSON's strings and numbers are TOML's, as long as no value is without end.
        lines += [f"{name} = {json.dumps(given[name])}" for name in names if name in given]
    return "\n".join((*lines, *override_lines(given.get(_OVERRIDE, ())), ""))


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
