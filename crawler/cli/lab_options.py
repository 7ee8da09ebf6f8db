"""The verbs of `anabranch lab` and their options; what runs them is imported when they run.

An option's parameter has the name of the field of the experiment's options; what is not given keeps the default there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from anabranch.crawler.cli.dedup_options import parse_count, parse_levels
from anabranch.crawler.cli.option_types import FilePath, Number, Numbers, Switch, Text, Whole
from anabranch.crawler.orders.quantities import parse_duration

lab = typer.Typer(
    help="Run a published experiment, or one of your own: tables, a picture, a CSV file.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_FILES = "Input and output"


def parse_numbers(text: str) -> tuple[int, ...]:
    """Whole numbers above 0 as people write them: `1,2,4`. Raises: typer.BadParameter."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) for part in parts):
        raise typer.BadParameter(f"must be whole numbers above 0, like 1,2,4; not {text!r}")
    return tuple(map(int, parts))


def parse_seconds(text: str) -> float:
    """A duration as people write it, in seconds: `0.4ms`. Raises: typer.BadParameter."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Urls = Annotated[
    FilePath, typer.Option(metavar="FILE", help="Use these URLs, one a line; else made ones.", rich_help_panel=_FILES)
]
Plot = Annotated[
    FilePath,
    typer.Option(metavar="FILE.png", help="Draw it (or .svg, .pdf; needs matplotlib).", rich_help_panel=_FILES),
]
Csv = Annotated[FilePath, typer.Option(metavar="FILE", help="Write the tables' numbers.", rich_help_panel=_FILES)]
Seed = Annotated[Whole, typer.Option(help="Other URLs for another number (default 1).", rich_help_panel=_FILES)]


@lab.command()
def smm(
    ctx: typer.Context,
    count: Annotated[
        Whole, typer.Option(metavar="N", parser=parse_count, help="URLs to make, as in 500k (default 75012).")
    ] = None,
    repeats: Annotated[
        Number, typer.Option(metavar="SHARE", help="Of the input repeats earlier URLs (default 0.0).")
    ] = None,
    runs: Annotated[Whole, typer.Option(help="Openings of the store, runs of each method (default 4).")] = None,
    probes: Annotated[
        Whole, typer.Option(metavar="N", parser=parse_count, help="URLs asked for false positives (default 1M).")
    ] = None,
    signature: Annotated[
        Text, typer.Option(help="crc32, md5, sha1, xxh3-64, package.module:function (default crc32).")
    ] = None,
    levels: Annotated[
        Numbers, typer.Option(metavar="N,N", parser=parse_levels, help="Bytes per level (default 1,3).")
    ] = None,
    quick: Annotated[
        Switch, typer.Option("--quick", help="Leave out the table of 10 buckets, and Bloom URL by URL.")
    ] = None,
    urls: Urls = None,
    seed: Seed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """SMM against bitmap hash tables and Bloom filters: time of two passes, false positives.

    Tables 1 to 3 of patent CN102693315 with 75,012 URLs.
    """
    _run("smm", ctx.params)


@lab.command()
def fpr(
    ctx: typer.Context,
    n: Annotated[
        Whole, typer.Option("--n", metavar="N", parser=parse_count, help="URLs at the end (default 2M).")
    ] = None,
    leaves: Annotated[
        Numbers, typer.Option(metavar="C,C,...", parser=parse_numbers, help="Leaves (default 1,2,3,5,10).")
    ] = None,
    points: Annotated[Whole, typer.Option(help="Of each curve (default 10).")] = None,
    false_positive: Annotated[
        Number, typer.Option(metavar="RATE", help="f_max; sets the sizes (default 0.001).")
    ] = None,
    urls: Urls = None,
    seed: Seed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """DSBF: false-positive rate against n for several numbers of leaves, beside the formula.

    Figure 7 of the DSBF paper (2016).
    """
    _run("fpr", ctx.params)


@lab.command()
def redis(
    ctx: typer.Context,
    count: Annotated[
        Whole, typer.Option(metavar="N", parser=parse_count, help="URLs to make, as in 500k (default 1M).")
    ] = None,
    batch: Annotated[Whole, typer.Option(help="URLs asked at a time by a thread (default 300).")] = None,
    threads: Annotated[
        Numbers, typer.Option(metavar="T,T,...", parser=parse_numbers, help="Clients at once (default 1,2,4,8,16).")
    ] = None,
    leaves: Annotated[
        Numbers, typer.Option(metavar="C,C,...", parser=parse_numbers, help="Leaves, one per server (default 1,2,3,5).")
    ] = None,
    latency_s: Annotated[
        Number,
        typer.Option(
            "--latency",
            metavar="TIME",
            parser=parse_seconds,
            help="Of a round trip to all servers but one, as in 0.4ms (default 0).",
        ),
    ] = None,
    false_positive: Annotated[Number, typer.Option(metavar="RATE", help="f_max of the DSBF (default 0.001).")] = None,
    server: Annotated[FilePath, typer.Option(metavar="PROGRAM", help="The redis-server to start.")] = None,
    urls: Urls = None,
    seed: Seed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """DSBF with leaves on Redis servers that it starts: URLs per second against threads.

    Figure 9 of the DSBF paper (2016).
    """
    _run("redis", ctx.params)


@lab.command()
def balance(
    ctx: typer.Context,
    count: Annotated[
        Whole, typer.Option(metavar="N", parser=parse_count, help="URLs to make, as in 500k (default 1.5M).")
    ] = None,
    leaves: Annotated[Whole, typer.Option(help="Of the DSBF (default 10).")] = None,
    filters: Annotated[Whole, typer.Option(help="Chosen by hash (default: as much memory as the DSBF).")] = None,
    two_gigabytes: Annotated[
        Switch,
        typer.Option("--two-gigabytes/--no-two-gigabytes", help="The filter of 2 GB on the disk, too (default yes)."),
    ] = None,
    false_positive: Annotated[Number, typer.Option(metavar="RATE", help="f_max of the DSBF (default 0.001).")] = None,
    urls: Urls = None,
    seed: Seed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """Fixed filters per domain against a DSBF: URLs, fill and false positives per filter.

    Figures 10 and 11 of the DSBF paper (2016) with 1.5 million URLs of portals and small sites.
    """
    _run("balance", ctx.params)


def _run(name: str, parameters: Mapping[str, object]) -> None:
    from anabranch.crawler.cli.lab import LabCommand, run_lab  # noqa: PLC0415 - help must be fast

    flags = dict(parameters)
    plot, csv = flags.pop("plot"), flags.pop("csv")
    assert isinstance(plot, Path | None) and isinstance(csv, Path | None)  # noqa: PT018
    raise typer.Exit(run_lab(LabCommand(name=name, flags=flags, plot=plot, csv=csv)))
