"""The verb `dedup` and its options; what runs it is imported when it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from anabranch.crawler.cli.dedup_command import DedupCommand
from anabranch.crawler.cli.option_types import FilePath, Number, Numbers, Switch, Text, Texts, Whole

_INPUT = "Input"
_FILTER = "Filter"
_SIMILAR = "Filter similar"
_SHARED = "Shared by Redis servers"

_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmg]?)", re.ASCII | re.IGNORECASE)
_SUFFIXES = "k, M and G stand for thousand, million and thousand million"
_THOUSANDS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def parse_count(text: str) -> int:
    """A whole number above 0 as people write it: `2500`, `500k`, `10M`, `1.5G`. Raises: typer.BadParameter."""
    found = _COUNT.fullmatch(text.strip())
    count = float(found[1]) * _THOUSANDS[found[2].lower()] if found else -1.0
    if not 0 < count < 1 << 53 or not count.is_integer():
        raise typer.BadParameter(f"must be a whole number above 0, like 500k, 10M, 1.5G ({_SUFFIXES}); not {text!r}")
    return int(count)


def parse_levels(text: str) -> tuple[int, ...]:
    """Bytes per level as people write them: `1,3`. Raises: typer.BadParameter."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise typer.BadParameter(f"must be the bytes of each level, like 1,3 or 1,1,3; not {text!r}")
    return tuple(map(int, parts))


def parse_folder(text: str) -> Path:
    """The path of a folder. Raises: typer.BadParameter for an empty text, which would be the folder one is in."""
    if not text:
        raise typer.BadParameter("must not be empty; the folder you are in is .")
    return Path(text)


def dedup(
    file: Annotated[
        Text, typer.Argument(metavar="[FILE]", help="URLs, one a line; - or nothing is standard input.")
    ] = None,
    state: Annotated[
        FilePath,
        typer.Option(
            metavar="DIR",
            parser=parse_folder,
            help="Keep the filter here and go on from run to run.",
            rich_help_panel=_FILTER,
        ),
    ] = None,
    filter_: Annotated[
        Text,
        typer.Option("--filter", help="smm, dsbf, both, exact or similar (default both).", rich_help_panel=_FILTER),
    ] = None,
    expect: Annotated[
        Whole,
        typer.Option(
            metavar="N",
            parser=parse_count,
            help="URLs to expect, as in 500k (default 10M; similar: 1M).",
            rich_help_panel=_FILTER,
        ),
    ] = None,
    false_positive: Annotated[
        Number,
        typer.Option(
            metavar="RATE", help="Rate of the DSBF, or of similar, at most (default 0.001).", rich_help_panel=_FILTER
        ),
    ] = None,
    signature: Annotated[
        Text,
        typer.Option(
            help="Of the SMM: crc32, md5, sha1, xxh3-64, package.module:function (default crc32).",
            rich_help_panel=_FILTER,
        ),
    ] = None,
    levels: Annotated[
        Numbers,
        typer.Option(
            metavar="N,N",
            parser=parse_levels,
            help="Of the SMM: bytes per level, as in 1,3 (default: by --expect).",
            rich_help_panel=_FILTER,
        ),
    ] = None,
    features: Annotated[
        Text,
        typer.Option(
            help="Any of site,depth,directory,tail (default: these four), package.module:function.",
            rich_help_panel=_SIMILAR,
        ),
    ] = None,
    site_bound: Annotated[
        Switch,
        typer.Option(
            "--site-bound/--published",
            help="Compare within a site alone (default --published).",
            rich_help_panel=_SIMILAR,
        ),
    ] = None,
    drop_query: Annotated[
        Switch,
        typer.Option(
            "--drop-query/--keep-query", help="Leave queries out (default --keep-query).", rich_help_panel=_SIMILAR
        ),
    ] = None,
    pcap: Annotated[
        Text, typer.Option(metavar="FILE", help="URLs of the HTTP requests in a capture.", rich_help_panel=_INPUT)
    ] = None,
    interface: Annotated[
        Text,
        typer.Option(metavar="IF", help="URLs of the HTTP requests that pass now (as root).", rich_help_panel=_INPUT),
    ] = None,
    redis: Annotated[
        Texts, typer.Option(metavar="URL", help="A server of the filter; again for each.", rich_help_panel=_SHARED)
    ] = None,
    name: Annotated[
        Text, typer.Option(help="Of the filter there (default anabranch).", rich_help_panel=_SHARED)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Verify the filter, read no URLs.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say only what went wrong.")] = False,
) -> None:
    """Pass on each URL once: a uniq for streams that do not fit in memory.

    New lines go to standard output as they come, totals to standard error. Empty lines are left out.

    With --state the next run goes on, after a crash too: a line may then come again, none is lost.
    """
    from anabranch.crawler.cli.dedup import run_dedup  # noqa: PLC0415 - help must be fast

    command = DedupCommand(
        file=file,
        pcap=pcap,
        interface=interface,
        state=state,
        redis=tuple(redis or ()),
        name=name,
        kind=filter_,
        expected=expect,
        false_positive=false_positive,
        signature=signature,
        levels=levels,
        features=features,
        site_bound=site_bound,
        drop_query=drop_query,
        check=check,
        quiet=quiet,
    )
    raise typer.Exit(run_dedup(command))
