"""Rules before the body: they decide by the head of an answer whether its body is read. The last rule that decides wins.

The order's entries `[[body]]` come first, then the functions of `[fetch] body_rules`. Without a rule that decides the body is
read. The time of a rule is linear in what a site sends, except for the operator's own functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import translate
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from anabranch.crawler.fetch.response import PageHead, header_fields
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.quantities import exact_size
from anabranch.crawler.order.sections import BodyEntry
from anabranch.crawler.order.values import status_range
from anabranch.crawler.outcomes.userfunctions import BODY_RULE, user_function
from anabranch.crawler.scope.rules import Decision, Rule, last_decided, traced
from anabranch.crawler.scope.seeds import SurtSet
from anabranch.frontier.policies.hosts import parse_surt

#: The head of an answer -> the rule's decision; None: it does not decide. `UNANSWERED` asks what it may decide.
AskHead = Callable[[PageHead], Decision | None]
HeadRule = Rule[AskHead]

#: The status of a URL that is not answered yet.
UNANSWERED = 0
#: Begins the note of crawl.log that names the rule by its number.
BODY_RULE_NOTE = "bodyRule:"

_WORDS = {Decision.ACCEPT: "reads it", Decision.REJECT: "leaves it unread"}


class _Condition(NamedTuple):
    """One key of an entry."""

    words: str
    holds: Callable[[PageHead], bool]
    needs_answer: bool = True  #: it is not known before


class BodyRules:
    """The rules of one order. Cost: about 1 µs for each condition of the rules that are asked."""

    def __init__(self, rules: Sequence[HeadRule]) -> None:
        self._rules = tuple(rules)

    def __len__(self) -> int:
        return len(self._rules)

    def stopped_by(self, head: PageHead) -> int:
        """The number of the rule that leaves the body unread; 0 if it is read. Raises: UserFunctionFailed."""
        decided = last_decided(self._rules, head)
        return decided[0] if decided is not None and decided[1] is Decision.REJECT else 0

    def words_before(self, url: str, hops: str) -> str:
        """For `anabranch why`: a line for each rule that may decide once this URL is answered; empty without one."""
        head = PageHead(url, UNANSWERED, header_fields(()), hops=hops)
        lines = []
        for result in traced(self._rules, url, head):
            if result.decision is not None:
                lines.append(f"  {result.number} {result.name} {_WORDS[result.decision]}: {result.words}")
            elif ":" in result.name:
                lines.append(f"  {result.number} {result.name} is asked")
        return "\n".join(["of the answer, by the last rule that decides:", *lines]) if lines else ""

    def words_of(self, number: int) -> str:
        """For `anabranch why`: what the rule of this number left unread."""
        if not 0 < number <= len(self._rules):
            return f"left unread by rule {number}, which the order has no more"
        rule = self._rules[number - 1]
        return f"left unread by rule {number} ({rule.name}): {rule.words}"


def body_rules_of(order: CrawlOrder, *, runs: bool = True) -> BodyRules | None:
    """The rules of the order; None without any. `runs` False: only to explain them, user functions are not imported.

    Raises: OrderError if a function cannot be imported.
    """
    rules = [*map(_entry_rule, order.body), *(_user_rule(name, runs=runs) for name in order.fetch.body_rules)]
    return BodyRules(rules) if rules else None


def _entry_rule(entry: BodyEntry) -> HeadRule:
    """The rule of one entry: it decides where all its conditions hold."""
    conditions = (*_conditions_of_url(entry), *_conditions_of_answer(entry))
    decision = Decision.ACCEPT if entry.read else Decision.REJECT

    def ask(head: PageHead) -> Decision | None:
        is_answered = head.status != UNANSWERED
        for condition in conditions:
            if (is_answered or not condition.needs_answer) and not condition.holds(head):
                return None
        return decision

    words = ", ".join(condition.words for condition in conditions) or "whatever the answer says"
    return HeadRule("body", words, ask)


def _conditions_of_url(entry: BodyEntry) -> Iterator[_Condition]:
    """The conditions of an entry on the URL, and on how it was found."""
    if entry.hops:
        search = re.compile(entry.hops).search
        yield _Condition(f"hops {entry.hops}", lambda head: search(head.hops) is not None, needs_answer=False)
    if entry.surt:
        covers = _covering(entry.surt)
        yield _Condition(f"URLs below {_listed(entry.surt)}", lambda head: covers(head.url), needs_answer=False)
    if entry.seeds:
        led = _covering(entry.seeds)
        words = f"found from seeds below {_listed(entry.seeds)}"
        yield _Condition(words, lambda head: led(head.seed))  # `why` does not know it


def _conditions_of_answer(entry: BodyEntry) -> Iterator[_Condition]:
    """The conditions of an entry on what the server says, and who it is."""
    if entry.status:
        ranges = tuple(map(status_range, entry.status))
        words = f"status {_listed(entry.status)}"
        yield _Condition(words, lambda head: any(low <= head.status <= high for low, high in ranges))
    if entry.min_length_bytes:
        least = entry.min_length_bytes
        yield _Condition(f"at least {exact_size(least)}", lambda head: (head.length or 0) >= least)
    if entry.max_length_bytes:
        most = entry.max_length_bytes
        yield _Condition(f"at most {exact_size(most)}", lambda head: (head.length or most + 1) <= most)
    if entry.media_types:
        fits = _any_of(entry.media_types)
        yield _Condition(f"media type {_listed(entry.media_types)}", lambda head: fits(head.media_type))
    for name, pattern in entry.headers.items():
        yield _Condition(f"{name}: {pattern}", _of_field(name, pattern))
    if entry.addresses:
        yield _Condition(f"address in {_listed(entry.addresses)}", _in_networks(entry.addresses))


def _user_rule(name: str, *, runs: bool) -> HeadRule:
    """A user function: True reads the body, False leaves it unread. Raises: OrderError; asking raises UserFunctionFailed."""
    function = user_function(name, BODY_RULE) if runs else None

    def ask(head: PageHead) -> Decision | None:
        if function is None or head.status == UNANSWERED:
            return None
        answer = function(head)
        if answer is None:
            return None
        if not isinstance(answer, bool):
            raise function.answered(answer, "True, False or None")
        return Decision.ACCEPT if answer else Decision.REJECT

    return HeadRule(name, "the operator's own", ask)


def _any_of(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether one of the patterns, in which * stands for any text, is the whole text. Linear time, as fnmatch's are atomic."""
    match = re.compile("|".join(map(translate, patterns)), re.IGNORECASE).match
    return lambda text: match(text) is not None


def _of_field(name: str, pattern: str) -> Callable[[PageHead], bool]:
    fits = _any_of((pattern,))
    return lambda head: any(map(fits, head.headers.getall(name, ())))


def _covering(prefixes: Sequence[str]) -> Callable[[str], bool]:
    table = SurtSet()
    for prefix in prefixes:
        table.add(parse_surt(prefix))
    return lambda url: table.covering(url) is not None


def _in_networks(texts: Sequence[str]) -> Callable[[PageHead], bool]:
    networks = tuple(map(ip_network, texts))

    @lru_cache(10_000)
    def holds(text: str) -> bool:
        address: IPv4Address | IPv6Address | None = None
        with suppress(ValueError):  # none, behind a proxy
            address = ip_address(text)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in networks if address is not None)

    return lambda head: holds(head.address)


def _listed(texts: Sequence[str]) -> str:
    return " or ".join(texts)
