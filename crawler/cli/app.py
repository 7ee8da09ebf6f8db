"""The command `anabranch`: `crawl` with its options, and the list of all commands.

The other commands are in `job_options.py`, `tool_options.py` and `lab_options.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache, partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from anabranch.crawler.cli.console_options import console
from anabranch.crawler.cli.job_options import (
    add,
    archive,
    divide,
    export,
    frontier,
    index,
    jobs,
    move,
    pause,
    report,
    requeue,
    resume,
    retry,
    run_due,
    set_,
    status,
    stop,
    why,
    workers,
)
from anabranch.crawler.cli.lab_options import compare, lab, simulate, web
from anabranch.crawler.cli.parameters import (
    SECRET_ENV,
    FilePath,
    Number,
    OnEnd,
    OnEndAllowPrivate,
    OnEndCommand,
    OnEndSecretEnv,
    OnEndWebhook,
    Switch,
    Text,
    Texts,
    Whole,
    completed_from,
    flags_of,
)
from anabranch.crawler.cli.tool_options import config, dedup, links
from anabranch.crawler.cli.tool_options import robots as robots_command
from anabranch.crawler.report.table import escaped

#: Never suggested for a misspelt option or command: they move or delete a job, remove URLs, or consent to a loss.
_NEVER_PROPOSED = frozenset({"--fresh", "--delete-old", "--yes", "rm"})


class _Group(TyperGroup):
    """A group that suggests only harmless commands and options for misspelt ones, and quotes them escaped."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises: what the parser raises, without a suggestion if the name resembles a command that removes."""
        self.suggest_commands = not get_close_matches(args[0], _NEVER_PROPOSED)
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Raises: as `invoke`."""
        with _careful_errors():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        """Raises: what the parser of the command raises, with harmless suggestions only, and escaped."""
        with _careful_errors():
            return super().invoke(ctx)


@contextmanager
def _careful_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the parser's classes are private
        if isinstance(hints := getattr(error, "possibilities", None), list):
            hints[:] = [hint for hint in hints if hint not in _NEVER_PROPOSED]
        if hasattr(error, "format_message") and isinstance(message := getattr(error, "message", None), str):
            vars(error)["message"] = escaped(message)  # it quotes the command line
        raise


#: The command that stops before the first fetch.
CREATE = "create"

app = typer.Typer(
    cls=_Group,
    help="A polite crawler that can be killed at any moment: the same command resumes it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_FRONTIER: Callable[..., Any] = partial(typer.Option, rich_help_panel="Frontier and politeness")
_LIMITS: Callable[..., Any] = partial(typer.Option, rich_help_panel="Scope and limits")
_FETCH: Callable[..., Any] = partial(typer.Option, rich_help_panel="Fetching")
_WRITE: Callable[..., Any] = partial(typer.Option, rich_help_panel="Writing")
_JOB: Callable[..., Any] = partial(typer.Option, rich_help_panel="Job")

#: The same as `frontier.policies.assignment.known_policies`; written here because help must be fast.
_POLICIES = (
    "Queue of a URL: host, surt, domain, ip, bkdr:N, bkdr:N:SEED, elf:N, sdbm:N, bucket:N, parallel:N, length:N, "
    "package.module:function."
)


def _version(wanted: bool) -> None:
    if wanted:
        from anabranch.crawler.order.sections import VERSION  # noqa: PLC0415 - only when asked

        typer.echo(f"anabranch {VERSION}")
        raise typer.Exit


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
        Texts, typer.Argument(metavar="[SEED]...", help="URLs, files of URLs, or - for standard input.")
    ] = None,
    order_file: Annotated[FilePath, _JOB("-c", "--order", help="Crawl order (TOML).")] = None,
    settings: Annotated[Texts, _JOB("-s", "--set", metavar="SECTION.KEY=VALUE", help="Any key of the order.")] = None,
    job: Annotated[FilePath, _JOB(help="Job folder (else jobs/NAME).")] = None,
    name: Annotated[Text, _JOB(help="Name of the job.")] = None,
    worker: Annotated[Text, _JOB(help="Name of this worker in a job with several (default: the machine's).")] = None,
    again: Annotated[bool, _JOB("--again", help="Crawl a finished job again.")] = False,
    fresh: Annotated[bool, _JOB("--fresh", help="Start over; the old job is moved aside.")] = False,
    delete_old: Annotated[bool, _JOB("--delete-old", help="With --fresh --yes: delete the old job.")] = False,
    run_code: Annotated[
        bool, _JOB("--run-code", help="Trust the job: run user functions that only its own order names.")
    ] = False,
    yes: Annotated[bool, _JOB("--yes", help="Confirm --again with work left, or --delete-old.")] = False,
    contact: Annotated[Text, _FETCH(help="URL or mail address of the operator.")] = None,
    user_agent: Annotated[Text, _FETCH(help="The whole User-Agent; it must contain the product's name.")] = None,
    header: Annotated[
        Texts, _FETCH(metavar="'NAME: VALUE'", help="Send this header with each request; repeatable.")
    ] = None,
    proxy: Annotated[
        Text, _FETCH(metavar="URL", help="Proxy, as in http://host:3128; with -s fetch.proxy_resolves=true.")
    ] = None,
    policy: Annotated[
        Text, _FRONTIER(help=_POLICIES, autocompletion=completed_from("host", "surt", "domain", "ip", "bkdr:997"))
    ] = None,
    politeness: Annotated[
        Text,
        _FRONTIER(
            help="Politeness per host, per queue, or off.", autocompletion=completed_from("host", "queue", "off")
        ),
    ] = None,
    group: Annotated[
        Text,
        _FRONTIER(
            help="Politeness per group of hosts, too: ip, domain or module:function.",
            autocompletion=completed_from("ip", "domain"),
        ),
    ] = None,
    store: Annotated[
        Text,
        _FRONTIER(
            help="Where the queues are kept: memory (no resuming), or a database URL.",
            autocompletion=completed_from("memory"),
        ),
    ] = None,
    balance_replenish: Annotated[Whole, _FRONTIER(help="Cost units of a queue per session.")] = None,
    total_budget: Annotated[Whole, _FRONTIER(help="Total cost units of a queue, -1 = no limit.")] = None,
    max_connections: Annotated[Whole, _FRONTIER(help="Connections per host.")] = None,
    delay_factor: Annotated[Number, _FRONTIER(help="Delay = this × the duration of the fetch.")] = None,
    min_delay: Annotated[Text, _FRONTIER(help="Shortest delay, as in 3s.")] = None,
    max_delay: Annotated[Text, _FRONTIER(help="Longest delay, as in 30s.")] = None,
    robots: Annotated[
        Text, _FRONTIER(help="obey or ignore robots.txt.", autocompletion=completed_from("obey", "ignore"))
    ] = None,
    scope: Annotated[
        Text,
        _LIMITS(
            help="Scope of a seed: host, prefix, domain, surt, page or any.",
            autocompletion=completed_from("host", "prefix", "domain", "surt", "page", "any"),
        ),
    ] = None,
    include: Annotated[Texts, _LIMITS(metavar="REGEX", help="Also accept URLs that match; repeatable.")] = None,
    exclude: Annotated[Texts, _LIMITS(metavar="REGEX", help="Reject URLs that match; repeatable.")] = None,
    max_hops: Annotated[Whole, _LIMITS("--max-hops", "--depth", help="Most links from a seed.")] = None,
    limit: Annotated[Whole, _LIMITS(help="Most pages; 0 = no limit.")] = None,
    size_limit: Annotated[Text, _LIMITS(help="Most fetched bytes, as in 10GB.")] = None,
    time_limit: Annotated[Text, _LIMITS(help="Longest time, as in 120s or 2h.")] = None,
    sitemaps: Annotated[Switch, _LIMITS("--sitemaps", help="Read sitemaps and feeds.")] = None,
    workers: Annotated[Whole, _FETCH(help="Concurrent fetches.")] = None,
    processes: Annotated[Whole, _FETCH(help="Processes that share the hosts.")] = None,
    loop: Annotated[
        Text,
        _FETCH(
            help="auto (uvloop if it is installed), asyncio or uvloop.",
            autocompletion=completed_from("auto", "asyncio", "uvloop"),
        ),
    ] = None,
    timeout: Annotated[Text, _FETCH(help="Total time of one fetch.")] = None,
    max_body: Annotated[Text, _FETCH(help="Truncate bodies at this size, as in 16MiB.")] = None,
    allow_private: Annotated[Switch, _FETCH("--allow-private", help="Fetch private and loopback addresses.")] = None,
    metrics: Annotated[Text, _JOB(help="Serve metrics for Prometheus at this address, as in 127.0.0.1:9400.")] = None,
    warc: Annotated[Switch, _WRITE("--warc", help="Write WARC files.")] = None,
    warc_size: Annotated[Text, _WRITE(help="Start a new WARC file at this size, as in 1GB.")] = None,
    links: Annotated[Switch, _WRITE("--links", help="Write links.jsonl.")] = None,
    on_end_command: OnEndCommand = None,
    on_end_webhook: OnEndWebhook = None,
    on_end_secret_env: OnEndSecretEnv = SECRET_ENV,
    on_end_allow_private: OnEndAllowPrivate = False,
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
        run_code=run_code,
        yes=yes,
        verbosity=-1 if quiet else verbose,
        settings=tuple(settings or ()),
        flags=flags_of(ctx.params),
        creates=ctx.command.name == CREATE,
        on_end=OnEnd(on_end_command, on_end_webhook, on_end_secret_env, on_end_allow_private),
    )
    raise typer.Exit(run_crawl(command))


app.command(
    CREATE, help="Create a job without a fetch; SEEDS are queued. The options are those of `crawl`, which crawls it."
)(crawl)

for verb in (pause, resume, stop, status, add, retry):
    app.command()(verb)
app.command("set")(set_)
app.command()(jobs)
app.command()(run_due)
app.add_typer(config, name="config")
app.add_typer(console, name="console")
app.command()(dedup)
app.add_typer(frontier, name="frontier", cls=_Group)
app.add_typer(archive, name="archive")
for command in (why, report, workers, requeue, move, divide, links, index, export, compare):
    app.command()(command)
lab.command("policies")(compare)
lab.command()(simulate)
lab.command()(web)
app.add_typer(lab, name="lab")
app.command("robots")(robots_command)


@cache
def root_command() -> Callable[..., Any]:
    """The command `anabranch` with all its commands and options. Built once a process: 50 ms for 300 parameters."""
    return get_command(app)
