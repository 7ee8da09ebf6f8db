"""Where a crawl order comes from: flags, the environment and a file, merged; what nobody knows is refused by name."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from crawler.orders.fetch import SiteEntry
from crawler.orders.frontier import OverrideEntry
from crawler.orders.order import ENVIRONMENT, CrawlOrder
from crawler.outcomes.errors import OrderError

#: Section -> key -> type of the value, as the models have them.
KEYS: Mapping[str, Mapping[str, object]] = {
    section: {field.alias or name: field.annotation for name, field in model.annotation.model_fields.items()}
    for section, model in CrawlOrder.model_fields.items()
    if isinstance(model.annotation, type) and issubclass(model.annotation, BaseModel)
}

#: The parts of the order that are no sections, but lists of tables, which only a file can hold -> the keys of an entry.
ENTRIES: Mapping[str, frozenset[str]] = {
    name: frozenset(field.alias or key for key, field in entry.model_fields.items())
    for name, entry in (("override", OverrideEntry), ("site", SiteEntry))
}

#: Keys whose names are those of other keys, which have the flag: `--timeout` is the fetch's.
_WITHOUT_FLAG = frozenset({("dns", "timeout"), ("extract", "timeout")})

#: Flag, as a key -> its section.
FLAGS: Mapping[str, str] = {
    key: section for section, keys in KEYS.items() for key in keys if (section, key) not in _WITHOUT_FLAG
}

#: What the types of pydantic's errors begin with -> what to tell the operator.
_COMPLAINTS: Mapping[str, str] = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "finite_number": "must be a finite number",
    "bool_": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be one word, without control characters or parentheses",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "greater_than": "must be more than {gt:g}",
    "tuple_type": "must be a list",
    "dict_type": "must be a section with keys",
    "missing": "must be given",
    "too_short": "must not be empty",
    "path_type": "must be the name of a file",
}


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says, and how it writes a section or a key."""

    tables: Mapping[str, Any]
    section_form: str
    key_form: str

    def section(self, section: str) -> str:
        """The section as this source writes it."""
        return self.section_form.format(section=section, SECTION=section.upper())

    def entry(self, entries: str, number: int) -> str:
        """One of the file's entries, counted from 1."""
        return f"{self.section(f'[{entries}]')} {number}"

    def key(self, section: str, key: str) -> str:
        """The key as this source writes it."""
        forms = {"section": section, "key": key, "flag": key.replace("_", "-")}
        return self.key_form.format(**forms, SECTION=section.upper(), KEY=key.upper())


def load_order(file: Path | None, flags: Mapping[str, object]) -> CrawlOrder:
    """The order of a file, the environment and flags (key -> value; None: not given); the latter win.

    Raises: OrderError, one line that names the source and the key, says what is wrong and what would be right.
    """
    layers = [_flag_layer(flags), _environment_layer(), *([_file_layer(file)] if file else [])]
    for layer in layers:
        _check_known(layer)
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        for section, table in layer.tables.items():
            if section in ENTRIES:
                merged[section] = table
            else:
                merged.setdefault(section, {}).update(table)
    try:
        return CrawlOrder.model_validate(merged)
    except ValidationError as error:
        raise OrderError(_in_words(error.errors(include_url=False), layers)) from error


def _flag_layer(flags: Mapping[str, object]) -> Layer:
    tables: dict[str, dict[str, object]] = {}
    for key, value in flags.items():
        if key not in FLAGS:
            raise OrderError(f"--{key.replace('_', '-')} is unknown{_hint(key, FLAGS, '--{}', '-')}")
        if value is not None:
            tables.setdefault(FLAGS[key], {})[key] = value
    return Layer(tables, "flags", "--{flag}")


def _environment_layer() -> Layer:
    """Variables with a section; lists and tables in them are words, `name=ip:port` for `[dns.hosts]`."""
    form = f"environment: {ENVIRONMENT}{{SECTION}}"
    known = EnvSettingsSource(CrawlOrder)()
    tables: dict[str, Any] = {section: {} for section in _environment_sections()} | known
    for section, table in known.items():
        for key, text in table.items() if isinstance(table, dict) else ():
            kind = get_origin(KEYS.get(section, {}).get(key))
            if kind is tuple and isinstance(text, str):
                table[key] = text.split()
            elif kind is dict and isinstance(text, str):
                table[key] = dict(word.partition("=")[::2] for word in text.split())
    return Layer(tables, form, form + "__{KEY}")


def _environment_sections() -> Iterable[str]:
    """The sections that variables speak of, known or not. What has no section is not ours."""
    for name in os.environ:
        section, delimiter, _ = name.upper().removeprefix(ENVIRONMENT).partition("__")
        if delimiter and name.upper().startswith(ENVIRONMENT):
            yield section.lower()


def _file_layer(file: Path) -> Layer:
    try:
        content = file.read_bytes()
        tables = tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise OrderError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OrderError(f"{file}: not UTF-8 (at line {line}); save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise OrderError(f"{file}: not TOML: {' '.join(str(error).split())}") from error
    job = tables.get("job")
    if isinstance(job, dict) and isinstance(job.get("seed_files"), list):
        names = job["seed_files"]
        job["seed_files"] = [file.parent / name if isinstance(name, str) else name for name in names]
    return Layer(tables, f"{_braced(file)}: [{{section}}]", f"{_braced(file)}: [{{section}}] {{key}}")


def _braced(file: Path) -> str:
    return str(file).replace("{", "{{").replace("}", "}}")


def _check_known(layer: Layer) -> None:
    for section, table in layer.tables.items():
        if section in ENTRIES:
            _check_entries(layer, section, table)
            continue
        if section not in KEYS:
            home = (
                f"; it belongs to [{FLAGS[section]}]" if section in FLAGS else _hint(section, [*KEYS, *ENTRIES], "[{}]")
            )
            raise OrderError(f"{layer.section(section)} is unknown{home}")
        if not isinstance(table, Mapping):
            raise OrderError(f"{layer.section(section)} must be a section with keys, not {table!r}")
        for key in table:
            if key not in KEYS[section]:
                elsewhere = f"; it belongs to [{FLAGS[key]}]" if key in FLAGS else ""
                hint = elsewhere or _hint(key, KEYS[section], "{}")
                raise OrderError(f"{layer.key(section, key)} is unknown{hint}")


def _check_entries(layer: Layer, name: str, entries: object) -> None:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise OrderError(f"{layer.section(name)} must be entries of a file, each below a line [[{name}]]")
    for number, entry in enumerate(entries, 1):
        for key in entry:
            if key not in ENTRIES[name]:
                raise OrderError(f"{layer.entry(name, number)} {key} is unknown{_hint(key, ENTRIES[name], '{}')}")


def _hint(name: str, known: Iterable[str], form: str, dash: str = "_") -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {form.format(close[0].replace('_', dash))}?" if close else ""


def _in_words(errors: list[ErrorDetails], layers: list[Layer]) -> str:
    """One line: where the first fault was written and what it is, and how many more there are."""
    first, *others = errors
    place, *inner = _place(first, layers)
    words = "".join(f" {part}" for part in inner if isinstance(part, str) and part != "[key]")
    more = f" (and {len(others)} more)" if others else ""
    return f"{place}{words}{':' if 'keys' in first.get('ctx', {}) else ''} {_complaint(first)}{more}"


def _place(error: ErrorDetails, layers: list[Layer]) -> tuple[str | int, ...]:
    """The key at fault as its source writes it, and what is at fault inside of it."""
    section, *path = str(error["loc"][0]), *error["loc"][1:]
    keys = error.get("ctx", {}).get("keys") or (str(path[0]),)
    if section in ENTRIES:
        layer = next(layer for layer in layers if section in layer.tables)
        return (layer.entry(section, int(path[0]) + 1), *(path[1:] or keys[:1]))
    given = [layer.key(section, key) for layer in layers for key in keys if key in layer.tables.get(section, {})]
    return (given[0] if given else f"[{section}] {keys[0]}", *path[1:])


def _complaint(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind in {"value_error", "contradiction"}:
        return error["msg"].removeprefix("Value error, ")
    words = next((words for start, words in _COMPLAINTS.items() if kind.startswith(start)), error["msg"])
    shown = "" if kind == "missing" else f"; not {error['input']!r}"
    return f"{words.format(**error.get('ctx', {}))}{shown}"
