"""The options of `anabranch lab web`; what runs it is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.crawler.cli import policy_options as shared
from anabranch.crawler.cli.option_types import FilePath, Number, Text, Whole

_LEDGER = "The ledger"


def web(
    ctx: typer.Context,
    pages: Annotated[Whole, shared.pages("20k")] = None,
    kind: Annotated[Text, shared.WEB(help="portals, subdomains or hosts (default portals).")] = None,
    hosts: Annotated[Whole, shared.hosts("40")] = None,
    links: Annotated[Whole, shared.WEB(help="Mean links of a page (default 10).")] = None,
    latency_s: Annotated[Number, shared.latency("100ms")] = None,
    bandwidth: Annotated[Number, shared.WEB(metavar="BYTES", help="A second, median (default 2000000).")] = None,
    seed: shared.Seed = None,
    replay: shared.Replay = None,
    port: Annotated[int, typer.Option(help="Of 127.0.0.1; 0 = any free one.", min=0, max=65535)] = 0,
    order: Annotated[
        FilePath, typer.Option(metavar="FILE.toml", help="Write a crawl order that finds these hosts.")
    ] = None,
    connections: Annotated[
        int, typer.Option(help="That a host allows at once.", min=1, max=1000, rich_help_panel=_LEDGER)
    ] = 1,
    min_delay_s: Annotated[
        Number,
        typer.Option(
            "--min-delay",
            help="That a connection owes after a request (default 0).",
            rich_help_panel=_LEDGER,
            **shared.TIME,
        ),
    ] = None,
) -> None:
    """Serve a web in a box to any crawler, until Ctrl-C; then show what each host has borne."""
    from anabranch.crawler.cli.lab_web import WebCommand, run_web  # noqa: PLC0415 - help must be fast

    own = {"replay", "port", "order", "connections", "min_delay_s"}
    command = WebCommand(
        flags={key: value for key, value in ctx.params.items() if key not in own and value is not None},
        replay=replay,
        port=port,
        order=order,
        connections=connections,
        min_delay_s=min_delay_s or 0.0,
    )
    raise typer.Exit(run_web(command))
