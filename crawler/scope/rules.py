"""Rules, and their kinds in a scope. A rule looks at a URL and how it was found, and accepts it, rejects it or does not decide.

Of several rules the last that decides wins. `body` has those that look at an answer before its body is read.

Their time is bounded for any URL that a site can invent, except for the operator's own patterns and functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from anabranch.crawler.outcomes.userfunctions import RULE, user_function
from anabranch.crawler.scope.seeds import AnyScope, KeyScope, SeedScope, SurtSet
from anabranch.crawler.urls.ignoresets import patterns_of
from anabranch.frontier.policies.hosts import parse_surt
from anabranch.frontier.policies.userfunctions import shown

#: Hops by which a URL belongs to the page that shows it: embedded, redirected to, guessed in a script.
TRANSCLUDED = "ERX"
SPECULATIVE = "X"

#: The schemes of canonical URLs.
WEB_SCHEMES = frozenset({"http", "https"})

#: Slashes of http://, and of http://host/.
_SCHEME_SLASHES = 2
_HOST_SLASHES = 3

#: Folders for which the decision is remembered (some MB), and the longest of them.
_MAX_FOLDERS = 10_000
_LONGEST_FOLDER = 256

#: The longest group of path segments that is looked for. 20 segments, the depth that is allowed, hold three groups of six.
LONGEST_GROUP = 16


class Target(NamedTuple):
    """A URL to judge, and how it was found."""

    url: str  #: canonical
    hops: str = ""  #: the path from the seed, one letter a hop; a seed has none
    via: str | None = None  #: the URL it was found on


class Decision(Enum):
    """A rule's decision about a URL."""

    ACCEPT = "accept"
    REJECT = "reject"


#: A user's rule of `[scope] rules`: True accepts a target, False rejects it, None leaves it to the other rules.
ScopeRule = Callable[[Target], bool | None]

#: URL, hops and via -> the rule's decision; None: it does not decide.
Ask = Callable[[str, str, str | None], Decision | None]
AnyAsk = TypeVar("AnyAsk", bound=Callable[..., Decision | None])


class Threshold(NamedTuple):
    """A rule does not decide about a URL with fewer characters and fewer slashes than these."""

    chars: float = math.inf
    slashes: float = math.inf


class Rule(NamedTuple, Generic[AnyAsk]):
    """One rule, by what it is asked. `threshold` and `by_hops` are promises that spare asking it for most links."""

    name: str  #: its kind, or the function's name
    words: str  #: what it does, for the operator
    ask: AnyAsk
    detail: Callable[[str], str] | None = None  #: URL -> the entry of the rule that decides; None: it has no entries
    threshold: Threshold | None = None  #: it does not decide about URLs below it; None: no such URLs are known
    by_hops: bool = False  #: it looks at the hops alone


#: A rule of a scope.
DecideRule = Rule[Ask]


class RuleResult(NamedTuple):
    """One rule's decision about what it was asked."""

    number: int  #: from 1, in the order of the rules
    name: str  #: the kind of the rule
    words: str  #: for the operator
    decision: Decision | None  #: None: it does not decide
    detail: str = ""  #: the entry of the rule that decides, if it has entries


def traced(rules: Sequence[Rule[Any]], url: str, *asked: object) -> list[RuleResult]:
    """The decision of each rule about what is asked of this URL, in order. Raises: UserFunctionFailed."""
    results = []
    for number, rule in enumerate(rules, 1):
        decision = rule.ask(*asked)
        detail = "" if decision is None or rule.detail is None else rule.detail(url)
        results.append(RuleResult(number, rule.name, rule.words, decision, detail))
    return results


def last_decided(rules: Sequence[Rule[Any]], *asked: object) -> tuple[int, Decision] | None:
    """The number of the last rule that decides, which wins, and its decision; None if none does. Raises: UserFunctionFailed."""
    for number in range(len(rules), 0, -1):
        if (decision := rules[number - 1].ask(*asked)) is not None:
            return number, decision
    return None


def reject_all() -> DecideRule:
    """Reject everything that no later rule accepts."""
    return DecideRule("all", "reject everything", lambda _url, _hops, _via: Decision.REJECT, by_hops=True)


def seeds(place: SeedScope) -> DecideRule:
    """Accept what a seed has opened."""
    words = f"accept {place.words}"
    if isinstance(place, AnyScope):
        return DecideRule("seeds", words, lambda _url, _hops, _via: Decision.ACCEPT, by_hops=True)
    if isinstance(place, KeyScope):  # asked for each link: this spares a call
        key, keys = place.key, place.keys
        return DecideRule("seeds", words, lambda url, _hops, _via: Decision.ACCEPT if key(url) in keys else None)
    holds = place.holds
    return DecideRule("seeds", words, lambda url, _hops, _via: Decision.ACCEPT if holds(url) else None)


def surt(prefixes: Sequence[str], decision: Decision) -> DecideRule:
    """Accept or reject what one of the prefixes covers. Raises: PolicyError for a text that is no SURT prefix."""
    table = SurtSet()
    for prefix in prefixes:
        table.add(parse_surt(prefix))
    covering = table.covering
    return DecideRule(
        "surt",
        f"{decision.value} what {_counted(prefixes, 'SURT prefix', 'SURT prefixes')} covers",
        lambda url, _hops, _via: None if covering(url) is None else decision,
        lambda url: str(covering(url) or ""),
    )


def regex(patterns: Sequence[str], decision: Decision) -> DecideRule:
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

    return DecideRule(
        "regex", f"{decision.value} what matches {_counted(patterns, 'pattern', 'patterns')}", ask, detail
    )


def ignore_sets(names: Sequence[str]) -> DecideRule:
    """Reject URLs in which a pattern of one of these ignore sets is found. Cost: 3 µs for each set."""
    named = tuple((name, pattern) for name in names for pattern in patterns_of(name))
    searches = tuple(pattern.search for _, pattern in named)

    def ask(url: str, _hops: str, _via: str | None) -> Decision | None:
        for search in searches:
            if search(url) is not None:
                return Decision.REJECT
        return None

    def detail(url: str) -> str:
        return next((f"{name}, {pattern.pattern}" for name, pattern in named if pattern.search(url) is not None), "")

    return DecideRule("ignore", f"reject what the ignore sets have: {', '.join(names)}", ask, detail)


def max_hops(most: int) -> DecideRule:
    """Reject what is more hops away from a seed. Hops of every kind count, also embeds and redirects, as in Heritrix."""
    return DecideRule(
        "max_hops",
        f"reject what is more than {most} hops from a seed",
        lambda _url, hops, _via: Decision.REJECT if len(hops) > most else None,
        by_hops=True,
    )


def embeds(most: int, most_speculative: int = 1) -> DecideRule:
    """Accept what a page shows, on any host: the last hops are one to `most` of E, R and X, with a limit for X."""

    def ask(_url: str, hops: str, _via: str | None) -> Decision | None:
        if not hops or hops[-1] not in TRANSCLUDED:
            return None
        start = len(hops.rstrip(TRANSCLUDED))
        if len(hops) - start > most or hops.count(SPECULATIVE, start) > most_speculative:
            return None
        return Decision.ACCEPT

    words = f"accept embeds and redirects: at most {most} hops of E, R or X, {most_speculative} of X"
    return DecideRule("embeds", words, ask, by_hops=True)


def path_repeats(most: int) -> DecideRule:
    """Reject URLs in which one segment, or one group of segments, occurs more than `most` times in a row: a/b/a/b/a/b/.

    The text after the last slash is not a segment; the query counts. Source: Heritrix's PathologicalPathDecideRule, which takes
    cubic time. This one takes linear time, and hardly any for a folder that was judged recently.
    """
    known: dict[str, Decision | None] = {}

    def ask(url: str, _hops: str, _via: str | None) -> Decision | None:
        folder = url[: url.rfind("/")]
        try:
            return known[folder]
        except KeyError:
            decision = Decision.REJECT if has_repeats(folder.split("/")[_HOST_SLASHES:], most) else None
            if len(known) >= _MAX_FOLDERS:
                known.clear()
            if len(folder) <= _LONGEST_FOLDER:
                known[folder] = decision
            return decision

    words = f"reject more than {most} repeats of a path segment or group in a row"
    return DecideRule("path_repeats", words, ask, threshold=Threshold(slashes=_HOST_SLASHES + most + 1))


def has_repeats(segments: Sequence[str], most: int) -> bool:
    """Whether a group of segments occurs more than `most` times in a row."""
    if len(segments) - len(set(segments)) < most:
        return False
    for size in range(1, min(LONGEST_GROUP, len(segments) // (most + 1)) + 1):
        run = 0
        for first, second in zip(segments, segments[size:], strict=False):
            run = run + 1 if first == second else 0
            if run == size * most:
                return True
    return False


def path_depth(most: int) -> DecideRule:
    """Reject paths with more slashes. Slashes of the query do not count."""
    limit = most + _SCHEME_SLASHES

    def ask(url: str, _hops: str, _via: str | None) -> Decision | None:
        return Decision.REJECT if url.partition("?")[0].count("/") > limit else None

    words = f"reject paths of more than {most} segments"
    return DecideRule("path_depth", words, ask, threshold=Threshold(slashes=limit + 1))


def url_length(most: int) -> DecideRule:
    """Reject longer URLs."""
    return DecideRule(
        "url_length",
        f"reject URLs of more than {most} characters",
        lambda url, _hops, _via: Decision.REJECT if len(url) > most else None,
        threshold=Threshold(chars=most + 1),
    )


def schemes(names: Sequence[str]) -> DecideRule:
    """Reject URLs of other schemes."""
    begins = tuple(f"{name}:" for name in names)
    return DecideRule(
        "schemes",
        f"reject schemes other than {', '.join(names)}",
        lambda url, _hops, _via: None if url.startswith(begins) else Decision.REJECT,
        threshold=Threshold() if {*names} >= WEB_SCHEMES else None,
    )


def user_rule(name: str) -> DecideRule:
    """A user function `package.module:function`, from a `Target` to True (accept), False (reject) or None.

    Raises: OrderError if it cannot be imported, or is async. Asking raises UserFunctionFailed if the function fails.
    """
    own_rule = user_function(name, RULE)

    def ask(url: str, hops: str, via: str | None) -> Decision | None:
        answer = own_rule(Target(url, hops, via))
        if answer is None:
            return None
        if not isinstance(answer, bool):
            raise own_rule.answered(answer, "True, False or None")
        return Decision.ACCEPT if answer else Decision.REJECT

    return DecideRule(name, "the operator's own", ask)


def _counted(entries: Sequence[str], one: str, many: str) -> str:
    return f"the {one} {shown(entries[0])}" if len(entries) == 1 else f"one of {len(entries)} {many}"
