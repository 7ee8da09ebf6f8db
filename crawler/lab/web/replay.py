"""A web from a crawl.log: the hosts, sizes, fetch times and statuses of a real crawl, and its links by `via`.

- `dns:` lines, robots.txt and URLs without an HTTP status are left out; URLs found on them become seeds. So do URLs with a
  `via` that is not earlier in the log (a truncated log), or that does not answer with a page.
- https is served as http, because the server has one port without TLS. If a log has both, the answer that is not a redirect
  counts.
- If a URL occurs more than once (rounds, retries), the last answer and the first `via` count; a 304 confirms the answer before.
- The whole time of a fetch passes before its first byte, because the log does not divide it.
- A page with links is served as HTML, whatever its type was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, NotALogLine, parse_crawl_log_line
from anabranch.crawler.lab.web.model import WebHost, WebPage, is_redirect, least_bytes
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier.policies.hosts import authority

#: A body of the log that was larger is served with this size.
MAX_BODY_BYTES = 16 << 20

_STATUSES = range(200, 600)
_NOT_MODIFIED = 304
_EMBEDDING_HOPS = ("E", "I")
_DEFAULT_PORTS = (":80", ":443")


@dataclass(slots=True)
class _Entry:
    """The log's data of one URL."""

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

    def take(self, logged: CrawlLogEntry) -> None:
        """Take the answer of a later line, unless it only confirms the earlier one."""
        if logged.status not in _STATUSES or (self.status and self._is_confirmed_by(logged)):
            return
        self.scheme = urlsplit(logged.url).scheme
        self.status, self.media_type, self.size = logged.status, logged.mime, max(logged.size_bytes or 0, 0)
        self.took_s = 0.0 if logged.start_s is None or logged.end_s is None else logged.end_s - logged.start_s

    def _is_confirmed_by(self, later: CrawlLogEntry) -> bool:
        """The later answer is a 304, or just a redirect from one scheme to the other."""
        if later.status == _NOT_MODIFIED:
            return self.status != _NOT_MODIFIED
        return is_redirect(later.status) and urlsplit(later.url).scheme != self.scheme


class _Log:
    """A crawl.log while it is read: its entries, and counts of lines that cannot be served as logged."""

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}  #: by URL, in the order of the log
        self.lines = self._malformed = self._left_out = self._cut = 0

    def read(self, lines: Iterable[str]) -> None:
        """Take the lines; entries without an answer that can be served are dropped at the end."""
        for line in lines:
            if not line.strip():
                continue
            self.lines += 1
            try:
                logged = parse_crawl_log_line(line.encode("ascii", "replace"))
            except NotALogLine:
                self._malformed += 1
                continue
            url = _served_url(logged.url)
            if url is None:
                self._left_out += 1
                continue
            entry = self.entries.get(url)
            if entry is None:
                via = logged.via and _served_url(logged.via)
                entry = self.entries[url] = _Entry(self.lines, via, logged.hops.endswith(_EMBEDDING_HOPS))
            entry.take(logged)
        found = len(self.entries)
        self.entries = {url: entry for url, entry in self.entries.items() if entry.status}
        self._left_out += found - len(self.entries)

    def page(self, entry: _Entry) -> WebPage:
        """The page that is served for an entry."""
        links, embeds = tuple(entry.links), tuple(entry.embeds)
        size, media_type = entry.size, entry.media_type
        if size > MAX_BODY_BYTES:
            size = MAX_BODY_BYTES
            self._cut += 1
        if links or embeds:
            size, media_type = max(size, least_bytes(links, embeds)), "text/html"
        status = 200 if entry.status == _NOT_MODIFIED else entry.status
        return WebPage(status, media_type, size, entry.took_s, 0.0, links, embeds)

    def notes(self) -> tuple[str, ...]:
        """Return sentences on the lines and URLs that were left out or changed."""
        facts = (
            (self._malformed, f"of {self.lines:,} lines are none of a crawl.log"),
            (self._left_out, "URLs are left out: no HTTP answer, robots.txt or dns:"),
            (self._cut, f"bodies are cut at {MAX_BODY_BYTES >> 20} MiB"),
        )
        return tuple(f"{count:,} {words}" for count, words in facts if count)


class ReplayedWeb:
    """Implements `Web`. Memory: some 500 bytes and the texts, a URL."""

    def __init__(self, pages: dict[str, WebPage], seeds: tuple[str, ...], notes: tuple[str, ...]) -> None:
        self.seeds = seeds
        self.urls = len(pages)
        self.notes = notes  #: what was left out or changed, in words
        self.sites: Sequence[WebHost] = _sites(pages)
        self._pages = pages

    def page(self, url: str) -> WebPage | None:
        """The page of the URL; O(1)."""
        return self._pages.get(url)


def replayed_file(path: Path) -> ReplayedWeb:
    """The web of a crawl.log. Raises: UsageError if it cannot be read, or has no answer in it."""
    try:
        with path.open(encoding="ascii", errors="replace") as lines:
            return replayed_web(lines, name=str(path))
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}; name a crawl.log") from error


def replayed_web(lines: Iterable[str], *, name: str = "the log") -> ReplayedWeb:
    """The web of a crawl.log's lines. Cost: some 10 microseconds a line. Raises: UsageError if there is no answer in them."""
    log = _Log()
    log.read(lines)
    seeds = tuple(url for url, entry in log.entries.items() if not _is_linked(url, entry, log.entries))
    if not log.entries:
        raise UsageError(
            f"{name}: no answer of a page in {log.lines:,} lines; name the crawl.log of a crawl that fetched"
        )
    pages = {url: log.page(entry) for url, entry in log.entries.items()}
    return ReplayedWeb(pages, seeds, log.notes())


def _served_url(url: str) -> str | None:
    """The URL under which it is served: http, without a default port; None if it cannot be served."""
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
    """Add the URL to the links of the page that it was found on, if that page can have links."""
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


def _sites(pages: dict[str, WebPage]) -> list[WebHost]:
    """The hosts in the order of their first URLs, with median fetch time and mean bandwidth."""
    found: dict[str, list[WebPage]] = {}
    for url, page in pages.items():
        if place := authority(url):
            found.setdefault(place.host, []).append(page)
    return [
        WebHost(
            host=host,
            urls=len(own),
            latency_s=median(page.latency_s for page in own),
            bandwidth=max(sum(page.size for page in own) / max(sum(page.latency_s for page in own), 1e-3), 1.0),
            crawl_delay_s=None,
        )
        for host, own in found.items()
    ]
