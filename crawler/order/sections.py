"""The other sections of an order: [job], [agent], [crawl], [urls], [scope] and its entries [[body]], [limits], [write], [logs]
and [report].
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from anabranch.crawler.fetch.secrets import is_sendable
from anabranch.crawler.order.schedule import JobSchedule, check_schedule, check_zone
from anabranch.crawler.order.values import (
    Connections,
    Count,
    Duration,
    FileOrNone,
    FolderName,
    ListenAddressOrNone,
    Name,
    Networks,
    Positive,
    PositiveDuration,
    Section,
    SeedFile,
    Size,
    Statuses,
    Texts,
    UserFolder,
    UserFunctionName,
    contradiction,
    path_without_nul,
)
from anabranch.crawler.runtime import LoopName
from anabranch.crawler.urls.canonicalization import DEFAULT, check_names
from anabranch.crawler.urls.ignoresets import pinned
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import parse_surt
from anabranch.frontier.policies.userfunctions import shown

#: The product's version, as pyproject.toml has it; servers see it in the User-Agent.
VERSION = "0.2.0"


class JobSection(Section):
    """The seeds of a crawl, and the name of its job's folder."""

    name: FolderName | None = None  #: folder below jobs/; None: from the seeds
    seeds: tuple[str, ...] = ()  #: URLs
    seed_files: tuple[SeedFile, ...] = ()  #: in the file: relative to the file's folder
    source_tags: bool = True  #: crawl.log has the seed that led to a URL
    processors: tuple[UserFunctionName, ...] = ()  #: user processors, package.module:function, before a page is written
    sinks: tuple[UserFunctionName, ...] = ()  #: classes, package.module:Class, that get the pages in batches
    #: Bytes of pages.jsonl that a sink may be behind; then the crawl pauses until it has caught up with half of them.
    sink_backlog_bytes: Annotated[Size, Field(ge=1)] = 32 << 20
    #: Name of this worker, where several crawl the job; none: that of the machine.
    worker: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]*$", max_length=100)] = ""
    modules: UserFolder | None = None  #: folder that user functions are imported from; None: that of the -c file
    #: When it is started: a cron expression, or like `every 6h`; empty: by hand.
    schedule: Annotated[str, AfterValidator(check_schedule)] = ""
    schedule_zone: Annotated[str, AfterValidator(check_zone)] = "UTC"  #: time zone of the cron expression
    #: A scheduled run: another round, unless the last one was interrupted, which then goes on; or always what is queued.
    schedule_starts: Literal["again", "resume"] = "again"

    @property
    def when(self) -> JobSchedule | None:
        """Its schedule; None without one."""
        return JobSchedule(self.schedule, self.schedule_zone) if self.schedule else None

    @property
    def sources(self) -> tuple[str, ...]:
        """Seeds and seed files as `anabranch crawl` takes them."""
        return (*self.seeds, *self.seed_file_names)

    @property
    def seed_file_names(self) -> tuple[str, ...]:
        """The full names of the seed files: a full name is no URL, even if the file is missing."""
        return tuple(str(path.absolute()) for path in self.seed_files)


_OURS = "anabranch"


def _agent_text(text: str) -> str:
    if not is_sendable(text) or text != text.strip():
        raise ValueError("must be printable ASCII, without blanks around it")
    return text


class AgentSection(Section):
    """The name and the contact under which servers see the crawler."""

    #: The name in the User-Agent, with a version if it has one: `mybot/2.0`.
    product: Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?$")] = _OURS
    #: A page or a mail address for those who run the servers.
    contact: Annotated[str, StringConstraints(pattern=r"^[!-'*-~]*$")] = ""
    #: The whole User-Agent, in place of the one made of product and contact; it must contain the product's name.
    user_agent: Annotated[str, StringConstraints(max_length=500), AfterValidator(_agent_text)] = ""

    @model_validator(mode="after")
    def _naming_the_product(self) -> Self:
        """A site's operator who reads the User-Agent in a log must find the name to write into robots.txt."""
        named = rf"(?<![A-Za-z0-9_-]){re.escape(self.token)}(?![A-Za-z0-9_-])"
        if self.user_agent and not re.search(named, self.user_agent, re.IGNORECASE):
            raise contradiction(
                f"must contain {self.token}, the name that robots.txt is read for; add it, or set [agent] product "
                "(-s agent.product=NAME) to the name that stands there",
                "user_agent",
                "product",
            )
        return self

    @property
    def sent_user_agent(self) -> str:
        """The User-Agent of every request: `user_agent`, else `anabranch/VERSION (+contact)`; for other products
        `mybot/2.0 (+contact; anabranch/VERSION)`.
        """
        if self.user_agent:
            return self.user_agent
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
    """How many fetches run at once."""

    workers: Connections = 100  #: fetches at once, in all processes together
    loop: LoopName = "auto"  #: the event loop; auto: uvloop if it is installed, else asyncio
    processes: Annotated[Positive, Field(le=64)] = 1  #: processes that crawl the job together


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"has {shown(text)!r}, which is no regular expression: {error}") from error
    return text


def _surt(text: str) -> str:
    try:
        parse_surt(text)
    except PolicyError as error:
        raise ValueError(f"has a fault: {error}") from error
    return text


def _canonicalization(names: tuple[str, ...]) -> tuple[str, ...]:
    try:
        check_names(names)
    except ValueError as error:
        raise ValueError(f"has a fault: {error}") from error
    return names


_Pattern = Annotated[str, Field(min_length=1), AfterValidator(_pattern)]
_Surt = Annotated[str, AfterValidator(_surt)]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class UrlsSection(Section):
    """The rules that decide which URLs count as one."""

    canonicalization: tuple[Name, ...] = DEFAULT  #: rules that make the key for dedup, in their order; see crawler/urls

    _checked = field_validator("canonicalization")(_canonicalization)


class ScopeSection(Section):
    """Which links are followed. The rules and their order: `crawler/scope/scope.py`."""

    scope: Literal["host", "prefix", "domain", "surt", "any", "page"] = "host"  #: the place that a seed opens
    max_hops: Count = 20  #: hops from a seed, of whatever kind
    max_embeds: Count = 2  #: hops E, R, X in a row that are followed off the seeds' places, too; 0: none
    include: tuple[_Pattern, ...] = ()  #: regular expressions: what one is found in is in, too
    exclude: tuple[_Pattern, ...] = ()  #: regular expressions: what one is found in is out
    accept: tuple[_Surt, ...] = ()  #: SURT prefixes, hosts or URLs: what they cover is in, too
    reject: tuple[_Surt, ...] = ()  #: SURT prefixes, hosts or URLs: what they cover is out
    ignore: Annotated[
        tuple[Annotated[str, AfterValidator(pinned)], ...], BeforeValidator(_listed)
    ] = ()  #: ignore sets, like "calendars": what one of them has is out
    block: tuple[_Pattern, ...] = ()  #: regular expressions: never fetched, even if queued before (status -5001)
    max_path_repeats: Count = 2  #: times that a path segment, or a group of them, may stand in a row; 0: no limit
    max_path_depth: Count = 20  #: segments of a path; 0: no limit
    max_url_length: Count = 2083  #: characters; 0: no limit but the parser's
    schemes: Annotated[tuple[Literal["http", "https"], ...], Field(min_length=1)] = ("http", "https")  #: others are out
    skip_parameter_traps: bool = True  #: skip most URLs of a parameter that changed nothing in 50 pages (status -5005)
    similar: Literal["", "published", "site-bound"] = ""  #: the same as [dedup] similar
    similar_expect: Positive = 1_000_000  #: the same as [dedup] similar_expect
    rules: tuple[UserFunctionName, ...] = ()  #: user rules, package.module:function, after all others


def _field_patterns(fields: dict[str, str]) -> dict[str, str]:
    """Refuse what is no name of a header field."""
    for name in fields:
        if not _FIELD_NAME.fullmatch(name):
            raise ValueError(f"has {shown(name)!r}, which is no name of a header field")
    return fields


_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
_Surts = Annotated[tuple[_Surt, ...], BeforeValidator(_listed)]


class BodyEntry(Section):
    """An entry `[[body]]`: a rule before the body. It decides where all that it names holds; the last that decides wins."""

    read: bool = False  #: true: the body is read; false: it is left unread, and the page is not archived
    status: Statuses = ()  #: of the answer: 404, "4xx", "500-599"
    media_types: Texts = ()  #: of its Content-Type, like "video/*"
    min_length_bytes: Size = 0  #: by its Content-Length, at least; 0: any, or none
    max_length_bytes: Size = 0  #: by its Content-Length, at most; 0: any, or none
    headers: Annotated[dict[str, str], AfterValidator(_field_patterns)] = Field(
        default_factory=dict
    )  #: name of a field -> its text, in which * stands for any text
    addresses: Networks = ()  #: IP ranges of the server, like "192.0.2.0/24"; behind a proxy no address is known
    hops: Annotated[str, AfterValidator(_pattern)] = ""  #: regular expression, found in the path of hops
    surt: _Surts = ()  #: SURT prefixes, hosts or URLs of the page
    seeds: _Surts = ()  #: the same of the seed that led to the page

    @model_validator(mode="after")
    def _with_some_length(self) -> Self:
        if 0 < self.max_length_bytes < self.min_length_bytes:
            raise contradiction("it is less than min_length; no answer has such a length", "max_length", "min_length")
        return self


class LimitsSection(Section):
    """When a crawl ends."""

    pages: Count = 0  #: answered URLs of the whole job; 0: no limit
    fetched_bytes: Size = Field(default=0, alias="bytes")  #: of bodies, in the whole job; 0: no limit
    time_s: Duration = 0.0  #: of this run, pauses included; 0: no limit
    pages_per_host: Count = 0  #: answered URLs of one host; the others of it are disregarded (-5003); 0: no limit
    bytes_per_host: Size = 0  #: of bodies, of one host; 0: no limit
    time_per_host_s: Duration = 0.0  #: since its first answer (-5004); 0: no limit
    pages_per_group: Count = 0  #: the same of a group of hosts, [politeness] groups or group = "domain"; 0: no limit
    bytes_per_group: Size = 0  #: the same
    time_per_group_s: Duration = 0.0  #: the same
    #: Room on the job's disk, below which the crawl pauses until there is more again; 0: never.
    min_free_disk_bytes: Size = 10**9
    on_limit: Literal["end", "pause"] = "end"  #: at the first three: end the crawl, or pause it for the operator


#: A CDX server: in its host or port no character that would end it.
_SERVER = re.compile(r"https?://[^\s/?#]+(/[^\s#]*)?", re.ASCII)
_UPLOAD = re.compile(r"[a-z][a-z0-9+]*://.+")


class UsedLimits(NamedTuple):
    """The amounts of its limits that a job has used, in all its runs and by all its workers."""

    pages: int
    fetched_bytes: int
    elapsed_s: float = 0.0  #: by this run


def _archive(place: str) -> str:
    """The full path of an archive, because a dumped order is in another folder; or the URL of a CDX server, as it is."""
    if "://" not in place:
        return str(Path(path_without_nul(place)).absolute())
    if not _SERVER.fullmatch(place):
        raise ValueError(
            f"must have folders and files, or URLs like http://cdx.example/collection/cdx; not {shown(place)!r}"
        )
    if "@" in place.partition("://")[2].partition("/")[0]:
        raise ValueError("must not hold a user or a password: everyone can read the order in the job's folder")
    return place


class WriteSection(Section):
    """The files that are written in addition to the logs."""

    warc: bool = False  #: WARC 1.1 files in the job's folder `warc`, each with its CDXJ index
    #: What the names of WARC files begin with.
    warc_prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)] = (
        "anabranch"
    )
    #: A file that has reached this size is finished, and the next one begun.
    warc_size_bytes: Annotated[Size, Field(ge=1 << 20)] = 10**9
    compression: Literal["gzip", "zstd"] = "gzip"  #: of WARC files; zstd (.warc.zst): few programs read it
    #: What compresses gzip: zlib makes HTML files about 6 % smaller and takes four times the CPU time.
    deflate: Literal["isal", "zlib"] = "isal"
    #: A zstd dictionary, which each WARC file then holds; `anabranch archive dictionary` makes one.
    zstd_dictionary: FileOrNone = ""
    #: URL of a folder that finished WARC files are copied to: file:///mnt/archive, s3://bucket/crawl, sftp://host/path.
    upload: str = ""
    revisit: bool = True  #: a payload that is archived already is not written again (WARC `revisit` records)
    revisit_shared: bool = True  #: nor one that another worker of the job has archived
    #: Archives that have payloads, too: folders of earlier jobs, files NAME.cdxj and their folders, URLs of CDX servers.
    revisit_of: Annotated[tuple[Annotated[str, AfterValidator(_archive)], ...], BeforeValidator(_listed)] = ()
    revisit_timeout_s: PositiveDuration = 5.0  #: a page waits so long for a CDX server, from the beginning of its fetch
    revisit_min_size_bytes: Size = 0  #: a smaller payload is always written; 0: none is
    pages: bool = True  #: pages.jsonl: a line for each page
    links: bool = False  #: links.jsonl: a line with the links of each page
    operator: str = ""  #: who runs the crawl, as the WARC files say it
    #: Whose logins the WARC files hide: of all sites (each Set-Cookie), of those with a login in the order, of none.
    redact: Literal["all", "secrets", "none"] = "secrets"

    @property
    def revisit_folders(self) -> tuple[str, ...]:
        """The archives that are folders and files."""
        return tuple(place for place in self.revisit_of if "://" not in place)

    @property
    def cdx_servers(self) -> tuple[str, ...]:
        """The archives that are CDX servers."""
        return tuple(place for place in self.revisit_of if "://" in place)

    @model_validator(mode="after")
    def _dictionary_of_zstd(self) -> Self:
        if self.zstd_dictionary and self.compression != "zstd":
            raise contradiction(
                "needs compression = 'zstd'; set that, or leave the dictionary out", "zstd_dictionary", "compression"
            )
        return self

    @field_validator("upload")
    @classmethod
    def _url_without_password(cls, upload: str) -> str:
        """Everyone can read the order in the job's folder."""
        if upload and not _UPLOAD.fullmatch(upload):
            raise ValueError(
                f"must be the URL of a folder, like file:///mnt/archive or s3://bucket/crawl; not {upload!r}"
            )
        if ":" in upload.partition("://")[2].partition("/")[0].rpartition("@")[0]:
            raise ValueError("must not hold a password; see the documentation of fsspec for where it is kept")
        return upload


class LogsSection(Section):
    """How events look and where they go."""

    format: Literal["console", "json"] = "console"  #: of the events
    file: FileOrNone = ""  #: events go there and not to standard error
    extra_info: bool = False  #: crawl.log has a thirteenth field, as in Heritrix: size and WARC record


class ReportSection(Section):
    """The display and the reports of a crawl, while it runs and at its end."""

    #: Display; auto: several lines on a terminal, else one at a time.
    progress: Literal["auto", "lines", "none"] = "auto"
    interval_s: PositiveDuration = 10.0  #: between two lines of the display without a terminal
    statistics_interval_s: PositiveDuration = 20.0  #: between two lines of progress-statistics.log
    reports: bool = True  #: reports/ is written at the end
    metrics: ListenAddressOrNone = ""  #: IP:PORT at which Prometheus reads metrics; empty: none are served
