"""Scope: ordered rules, of which the last that decides wins; and the trace that says which one it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from anabranch.crawler.scope.places import Place
from anabranch.crawler.scope.rules import Ask, Decision, Rule, Target

#: Paths of hops for which is remembered whom to ask: those of one crawl are few, as most pages lie a few hops away.
MAX_KNOWN_HOPS = 10_000
#: Url and via -> whether to fetch it, for what was found after the same hops.
Accepts = Callable[[str, str | None], bool]
AnyLink = TypeVar("AnyLink", bound=tuple[Any, ...])


class Step(NamedTuple):
    """What one rule says of a target."""

    number: int  #: from 1, in the order of the rules
    name: str  #: the kind of the rule
    words: str  #: what the rule does
    decision: Decision | None  #: None = it says nothing of this target
    detail: str = ""  #: which of its entries decides, if it has some


class Ruling(NamedTuple):
    """What became of a target, and by which rule."""

    is_accepted: bool
    step: Step | None  #: the one that decided; None = no rule did, so it is out


class Scope:
    """Which URLs belong to the crawl: the last rule that decides wins; a URL of which none says anything is out.

    Rules are asked from the last to the first, so what stands last keeps URLs of traps from those before it. `place` is where
    seeds are added; it is part of a rule.
    """

    def __init__(self, rules: Sequence[Rule], place: Place) -> None:
        self.rules = tuple(rules)
        self._place = place
        self._parts = tuple(_fused(self.rules))
        self._accepts: dict[str, Accepts] = {}  # by hops

    def add_seed(self, url: str) -> None:
        """Open the place of a seed. Idempotent."""
        self._place.add(url)

    def accepts(self, url: str, hops: str = "", via: str | None = None) -> bool:
        """Whether to fetch this canonical URL, found after these hops on this page. Cost: 0.4 µs by the default rules.

        Raises: OwnFunctionFailed.
        """
        return self._accepts_after(hops)(url, via)

    def accepted(self, links: Sequence[AnyLink], hops: str, via: str) -> list[AnyLink]:
        """Those of the links to fetch, found on this page, which was found after these hops. Cost: 0.3 µs a link.

        A link's first parts are its URL and its hop. Raises: OwnFunctionFailed.
        """
        accepts = {hop: self._accepts_after(hops + hop) for hop in {link[1] for link in links}}
        return [link for link in links if accepts[link[1]](link[0], via)]

    def _accepts_after(self, hops: str) -> Accepts:
        """The links of a page share it, up to the last letter of their hops."""
        accepts = self._accepts.get(hops)
        if accepts is None:
            if len(self._accepts) >= MAX_KNOWN_HOPS:
                self._accepts.clear()
            accepts = self._accepts[hops] = _accepts(self._parts, hops)
        return accepts

    def decide(self, target: Target) -> Ruling:
        """The same, with the rule that decided. Raises: OwnFunctionFailed."""
        decided = next((step for step in reversed(self.trace(target)) if step.decision is not None), None)
        return Ruling(decided is not None and decided.decision is Decision.ACCEPT, decided)

    def trace(self, target: Target) -> list[Step]:
        """What each rule says, in order. Raises: OwnFunctionFailed."""
        steps = []
        for number, rule in enumerate(self.rules, 1):
            decision = rule.ask(*target)
            detail = "" if decision is None else rule.detail(target.url)
            steps.append(Step(number, rule.name, rule.words, decision, detail))
        return steps


def _fused(rules: Sequence[Rule]) -> Iterator[Ask | Rule]:
    """The rules as they are asked, from the last to the first: neighbours that are quiet are one, rules on hops stay rules."""
    for (is_quiet, by_hops), group in groupby(reversed(rules), lambda rule: (rule.quiet is not None, rule.by_hops)):
        members = tuple(group)
        if is_quiet:
            yield _guarded(members)
        elif by_hops:
            yield from members
        else:
            yield from (rule.ask for rule in members)


def _accepts(parts: Sequence[Ask | Rule], hops: str) -> Accepts:
    """Whether to fetch what was found after these hops: rules on hops are asked now, and the first that decides is the last."""
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


def _guarded(rules: Sequence[Rule]) -> Ask:
    """Rules that say nothing of short URLs with few slashes: one look spares them all."""
    limits = [rule.quiet for rule in rules if rule.quiet is not None]
    chars, slashes = min(limit.chars for limit in limits), min(limit.slashes for limit in limits)
    first = _first_of(rules)

    def ask(url: str, hops: str, via: str | None) -> Decision | None:
        if len(url) < chars and url.count("/") < slashes:
            return None
        return first(url, hops, via)

    return ask


def _first_of(rules: Sequence[Rule]) -> Ask:
    """What the first says that says anything."""
    asks = tuple(rule.ask for rule in rules)

    def ask(url: str, hops: str, via: str | None) -> Decision | None:
        for each in asks:
            decision = each(url, hops, via)
            if decision is not None:
                return decision
        return None

    return ask
