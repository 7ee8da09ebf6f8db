"""Everything that a run would find wrong with an order before it begins, all at once and without a trace."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from anabranch.crawler.jobs.opening import frontier_order
from anabranch.crawler.jobs.seeds import SeedList, read_seeds
from anabranch.crawler.loops import loop_factory
from anabranch.crawler.orders.examining import Examined
from anabranch.crawler.orders.layers import Layer, named_in
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.orders.sources import order_of
from anabranch.crawler.outcomes.errors import BadArgument, OrderError
from anabranch.crawler.outcomes.ownfunctions import import_first_from, is_own
from anabranch.crawler.processes.orders import undivided
from anabranch.crawler.processors.own import own_processor
from anabranch.crawler.scope.rules import own as own_rule
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.errors import PolicyError

#: Section -> keys that name a policy, or are a table of them. Each is tried by itself, the others left at their defaults.
_POLICIES = {
    "frontier": ("policy", "cost", "uri_precedence", "queue_precedence"),
    "politeness": ("group", "groups"),
}

#: What the Frontier weighs against each other: sections, and keys of others.
_WEIGHED = frozenset({"frontier", "politeness", "dedup"})
_WEIGHED_KEYS = frozenset({("fetch", "timeout"), ("crawl", "workers")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What became of an order; a line each, which names the source and the key."""

    faults: tuple[str, ...]  #: a run would not begin
    warnings: tuple[str, ...]  #: a run would say so and go on


class Search(NamedTuple):
    """What the order names and is to be found: a function of the operator's own, an event loop."""

    section: str
    key: str
    find: Callable[[], object]  #: Raises: OrderError that begins with section and key


def check(examined: Examined, name: str) -> Check:
    """Try all that the order names: policies, the user's own functions, overrides, seed files. Opens no job.

    `name` is what the order is called. What could not be read is told too, and nothing that may come of its being left out.
    """
    import_first_from(examined.order.job.modules)
    policies, sound = _policies(examined)
    overrides, sound = _overrides(examined, sound)
    together = [] if _lacks_weight(examined) else [f"{name}: {fault}" for fault in _together(examined.order, sound)]
    found, bad = _seeds(examined)
    own = _own_functions(examined)
    lines = [*examined.faults, *policies, *overrides, *together, *own]
    if bad and not found:
        lines += [*bad, f"{name}: no seed is left"]
        bad = []
    return Check(faults=tuple(dict.fromkeys(lines)), warnings=tuple(bad))


def _policies(examined: Examined) -> tuple[list[str], CrawlOrder]:
    """Each policy by itself; the order with the default in place of each that is refused."""
    default, sound = CrawlOrder(), examined.order
    faults = []
    for section, keys in _POLICIES.items():
        for key in keys:
            refused = list(_refused(_with(default, section, key, examined.order)))
            faults += [f"{named_in(examined.layers, section, key)}: {fault}" for fault in refused]
            sound = _with(sound, section, key, default) if refused else sound
    return faults, sound


def _overrides(examined: Examined, sound: CrawlOrder) -> tuple[list[str], CrawlOrder]:
    """Each override by itself, under the order's policy; the order without those that are refused."""
    base = _with(CrawlOrder(), "frontier", "policy", sound)
    place = next(
        (layer.section("[override]") for layer in examined.layers if "override" in layer.tables), "[[override]]"
    )
    faults, kept = [], []
    for entry in sound.override:
        refused = list(_refused(base.model_copy(update={"override": (entry,)})))
        faults += [f"{place}: {fault}" for fault in refused]
        kept += [] if refused else [entry]
    return faults, sound.model_copy(update={"override": tuple(kept)})


def _with(order: CrawlOrder, section: str, key: str, other: CrawlOrder) -> CrawlOrder:
    """The order with this value of another one."""
    changed = getattr(order, section).model_copy(update={key: getattr(getattr(other, section), key)})
    return order.model_copy(update={section: changed})


def _together(order: CrawlOrder, sound: CrawlOrder) -> Iterator[str]:
    """What does not go together in an order. Whether hosts can be divided, only its own policy says."""
    yield from _refused(sound)
    if sound.frontier.policy == order.frontier.policy:
        yield from undivided(order)


def _lacks_weight(examined: Examined) -> bool:
    """Something is missing that the rest would have to be weighed against."""
    left_out = examined.left_out
    return any(section in _WEIGHED for section, _ in left_out) or bool(left_out & _WEIGHED_KEYS)


def _seeds(examined: Examined) -> tuple[bool, list[str]]:
    """Whether a seed is left, or may be among what could not be read, and a line for each that is none."""
    job = examined.order.job
    named = {"seeds": job.seeds, "seed_files": job.seed_file_names}
    lists: list[SeedList] = [
        read_seeds(sources, io.BytesIO(), named_in(examined.layers, "job", key)) for key, sources in named.items()
    ]
    bad = [f"{bad.source}: {bad.text!r}: {bad.reason}" for one in lists for bad in one.bad]
    is_any_left = any(one.seeds for one in lists) or any(("job", key) in examined.left_out for key in named)
    return is_any_left, bad


def _own_functions(examined: Examined) -> Iterator[str]:
    """Each function of the operator's own by itself."""
    for section, key, find in _searches(examined.order):
        try:
            find()
        except OrderError as error:
            yield f"{named_in(examined.layers, section, key)}{str(error).removeprefix(f'[{section}] {key}')}"


def check_names(order: CrawlOrder, layers: Sequence[Layer]) -> None:
    """Look up the policies and functions that the order names, as a run will, and whether its hosts can be divided as it wants;
    `layers` are what it is of.

    Raises: PolicyError, OrderError for the first that fails; BadArgument if it is the command line that names it.
    """
    import_first_from(order.job.modules)
    try:
        _look_up(order)
    except (PolicyError, OrderError) as error:
        try:
            _look_up(order_of([layer for layer in layers if not layer.is_command]))
        except (PolicyError, OrderError):
            raise error from None
        raise BadArgument(str(error)) from error


def _look_up(order: CrawlOrder) -> None:
    for fault in undivided(order):
        raise OrderError(fault)
    frontier_order(order)
    for search in _searches(order):
        search.find()


def _searches(order: CrawlOrder) -> Iterator[Search]:
    for name in filter(is_own, order.urls.canonicalization):
        yield Search("urls", "canonicalization", partial(Canonicalizer, [name]))
    for name in order.scope.rules:
        yield Search("scope", "rules", partial(own_rule, name))
    yield Search("crawl", "loop", partial(loop_factory, order.crawl.loop))
    for name in order.job.processors:
        yield Search("job", "processors", partial(own_processor, name))


def _refused(order: CrawlOrder) -> Iterator[str]:
    try:
        frontier_order(order)
    except PolicyError as error:
        yield str(error)
