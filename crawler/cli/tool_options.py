"""The commands that need no job, and their options: config, dedup, links, robots.

What runs them (`config.py`, `dedup.py`, `probe.py`) is imported when they run, so that help is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from anabranch.crawler.cli.parameters import (
    FilePath,
    Number,
    Numbers,
    Switch,
    Text,
    Texts,
    Whole,
    completed_from,
    parse_count,
    parse_folder,
    parse_levels,
)

config = typer.Typer(
    help="Write, show and check crawl orders.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: Of `show`: unknown options are passed on to `crawl`.
_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


@config.command()
def init(
    file: Annotated[FilePath, typer.Argument(metavar="[FILE]", help="A new file; else standard output.")] = None,
) -> None:
    """Write an order with every key, its default and what it means."""
    _run_config("init", file=file)


@config.command(context_settings=_PASSED_ON)
def show(
    ctx: typer.Context,
    arguments: Annotated[
        Texts, typer.Argument(metavar="[-c FILE] [FLAG]... [SEED]...", help="As for `anabranch crawl`.")
    ] = None,
    effective: Annotated[bool, typer.Option("--effective", help="All keys, defaults too.")] = False,
    origin: Annotated[bool, typer.Option("--origin", help="Show the source of each value.")] = False,
) -> None:
    """Show the order that `anabranch crawl` would use with these arguments: the given keys, or all of them."""
    _run_config("show", crawl=_crawl_parameters(ctx, arguments or []), effective=effective, origin=origin)


@config.command()
def validate(
    file: Annotated[FilePath, typer.Argument(metavar="FILE", help="The order's file.")],
    settings: Annotated[
        Texts, typer.Option("-s", "--set", metavar="SECTION.KEY=VALUE", help="Any key of the order.")
    ] = None,
) -> None:
    """Check an order as a crawl would, with the variables of the environment, and report every fault."""
    _run_config("validate", file=file, settings=tuple(settings or ()))


@config.command()
def schema() -> None:
    """Print the JSON Schema of an order, for editors."""
    _run_config("schema")


def _crawl_parameters(ctx: typer.Context, arguments: list[str]) -> dict[str, Any]:
    """Parse the arguments as `anabranch crawl` does, with the same errors."""
    root: Any = ctx.find_root().command
    crawl = root.get_command(ctx, "crawl")
    parameters: dict[str, Any] = crawl.make_context("crawl", list(arguments), parent=ctx.find_root()).params
    return parameters


def _run_config(verb: str, **parameters: Any) -> None:
    from anabranch.crawler.cli.config import run_config  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_config(verb, parameters))


_INPUT: Callable[..., Any] = partial(typer.Option, rich_help_panel="Input")
_FILTER: Callable[..., Any] = partial(typer.Option, rich_help_panel="Filter")
_STAGE: Callable[..., Any] = partial(typer.Option, rich_help_panel="A stage before the filter")
_SIMILAR: Callable[..., Any] = partial(typer.Option, rich_help_panel="Filter similar")
_SHARED: Callable[..., Any] = partial(typer.Option, rich_help_panel="Shared by Redis servers")


def dedup(
    ctx: typer.Context,
    file: Annotated[
        Text, typer.Argument(metavar="[FILE]", help="URLs, one per line (default, or -: standard input).")
    ] = None,
    state: Annotated[
        FilePath, _FILTER(metavar="DIR", parser=parse_folder, help="Keep the filter in this folder from run to run.")
    ] = None,
    kind: Annotated[
        Text,
        _FILTER(
            "--filter",
            help="smm, dsbf, both, exact or similar (default both).",
            autocompletion=completed_from("smm", "dsbf", "both", "exact", "similar"),
        ),
    ] = None,
    expected: Annotated[
        Whole,
        _FILTER(
            "--expect", metavar="N", parser=parse_count, help="URLs to expect, as in 500k (default 10M; similar: 1M)."
        ),
    ] = None,
    false_positive: Annotated[
        Number, _FILTER(metavar="RATE", help="Rate of the DSBF or of similar, fill of an smm, at most (default 0.001).")
    ] = None,
    signature: Annotated[
        Text,
        _FILTER(
            help="Of the SMM: crc32, md5, sha1, xxh3, package.module:function (default: xxh3 for smm, else crc32).",
            autocompletion=completed_from("crc32", "md5", "sha1", "xxh3"),
        ),
    ] = None,
    levels: Annotated[
        Numbers,
        _FILTER(
            metavar="N,N", parser=parse_levels, help="Of the SMM: bytes per level, as in 1,3 (default: by --expect)."
        ),
    ] = None,
    leaf_kind: Annotated[
        Text,
        _FILTER(
            metavar="KIND",
            help="Of the DSBF: blocked (quick, the default of a new filter) or classic.",
            autocompletion=completed_from("blocked", "classic"),
        ),
    ] = None,
    leaf_bits: Annotated[Whole, _FILTER(metavar="BITS", help="Of the DSBF: bits of a leaf (default 8388608).")] = None,
    split_fan_out: Annotated[
        Whole, _FILTER(metavar="N", help="Of the DSBF: children that a full leaf gets (default 4).")
    ] = None,
    similar: Annotated[
        Text,
        _STAGE(
            metavar="MODE",
            help="published or site-bound: drop lines that resemble new ones, too.",
            autocompletion=completed_from("published", "site-bound"),
        ),
    ] = None,
    similar_expect: Annotated[
        Whole, _STAGE(metavar="N", parser=parse_count, help="URLs to expect there (default 1M).")
    ] = None,
    similar_features: Annotated[Text, _STAGE(help="As --features.")] = None,
    similar_false_positive: Annotated[
        Number, _STAGE(metavar="RATE", help="Rate of that stage, at most (default 0.001).")
    ] = None,
    features: Annotated[
        Text, _SIMILAR(help="Any of site,depth,directory,tail (default: these four), package.module:function.")
    ] = None,
    site_bound: Annotated[
        Switch, _SIMILAR("--site-bound/--published", help="Compare only within a site (default --published).")
    ] = None,
    drop_query: Annotated[
        Switch, _SIMILAR("--drop-query/--keep-query", help="Ignore queries (default --keep-query).")
    ] = None,
    pcap: Annotated[Text, _INPUT(metavar="FILE", help="URLs of the HTTP requests in a capture.")] = None,
    interface: Annotated[
        Text, _INPUT(metavar="IF", help="URLs of the HTTP requests on this interface, live (needs root).")
    ] = None,
    redis: Annotated[Texts, _SHARED(metavar="URL", help="A server of the filter; repeatable.")] = None,
    name: Annotated[Text, _SHARED(help="Name of the filter on the servers (default anabranch).")] = None,
    check: Annotated[bool, typer.Option("--check", help="Verify the filter, read no URLs.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Errors only.")] = False,
) -> None:
    """Pass on each URL once: uniq for streams that do not fit in memory.

    New lines go to standard output as they come, totals to standard error. Empty lines are left out.

    With --state the next run continues where this one ended. After a crash a line may come again, but none is lost.
    """
    from anabranch.crawler.cli.dedup import DedupCommand, run_dedup  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_dedup(DedupCommand(**ctx.params | {"redis": tuple(redis or ())})))


#: Parameters of `links` that are no keys of the crawl order.
_NO_KEYS = frozenset({"source", "base", "content_type", "hops"})


def links(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="A file, or a URL that is fetched.")],
    base: Annotated[Text, typer.Option(help="URL of the file.")] = None,
    content_type: Annotated[Text, typer.Option(help="Content type of the file (else: by its name).")] = None,
    hops: Annotated[
        str, typer.Option(help="Hop path to the source; after M a list of URLs is read as a sitemap.")
    ] = "",
    max_outlinks: Annotated[Whole, typer.Option(help="Most links that are kept.")] = None,
    css: Annotated[Switch, typer.Option("--css/--no-css", help="Read style sheets.")] = None,
    sitemaps: Annotated[Switch, typer.Option("--sitemaps/--no-sitemaps", help="Read sitemaps and feeds.")] = None,
    forms: Annotated[Switch, typer.Option("--forms/--no-forms", help="Follow forms sent by GET.")] = None,
    speculative: Annotated[
        Switch, typer.Option("--speculative/--no-speculative", help="Guess URLs in scripts and JSON.")
    ] = None,
    data_attributes: Annotated[
        Switch, typer.Option("--data-attributes/--no-data-attributes", help="Read data-src and similar attributes.")
    ] = None,
    embed_attributes: Annotated[
        Texts,
        typer.Option(
            "--embed-attributes",
            metavar="[ELEMENT/@]NAME",
            help="Read parts of the page from this attribute, too; repeatable.",
        ),
    ] = None,
    link_attributes: Annotated[
        Texts,
        typer.Option(
            "--link-attributes", metavar="[ELEMENT/@]NAME", help="Read links from this attribute, too; repeatable."
        ),
    ] = None,
    allow_private: Annotated[
        Switch, typer.Option("--allow-private", help="Fetch private and loopback addresses.")
    ] = None,
) -> None:
    """Print the links of FILE or URL: hop, URL, context. robots.txt is not consulted."""
    from anabranch.crawler.cli.probe import run_links  # noqa: PLC0415 - help must be fast

    flags = {key: value for key, value in ctx.params.items() if key not in _NO_KEYS}
    raise typer.Exit(run_links(source, base=base, content_type=content_type, hops=hops, flags=flags))


def robots(
    url: Annotated[str, typer.Argument(metavar="URL", help="The page to be fetched.")],
    agent: Annotated[Text, typer.Option(help="Product token of the crawler (else: of Anabranch).")] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Fetch private and loopback addresses.")
    ] = False,
) -> None:
    """Fetch a host's robots.txt and show whether it allows URL, and which line decides."""
    from anabranch.crawler.cli.probe import run_robots  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_robots(url, agent=agent, allow_private=allow_private))
