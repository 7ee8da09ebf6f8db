"""Sections of the Frontier: [frontier], [politeness] with its entries [[override]], and [dedup]."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from anabranch.crawler.order.values import (
    Budget,
    Connections,
    Count,
    Duration,
    Factor,
    Name,
    NameOrNone,
    Part,
    Positive,
    PositiveDuration,
    Precedence,
    Prefixes,
    Section,
    Share,
    Size,
    check_bounds,
    contradiction,
)
from anabranch.frontier import MOST_SHARES
from anabranch.frontier.policies.userfunctions import is_user_function

DATABASES = ("postgresql://", "postgresql+psycopg://")

#: The value of `store` for a queue that ends with the process.
MEMORY = "memory"


def holds_password(url: str) -> bool:
    """Whether the URL of a database has a password, which other users of the machine could read."""
    named = url.partition("?")[2].lower()
    return ":" in url.partition("://")[2].rpartition("@")[0] or "password=" in named


class FrontierSection(Section):
    """How URLs are spread over queues, which goes first, and where the queues are kept."""

    policy: Name = "bkdr:997"  #: queue assignment; the Frontier knows which there are
    politeness: Literal["host", "queue", "off"] = "host"  #: whom the delays are owed
    balance_replenish: Positive = 3000  #: cost units of a session; then the queue goes behind its equals
    total_budget: Budget = -1  #: cost units of a queue in all; over it the queue is retired
    error_penalty: Count = 100  #: what a URL that failed for good costs in addition
    cost: Name = "unit"  #: what a URL takes from its queue's budgets
    uri_precedence: Name = "cost"  #: which URL of a queue goes first
    queue_precedence: Name = "base"  #: which queue of a gate goes first
    precedence_floor: Annotated[Precedence, Field(ge=1)] = 255  #: a queue at this precedence or above never runs
    per_queue: Positive = 1  #: URLs of one queue that may be fetched at a time
    lease_s: Duration = 0.0  #: a URL not back after so long may be leased again; 0: never
    checkpoint_s: PositiveDuration = 60.0  #: how often the filter is synced
    gates_in_memory: Positive = 10_000  #: the other gates are rows
    #: Part of the workers that the hosts of one registrable domain occupy at most, while another domain is active; 1: all.
    domain_workers: Part = 0.125
    slow_workers: Part = 0.25  #: the same of hosts that have never answered or whose last fetch was slow. 1: all
    slow_fetch_s: PositiveDuration = 1.0  #: a fetch that takes longer is slow
    #: Parts of the hosts that workers divide among them; fixed for the job. 1: one worker. 0: 128 in a new PostgreSQL database,
    #: 16 for a new job of several processes, else 1.
    shares: Annotated[Count, Field(le=MOST_SHARES)] = 0
    worker_lease_s: Annotated[PositiveDuration, Field(ge=0.5)] = (
        15.0  #: a worker that is silent for so long loses its shares
    )
    store: NameOrNone = ""  #: "memory", or URL of a PostgreSQL database for the rows; none: a file in the job's folder

    @property
    def is_shared(self) -> bool:
        """Several workers may crawl the job."""
        return self.shares > 1

    @property
    def has_user_functions(self) -> bool:
        """A policy that is asked about URLs is a user function."""
        return any(map(is_user_function, (self.policy, self.cost, self.uri_precedence, self.queue_precedence)))

    @property
    def is_in_database(self) -> bool:
        """The rows are in a database that a URL names."""
        return self.store not in {"", MEMORY}

    @field_validator("store")
    @classmethod
    def _without_password(cls, store: str) -> str:
        """Everyone can read the order in the job's folder."""
        if store and store != MEMORY and not store.startswith(DATABASES):
            raise ValueError(f"must be memory, or the URL of a database, like postgresql://host/name; not {store!r}")
        if holds_password(store):
            raise ValueError("must not hold a password; put it into ~/.pgpass or the variable PGPASSWORD")
        return store


class PolitenessSection(Section):
    """How a host, and a group of hosts, is spared: a rest of delay_factor x fetch time, within min and max."""

    delay_factor: Factor = 5.0  #: rest per second of fetching
    min_delay_s: Duration = 3.0  #: but no shorter than this
    max_delay_s: Duration = 30.0  #: and no longer than this
    max_connections: Connections = 1  #: fetches at once per host
    backoff_base_s: Duration = 60.0  #: how long a host in trouble is left alone first …
    backoff_cap_s: Duration = 3600.0  #: … doubled each time, up to this
    backoff_jitter: Share = 0.1  #: share of it that is added at most
    backoff_forgive_s: Duration = 600.0  #: quiet time after which troubles are forgotten
    max_retry_after_s: Duration = 86_400.0  #: a longer Retry-After is cut
    group: NameOrNone = ""  #: the second gate: ip, domain or package.module:function; none: no second gate, or `groups`
    groups: dict[Name, Name] = Field(default_factory=dict)  #: the second gate by a table: SURT prefix -> name
    group_delay_factor: Factor = 5.0  #: as above, for groups
    group_min_delay_s: Duration = 3.0  #: the same
    group_max_delay_s: Duration = 30.0  #: the same
    group_max_connections: Connections = 1  #: fetches at once per group

    @model_validator(mode="after")
    def _without_contradiction(self) -> PolitenessSection:
        check_bounds(self, "min_delay", "max_delay")
        check_bounds(self, "backoff_base", "backoff_cap")
        check_bounds(self, "group_min_delay", "group_max_delay")
        if self.group and self.groups:
            message = f"group {self.group} and a table of groups are both given; keep one of them"
            raise contradiction(message, "group", "groups")
        return self


class OverrideEntry(Section):
    """An entry `[[override]]`: other values for the parts of the web under `surt`. None: the value of the order."""

    surt: Prefixes  #: SURT prefixes, hosts or URLs
    delay_factor: Factor | None = None
    min_delay_s: Duration | None = None  #: the shortest rest
    max_delay_s: Duration | None = None  #: the longest rest
    max_connections: Connections | None = None
    balance_replenish: Positive | None = None
    total_budget: Budget | None = None
    queue_precedence: Precedence | None = None
    domain_workers: Part | None = None
    key: Name | None = None  #: the queue, in place of the policy's
    uri_precedence: Precedence | None = None

    @model_validator(mode="after")
    def _without_contradiction(self) -> OverrideEntry:
        check_bounds(self, "min_delay", "max_delay")
        return self


class DedupSection(Section):
    """How the crawl recognizes URLs that it has seen."""

    #: The job's own filter: both (SMM and DSBF), smm, dsbf, exact (no new URL is dropped), or package.module:Class.
    filter: Name = "both"
    exact: bool = False  #: the same as filter = "exact"
    expect: Positive = 10_000_000  #: URLs that the filters are made for; crawls that share one give the same number
    #: Share of new URLs that a full DSBF, or an SMM alone, takes for seen; crawls that share one give the same.
    false_positive: Annotated[Factor, Field(gt=0, lt=1)] = 1e-3
    #: Of the SMM: crc32, md5, sha1, xxh3, or package.module:function; empty: xxh3 for filter smm, else crc32.
    signature: Annotated[str, StringConstraints(pattern=r"^\S*$")] = ""
    levels: tuple[Positive, ...] = ()  #: of the SMM: bytes of the signature that each level takes; none: by `expect`
    #: Of the DSBF: blocked (all bits of a URL in one cache line), classic; empty: as in the job, for a new one blocked.
    leaf_kind: Literal["", "blocked", "classic"] = ""
    leaf_bits: Positive = 1 << 23  #: of the DSBF: bits of a leaf, a power of two
    split_fan_out: Annotated[Count, Field(ge=2)] = 4  #: of the DSBF: children that a full leaf gets
    #: Resident pages of the filter's mapped files at most, else the kernel gets them back and each page costs more time; 0:
    #: no limit.
    mapped_limit_bytes: Size = 0
    #: A stage before the filter: drop URLs that resemble accepted ones.
    similar: Literal["", "published", "site-bound"] = ""
    similar_expect: Positive = 1_000_000  #: URLs that this stage is made for
    #: What it compares: site, depth, directory, tail, or package.module:function.
    similar_features: Annotated[tuple[Name, ...], Field(min_length=1)] = ("site", "depth", "directory", "tail")
    #: Share of URLs new in every feature that it takes for similar once the expected ones are there.
    similar_false_positive: Annotated[Factor, Field(gt=0, lt=1)] = 1e-3
    leaves: tuple[str, ...] = ()  #: Redis servers that hold a DSBF in common with other crawls; none: no such filter
    #: The name of that filter: its keys on the servers begin with it.
    leaves_name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")] = "anabranch"

    @property
    def chosen(self) -> str:
        """The name of the job's own filter."""
        return "exact" if self.exact else self.filter

    @model_validator(mode="after")
    def _without_contradiction(self) -> DedupSection:
        if self.exact and self.filter not in {"both", "exact"}:
            raise contradiction(f"filter {self.filter} and exact are both given; keep one of them", "filter", "exact")
        return self

    @field_validator("leaves")
    @classmethod
    def _without_password(cls, leaves: tuple[str, ...]) -> tuple[str, ...]:
        """Everyone can read the order in the job's folder."""
        for url in leaves:
            if not url.startswith(("redis://", "rediss://")) or not _has_host(url):
                raise ValueError(f"must be URLs of Redis servers, like redis://127.0.0.1:6379/0; not {url!r}")
            if urlsplit(url).password is not None or "password=" in url:
                raise ValueError("must not hold a password; put it into the variable REDISCLI_AUTH")
        if len(set(leaves)) < len(leaves):
            raise ValueError("must not name a server twice")
        return leaves


def _has_host(url: str) -> bool:
    try:
        _ = urlsplit(url).port  # raises if it is no port
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
