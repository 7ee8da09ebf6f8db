"""The sources of an order: flags, settings, the environment and a file, each read as a layer that can name its keys."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_origin

from pydantic_settings import EnvSettingsSource

from anabranch.crawler.order.order import ENTRIES, ENVIRONMENT, FLAG_OF, FLAGS, KEYS, CrawlOrder
from anabranch.crawler.outcomes.errors import BadArgument, OrderError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The tables of one source, and how it writes a section or a key in messages."""

    tables: Mapping[str, Any]
    section_form: str
    key_form: str
    origin_form: str  #: how the origin of a key is written; `{line}` is `:12` where a file's line is known
    text: str = ""  #: of a file
    folder: Path | None = None  #: of a file that the operator names: user functions are imported from there
    is_command: bool = False  #: it is part of the command line
    is_jobs: bool = False  #: the job's own: code that it alone names is withheld (see `code`)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)  #: filled when an origin is asked for

    def section(self, section: str) -> str:
        """The section as this source writes it."""
        return self.section_form.format(section=section, SECTION=section.upper())

    def entry(self, entries: str, number: int) -> str:
        """One of the file's entries, counted from 1."""
        return f"{self.section(f'[{entries}]')} {number}"

    def named_keys(self) -> Iterator[tuple[str, str]]:
        """The sections and keys that it names, entries left out."""
        tables = ((section, table) for section, table in self.tables.items() if isinstance(table, Mapping))
        return ((section, key) for section, table in tables for key in table)

    def key(self, section: str, key: str) -> str:
        """The key as this source writes it."""
        return self._form(self.key_form, section, key)

    def origin(self, section: str, key: str) -> str:
        """Name the place in this source where the key gets its value, with the line of a file."""
        if self.text and not self.lines:
            self.lines.update(key_lines(self.text))
        line = self.lines.get((section, key))
        return self._form(self.origin_form, section, key, line=f":{line}" if line else "")

    def _form(self, form: str, section: str, key: str, **more: str) -> str:
        keyword = FLAG_OF.get((section, key), key)
        flag = keyword.replace("_", "-")
        return form.format(
            section=section, key=key, flag=flag, keyword=keyword, SECTION=section.upper(), KEY=key.upper(), **more
        )


def folder_of(layers: Sequence[Layer]) -> Path | None:
    """The folder of the order file that the operator names."""
    return next((layer.folder for layer in layers if layer.folder is not None), None)


def merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """The layers merged key by key, without what does not have the form of a section."""
    tables: dict[str, Any] = {}
    for layer in reversed(layers):
        for section, table in layer.tables.items():
            if section in ENTRIES:
                tables[section] = table
            elif isinstance(table, Mapping):
                tables.setdefault(section, {}).update(table)
    return tables


def named_in(layers: Sequence[Layer], section: str, key: str) -> str:
    """The key as the layer that sets it writes it; as a file would if it has its default."""
    tables = ((layer, layer.tables.get(section)) for layer in layers)
    given = (layer for layer, table in tables if isinstance(table, Mapping) and key in table)
    return next((layer.key(section, key) for layer in given), f"[{section}] {key}")


def origin(layers: Sequence[Layer], section: str, key: str) -> str:
    """Return the source of the value of a key: `--min-delay`, a variable, `crawl.toml:12`, or `default`."""
    return next((layer.origin(section, key) for layer in layers if key in layer.tables.get(section, {})), "default")


def hint(name: str, known: Iterable[str], form: str, dash: str = "_") -> str:
    """A question whether a known name is meant, if one is close."""
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {form.format(close[0].replace('_', dash))}?" if close else ""


def read_layers(file: Path | None, flags: Mapping[str, object], settings: Sequence[str] = ()) -> list[Layer]:
    """The layers, the strongest first, unvalidated. Raises: OrderError, UsageError if one cannot be read."""
    layers = [_flag_layer(flags), settings_layer(settings), _environment_layer()]
    return [*layers, replace(file_layer(file), folder=file.parent)] if file else layers


def seeds_layer(order: CrawlOrder) -> Layer:
    """The seeds of an order as a layer of the command line: they replace those of all other sources."""
    tables = {"job": {"seeds": list(order.job.seeds), "seed_files": list(order.job.seed_files)}}
    return Layer(tables=tables, section_form="seeds", key_form="SEED", origin_form="command line")


def _flag_layer(flags: Mapping[str, object]) -> Layer:
    tables: dict[str, dict[str, object]] = {}
    for flag, value in flags.items():
        if flag not in FLAGS:
            raise BadArgument(f"--{flag.replace('_', '-')} is unknown{hint(flag, FLAGS, '--{}', '-')}")
        if value is not None:
            section, key = FLAGS[flag]
            tables.setdefault(section, {})[key] = value
    return Layer(tables=tables, section_form="flags", key_form="--{flag}", origin_form="--{flag}", is_command=True)


def settings_layer(settings: Sequence[str], form: str = "-s ") -> Layer:
    """Settings `-s section.key=value`; the last of several for one key counts. `form` comes before each. Raises: UsageError."""
    tables: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot and key):
            raise UsageError(f"{form}{setting!r}: write it as section.key=value, like {form}politeness.min_delay=1s")
        if section in ENTRIES:
            raise UsageError(f"{form}{setting!r}: entries [[{section}]] can only be in a file")
        tables.setdefault(section, {})[key] = _value(section, key, text)
    key_form = f"{form}{{section}}.{{key}}"
    return Layer(
        tables=tables, section_form=f"{form}{{section}}", key_form=key_form, origin_form=key_form, is_command=True
    )


def _environment_layer() -> Layer:
    """Variables ANABRANCH_SECTION__KEY."""
    known = EnvSettingsSource(CrawlOrder)()
    tables: dict[str, Any] = {}
    for name, text in os.environ.items():  # sections that are unknown; a variable without a section is not ours
        section, delimiter, key = name.upper().removeprefix(ENVIRONMENT).partition("__")
        if delimiter and name.upper().startswith(ENVIRONMENT) and section.lower() not in KEYS:
            tables.setdefault(section.lower(), {})[key.lower()] = text
    tables |= known
    for section, table in known.items():
        for key, text in table.items() if isinstance(table, dict) else ():
            if isinstance(text, str):
                table[key] = _value(section, key, text)
    variable = f"{ENVIRONMENT}{{SECTION}}__{{KEY}}"
    return Layer(
        tables=tables,
        section_form=f"environment: {ENVIRONMENT}{{SECTION}}",
        key_form=f"environment: {variable}",
        origin_form=variable,
    )


def _value(section: str, key: str, text: str) -> object:
    """The value of a key from text. A list or table is words (`name=ip:port` for `[dns.hosts]`) or is written as in TOML."""
    kind = get_origin(KEYS.get(section, {}).get(key))
    if kind not in {tuple, dict}:
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        value = None
    if isinstance(value, list if kind is tuple else dict):
        return value
    return text.split() if kind is tuple else dict(word.partition("=")[::2] for word in text.split())


def job_layer(file: Path) -> Layer:
    """The layer of an order in the job's own folder. Raises: OrderError."""
    return replace(file_layer(file), is_jobs=True)


def kept_layer(tables: Mapping[str, Any], place: str) -> Layer:
    """The layer of an order that a database, or the job itself, holds."""
    name = place.replace("{", "{{").replace("}", "}}")
    return Layer(
        tables=tables,
        section_form=f"{name}: [{{section}}]",
        key_form=f"{name}: [{{section}}] {{key}}",
        origin_form=name,
        is_jobs=True,
    )


def _place_files(tables: dict[str, Any], folder: Path) -> None:
    """Give the files that an order's file names their places: relative to its folder."""
    job, write = (table if isinstance(table := tables.get(name), dict) else {} for name in ("job", "write"))
    if isinstance(names := job.get("seed_files"), list):
        job["seed_files"] = [folder / name if isinstance(name, str) else name for name in names]
    if isinstance(modules := job.get("modules"), str):
        job["modules"] = folder / modules
    if isinstance(dictionary := write.get("zstd_dictionary"), str) and dictionary:
        write["zstd_dictionary"] = str(folder / dictionary)
    if "revisit_of" in write:
        write["revisit_of"] = _placed_archives(write["revisit_of"], folder)


def _placed_archives(archives: object, folder: Path) -> object:
    listed = [archives] if isinstance(archives, str) else archives
    if not isinstance(listed, list):
        return archives
    return [str(folder / one) if isinstance(one, str) and "://" not in one else one for one in listed]


def file_layer(file: Path) -> Layer:
    """The layer of a file; seed files, modules, archives and the dictionary are relative to its folder. Raises: OrderError."""
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
        tables = tomllib.loads(text)
    except OSError as error:
        raise OrderError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OrderError(f"{file}: not UTF-8 (at line {line}); save it as UTF-8") from error
    except ValueError as error:  # also of a number of thousands of digits
        raise OrderError(f"{file}: not TOML: {' '.join(str(error).split())}") from error
    _place_files(tables, file.parent)
    name = str(file).replace("{", "{{").replace("}", "}}")
    return Layer(
        tables=tables,
        section_form=f"{name}: [{{section}}]",
        key_form=f"{name}: [{{section}}] {{key}}",
        origin_form=f"{name}{{line}}",
        text=text,
    )


#: Longest value in lines; each further line costs another parse of all of them.
_LONGEST = 100


def key_lines(text: str) -> dict[tuple[str, str], int]:
    """(section, key) -> line, from 1, for the keys of a valid TOML text, cut into the shortest runs of lines that are TOML.

    Lists of tables, and keys after a value of more than 100 lines, are left out.
    """
    found: dict[tuple[str, str], int] = {}
    here: tuple[str, ...] | None = ()  # the current table; None inside a list of tables
    lines = text.splitlines()
    first = 0
    while first < len(lines):
        for count in range(1, _LONGEST + 1):
            with suppress(ValueError):
                statement = tomllib.loads("\n".join(lines[first : first + count]))
                break
        else:
            break
        if lines[first].lstrip().startswith("["):
            here = _opened(statement)
        elif here is not None:
            for path in _paths(statement, here):
                found.setdefault(path, first + 1)
        if here is not None and len(here) == 2:
            found.setdefault((here[0], here[1]), first + 1)
        first += count
    return found


def _opened(statement: dict[str, Any]) -> tuple[str, ...] | None:
    path: list[str] = []
    inner: Any = statement
    while isinstance(inner, dict) and inner:
        ((name, inner),) = inner.items()
        path.append(name)
    return tuple(path) if isinstance(inner, dict) else None


def _paths(statement: dict[str, Any], here: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The sections and keys that a statement sets; it may set a whole section."""
    for name, inner in statement.items():
        if here:
            yield here[0], here[1] if len(here) > 1 else name
        elif isinstance(inner, dict):
            yield from ((name, key) for key in inner)
