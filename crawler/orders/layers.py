"""The sources of an order, one over the other: what each says, and how it names a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.crawler.orders.keys import ENTRIES, FLAG_OF
from anabranch.crawler.orders.positions import key_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one source says, and how it writes a section or a key."""

    tables: Mapping[str, Any]
    section_form: str
    key_form: str
    origin_form: str  #: how the origin of a key is told; `{line}` is `:12` where a file's line is known
    text: str = ""  #: of a file
    folder: Path | None = None  #: of a file that the operator names: own functions stand beside it
    is_command: bool = False  #: it stands on the command line
    lines: dict[tuple[str, str], int] = field(default_factory=dict)  #: filled when an origin is asked for

    def section(self, section: str) -> str:
        """The section as this source writes it."""
        return self.section_form.format(section=section, SECTION=section.upper())

    def entry(self, entries: str, number: int) -> str:
        """One of the file's entries, counted from 1."""
        return f"{self.section(f'[{entries}]')} {number}"

    def key(self, section: str, key: str) -> str:
        """The key as this source writes it."""
        return self._form(self.key_form, section, key)

    def origin(self, section: str, key: str) -> str:
        """Where the key's value comes from."""
        if self.text and not self.lines:
            self.lines.update(key_lines(self.text))
        line = self.lines.get((section, key))
        return self._form(self.origin_form, section, key, line=f":{line}" if line else "")

    def _form(self, form: str, section: str, key: str, **more: str) -> str:
        flag = FLAG_OF.get((section, key), key).replace("_", "-")
        return form.format(section=section, key=key, flag=flag, SECTION=section.upper(), KEY=key.upper(), **more)


def folder_of(layers: Sequence[Layer]) -> Path | None:
    """The folder of the order file that the operator names."""
    return next((layer.folder for layer in layers if layer.folder is not None), None)


def merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """The sources as one, key by key, without what has not the form of a section."""
    tables: dict[str, Any] = {}
    for layer in reversed(layers):
        for section, table in layer.tables.items():
            if section in ENTRIES:
                tables[section] = table
            elif isinstance(table, Mapping):
                tables.setdefault(section, {}).update(table)
    return tables


def named_in(layers: Sequence[Layer], section: str, key: str) -> str:
    """The key as the source writes it whose value counts; as a file would if it is the default."""
    tables = ((layer, layer.tables.get(section)) for layer in layers)
    given = (layer for layer, table in tables if isinstance(table, Mapping) and key in table)
    return next((layer.key(section, key) for layer in given), f"[{section}] {key}")


def origin(layers: Sequence[Layer], section: str, key: str) -> str:
    """Where the value of a key comes from: `--min-delay`, a variable, `crawl.toml:12`, or `default`."""
    return next(
        (layer.origin(section, key) for layer in layers if key in layer.tables.get(section, {})),
        "default",
    )
