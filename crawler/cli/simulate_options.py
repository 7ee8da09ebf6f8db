"""The verb `lab simulate`; what runs it is imported when it runs.

An option's parameter has the name of the field of `SimulationOptions`; what is not given keeps the default there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from crawler.cli.compare_options import parse_names
from crawler.cli.dedup_options import parse_count
from crawler.cli.lab_options import Csv, Plot, parse_seconds
from crawler.cli.option_types import FilePath, Number, Numbers, Text, Whole

_RUN: Callable[..., Any] = partial(typer.Option, rich_help_panel="Runs")
_WEB: Callable[..., Any] = partial(typer.Option, rich_help_panel="The web")
_LIVE: Callable[..., Any] = partial(typer.Option, rich_help_panel="Beside a live comparison")
_FILE: Callable[..., Any] = partial(typer.Option, rich_help_panel="Output")
_TIME = {"metavar": "TIME", "parser": parse_seconds}
_COUNT = {"metavar": "N", "parser": parse_count}
_NAMES = {"metavar": "NAME,...", "parser": parse_names}


def simulate(
    ctx: typer.Context,
    policies: Annotated[
        Numbers, _RUN(help="Queue policies (default host,parallel:8,elf:997,bkdr:997).", **_NAMES)
    ] = None,
    workers: Annotated[Whole, _RUN(help="Fetches at once (default 1000).")] = None,
    politeness: Annotated[
        Text,
        _RUN(metavar="polite|paper|off", help="Who rests: each host, each queue, or nobody (default polite)."),
    ] = None,
    connections: Annotated[Whole, _RUN(metavar="K", help="At once on a host, if polite (default 1).")] = None,
    delay_factor: Annotated[Number, _RUN(help="Rest per second of fetching (default 5).")] = None,
    min_delay_s: Annotated[Number, _RUN("--min-delay", help="But no shorter (default 3s).", **_TIME)] = None,
    max_delay_s: Annotated[Number, _RUN("--max-delay", help="And no longer (default 30s).", **_TIME)] = None,
    scale: Annotated[Number, _RUN(help="Divides the times that are not given; 60 is the lab's (default 1).")] = None,
    page_cost_s: Annotated[
        Number, _RUN("--page-cost", help="Of the crawler's processor, a page (default: none).", **_TIME)
    ] = None,
    seconds: Annotated[
        Number, _RUN(help="Virtual time of a run, if not drained before (default: until it is).", **_TIME)
    ] = None,
    repeat: Annotated[Whole, _RUN(help="Runs of each policy, each on another web (default 1).")] = None,
    kinds: Annotated[
        Numbers, _WEB("--kind", help="hosts, portals, subdomains, or several (default hosts).", **_NAMES)
    ] = None,
    pages: Annotated[Whole, _WEB(help="URLs in all (default 1M).", **_COUNT)] = None,
    hosts: Annotated[Whole, _WEB(help="Host names in all (default 100k).", **_COUNT)] = None,
    links: Annotated[Whole, _WEB(help="Mean links of a page beyond its share of the tree (default 2).")] = None,
    latency_s: Annotated[Number, _WEB("--latency", help="Median to the first byte (default 1s).", **_TIME)] = None,
    seed: Annotated[Whole, _WEB(help="Another web for another number (default 1).")] = None,
    replay: Annotated[FilePath, _WEB(metavar="crawl.log", help="The web that this crawl saw.")] = None,
    beside: Annotated[
        FilePath,
        _LIVE(metavar="FILE", help="What `compare --json` wrote: simulate the same, draw it dashed, say how far off."),
    ] = None,
    plot: Plot = None,
    csv: Csv = None,
    json: Annotated[FilePath, _FILE(metavar="FILE", help="All that was found; - is standard output.")] = None,
) -> None:
    """Compare queue policies on webs that fit on no machine: the real Frontier in virtual time, no sockets.

    Nothing is fetched: a made web says how long each fetch takes. docs/simulation.md says what is modelled.
    """
    from crawler.cli.lab import LabCommand, run_lab  # noqa: PLC0415 - help must be fast

    flags = {name: value for name, value in ctx.params.items() if name not in ("plot", "csv", "json")}
    raise typer.Exit(run_lab(LabCommand(name="simulate", flags=flags, plot=plot, csv=csv, json=json)))
