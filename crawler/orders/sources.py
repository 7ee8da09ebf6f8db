"""Where a crawl order comes from: flags, settings, the environment and a file, merged; what nobody knows is refused by name."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from anabranch.crawler.orders.complaints import at_fault, hint, in_words, unknown_keys
from anabranch.crawler.orders.keys import ENTRIES, FLAGS, KEYS
from anabranch.crawler.orders.layers import Layer, folder_of, merged
from anabranch.crawler.orders.order import ENVIRONMENT, CrawlOrder, JobSection, with_modules
from anabranch.crawler.outcomes.errors import BadArgument, OrderError, UsageError
from anabranch.crawler.outcomes.ownfunctions import import_first_from


def load_order(file: Path | None, flags: Mapping[str, object], settings: Sequence[str] = ()) -> CrawlOrder:
    """The order of a file, the environment, settings (`section.key=value`) and flags (key -> value; None: not given).

    The latter win. Own functions are found beside the file from then on. Raises: OrderError, one line that names the source and
    the key, says what is wrong and what would be right.
    """
    order = order_of(read_layers(file, flags, settings))
    import_first_from(order.job.modules)
    return order


def read_layers(file: Path | None, flags: Mapping[str, object], settings: Sequence[str] = ()) -> list[Layer]:
    """What each source says, the strongest first; only that it can be read is checked. Raises: OrderError, UsageError."""
    layers = [_flag_layer(flags), _settings_layer(settings), _environment_layer()]
    return [*layers, replace(file_layer(file), folder=file.parent)] if file else layers


def order_of(layers: Sequence[Layer]) -> CrawlOrder:
    """The order that the sources make together. Raises: OrderError, as `load_order`."""
    return with_modules(_validated(layers, merged(layers)), folder_of(layers))


def job_of(layers: Sequence[Layer]) -> JobSection:
    """What they say of the job and its seeds, though all else may make sense only beside another source. Raises: OrderError."""
    return _validated(layers, {"job": merged(layers).get("job", {})}).job


def _validated(layers: Sequence[Layer], tables: Mapping[str, Any]) -> CrawlOrder:
    for layer in layers:
        for line in unknown_keys([layer]):
            raise _refusal([layer])(line)
    try:
        return CrawlOrder.model_validate(tables)
    except ValidationError as error:
        first, *others = in_words(error, layers)
        more = f" (and {len(others)} more)" if others else ""
        raise _refusal(at_fault(error, layers))(first + more) from error


def _refusal(at_fault: Sequence[Layer]) -> type[OrderError]:
    """What is raised when these sources, the strongest first, say what is wrong."""
    return BadArgument if at_fault and at_fault[0].is_command else OrderError


def seeds_layer(order: CrawlOrder) -> Layer:
    """The seeds of an order as what the command line says: they stand in for those of all other sources."""
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


def _settings_layer(settings: Sequence[str]) -> Layer:
    """What `-s section.key=value` says; the last of several for one key counts."""
    tables: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot and key):
            raise UsageError(f"-s {setting!r}: write it as section.key=value, like -s politeness.min_delay=1s")
        if section in ENTRIES:
            raise UsageError(f"-s {setting!r}: entries [[{section}]] stand in a file only")
        tables.setdefault(section, {})[key] = _value(section, key, text)
    form = "-s {section}.{key}"
    return Layer(tables=tables, section_form="-s {section}", key_form=form, origin_form=form, is_command=True)


def _environment_layer() -> Layer:
    """Variables with a section."""
    known = EnvSettingsSource(CrawlOrder)()
    tables: dict[str, Any] = _unknown_variables() | known
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


def _unknown_variables() -> dict[str, Any]:
    """What variables say of sections that nobody knows. What has no section is not ours."""
    tables: dict[str, Any] = {}
    for name, text in os.environ.items():
        section, delimiter, key = name.upper().removeprefix(ENVIRONMENT).partition("__")
        if delimiter and name.upper().startswith(ENVIRONMENT):
            tables.setdefault(section.lower(), {})[key.lower()] = text
    return {section: table for section, table in tables.items() if section not in KEYS}


def _value(section: str, key: str, text: str) -> object:
    """Text as the value of a key. Lists and tables are words, `name=ip:port` for `[dns.hosts]`, or written as in TOML."""
    kind = get_origin(KEYS.get(section, {}).get(key))
    if kind not in {tuple, dict}:
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = None
    if isinstance(value, list if kind is tuple else dict):
        return value
    return text.split() if kind is tuple else dict(word.partition("=")[::2] for word in text.split())


def file_layer(file: Path) -> Layer:
    """What a file says; seed files and modules are relative to its folder. Raises: OrderError."""
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
        tables = tomllib.loads(text)
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
    if isinstance(job, dict) and isinstance(job.get("modules"), str):
        job["modules"] = file.parent / job["modules"]
    name = str(file).replace("{", "{{").replace("}", "}}")
    return Layer(
        tables=tables,
        section_form=f"{name}: [{{section}}]",
        key_form=f"{name}: [{{section}}] {{key}}",
        origin_form=f"{name}{{line}}",
        text=text,
    )
