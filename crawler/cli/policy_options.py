"""The options that `compare`, `lab simulate` and `lab web` share, some of them but for the default that the help names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from anabranch.crawler.cli.dedup_options import parse_count
from anabranch.crawler.cli.lab_options import parse_seconds
from anabranch.crawler.cli.option_types import FilePath, Number, Numbers, Text, Whole


def parse_names(text: str) -> tuple[str, ...]:
    """Names as people list them: `host,bkdr:997`. Raises: typer.BadParameter."""
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise typer.BadParameter(f"must be names with commas between them, like host,bkdr:997; not {text!r}")
    return names


#: An option in its panel of the help.
RUN: Callable[..., Any] = partial(typer.Option, rich_help_panel="Runs")
WEB: Callable[..., Any] = partial(typer.Option, rich_help_panel="The web")
FILE: Callable[..., Any] = partial(typer.Option, rich_help_panel="Input and output")
#: How a duration, a number of things and a list of names are read.
TIME = {"metavar": "TIME", "parser": parse_seconds}
COUNT = {"metavar": "N", "parser": parse_count}
NAMES = {"metavar": "NAME,...", "parser": parse_names}

Policies = Annotated[Numbers, RUN(help="Queue policies (default host,parallel:8,elf:997,bkdr:997).", **NAMES)]
Workers = Annotated[Whole, RUN(help="Fetches at once (default 1000).")]
Politeness = Annotated[
    Text,
    RUN(
        metavar="polite|paper|off",
        help="Who rests: each host, each queue as in the paper, or nobody (default polite).",
    ),
]
Connections = Annotated[Whole, RUN(metavar="K", help="At once on a host, if polite (default 1).")]
DelayFactor = Annotated[Number, RUN(help="Rest per second of fetching (default 5).")]
Seed = Annotated[Whole, WEB(help="Another web for another number (default 1).")]
Replay = Annotated[FilePath, WEB(metavar="crawl.log", help="The web that this crawl saw.")]


def min_delay(default: str) -> Any:
    """The option `--min-delay` of a run."""
    return RUN("--min-delay", help=f"But no shorter (default {default}).", **TIME)


def max_delay(default: str) -> Any:
    """The option `--max-delay` of a run."""
    return RUN("--max-delay", help=f"And no longer (default {default}).", **TIME)


def pages(default: str) -> Any:
    """The option `--pages` of a made web."""
    return WEB(help=f"URLs in all (default {default}).", **COUNT)


def hosts(default: str) -> Any:
    """The option `--hosts` of a made web."""
    return WEB(help=f"Host names in all (default {default}).", **COUNT)


def latency(default: str) -> Any:
    """The option `--latency` of a made web."""
    return WEB("--latency", help=f"Median to the first byte (default {default}).", **TIME)
