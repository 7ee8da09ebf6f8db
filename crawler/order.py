"""The crawl order: what to crawl and how, from a TOML file, the environment and flags.

A key stands in one section. `[politeness] min_delay`, the variable `ANABRANCH_POLITENESS__MIN_DELAY` and the flag `--min-delay`
are the same key; of several values the flag's wins, then the environment's, then the file's, then the default. The order is
frozen, and a key that nobody knows is refused: a misspelt delay must not become the default delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from crawler.addresses import parse_address
from crawler.quantities import exact_duration, exact_size, parse_duration, parse_size
from crawler.seeds import is_file

__all__ = ["VERSION", "CrawlOrder", "dump_order"]

#: The product's version, as pyproject.toml has it; servers see it in the User-Agent.
VERSION = "0.1.0"

ENVIRONMENT = "ANABRANCH_"


def _checked_endpoint(text: str) -> str:
    parse_address(text)
    return text


def _number(value: object) -> object:
    """Truth values are numbers to Python, not to an operator."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number; not {str(value).lower()}")  # noqa: TRY004 - pydantic wants it
    return value


def _folder_name(name: str) -> str:
    if not name.strip() or name.startswith(".") or "/" in name or not name.isprintable():
        raise ValueError(f"must be a name for a folder, without / and not beginning with a dot; not {name!r}")
    return name


Duration = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(exact_duration)]
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(exact_size)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Positive = Annotated[int, BeforeValidator(_number), Field(ge=1)]
Endpoint = Annotated[str, AfterValidator(_checked_endpoint)]
Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^\S+$")]
# The folder of an order that was dumped is another one, so paths are dumped in full.
SeedFile = Annotated[Path, PlainSerializer(lambda path: str(path.absolute()))]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class JobSection(_Section):
    """What is crawled, and the name of its folder."""

    name: Annotated[str, AfterValidator(_folder_name)] | None = None  #: folder below jobs/; None: from the seeds
    seeds: tuple[str, ...] = ()  #: URLs
    seed_files: tuple[SeedFile, ...] = ()  #: in the file: relative to the file's folder


class AgentSection(_Section):
    """Who crawls, as servers see it."""

    #: The name in the User-Agent, and the one that robots.txt is read for.
    product: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$")] = "anabranch"
    #: A page or a mail address for those who run the servers.
    contact: Annotated[str, StringConstraints(pattern=r"^[!-'*-~]*$")] = ""

    @property
    def user_agent(self) -> str:
        """The User-Agent field: `product/version (+contact)`."""
        return f"{self.product}/{VERSION}" + (f" (+{self.contact})" if self.contact else "")


class ScopeSection(_Section):
    """Which links are followed."""

    scope: Literal["host", "prefix"] = "host"  #: the seeds' hosts, or what lies below the seeds' paths
    max_hops: Count = 20  #: links from a seed


class FrontierSection(_Section):
    """How URLs are spread over queues."""

    policy: Name = "bkdr:997"  #: queue assignment; the Frontier knows which there are
    politeness: Literal["host", "queue", "off"] = "host"  #: whom the delays are owed


class PolitenessSection(_Section):
    """How a host is spared: a rest of delay_factor x fetch time, within min and max."""

    delay_factor: Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)] = (
        5.0  #: rest per second of fetching
    )
    min_delay_s: Duration = Field(default=3.0, alias="min_delay")
    max_delay_s: Duration = Field(default=30.0, alias="max_delay")
    max_connections: Annotated[Positive, Field(le=10_000)] = 1  #: fetches at once per host

    @model_validator(mode="after")
    def _in_order(self) -> PolitenessSection:
        if self.max_delay_s < self.min_delay_s:
            raise PydanticCustomError(
                "contradiction",
                "max_delay ({most}) is less than min_delay ({least}); raise the one or lower the other",
                {
                    "keys": ("max_delay", "min_delay"),
                    "most": exact_duration(self.max_delay_s),
                    "least": exact_duration(self.min_delay_s),
                },
            )
        return self


class RobotsSection(_Section):
    """How robots.txt is taken."""

    robots: Literal["obey", "ignore"] = "obey"
    max_crawl_delay_s: Duration = Field(default=300.0, alias="max_crawl_delay")  #: a longer Crawl-delay is cut


class CrawlSection(_Section):
    """How much at once, and how much in all."""

    workers: Annotated[Positive, Field(le=10_000)] = 100
    limit: Count = 0  #: pages; 0: no limit
    time_limit_s: Duration = Field(default=0.0, alias="time_limit")  #: 0: no limit


class FetchSection(_Section):
    """What one fetch may cost."""

    timeout_s: Annotated[Duration, Field(gt=0)] = Field(default=60.0, alias="timeout")  #: from start to last byte
    max_body_bytes: Annotated[Size, Field(gt=0)] = Field(default=16 << 20, alias="max_body")  #: the rest is cut
    allow_private: bool = False  #: loopback and private addresses may be fetched


class DnsSection(_Section):
    """Where names are looked up."""

    servers: tuple[Endpoint, ...] = ()  #: name servers, `ip[:port]`; none: the system's
    hosts: dict[Name, Endpoint] = Field(default_factory=dict)  #: fixed answers: name -> `ip[:port]`
    timeout_s: Annotated[Duration, Field(gt=0)] = Field(default=3.0, alias="timeout")  #: per question


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
    scope: ScopeSection = ScopeSection()
    frontier: FrontierSection = FrontierSection()
    politeness: PolitenessSection = PolitenessSection()
    robots: RobotsSection = RobotsSection()
    crawl: CrawlSection = CrawlSection()
    fetch: FetchSection = FetchSection()
    dns: DnsSection = DnsSection()

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


def with_sources(order: CrawlOrder, sources: Sequence[str]) -> CrawlOrder:
    """The order with the seeds and seed files that were really used; standard input leaves no trace in it."""
    named = [source for source in sources if source != "-"]
    files = tuple(Path(source) for source in named if is_file(source))
    seeds = tuple(source for source in named if not is_file(source))
    job = order.job.model_copy(update={"seeds": seeds, "seed_files": files})
    return order.model_copy(update={"job": job})
