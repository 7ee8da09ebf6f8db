"""The crawl order: what to crawl and how, from a TOML file, the environment and flags.

`[politeness] min_delay`, the variable `ANABRANCH_POLITENESS__MIN_DELAY` and the flag `--min-delay` are the same key. The flag
wins, then the environment, the file, the default. An unknown key is refused: a misspelt delay must not become the default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args, get_origin

import tomli_w
from pydantic import BaseModel, PrivateAttr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from anabranch.crawler.order.code import UserCode
from anabranch.crawler.order.fetch import DnsSection, ExtractSection, FetchSection, RobotsSection, SiteEntry
from anabranch.crawler.order.frontier import DedupSection, FrontierSection, OverrideEntry, PolitenessSection
from anabranch.crawler.order.quantities import exact_duration, exact_size, parse_duration, parse_size
from anabranch.crawler.order.sections import (
    AgentSection,
    BodyEntry,
    CrawlSection,
    JobSection,
    LimitsSection,
    LogsSection,
    ReportSection,
    ScopeSection,
    UrlsSection,
    WriteSection,
)

ENVIRONMENT = "ANABRANCH_"


class CrawlOrder(BaseSettings):
    """A whole crawl order, frozen. `CrawlOrder()` has the defaults; `load_order` reads files and variables."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENVIRONMENT, env_nested_delimiter="__", enable_decoding=False
    )

    job: JobSection = JobSection()
    agent: AgentSection = AgentSection()
    urls: UrlsSection = UrlsSection()
    scope: ScopeSection = ScopeSection()
    frontier: FrontierSection = FrontierSection()
    politeness: PolitenessSection = PolitenessSection()
    robots: RobotsSection = RobotsSection()
    crawl: CrawlSection = CrawlSection()
    limits: LimitsSection = LimitsSection()
    fetch: FetchSection = FetchSection()
    extract: ExtractSection = ExtractSection()
    dns: DnsSection = DnsSection()
    dedup: DedupSection = DedupSection()
    write: WriteSection = WriteSection()
    logs: LogsSection = LogsSection()
    report: ReportSection = ReportSection()
    override: tuple[OverrideEntry, ...] = ()  #: entries, in a file only
    site: tuple[SiteEntry, ...] = ()  #: entries, in a file only
    body: tuple[BodyEntry, ...] = ()  #: entries, in a file only

    _code: UserCode | None = PrivateAttr(default=None)  # a copy of the order has it, too; None: all its code may run

    @property
    def code(self) -> UserCode:
        """Says which of its user functions may run."""
        return UserCode(self.job.modules) if self._code is None else self._code

    def running(self, code: UserCode | None) -> CrawlOrder:
        """Return the same order with these limits on its user functions; None: all may run."""
        copy = self.model_copy()
        copy._code = code  # noqa: SLF001 - its own class
        return copy

    def run_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the names that are not of withheld functions."""
        withheld = self.code.names
        return tuple(name for name in names if name not in withheld)

    @classmethod
    def settings_customise_sources(  # type: ignore[override] # the library calls it with keywords
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        **_others: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: `load_order` merges the sources itself, to name the one at fault."""
        return (init_settings,)


#: Keys whose values others must not see, or that say where files are on this machine.
_PRIVATE = frozenset(
    {"job.seeds", "job.seed_files", "job.modules", "frontier.store", "dedup.leaves", "logs.file", "write.upload"}
    | {"dns.hosts", "dns.servers", "fetch.bind", "report.metrics", "write.zstd_dictionary"}
    | {"write.revisit_of"}
)


def changed_keys(order: CrawlOrder) -> dict[str, object]:
    """The keys that differ from their defaults, as others may see them: `section.key` -> value; of headers the names alone.

    Entries of [[site]] are left out. So are the seeds, and what tells of this machine.
    """
    found: dict[str, object] = {}
    usual = CrawlOrder().model_dump(mode="json", by_alias=True)
    for section, keys in order.model_dump(mode="json", by_alias=True).items():
        for key, value in keys.items() if isinstance(keys, dict) else ():
            name = f"{section}.{key}"
            is_private = name in _PRIVATE or name.endswith(("_env", "_file", "proxy"))
            if value != usual[section].get(key) and not is_private:
                found[name] = sorted(value) if key == "headers" else value
    return found


def dump_order(order: CrawlOrder) -> str:
    """The order as TOML with all keys and full paths; `load_order` reads the same order from it."""
    return dump_tables(order_tables(order))


def order_tables(order: CrawlOrder) -> dict[str, Any]:
    """The order as tables, with all keys and full paths."""
    return order.model_dump(mode="json", by_alias=True, exclude_none=True)


def dump_tables(tables: Mapping[str, Any]) -> str:
    """Tables of an order as TOML."""
    return tomli_w.dumps(tables)


def with_modules(order: CrawlOrder, folder: Path | None) -> CrawlOrder:
    """The order with this folder for user functions, by its full name, unless it names one."""
    if folder is None or order.job.modules is not None:
        return order
    return order.model_copy(update={"job": order.job.model_copy(update={"modules": folder.absolute()})})


_KINDS = {name: field.annotation for name, field in CrawlOrder.model_fields.items()}

#: Section -> its model.
SECTIONS: Mapping[str, type[BaseModel]] = {
    name: kind for name, kind in _KINDS.items() if isinstance(kind, type) and issubclass(kind, BaseModel)
}

#: Lists of tables, which only a file can hold -> the model of an entry.
ENTRIES: Mapping[str, type[BaseModel]] = {
    name: get_args(kind)[0] for name, kind in _KINDS.items() if get_origin(kind) is tuple
}


def keys_of(model: type[BaseModel]) -> Mapping[str, object]:
    """Key as an order writes it -> the type of its value."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def quantity_writer(model: type[BaseModel], key: str) -> Callable[[Any], str]:
    """The function that writes a value of this key: with a unit if it is a duration or a size."""
    field = next(field for name, field in model.model_fields.items() if key in {name, field.alias})
    inner = (getattr(kind, "__metadata__", ()) for kind in get_args(field.annotation))  # of `Size | None`
    read_by = {getattr(how, "func", None) for how in chain(field.metadata, *inner)}
    return next((write for read, write in _WRITERS.items() if read in read_by), "{:.16g}".format)


#: Parser of a quantity -> its writer.
_WRITERS: Mapping[object, Callable[[Any], str]] = {parse_duration: exact_duration, parse_size: exact_size}

#: Section -> key -> type of the value.
KEYS: Mapping[str, Mapping[str, object]] = {section: keys_of(model) for section, model in SECTIONS.items()}

#: Flags with another name than their key, or with a key of several sections.
_NAMED: Mapping[str, tuple[str, str]] = {
    "limit": ("limits", "pages"),
    "size_limit": ("limits", "bytes"),
    "time_limit": ("limits", "time"),
    "timeout": ("fetch", "timeout"),
    "header": ("fetch", "headers"),
}
_OFTEN = Counter(key for keys in KEYS.values() for key in keys)

#: Flag, as a key -> section and key. A key of several sections is a flag only if it is named above.
FLAGS: Mapping[str, tuple[str, str]] = {
    key: (section, key)
    for section, keys in KEYS.items()
    for key in keys
    if _OFTEN[key] == 1 and (section, key) not in _NAMED.values()
} | dict(_NAMED)

#: Second name of a flag -> the flag.
SECOND_NAMES: Mapping[str, str] = {"depth": "max_hops", "headers": "header"}

#: Section and key -> the flag that sets it.
FLAG_OF: Mapping[tuple[str, str], str] = {place: flag for flag, place in FLAGS.items()}

#: Key or flag -> its section, if only one has the key.
HOMES: Mapping[str, str] = {flag: section for flag, (section, _) in FLAGS.items()} | {
    key: section for section, keys in KEYS.items() for key in keys if _OFTEN[key] == 1
}
