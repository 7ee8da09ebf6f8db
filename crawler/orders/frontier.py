"""What a crawl order says of the Frontier: queues and budgets, how hosts are spared, and what is different for some sites.

Names of policies are only known to the Frontier: `crawler.jobs.opening` asks it whether they exist.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from anabranch.crawler.orders.quantities import exact_duration
from anabranch.crawler.orders.types import (
    Budget,
    Connections,
    Count,
    Duration,
    Factor,
    Name,
    OwnDuration,
    Positive,
    Precedence,
    Section,
    Share,
)

#: One word, or none: the default of a key that need not be set.
_NameOrNone = Annotated[str, StringConstraints(pattern=r"^\S*$")]

#: What the URLs of databases begin with.
_DATABASES = ("postgresql://", "postgresql+psycopg://")

#: The store that ends with the process.
MEMORY = "memory"


class FrontierSection(Section):
    """How URLs are spread over queues, which goes first, and where all that is kept."""

    policy: Name = "bkdr:997"  #: queue assignment; the Frontier knows which there are
    politeness: Literal["host", "queue", "off"] = "host"  #: whom the delays are owed
    balance_replenish: Positive = 3000  #: cost units of a session; then the queue goes behind its equals
    total_budget: Budget = -1  #: cost units of a queue in all; over it the queue is retired
    error_penalty: Count = 100  #: what a URL that failed for good costs beside its own cost
    cost: Name = "unit"  #: what a URL takes from its queue's budgets
    uri_precedence: Name = "cost"  #: which URL of a queue goes first
    queue_precedence: Name = "base"  #: which queue of a gate goes first
    precedence_floor: Annotated[Precedence, Field(ge=1)] = 255  #: a queue at this precedence or above never runs
    per_queue: Positive = 1  #: URLs of one queue that may be fetched at a time
    lease_s: Duration = Field(default=0.0, alias="lease")  #: a URL not back after so long may be leased again; 0: never
    checkpoint_s: Annotated[Duration, Field(gt=0)] = Field(
        default=60.0, alias="checkpoint"
    )  #: how often the filter is synced
    gates_in_memory: Positive = 10_000  #: the other gates are rows
    store: _NameOrNone = ""  #: "memory", or URL of a PostgreSQL database for the rows; none: a file in the job's folder

    @field_validator("store")
    @classmethod
    def _without_password(cls, store: str) -> str:
        """The order is kept in the job's folder as it was run, for everyone to read."""
        if store and store != MEMORY and not store.startswith(_DATABASES):
            raise ValueError(f"must be memory, or the URL of a database, like postgresql://host/name; not {store!r}")
        if "@" in store and ":" in store.partition("://")[2].rpartition("@")[0]:
            raise ValueError("must not hold a password; put it into ~/.pgpass or the variable PGPASSWORD")
        return store


class PolitenessSection(Section):
    """How a host, and a group of hosts, is spared: a rest of delay_factor x fetch time, within min and max."""

    delay_factor: Factor = 5.0  #: rest per second of fetching
    min_delay_s: Duration = Field(default=3.0, alias="min_delay")  #: but no shorter than this
    max_delay_s: Duration = Field(default=30.0, alias="max_delay")  #: and no longer than this
    max_connections: Connections = 1  #: fetches at once per host
    backoff_base_s: Duration = Field(
        default=60.0, alias="backoff_base"
    )  #: how long a host in trouble is left alone first …
    backoff_cap_s: Duration = Field(default=3600.0, alias="backoff_cap")  #: … doubled each time, up to this
    backoff_jitter: Share = 0.1  #: share of it that is added at most
    backoff_forgive_s: Duration = Field(
        default=600.0, alias="backoff_forgive"
    )  #: quiet time after which troubles are forgotten
    max_retry_after_s: Duration = Field(default=86_400.0, alias="max_retry_after")  #: a longer Retry-After is cut
    group: _NameOrNone = (
        ""  #: the second gate: ip, domain or package.module:function; none: no second gate, or `groups`
    )
    groups: dict[Name, Name] = Field(default_factory=dict)  #: the second gate by a table: SURT prefix -> name
    group_delay_factor: Factor = 5.0  #: as above, for groups
    group_min_delay_s: Duration = Field(default=3.0, alias="group_min_delay")  #: the same
    group_max_delay_s: Duration = Field(default=30.0, alias="group_max_delay")  #: the same
    group_max_connections: Connections = 1  #: fetches at once per group

    @model_validator(mode="after")
    def _without_contradiction(self) -> PolitenessSection:
        _in_order(self, "min_delay", "max_delay")
        _in_order(self, "backoff_base", "backoff_cap")
        _in_order(self, "group_min_delay", "group_max_delay")
        if self.group and self.groups:
            raise PydanticCustomError(
                "contradiction",
                "group {group} and a table of groups are both given; keep one of them",
                {"keys": ("group", "groups"), "group": self.group},
            )
        return self


def _in_order(section: Section, least: str, most: str) -> None:
    """Raises a contradiction that names both keys if the least is above the most."""
    least_s, most_s = (getattr(section, f"{key}_s") for key in (least, most))
    if least_s is not None and most_s is not None and least_s > most_s:
        raise PydanticCustomError(
            "contradiction",
            "{highest} ({most}) is less than {lowest} ({least}); raise the one or lower the other",
            {
                "keys": (most, least),
                "highest": most,
                "lowest": least,
                "most": exact_duration(most_s),
                "least": exact_duration(least_s),
            },
        )


def _listed(value: Any) -> Any:
    """One prefix may stand without brackets."""
    return [value] if isinstance(value, str) else value


class OverrideEntry(Section):
    """An entry `[[override]]`: what is different for the parts of the web that `surt` names. None: as the order says."""

    surt: Annotated[tuple[Name, ...], BeforeValidator(_listed), Field(min_length=1)]  #: SURT prefixes, hosts or URLs
    delay_factor: Factor | None = None
    min_delay_s: OwnDuration = Field(default=None, alias="min_delay")  #: the shortest rest
    max_delay_s: OwnDuration = Field(default=None, alias="max_delay")  #: the longest rest
    max_connections: Connections | None = None
    balance_replenish: Positive | None = None
    total_budget: Budget | None = None
    queue_precedence: Precedence | None = None
    key: Name | None = None  #: the queue, whatever the policy says
    uri_precedence: Precedence | None = None

    @model_validator(mode="after")
    def _without_contradiction(self) -> OverrideEntry:
        _in_order(self, "min_delay", "max_delay")
        return self
