"""Everything that a run would find wrong with an order before it begins, all at once and without a trace."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from crawler.jobs.opening import frontier_order
from crawler.jobs.seeds import read_seeds
from crawler.orders.order import CrawlOrder
from frontier.errors import PolicyError

#: Section -> keys that name a policy, or are a table of them. Each is tried by itself, the others left at their defaults.
_POLICIES = {
    "frontier": ("policy", "cost", "uri_precedence", "queue_precedence"),
    "politeness": ("group", "groups"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What became of an order."""

    faults: tuple[str, ...]  #: a run would not begin
    warnings: tuple[str, ...]  #: a run would say so and go on


def check(order: CrawlOrder) -> Check:
    """Try all that the order names: policies, the user's own functions, overrides, seed files. Opens no job."""
    faults: dict[str, None] = {}  # a fault that several looks find is told once
    for find in FINDERS:
        faults |= dict.fromkeys(find(order))
    sources = [*order.job.seeds, *map(str, order.job.seed_files)]
    found = read_seeds(sources, io.BytesIO())
    warnings = [f"{bad.source}: {bad.text!r}: {bad.reason}" for bad in found.bad]
    if sources and not found.seeds:
        faults["no seed is left"] = None
    return Check(faults=tuple(faults), warnings=tuple(warnings))


def _policies(order: CrawlOrder) -> Iterator[str]:
    """Each policy by itself."""
    default = CrawlOrder()
    for section, keys in _POLICIES.items():
        for key in keys:
            asked = getattr(getattr(order, section), key)
            changed = getattr(default, section).model_copy(update={key: asked})
            yield from _refused(default.model_copy(update={section: changed}))


def _overrides(order: CrawlOrder) -> Iterator[str]:
    """Each override by itself, under the order's own policy."""
    for entry in order.override:
        yield from _refused(order.model_copy(update={"override": (entry,)}))


def _together(order: CrawlOrder) -> Iterator[str]:
    """What contradicts itself only as a whole."""
    yield from _refused(order)


def _refused(order: CrawlOrder) -> Iterator[str]:
    try:
        frontier_order(order)
    except PolicyError as error:
        yield str(error)


#: What looks for faults; each may find any number.
FINDERS: tuple[Callable[[CrawlOrder], Iterator[str]], ...] = (_policies, _overrides, _together)
