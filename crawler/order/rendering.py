"""An order written for people, with the comments `#:` of its classes or the origin of each value; and its JSON Schema."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import tomli_w
from pydantic import BaseModel

from anabranch.crawler.order.order import ENTRIES, HOMES, KEYS, SECTIONS, CrawlOrder
from anabranch.crawler.order.sources import Layer, origin

#: The beginning of a field in the source of its class.
_FIELD = re.compile(r"    (\w+): ")


@cache
def descriptions_of(model: type[BaseModel]) -> Mapping[str, str]:
    """Key -> its description; an entry's key without one has that of the section with the same key."""
    comments = _commented(inspect.getsource(model))
    words = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        home = SECTIONS.get(HOMES.get(key, ""))
        fallback = descriptions_of(home).get(key, "") if home is not None and home is not model else ""
        words[key] = comments.get(name) or fallback
    return words


def title_of(model: type[BaseModel]) -> str:
    """The first paragraph of a section's docstring."""
    return " ".join((model.__doc__ or "").strip().partition("\n\n")[0].split())


def _commented(source: str) -> dict[str, str]:
    """Field -> its comments `#:`, above it and behind it, for the source of one class."""
    comments: dict[str, list[str]] = {}
    above: list[str] = []
    field = ""
    for line in source.splitlines():
        code, _, comment = line.partition("#:")
        if found := _FIELD.match(code):
            field, comments[found[1]], above = found[1], above, []
        if comment:
            (comments[field] if code.strip() else above).append(comment.strip())
    return {name: " ".join(texts) for name, texts in comments.items()}


#: Columns before a comment, and columns in all.
_INDENT = 40
_WIDTH = 128

_HEAD = """\
# A crawl order with every key and its default.
#
#   anabranch crawl -c FILE [SEED]...
#
# Each key is also a variable (min_delay in [politeness]: ANABRANCH_POLITENESS__MIN_DELAY) and can be set by
# -s politeness.min_delay=1s; those that `anabranch crawl --help` lists are flags. A flag wins over -s, -s over a variable, a
# variable over this file. Durations are seconds or like "500ms", "3s", "2m", "1h", "1d"; sizes are bytes or like "8KB", "10MB",
# "16MiB", "1GB". A key that is not listed here is refused.
"""

#: pydantic leaves bounds under its own names where a value is read from text first.
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}

#: (section, key) -> the comment behind it.
Note = Callable[[str, str], str]


def default_order() -> str:
    """The order with all defaults, each key with its description."""
    sections = _written(CrawlOrder(), lambda section, key: descriptions_of(SECTIONS[section])[key], is_titled=True)
    entries = []
    for name, model in ENTRIES.items():
        title = f"{title_of(model)} In a file only; any number of entries."
        lines = [*textwrap.wrap(title, _WIDTH, initial_indent="# ", subsequent_indent="# "), "#", f"# [[{name}]]"]
        for key, words in descriptions_of(model).items():
            text = f"{key:<22} {words}".rstrip()
            lines += textwrap.wrap(text, _WIDTH, initial_indent="#   ", subsequent_indent=f"#   {'':23}")
        entries.append("\n".join(lines) + "\n")
    return "\n".join([_HEAD, *sections, *entries])


def effective_order(order: CrawlOrder, layers: Sequence[Layer], *, with_origin: bool, only_given: bool) -> str:
    """The order, all of it or only what a source gives; on request with the origin of each value."""
    sections = _written(
        order,
        lambda section, key: origin(layers, section, key) if with_origin else "",
        is_shown=lambda section, key: not only_given or origin(layers, section, key) != "default",
    )
    dumped = order.model_dump(mode="json", by_alias=True, exclude_none=True)
    entries = [tomli_w.dumps({name: dumped[name]}) for name in ENTRIES if dumped[name]]
    return "\n".join([*sections, *entries])


def _written(
    order: CrawlOrder,
    note: Note,
    *,
    is_titled: bool = False,
    is_shown: Callable[[str, str], bool] | None = None,
) -> Iterator[str]:
    """The sections one by one; those without a key to show are left out; `is_shown` None: all are."""
    dumped = order.model_dump(mode="json", by_alias=True)
    for section in KEYS:
        values = dumped[section]
        if is_shown is not None:
            values = {key: value for key, value in values.items() if is_shown(section, key)}
        if not values:
            continue
        title = [f"# {title_of(SECTIONS[section])}"] if is_titled else []
        yield "\n".join([*title, *_section(section, values, note)]) + "\n"


def _section(section: str, values: Mapping[str, Any], note: Note) -> list[str]:
    """The lines of a section; tables come last, as TOML requires."""
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines = [] if tables.keys() == values.keys() else [f"[{section}]"]
    for key in (key for key in values if key not in tables):
        lines += _noted(_assigned(key, values[key]), note(section, key))
    for key, table in tables.items():
        lines += [
            *([""] if lines else []),
            *_noted(f"[{section}.{key}]", note(section, key)),
            *tomli_w.dumps(dict(table)).splitlines(),
        ]
    return lines


def _assigned(key: str, value: object) -> str:
    """`key = value`; a key without a value is a comment."""
    if value is None:
        return f"# {key} ="
    if isinstance(value, list) and all(not isinstance(item, Mapping | list) for item in value):
        items = ", ".join(tomli_w.dumps({"x": item}).removeprefix("x = ").rstrip("\n") for item in value)
        return f"{key} = [{items}]"
    return tomli_w.dumps({key: value}).rstrip("\n")


def _noted(line: str, note: str) -> list[str]:
    """The line with its comment, which comes first if the whole would be too long."""
    if not note:
        return [line]
    whole = f"{line:<{_INDENT}}  # {note}"
    if len(whole) <= _WIDTH:
        return [whole]
    return [*textwrap.wrap(note, _WIDTH, initial_indent="# ", subsequent_indent="# "), line]


def order_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of an order's file, with the description of each key."""
    schema = CrawlOrder.model_json_schema(by_alias=True)
    defaults = CrawlOrder().model_dump(mode="json", by_alias=True)
    for name, model in (*SECTIONS.items(), *ENTRIES.items()):
        definition = schema["$defs"][model.__name__]
        definition["description"] = title_of(model)
        for key, words in descriptions_of(model).items():
            described = definition["properties"][key]
            described["description"] = words
            for ours, theirs in _BOUNDS.items():
                if ours in described:
                    described[theirs] = described.pop(ours)
            if name in SECTIONS:
                described["default"] = defaults[name][key]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A crawl order of Anabranch"}
    return {**schema, **head, "description": "Every key may be left out."}
