"""What a complete crawl must fetch, found without any code of the crawler.

For the small web the page table itself says it: each link states where it leads, so no HTML is read
and no URL is parsed. For a tree of real files it is an independent reader: lxml and urllib.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from lxml import etree, html  # type: ignore[import-untyped]  # lxml ships no types

from tests.site.page import MIB, Fault, Link, Page, Web, plain_body
from tests.site.pages import WEB

Scope = Literal["host", "prefix"]

#: How many redirects of a seed make their target a seed too.
SEED_REDIRECTS = 5
MAX_BODY_BYTES = 16 * MIB

#: Final statuses of pages that never get a whole answer: Heritrix's codes for "lost" and "timed out".
_FAULT_STATUS: Mapping[Fault, int] = {
    Fault.CLOSE: -3,
    Fault.CUT: -3,
    Fault.GARBAGE: -3,
    Fault.STALL: -4,
    Fault.SILENCE: -4,
}

_ATTRIBUTES = {
    "a": "href",
    "area": "href",
    "link": "href",
    "iframe": "src",
    "frame": "src",
    "img": "src",
    "script": "src",
}
_IGNORED_RELS = {"pingback", "dns-prefetch", "preconnect"}
_HTML_SUFFIXES = {".html", ".htm", ".xhtml", ".xht"}
_PATH_SAFE = "/:@!$&'()*+,;=-._~%|[]\\^"
_QUERY_SAFE = _PATH_SAFE + "?{}`"


def expected(
    seeds: Iterable[str], scope: Scope = "host", *, table: Web = WEB, max_body_bytes: int = MAX_BODY_BYTES
) -> dict[str, int]:
    """URL -> final status of all that a complete crawl of the small web asks for, robots.txt files aside.

    Seeds are canonical http URLs. 429 and 503 that pass count by what follows them; a page that never
    answers has a negative status. A body is read up to `max_body_bytes` after decoding (which must
    be enough for the links before a page's filler). What robots.txt forbids is in `forbidden`; a host
    that does not exist is in neither.
    """
    walk = _Walk(seeds, scope, table, max_body_bytes)
    return {url: _final_status(walk.page(url)) for url in walk.found if not walk.is_forbidden(url)}


def forbidden(seeds: Iterable[str], scope: Scope = "host", *, table: Web = WEB) -> set[str]:
    """The URLs that the same crawl finds in scope and may not ask for, because of robots.txt."""
    walk = _Walk(seeds, scope, table, MAX_BODY_BYTES)
    return {url for url in walk.found if walk.is_forbidden(url)}


class _Walk:
    """A walk over the page table, breadth first, from the seeds and the targets of their redirects."""

    def __init__(self, seeds: Iterable[str], scope: Scope, table: Web, max_body_bytes: int) -> None:
        self._table = table
        self._max_body_bytes = max_body_bytes
        starts = [target for seed in seeds for target in self._with_redirects(seed)]
        self._bound_of = _BOUNDS[scope]
        self._bounds = {self._bound_of(start) for start in starts}
        self.found: list[str] = []
        self._walk(starts)

    def _walk(self, starts: list[str]) -> None:
        todo, seen = starts, set(starts)
        while todo:
            self.found += [url for url in dict.fromkeys(todo) if split_url(url)[0] in self._table]
            linked = dict.fromkeys(target for url in dict.fromkeys(todo) for target in self._targets(url))
            todo = [url for url in linked if url not in seen and self._in_scope(url)]
            seen.update(todo)

    def _with_redirects(self, seed: str) -> Iterator[str]:
        """The seed and the targets of its first redirects."""
        yield seed
        for _ in range(SEED_REDIRECTS):
            if not 300 <= self.page(seed).status < 400 or not (targets := self._targets(seed)):
                return
            seed = targets[0]
            yield seed

    def _in_scope(self, url: str) -> bool:
        return any(self._matches(url, bound) for bound in self._bounds)

    def _matches(self, url: str, bound: str) -> bool:
        return url.startswith(bound) if bound.endswith("/") else split_url(url)[0] == bound

    def is_forbidden(self, url: str) -> bool:
        host, target = split_url(url)
        return target in self._table[host].forbids

    def page(self, url: str) -> Page:
        """The page as it is once its first requests are over."""
        host, target = split_url(url)
        missing = Page(status=404, body=b"")
        return self._table[host].pages.get(target, missing) if host in self._table else missing

    def _targets(self, url: str) -> list[str]:
        """Where the page's links lead, in document order."""
        host = split_url(url)[0]
        if host not in self._table or self.is_forbidden(url):
            return []
        targets = (link.to for link in _readable_links(self.page(url), self._max_body_bytes))
        return [f"http://{host}{target}" if target.startswith("/") else target for target in targets if target]


def _readable_links(page: Page, max_body_bytes: int) -> tuple[Link, ...]:
    if page.fault is not None:
        return ()
    if 300 <= page.status < 400:
        return page.links
    if not page.is_html or page.status != 200:
        return ()
    whole = not page.late_links or len(plain_body(page)) <= max_body_bytes
    return page.links + page.late_links if whole else page.links


def _final_status(page: Page) -> int:
    return page.status if page.fault is None else _FAULT_STATUS[page.fault]


def split_url(url: str) -> tuple[str, str]:
    """(host with its port, target) of a canonical http URL."""
    host, slash, rest = url.removeprefix("http://").partition("/")
    return host, slash + rest


def _host_bound(url: str) -> str:
    return split_url(url)[0]


def _prefix_bound(url: str) -> str:
    path = url.partition("?")[0]
    return path[: path.rindex("/") + 1]


_BOUNDS = {"host": _host_bound, "prefix": _prefix_bound}


def tree_urls(root: Path, start: str, base_url: str) -> set[str]:
    """The URLs that a crawl of a folder of files, served at `base_url`, gets answered with 200.

    `start` is the first URL's path below `base_url` (a folder URL that ends in "/"). Links are href or
    src of a, area, link, iframe, frame, img, script; the first `base[href]` of a page counts; `link`
    counts by its rel. Scope is the host and port of `base_url`. A URL counts if its path is an existing
    file or a folder (with "/") that holds an index.html; queries make URLs of their own.

    Limits: only files named .html, .htm, .xhtml or .xht are read. URLs are joined by RFC 3986, not by the
    URL standard: backslashes, "%2e" and upper-case hosts in links are not understood. lxml reads HTML as
    libxml2 does: the content of `template` counts as links, and text is UTF-8, or else Latin-1.
    """
    first = _normal(base_url, start)
    todo, found, seen = [first], set(), {first}
    while todo:
        url = todo.pop()
        path = _file_of(root, url, base_url)
        if path is not None and path.is_file():
            found.add(url)
            targets = _links(path, url) if path.suffix.lower() in _HTML_SUFFIXES else []
        else:
            targets = [_with_slash(url)] if path is not None and path.is_dir() else []
        fresh = {target for target in targets if _origin(target) == _origin(base_url)} - seen
        seen |= fresh
        todo += sorted(fresh)
    return found


def _file_of(root: Path, url: str, base_url: str) -> Path | None:
    """The file that a static server answers with; a folder stands for a redirect; None = nothing."""
    below = urlsplit(base_url).path.rstrip("/") + "/"
    path = urlsplit(url).path
    if not path.startswith(below):
        return None
    wanted = root / unquote(path.removeprefix(below))
    return wanted / "index.html" if path.endswith("/") else wanted


def _with_slash(url: str) -> str:
    return urlsplit(url)._replace(path=urlsplit(url).path + "/", query="").geturl()


def _origin(url: str) -> tuple[str, str]:
    return urlsplit(url)[:2]


def _normal(base: str, raw: str) -> str:
    """The absolute URL without its fragment; "" if it is none."""
    text = raw.strip(" \t\n\r\f").replace("\t", "").replace("\n", "").replace("\r", "")
    try:
        parts = urlsplit(urljoin(base, text))
    except ValueError:
        return ""
    path = quote(parts.path or "/", safe=_PATH_SAFE)
    return urlunsplit((parts.scheme, parts.netloc, path, quote(parts.query, safe=_QUERY_SAFE), ""))


def _links(path: Path, url: str) -> list[str]:
    data = path.read_bytes()
    try:
        document = html.document_fromstring(data, parser=_parser(data))
    except etree.ParserError:  # an empty file
        return []
    bases = document.xpath("//base/@href")
    base = _normal(url, bases[0]) if bases else url
    return [_normal(base, value) for value in _values(document)]


def _parser(data: bytes) -> html.HTMLParser:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return html.HTMLParser(encoding="iso-8859-1", huge_tree=True)
    return html.HTMLParser(encoding="utf-8", huge_tree=True)


def _values(document: html.HtmlElement) -> Iterator[str]:
    for element in document.iter(*_ATTRIBUTES):
        value = element.get(_ATTRIBUTES[element.tag])
        if value is not None and (element.tag != "link" or _counts(element.get("rel"))):
            yield value


def _counts(rel: str | None) -> bool:
    """Heritrix's rule for `link`: no rel = no link; three rels name no page."""
    words = (rel or "").lower().split()
    return bool(words) and _IGNORED_RELS.isdisjoint(words)
