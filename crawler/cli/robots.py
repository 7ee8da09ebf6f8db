"""`anabranch robots URL`: what a host's robots.txt says of one URL, with the group and the line that decide."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.crawler.cli.option_types import Text


def robots(
    url: Annotated[str, typer.Argument(metavar="URL", help="The page that is to be fetched.")],
    agent: Annotated[Text, typer.Option(help="Product token that groups are read for, else ours.")] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Ask private and loopback addresses, too.")
    ] = False,
) -> None:
    """Fetch a host's robots.txt and say whether URL may be fetched, and which line decides."""
    from anabranch.crawler.cli.robots_asking import RobotsCommand, run_robots  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_robots(RobotsCommand(url=url, agent=agent, allow_private=allow_private)))
