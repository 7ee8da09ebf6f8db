"""Scope: ordered rules, of which the last that decides wins. Builds them from the order, asks them, explains them.

The default order is Heritrix's: what seeds, SURT prefixes and patterns accept, the hop limit, embeds, what is rejected, crawler
traps, the operator's own rules. But the prefixes and patterns come before the hop limit, so that it holds for them, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.scope import rules
from anabranch.crawler.scope.rules import Ask, DecideRule, Decision, Rule, RuleResult, Target, traced
from anabranch.crawler.scope.seeds import SEED_SCOPES, SeedScope
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.times import counted

#: Key of the order's section -> the rule that its value makes, in the order of the rules between the seeds' and the operator's.
ORDER: Mapping[str, Callable[[Any], DecideRule]] = MappingProxyType(
    {
        "accept": partial(rules.surt, decision=Decision.ACCEPT),
        "include": partial(rules.regex, decision=Decision.ACCEPT),
        "max_hops": rules.max_hops,
        "max_embeds": rules.embeds,
        "reject": partial(rules.surt, decision=Decision.REJECT),
        "exclude": partial(rules.regex, decision=Decision.REJECT),
        "ignore": rules.ignore_sets,
        "max_path_repeats": rules.path_repeats,
        "max_path_depth": rules.path_depth,
        "max_url_length": rules.url_length,
        "schemes": rules.schemes,
    }
)
#: Hop paths for which the rules to ask are remembered. A crawl has few: most pages are a few hops away.
MAX_KNOWN_HOPS = 10_000

#: URL and via -> whether to fetch it, for URLs that were found by the same hops.
Accepts = Callable[[str, str | None], bool]
AnyLink = TypeVar("AnyLink", bound=tuple[Any, ...])


def open_scope(section: ScopeSection) -> Scope:
    """Build the scope that the order asks for, still without seeds. Raises: OrderError, which names the key."""
    seed_scope = SEED_SCOPES[section.scope]()
    return Scope(_rules_of(section, seed_scope), seed_scope)


def _rules_of(section: ScopeSection, seed_scope: SeedScope) -> list[DecideRule]:
    made = [rules.reject_all(), rules.seeds(seed_scope)]
    for key, make in ORDER.items():
        value = getattr(section, key)
        if value or key == "max_hops":  # 0 hops is a limit; with other keys 0 and an empty list switch the rule off
            try:
                made.append(make(value))
            except PolicyError as error:
                raise OrderError(f"[scope] {key} has a fault: {error}") from error
    return [*made, *map(rules.user_rule, section.rules)]


class Scope:
    """Decides which URLs belong to the crawl: the last rule that decides wins, and is asked first; without one a URL is out."""

    def __init__(self, rules: Sequence[DecideRule], seed_scope: SeedScope) -> None:
        self._seed_scope = seed_scope
        self._set_rules(rules)

    def add_seed(self, url: str) -> None:
        """Open the part of the web around this seed. Idempotent."""
        self._seed_scope.add(url)

    def change(self, section: ScopeSection) -> None:
        """Decide by the rules of this section from now on; the part of the web around the seeds stays. Raises: OrderError."""
        self._set_rules(_rules_of(section, self._seed_scope))

    def _set_rules(self, rules: Sequence[DecideRule]) -> None:
        self.rules = tuple(rules)
        self._parts = tuple(_fused(self.rules))
        self._accepts: dict[str, Accepts] = {}  # by hops

    def accepts(self, url: str, hops: str = "", via: str | None = None) -> bool:
        """Whether to fetch this canonical URL, found by these hops on `via`. Cost: 0.4 µs. Raises: UserFunctionFailed."""
        return self._accepts_after(hops)(url, via)

    def accepted(self, links: Sequence[AnyLink], hops: str, via: str) -> list[AnyLink]:
        """The links (URL, hop, …) to fetch of `via`, found by `hops`. Cost: 0.3 µs each. Raises: UserFunctionFailed."""
        accepts = {hop: self._accepts_after(hops + hop) for hop in {link[1] for link in links}}
        return [link for link in links if accepts[link[1]](link[0], via)]

    def trace(self, target: Target) -> list[RuleResult]:
        """The decision of each rule, in order. Raises: UserFunctionFailed."""
        return traced(self.rules, target.url, *target)

    def _accepts_after(self, hops: str) -> Accepts:
        """The rules to ask after these hops. All links of a page share them, up to their last hop."""
        accepts = self._accepts.get(hops)
        if accepts is None:
            if len(self._accepts) >= MAX_KNOWN_HOPS:
                self._accepts.clear()
            accepts = self._accepts[hops] = _accepts(self._parts, hops)
        return accepts


def blocked_by(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether one of the operator's patterns ([scope] block) matches a URL."""
    blocks = [re.compile(pattern) for pattern in patterns]
    return lambda url: any(block.search(url) for block in blocks)


def explain_scope(scope: Scope, url: str, hops: str, via: str | None) -> str:
    """For `anabranch why`: the rule that decided, then each rule that decides, a line each. Raises: UserFunctionFailed."""
    decided = [result for result in scope.trace(Target(url, hops, via)) if result.decision is not None]
    if not decided:
        return "out of scope: no rule accepts it"
    last = decided[-1]
    is_in = "in" if last.decision is Decision.ACCEPT else "out of"
    found = f"after {counted(len(hops), 'hop')} ({hops})" if hops else "as a seed"
    lines = [f"{is_in} scope {found}, by rule {last.number} ({last.name})"]
    for result in decided:
        verdict = "accepts" if result.decision is Decision.ACCEPT else "rejects"
        detail = f": {result.detail}" if result.detail and result.detail not in result.words else ""
        lines.append(f"  {result.number} {result.name} {verdict}: {result.words}{detail}")
    return "\n".join(lines)


def _fused(rules: Sequence[DecideRule]) -> Iterator[Ask | DecideRule]:
    """The rules from the last to the first: neighbours with a threshold become one question, rules on hops stay rules."""
    for (has_threshold, by_hops), group in groupby(
        reversed(rules), lambda rule: (rule.threshold is not None, rule.by_hops)
    ):
        members = tuple(group)
        if has_threshold:
            yield _guarded(members)
        elif by_hops:
            yield from members
        else:
            yield from (rule.ask for rule in members)


def _accepts(parts: Sequence[Ask | DecideRule], hops: str) -> Accepts:
    """The question to ask after these hops. Rules on hops are asked now; the first of them that decides ends the list."""
    asked, decided = list[Ask](), None
    for part in parts:
        if not isinstance(part, Rule):
            asked.append(part)
        elif (decided := part.ask("", hops, None)) is not None:
            break
    is_accepted = decided is Decision.ACCEPT

    def accepts(url: str, via: str | None) -> bool:
        for ask in asked:
            if (decision := ask(url, hops, via)) is not None:
                return decision is Decision.ACCEPT
        return is_accepted

    return accepts


def _guarded(rules: Sequence[DecideRule]) -> Ask:
    """Rules that decide about no short URL with few slashes: one comparison spares asking them."""
    limits = [rule.threshold for rule in rules if rule.threshold is not None]
    chars, slashes = min(limit.chars for limit in limits), min(limit.slashes for limit in limits)
    asks = tuple(rule.ask for rule in rules)

    def ask(url: str, hops: str, via: str | None) -> Decision | None:
        if len(url) < chars and url.count("/") < slashes:
            return None
        for each in asks:
            if (decision := each(url, hops, via)) is not None:
                return decision
        return None

    return ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The limits of each host, or of each group of hosts; 0: no limit."""

    pages: int = 0  #: URLs that were answered
    bytes: int = 0  #: of bodies, as they came over the wire
    time: float = 0.0  #: seconds since the first fetch


class Used(NamedTuple):
    """The amounts that a host, or a group, has used up."""

    pages: int = 0
    bytes: int = 0
    time: float = 0.0


class OverQuota(NamedTuple):
    """Why a URL is not fetched any more."""

    status: FetchStatus
    annotation: str  #: `Q:` and the name of the limit, as `crawl.log` has it


def over_quota(quotas: Quotas, used: Used, whose: str = "host") -> OverQuota | None:
    """The first limit that is reached; None if one more URL may be fetched. `whose`: as the keys of `[limits]` end."""
    if 0 < quotas.pages <= used.pages:
        return OverQuota(FetchStatus.OVER_QUOTA, f"Q:pages_per_{whose}")
    if 0 < quotas.bytes <= used.bytes:
        return OverQuota(FetchStatus.OVER_QUOTA, f"Q:bytes_per_{whose}")
    if 0 < quotas.time <= used.time:
        return OverQuota(FetchStatus.OVER_TIME, f"Q:time_per_{whose}")
    return None
