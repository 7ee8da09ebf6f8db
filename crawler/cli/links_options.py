"""The verb `links` and its options; what runs it is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.crawler.cli.option_types import Switch, Text, Whole

#: What is told beside the keys of the crawl order.
_NO_KEYS = frozenset({"source", "base", "content_type", "hops"})


def links(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="A file, or a URL that is fetched.")],
    base: Annotated[Text, typer.Option(help="The URL that the file came from.")] = None,
    content_type: Annotated[Text, typer.Option(help="What the file is (else: by its name).")] = None,
    hops: Annotated[str, typer.Option(help="How it was found: after M, lists of URLs are sitemaps.")] = "",
    max_outlinks: Annotated[Whole, typer.Option(help="Links that are kept.")] = None,
    css: Annotated[Switch, typer.Option("--css/--no-css", help="Read style sheets.")] = None,
    sitemaps: Annotated[Switch, typer.Option("--sitemaps/--no-sitemaps", help="Read sitemaps and feeds.")] = None,
    forms: Annotated[Switch, typer.Option("--forms/--no-forms", help="Follow forms sent by GET.")] = None,
    speculative: Annotated[
        Switch, typer.Option("--speculative/--no-speculative", help="Guess URLs in scripts and JSON.")
    ] = None,
    data_attributes: Annotated[
        Switch, typer.Option("--data-attributes/--no-data-attributes", help="Read data-src and its like.")
    ] = None,
    allow_private: Annotated[
        Switch, typer.Option("--allow-private", help="Fetch private and loopback addresses.")
    ] = None,
) -> None:
    """Print the links of FILE or URL: hop, URL, where it stands. Robots.txt is not asked."""
    from anabranch.crawler.cli.links import LinksCommand, run_links  # noqa: PLC0415 - help must be fast

    flags = {key: value for key, value in ctx.params.items() if key not in _NO_KEYS}
    command = LinksCommand(source=source, base=base, content_type=content_type, hops=hops, flags=flags)
    raise typer.Exit(run_links(command))
