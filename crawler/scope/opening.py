"""From the crawl order's section to the scope: the default order of the rules.

First what opens, then how far, then what pages show, then what closes, then the traps, then the operator's own rules. This is
Heritrix's default order, with the prefixes and patterns that open put before the hop limit: it is to hold for them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from anabranch.crawler.orders.scope import ScopeSection
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.scope import rules
from anabranch.crawler.scope.places import PLACES
from anabranch.crawler.scope.rules import Decision, Rule
from anabranch.crawler.scope.ruling import Scope
from anabranch.frontier.errors import PolicyError

#: Key of the section -> the rule that its value makes, in the order of the rules between the seeds' and the operator's own.
ORDER: Mapping[str, Callable[[Any], Rule]] = MappingProxyType(
    {
        "accept": partial(rules.surt, decision=Decision.ACCEPT),
        "include": partial(rules.regex, decision=Decision.ACCEPT),
        "max_hops": rules.max_hops,
        "max_embeds": rules.embeds,
        "reject": partial(rules.surt, decision=Decision.REJECT),
        "exclude": partial(rules.regex, decision=Decision.REJECT),
        "max_path_repeats": rules.path_repeats,
        "max_path_depth": rules.path_depth,
        "max_url_length": rules.url_length,
        "schemes": rules.schemes,
    }
)
#: A value of none makes a rule, too; with other keys 0 and an empty list say that there is none.
_ALWAYS = {"max_hops"}


def open_scope(section: ScopeSection) -> Scope:
    """The scope that the order asks for; no seed is in it yet. Raises: OrderError, which names the key."""
    place = PLACES[section.scope]()
    made = [rules.reject_all(), rules.seeds(place)]
    for key, make in ORDER.items():
        value = getattr(section, key)
        if value or key in _ALWAYS:
            made.append(_made(key, make, value))
    return Scope([*made, *map(rules.own, section.rules)], place)


def _made(key: str, make: Callable[[Any], Rule], value: object) -> Rule:
    try:
        return make(value)
    except PolicyError as error:
        raise OrderError(f"[scope] {key} has a fault: {error}") from error
