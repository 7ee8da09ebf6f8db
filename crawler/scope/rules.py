"""The kinds of rules that a scope is made of. Each looks at a URL and how it was found, and accepts, rejects or says nothing.

Pure, apart from what a function of the operator's own does. The time is bounded whatever URLs a site makes up, except for what
the operator's patterns take.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from anabranch.crawler.outcomes.ownfunctions import RULE, own_function, shown
from anabranch.crawler.scope.places import Everywhere, Place
from anabranch.crawler.scope.surts import SurtSet
from anabranch.frontier.policies.surt import parse_surt

#: Hops by which a URL belongs to the page that shows it: embedded, redirected to, guessed in a script.
TRANSCLUDED = "ERX"
SPECULATIVE = "X"

#: What canonical URLs are of.
WEB_SCHEMES = frozenset({"http", "https"})

#: Slashes of http://, and of http://host/.
_SCHEME_SLASHES = 2
_HOST_SLASHES = 3

#: Folders whose verdicts are remembered, some MB; longer ones are not.
_MAX_FOLDERS = 10_000
_LONGEST_FOLDER = 256

#: Groups of more path segments are not looked for: 20 segments, the depth that is allowed, hold three of six.
LONGEST_GROUP = 16


class Target(NamedTuple):
    """What is judged."""

    url: str  #: canonical
    hops: str = ""  #: the path from the seed, one letter a hop; a seed has none
    via: str | None = None  #: the URL it was found on


class Decision(Enum):
    """What a rule says of a URL."""

    ACCEPT = "accept"
    REJECT = "reject"


#: Url, hops and via -> what the rule says; None = nothing.
Ask = Callable[[str, str, str | None], Decision | None]


def _no_detail(url: str) -> str:  # noqa: ARG001 - one of several
    return ""


class Quiet(NamedTuple):
    """A rule says nothing of URLs that have both fewer characters and fewer slashes; infinity: its own limit is the other."""

    chars: float = math.inf
    slashes: float = math.inf


class Rule(NamedTuple):
    """One rule of a scope. What it promises of itself (`quiet`, `by_hops`) spares asking it for most links."""

    name: str  #: its kind, or the function's name
    words: str  #: what it does, for the operator
    ask: Ask
    detail: Callable[[str], str] = _no_detail  #: URL -> which of its entries decides; empty if it has none
    quiet: Quiet | None = None  #: URLs that it says nothing of; None: none are known
    by_hops: bool = False  #: it looks at the hops alone


def reject_all() -> Rule:
    """What no later rule accepts is out."""
    return Rule("all", "reject everything", lambda _url, _hops, _via: Decision.REJECT, by_hops=True)


def seeds(place: Place) -> Rule:
    """Accept what lies in a place that a seed opened."""
    holds, words = place.holds, f"accept {place.words}"
    if isinstance(place, Everywhere):
        return Rule("seeds", words, lambda _url, _hops, _via: Decision.ACCEPT, by_hops=True)
    return Rule("seeds", words, lambda url, _hops, _via: Decision.ACCEPT if holds(url) else None)


def surt(prefixes: Sequence[str], decision: Decision) -> Rule:
    """Accept or reject what one of the prefixes covers. Raises: PolicyError for what is no SURT prefix."""
    table = SurtSet()
    for prefix in prefixes:
        table.add(parse_surt(prefix))
    covering = table.covering
    return Rule(
        "surt",
        f"{decision.value} what {_counted(prefixes, 'SURT prefix', 'SURT prefixes')} covers",
        lambda url, _hops, _via: None if covering(url) is None else decision,
        lambda url: str(covering(url) or ""),
    )


def regex(patterns: Sequence[str], decision: Decision) -> Rule:
    """Accept or reject URLs in which one of the patterns is found. Raises: re.error."""
    searches = tuple(re.compile(pattern).search for pattern in patterns)

    def ask(url: str, _hops: str, _via: str | None) -> Decision | None:
        for search in searches:
            if search(url) is not None:
                return decision
        return None

    def detail(url: str) -> str:
        found = (pattern for pattern, search in zip(patterns, searches, strict=True) if search(url) is not None)
        return next(found, "")

    return Rule("regex", f"{decision.value} what matches {_counted(patterns, 'pattern', 'patterns')}", ask, detail)


def max_hops(most: int) -> Rule:
    """Reject what is more hops away from a seed, of whatever kind: embeds and redirects count, as in Heritrix."""
    return Rule(
        "max_hops",
        f"reject what is more than {most} hops from a seed",
        lambda _url, hops, _via: Decision.REJECT if len(hops) > most else None,
        by_hops=True,
    )


def embeds(most: int, most_speculative: int = 1) -> Rule:
    """Accept what a page shows, wherever it lies: the last hops are one to `most` of E, R and X, with a limit for X."""

    def ask(_url: str, hops: str, _via: str | None) -> Decision | None:
        if not hops or hops[-1] not in TRANSCLUDED:
            return None
        start = len(hops.rstrip(TRANSCLUDED))
        if len(hops) - start > most or hops.count(SPECULATIVE, start) > most_speculative:
            return None
        return Decision.ACCEPT

    words = f"accept embeds and redirects: at most {most} hops of E, R or X, {most_speculative} of X"
    return Rule("embeds", words, ask, by_hops=True)


def path_repeats(most: int) -> Rule:
    """Reject URLs in which one segment, or one group of segments, stands more than `most` times in a row: a/b/a/b/a/b/.

    What stands behind the last slash is no segment; the query is looked at, too. Groups have at most 16 segments. Source:
    Heritrix's PathologicalPathDecideRule, whose pattern takes cubic time; this takes linear time, and next to
    none for a folder met lately: the links of a page lie in few.
    """
    known: dict[str, Decision | None] = {}

    def ask(url: str, _hops: str, _via: str | None) -> Decision | None:
        folder = url[: url.rfind("/")]
        try:
            return known[folder]
        except KeyError:
            said = Decision.REJECT if has_repeats(folder.split("/")[_HOST_SLASHES:], most) else None
            if len(known) >= _MAX_FOLDERS:
                known.clear()
            if len(folder) <= _LONGEST_FOLDER:
                known[folder] = said
            return said

    words = f"reject more than {most} repeats of a path segment or group in a row"
    return Rule("path_repeats", words, ask, quiet=Quiet(slashes=_HOST_SLASHES + most + 1))


def has_repeats(segments: Sequence[str], most: int) -> bool:
    """Whether a group of segments stands more than `most` times in a row."""
    if len(segments) - len(set(segments)) < most:
        return False
    for size in range(1, min(LONGEST_GROUP, len(segments) // (most + 1)) + 1):
        run = 0
        for first, second in zip(segments, segments[size:], strict=False):
            run = run + 1 if first == second else 0
            if run == size * most:
                return True
    return False


def path_depth(most: int) -> Rule:
    """Reject paths with more slashes; those of the query do not count."""
    limit = most + _SCHEME_SLASHES

    def ask(url: str, _hops: str, _via: str | None) -> Decision | None:
        return Decision.REJECT if url.partition("?")[0].count("/") > limit else None

    words = f"reject paths of more than {most} segments"
    return Rule("path_depth", words, ask, quiet=Quiet(slashes=limit + 1))


def url_length(most: int) -> Rule:
    """Reject longer URLs."""
    return Rule(
        "url_length",
        f"reject URLs of more than {most} characters",
        lambda url, _hops, _via: Decision.REJECT if len(url) > most else None,
        quiet=Quiet(chars=most + 1),
    )


def schemes(names: Sequence[str]) -> Rule:
    """Reject URLs of other schemes."""
    begins = tuple(f"{name}:" for name in names)
    return Rule(
        "schemes",
        f"reject schemes other than {', '.join(names)}",
        lambda url, _hops, _via: None if url.startswith(begins) else Decision.REJECT,
        quiet=Quiet() if {*names} >= WEB_SCHEMES else None,
    )


def own(name: str) -> Rule:
    """The operator's `package.module:function`, from a `Target` to True (accept), False (reject) or None.

    Raises: OrderError if it cannot be imported, or is async. Asking raises OwnFunctionFailed if the function fails.
    """
    own_rule = own_function(name, RULE)

    def ask(url: str, hops: str, via: str | None) -> Decision | None:
        answer = own_rule(Target(url, hops, via))
        if answer is None:
            return None
        if not isinstance(answer, bool):
            raise own_rule.answered(answer, "True, False or None")
        return Decision.ACCEPT if answer else Decision.REJECT

    return Rule(name, "the operator's own", ask)


def _counted(entries: Sequence[str], one: str, many: str) -> str:
    return f"the {one} {shown(entries[0])}" if len(entries) == 1 else f"one of {len(entries)} {many}"
