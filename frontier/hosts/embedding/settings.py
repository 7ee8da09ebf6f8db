"""The settings of a host program, checked, and the FrontierOrder that they make. Pure.

The names are those of `[frontier]`, `[politeness]` and `[dedup]` in a crawl order, and `workers` of `[crawl]`, in one table,
since no name occurs twice.
`override` is a list of such tables for parts of the web: each has `surt` (its place) and names of `[[override]]`.
Durations are seconds. The same values make the `order.toml` with which `anabranch frontier` opens the job's folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.filterchoice import filter_choice
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.sheets import Override, Settings
from anabranch.frontier.scheduling.fairness import WorkerLimits
from anabranch.frontier.scheduling.gates import Backoff, Politeness


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value) and not any(map(str.isspace, value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_words(value: object) -> bool:
    return _is_word(value) or (isinstance(value, list | tuple) and bool(value) and all(map(_is_word, value)))


#: Kind of a value, in the words of an error message, and whether a value is of that kind.
_WORD, _WHOLE, _NUMBER = "text", "a whole number", "a number that is not negative"
_WORDS, _TABLES, _WHOLES = "text, or a list of texts", "a list of tables", "a list of whole numbers"
_FITS: Mapping[str, Callable[[object], bool]] = MappingProxyType(
    {
        _WORD: _is_word,
        _WHOLE: _is_whole,
        _NUMBER: _is_number,
        _WORDS: _are_words,
        _WHOLES: lambda value: isinstance(value, list | tuple) and all(map(_is_whole, value)),
        _TABLES: lambda value: isinstance(value, list | tuple),
    }
)


#: The records of an order with settings of their own, by their field.
_RECORDS = {
    "politeness": Politeness, "group_politeness": Politeness, "backoff": Backoff, "budgets": Budgets,
    "worker_limits": WorkerLimits,
}  # fmt: skip

#: In place of such a record: the parameters of the filter.
_FILTER = "filter"

#: section of an order file -> name -> kind of value, field of `_RECORDS` (empty: the order itself), field of that record.
_SECTIONS: Mapping[str, Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        "frontier": {
            "policy": (_WORD, "", "policy"),
            "politeness": (_WORD, "", "scope"),
            "balance_replenish": (_WHOLE, "budgets", "balance_replenish"),
            "total_budget": (_WHOLE, "budgets", "total_budget"),
            "error_penalty": (_WHOLE, "budgets", "error_penalty"),
            "cost": (_WORD, "", "cost"),
            "uri_precedence": (_WORD, "", "uri_precedence"),
            "queue_precedence": (_WORD, "", "queue_precedence"),
            "precedence_floor": (_WHOLE, "", "precedence_floor"),
            "per_queue": (_WHOLE, "", "per_queue"),
            "checkpoint": (_NUMBER, "", "checkpoint_s"),
            "gates_in_memory": (_WHOLE, "", "gates_in_memory"),
            "domain_workers": (_NUMBER, "worker_limits", "domain"),
            "slow_workers": (_NUMBER, "worker_limits", "slow"),
            "slow_fetch": (_NUMBER, "worker_limits", "slow_s"),
        },
        "crawl": {"workers": (_WHOLE, "", "workers")},
        "politeness": {
            "delay_factor": (_NUMBER, "politeness", "delay_factor"),
            "min_delay": (_NUMBER, "politeness", "min_delay_s"),
            "max_delay": (_NUMBER, "politeness", "max_delay_s"),
            "max_connections": (_WHOLE, "politeness", "slots"),
            "backoff_base": (_NUMBER, "backoff", "base_s"),
            "backoff_cap": (_NUMBER, "backoff", "cap_s"),
            "backoff_jitter": (_NUMBER, "backoff", "jitter"),
            "backoff_forgive": (_NUMBER, "backoff", "forgive_s"),
            "max_retry_after": (_NUMBER, "backoff", "longest_retry_after_s"),
            "group": (_WORD, "", "group"),
            "group_delay_factor": (_NUMBER, "group_politeness", "delay_factor"),
            "group_min_delay": (_NUMBER, "group_politeness", "min_delay_s"),
            "group_max_delay": (_NUMBER, "group_politeness", "max_delay_s"),
            "group_max_connections": (_WHOLE, "group_politeness", "slots"),
        },
        "dedup": {
            "filter": (_WORD, _FILTER, "filter"),
            "signature": (_WORD, _FILTER, "signature"),
            "levels": (_WHOLES, _FILTER, "levels"),
            "leaf_kind": (_WORD, _FILTER, "leaf_kind"),
            "leaf_bits": (_WHOLE, _FILTER, "leaf_bits"),
            "split_fan_out": (_WHOLE, _FILTER, "split_fan_out"),
            "false_positive": (_NUMBER, _FILTER, "false_positive"),
            "expect": (_WHOLE, _FILTER, "expect"),
            "mapped_limit": (_WHOLE, _FILTER, "mapped_limit"),
        },
    }
)
_NAMES = {name: places for section in _SECTIONS.values() for name, places in section.items()}
_OVERRIDE = "override"
_KINDS = {name: kind for name, (kind, _, _) in _NAMES.items()} | {_OVERRIDE: _TABLES}

_WHERE = "surt"
#: name in an override -> field of `policies.sheets.Settings`, if it has another name there.
_OVERRIDE_FIELDS = {"min_delay": "min_delay_s", "max_delay": "max_delay_s", "balance_replenish": "session_budget"}
_OVERRIDE_KINDS = {
    _WHERE: _WORDS,
    **dict.fromkeys(("delay_factor", "min_delay", "max_delay"), _NUMBER),
    **dict.fromkeys(("max_connections", "balance_replenish", "total_budget", "queue_precedence"), _WHOLE),
    "domain_workers": _NUMBER,
    "key": _WORD,
    "uri_precedence": _WHOLE,
}


def order_of(settings: Mapping[str, object]) -> FrontierOrder:
    """The order; settings that are not given have the defaults of a crawl. Raises: PolicyError."""
    given = _completed(settings)
    scope = given.get("politeness", PolitenessScope.HOST.value)
    scopes = [each.value for each in PolitenessScope]
    if scope not in scopes:
        raise PolicyError(f"politeness {scope!r}: choose one of {', '.join(scopes)}")
    given["politeness"] = PolitenessScope(scope)
    records: dict[str, Any] = {part: record(**_fields(given, part)) for part, record in _RECORDS.items()}
    overrides = tuple(map(_override, given.get(_OVERRIDE, ())))
    chosen = _fields(given, _FILTER)
    choice = filter_choice(chosen) if chosen else None
    return FrontierOrder(overrides=overrides, uniq=choice, **records, **_fields(given, ""))


def order_text(settings: Mapping[str, object]) -> str:
    """The settings as an order file (TOML) for `anabranch frontier`. Raises: PolicyError."""
    given = _completed(settings)
    lines: list[str] = []
    for section, names in _SECTIONS.items():
        lines += [f"[{section}]", *_lines((name, given[name]) for name in names if name in given)]
    for entry in given.get(_OVERRIDE, ()):
        lines += ["[[override]]", *_lines(entry.items())]
    return "\n".join((*lines, ""))


def _completed(settings: Mapping[str, object]) -> dict[str, Any]:
    """The settings, checked, with two defaults that differ from a crawl's.

    The policy is `host`, so that the host program's order (a priority, a place in front) holds for a whole site. `per_queue` is
    the number of connections to a host, since the one queue of a host would otherwise leave all but one idle. Raises:
    PolicyError, which names the first invalid setting.
    """
    _check_table(settings, _KINDS, "the Frontier")
    given: dict[str, Any] = dict(settings)
    tables = [table for table in given.get(_OVERRIDE, ()) if isinstance(table, Mapping)]
    connections = [table["max_connections"] for table in (given, *tables) if "max_connections" in table]
    whole = [number for number in connections if isinstance(number, int)]
    return {"policy": "host", **({"per_queue": max(whole)} if whole else {}), **given}


def _check_table(table: object, kinds: Mapping[str, str], what: str) -> None:
    """Raises: PolicyError, which names the first unknown name or the first value of another kind."""
    if not isinstance(table, Mapping):
        raise PolicyError(f"{what} {table!r}: give a table of names and values")
    for name, value in table.items():
        kind = kinds.get(name)
        if kind is None:
            raise PolicyError(f"{name!r} is no setting of {what}; choose from {', '.join(kinds)}")
        if not _FITS[kind](value):
            raise PolicyError(f"{name} {value!r}: give {kind}")


def _override(entry: Any) -> Override:
    """Raises: PolicyError, which names the entry or the value."""
    _check_table(entry, _OVERRIDE_KINDS, _OVERRIDE)
    where = entry.get(_WHERE, ())
    values = {_OVERRIDE_FIELDS.get(name, name): value for name, value in entry.items() if name != _WHERE}
    return Override((where,) if isinstance(where, str) else tuple(where), Settings(**values))


def _fields(given: Mapping[str, Any], record: str) -> dict[str, Any]:
    return {field: given[name] for name, (_, part, field) in _NAMES.items() if part == record and name in given}


def _lines(values: Iterable[tuple[str, object]]) -> Iterable[str]:
    """Lines of TOML: JSON's strings, finite numbers and lists of strings are TOML's."""
    return [f"{name} = {json.dumps(value)}" for name, value in values]
