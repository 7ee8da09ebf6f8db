"""From the layers of an order to the order, or to its faults: a line each, which names source and key and what is right.

`examine` finds all faults: it leaves out each wrong value and examines the rest again, because two keys are compared only when
each of them is valid. It reports no fault that a default may have caused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from anabranch.crawler.order.order import (
    ENTRIES,
    HOMES,
    KEYS,
    SECTIONS,
    CrawlOrder,
    keys_of,
    quantity_writer,
    with_modules,
)
from anabranch.crawler.order.sections import JobSection
from anabranch.crawler.order.sources import Layer, folder_of, hint, merged, read_layers
from anabranch.crawler.order.vouching import code_of
from anabranch.crawler.outcomes.errors import BadArgument, OrderError
from anabranch.crawler.outcomes.userfunctions import import_first_from


def load_order(file: Path | None, flags: Mapping[str, object], settings: Sequence[str] = ()) -> CrawlOrder:
    """The order of a file, the environment, settings (`section.key=value`) and flags (None: not given). The latter win.

    From then on user functions are imported from the file's folder. Raises: OrderError, one line.
    """
    order = order_of(read_layers(file, flags, settings))
    import_first_from(order.code.folder)
    return order


def order_of(layers: Sequence[Layer]) -> CrawlOrder:
    """The merged order of the sources; code that only the job's own names is withheld. Raises: OrderError, as `load_order`."""
    order = with_modules(_validated(layers, merged(layers)), folder_of(layers))
    code = code_of(order, layers)
    return order if code is None else order.running(code)


class Caller(NamedTuple):
    """How a command vouches for the user functions of a job's order."""

    run_code: bool = False  #: all of them may run
    layers: Sequence[Layer] | None = None  #: the sources of an order that it names; None: the variables

    def order_of(self, jobs: Layer, *, with_variables: bool = True) -> CrawlOrder:
        """The job's order; what the caller names is stronger, variables too. The code that may run can be imported from now on.

        Raises: OrderError.
        """
        given = read_layers(None, {}) if self.layers is None else self.layers
        order = order_of([*given, jobs] if with_variables or self.layers is not None else [jobs])
        order = order.running(None if self.run_code else code_of(order, [*given, jobs]))
        import_first_from(order.code.folder)
        return order


def job_of(layers: Sequence[Layer]) -> JobSection:
    """The section [job] of these sources alone: the rest may need another source to be valid. Raises: OrderError."""
    return _validated(layers, {"job": merged(layers).get("job", {})}).job


def _validated(layers: Sequence[Layer], tables: Mapping[str, Any]) -> CrawlOrder:
    for layer in layers:
        for line in unknown_keys([layer]):
            raise (BadArgument if layer.is_command else OrderError)(line)
    try:
        return CrawlOrder.model_validate(tables)
    except ValidationError as error:
        found = error.errors(include_url=False)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        section, keys, _ = named(found[0])
        given_by = _given_by(layers, section, keys)
        kind = BadArgument if given_by and given_by[0].is_command else OrderError
        raise kind(line_of(found[0], layers) + more) from error


#: A command that names nothing: only variables vouch.
BY_VARIABLES = Caller()


def caller_of(*, run_code: bool, order_file: Path | None = None, settings: Sequence[str] = ()) -> Caller:
    """The caller of a command with these options. Raises: OrderError, UsageError."""
    return Caller(run_code, read_layers(order_file, {}, settings) if order_file or settings else None)


#: Section, number of the entry (from 0; -1 in a section), key.
_Place = tuple[str, int, str]

#: Replaces wrong or missing prefixes of an entry, until the entry is left out.
_SOMEWHERE = "entry.invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The result of examining the sources of an order."""

    order: CrawlOrder  #: without the wrong values and entries
    layers: Sequence[Layer]  #: its sources, the strongest first
    faults: tuple[str, ...]  #: a line each, which names source and key; none: a run would use this order
    left_out: frozenset[tuple[str, str]]  #: section and key of each value that is wrong


def examine(layers: Sequence[Layer]) -> Examined:
    """Find all faults of the sources. Cost: one validation of the whole for each fault behind a fault."""
    lines = list(unknown_keys(layers))
    tables = _known(layers)
    wrong: set[_Place] = set()
    while True:
        try:
            order = with_modules(CrawlOrder.model_validate(tables), folder_of(layers))
            break
        except ValidationError as error:
            found = [(fault, _places(fault)) for fault in error.errors(include_url=False)]
            places = {place for _, places in found for place in places}
            if places <= wrong:
                raise  # defaults and stand-ins are never wrong: this is a defect
        lines += [line_of(fault, layers) for fault, places_of_fault in found if not places_of_fault & wrong]
        _leave_out(tables, places)
        wrong |= places
    left_out = frozenset((section, key) for section, _, key in wrong)
    return Examined(order=_without_entries(order, wrong), layers=layers, faults=tuple(lines), left_out=left_out)


def _leave_out(tables: dict[str, Any], places: set[_Place]) -> None:
    for section, number, key in places:
        table = tables[section][number] if section in ENTRIES else tables.get(section, {})
        table.pop(key, None)
        if key == "surt":
            table[key] = [_SOMEWHERE]


def _without_entries(order: CrawlOrder, wrong: set[_Place]) -> CrawlOrder:
    """Leave out every entry that has a wrong value."""
    at_fault = {(section, number) for section, number, _ in wrong}
    kept = {
        name: tuple(entry for number, entry in enumerate(getattr(order, name)) if (name, number) not in at_fault)
        for name in ENTRIES
    }
    return order.model_copy(update=kept)


def _known(layers: Sequence[Layer]) -> dict[str, Any]:
    """The sources merged, without unknown sections and keys."""

    def only(table: Mapping[str, Any], known: Mapping[str, object]) -> dict[str, Any]:
        return {key: value for key, value in table.items() if key in known}

    sound: dict[str, Any] = {}
    for section, table in merged(layers).items():
        if section in ENTRIES and isinstance(table, list):
            known = keys_of(ENTRIES[section])
            sound[section] = [only(entry, known) for entry in table if isinstance(entry, Mapping)]
        elif section in KEYS and isinstance(table, Mapping):
            sound[section] = only(table, KEYS[section])
    return sound


def _places(fault: ErrorDetails) -> set[_Place]:
    section, keys, path = named(fault)
    if section not in ENTRIES:
        return {(section, -1, key) for key in keys}
    number, *inner = path
    return {(section, int(number), str(key)) for key in (inner[:1] or keys)}


#: Prefix of a pydantic error type -> what the operator reads.
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
    "dict_type": "must be a table of keys and values",
    "missing": "must be given",
    "too_short": "must not be empty",
    "path_type": "must be the name of a file",
}


#: How options begin that no order may set.
_ON_END = "on_end_"


def unknown_keys(layers: Iterable[Layer]) -> Iterator[str]:
    """A line for each section and key that is unknown or has the wrong form."""
    for layer in layers:
        for section, table in layer.tables.items():
            if section in ENTRIES:
                yield from _unknown_in_entries(layer, section, table)
            elif section not in KEYS:
                known = [*KEYS, *ENTRIES]
                home = f"; it belongs to [{HOMES[section]}]" if section in HOMES else hint(section, known, "[{}]")
                if layer.text or not isinstance(table, Mapping) or not table:  # a file writes the section …
                    yield f"{layer.section(section)} is unknown{home}"
                else:  # … any other source a key of it
                    key = layer.key(section, next(iter(table)))
                    yield f"{key} is unknown: there is no section [{section}]{home}"
            elif not isinstance(table, Mapping):
                yield f"{layer.section(section)} must be a section with keys, not {table!r}"
            else:
                yield from _unknown_in_section(layer, section, table)


def _unknown_in_section(layer: Layer, section: str, table: Mapping[str, Any]) -> Iterator[str]:
    for key in table:
        if key not in KEYS[section]:
            elsewhere = f"; it belongs to [{HOMES[key]}]" if key in HOMES else hint(key, KEYS[section], "{}")
            if key.startswith(_ON_END):
                elsewhere = (
                    f"; what runs when a crawl ends is no part of an order: give --{key.replace('_', '-')} to "
                    "`anabranch crawl`, `run-due` or `console`"
                )
            yield f"{layer.key(section, key)} is unknown{elsewhere}"


def _unknown_in_entries(layer: Layer, name: str, entries: object) -> Iterator[str]:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        yield f"{layer.section(name)} must be entries of a file, each below a line [[{name}]]"
        return
    known = keys_of(ENTRIES[name])
    for number, entry in enumerate(entries, 1):
        for key in entry:
            if key not in known:
                yield f"{layer.entry(name, number)} {key} is unknown{hint(key, known, '{}')}"


def line_of(fault: ErrorDetails, layers: Sequence[Layer]) -> str:
    """The line for a fault: where the value was written, and what is wrong with it."""
    place, *inner = _place(fault, layers)
    words = "".join(f" {part}" for part in inner if isinstance(part, str) and part != "[key]")
    return f"{place}{words}{':' if 'keys' in fault.get('ctx', {}) else ''} {_complaint(fault)}"


def _place(error: ErrorDetails, layers: Sequence[Layer]) -> tuple[str | int, ...]:
    """The key at fault as its source writes it, and the path to the fault inside its value."""
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
    """The section at fault, its keys at fault, and the path to the fault inside the section."""
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
    """The bounds that a value violates, as an order would write them."""
    section, keys, path = named(error)
    models = ENTRIES if section in ENTRIES else SECTIONS
    write = quantity_writer(models[section], str(path[1]) if section in ENTRIES else keys[0])
    limits = {name: limit for name, limit in error.get("ctx", {}).items() if name in {"ge", "gt", "le", "lt"}}
    return {name: write(limit) if limit else "0" for name, limit in limits.items()}
