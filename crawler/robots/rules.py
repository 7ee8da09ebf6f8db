"""The rules of a robots.txt for one product (RFC 9309, 2.1 and 2.2): parsing, deciding about a URL, explaining the decision.

The parser reads what authors mean, as Google's does (github.com/google/robotstxt, robots.cc): misspelt names, a missing colon,
an agent with a version, a NUL that ends its line. Bytes are read as Latin-1, so files that are not UTF-8 lose nothing; UTF-16
with a byte order mark is decoded first. Limits: the first 500 KiB, whole lines only; of a line the first 16,663 octets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from anabranch.crawler.robots.patterns import PatternIndex, allows_by, line_of, normalised_path, normalised_pattern

#: RFC 9309 section 2.5: a crawler must parse at least 500 KiB; we parse no more.
MAX_ROBOTS_BYTES = 500 * 1024
#: Octets of a line that are read: Google's buffer is eight times the longest URL of an old browser, with a NUL at its end.
MAX_LINE_OCTETS = 8 * 2083 - 1
#: The most sitemaps that are kept, and their longest URL.
MAX_SITEMAPS = 500
MAX_SITEMAP_OCTETS = 8192

_AGENT, _ALLOW, _DISALLOW, _SITEMAP, _DELAY = "user-agent", "allow", "disallow", "sitemap", "crawl-delay"
_RULES = frozenset({_ALLOW, _DISALLOW})

#: Beginning of a line's name -> its meaning. The misspellings are those that Google accepts.
_NAMES: dict[str, str] = {
    **dict.fromkeys(("user-agent", "useragent", "user agent"), _AGENT),
    "allow": _ALLOW,
    **dict.fromkeys(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"), _DISALLOW),
    **dict.fromkeys(("sitemap", "site-map"), _SITEMAP),
    **dict.fromkeys(("crawl-delay", "crawldelay"), _DELAY),
}

_BLANK = " \t\v\f"
_TOKEN = re.compile(r"[A-Za-z0-9_.-]*")
_SECONDS = re.compile(r"(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(?![\d.,eE])")
#: The beginning of a UTF-8 byte order mark, whole or cut, as Latin-1.
_BYTE_ORDER_MARKS = ("\xef\xbb\xbf", "\xef\xbb", "\xef")
#: The most characters of a line that are shown.
_SHOWN = 120


class RobotsLine(NamedTuple):
    """One line that is understood."""

    number: int  #: from 1
    kind: str
    value: str  #: one character per octet


class RobotsDecision(NamedTuple):
    """Whether one URL may be fetched, and why."""

    allowed: bool
    line: int | None  #: of the rule that decided; None: no rule matches, or there are none
    reason: str  #: for people


class RobotsRules:
    """The rules of a robots.txt for one product. Immutable."""

    __slots__ = ("_default", "_index", "agents", "crawl_delay_s", "group", "sitemaps", "size_bytes")

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
        self.sitemaps = sitemaps  #: URLs as written, in their order
        #: The group that applies (the product, "*", or none: ""), and the lines that name it, from 1.
        self.group, self.agents = named
        #: Approximate memory of the rules.
        self.size_bytes = 500 + 40 * len(self.agents) + sum(100 + len(sitemap) for sitemap in sitemaps)
        self.size_bytes += 0 if index is None else index.size_bytes

    def allows(self, url: str) -> bool:
        """Whether the product may fetch the canonical URL. Never raises. Cost: see `PatternIndex.heaviest`."""
        return self.decide(url).allowed

    def decide(self, url: str) -> RobotsDecision:
        """Decide whether the product may fetch the canonical URL, and name the line that decided. Cost: as `allows`.

        `/robots.txt` itself is allowed by all rules (RFC 9309, 2.2.2) but `DISALLOW_ALL`. Never raises.
        """
        path = path_of(url)
        if path.partition("?")[0] == "/robots.txt" and (self._index is not None or self._default):
            return RobotsDecision(True, None, "robots.txt may always be fetched")
        if self._index is None:
            reason = "everything may be fetched" if self._default else "nothing may be fetched"
            return RobotsDecision(self._default, None, reason)
        weight = self._index.heaviest(normalised_path(path))
        if weight is None:
            return RobotsDecision(False, None, "the rules cost too much to match, so the URL is refused")
        if not weight:
            return RobotsDecision(True, None, "no rule matches")
        return RobotsDecision(allows_by(weight), line_of(weight), "this rule has the most octets")

    def __repr__(self) -> str:
        kind = f"{len(self._index)} rules" if self._index is not None else f"{'' if self._default else 'dis'}allow all"
        return f"<RobotsRules {kind}, crawl delay {self.crawl_delay_s}>"


#: There is no robots.txt: everything is allowed.
ALLOW_ALL = RobotsRules(None, default=True)
#: robots.txt cannot be fetched: nothing is allowed until it can.
DISALLOW_ALL = RobotsRules(None, default=False)
#: robots.txt could not be fetched for so long that the order allows everything, until it is requested again.
ALLOW_UNREACHABLE = RobotsRules(None, default=True)
#: Rules that are none of a robots.txt: it is requested again soon.
UNREACHABLE = (DISALLOW_ALL, ALLOW_UNREACHABLE)


def parse_robots(body: bytes, product: str, *, is_cut: bool = False) -> RobotsRules:
    """The rules of a robots.txt for a product token ("anabranch", not the whole User-Agent) in any case. Never raises.

    All groups that name the token count as one; without any, those of `*`; without those, everything is allowed. `is_cut`: the
    body is only the beginning. Cost: 2 to 8 µs a line: 300 ms for the worst 500 KiB, so parse large bodies in a thread.
    """
    parser = _RobotsParser(product.lower())
    for line in lines_of(body, is_cut=is_cut):
        parser.read(line)
    return parser.rules()


def lines_of(body: bytes, *, is_cut: bool = False) -> Iterator[RobotsLine]:
    """The lines that are understood, ended by CR, LF or CRLF."""
    names: dict[str, str | None] = {}
    for number, text in enumerate(_split_lines(body, is_cut=is_cut), 1):
        statement = text[:MAX_LINE_OCTETS].partition("\0")[0].partition("#")[0].strip(_BLANK)
        if not statement:
            continue
        name, colon, value = statement.partition(":")
        if not colon:
            words = statement.split()
            if len(words) != 2:
                continue
            name, value = words  # "Disallow /private": the colon was forgotten
        if name not in names:
            lowered = name.strip(_BLANK).lower()
            names[name] = next((kind for known, kind in _NAMES.items() if lowered.startswith(known)), None)
        kind = names[name]
        if kind is not None:
            yield RobotsLine(number, kind, value.strip(_BLANK))


def _split_lines(body: bytes, *, is_cut: bool) -> list[str]:
    read = body[:MAX_ROBOTS_BYTES]
    is_cut = is_cut or len(body) > len(read)
    if read.startswith((b"\xff\xfe", b"\xfe\xff")):
        read = read.decode("utf-16", "replace").encode()
    if is_cut:
        ends = max(read.rfind(b"\n"), read.rfind(b"\r"))
        read = read[: ends + 1]
    text = read.decode("latin-1")
    for mark in _BYTE_ORDER_MARKS:
        if text.startswith(mark):
            text = text[len(mark) :]
            break
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


class _Group:
    def __init__(self) -> None:
        self.index = PatternIndex()
        self.agents: list[int] = []
        self.delays: list[float] = []


class _RobotsParser:
    """Collects the groups of the product and of `*`, line by line."""

    def __init__(self, product: str) -> None:
        self._product = product
        self._groups = {product: _Group(), "*": _Group()}
        self._current: list[_Group] = []  #: of those two, the ones that the current group names
        self._is_head = False  #: the current group has no rule yet
        self._sitemaps: list[str] = []

    def read(self, line: RobotsLine) -> None:
        if line.kind in _RULES:
            self._read_rule(line)
        elif line.kind == _AGENT:
            self._read_agent(line)
        elif line.kind == _SITEMAP:
            if len(self._sitemaps) < MAX_SITEMAPS and 0 < len(line.value) <= MAX_SITEMAP_OCTETS:
                self._sitemaps.append(line.value.encode("latin-1").decode("utf-8", "surrogateescape"))
        elif found := _SECONDS.match(line.value):
            for group in self._current:
                group.delays.append(float(found.group()))

    def _read_rule(self, line: RobotsLine) -> None:
        """A rule that does not begin at the root matches nothing; but it ends the group's head."""
        self._is_head = False
        if not self._current or line.value[:1] not in {"/", "*"}:
            return
        pattern = normalised_pattern(line.value)
        allows = line.kind == _ALLOW
        for group in self._current:
            group.index.add(pattern, line.number, allows=allows)
            folder, _, name = pattern.rpartition("/")
            if allows and name.startswith("index.htm"):  # it allows the folder itself, too, as in Google's parser
                group.index.add(f"{folder}/$", line.number, allows=True)

    def _read_agent(self, line: RobotsLine) -> None:
        if not self._is_head:
            self._current = []
        self._is_head = True
        group = self._groups.get(agent_of(line.value))
        if group is not None:
            group.agents.append(line.number)
            if group not in self._current:
                self._current.append(group)

    def rules(self) -> RobotsRules:
        for name in (self._product, "*"):
            group = self._groups[name]
            if group.agents:
                group.index.compact()
                return RobotsRules(
                    group.index,
                    crawl_delay_s=max(group.delays, default=None),
                    sitemaps=tuple(self._sitemaps),
                    named=(name, tuple(group.agents)),
                )
        return RobotsRules(PatternIndex(), sitemaps=tuple(self._sitemaps))


def agent_of(value: str) -> str:
    """The agent of a User-agent line: its product token in lower case, without version or comment; `*` for all."""
    if value == "*" or value[:2] in {"* ", "*\t"}:
        return "*"
    found = _TOKEN.match(value)
    return found.group().lower() if found else ""


def path_of(url: str) -> str:
    """Path and query of a canonical URL, from the slash."""
    rest = url.partition("://")[2].partition("#")[0]
    start = min((at for sign in "/?" if (at := rest.find(sign)) >= 0), default=len(rest))
    return rest[start:] if rest[start : start + 1] == "/" else "/" + rest[start:]


def explain_rules(rules: RobotsRules, url: str, body: bytes = b"") -> list[str]:
    """The rules' decision about a canonical URL in lines, then its grounds; `body` is the robots.txt to quote from."""
    allowed, number, reason = rules.decide(url)
    group = "none applies to this product"
    if rules.group:
        places = ", ".join(map(str, rules.agents[:10])) + (", …" if len(rules.agents) > 10 else "")
        group = f"{rules.group} (named in line {places})"
    lines = ["allowed" if allowed else "disallowed", f"group: {group}"]
    lines.append(reason if number is None else f"line {number}: {_quoted(body, number)} ({reason})")
    if rules.crawl_delay_s is not None:
        lines.append(f"crawl delay: {rules.crawl_delay_s:g} s")
    return lines + [f"sitemap: {shown(sitemap)}" for sitemap in rules.sitemaps]


def _quoted(body: bytes, number: int) -> str:
    text = body[:MAX_ROBOTS_BYTES].decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return shown(lines[number - 1].strip()) if number <= len(lines) else ""


def shown(text: str) -> str:
    """A site's text, safe for one line of a terminal: printable characters only, shortened."""
    printable = "".join(sign if sign.isprintable() else "\ufffd" for sign in text[: _SHOWN + 1])
    return printable if len(printable) <= _SHOWN else printable[:_SHOWN] + "…"
