"""An order looked at as a whole: all that is wrong with it in one look, and what is left of it that is sound.

A value that is wrong is told, left out, and the rest is looked at again, since many a fault shows only behind another: two keys
are compared only when each of them makes sense. What is left out has its default, and no fault is told that the default may
have brought about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from anabranch.crawler.orders.complaints import line_of, named, unknown_keys
from anabranch.crawler.orders.keys import ENTRIES, KEYS, keys_of
from anabranch.crawler.orders.layers import Layer, folder_of, merged
from anabranch.crawler.orders.order import CrawlOrder, with_modules

#: Section, number of the entry (from 0; -1 in a section), key.
_Place = tuple[str, int, str]

#: Stands in an entry for prefixes that are wrong or missing, until the entry is left out.
_SOMEWHERE = "entry.invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What became of the sources of an order."""

    order: CrawlOrder  #: without the values and entries that are wrong
    layers: Sequence[Layer]  #: what it is of, the strongest first
    faults: tuple[str, ...]  #: a line each, which names source and key; none: the order is what a run would go by
    left_out: frozenset[tuple[str, str]]  #: section and key of each value that is wrong


def examine(layers: Sequence[Layer]) -> Examined:
    """Everything that is wrong with what the sources say. Cost: a look at the whole for each fault behind a fault."""
    lines = list(unknown_keys(layers))
    tables = _known(layers)
    wrong: set[_Place] = set()
    while found := _wrong(tables):
        lines += [line_of(fault, layers) for fault, places in found if not places & wrong]
        places = {place for _, places in found for place in places}
        if places <= wrong:
            break  # no default and no stand-in is wrong, so this is a defect, and is raised below
        for place in places:
            _leave_out(tables, place)
        wrong |= places
    order = with_modules(CrawlOrder.model_validate(tables), folder_of(layers))
    left_out = frozenset((section, key) for section, _, key in wrong)
    return Examined(order=_without_entries(order, wrong), layers=layers, faults=tuple(lines), left_out=left_out)


def _known(layers: Sequence[Layer]) -> dict[str, Any]:
    """The sources as one, without what nobody knows."""
    sound: dict[str, Any] = {}
    for section, table in merged(layers).items():
        if section in ENTRIES and isinstance(table, list):
            known = keys_of(ENTRIES[section])
            sound[section] = [_only(entry, known) for entry in table if isinstance(entry, Mapping)]
        elif section in KEYS and isinstance(table, Mapping):
            sound[section] = _only(table, KEYS[section])
    return sound


def _only(table: Mapping[str, Any], known: Mapping[str, object]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key in known}


def _wrong(tables: Mapping[str, Any]) -> list[tuple[ErrorDetails, set[_Place]]]:
    """What is found wrong in one look, each with its places."""
    try:
        CrawlOrder.model_validate(tables)
    except ValidationError as error:
        return [(fault, _places(fault)) for fault in error.errors(include_url=False)]
    return []


def _places(fault: ErrorDetails) -> set[_Place]:
    """What must be left out for the fault to go."""
    section, keys, path = named(fault)
    if section not in ENTRIES:
        return {(section, -1, key) for key in keys}
    number, *inner = path
    return {(section, int(number), str(key)) for key in (inner[:1] or keys)}


def _leave_out(tables: dict[str, Any], place: _Place) -> None:
    section, number, key = place
    table = tables.get(section, {}) if section not in ENTRIES else tables[section][number]
    table.pop(key, None)
    if key == "surt":
        table[key] = [_SOMEWHERE]


def _without_entries(order: CrawlOrder, wrong: set[_Place]) -> CrawlOrder:
    """An entry of which something is wrong is left out whole."""
    at_fault = {(section, number) for section, number, _ in wrong}
    kept = {
        name: tuple(entry for number, entry in enumerate(getattr(order, name)) if (name, number) not in at_fault)
        for name in ENTRIES
    }
    return order.model_copy(update=kept)
