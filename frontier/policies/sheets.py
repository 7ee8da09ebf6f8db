"""Sheets: settings that differ for parts of the web, by SURT prefix. The longest prefix decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import SurtPrefix, authority, host_of, parse_surt, path_of, sharing_host
from anabranch.frontier.policies.userfunctions import check_name
from anabranch.frontier.records import QueueKey

T = TypeVar("T")


class HostTable(Generic[T]):
    """A value for each prefix that covers whole hosts. A look-up costs O(labels of the host)."""

    __slots__ = ("_alone", "_with_subdomains")

    def __init__(self) -> None:
        self._alone: dict[str, T] = {}
        self._with_subdomains: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._alone) + len(self._with_subdomains)

    def put(self, prefix: SurtPrefix, value: T) -> None:
        """Set the value of this prefix."""
        assert prefix.covers_hosts, "a host has one value, whatever the port and the path"
        table = self._with_subdomains if prefix.with_subdomains else self._alone
        table[prefix.host] = value

    def get(self, host: str) -> T | None:
        """The value of the longest prefix that covers the host, or None."""
        found = self._alone.get(host)
        if found is not None:
            return found
        below = self._with_subdomains
        while (found := below.get(host)) is None and host:
            host = host.partition(".")[2]
        return found

    def named(self, host: str) -> T | None:
        """The value of a prefix that names exactly this host, or None."""
        found = self._alone.get(host)
        return self._with_subdomains.get(host) if found is None else found


MOST_CONNECTIONS = 10_000
LAST_PRECEDENCE = 255
LEAST_PART = 0.001


class Settings(NamedTuple):
    """Settings that differ from the order; None = as the order."""

    delay_factor: float | None = None
    min_delay_s: float | None = None
    max_delay_s: float | None = None
    max_connections: int | None = None  #: slots of the gate
    session_budget: int | None = None  #: cost units of a queue's session
    total_budget: int | None = None  #: cost units a queue may spend in all; -1 = without end
    queue_precedence: int | None = None  #: 0 to 255, smaller first
    #: The part of the workers that its registrable domain may occupy while others are ready.
    domain_workers: float | None = None
    key: QueueKey | None = None  #: the queue; overrides the policy
    uri_precedence: int | None = None  #: 0 to 255, smaller first

    def over(self, base: Settings) -> Settings:
        """These settings, completed from `base`. A min_delay above base's max_delay raises it, and the reverse."""
        if base is NOTHING:
            return self
        merged = Settings._make(theirs if mine is None else mine for mine, theirs in zip(self, base, strict=True))
        least, most = merged.min_delay_s, merged.max_delay_s
        if least is not None and most is not None and least > most:
            return merged._replace(max_delay_s=least) if self.max_delay_s is None else merged._replace(min_delay_s=most)
        return merged


#: No setting differs.
NOTHING = Settings()

#: The fields of `Settings` before this one concern gates and queues; the others can be set for any URL.
_OF_HOSTS = Settings._fields.index("key")
_RANGES: Mapping[str, tuple[float, float]] = {
    "delay_factor": (0, math.inf),
    "min_delay_s": (0, math.inf),
    "max_delay_s": (0, math.inf),
    "max_connections": (1, MOST_CONNECTIONS),
    "session_budget": (1, math.inf),
    "total_budget": (-1, math.inf),
    "queue_precedence": (0, LAST_PRECEDENCE),
    "domain_workers": (LEAST_PART, 1),
    "uri_precedence": (0, LAST_PRECEDENCE),
}


@dataclass(frozen=True, slots=True)
class Override:
    """One entry of the order: SURT prefixes and their settings. Raises: PolicyError, which names the entry."""

    surts: tuple[str, ...]  #: as `hosts.parse_surt` reads them
    settings: Settings

    def __post_init__(self) -> None:
        if not self.surts:
            raise PolicyError("an override names no SURT prefix; say where it holds")
        settings = self.settings
        if settings == NOTHING:
            raise self._refused("it changes nothing")
        for name, (least, most) in _RANGES.items():
            number = getattr(settings, name)
            if number is not None and not (least <= number <= most and math.isfinite(number)):
                raise self._refused(f"{name} {number:g} is not from {least:g} to {most:g}")
        if settings.key is not None:
            check_name(settings.key, f"override {self.surts[0]}: key")
        shortest, longest = settings.min_delay_s or 0.0, settings.max_delay_s
        if longest is not None and shortest > longest:
            raise self._refused(f"min_delay {shortest:g} s is longer than max_delay {longest:g} s")

    def prefixes(self) -> Iterator[SurtPrefix]:
        """The parts of the web that it covers. Raises: PolicyError, also if they are too small for the settings."""
        for text in self.surts:
            prefix = parse_surt(text)
            if not prefix.covers_hosts and self.settings[:_OF_HOSTS] != NOTHING[:_OF_HOSTS]:
                names = [name for name in Settings._fields[:_OF_HOSTS] if getattr(self.settings, name) is not None]
                raise self._refused(
                    f"{text} does not cover a whole host, and {', '.join(names)} can be set for hosts only"
                )
            yield prefix

    def _refused(self, reason: str) -> PolicyError:
        return PolicyError(f"override {self.surts[0]}: {reason}")


class Sheets:
    """All overrides of an order. Raises: PolicyError for one that makes no sense."""

    # fmt: off
    __slots__ = (
        "_by_key", "_hosts", "_paths", "has_host_settings", "has_keys", "has_queue_settings", "has_uri_precedence", "is_empty",
    )
    # fmt: on

    def __init__(self, overrides: Iterable[Override] = ()) -> None:
        hosts, urls = _by_prefix(overrides)
        every = [*hosts.values(), *urls.values()]
        self.has_keys = any(own.key is not None for own in every)
        self.has_uri_precedence = any(own.uri_precedence is not None for own in every)
        self.has_host_settings = bool(hosts)
        self.is_empty = not every
        self.has_queue_settings = any(_sets_queue(own) and own.key is None for own in every)
        self._by_key: dict[QueueKey, Settings] = {}
        self._hosts: HostTable[Settings] = HostTable()
        # The shorter first, so that each finds its base; a host alone comes after the host with its subdomains.
        for prefix in sorted(hosts, key=lambda prefix: (_labels(prefix.host), not prefix.with_subdomains)):
            self._hosts.put(prefix, self._settled(hosts[prefix], self.for_host(prefix.host)))
        self._paths = self._by_path(urls)

    def __bool__(self) -> bool:
        """Any setting differs anywhere."""
        return bool(self._hosts) or bool(self._paths)

    def for_host(self, host: str) -> Settings:
        """The settings for a host (without port). Cost: 1 µs, O(labels).

        For a host with a comma an entry with the SURT of store formats before 4 still holds.
        """
        found = self._hosts.get(host)
        if found is None and "," in host:
            found = self._hosts.named(sharing_host(host))
        return found or NOTHING

    def for_url(self, url: str) -> Settings:
        """The settings for an absolute URL: by host, then by port and path. Cost: 2 µs."""
        found = authority(url)
        if found is None:
            return NOTHING
        paths = self._paths.get(found.name) or self._paths.get(found.host) if self._paths else None
        settings = paths.get(path_of(url)) if paths else None
        return settings or self.for_host(found.host)

    def for_key(self, key: QueueKey) -> Settings | None:
        """The settings for a queue that an override names, or None."""
        return self._by_key.get(key)

    def _settled(self, own: Settings, base: Settings) -> Settings:
        """An override's settings, completed from the part of the web that contains it."""
        settings = own.over(base)
        if own.key is None and base.key is not None and _sets_queue(own):
            raise PolicyError(
                f"an override sets a budget or queue precedence where a wider one sets the key {base.key}; set it there"
            )
        if own.key is not None:
            self._by_key[own.key] = settings.over(self._by_key.get(own.key, NOTHING))
        return settings

    def _by_path(self, urls: Mapping[SurtPrefix, Settings]) -> dict[str, _Paths]:
        """The tables by host[:port]; settings for every port are in the table of each port."""
        by_name: dict[str, dict[str, Settings]] = {}
        for prefix, own in urls.items():
            name = prefix.host if prefix.port is None else f"{prefix.host}:{prefix.port}"
            by_name.setdefault(name, {})[prefix.path] = own
        tables: dict[str, _Paths] = {}
        for name, of_port in by_name.items():
            host = host_of(name)
            of_host = by_name.get(host, {})
            both = of_port if name == host else of_host | of_port
            for path in of_port.keys() & of_host.keys() if name != host else ():
                both[path] = of_port[path].over(of_host[path])
            tables[name] = _Paths(both, self._settled, self.for_host(host))
        return tables


class _Paths:
    """Settings by path prefix, on one host and port. A look-up costs O(different lengths of prefixes)."""

    __slots__ = ("_lengths", "_settings")

    def __init__(
        self, own_by_path: Mapping[str, Settings], settled: Callable[[Settings, Settings], Settings], of_host: Settings
    ) -> None:
        self._settings: dict[str, Settings] = {}
        self._lengths = sorted({len(path) for path in own_by_path}, reverse=True)
        for path in sorted(own_by_path):  # a prefix of a path comes before it
            self._settings[path] = settled(own_by_path[path], self.get(path) or of_host)

    def get(self, path: str) -> Settings | None:
        """The settings of the longest prefix, if any."""
        for length in self._lengths:
            if (found := self._settings.get(path[:length])) is not None:
                return found
        return None


def _by_prefix(overrides: Iterable[Override]) -> tuple[dict[SurtPrefix, Settings], dict[SurtPrefix, Settings]]:
    """The settings for each prefix: of whole hosts, and of parts of them. The later of two wins."""
    hosts: dict[SurtPrefix, Settings] = {}
    parts: dict[SurtPrefix, Settings] = {}
    for override in overrides:
        for prefix in override.prefixes():
            table = hosts if prefix.covers_hosts else parts
            place = prefix._replace(path="") if prefix.path == "/" and table is hosts else prefix
            table[place] = override.settings.over(table.get(place, NOTHING))
    return hosts, parts


def _labels(host: str) -> int:
    return host.count(".") + 1 if host else 0


def _sets_queue(own: Settings) -> bool:
    return not (own.session_budget is own.total_budget is own.queue_precedence is None)
