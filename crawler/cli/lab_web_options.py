"""The options of `anabranch lab web`; what runs it is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from crawler.cli.dedup_options import parse_count
from crawler.cli.lab_options import parse_seconds
from crawler.cli.option_types import FilePath, Number, Text, Whole

_WEB = "The web"
_LEDGER = "The ledger"


def web(
    ctx: typer.Context,
    pages: Annotated[
        Whole, typer.Option(metavar="N", parser=parse_count, help="URLs in all (default 20k).", rich_help_panel=_WEB)
    ] = None,
    kind: Annotated[
        Text, typer.Option(help="portals, subdomains or hosts (default portals).", rich_help_panel=_WEB)
    ] = None,
    hosts: Annotated[
        Whole, typer.Option(metavar="N", parser=parse_count, help="Host names (default 40).", rich_help_panel=_WEB)
    ] = None,
    links: Annotated[Whole, typer.Option(help="Mean links of a page (default 10).", rich_help_panel=_WEB)] = None,
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
    bandwidth: Annotated[
        Number, typer.Option(metavar="BYTES", help="A second, median (default 2000000).", rich_help_panel=_WEB)
    ] = None,
    seed: Annotated[
        Whole, typer.Option(help="Another web for another number (default 1).", rich_help_panel=_WEB)
    ] = None,
    replay: Annotated[
        FilePath, typer.Option(metavar="CRAWL.LOG", help="The web of a real crawl instead.", rich_help_panel=_WEB)
    ] = None,
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
            metavar="TIME",
            parser=parse_seconds,
            help="That a connection owes after a request (default 0).",
            rich_help_panel=_LEDGER,
        ),
    ] = None,
) -> None:
    """Serve a web in a box to any crawler, until Ctrl-C; then show what each host has borne."""
    from crawler.cli.lab_web import WebCommand, run_web  # noqa: PLC0415 - help must be fast

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
