"""The command `anabranch`: `crawl` with its options, and the list of all commands.

The other commands are in `job_options.py`, `tool_options.py` and `lab_options.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anabranch.crawler.cli.job_options import add, frontier, index, pause, report, resume, status, stop, why
from anabranch.crawler.cli.lab_options import compare, lab, simulate, web
from anabranch.crawler.cli.parameters import FilePath, Number, Switch, Text, Texts, Whole
from anabranch.crawler.cli.tool_options import config, dedup, links
from anabranch.crawler.cli.tool_options import robots as robots_command

#: Never suggested for a misspelt option or command: they move or delete a job, remove URLs, or consent to a loss.
_NEVER_PROPOSED = frozenset({"--fresh", "--delete-old", "--yes", "rm"})


class _Group(TyperGroup):
    """A group that suggests only harmless commands and options for misspelt ones."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises: what the parser raises, without a suggestion if the name resembles a command that removes."""
        self.suggest_commands = not get_close_matches(args[0], _NEVER_PROPOSED)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Raises: what the parser of the command raises, with harmless suggestions only."""
        try:
            return super().invoke(ctx)
        except Exception as error:  # the parser's classes are private
            if isinstance(hints := getattr(error, "possibilities", None), list):
                hints[:] = [hint for hint in hints if hint not in _NEVER_PROPOSED]
            raise


app = typer.Typer(
    cls=_Group,
    help="A polite crawler that can be killed at any moment: the same command resumes it.",
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

#: The same as `frontier.policies.assignment.known_policies`; written here because help must be fast.
_POLICIES = (
    "Queue of a URL: host, surt, domain, ip, bkdr:N, elf:N, sdbm:N, bucket:N, parallel:N, package.module:function."
)

#: Parameters of `crawl` that are no keys of the crawl order; every other parameter is a key.
NO_KEYS = frozenset(
    {"sources", "order_file", "job", "settings", "again", "fresh", "delete_old", "yes", "verbose", "quiet"}
)


def _version(wanted: bool) -> None:
    if wanted:
        from anabranch.crawler.order.sections import VERSION  # noqa: PLC0415 - only when asked

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
    """Options of all commands."""


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
    again: Annotated[bool, typer.Option("--again", help="Crawl a finished job again.", rich_help_panel=_JOB)] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over; the old job is moved aside.", rich_help_panel=_JOB)
    ] = False,
    delete_old: Annotated[
        bool, typer.Option("--delete-old", help="With --fresh --yes: delete the old job.", rich_help_panel=_JOB)
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm --again with work left, or --delete-old.", rich_help_panel=_JOB)
    ] = False,
    contact: Annotated[Text, typer.Option(help="URL or mail address of the operator.", rich_help_panel=_FETCH)] = None,
    policy: Annotated[Text, typer.Option(help=_POLICIES, rich_help_panel=_FRONTIER)] = None,
    politeness: Annotated[
        Text, typer.Option(help="Politeness per host, per queue, or off.", rich_help_panel=_FRONTIER)
    ] = None,
    group: Annotated[
        Text,
        typer.Option(
            help="Politeness per group of hosts, too: ip, domain or module:function.", rich_help_panel=_FRONTIER
        ),
    ] = None,
    store: Annotated[
        Text,
        typer.Option(
            help="Where the queues are kept: memory (no resuming), or a database URL.", rich_help_panel=_FRONTIER
        ),
    ] = None,
    balance_replenish: Annotated[
        Whole, typer.Option(help="Cost units of a queue per session.", rich_help_panel=_FRONTIER)
    ] = None,
    total_budget: Annotated[
        Whole, typer.Option(help="Total cost units of a queue, -1 = no limit.", rich_help_panel=_FRONTIER)
    ] = None,
    max_connections: Annotated[Whole, typer.Option(help="Connections per host.", rich_help_panel=_FRONTIER)] = None,
    delay_factor: Annotated[
        Number, typer.Option(help="Delay = this × the duration of the fetch.", rich_help_panel=_FRONTIER)
    ] = None,
    min_delay: Annotated[Text, typer.Option(help="Shortest delay, as in 3s.", rich_help_panel=_FRONTIER)] = None,
    max_delay: Annotated[Text, typer.Option(help="Longest delay, as in 30s.", rich_help_panel=_FRONTIER)] = None,
    robots: Annotated[Text, typer.Option(help="obey or ignore robots.txt.", rich_help_panel=_FRONTIER)] = None,
    scope: Annotated[
        Text, typer.Option(help="Scope of a seed: host, prefix, domain, surt, page or any.", rich_help_panel=_LIMITS)
    ] = None,
    include: Annotated[
        Texts, typer.Option(metavar="REGEX", help="Also accept URLs that match; repeatable.", rich_help_panel=_LIMITS)
    ] = None,
    exclude: Annotated[
        Texts, typer.Option(metavar="REGEX", help="Reject URLs that match; repeatable.", rich_help_panel=_LIMITS)
    ] = None,
    max_hops: Annotated[Whole, typer.Option(help="Most links from a seed.", rich_help_panel=_LIMITS)] = None,
    limit: Annotated[Whole, typer.Option(help="Pages, 0 = no limit.", rich_help_panel=_LIMITS)] = None,
    size_limit: Annotated[Text, typer.Option(help="Fetched bytes, as in 10GB.", rich_help_panel=_LIMITS)] = None,
    time_limit: Annotated[Text, typer.Option(help="Time, as in 120s or 2h.", rich_help_panel=_LIMITS)] = None,
    sitemaps: Annotated[
        Switch, typer.Option("--sitemaps", help="Read sitemaps and feeds.", rich_help_panel=_LIMITS)
    ] = None,
    workers: Annotated[Whole, typer.Option(help="Concurrent fetches.", rich_help_panel=_FETCH)] = None,
    processes: Annotated[Whole, typer.Option(help="Processes that share the hosts.", rich_help_panel=_FETCH)] = None,
    loop: Annotated[
        Text, typer.Option(help="auto (uvloop if it is installed), asyncio or uvloop.", rich_help_panel=_FETCH)
    ] = None,
    timeout: Annotated[Text, typer.Option(help="Total time of one fetch.", rich_help_panel=_FETCH)] = None,
    max_body: Annotated[
        Text, typer.Option(help="Truncate bodies at this size, as in 16MiB.", rich_help_panel=_FETCH)
    ] = None,
    allow_private: Annotated[
        Switch, typer.Option("--allow-private", help="Fetch private and loopback addresses.", rich_help_panel=_FETCH)
    ] = None,
    warc: Annotated[Switch, typer.Option("--warc", help="Write WARC files.", rich_help_panel=_WRITE)] = None,
    warc_size: Annotated[
        Text, typer.Option(help="Start a new WARC file at this size, as in 1GB.", rich_help_panel=_WRITE)
    ] = None,
    links: Annotated[Switch, typer.Option("--links", help="Write links.jsonl.", rich_help_panel=_WRITE)] = None,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="More messages.")] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Errors only.")] = False,
) -> None:
    """Crawl from SEEDs; run the same command again to resume."""
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
