"""Why a URL may be fetched or not, for a person: which group of a robots.txt, and which line of it."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.crawler.robots.cache import Kept
from anabranch.crawler.robots.parsing import ALLOW_ALL, DISALLOW_ALL, MAX_ROBOTS_BYTES, RobotsRules, parse_robots
from anabranch.frontier.operating.timewords import duration_words

#: Characters of a line that are shown.
_SHOWN = 120


class Explanation(NamedTuple):
    """What one robots.txt says of one URL to one product."""

    allowed: bool
    group: str  #: the product, "*", or "" if no group speaks to it
    group_lines: tuple[int, ...]  #: the lines that name the group, from 1
    line: int | None  #: the line that decided, from 1; None: no rule did
    text: str  #: that line, as it stands there, shortened
    reason: str  #: in words
    crawl_delay_s: float | None
    sitemaps: tuple[str, ...]

    def lines(self) -> list[str]:
        """The answer, then what it rests on."""
        said = ["allowed" if self.allowed else "disallowed", f"group: {self._group()}"]
        said.append(f"line {self.line}: {self.text} ({self.reason})" if self.line is not None else self.reason)
        if self.crawl_delay_s is not None:
            said.append(f"crawl delay: {self.crawl_delay_s:g} s")
        said += [f"sitemap: {shown(sitemap)}" for sitemap in self.sitemaps]
        return said

    def _group(self) -> str:
        if not self.group:
            return "none speaks to this product"
        places = ", ".join(map(str, self.group_lines[:10])) + (", …" if len(self.group_lines) > 10 else "")
        return f"{self.group} (named in line {places})"


def explain_robots(body: bytes, url: str, product: str, *, is_cut: bool = False) -> Explanation:
    """What this robots.txt says of the canonical URL to the product token. Never raises. Cost: as `parse_robots`."""
    return explain_rules(parse_robots(body, product, is_cut=is_cut), url, body)


def explain_rules(rules: RobotsRules, url: str, body: bytes = b"") -> Explanation:
    """The same for rules that are there already; `body` is where their lines are quoted from."""
    ruling = rules.judge(url)
    return Explanation(
        allowed=ruling.allowed,
        group=rules.group,
        group_lines=rules.agents,
        line=ruling.line,
        text="" if ruling.line is None else _quoted(body, ruling.line),
        reason=ruling.reason,
        crawl_delay_s=rules.crawl_delay_s,
        sitemaps=rules.sitemaps,
    )


def kept_words(kept: Kept | None, now_s: float) -> str:
    """What a crawl knows of an origin's robots.txt, for the operator; None = nothing. Pure."""
    if kept is None or kept.until_s <= now_s:
        return "its rules are not known, or too old: the next page of its host asks for it"
    asked = f"asked for {duration_words(now_s - kept.since_s)} ago"
    left = duration_words(kept.until_s - now_s)
    if kept.rules is DISALLOW_ALL:
        return f"{asked}, it could not be had: nothing of its host is fetched, for another {left}"
    if kept.rules is ALLOW_ALL:
        return f"{asked}, it was answered as one that is not there: all is allowed, for another {left}"
    said = f"its rules for {shown(kept.rules.group)} hold" if kept.rules.group else "it says nothing to us, which holds"
    delay = f", Crawl-delay {kept.rules.crawl_delay_s:g} s" if kept.rules.crawl_delay_s else ""
    return f"{asked}, it was answered: {said} for another {left}{delay}"


def _quoted(body: bytes, number: int) -> str:
    text = body[:MAX_ROBOTS_BYTES].decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return shown(lines[number - 1].strip()) if number <= len(lines) else ""


def shown(text: str) -> str:
    """A site's text on one line of a terminal: nothing in it that is not printable, and not too much of it."""
    printable = "".join(sign if sign.isprintable() else "\ufffd" for sign in text[: _SHOWN + 1])
    return printable if len(printable) <= _SHOWN else printable[:_SHOWN] + "…"
