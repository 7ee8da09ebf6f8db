"""The verbs of `anabranch config` and their options; what runs them is imported when they run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anabranch.crawler.cli.option_types import FilePath, Texts

config = typer.Typer(
    help="Write, show and check crawl orders.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: What `show` hands on as it stands.
_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


@config.command()
def init(
    file: Annotated[FilePath, typer.Argument(metavar="[FILE]", help="A new file; else standard output.")] = None,
) -> None:
    """Write an order with every key, its default and what it means."""
    _run("init", file=file)


@config.command(context_settings=_PASSED_ON)
def show(
    ctx: typer.Context,
    arguments: Annotated[
        Texts,
        typer.Argument(metavar="[-c FILE] [FLAG]... [SEED]...", help="As for `anabranch crawl`."),
    ] = None,
    effective: Annotated[bool, typer.Option("--effective", help="All keys, defaults too.")] = False,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
) -> None:
    """Show the order that `anabranch crawl` with these arguments would run by: what is given, or all of it."""
    _run("show", crawl=_crawl_parameters(ctx, arguments or []), effective=effective, origin=origin)


@config.command()
def validate(
    file: Annotated[FilePath, typer.Argument(metavar="FILE", help="The order's file.")],
    settings: Annotated[
        Texts, typer.Option("-s", "--set", metavar="SECTION.KEY=VALUE", help="Any key of the order.")
    ] = None,
) -> None:
    """Check an order, with the variables of the environment, as a run would, and say everything that is wrong with it."""
    _run("validate", file=file, settings=tuple(settings or ()))


@config.command()
def schema() -> None:
    """Print the JSON Schema of an order, for editors."""
    _run("schema")


def _crawl_parameters(ctx: typer.Context, arguments: list[str]) -> dict[str, Any]:
    """The arguments as `anabranch crawl` reads them; what it would refuse is refused here."""
    root: Any = ctx.find_root().command
    crawl = root.get_command(ctx, "crawl")
    parameters: dict[str, Any] = crawl.make_context("crawl", list(arguments), parent=ctx.find_root()).params
    return parameters


def _run(verb: str, **parameters: Any) -> None:
    from anabranch.crawler.cli.config import run_config  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_config(verb, parameters))
