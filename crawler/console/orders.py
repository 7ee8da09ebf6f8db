"""Orders that clients of a console give, for a new job or as a template: the keys that they may set, and how faults are found.

Most orders come from other machines, so they are refused what names code, files, variables or addresses of this one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from anabranch.crawler.job.checking import check_names
from anabranch.crawler.job.folder import check_new_name
from anabranch.crawler.operate import FrontierError
from anabranch.crawler.order.loading import Examined, examine
from anabranch.crawler.order.order import CrawlOrder, order_tables
from anabranch.crawler.order.sources import Layer
from anabranch.crawler.outcomes.errors import CrawlerError, OrderError, UsageError
from anabranch.frontier import is_user_function

#: Characters of an order: its parser takes seconds for some texts of a megabyte.
_MOST_ORDER_CHARS = 1 << 20

#: Section -> keys that an order from the API may set. No value of theirs names code, files, variables, databases, or an
#: address to listen on, except a user function. Other keys, also new ones, are refused: see `machine_faults`.
ALLOWED: Mapping[str, str] = {
    "job": "name seeds seed_files source_tags schedule schedule_zone schedule_starts",
    "agent": "product contact user_agent",
    "urls": "canonicalization",
    "scope": (
        "scope max_hops max_embeds include exclude accept reject ignore block max_path_repeats max_path_depth "
        "max_url_length schemes similar similar_expect"
    ),
    "frontier": (
        "policy politeness balance_replenish total_budget error_penalty cost uri_precedence queue_precedence "
        "precedence_floor per_queue lease_s checkpoint_s gates_in_memory "
        "domain_workers slow_workers slow_fetch_s shares worker_lease_s"
    ),
    "politeness": (
        "delay_factor min_delay_s max_delay_s max_connections backoff_base_s backoff_cap_s backoff_jitter "
        "backoff_forgive_s max_retry_after_s group groups group_delay_factor group_min_delay_s "
        "group_max_delay_s group_max_connections"
    ),
    "robots": "robots max_crawl_delay_s cache_s unreachable_s allow_tries allow_after_s meta nofollow_links",
    "crawl": "workers loop processes",
    "limits": (
        "pages fetched_bytes time_s pages_per_host bytes_per_host time_per_host_s "
        "pages_per_group bytes_per_group time_per_group_s min_free_disk_bytes on_limit"
    ),
    "fetch": (
        "timeout_s connect_timeout_s first_byte_timeout_s read_timeout_s min_rate_bytes bandwidth_bytes "
        "host_bandwidth_bytes max_body_bytes "
        "accept_encoding headers cookies referer proxy proxy_resolves tls_verify tls_old ipv4 ipv6 allow_private "
        "conditional"
    ),
    "extract": (
        "max_outlinks css sitemaps forms speculative data_attributes embed_attributes link_attributes "
        "max_content_bytes timeout_s"
    ),
    "dns": "servers hosts timeout_s min_ttl_s max_ttl_s",
    "dedup": (
        "filter exact expect false_positive signature levels leaf_kind leaf_bits split_fan_out mapped_limit_bytes "
        "similar similar_expect similar_features similar_false_positive"
    ),
    "write": "warc warc_prefix warc_size_bytes compression deflate revisit pages links operator",
    "logs": "format extra_info",
    "report": "progress interval_s statistics_interval_s reports",
    "override": (
        "surt delay_factor min_delay_s max_delay_s max_connections balance_replenish total_budget "
        "queue_precedence key uri_precedence"
    ),
    "site": "surt headers user proxy cookies max_body_bytes",
    "body": "read status media_types min_length_bytes max_length_bytes headers addresses hops surt seeds",
}
#: Sections whose values may be a user function, package.module:function.
_WITH_FUNCTIONS = ("urls", "frontier", "politeness", "dedup", "override")


def examined_order(
    name: str, given: str | Mapping[str, Any], seed_file: Path, template: Mapping[str, Any] | None = None
) -> Examined:
    """The order of a new job, with its faults; the keys of a template count where it has none. Raises: OrderError if it is no
    TOML.
    """
    own = {"job": {"name": name, "seed_files": [str(seed_file)]}}
    layers = [
        Layer(tables=own, section_form="[{section}]", key_form="{key}", origin_form="the console"),
        Layer(
            tables=tables_of(given), section_form="[{section}]", key_form="[{section}] {key}", origin_form="the order"
        ),
    ]
    if template is not None:
        layers.append(
            Layer(
                tables=template,
                section_form="the template, [{section}]",
                key_form="the template, [{section}] {key}",
                origin_form="the template",
            )
        )
    return examine(layers)


def tables_of(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """The sections of an order. Raises: OrderError if it is no TOML, or too long."""
    if isinstance(given, str) and len(given) > _MOST_ORDER_CHARS:
        raise OrderError(
            f"the order: more than {_MOST_ORDER_CHARS:,} characters; start such a job with `anabranch crawl -c`"
        )
    try:
        return tomllib.loads(given) if isinstance(given, str) else dict(given)
    except RecursionError as error:
        raise OrderError("the order: nested too deeply; it has only sections and keys") from error
    except ValueError as error:
        raise OrderError(f"the order: not TOML: {' '.join(str(error).split())}") from error


def sound_order(examined: Examined) -> CrawlOrder:
    """The order. Raises: OrderError, all faults; UsageError for what only a file on the machine may order."""
    if examined.faults:
        raise OrderError("; ".join(examined.faults))
    for fault in machine_faults(examined.order):
        raise UsageError(fault)
    check_names(examined.order, examined.layers)
    return examined.order


def name_faults(job: str, examined: Examined) -> Iterator[str]:
    """A line if a policy or another name is unknown, or the job's is unfit; the order names no code of the machine."""
    try:
        check_new_name(job)
        check_names(examined.order, examined.layers)
    except (CrawlerError, FrontierError) as error:
        yield str(error)


def machine_faults(order: CrawlOrder) -> Iterator[str]:
    """A line for each key that is set and not `ALLOWED`, and for each whose value is a user function. Pure."""
    for section in type(order).model_fields:
        given, allowed = getattr(order, section), ALLOWED.get(section, "").split()
        entries = given if isinstance(given, tuple) else (given,)
        for entry in entries:
            for key, field in type(entry).model_fields.items():
                value = getattr(entry, key)
                is_default = value == field.get_default(call_default_factory=True)
                is_function = section in _WITH_FUNCTIONS and any(map(is_user_function, _texts(value)))
                if is_function or not (is_default or key in allowed):
                    place = f"[[{section}]]" if entries is given else f"[{section}]"
                    yield (
                        f"{place} {key} names code, a file, a variable or an address of the console's machine, which the "
                        "API must not set; start such a job there with `anabranch crawl`"
                    )


def differing_tables(order: CrawlOrder) -> dict[str, Any]:
    """The sections and keys of an order that differ from their defaults, without the name and the seeds of its job. Pure."""
    tables, usual = order_tables(order), order_tables(CrawlOrder())
    found: dict[str, Any] = {}
    for section, keys in tables.items():
        if isinstance(keys, list):
            if keys:
                found[section] = keys
            continue
        left_out = {"name", "seeds", "seed_files"} if section == "job" else set()
        usual_keys = usual.get(section, {})
        changed = {
            key: value
            for key, value in keys.items()
            if key not in left_out and (key not in usual_keys or usual_keys[key] != value)
        }
        if changed:
            found[section] = changed
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_texts, chain(value, value.values())))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_texts, value))
