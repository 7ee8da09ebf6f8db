"""The verbs of `anabranch` and their options."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anabranch.crawler.cli.compare_options import compare
from anabranch.crawler.cli.config_options import config
from anabranch.crawler.cli.dedup_options import dedup
from anabranch.crawler.cli.frontier_options import frontier, why
from anabranch.crawler.cli.index import index
from anabranch.crawler.cli.lab_options import lab
from anabranch.crawler.cli.lab_web_options import web
from anabranch.crawler.cli.links_options import links
from anabranch.crawler.cli.operate_options import add, pause, resume, status, stop
from anabranch.crawler.cli.option_types import FilePath, Number, Switch, Text, Texts, Whole
from anabranch.crawler.cli.report_options import report
from anabranch.crawler.cli.robots import robots as robots_command
from anabranch.crawler.cli.simulate_options import simulate

#: What no hint proposes for a slip: it puts an old job out of the way, removes URLs, or consents to a loss.
_NEVER_PROPOSED = frozenset({"--fresh", "--delete-old", "--yes", "rm"})


class _Group(TyperGroup):
    """Commands whose hints for slips are harmless."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises: what the parser raises, without a hint for what is like a command that removes."""
        self.suggest_commands = not get_close_matches(args[0], _NEVER_PROPOSED)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Raises: what the parser of the command raises, with harmless hints alone."""
        try:
            return super().invoke(ctx)
        except Exception as error:  # the parser's classes are private
            if isinstance(hints := getattr(error, "possibilities", None), list):
                hints[:] = [hint for hint in hints if hint not in _NEVER_PROPOSED]
            raise


app = typer.Typer(
    cls=_Group,
    help="A polite crawler that can be killed at any moment: the same command goes on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_FRONTIER = "Frontier and politeness"
_LIMITS = "Scope and limits"
_FETCH = "Fetching"
_WRITE = "Writing"
_JOB = "Job"

#: As `frontier.policies.assignment.known_policies` has them; help must be fast, so it is written here.
_POLICIES = (
    "Queue of a URL: host, surt, domain, ip, bkdr:N, elf:N, sdbm:N, bucket:N, parallel:N, package.module:function."
)

#: What `crawl` is told beside the keys of the crawl order; every other flag is a key.
NO_KEYS = frozenset(
    {"sources", "order_file", "job", "settings", "again", "fresh", "delete_old", "yes", "verbose", "quiet"}
)


def _version(wanted: bool) -> None:
    if wanted:
        from anabranch.crawler.orders.order import VERSION  # noqa: PLC0415 - only when asked

        typer.echo(f"anabranch {VERSION}")
        raise typer.Exit


def flags_of(parameters: Mapping[str, object]) -> dict[str, object]:
    """The parameters of `crawl` that are keys of the order; None if not given (a list that is not given comes empty)."""
    return {key: None if value == () else value for key, value in parameters.items() if key not in NO_KEYS}


@app.callback()
def anabranch(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Set up what all verbs share."""


@app.command()
def crawl(
    ctx: typer.Context,
    sources: Annotated[
        Texts,
        typer.Argument(metavar="[SEED]...", help="URLs, files of URLs, or - for standard input."),
    ] = None,
    order_file: Annotated[
        FilePath, typer.Option("-c", "--order", help="Crawl order (TOML).", rich_help_panel=_JOB)
    ] = None,
    settings: Annotated[
        Texts,
        typer.Option("-s", "--set", metavar="SECTION.KEY=VALUE", help="Any key of the order.", rich_help_panel=_JOB),
    ] = None,
    job: Annotated[FilePath, typer.Option(help="Job folder (else jobs/NAME).", rich_help_panel=_JOB)] = None,
    name: Annotated[Text, typer.Option(help="Name of the job.", rich_help_panel=_JOB)] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Another round of a finished job.", rich_help_panel=_JOB)
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over; the old job is moved aside.", rich_help_panel=_JOB)
    ] = False,
    delete_old: Annotated[
        bool, typer.Option("--delete-old", help="With --fresh --yes: delete the old job.", rich_help_panel=_JOB)
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Mean it: --again with work left, --delete-old.", rich_help_panel=_JOB)
    ] = False,
    contact: Annotated[Text, typer.Option(help="URL or mail of who runs the crawl.", rich_help_panel=_FETCH)] = None,
    policy: Annotated[Text, typer.Option(help=_POLICIES, rich_help_panel=_FRONTIER)] = None,
    politeness: Annotated[
        Text, typer.Option(help="A gate per host or queue, or off.", rich_help_panel=_FRONTIER)
    ] = None,
    group: Annotated[
        Text, typer.Option(help="A second gate: ip, domain or module:function.", rich_help_panel=_FRONTIER)
    ] = None,
    store: Annotated[
        Text, typer.Option(help="Where the queue is: memory (no resuming), or a database.", rich_help_panel=_FRONTIER)
    ] = None,
    balance_replenish: Annotated[
        Whole, typer.Option(help="Cost units of a queue's turn.", rich_help_panel=_FRONTIER)
    ] = None,
    total_budget: Annotated[
        Whole, typer.Option(help="Cost units of a queue in all, -1 = no limit.", rich_help_panel=_FRONTIER)
    ] = None,
    max_connections: Annotated[Whole, typer.Option(help="Connections per host.", rich_help_panel=_FRONTIER)] = None,
    delay_factor: Annotated[
        Number, typer.Option(help="Rest = this × the fetch's time.", rich_help_panel=_FRONTIER)
    ] = None,
    min_delay: Annotated[Text, typer.Option(help="Least rest, as in 3s.", rich_help_panel=_FRONTIER)] = None,
    max_delay: Annotated[Text, typer.Option(help="Longest rest, as in 30s.", rich_help_panel=_FRONTIER)] = None,
    robots: Annotated[Text, typer.Option(help="obey or ignore robots.txt.", rich_help_panel=_FRONTIER)] = None,
    scope: Annotated[
        Text, typer.Option(help="What a seed opens: host, prefix, domain, surt, page or any.", rich_help_panel=_LIMITS)
    ] = None,
    include: Annotated[
        Texts, typer.Option(metavar="REGEX", help="In is also what matches; repeatable.", rich_help_panel=_LIMITS)
    ] = None,
    exclude: Annotated[
        Texts, typer.Option(metavar="REGEX", help="Out is what matches; repeatable.", rich_help_panel=_LIMITS)
    ] = None,
    max_hops: Annotated[Whole, typer.Option(help="Links from a seed.", rich_help_panel=_LIMITS)] = None,
    limit: Annotated[Whole, typer.Option(help="Pages, 0 = no limit.", rich_help_panel=_LIMITS)] = None,
    size_limit: Annotated[Text, typer.Option(help="Fetched bytes, as in 10GB.", rich_help_panel=_LIMITS)] = None,
    time_limit: Annotated[Text, typer.Option(help="Time, as in 120s or 2h.", rich_help_panel=_LIMITS)] = None,
    sitemaps: Annotated[
        Switch, typer.Option("--sitemaps", help="Read sitemaps and feeds.", rich_help_panel=_LIMITS)
    ] = None,
    workers: Annotated[Whole, typer.Option(help="Fetches at once.", rich_help_panel=_FETCH)] = None,
    processes: Annotated[
        Whole, typer.Option(help="Processes that hosts are divided among.", rich_help_panel=_FETCH)
    ] = None,
    loop: Annotated[
        Text, typer.Option(help="auto (uvloop if it is installed), asyncio or uvloop.", rich_help_panel=_FETCH)
    ] = None,
    timeout: Annotated[Text, typer.Option(help="Time for one fetch in all.", rich_help_panel=_FETCH)] = None,
    max_body: Annotated[
        Text, typer.Option(help="Cut bodies at this size, as in 16MiB.", rich_help_panel=_FETCH)
    ] = None,
    allow_private: Annotated[
        Switch, typer.Option("--allow-private", help="Fetch private and loopback addresses.", rich_help_panel=_FETCH)
    ] = None,
    warc: Annotated[Switch, typer.Option("--warc", help="Write WARC files.", rich_help_panel=_WRITE)] = None,
    warc_size: Annotated[
        Text, typer.Option(help="Begin another WARC file at this size, as in 1GB.", rich_help_panel=_WRITE)
    ] = None,
    links: Annotated[Switch, typer.Option("--links", help="Write links.jsonl.", rich_help_panel=_WRITE)] = None,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Say more.")] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say only what went wrong.")] = False,
) -> None:
    """Crawl from SEEDs; run the same command again to go on where it ended."""
    from anabranch.crawler.cli.crawl import CrawlCommand, run_crawl  # noqa: PLC0415 - help must be fast

    command = CrawlCommand(
        sources=tuple(sources or ()),
        order_file=order_file,
        job=job,
        again=again,
        fresh=fresh,
        delete_old=delete_old,
        yes=yes,
        verbosity=-1 if quiet else verbose,
        settings=tuple(settings or ()),
        flags=flags_of(ctx.params),
    )
    raise typer.Exit(run_crawl(command))


for verb in (pause, resume, stop, status, add):
    app.command()(verb)
app.add_typer(config, name="config")
app.command()(dedup)
app.add_typer(frontier, name="frontier", cls=_Group)
app.command()(why)
app.command()(report)
app.command()(links)
app.command()(index)
app.command()(compare)
lab.command("policies")(compare)
lab.command()(simulate)
lab.command()(web)
app.add_typer(lab, name="lab")
app.command("robots")(robots_command)
