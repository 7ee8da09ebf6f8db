"""`anabranch config`: orders are written, shown and checked without a job being touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crawler.cli.app import flags_of
from crawler.cli.frontier import put
from crawler.cli.frontier_tables import escaped
from crawler.cli.guarding import guarded
from crawler.cli.saying import say
from crawler.jobs.checking import check
from crawler.jobs.choosing import Wanted, choose
from crawler.orders.complaints import faults
from crawler.orders.sources import order_of, read_layers, seeds_layer
from crawler.orders.writing import default_order, effective_order, order_schema
from crawler.outcomes.errors import OrderError, UsageError, storage_errors

Flags = Mapping[str, Any]


class OrderFaults(OrderError):
    """An order has several faults, which have been told."""


def run_config(verb: str, arguments: Flags) -> int:
    """Run it; every foreseeable error is one line on standard error and its exit code."""
    return guarded(lambda: _VERBS[verb](arguments))


def _init(arguments: Flags) -> None:
    file: Path | None = arguments["file"]
    if file is None or str(file) == "-":
        put(default_order().rstrip("\n"))
        return
    with storage_errors(file, "FILE"):
        try:
            with file.open("x", encoding="utf-8") as new:
                new.write(default_order())
        except FileExistsError as error:
            raise UsageError(f"{file}: exists; nothing was written, name a new file") from error


def _show(arguments: Flags) -> None:
    parameters: Flags = arguments["parameters"]
    sources = tuple(parameters["sources"] or ())
    chosen = choose(
        Wanted(
            sources=sources,
            order_file=parameters["order_file"],
            job=parameters["job"],
            fresh=parameters["fresh"],
            flags=flags_of(parameters),
            settings=tuple(parameters["settings"] or ()),
        )
    )
    layers = [seeds_layer(chosen.order), *chosen.layers] if sources else chosen.layers
    shown = effective_order(
        chosen.order,
        layers,
        with_origin=arguments["origin"],
        only_given=not arguments["effective"],
    )
    put(shown.rstrip("\n") or "# nothing is given: all keys have their defaults; --effective shows them")


def _validate(arguments: Flags) -> None:
    """Raises: OrderFaults."""
    file, settings = arguments["file"], arguments["settings"]
    layers = read_layers(file, {}, settings)
    lines = faults(layers)
    needs_seeds = ""
    if not lines:
        order = order_of(layers)
        found = check(order)
        needs_seeds = "" if order.job.sources else "; it names no seed, so the command line must"
        for warning in found.warnings:
            say(f"anabranch: {escaped(warning)}; it would be skipped")
        lines = [f"{file}: {fault}" for fault in found.faults]
    if lines:
        for line in lines[:-1]:
            say(f"anabranch: {escaped(line)}")
        raise OrderFaults(lines[-1])
    put(f"{file}: nothing is wrong with it{needs_seeds}")


def _schema(_: Flags) -> None:
    put(json.dumps(order_schema(), indent=2))


_VERBS: Mapping[str, Callable[[Flags], None]] = {
    "init": _init,
    "show": _show,
    "validate": _validate,
    "schema": _schema,
}
