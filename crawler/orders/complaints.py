"""What is wrong with an order, in the operator's words: a line per fault that names source, key and what is right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from anabranch.crawler.orders.keys import ENTRIES, HOMES, KEYS, SECTIONS, keys_of, quantity_writer
from anabranch.crawler.orders.layers import Layer

#: What the types of pydantic's errors begin with -> what to tell the operator.
_COMPLAINTS: Mapping[str, str] = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "finite_number": "must be a finite number",
    "bool_": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must be one word, without control characters or parentheses",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be more than {gt}",
    "less_than": "must be less than {lt}",
    "tuple_type": "must be a list",
    "dict_type": "must be a section with keys",
    "missing": "must be given",
    "too_short": "must not be empty",
    "path_type": "must be the name of a file",
}


def unknown_keys(layers: Iterable[Layer]) -> Iterator[str]:
    """A line for each section and key that nobody knows, and for each that has not the form of one."""
    for layer in layers:
        for section, table in layer.tables.items():
            if section in ENTRIES:
                yield from _unknown_in_entries(layer, section, table)
            elif section not in KEYS:
                known = [*KEYS, *ENTRIES]
                home = f"; it belongs to [{HOMES[section]}]" if section in HOMES else hint(section, known, "[{}]")
                yield f"{_unknown_place(layer, section, table)}{home}"
            elif not isinstance(table, Mapping):
                yield f"{layer.section(section)} must be a section with keys, not {table!r}"
            else:
                yield from _unknown_in_section(layer, section, table)


def _unknown_place(layer: Layer, section: str, table: object) -> str:
    """As the source writes it: a file the section, any other source a key of it."""
    if layer.text or not isinstance(table, Mapping) or not table:
        return f"{layer.section(section)} is unknown"
    return f"{layer.key(section, next(iter(table)))} is unknown: there is no section [{section}]"


def _unknown_in_section(layer: Layer, section: str, table: Mapping[str, Any]) -> Iterator[str]:
    for key in table:
        if key not in KEYS[section]:
            elsewhere = f"; it belongs to [{HOMES[key]}]" if key in HOMES else ""
            yield f"{layer.key(section, key)} is unknown{elsewhere or hint(key, KEYS[section], '{}')}"


def _unknown_in_entries(layer: Layer, name: str, entries: object) -> Iterator[str]:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        yield f"{layer.section(name)} must be entries of a file, each below a line [[{name}]]"
        return
    known = keys_of(ENTRIES[name])
    for number, entry in enumerate(entries, 1):
        for key in entry:
            if key not in known:
                yield f"{layer.entry(name, number)} {key} is unknown{hint(key, known, '{}')}"


def hint(name: str, known: Iterable[str], form: str, dash: str = "_") -> str:
    """The known name that is meant, if one is close."""
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {form.format(close[0].replace('_', dash))}?" if close else ""


def in_words(error: ValidationError, layers: Sequence[Layer]) -> list[str]:
    """A line for each fault: where it was written, and what it is."""
    return [line_of(fault, layers) for fault in error.errors(include_url=False)]


def at_fault(error: ValidationError, layers: Sequence[Layer]) -> list[Layer]:
    """The sources that say what the first line is about, the strongest first; none if it is a default."""
    section, keys, _ = named(error.errors(include_url=False)[0])
    return _given_by(layers, section, keys)


def line_of(fault: ErrorDetails, layers: Sequence[Layer]) -> str:
    """Where it was written, and what it is."""
    place, *inner = _place(fault, layers)
    words = "".join(f" {part}" for part in inner if isinstance(part, str) and part != "[key]")
    return f"{place}{words}{':' if 'keys' in fault.get('ctx', {}) else ''} {_complaint(fault)}"


def _place(error: ErrorDetails, layers: Sequence[Layer]) -> tuple[str | int, ...]:
    """The key at fault as its source writes it, and what is at fault inside of it."""
    section, keys, path = named(error)
    if section in ENTRIES:
        layer = next(layer for layer in layers if section in layer.tables)
        return (layer.entry(section, int(path[0]) + 1), *(path[1:] or keys[:1]))
    given = [
        layer.key(section, key)
        for layer in _given_by(layers, section, keys)
        for key in keys
        if key in layer.tables[section]
    ]
    return (given[0] if given else f"[{section}] {keys[0]}", *path[1:])


def named(error: ErrorDetails) -> tuple[str, Sequence[str], Sequence[str | int]]:
    """The section at fault, its keys that are, and the way to the fault inside of the section."""
    section, *path = str(error["loc"][0]), *error["loc"][1:]
    return section, error.get("ctx", {}).get("keys") or (str(path[0]),), path


def _given_by(layers: Sequence[Layer], section: str, keys: Sequence[str]) -> list[Layer]:
    tables = [(layer, layer.tables.get(section)) for layer in layers]
    return [layer for layer, table in tables if isinstance(table, Mapping) and any(key in table for key in keys)]


def _complaint(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind in {"value_error", "contradiction"}:
        return error["msg"].removeprefix("Value error, ")
    words = next((words for start, words in _COMPLAINTS.items() if kind.startswith(start)), error["msg"])
    context = error.get("ctx", {}) | _bounds(error)
    shown = "" if kind == "missing" else f"; not {error['input']!r}"
    return f"{words.format(**context)}{shown}"


def _bounds(error: ErrorDetails) -> dict[str, str]:
    """The limits that a value has crossed, as an order would write them."""
    section, keys, path = named(error)
    models = ENTRIES if section in ENTRIES else SECTIONS
    write = quantity_writer(models[section], str(path[1]) if section in ENTRIES else keys[0])
    limits = {name: limit for name, limit in error.get("ctx", {}).items() if name in {"ge", "gt", "le", "lt"}}
    return {name: write(limit) if limit else "0" for name, limit in limits.items()}
