"""Everything that a run would refuse an order for, found at once and without opening a job (`anabranch config validate`).

`order.loading.examine` has checked the values; this module tries what they name: policies, user functions, seeds, processes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from anabranch.crawler.archive.cdxj import index_files
from anabranch.crawler.archive.compression import compression_of, dictionary_at
from anabranch.crawler.fetch.options import proxy_faults
from anabranch.crawler.job.frontier import frontier_order, of_filter
from anabranch.crawler.job.seeds import read_seeds
from anabranch.crawler.order.fetch import fetch_options, site_of
from anabranch.crawler.order.frontier import MEMORY
from anabranch.crawler.order.loading import Examined, order_of
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sources import Layer, named_in
from anabranch.crawler.outcomes.errors import BadArgument, OrderError
from anabranch.crawler.outcomes.userfunctions import BODY_RULE, PROCESSOR, import_first_from, user_function, user_sink
from anabranch.crawler.runtime import loop_factory
from anabranch.crawler.scope.rules import user_rule
from anabranch.crawler.scope.similarity import similarity_of
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier import filter_choice, loss_warning, policy_warning
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.userfunctions import is_user_function

#: Sections and keys that name a policy, or are a table of them. Each is tried alone, the others at their defaults.
_POLICIES = (
    *(("frontier", key) for key in ("policy", "cost", "uri_precedence", "queue_precedence")),
    ("politeness", "group"),
    ("politeness", "groups"),
)

#: Sections and keys that the Frontier checks against each other; none of them may be missing for that check.
_WEIGHED = frozenset({"frontier", "politeness", "dedup"})
_WEIGHED_KEYS = frozenset({("fetch", "timeout"), ("crawl", "workers")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The faults of an order, a line each with the source and the key."""

    faults: tuple[str, ...]  #: a run would not begin
    warnings: tuple[str, ...]  #: a run would report it and continue


#: Section and key that name something, and what finds it. Raises: OrderError that begins with section and key.
Search = tuple[str, str, Callable[[], object]]


def check(examined: Examined, name: str) -> Check:
    """All faults of the order, also of what it names. Opens no job. `name` is what messages call the order."""
    order, layers = examined.order, examined.layers
    import_first_from(order.code.folder)
    policies, sound = _policies(examined)
    together: list[str] = []
    if not (examined.left_out & _WEIGHED_KEYS or any(section in _WEIGHED for section, _ in examined.left_out)):
        together += _refused(sound)
        if sound.frontier.policy == order.frontier.policy:  # else it is unknown whether hosts can be divided
            together += division_faults(order)
    together += chain(_proxy_faults(order), _sink_faults(order), budget_faults(order))
    lines = [*examined.faults, *policies]
    lines += (f"{name}: {fault}" for fault in together)
    for section, key, find in _searches(order):
        try:
            find()
        except OrderError as error:
            lines.append(f"{named_in(layers, section, key)}{str(error).removeprefix(f'[{section}] {key}')}")
    is_seed_left, bad = _seeds(examined)
    if bad and not is_seed_left:
        lines += [*bad, f"{name}: no seed is left"]
        bad = []
    warnings = bad if lines else _warnings(examined, bad)
    return Check(faults=tuple(dict.fromkeys(lines)), warnings=tuple(warnings))


def order_warnings(order: CrawlOrder) -> list[str]:
    """Return a warning line for each thing that a faultless order lacks or does in a way that few want."""
    lines = []
    if not (order.agent.contact or order.agent.user_agent):
        lines.append("no contact is configured, site owners cannot reach you; set agent.contact (--contact URL)")
    if warning := policy_warning([order.frontier.policy]):
        lines.append(warning)
    if warning := filter_warning(order):
        lines.append(warning)
    return lines


def filter_warning(order: CrawlOrder) -> str:
    """A line if the filter is expected to lose more URLs than `false_positive` allows; else empty."""
    if order.frontier.store == MEMORY:  # its filter is exact
        return ""
    warning = loss_warning(filter_choice(of_filter(order.dedup)))
    return warning and f"[dedup] {warning}"


def _warnings(examined: Examined, bad: Sequence[str]) -> Iterator[str]:
    """Yield the warnings that a run would report; `bad` has a line for each text that is no seed."""
    yield from (f"{line}; it would be skipped" for line in bad)
    if warning := policy_warning([examined.order.frontier.policy]):
        yield f"{named_in(examined.layers, 'frontier', 'policy')}: {warning}"


def _policies(examined: Examined) -> tuple[list[str], CrawlOrder]:
    """The faults of each policy and each override alone; the order without those that are refused."""
    default, sound = CrawlOrder(), examined.order
    faults = []
    for section, key in _POLICIES:
        refused = _refused(_with(default, section, key, examined.order))
        faults += [f"{named_in(examined.layers, section, key)}: {fault}" for fault in refused]
        sound = _with(sound, section, key, default) if refused else sound
    base, kept = _with(default, "frontier", "policy", sound), []
    tables = (layer.section("[override]") for layer in examined.layers if "override" in layer.tables)
    place = next(tables, "[[override]]")
    for entry in sound.override:
        refused = _refused(base.model_copy(update={"override": (entry,)}))
        faults += [f"{place}: {fault}" for fault in refused]
        kept += [] if refused else [entry]
    return faults, sound.model_copy(update={"override": tuple(kept)})


def _with(order: CrawlOrder, section: str, key: str, other: CrawlOrder) -> CrawlOrder:
    """The order with this value from `other`."""
    changed = getattr(order, section).model_copy(update={key: getattr(getattr(other, section), key)})
    return order.model_copy(update={section: changed})


def _seeds(examined: Examined) -> tuple[bool, list[str]]:
    """Whether a seed is left, or may be in what could not be read; and a line for each text that is no seed."""
    job = examined.order.job
    named = {"seeds": job.seeds, "seed_files": job.seed_file_names}
    lists = [read_seeds(sources, io.BytesIO(), named_in(examined.layers, "job", key)) for key, sources in named.items()]
    bad = [f"{bad.source}: {bad.text!r}: {bad.reason}" for one in lists for bad in one.bad]
    is_any_left = any(one.seeds for one in lists) or any(("job", key) in examined.left_out for key in named)
    return is_any_left, bad


def check_names(order: CrawlOrder, layers: Sequence[Layer]) -> None:
    """Look up the policies and functions that the order names, and whether its hosts can be divided among its processes.

    Raises: PolicyError, OrderError for the first that fails; BadArgument if the command line names it.
    """
    import_first_from(order.code.folder)
    try:
        _look_up(order)
    except (PolicyError, OrderError) as error:
        other = order_of([layer for layer in layers if not layer.is_command])
        try:
            if not other.code.withheld:
                _look_up(other)
        except (PolicyError, OrderError):
            raise error from None
        raise BadArgument(str(error)) from error


def _look_up(order: CrawlOrder) -> None:
    for fault in chain(division_faults(order), _proxy_faults(order), _sink_faults(order), budget_faults(order)):
        raise OrderError(fault)
    frontier_order(order)
    for _, _, find in _searches(order):
        find()


def _searches(order: CrawlOrder) -> Iterator[Search]:
    for name in filter(is_user_function, order.urls.canonicalization):
        yield "urls", "canonicalization", partial(Canonicalizer, [name])
    for name in order.scope.rules:
        yield "scope", "rules", partial(user_rule, name)
    yield "crawl", "loop", partial(loop_factory, order.crawl.loop)
    yield "dedup", "similar", partial(similarity_of, order)
    if order.write.warc:
        yield "write", "compression", partial(compression_of, order.write.compression, order.write.deflate, "")
        if order.write.zstd_dictionary:
            yield "write", "zstd_dictionary", partial(dictionary_at, order.write.zstd_dictionary)
        yield "write", "revisit_of", partial(index_files, order.write.revisit_folders)
    for name in order.fetch.body_rules:
        yield "fetch", "body_rules", partial(user_function, name, BODY_RULE)
    for name in order.job.processors:
        yield "job", "processors", partial(user_function, name, PROCESSOR, awaited=True)
    for name in order.job.sinks:
        yield "job", "sinks", partial(user_sink, name)


def _proxy_faults(order: CrawlOrder) -> Iterator[str]:
    return proxy_faults(fetch_options(order.fetch, ""), map(site_of, order.site))


def _sink_faults(order: CrawlOrder) -> Iterator[str]:
    if order.job.sinks and not order.write.pages:
        yield "[job] sinks: get the pages of pages.jsonl, which the order does not write; set [write] pages = true"


def budget_faults(order: CrawlOrder) -> Iterator[str]:
    """A line for budgets of groups, if there are no groups that hosts are always in."""
    keys = ("pages_per_group", "bytes_per_group", "time_per_group_s")
    given = [key.removesuffix("_s") for key in keys if getattr(order.limits, key)]
    if given and not (order.politeness.groups or order.politeness.group == "domain"):
        yield f"[limits] {given[0]}: there are no groups for it; give [politeness.groups], or [politeness] group = 'domain'"


def _refused(order: CrawlOrder) -> list[str]:
    try:
        frontier_order(order)
    except PolicyError as error:
        return [str(error)]
    return []


def division_faults(order: CrawlOrder) -> Iterator[str]:
    """A line for each wish of the order that several workers, or processes, cannot fulfil, if it wants them."""
    if order.crawl.processes > 1 and order.frontier.store:
        yield (
            f"[crawl] processes = {order.crawl.processes}: processes share a file in the job's folder; leave [frontier] store "
            "out, or start `anabranch crawl` once for each worker of a database"
        )
    elif order.crawl.processes > 1 and not order.frontier.shares:  # it will have several
        frontier = order.frontier.model_copy(update={"shares": order.crawl.processes})
        order = order.model_copy(update={"frontier": frontier})
        yield from (f"[crawl] processes = {order.crawl.processes}: {fault}" for fault in _refused(order))
    if order.frontier.is_shared:
        yield from (
            f"[{section}] similar: whether a URL is similar depends on all that came before it, and the workers of a job have "
            "no common order; leave it out, or begin a job of one worker with [frontier] shares = 1"
            for section in ("dedup", "scope")
            if getattr(order, section).similar
        )
