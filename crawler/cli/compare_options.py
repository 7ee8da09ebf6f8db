"""The verb `compare`, which is `lab policies`, too; what runs it is imported when it runs.

An option's parameter has the name of the field of `PolicyOptions`; what is not given keeps the default there.
"""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.crawler.cli import policy_options as shared
from anabranch.crawler.cli.lab_options import Csv, Plot
from anabranch.crawler.cli.option_types import FilePath, Number, Numbers, Whole


def compare(
    ctx: typer.Context,
    policies: shared.Policies = None,
    workers: shared.Workers = None,
    politeness: shared.Politeness = None,
    connections: shared.Connections = None,
    delay_factor: shared.DelayFactor = None,
    min_delay_s: Annotated[Number, shared.min_delay("50ms")] = None,
    max_delay_s: Annotated[Number, shared.max_delay("500ms")] = None,
    seconds: Annotated[Number, shared.RUN(help="A run, if not drained before (default 60).", **shared.TIME)] = None,
    repeat: Annotated[Whole, shared.RUN(help="Runs of each policy (default 1).")] = None,
    kinds: Annotated[
        Numbers,
        shared.WEB(
            "--kind",
            help="portals: five with sub-domains; subdomains: one with many (default portals).",
            **shared.NAMES,
        ),
    ] = None,
    pages: Annotated[Whole, shared.pages("20k")] = None,
    hosts: Annotated[Whole, shared.hosts("40")] = None,
    latency_s: Annotated[Number, shared.latency("100ms")] = None,
    seed: shared.Seed = None,
    replay: shared.Replay = None,
    seeds: Annotated[
        FilePath,
        typer.Option(
            metavar="FILE",
            help="Crawl these sites over the network, politely (3s to 30s).",
            rich_help_panel="A real crawl in its place",
        ),
    ] = None,
    plot: Plot = None,
    csv: Csv = None,
    json: Annotated[FilePath, shared.FILE(metavar="FILE", help="All that was measured; - is standard output.")] = None,
) -> None:
    """Compare queue policies by active workers: real crawls, one after the other, on the same web.

    The experiment of the paper on BKDR queue assignment (2013), figures 4 to 6. docs/queue-policies.md says what comes out.
    """
    from anabranch.crawler.cli.lab import LabCommand, run_lab  # noqa: PLC0415 - help must be fast

    flags = {name: value for name, value in ctx.params.items() if name not in ("plot", "csv", "json")}
    raise typer.Exit(run_lab(LabCommand(name="policies", flags=flags, plot=plot, csv=csv, json=json)))
