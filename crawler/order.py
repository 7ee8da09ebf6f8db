"""The crawl order: what to crawl and how, from a TOML file, the environment and flags.

A key stands in one section. `[politeness] min_delay`, the variable `ANABRANCH_POLITENESS__MIN_DELAY` and the flag `--min-delay`
are the same key; of several values the flag's wins, then the environment's, then the file's, then the default. The order is
frozen, and a key that nobody knows is refused: a misspelt delay must not become the default delay.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from crawler.errors import OrderError
from crawler.quantities import exact_duration, exact_size, parse_duration, parse_size

__all__ = ["VERSION", "CrawlOrder", "OrderError", "dump_order", "load_order", "parse_endpoint"]

#: The product's version, as pyproject.toml has it; servers see it in the User-Agent.
VERSION = "0.1.0"

_ENVIRONMENT = "ANABRANCH_"

#: IPv6 address in brackets or IPv4 address, and the port.
_ENDPOINT = re.compile(r"(?:\[(.+)\]|([^:]+))(?::0*([0-9]{1,5}))?")


def parse_endpoint(text: str) -> tuple[str, int | None]:
    """IP literal and port (None if not given) of `ip[:port]`; an IPv6 address stands in brackets.

    Raises: ValueError for names, for IPv6 without brackets, for ports outside 1 to 65535.
    """
    found = _ENDPOINT.fullmatch(text)
    ipv6, ipv4, port = found.groups() if found else (None, "", None)
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
    try:
        address = ipaddress.IPv6Address(ipv6) if ipv6 else ipaddress.IPv4Address(ipv4)
    except ValueError:
        address = None
    if address is None or (port and not 1 <= int(port) <= 65535):
        raise ValueError(f"must be ip or ip:port, like 127.0.0.1:5353 or [::1]:53; not {text!r}")
    return str(address), int(port) if port else None


def _checked_endpoint(text: str) -> str:
    parse_endpoint(text)
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
    max_connections: Annotated[Count, Field(ge=1)] = 1  #: fetches at once per host

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

    workers: Annotated[Count, Field(ge=1)] = 100
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
        env_prefix=_ENVIRONMENT,
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


#: Section -> key -> type of the value, as the models have them.
_KEYS: Mapping[str, Mapping[str, object]] = {
    section: {field.alias or name: field.annotation for name, field in model.annotation.model_fields.items()}
    for section, model in CrawlOrder.model_fields.items()
    if isinstance(model.annotation, type) and issubclass(model.annotation, BaseModel)
}

#: Flag, as a key -> its section. `timeout` is the fetch's: the one of `[dns]` has no flag.
_FLAGS: Mapping[str, str] = {
    key: section for section, keys in _KEYS.items() for key in keys if (section, key) != ("dns", "timeout")
}

#: What the types of pydantic's errors begin with -> what to tell the operator.
_COMPLAINTS: Mapping[str, str] = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "finite_number": "must be a finite number",
    "bool_": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be one word, without control characters or parentheses",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be more than {gt:g}",
    "tuple_type": "must be a list",
    "dict_type": "must be a section with keys",
    "path_type": "must be the name of a file",
}


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one source says, and how it writes a section or a key."""

    tables: Mapping[str, Any]
    section_form: str
    key_form: str

    def section(self, section: str) -> str:
        return self.section_form.format(section=section, SECTION=section.upper())

    def key(self, section: str, key: str) -> str:
        forms = {"section": section, "key": key, "flag": key.replace("_", "-")}
        return self.key_form.format(**forms, SECTION=section.upper(), KEY=key.upper())


def load_order(file: Path | None, flags: Mapping[str, object]) -> CrawlOrder:
    """The order of a file, the environment and flags (key -> value; None: not given); the latter win.

    Raises: OrderError, one line that names the source and the key, says what is wrong and what would be right.
    """
    layers = [_flag_layer(flags), _environment_layer(), *([_file_layer(file)] if file else [])]
    for layer in layers:
        _check_known(layer)
    merged: dict[str, dict[str, Any]] = {}
    for layer in reversed(layers):
        for section, table in layer.tables.items():
            merged.setdefault(section, {}).update(table)
    try:
        return CrawlOrder.model_validate(merged)
    except ValidationError as error:
        raise OrderError(_in_words(error.errors(include_url=False), layers)) from error


def dump_order(order: CrawlOrder) -> str:
    """The order as TOML, all keys, paths in full; `load_order` reads the same order out of it."""
    return tomli_w.dumps(order.model_dump(mode="json", by_alias=True, exclude_none=True))


def _flag_layer(flags: Mapping[str, object]) -> _Layer:
    tables: dict[str, dict[str, object]] = {}
    for key, value in flags.items():
        if key not in _FLAGS:
            raise OrderError(f"--{key.replace('_', '-')} is unknown{_hint(key, _FLAGS, '--{}', '-')}")
        if value is not None:
            tables.setdefault(_FLAGS[key], {})[key] = value
    return _Layer(tables, "flags", "--{flag}")


def _environment_layer() -> _Layer:
    """Variables with a section; lists and tables in them are words, `name=ip:port` for `[dns.hosts]`."""
    form = f"environment: {_ENVIRONMENT}{{SECTION}}"
    known = EnvSettingsSource(CrawlOrder)()
    tables: dict[str, Any] = {section: {} for section in _environment_sections()} | known
    for section, table in known.items():
        for key, text in table.items() if isinstance(table, dict) else ():
            kind = get_origin(_KEYS[section].get(key))
            if kind is tuple and isinstance(text, str):
                table[key] = text.split()
            elif kind is dict and isinstance(text, str):
                table[key] = dict(word.partition("=")[::2] for word in text.split())
    return _Layer(tables, form, form + "__{KEY}")


def _environment_sections() -> Iterable[str]:
    """The sections that variables speak of, known or not. What has no section is not ours."""
    for name in os.environ:
        section, delimiter, _ = name.upper().removeprefix(_ENVIRONMENT).partition("__")
        if delimiter and name.upper().startswith(_ENVIRONMENT):
            yield section.lower()


def _file_layer(file: Path) -> _Layer:
    try:
        content = file.read_bytes()
        tables = tomllib.loads(content.decode("utf-8-sig"))
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
    return _Layer(tables, f"{_braced(file)}: [{{section}}]", f"{_braced(file)}: [{{section}}] {{key}}")


def _braced(file: Path) -> str:
    return str(file).replace("{", "{{").replace("}", "}}")


def _check_known(layer: _Layer) -> None:
    for section, table in layer.tables.items():
        if section not in _KEYS:
            home = f"; it belongs to [{_FLAGS[section]}]" if section in _FLAGS else _hint(section, _KEYS, "[{}]")
            raise OrderError(f"{layer.section(section)} is unknown{home}")
        if not isinstance(table, Mapping):
            raise OrderError(f"{layer.section(section)} must be a section with keys, not {table!r}")
        for key in table:
            if key not in _KEYS[section]:
                elsewhere = f"; it belongs to [{_FLAGS[key]}]" if key in _FLAGS else ""
                hint = elsewhere or _hint(key, _KEYS[section], "{}")
                raise OrderError(f"{layer.key(section, key)} is unknown{hint}")


def _hint(name: str, known: Iterable[str], form: str, dash: str = "_") -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {form.format(close[0].replace('_', dash))}?" if close else ""


def _in_words(errors: list[ErrorDetails], layers: list[_Layer]) -> str:
    """One line: where the first fault was written and what it is, and how many more there are."""
    first, *others = errors
    section = str(first["loc"][0])
    keys = first.get("ctx", {}).get("keys") or (str(first["loc"][1]),)
    given = [layer.key(section, key) for layer in layers for key in keys if key in layer.tables.get(section, {})]
    where = given[0] if given else f"[{section}] {keys[0]}"
    inner = "".join(f" {part}" for part in first["loc"][2:] if isinstance(part, str) and part != "[key]")
    more = f" (and {len(others)} more)" if others else ""
    return f"{where}{inner}{':' if 'keys' in first.get('ctx', {}) else ''} {_complaint(first)}{more}"


def _complaint(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind in {"value_error", "contradiction"}:
        return error["msg"].removeprefix("Value error, ")
    words = next((words for start, words in _COMPLAINTS.items() if kind.startswith(start)), error["msg"])
    return f"{words.format(**error.get('ctx', {}))}; not {error['input']!r}"
