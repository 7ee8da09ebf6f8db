"""The verb `compare`, which is `lab policies`, too; what runs it is imported when it runs.

An option's parameter has the name of the field of `PolicyOptions`; what is not given keeps the default there.
"""

from __future__ import annotations

from typing import Annotated

import typer

from crawler.cli.dedup_options import parse_count
from crawler.cli.lab_options import Csv, Plot, parse_seconds
from crawler.cli.option_types import FilePath, Number, Numbers, Text, Whole

_RUNS = "Runs"
_WEB = "The web in a box"
_REAL = "A real crawl in its place"
_FILES = "Input and output"


def parse_names(text: str) -> tuple[str, ...]:
    """Names as people list them: `host,bkdr:997`. Raises: typer.BadParameter."""
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise typer.BadParameter(f"must be names with commas between them, like host,bkdr:997; not {text!r}")
    return names


def compare(
    ctx: typer.Context,
    policies: Annotated[
        Numbers,
        typer.Option(
            metavar="P,P,...",
            parser=parse_names,
            help="Queue policies (default host,parallel:8,elf:997,bkdr:997).",
            rich_help_panel=_RUNS,
        ),
    ] = None,
    workers: Annotated[Whole, typer.Option(help="Fetches at once (default 1000).", rich_help_panel=_RUNS)] = None,
    politeness: Annotated[
        Text,
        typer.Option(
            metavar="polite|paper|off",
            help="Who rests: each host, each queue as in the paper, or nobody (default polite).",
            rich_help_panel=_RUNS,
        ),
    ] = None,
    connections: Annotated[
        Whole, typer.Option(metavar="K", help="At once on a host, if polite (default 1).", rich_help_panel=_RUNS)
    ] = None,
    delay_factor: Annotated[
        Number, typer.Option(help="Rest per second of fetching (default 5).", rich_help_panel=_RUNS)
    ] = None,
    min_delay_s: Annotated[
        Number,
        typer.Option(
            "--min-delay",
            metavar="TIME",
            parser=parse_seconds,
            help="But no shorter (default 50ms).",
            rich_help_panel=_RUNS,
        ),
    ] = None,
    max_delay_s: Annotated[
        Number,
        typer.Option(
            "--max-delay",
            metavar="TIME",
            parser=parse_seconds,
            help="And no longer (default 500ms).",
            rich_help_panel=_RUNS,
        ),
    ] = None,
    seconds: Annotated[
        Number,
        typer.Option(
            metavar="TIME",
            parser=parse_seconds,
            help="A run, if not drained before (default 60).",
            rich_help_panel=_RUNS,
        ),
    ] = None,
    repeat: Annotated[Whole, typer.Option(help="Runs of each policy (default 1).", rich_help_panel=_RUNS)] = None,
    kinds: Annotated[
        Numbers,
        typer.Option(
            "--kind",
            metavar="KIND,...",
            parser=parse_names,
            help="portals: five with sub-domains; subdomains: one with many (default portals).",
            rich_help_panel=_WEB,
        ),
    ] = None,
    pages: Annotated[
        Whole, typer.Option(metavar="N", parser=parse_count, help="URLs in all (default 20k).", rich_help_panel=_WEB)
    ] = None,
    hosts: Annotated[Whole, typer.Option(help="Host names in all (default 40).", rich_help_panel=_WEB)] = None,
    latency_s: Annotated[
        Number,
        typer.Option(
            "--latency",
            metavar="TIME",
            parser=parse_seconds,
            help="Median to the first byte (default 100ms).",
            rich_help_panel=_WEB,
        ),
    ] = None,
    seed: Annotated[
        Whole, typer.Option(help="Another web for another number (default 1).", rich_help_panel=_WEB)
    ] = None,
    replay: Annotated[
        FilePath, typer.Option(metavar="crawl.log", help="The web that this crawl saw.", rich_help_panel=_WEB)
    ] = None,
    seeds: Annotated[
        FilePath,
        typer.Option(
            metavar="FILE",
            help="Crawl these sites over the network, politely (3s to 30s).",
            rich_help_panel=_REAL,
        ),
    ] = None,
    plot: Plot = None,
    csv: Csv = None,
    json: Annotated[
        FilePath,
        typer.Option(metavar="FILE", help="All that was measured; - is standard output.", rich_help_panel=_FILES),
    ] = None,
) -> None:
    """Compare queue policies by active workers: real crawls, one after the other, on the same web.

    The experiment of the paper on BKDR queue assignment (2013), figures 4 to 6. docs/queue-policies.md says what comes out.
    """
    from crawler.cli.lab import LabCommand, run_lab  # noqa: PLC0415 - help must be fast

    flags = {name: value for name, value in ctx.params.items() if name not in ("plot", "csv", "json")}
    raise typer.Exit(run_lab(LabCommand(name="policies", flags=flags, plot=plot, csv=csv, json=json)))
