"""A crawl.log as a web: the hosts, sizes, fetch times and statuses of a real crawl, and its links by `via`.

Only what was answered can be answered again: `dns:` lines, robots.txt, URLs with a negative status or none of HTTP's are left
out, and what they led to becomes a seed. So does a URL whose `via` does not stand before it in the log (a log that was cut), or
answers with no page now. https is served as http, since the lab's server has one port without TLS; where a log has both, the
answer that is no redirect counts. Of a URL that stands in the log more than once (rounds, retries) the last answer counts, and
the first `via`; a 304 says that the answer before it still holds. A fetch's whole time passes before its first byte: the log
does not say how it was parted.

A page that led to others is HTML here whatever it was, since links are written in HTML alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from anabranch.crawler.lab.web.model import Page, Site, is_redirect
from anabranch.crawler.lab.web.pages import least_bytes
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.reporting.crawl_log import CrawlLogEntry
from anabranch.crawler.reporting.crawl_log_parsing import NotALogLine, parse_crawl_log_line
from anabranch.frontier.policies.authority import authority

#: A body of the log that was larger is served with this size.
MAX_BODY_BYTES = 16 << 20

_STATUSES = range(200, 600)
_NOT_MODIFIED = 304
_EMBEDDING_HOPS = ("E", "I")
_DEFAULT_PORTS = (":80", ":443")


@dataclass(slots=True)
class _Entry:
    """What the log says of one URL."""

    order: int  #: of its first line
    via: str | None
    is_embed: bool
    scheme: str = ""  #: of the answer that counts
    status: int = 0
    media_type: str = ""
    size: int = 0
    took_s: float = 0.0
    links: list[str] = field(default_factory=list)
    embeds: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Counts:
    """Lines and URLs that are not as they stand in the log."""

    lines: int = 0
    malformed: int = 0
    left_out: int = 0
    cut: int = 0

    def notes(self) -> tuple[str, ...]:
        facts = (
            (self.malformed, f"of {self.lines:,} lines are none of a crawl.log"),
            (self.left_out, "URLs are left out: no HTTP answer, robots.txt or dns:"),
            (self.cut, f"bodies are cut at {MAX_BODY_BYTES >> 20} MiB"),
        )
        return tuple(f"{count:,} {words}" for count, words in facts if count)


class ReplayedWeb:
    """Implements `Web`. Memory: some 500 bytes and the texts, a URL."""

    def __init__(self, pages: dict[str, Page], seeds: tuple[str, ...], notes: tuple[str, ...]) -> None:
        self.seeds = seeds
        self.urls = len(pages)
        self.notes = notes  #: what was left out or changed, in words
        self.sites: Sequence[Site] = _sites(pages)
        self._pages = pages

    def page(self, url: str) -> Page | None:
        """What the log says of the URL; O(1)."""
        return self._pages.get(url)


def replayed_file(path: Path) -> ReplayedWeb:
    """The web of a file. Raises: UsageError if it cannot be read, or has no answer in it."""
    try:
        with path.open(encoding="ascii", errors="replace") as lines:
            return replayed_web(lines, name=str(path))
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}; name a crawl.log") from error


def replayed_web(lines: Iterable[str], *, name: str = "the log") -> ReplayedWeb:
    """The web of a crawl.log's lines. Cost: some 10 microseconds a line. Raises: UsageError if there is no answer in them."""
    counts = _Counts()
    entries = _entries(lines, counts)
    seeds = tuple(url for url, entry in entries.items() if not _is_linked(url, entry, entries))
    if not entries:
        raise UsageError(
            f"{name}: no answer of a page in {counts.lines:,} lines; name the crawl.log of a crawl that fetched"
        )
    pages = {url: _page(entry, counts) for url, entry in entries.items()}
    return ReplayedWeb(pages, seeds, counts.notes())


def _entries(lines: Iterable[str], counts: _Counts) -> dict[str, _Entry]:
    """URL -> what the log says of it, in the order of the log; only what can be served."""
    entries: dict[str, _Entry] = {}
    for line in lines:
        if not line.strip():
            continue
        counts.lines += 1
        try:
            logged = parse_crawl_log_line(line.encode("ascii", "replace"))
        except NotALogLine:
            counts.malformed += 1
            continue
        url = _served_url(logged.url)
        if url is None:
            counts.left_out += 1
            continue
        entry = entries.get(url)
        if entry is None:
            via = logged.via and _served_url(logged.via)
            entry = entries[url] = _Entry(counts.lines, via, logged.hops.endswith(_EMBEDDING_HOPS))
        _take(entry, logged)
    served = {url: entry for url, entry in entries.items() if entry.status}
    counts.left_out += len(entries) - len(served)
    return served


def _take(entry: _Entry, logged: CrawlLogEntry) -> None:
    """The answer of a later line takes the place of an earlier one's, if it is one."""
    if logged.status not in _STATUSES or (entry.status and _holds(entry, logged)):
        return
    entry.scheme = urlsplit(logged.url).scheme
    entry.status, entry.media_type, entry.size = logged.status, logged.mime, max(logged.size_bytes or 0, 0)
    entry.took_s = 0.0 if logged.start_s is None or logged.end_s is None else logged.end_s - logged.start_s


def _holds(entry: _Entry, later: CrawlLogEntry) -> bool:
    """The answer that counts stays: the later one says so, or is but a redirect from one scheme to the other."""
    if later.status == _NOT_MODIFIED:
        return entry.status != _NOT_MODIFIED
    return is_redirect(later.status) and urlsplit(later.url).scheme != entry.scheme


def _served_url(url: str) -> str | None:
    """The URL by which it is served: http, without a default port; None if it cannot be."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.path == "/robots.txt":
        return None
    if authority(url) is None:
        return None
    netloc = parts.netloc.lower()
    for port in _DEFAULT_PORTS:
        netloc = netloc.removesuffix(port)
    query = f"?{parts.query}" if "?" in url else ""
    return f"http://{netloc}{parts.path or '/'}{query}"


def _is_linked(url: str, entry: _Entry, entries: dict[str, _Entry]) -> bool:
    """Enter the URL in the page that it was found on, if there is one that can lead to it."""
    parent = entries.get(entry.via or "")
    if parent is None or parent.order >= entry.order:
        return False
    if is_redirect(parent.status) and not parent.links:
        parent.links.append(url)
    elif parent.status == 200:
        (parent.embeds if entry.is_embed else parent.links).append(url)
    else:
        return False
    return True


def _page(entry: _Entry, counts: _Counts) -> Page:
    links, embeds = tuple(entry.links), tuple(entry.embeds)
    size, media_type = entry.size, entry.media_type
    if size > MAX_BODY_BYTES:
        size = MAX_BODY_BYTES
        counts.cut += 1
    if links or embeds:
        size, media_type = max(size, least_bytes(links, embeds)), "text/html"
    status = 200 if entry.status == _NOT_MODIFIED else entry.status
    return Page(status, media_type, size, entry.took_s, 0.0, links, embeds)


def _sites(pages: dict[str, Page]) -> list[Site]:
    """The hosts, in the order of their first URLs, with the median of their fetch times and their bytes in all that time."""
    found: dict[str, list[Page]] = {}
    for url, page in pages.items():
        if place := authority(url):
            found.setdefault(place.host, []).append(page)
    return [
        Site(
            host=host,
            urls=len(own),
            latency_s=median(page.latency_s for page in own),
            bandwidth=max(sum(page.size for page in own) / max(sum(page.latency_s for page in own), 1e-3), 1.0),
            crawl_delay_s=None,
        )
        for host, own in found.items()
    ]
