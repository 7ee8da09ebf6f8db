"""Which keys a crawl order has, as its sections have them, and which of them are flags of `anabranch crawl`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.orders.quantities import exact_duration, exact_size, parse_duration, parse_size


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _entry_model(kind: object) -> type[BaseModel] | None:
    """The model of the entries, for a list of tables."""
    inner = get_args(kind)[:1] if get_origin(kind) is tuple else ()
    return next((model for model in inner if _is_model(model)), None)


#: Section -> its model.
SECTIONS: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        name: field.annotation
        for name, field in CrawlOrder.model_fields.items()
        if isinstance(field.annotation, type) and _is_model(field.annotation)
    }
)

#: The parts of the order that are no sections: lists of tables, which only a file can hold -> the model of an entry.
ENTRIES: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        name: model
        for name, field in CrawlOrder.model_fields.items()
        if (model := _entry_model(field.annotation)) is not None
    }
)


def keys_of(model: type[BaseModel]) -> Mapping[str, object]:
    """Key as an order writes it -> the type of its value."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def quantity_writer(model: type[BaseModel], key: str) -> Callable[[Any], str]:
    """How a number is written that is a value of this key: with a unit if it is a duration or a size."""
    field = next(field for name, field in model.model_fields.items() if key in {name, field.alias})
    inner = (getattr(kind, "__metadata__", ()) for kind in get_args(field.annotation))  # of `Size | None`
    read_by = {getattr(how, "func", None) for how in chain(field.metadata, *inner)}
    return next((write for read, write in _WRITERS.items() if read in read_by), "{:g}".format)


#: What reads a quantity -> what writes it so that it is read back.
_WRITERS: Mapping[object, Callable[[Any], str]] = {parse_duration: exact_duration, parse_size: exact_size}

#: Section -> key -> type of the value.
KEYS: Mapping[str, Mapping[str, object]] = {section: keys_of(model) for section, model in SECTIONS.items()}

#: Flags that are not named as their key is, or whose key stands in several sections.
_NAMED: Mapping[str, tuple[str, str]] = {
    "limit": ("limits", "pages"),
    "size_limit": ("limits", "bytes"),
    "time_limit": ("limits", "time"),
    "timeout": ("fetch", "timeout"),
}
_OFTEN = Counter(key for keys in KEYS.values() for key in keys)

#: Flag, as a key -> section and key. A key that several sections have is no flag unless it is named above.
FLAGS: Mapping[str, tuple[str, str]] = {
    key: (section, key)
    for section, keys in KEYS.items()
    for key in keys
    if _OFTEN[key] == 1 and (section, key) not in _NAMED.values()
} | dict(_NAMED)

#: Section and key -> the flag that sets it.
FLAG_OF: Mapping[tuple[str, str], str] = {place: flag for flag, place in FLAGS.items()}

#: Key -> the section that it belongs to, if only one has it; a flag's name -> where the flag's key belongs to.
HOMES: Mapping[str, str] = {flag: section for flag, (section, _) in FLAGS.items()} | {
    key: section for section, keys in KEYS.items() for key in keys if _OFTEN[key] == 1
}
