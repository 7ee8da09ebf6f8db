"""`anabranch config`: writes, shows and checks orders. It changes no job."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anabranch.crawler.cli.parameters import flags_of
from anabranch.crawler.cli.terminal import guarded, put, say
from anabranch.crawler.job.checking import check
from anabranch.crawler.job.choosing import CrawlRequest, choose
from anabranch.crawler.order.loading import examine
from anabranch.crawler.order.rendering import default_order, effective_order, order_schema
from anabranch.crawler.order.sources import read_layers, seeds_layer
from anabranch.crawler.outcomes.errors import OrderError, UsageError, storage_errors

#: A verb's parameters by name; `crawl` of `show` has those of `anabranch crawl`.
Parameters = Mapping[str, Any]


class OrderFaults(OrderError):
    """An order has several faults, which have been reported."""


def run_config(verb: str, parameters: Parameters) -> int:
    """Run it. A foreseeable error becomes one line on standard error and its exit code."""
    return guarded(lambda: _VERBS[verb](parameters))


def _init(parameters: Parameters) -> None:
    file: Path | None = parameters["file"]
    if file is None or str(file) == "-":
        put(default_order().rstrip("\n"), is_file=True)
        return
    with storage_errors(file, "FILE"):
        try:
            with file.open("x", encoding="utf-8") as new:
                new.write(default_order())
        except FileExistsError as error:
            raise UsageError(f"{file}: exists; nothing was written, name a new file") from error


def _show(parameters: Parameters) -> None:
    crawl: Parameters = parameters["crawl"]
    sources = tuple(crawl["sources"] or ())
    chosen = choose(
        CrawlRequest(
            sources=sources,
            order_file=crawl["order_file"],
            job=crawl["job"],
            fresh=crawl["fresh"],
            flags=flags_of(crawl),
            settings=tuple(crawl["settings"] or ()),
        )
    )
    layers = [seeds_layer(chosen.order), *chosen.layers] if sources else chosen.layers
    shown = effective_order(
        chosen.order, layers, with_origin=parameters["origin"], only_given=not parameters["effective"]
    )
    nothing = "# nothing is given: all keys have their defaults; --effective shows them"
    put(shown.rstrip("\n") or nothing, is_file=True)


def _validate(parameters: Parameters) -> None:
    """Raises: OrderFaults."""
    file, settings = parameters["file"], parameters["settings"]
    examined = examine(read_layers(file, {}, settings))
    found = check(examined, str(file))
    if found.faults:
        *others, last = *found.faults, *found.warnings
        for line in others:
            say(f"anabranch: {line}")
        raise OrderFaults(last)
    for warning in found.warnings:
        say(f"anabranch: {warning}")
    needs_seeds = "" if examined.order.job.sources else "; it has no seeds, so name some on the command line"
    put(f"{file}: nothing is wrong with it{needs_seeds}")


_VERBS: Mapping[str, Callable[[Parameters], None]] = {
    "init": _init,
    "show": _show,
    "validate": _validate,
    "schema": lambda _: put(json.dumps(order_schema(), indent=2)),
}
