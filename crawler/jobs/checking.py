"""Everything that a run would find wrong with an order before it begins, all at once and without a trace."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from crawler.jobs.opening import frontier_order
from crawler.jobs.seeds import ORDER, read_seeds
from crawler.orders.layers import Layer
from crawler.orders.order import CrawlOrder
from crawler.orders.sources import order_of
from crawler.outcomes.errors import BadArgument, OrderError
from crawler.outcomes.ownfunctions import is_own
from crawler.processors.own import own_processor
from crawler.scope.rules import own as own_rule
from crawler.urls.canonicalization import Canonicalizer
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
    sources = order.job.sources
    found = read_seeds(sources, io.BytesIO(), ORDER)
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


def _own_functions(order: CrawlOrder) -> Iterator[str]:
    """Each function of the operator's own by itself."""
    for find in _searches(order):
        try:
            find()
        except OrderError as error:
            yield str(error)


def check_names(order: CrawlOrder, layers: Sequence[Layer]) -> None:
    """Look up the policies and functions that the order names, as a run will; `layers` are what it is of.

    Raises: PolicyError, OrderError for the first that fails; BadArgument if it is the command line that names it.
    """
    try:
        _look_up(order)
    except (PolicyError, OrderError) as error:
        try:
            _look_up(order_of([layer for layer in layers if not layer.is_command]))
        except (PolicyError, OrderError):
            raise error from None
        raise BadArgument(str(error)) from error


def _look_up(order: CrawlOrder) -> None:
    frontier_order(order)
    for find in _searches(order):
        find()


def _searches(order: CrawlOrder) -> Iterator[Callable[[], object]]:
    for name in filter(is_own, order.urls.canonicalization):
        yield partial(Canonicalizer, [name])
    for name in order.scope.rules:
        yield partial(own_rule, name)
    for name in order.job.processors:
        yield partial(own_processor, name)


def _refused(order: CrawlOrder) -> Iterator[str]:
    try:
        frontier_order(order)
    except PolicyError as error:
        yield str(error)


#: What looks for faults; each may find any number.
FINDERS: tuple[Callable[[CrawlOrder], Iterator[str]], ...] = (_policies, _overrides, _together, _own_functions)
