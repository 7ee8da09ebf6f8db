"""The keywords of `crawl` and `run` as sources of an order, the strongest first."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch.crawler.job.choosing import ChosenJob, CrawlRequest, choose
from anabranch.crawler.order.frontier import MEMORY
from anabranch.crawler.order.order import ENTRIES, FLAGS, SECOND_NAMES, SECTIONS, CrawlOrder, dump_order
from anabranch.crawler.order.sources import Layer, file_layer, hint, merged
from anabranch.crawler.outcomes.errors import BadArgument, UsageError

Seeds = Iterable[str | Path] | str | Path
Order = str | Path | Mapping[str, Any] | CrawlOrder

#: A keyword that is no key of an order.
_RUN_CODE = "run_code"
#: Settings of a crawl without a job, which keeps nothing on disk.
_IN_MEMORY = {
    "frontier": {"store": MEMORY},
    "write": {"pages": False},
    "report": {"reports": False},
    "limits": {"min_free_disk": 0},
}


def keyword_layers(keywords: Mapping[str, Any]) -> list[Layer]:
    """The layers of the keywords: flags of `anabranch crawl` (`limit=5`), then sections (`politeness={"min_delay": "1s"}`).

    None counts as not given. Functions are replaced by their names. Raises: BadArgument for an unknown keyword, for two
    names of one flag, for a section that is no dict of texts, and for a function without a name.
    """
    flags: dict[str, dict[str, Any]] = {}
    renamed: list[Layer] = []  # one layer each, so that an error names the keyword as the program wrote it
    sections: dict[str, Any] = {}
    for given, value in keywords.items():
        if value is None:
            continue
        name = SECOND_NAMES.get(given, given)
        if name != given:
            if keywords.get(name) is not None:
                raise BadArgument(f"{given}= and {name}= are the same; give one of them")
            section, key = FLAGS[name]
            renamed.append(_layer({section: {key: value}}, f"{given}="))
        elif name in ENTRIES:
            sections[name] = [_named(dict(entry), f"{name}=") for entry in _entries(name, value)]
        elif name in SECTIONS and isinstance(value, Mapping):
            sections[name] = _named(dict(value), f"{name}=")
        elif name in FLAGS:
            section, key = FLAGS[name]
            flags.setdefault(section, {})[key] = _named(value, f"{name}=")
        elif name in SECTIONS:
            raise BadArgument(f"{name}= must be a dict of the keys of [{name}]; not {value!r}")
        else:
            raise BadArgument(f"{name}= is unknown{hint(name, {*FLAGS, *SECOND_NAMES, *SECTIONS}, '{}=')}")
    return [_layer(flags, "{keyword}="), *renamed, _layer(sections, '{section}["{key}"]')]


def _entries(name: str, value: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list | tuple) or not all(isinstance(entry, Mapping) for entry in value):
        raise BadArgument(f"{name}= must be a list of dicts, one for each [[{name}]]; not {value!r}")
    return value


def refuse_other(keyword: str, value: object, kind: type, words: str) -> None:
    """Raises: BadArgument if the value of a keyword is of another kind; True is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise BadArgument(f"{keyword}= must be {words}; not {value!r}")


def _layer(tables: Mapping[str, Any], key_form: str) -> Layer:
    return Layer(tables=tables, section_form="{section}=", key_form=key_form, origin_form=key_form, is_command=True)


def _named(value: Any, place: str) -> Any:
    """The value, with names in place of functions and classes, at any depth.

    Raises: BadArgument for one without a name, and for a key that is no text.
    """
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise BadArgument(f"{place} has the key {key!r}; keys must be texts")
        return {key: _named(inner, f'{place.removesuffix("=")}["{key}"]') for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_named(inner, place) for inner in value]
    return function_name(value, place) if callable(value) else value


def function_name(function: Callable[..., Any], place: str) -> str:
    """`module:function`, the name of a function or class in an order. Raises: BadArgument if the name does not lead to it."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    if getattr(sys.modules.get(module), name, None) is not function:
        shown_name = name or f"an object of {type(function).__qualname__}"
        raise BadArgument(
            f"{place} {shown_name} must be a def or a class at the top level of a module: the order, which is kept with the "
            "job, has its name"
        )
    return f"{module}:{name}"


def order_layer(order: Order) -> Layer:
    """The layer of an order that a program gives: a file, a dict, or a CrawlOrder.

    Raises: OrderError for a file that cannot be read, BadArgument for a function without a name and for anything else.
    """
    if isinstance(order, str | Path):
        file = Path(order)
        return replace(file_layer(file), folder=file.parent)
    if not isinstance(order, CrawlOrder | Mapping):
        raise BadArgument(f"order= must be the path of a file, a dict or a CrawlOrder; not {order!r}")
    tables = tomllib.loads(dump_order(order)) if isinstance(order, CrawlOrder) else _named(order, "order=")
    form = 'order["{section}"]'
    return Layer(tables=tables, section_form=form, key_form=f'{form}["{{key}}"]', origin_form="order=")


def memory_layer(layers: Sequence[Layer]) -> Layer:
    """The layer of a crawl without a job. Raises: BadArgument for settings that need a job."""
    tables = merged(layers)
    if tables.get("write", {}).get("warc"):
        raise BadArgument("warc=True needs a job that keeps the files: give job= or name=")
    store = tables.get("frontier", {}).get("store")
    if isinstance(store, str) and store != MEMORY:
        raise BadArgument("store= needs a job: give job= or name=")
    return Layer(tables=_IN_MEMORY, section_form="", key_form="without job=: {key}", origin_form="without job=")


def seed_texts(seeds: Iterable[Seeds]) -> tuple[str, ...]:
    """The seeds as texts, as the command line takes them; each of `seeds` is one, or several. Raises: UsageError."""
    found: list[str] = []
    for given in seeds:
        several = [given] if isinstance(given, str | Path) or not isinstance(given, Iterable) else list(given)
        for one in several:
            if not isinstance(one, str | Path):
                raise UsageError(f"seeds must be URLs and files of URLs, as texts or paths; not {one!r}")
            found.append(str(one))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """The arguments of `crawl` and `run`."""

    seeds: tuple[str, ...]  #: as `seed_texts` gives them
    job: str | Path | None
    again: bool  #: begin another round
    order: Order | None
    keywords: Mapping[str, Any]  #: of an order; and `run_code`

    def __post_init__(self) -> None:
        if self.job is not None and not (isinstance(self.job, str | Path) and str(self.job)):
            raise BadArgument(f"job= must be the path of a folder; not {self.job!r}")
        refuse_other("again", self.again, bool, "True or False")
        refuse_other("run_code", self.run_code, bool, "True or False")

    @property
    def run_code(self) -> bool:
        """Functions that only the job's own order names may run."""
        given: bool = self.keywords.get(_RUN_CODE, False)
        return given

    @property
    def keeps(self) -> bool:
        """Whether a job keeps the crawl."""
        return self.job is not None or self.keywords.get("name") is not None

    def chosen(self, scratch: Path) -> ChosenJob:
        """The order and the job's folder, which is `scratch` if nothing is kept. Raises: as `choose`."""
        given = keyword_layers({name: value for name, value in self.keywords.items() if name != _RUN_CODE})
        directory = None if self.job is None else Path(self.job)
        request = CrawlRequest(
            sources=self.seeds,
            order_file=None,
            job=directory if self.keeps else scratch,
            fresh=False,
            flags={},
            keywords=given if self.keeps else [*given, memory_layer(given)],
            order=None if self.order is None else order_layer(self.order),
        )
        return choose(request)
