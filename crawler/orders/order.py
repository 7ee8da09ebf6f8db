"""The crawl order: what to crawl and how, from a TOML file, the environment and flags.

A key stands in one section. `[politeness] min_delay`, the variable `ANABRANCH_POLITENESS__MIN_DELAY` and the flag `--min-delay`
are the same key; of several values the flag's wins, then the environment's, then the file's, then the default. The order is
frozen, and a key that nobody knows is refused: a misspelt delay must not become the default delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tomli_w
from pydantic import Field, StringConstraints
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from anabranch.crawler.jobs.seeds import is_file, is_path
from anabranch.crawler.loops import LoopName
from anabranch.crawler.orders.dedup import DedupSection
from anabranch.crawler.orders.extract import ExtractSection
from anabranch.crawler.orders.fetch import FetchSection, SiteEntry
from anabranch.crawler.orders.frontier import FrontierSection, OverrideEntry, PolitenessSection
from anabranch.crawler.orders.hosts import DnsSection, RobotsSection
from anabranch.crawler.orders.limits import LimitsSection
from anabranch.crawler.orders.reporting import LogsSection, ReportSection
from anabranch.crawler.orders.scope import ScopeSection, UrlsSection
from anabranch.crawler.orders.types import Connections, FolderName, OwnFolder, OwnFunction, Positive, Section, SeedFile
from anabranch.crawler.orders.write import WriteSection

__all__ = ["VERSION", "CrawlOrder", "dump_order"]

#: The product's version, as pyproject.toml has it; servers see it in the User-Agent.
VERSION = "0.1.0"

ENVIRONMENT = "ANABRANCH_"


class JobSection(Section):
    """What is crawled, and the name of its folder."""

    name: FolderName | None = None  #: folder below jobs/; None: from the seeds
    seeds: tuple[str, ...] = ()  #: URLs
    seed_files: tuple[SeedFile, ...] = ()  #: in the file: relative to the file's folder
    source_tags: bool = True  #: crawl.log says which seed led to a URL
    processors: tuple[OwnFunction, ...] = ()  #: own processors, package.module:function, before a page is written
    modules: OwnFolder | None = None  #: folder that own functions are imported from; None: that of the -c file

    @property
    def sources(self) -> tuple[str, ...]:
        """Seeds and seed files as `anabranch crawl` takes them."""
        return (*self.seeds, *self.seed_file_names)

    @property
    def seed_file_names(self) -> tuple[str, ...]:
        """The seed files by their full names: such a name is no URL, even if the file is missing."""
        return tuple(str(path.absolute()) for path in self.seed_files)


_OURS = "anabranch"


class AgentSection(Section):
    """Who crawls, as servers see it."""

    #: The name in the User-Agent, with a version if it has one: `mybot/2.0`.
    product: Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?$")] = _OURS
    #: A page or a mail address for those who run the servers.
    contact: Annotated[str, StringConstraints(pattern=r"^[!-'*-~]*$")] = ""

    @property
    def user_agent(self) -> str:
        """The User-Agent field: `anabranch/VERSION (+contact)`; for others `mybot/2.0 (+contact; anabranch/VERSION)`."""
        ours = f"{_OURS}/{VERSION}"
        contact = f"+{self.contact}" if self.contact else ""
        if self.product == _OURS:
            return f"{ours} ({contact})" if contact else ours
        return f"{self.product} ({'; '.join(filter(None, (contact, ours)))})"

    @property
    def token(self) -> str:
        """The name without version, which robots.txt is read for."""
        return self.product.partition("/")[0]


class CrawlSection(Section):
    """How much at once."""

    workers: Connections = 100  #: fetches at once, in all processes together
    loop: LoopName = "auto"  #: what runs them; auto: uvloop if it is installed, else asyncio
    processes: Annotated[Positive, Field(le=64)] = 1  #: that hosts are divided among; a job's for good


class CrawlOrder(BaseSettings):
    """A whole crawl order, frozen. `CrawlOrder()` is the defaults; files and variables are read by `load_order`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENVIRONMENT,
        env_nested_delimiter="__",
        enable_decoding=False,
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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: `load_order` merges the sources, since it must be able to name the one at fault."""
        return (init_settings,)


def dump_order(order: CrawlOrder) -> str:
    """The order as TOML, all keys, paths in full; `load_order` reads the same order out of it."""
    return tomli_w.dumps(order.model_dump(mode="json", by_alias=True, exclude_none=True))


def with_modules(order: CrawlOrder, folder: Path | None) -> CrawlOrder:
    """The order; own functions are imported from this folder if it names none. A folder that is dumped is the same later."""
    if folder is None or order.job.modules is not None:
        return order
    return order.model_copy(update={"job": order.job.model_copy(update={"modules": folder.absolute()})})


def with_sources(order: CrawlOrder, sources: Sequence[str]) -> CrawlOrder:
    """The order with the seeds and seed files that were really used; standard input leaves no trace in it."""
    named = [source for source in sources if source != "-"]
    files = {source: Path(source) for source in named if is_file(source) or is_path(source)}  # also one that is missing
    seeds = tuple(source for source in named if source not in files)
    job = order.job.model_copy(update={"seeds": seeds, "seed_files": tuple(files.values())})
    return order.model_copy(update={"job": job})
