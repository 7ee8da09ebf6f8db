"""The verb `lab simulate`; what runs it is imported when it runs.

An option's parameter has the name of the field of `SimulationOptions`; what is not given keeps the default there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from anabranch.crawler.cli import policy_options as shared
from anabranch.crawler.cli.lab_options import Csv, Plot
from anabranch.crawler.cli.option_types import FilePath, Number, Numbers, Whole

_LIVE: Callable[..., Any] = partial(typer.Option, rich_help_panel="Beside a live comparison")


def simulate(
    ctx: typer.Context,
    policies: shared.Policies = None,
    workers: shared.Workers = None,
    politeness: shared.Politeness = None,
    connections: shared.Connections = None,
    delay_factor: shared.DelayFactor = None,
    min_delay_s: Annotated[Number, shared.min_delay("3s")] = None,
    max_delay_s: Annotated[Number, shared.max_delay("30s")] = None,
    scale: Annotated[
        Number, shared.RUN(help="Divides the times that are not given; 60 is the lab's (default 1).")
    ] = None,
    page_cost_s: Annotated[
        Number, shared.RUN("--page-cost", help="Of the crawler's processor, a page (default: none).", **shared.TIME)
    ] = None,
    seconds: Annotated[
        Number, shared.RUN(help="Virtual time of a run, if not drained before (default: until it is).", **shared.TIME)
    ] = None,
    repeat: Annotated[Whole, shared.RUN(help="Runs of each policy, each on another web (default 1).")] = None,
    kinds: Annotated[
        Numbers, shared.WEB("--kind", help="hosts, portals, subdomains, or several (default hosts).", **shared.NAMES)
    ] = None,
    pages: Annotated[Whole, shared.pages("1M")] = None,
    hosts: Annotated[Whole, shared.hosts("100k")] = None,
    links: Annotated[Whole, shared.WEB(help="Mean links of a page beyond its share of the tree (default 2).")] = None,
    latency_s: Annotated[Number, shared.latency("1s")] = None,
    seed: shared.Seed = None,
    replay: shared.Replay = None,
    beside: Annotated[
        FilePath,
        _LIVE(metavar="FILE", help="What `compare --json` wrote: simulate the same, draw it dashed, say how far off."),
    ] = None,
    plot: Plot = None,
    csv: Csv = None,
    json: Annotated[FilePath, shared.FILE(metavar="FILE", help="All that was found; - is standard output.")] = None,
) -> None:
    """Compare queue policies on webs that fit on no machine: the real Frontier in virtual time, no sockets.

    Nothing is fetched: a made web says how long each fetch takes. docs/simulation.md says what is modelled.
    """
    from anabranch.crawler.cli.lab import LabCommand, run_lab  # noqa: PLC0415 - help must be fast

    flags = {name: value for name, value in ctx.params.items() if name not in ("plot", "csv", "json")}
    raise typer.Exit(run_lab(LabCommand(name="simulate", flags=flags, plot=plot, csv=csv, json=json)))
