"""The lines and groups of a robots.txt, read for one product (RFC 9309, 2.1 and 2.2).

It is read as its authors mean it, as Google does: misspelt names, a missing colon, an agent with a version. A line that makes
no sense is left out and disturbs no other. Bytes are taken as Latin-1, one character each, so that nothing is lost of a file
that is no UTF-8. UTF-16 with a byte order mark is decoded first. A NUL ends what is read of its line, as in Google's parser
(github.com/google/robotstxt, robots.cc), which keeps lines as C strings.

Limits: the first 500 KiB, whole lines only: the line in which the limit falls is not read, since half a rule is another rule.
Of a longer line the first 16,663 octets, as Google's parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from anabranch.crawler.robots.patterns import PatternIndex, allows_by, line_of, normalised_path, normalised_pattern

#: RFC 9309 section 2.5: at least 500 KiB must be read; we read no more.
MAX_ROBOTS_BYTES = 500 * 1024
#: Octets of a line that are read: Google's buffer is eight times the longest URL of an old browser, and its last place a NUL's.
MAX_LINE_OCTETS = 8 * 2083 - 1
#: Sitemaps that are noted, and the longest of their URLs.
MAX_SITEMAPS = 500
MAX_SITEMAP_OCTETS = 8192

_AGENT, _ALLOW, _DISALLOW, _SITEMAP, _DELAY = "user-agent", "allow", "disallow", "sitemap", "crawl-delay"
_RULES = frozenset({_ALLOW, _DISALLOW})

#: What a line's name may begin with, and what is meant. The misspellings are those that Google takes as well.
_NAMES: dict[str, str] = {
    "user-agent": _AGENT,
    "useragent": _AGENT,
    "user agent": _AGENT,
    "allow": _ALLOW,
    "disallow": _DISALLOW,
    "dissallow": _DISALLOW,
    "dissalow": _DISALLOW,
    "disalow": _DISALLOW,
    "diasllow": _DISALLOW,
    "disallaw": _DISALLOW,
    "sitemap": _SITEMAP,
    "site-map": _SITEMAP,
    "crawl-delay": _DELAY,
    "crawldelay": _DELAY,
}

_BLANK = " \t\v\f"
_TOKEN = re.compile(r"[A-Za-z0-9_.-]*")
_SECONDS = re.compile(r"(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(?![\d.,eE])")
#: The beginning of a UTF-8 byte order mark, whole or cut, as Latin-1.
_MARKS = ("\xef\xbb\xbf", "\xef\xbb", "\xef")


class Line(NamedTuple):
    """One line that says something."""

    number: int  #: from 1
    kind: str
    value: str  #: one character per octet


class Ruling(NamedTuple):
    """What is to be said of one URL."""

    allowed: bool
    line: int | None  #: of the rule that decided; None: no rule matches, or none was asked
    reason: str  #: in words


class RobotsRules:
    """What a robots.txt says to one product. Frozen after `parse_robots`."""

    __slots__ = ("_default", "_index", "agents", "crawl_delay_s", "group", "sitemaps", "size_bytes")

    #: Seconds between two fetches that the host asks for; None = it asks for nothing.
    crawl_delay_s: float | None
    #: URLs of sitemaps as they stand there, in their order.
    sitemaps: tuple[str, ...]
    #: Who is spoken to: the product, "*", or nobody ("").
    group: str
    #: The lines on which the group is named, from 1.
    agents: tuple[int, ...]
    #: What it takes in memory, about.
    size_bytes: int

    def __init__(
        self,
        index: PatternIndex | None,
        *,
        default: bool = True,
        crawl_delay_s: float | None = None,
        sitemaps: tuple[str, ...] = (),
        named: tuple[str, tuple[int, ...]] = ("", ()),
    ) -> None:
        self._index = index
        self._default = default
        self.crawl_delay_s = crawl_delay_s
        self.sitemaps = sitemaps
        self.group, self.agents = named
        self.size_bytes = 500 + 40 * len(self.agents) + sum(100 + len(sitemap) for sitemap in sitemaps)
        self.size_bytes += 0 if index is None else index.size_bytes

    def allows(self, url: str) -> bool:
        """True if the product may fetch the canonical URL. Never raises. Cost: see `PatternIndex.heaviest`."""
        return self.judge(url).allowed

    def judge(self, url: str) -> Ruling:
        """The same, with the line that decided. `/robots.txt` itself is always allowed (RFC 9309, 2.2.2)."""
        path = path_of(url)
        if path.partition("?")[0] == "/robots.txt" and (self._index is not None or self._default):
            return Ruling(True, None, "robots.txt may always be fetched")
        if self._index is None:
            return Ruling(self._default, None, "all may be fetched" if self._default else "nothing may be fetched")
        weight = self._index.heaviest(normalised_path(path))
        if weight is None:
            return Ruling(False, None, "the rules cost too much to judge, so we stay away")
        if not weight:
            return Ruling(True, None, "no rule matches")
        return Ruling(allows_by(weight), line_of(weight), "this rule has the most octets")

    def __repr__(self) -> str:
        kind = f"{len(self._index)} rules" if self._index is not None else f"{'' if self._default else 'dis'}allow all"
        return f"<RobotsRules {kind}, crawl delay {self.crawl_delay_s}>"


#: There is no robots.txt: everything is allowed.
ALLOW_ALL = RobotsRules(None, default=True)
#: robots.txt could not be had: nothing is allowed until it can.
DISALLOW_ALL = RobotsRules(None, default=False)


def parse_robots(body: bytes, product: str, *, is_cut: bool = False) -> RobotsRules:
    """The rules of a robots.txt for a product token ("anabranch", not the whole User-Agent; its case does not matter).

    All groups that name the whole token count as one; if there are none, those of `*`; if there are none, nothing is
    forbidden. `is_cut`: the body is only the beginning. Never raises. Cost: linear but for a sort, 2 to 8 µs a line: 300 ms for
    the worst 500 KiB, so larger bodies belong in a thread.
    """
    reader = _Reader(product.lower())
    for line in lines_of(body, is_cut=is_cut):
        reader.read(line)
    return reader.rules()


def lines_of(body: bytes, *, is_cut: bool = False) -> Iterator[Line]:
    """The lines that are understood; a file of CR, LF or CRLF, or all of them."""
    names: dict[str, str | None] = {}
    for number, text in enumerate(_texts(body, is_cut=is_cut), 1):
        said = text[:MAX_LINE_OCTETS].partition("\0")[0].partition("#")[0].strip(_BLANK)
        if not said:
            continue
        name, colon, value = said.partition(":")
        if not colon:
            words = said.split()
            if len(words) != 2:
                continue
            name, value = words  # "Disallow /private": the colon was forgotten
        if name not in names:
            names[name] = _kind_of(name.strip(_BLANK).lower())
        kind = names[name]
        if kind is not None:
            yield Line(number, kind, value.strip(_BLANK))


def _texts(body: bytes, *, is_cut: bool) -> list[str]:
    read = body[:MAX_ROBOTS_BYTES]
    is_cut = is_cut or len(body) > len(read)
    if read.startswith((b"\xff\xfe", b"\xfe\xff")):
        read = read.decode("utf-16", "replace").encode()
    if is_cut:
        ends = max(read.rfind(b"\n"), read.rfind(b"\r"))
        read = read[: ends + 1]
    text = read.decode("latin-1")
    for mark in _MARKS:
        if text.startswith(mark):
            text = text[len(mark) :]
            break
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _kind_of(name: str) -> str | None:
    return next((kind for known, kind in _NAMES.items() if name.startswith(known)), None)


class _Group:
    """What all groups of one agent say, as one."""

    def __init__(self) -> None:
        self.index = PatternIndex()
        self.agents: list[int] = []
        self.delay_s: float | None = None


class _Reader:
    """Goes through the lines and keeps what is said to the product and to everybody."""

    def __init__(self, product: str) -> None:
        self._product = product
        self._groups = {product: _Group(), "*": _Group()}
        self._spoken_to: list[_Group] = []  #: by the lines of the group that is being read
        self._is_head = False  #: only agents were named yet; other lines than rules do not end that
        self._sitemaps: list[str] = []

    def read(self, line: Line) -> None:
        """Take in the next line."""
        if line.kind in _RULES:
            self._rule(line)
        elif line.kind == _AGENT:
            self._name(line)
        elif line.kind == _SITEMAP:
            if len(self._sitemaps) < MAX_SITEMAPS and 0 < len(line.value) <= MAX_SITEMAP_OCTETS:
                self._sitemaps.append(line.value.encode("latin-1").decode("utf-8", "replace"))
        else:
            self._keep_distance(line.value)

    def _rule(self, line: Line) -> None:
        """An empty rule, or one that does not begin at the root, matches nothing; it ends the group's head all the same."""
        self._is_head = False
        if not self._spoken_to or line.value[:1] not in {"/", "*"}:
            return
        pattern = normalised_pattern(line.value)
        allows = line.kind == _ALLOW
        for group in self._spoken_to:
            group.index.add(pattern, line.number, allows=allows)
            if allows and "/index.htm" in pattern:
                self._allow_folder(group, pattern, line.number)

    def _name(self, line: Line) -> None:
        if not self._is_head:
            self._spoken_to = []
        self._is_head = True
        group = self._groups.get(agent_of(line.value))
        if group is not None:
            group.agents.append(line.number)
            if group not in self._spoken_to:
                self._spoken_to.append(group)

    @staticmethod
    def _allow_folder(group: _Group, pattern: str, number: int) -> None:
        """Who allows `/a/index.html` allows `/a/`, too, as Google reads it."""
        folder, slash, name = pattern.rpartition("/")
        if name.startswith("index.htm"):
            group.index.add(f"{folder}{slash}$", number, allows=True)

    def _keep_distance(self, value: str) -> None:
        """Of several delays the longest holds; what is no number of seconds says nothing."""
        found = _SECONDS.match(value)
        if found is None:
            return
        for group in self._spoken_to:
            group.delay_s = max(float(found.group()), group.delay_s or 0.0)

    def rules(self) -> RobotsRules:
        """What holds for the product."""
        for name in (self._product, "*"):
            group = self._groups[name]
            if group.agents:
                group.index.compact()
                return RobotsRules(
                    group.index,
                    crawl_delay_s=group.delay_s,
                    sitemaps=tuple(self._sitemaps),
                    named=(name, tuple(group.agents)),
                )
        return RobotsRules(PatternIndex(), sitemaps=tuple(self._sitemaps))


def agent_of(value: str) -> str:
    """The agent that a User-agent line names: its product token in lower case, without version or comment; `*` for all."""
    if value == "*" or value[:2] in {"* ", "*\t"}:
        return "*"
    found = _TOKEN.match(value)
    return found.group().lower() if found else ""


def path_of(url: str) -> str:
    """Path and query of a canonical URL, from the slash on."""
    rest = url.partition("://")[2].partition("#")[0]
    start = min((at for sign in "/?" if (at := rest.find(sign)) >= 0), default=len(rest))
    return rest[start:] if rest[start : start + 1] == "/" else "/" + rest[start:]
