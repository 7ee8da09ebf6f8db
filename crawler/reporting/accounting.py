"""What a line of `crawl.log` adds to the job's totals. Pure.

Everything is counted from lines that were read, never from what made them: so it makes no difference whether a line is
counted as it is written or after a crash. The columns are those of Heritrix's `FetchStats`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import NamedTuple

from anabranch.crawler.outcomes.status import FIRST_HTTP_STATUS, FetchStatus, StatusClass, class_of
from anabranch.crawler.reporting.annotations import DUPLICATE_DIGEST, NOT_MODIFIED, WARC_REVISIT
from anabranch.crawler.reporting.crawl_log import NO_TYPE, UNKNOWN_TYPE, CrawlLogEntry
from anabranch.crawler.urls.parsing import host_of
from anabranch.frontier.hosttroubles import HOST_BUSY

#: The hop to what must be had before a page: robots.txt, an address.
PREREQUISITE = "P"
#: The host under which look-ups of names are counted, as in Heritrix.
DNS = "dns:"
#: What stands for the seed of a URL that has no source tag.
NO_SOURCE = "-"
#: Media types that are counted apart, how much of a name counts, and where all others are counted: sites send what they like.
MAX_TYPES = 1000
MAX_TYPE_CHARS = 100
OTHER_TYPES = "other"
#: The longest name of a host in the DNS; what is longer was never there, and is counted by its beginning.
_MAX_HOST_CHARS = 255


@dataclass(slots=True)
class Totals:
    """What was fetched of a host, or in all. `add` is the only change."""

    urls: int = 0  #: answered, prerequisites included
    bytes: int = 0  #: of all answers
    prerequisites: int = 0  #: robots.txt and DNS among the urls
    failures: int = 0  #: given up
    disregards: int = 0  #: not fetched on purpose
    robots: int = 0  #: of these, denied by robots.txt
    novel_urls: int = 0
    novel_bytes: int = 0
    dup_urls: int = 0  #: the body was met before
    dup_bytes: int = 0
    not_modified_urls: int = 0  #: the server said so (304)
    not_modified_bytes: int = 0
    first_success_s: float | None = None  #: epoch seconds, begin of the first fetch that was answered
    last_success_s: float | None = None  #: epoch seconds, end of the last one

    @property
    def pages(self) -> int:
        """Answered URLs that are no prerequisites: what quotas count."""
        return self.urls - self.prerequisites

    @property
    def processed(self) -> int:
        """All that came to an end: answered, given up, not fetched on purpose."""
        return self.urls + self.failures + self.disregards

    def add(self, more: Totals) -> None:
        """Add other totals. Written out, since it runs twice a line."""
        self.urls += more.urls
        self.bytes += more.bytes
        self.prerequisites += more.prerequisites
        self.failures += more.failures
        self.disregards += more.disregards
        self.robots += more.robots
        self.novel_urls += more.novel_urls
        self.novel_bytes += more.novel_bytes
        self.dup_urls += more.dup_urls
        self.dup_bytes += more.dup_bytes
        self.not_modified_urls += more.not_modified_urls
        self.not_modified_bytes += more.not_modified_bytes
        first_s, last_s = more.first_success_s, more.last_success_s
        if first_s is not None and (self.first_success_s is None or first_s < self.first_success_s):
            self.first_success_s = first_s
        if last_s is not None and (self.last_success_s is None or last_s > self.last_success_s):
            self.last_success_s = last_s

    def copy(self) -> Totals:
        """The same, to keep."""
        fresh = Totals()
        fresh.add(self)
        return fresh


#: The fields that are sums.
SUMS = tuple(column.name for column in fields(Totals) if not column.name.endswith("_s"))


class Line(NamedTuple):
    """What one line adds, worked out."""

    host: str  #: under which it counts
    status: int
    mime: str
    source: str | None
    size_bytes: int | None
    totals: Totals
    processors: Sequence[tuple[tuple[str, str], int]]  #: (processor, counter), number


def line_of(entry: CrawlLogEntry) -> Line:
    """What a line adds."""
    host, processors = host_counted(entry.url), _processor_counts(_kind(entry))
    return Line(host, entry.status, entry.mime, entry.source, entry.size_bytes, _totals(entry), processors)


@dataclass(slots=True)
class Additions:
    """What some lines add, by everything that is counted."""

    hosts: dict[str, Totals] = field(default_factory=dict)
    mime_urls: Counter[str] = field(default_factory=Counter)
    mime_bytes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    sources: Counter[tuple[str, str]] = field(default_factory=Counter)  #: (seed, host) -> URLs
    types: set[str] = field(default_factory=set, compare=False)  #: that are counted apart; several may share it
    processors: Counter[tuple[str, str]] = field(default_factory=Counter)  #: (processor, counter) -> number

    @property
    def total(self) -> Totals:
        """Of all hosts. Cost: linear in these, since it is asked for seldom and lines are many."""
        total = Totals()
        for totals in self.hosts.values():
            total.add(totals)
        return total

    def count(self, line: Line) -> None:
        """Count one line. Cannot fail."""
        host, status, totals = line.host, line.status, line.totals
        known = self.hosts.get(host)
        if known is None:
            self.hosts[host] = totals.copy()
        else:
            known.add(totals)
        self.statuses[status] += 1
        if status > 0:
            mime = type_counted(line.mime or NO_TYPE, self.types)
            self.types.add(mime)
            self.mime_urls[mime] += 1
            self.mime_bytes[mime] += totals.bytes
            self.sources[line.source or NO_SOURCE, host] += 1
        elif status < 0:
            self.mime_urls[UNKNOWN_TYPE] += 1
        for name, number in line.processors:
            self.processors[name] += number
        if status >= FIRST_HTTP_STATUS and line.size_bytes:
            self.processors[BYTES_FETCHED] += line.size_bytes

    def merge(self, more: Additions) -> None:
        """Add what other lines add."""
        for host, totals in more.hosts.items():
            self.hosts.setdefault(host, Totals()).add(totals)
        for name in ("mime_urls", "mime_bytes", "statuses", "sources", "processors"):
            getattr(self, name).update(getattr(more, name))

    @property
    def size(self) -> int:
        """How many rows of the accounts they change."""
        return len(self.hosts) + len(self.mime_urls) + len(self.sources) + len(self.statuses) + len(self.processors)


def host_counted(url: str) -> str:
    """Under which host a URL counts: its own, `dns:` for a look-up."""
    return DNS if url.startswith(DNS) else host_of(url)[:_MAX_HOST_CHARS]


def type_counted(mime: str, known: Collection[str]) -> str:
    """Under which name a media type counts, where the `known` ones are counted already."""
    name = mime[:MAX_TYPE_CHARS]
    return name if name in known or len(known) < MAX_TYPES else OTHER_TYPES


def _totals(entry: CrawlLogEntry) -> Totals:
    if entry.status > 0:
        return _answered(entry)
    if class_of(entry.status) is StatusClass.DISREGARDED:
        return Totals(disregards=1, robots=int(entry.status == FetchStatus.ROBOTS_EXCLUDED))
    return Totals(failures=1)


def _answered(entry: CrawlLogEntry) -> Totals:
    size = entry.size_bytes or 0
    is_prerequisite = entry.hops.endswith(PREREQUISITE)
    if entry.status in HOST_BUSY and not is_prerequisite:
        return Totals(failures=1, bytes=size)  # its last try; it was given up
    totals = Totals(urls=1, bytes=size, prerequisites=int(is_prerequisite))
    totals.first_success_s, totals.last_success_s = entry.start_s, entry.end_s
    if NOT_MODIFIED in entry.annotations:
        totals.not_modified_urls, totals.not_modified_bytes = 1, size
    elif DUPLICATE_DIGEST in entry.annotations:
        totals.dup_urls, totals.dup_bytes = 1, size
    else:
        totals.novel_urls, totals.novel_bytes = 1, size
    return totals


class Kind(NamedTuple):
    """What of a line the counters of processors look at. Most lines of a crawl are of a few kinds."""

    status: int
    annotations: tuple[str, ...]
    is_prerequisite: bool
    is_lookup: bool
    has_record: bool


def _kind(entry: CrawlLogEntry) -> Kind:
    has_record = entry.extra is not None and "warcFilename" in entry.extra
    is_prerequisite, is_lookup = entry.hops.endswith(PREREQUISITE), entry.url.startswith(DNS)
    return Kind(entry.status, entry.annotations, is_prerequisite, is_lookup, has_record)


@lru_cache(maxsize=256)
def _processor_counts(kind: Kind) -> tuple[tuple[tuple[str, str], int], ...]:
    """What each line of a kind adds, by counter; what it adds nothing to is left out."""
    counts = ((name, number_of(kind)) for name, number_of in PROCESSOR_COUNTERS.items())
    return tuple((name, number) for name, number in counts if number)


def _noted(*notes: str) -> Callable[[Kind], int]:
    return lambda kind: int(any(note.startswith(notes) for note in kind.annotations))


def _links_dropped(kind: Kind) -> int:
    numbers = [note[4:] for note in kind.annotations if note.startswith("dol:")]
    return sum(int(number) for number in numbers if number.isdecimal())


def _is_tried_again(kind: Kind) -> int:
    return int(any(note[:-1].isdecimal() and note[-1:] == "t" for note in kind.annotations))


def _is_fetched(kind: Kind) -> bool:
    return kind.status >= FIRST_HTTP_STATUS


#: The one counter in which lines of a kind differ: the bytes of what was fetched.
BYTES_FETCHED = ("fetch", "bytes")

#: (processor, counter) -> how much a line of a kind adds to it. The processors are those of the chain.
PROCESSOR_COUNTERS: dict[tuple[str, str], Callable[[Kind], int]] = {
    ("preselect", "out of scope or over a limit"): lambda kind: int(-5004 <= kind.status <= -5000),
    ("preconditions", "robots.txt fetched"): lambda kind: int(kind.is_prerequisite and _is_fetched(kind)),
    ("preconditions", "names looked up"): lambda kind: int(kind.is_lookup),
    ("preconditions", "denied by robots.txt"): lambda kind: int(kind.status == FetchStatus.ROBOTS_EXCLUDED),
    ("fetch", "answers"): lambda kind: int(_is_fetched(kind)),
    ("fetch", "no answer"): lambda kind: int(-10 < kind.status < 0 and kind.status != FetchStatus.PROCESSOR_FAILED),
    ("fetch", "cut"): _noted("lenTrunc", "timeTrunc", "headerTrunc"),
    ("fetch", "not modified"): _noted(NOT_MODIFIED),
    ("extract", "gave up"): _noted("extractTimeout", "extractFailed"),
    ("extract", "links dropped"): _links_dropped,
    ("write", "records"): lambda kind: int(kind.has_record),
    ("write", "revisits"): _noted(WARC_REVISIT),
    ("disposition", "answered after retries"): lambda kind: _is_tried_again(kind) if kind.status > 0 else 0,
    ("disposition", "given up after retries"): lambda kind: _is_tried_again(kind) if kind.status < 0 else 0,
    ("disposition", "broken processors"): lambda kind: int(kind.status == FetchStatus.PROCESSOR_FAILED),
}
