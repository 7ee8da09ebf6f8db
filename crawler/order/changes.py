"""Changes of the order of a job that has begun: `anabranch set JOB limits.pages=500`. Pure."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from anabranch.crawler.order.loading import order_of
from anabranch.crawler.order.order import KEYS, CrawlOrder, dump_order
from anabranch.crawler.order.sources import Layer, kept_layer, settings_layer
from anabranch.crawler.outcomes.errors import UsageError

#: Section -> keys that can change after a job has begun. Keys that shape queues, filter or files cannot.
CHANGEABLE: Mapping[str, Sequence[str]] = {
    "limits": tuple(KEYS["limits"]),
    "politeness": (
        "min_delay", "max_delay", "delay_factor", "max_connections",
        "group_min_delay", "group_max_delay", "group_delay_factor", "group_max_connections",
    ),
    "scope": tuple(key for key in KEYS["scope"] if key not in {"scope", "similar", "similar_expect", "rules"}),
    "job": ("schedule", "schedule_zone", "schedule_starts"),
}  # fmt: skip

#: The same as `section.key`.
CHANGEABLE_KEYS = frozenset(f"{section}.{key}" for section, keys in CHANGEABLE.items() for key in keys)


class Change(NamedTuple):
    """A key that got another value; values are as in TOML."""

    key: str  #: as in limits.pages
    was: object
    now: object

    def __str__(self) -> str:
        return f"{self.key}: {self.was} -> {self.now}"


def changed_order(order: CrawlOrder, settings: Sequence[str]) -> tuple[CrawlOrder, list[Change]]:
    """The order with these settings (`section.key=value`; `+=` adds to a list), and what differs.

    Raises: UsageError for a key that cannot be changed, BadArgument for a wrong value.
    """
    for setting in settings:
        _check_key(key_of_setting(setting))
    before = values(order)
    known = dict(before)
    layer = settings_layer([_whole(setting, known) for setting in settings], form="")
    after = order_of([layer, kept_layer(tomllib.loads(dump_order(order)), "the job's order")])
    after = after.running(order.code if order.code.withheld else None)  # no changeable key names any
    now = values(after)
    return after, [Change(key, before[key], value) for key, value in now.items() if before[key] != value]


def with_changes(known: Iterable[Change], changes: Iterable[Change]) -> list[Change]:
    """The known changes and later ones as one change a key, without keys that have their first value again. Pure."""
    joined = {change.key: change for change in known}
    for change in changes:
        joined[change.key] = joined.get(change.key, change)._replace(now=change.now)
    return [change for change in joined.values() if change.now != change.was]


def held_changes(changes: Iterable[Change], order: CrawlOrder, commanded: Collection[str] = ()) -> list[Change]:
    """The changes that hold although a command names the values from before them. Pure.

    `commanded` are the keys that the command line itself names: a default that it names ends the change.
    """
    named, defaults = values(order), values(CrawlOrder())
    return [
        change
        for change in changes
        if named[change.key] == change.was and not (change.key in commanded and change.was == defaults[change.key])
    ]


def settled_changes(changes: Iterable[Change], order: CrawlOrder) -> list[Change]:
    """The changes that an order, which a run begins with, has. Pure."""
    named = values(order)
    return [change for change in changes if named[change.key] == change.now]


def parsed_changes(text: bytes | str | None) -> list[Change]:
    """Changes from their JSON, without keys that cannot be changed. Pure. Raises: ValueError, TypeError."""
    found = [Change(*one) for one in json.loads(text or "[]")]
    return [change for change in found if change.key in CHANGEABLE_KEYS]  # another version may know others


def key_of_setting(setting: str) -> str:
    """The key that a setting names, as in limits.pages. Pure."""
    return setting.partition("=")[0].rstrip("+ ").strip()


def values(order: CrawlOrder) -> dict[str, Any]:
    """The value of each changeable key, as in TOML."""
    tables = order.model_dump(mode="json", by_alias=True)
    return {f"{section}.{key}": tables[section][key] for section, keys in CHANGEABLE.items() for key in keys}


def changes_layer(changes: Sequence[Change]) -> Layer:
    """Return the changes as a source of an order."""
    tables: dict[str, dict[str, object]] = {}
    for change in changes:
        section, _, key = change.key.partition(".")
        tables.setdefault(section, {})[key] = change.now
    form = "anabranch set {section}.{key}"
    return Layer(tables=tables, section_form="anabranch set {section}", key_form=form, origin_form=form)


def _check_key(name: str) -> None:
    section, _, key = name.partition(".")
    if key in CHANGEABLE.get(section, ()):
        return
    if key not in KEYS.get(section, {}):
        settings_layer([f"{name}="], form="")  # refuses what is not written as a key
        return  # an unknown key is refused with a hint when the order is made
    can = "; ".join(f"[{known}] {', '.join(keys)}" for known, keys in CHANGEABLE.items())
    raise UsageError(f"{name}: cannot be changed after a job has begun; these keys can: {can}")


def _whole(setting: str, known: dict[str, Any]) -> str:
    """A setting that replaces the value, in place of one that adds to it. `known` has the values, and gets the new list."""
    name, _, text = setting.partition("=")
    adds, name = name.endswith("+"), key_of_setting(setting)
    if not isinstance(known.get(name), list):
        if adds:
            raise UsageError(f"{name}: is not a list; write {name}={text}")
        return setting
    section, _, key = name.partition(".")
    given = settings_layer([f"{name}={text}"], form="").tables[section][key]
    if not isinstance(given, list):
        return setting  # refused with a hint when the order is made
    known[name] = [*known[name], *given] if adds else given
    return f"{name}={json.dumps(known[name], ensure_ascii=False)}" if adds else setting
