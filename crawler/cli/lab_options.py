"""The commands of `anabranch lab` and their options. `compare` is `lab policies`, too.

An option's parameter has the name of a field of the experiment's options; an option that is not given keeps the default.
What runs the commands (`lab.py`) is imported when they run, so that help is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    parse_levels,
    parse_names,
    parse_numbers,
    parse_seconds,
)

lab = typer.Typer(
    help="Run a published experiment, or your own: tables, a picture, a CSV file.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FILE: Callable[..., Any] = partial(typer.Option, rich_help_panel="Input and output")
#: How a number of things and a duration are read.
COUNT: dict[str, Any] = {"metavar": "N", "parser": parse_count}
TIME: dict[str, Any] = {"metavar": "TIME", "parser": parse_seconds}

Urls = Annotated[FilePath, FILE(metavar="FILE|-", help="Use these URLs, one per line (default: generated ones).")]
Plot = Annotated[FilePath, FILE(metavar="FILE.png", help="Draw it (or .svg, .pdf; needs matplotlib).")]
Csv = Annotated[FilePath, FILE(metavar="FILE", help="Write the tables' numbers.")]
UrlsSeed = Annotated[Whole, FILE(help="Seed of the generated URLs (default 1).")]


@lab.command()
def smm(
    ctx: typer.Context,
    count: Annotated[Whole, typer.Option(help="URLs to generate, as in 500k (default 75012).", **COUNT)] = None,
    repeats: Annotated[
        Number, typer.Option(metavar="SHARE", help="Share of the input that repeats earlier URLs (default 0.0).")
    ] = None,
    runs: Annotated[Whole, typer.Option(help="Openings of the store, runs of each method (default 9).")] = None,
    probes: Annotated[Whole, typer.Option(help="URLs asked for false positives (default 1M).", **COUNT)] = None,
    signature: Annotated[
        Text,
        typer.Option(
            help="crc32, md5, sha1, xxh3-64, package.module:function (default crc32).",
            autocompletion=completed_from("crc32", "md5", "sha1", "xxh3-64"),
        ),
    ] = None,
    levels: Annotated[
        Numbers, typer.Option(metavar="N,N", parser=parse_levels, help="Bytes per level (default 1,3).")
    ] = None,
    quick: Annotated[Switch, typer.Option("--quick", help="Leave out the table of 10 buckets.")] = None,
    urls: Urls = None,
    seed: UrlsSeed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """SMM against bitmap hash tables and Bloom filters: time of two passes, false positives.

    Tables 1 to 3 of patent CN102693315 with 75,012 URLs.
    """
    _run_experiment("smm", ctx.params)


@lab.command()
def fpr(
    ctx: typer.Context,
    n: Annotated[Whole, typer.Option("--n", help="URLs at the end (default 2M).", **COUNT)] = None,
    leaves: Annotated[
        Numbers, typer.Option(metavar="C,C,...", parser=parse_numbers, help="Leaves (default 1,2,3,5,10).")
    ] = None,
    points: Annotated[Whole, typer.Option(help="Points of each curve (default 10).")] = None,
    false_positive: Annotated[
        Number, typer.Option(metavar="RATE", help="f_max; sets the sizes (default 0.001).")
    ] = None,
    urls: Urls = None,
    seed: UrlsSeed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """DSBF: false-positive rate against n for several numbers of leaves, beside the formula.

    Figure 7 of the DSBF paper (2016).
    """
    _run_experiment("fpr", ctx.params)


@lab.command()
def split(
    ctx: typer.Context,
    n: Annotated[Whole, typer.Option("--n", help="URLs in the end (default 2.32M).", **COUNT)] = None,
    planned: Annotated[Whole, typer.Option(help="URLs that the DSBF is made for (default 290k).", **COUNT)] = None,
    points: Annotated[Whole, typer.Option(help="Points of each curve (default 40).")] = None,
    probes: Annotated[Whole, typer.Option(help="New URLs asked at each point (default 50k).", **COUNT)] = None,
    leaf_bits: Annotated[
        Whole, typer.Option(metavar="M", help="Bits of a leaf, a power of two (default 131072).")
    ] = None,
    split_fan_out: Annotated[Whole, typer.Option("--fan-out", help="Children of a full leaf (default 4).")] = None,
    false_positive: Annotated[Number, typer.Option(metavar="RATE", help="f_max (default 0.001).")] = None,
    urls: Urls = None,
    seed: UrlsSeed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """DSBF that splits beside one Bloom filter of the planned size and one of the final size.

    Error rate and cost against n: the claim of the DSBF patents, and where it does not hold.
    """
    _run_experiment("split", ctx.params)


@lab.command()
def redis(
    ctx: typer.Context,
    count: Annotated[Whole, typer.Option(help="URLs to generate, as in 500k (default 1M).", **COUNT)] = None,
    batch: Annotated[Whole, typer.Option(help="URLs asked at a time by a thread (default 300).")] = None,
    threads: Annotated[
        Numbers, typer.Option(metavar="T,T,...", parser=parse_numbers, help="Clients at once (default 1,2,4,8,16).")
    ] = None,
    leaves: Annotated[
        Numbers, typer.Option(metavar="C,C,...", parser=parse_numbers, help="Leaves, one per server (default 1,2,3,5).")
    ] = None,
    latency_s: Annotated[
        Number,
        typer.Option("--latency", help="Round-trip time to all servers but one, as in 0.4ms (default 0).", **TIME),
    ] = None,
    false_positive: Annotated[Number, typer.Option(metavar="RATE", help="f_max of the DSBF (default 0.001).")] = None,
    server: Annotated[FilePath, typer.Option(metavar="PROGRAM", help="The redis-server to start.")] = None,
    urls: Urls = None,
    seed: UrlsSeed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """DSBF with leaves on Redis servers, started by the command: URLs per second against threads.

    Figure 9 of the DSBF paper (2016).
    """
    _run_experiment("redis", ctx.params)


@lab.command()
def balance(
    ctx: typer.Context,
    count: Annotated[Whole, typer.Option(help="URLs to generate, as in 500k (default 1.5M).", **COUNT)] = None,
    leaves: Annotated[Whole, typer.Option(help="Leaves of the DSBF (default 10).")] = None,
    filters: Annotated[
        Whole, typer.Option(help="Fixed filters, chosen by hash (default: as much memory as the DSBF).")
    ] = None,
    two_gigabytes: Annotated[
        Switch,
        typer.Option("--two-gigabytes/--no-two-gigabytes", help="The filter of 2 GB on the disk, too (default yes)."),
    ] = None,
    false_positive: Annotated[Number, typer.Option(metavar="RATE", help="f_max of the DSBF (default 0.001).")] = None,
    urls: Urls = None,
    seed: UrlsSeed = None,
    plot: Plot = None,
    csv: Csv = None,
) -> None:
    """Fixed filters per domain against a DSBF: URLs, fill and false positives per filter.

    Figures 10 and 11 of the DSBF paper (2016) with 1.5 million URLs of portals and small sites.
    """
    _run_experiment("balance", ctx.params)


def _run_experiment(name: str, parameters: Mapping[str, Any]) -> None:
    from anabranch.crawler.cli.lab import run_lab  # noqa: PLC0415 - help must be fast

    frame = {key: value for key, value in parameters.items() if key in {"plot", "csv", "json"}}
    flags = {key: value for key, value in parameters.items() if key not in frame}
    raise typer.Exit(run_lab(name, flags, **frame))


#: An option in its panel of the help.
RUN: Callable[..., Any] = partial(typer.Option, rich_help_panel="Runs")
WEB: Callable[..., Any] = partial(typer.Option, rich_help_panel="The web")
#: How a list of names is read.
NAMES = {"metavar": "NAME,...", "parser": parse_names}

#: An option of a comparison of filters.
FILTERS: Callable[..., Any] = partial(typer.Option, rich_help_panel="Filters instead of policies")

Policies = Annotated[Numbers, RUN(help="Queue policies (default host,parallel:8,elf:997,bkdr:997).", **NAMES)]
Workers = Annotated[Whole, RUN(help="Concurrent fetches (default 1000).")]
Politeness = Annotated[
    Text,
    RUN(
        metavar="polite|paper|off",
        help="Delays per host, per queue as in the paper, or none (default polite).",
        autocompletion=completed_from("polite", "paper", "off"),
    ),
]
Connections = Annotated[Whole, RUN(metavar="K", help="Connections per host, if polite (default 1).")]
DelayFactor = Annotated[Number, RUN(help="Delay per second of fetching (default 5).")]
WebSeed = Annotated[Whole, WEB(help="Seed of the generated web (default 1).")]
Replay = Annotated[FilePath, WEB(metavar="crawl.log", help="Use the web of this crawl.")]

_SITES: Callable[..., Any] = partial(typer.Option, rich_help_panel="A real crawl instead")


def compare(
    ctx: typer.Context,
    policies: Policies = None,
    workers: Workers = None,
    politeness: Politeness = None,
    connections: Connections = None,
    delay_factor: DelayFactor = None,
    min_delay_s: Annotated[Number, RUN("--min-delay", help="Shortest delay (default 50ms).", **TIME)] = None,
    max_delay_s: Annotated[Number, RUN("--max-delay", help="Longest delay (default 500ms).", **TIME)] = None,
    seconds: Annotated[Number, RUN(help="Longest duration of a run (default 60).", **TIME)] = None,
    repeat: Annotated[Whole, RUN(help="Runs of each policy (default 1).")] = None,
    kinds: Annotated[
        Numbers,
        WEB("--kind", help="portals: five with sub-domains; subdomains: one with many (default portals).", **NAMES),
    ] = None,
    pages: Annotated[Whole, WEB(help="Total URLs (default 20k, 50k with --filters).", **COUNT)] = None,
    hosts: Annotated[Whole, WEB(help="Total host names (default 40).", **COUNT)] = None,
    latency_s: Annotated[Number, WEB("--latency", help="Median to the first byte (default 100ms).", **TIME)] = None,
    seed: WebSeed = None,
    replay: Replay = None,
    seeds: Annotated[
        FilePath, _SITES(metavar="FILE", help="Crawl these sites over the network, politely (delays of 3s to 30s).")
    ] = None,
    allow_private: Annotated[Switch, _SITES("--allow-private", help="Fetch private and loopback addresses.")] = None,
    own_hosts: Annotated[
        Texts,
        _SITES(
            "--own-host",
            metavar="HOST",
            help="Your own host, repeatable: the crawl stays on these hosts; --politeness may be paper or off.",
        ),
    ] = None,
    filters: Annotated[
        Numbers,
        FILTERS(
            help="Compare these: smm, dsbf, both, exact, similar; rbloom, blocked-bloom, scalable-bloom, cuckoo, fuse8, "
            "fuse16; package.module:Class.",
            **NAMES,
        ),
    ] = None,
    expected: Annotated[
        Whole, FILTERS(help="Size the filters for this many URLs (default: as many as there are).", **COUNT)
    ] = None,
    false_positive: Annotated[
        Number, FILTERS(metavar="RATE", help="Size the filters for this error rate (default 0.001).")
    ] = None,
    bits: Annotated[
        Number,
        FILTERS(metavar="BITS", help="Then for this memory for each URL (default 20; 0: leave that comparison out)."),
    ] = None,
    urls: Annotated[FilePath, FILTERS(metavar="FILE|-", help="Ask for these URLs, one per line.")] = None,
    plot: Plot = None,
    csv: Csv = None,
    json: Annotated[FilePath, FILE(metavar="FILE", help="Write all measurements; - is standard output.")] = None,
    live: Annotated[FilePath, FILE(metavar="FILE", help="Write a line of JSON a second while policies run.")] = None,
) -> None:
    """Compare queue policies by active workers: real crawls, one after the other, on the same web.

    The experiment of the paper on BKDR queue assignment (2013), figures 4 to 6. Results: docs/explanation/queue-policies.md.
    With --filters it compares URL filters: what they lose, time, memory, disk. Results: docs/explanation/experiments.md.
    """
    from anabranch.crawler.cli.lab import run_comparison  # noqa: PLC0415 - help must be fast

    names = {str(parameter.name): parameter.opts[0] for parameter in ctx.command.params}
    raise typer.Exit(run_comparison(ctx.params, names))


_LIVE: Callable[..., Any] = partial(typer.Option, rich_help_panel="Beside a live comparison")


def simulate(
    ctx: typer.Context,
    policies: Policies = None,
    workers: Workers = None,
    politeness: Politeness = None,
    connections: Connections = None,
    delay_factor: DelayFactor = None,
    min_delay_s: Annotated[Number, RUN("--min-delay", help="Shortest delay (default 3s).", **TIME)] = None,
    max_delay_s: Annotated[Number, RUN("--max-delay", help="Longest delay (default 30s).", **TIME)] = None,
    scale: Annotated[Number, RUN(help="Divides the default times; 60 gives those of compare (default 1).")] = None,
    page_cost_s: Annotated[
        Number, RUN("--page-cost", help="Processor time of the crawler per page (default: none).", **TIME)
    ] = None,
    seconds: Annotated[
        Number, RUN(help="Longest virtual time of a run (default: until it is drained).", **TIME)
    ] = None,
    repeat: Annotated[Whole, RUN(help="Runs of each policy, each on another web (default 1).")] = None,
    kinds: Annotated[
        Numbers, WEB("--kind", help="hosts, portals, subdomains, or several (default hosts).", **NAMES)
    ] = None,
    pages: Annotated[Whole, WEB(help="Total URLs (default 1M).", **COUNT)] = None,
    hosts: Annotated[Whole, WEB(help="Total host names (default 100k).", **COUNT)] = None,
    links: Annotated[Whole, WEB(help="Mean links of a page, besides those of the tree (default 2).")] = None,
    latency_s: Annotated[Number, WEB("--latency", help="Median to the first byte (default 1s).", **TIME)] = None,
    seed: WebSeed = None,
    replay: Replay = None,
    beside: Annotated[
        FilePath,
        _LIVE(
            metavar="FILE", help="A result of `compare --json`: simulate the same, draw it dashed, show the deviation."
        ),
    ] = None,
    plot: Plot = None,
    csv: Csv = None,
    json: Annotated[FilePath, FILE(metavar="FILE", help="Write all results; - is standard output.")] = None,
) -> None:
    """Compare queue policies on webs of any size: the real Frontier in virtual time, no sockets.

    Nothing is fetched: a generated web gives the duration of each fetch. docs/how-to/simulate.md describes the model.
    """
    _run_experiment("simulate", ctx.params)


_LEDGER: Callable[..., Any] = partial(typer.Option, rich_help_panel="The ledger")


def web(
    ctx: typer.Context,
    pages: Annotated[Whole, WEB(help="Total URLs (default 20k).", **COUNT)] = None,
    kind: Annotated[
        Text,
        WEB(
            help="portals, subdomains or hosts (default portals).",
            autocompletion=completed_from("portals", "subdomains", "hosts"),
        ),
    ] = None,
    hosts: Annotated[Whole, WEB(help="Total host names (default 40).", **COUNT)] = None,
    links: Annotated[Whole, WEB(help="Mean links of a page (default 10).")] = None,
    latency_s: Annotated[Number, WEB("--latency", help="Median to the first byte (default 100ms).", **TIME)] = None,
    bandwidth: Annotated[Number, WEB(metavar="BYTES", help="Median bytes per second (default 2000000).")] = None,
    seed: WebSeed = None,
    replay: Replay = None,
    port: Annotated[int, typer.Option(help="Port of 127.0.0.1; 0 = any free one.", min=0, max=65535)] = 0,
    order: Annotated[
        FilePath, typer.Option(metavar="FILE.toml", help="Write a crawl order that finds these hosts.")
    ] = None,
    connections: Annotated[int, _LEDGER(help="Connections that a host allows.", min=1, max=1000)] = 1,
    min_delay_s: Annotated[
        Number, _LEDGER("--min-delay", help="Shortest delay of a connection after a request (default 0).", **TIME)
    ] = None,
) -> None:
    """Serve a generated web to any crawler until Ctrl-C, then show the requests that each host received."""
    from anabranch.crawler.cli.lab import run_web  # noqa: PLC0415 - help must be fast

    own = {"replay", "port", "order", "connections", "min_delay_s"}
    flags = {key: value for key, value in ctx.params.items() if key not in own and value is not None}
    code = run_web(
        flags, replay=replay, port=port, order=order, connections=connections, min_delay_s=min_delay_s or 0.0
    )
    raise typer.Exit(code)
