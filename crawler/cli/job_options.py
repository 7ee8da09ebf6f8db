"""The commands on a job and their options: pause, resume, stop, status, add, report, index, export, frontier, why.

What runs them (`status.py`, `operate.py`, `frontier.py`) is imported when they run, so that help is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.crawler.cli.parameters import (
    SECRET_ENV,
    FilePath,
    Job,
    Json,
    Number,
    OnEnd,
    OnEndAllowPrivate,
    OnEndCommand,
    OnEndSecretEnv,
    OnEndWebhook,
    RunCode,
    Text,
    Texts,
    complete_job,
    completed_from,
    parse_moment,
    parse_names,
    parse_positive_seconds,
    parse_units,
)
from anabranch.frontier.jobfolder import JOBS


def jobs(
    place: Annotated[
        str,
        typer.Argument(
            metavar="[FOLDER]", help="The folder that holds the jobs, or the URL of a database or its server."
        ),
    ] = str(JOBS),
    as_json: Json = False,
) -> None:
    """List the jobs in a folder or a database: state, pages, queued and failed URLs, free disk space, last trouble."""
    from anabranch.crawler.cli.status import run_jobs  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_jobs(place, as_json=as_json))


def run_due(
    place: Annotated[str, typer.Argument(metavar="[FOLDER]", help="The folder that holds the jobs.")] = str(JOBS),
    lists: Annotated[bool, typer.Option("--list", help="List the schedules instead, and start nothing.")] = False,
    run_code: RunCode = False,
    on_end_command: OnEndCommand = None,
    on_end_webhook: OnEndWebhook = None,
    on_end_secret_env: OnEndSecretEnv = SECRET_ENV,
    on_end_allow_private: OnEndAllowPrivate = False,
    as_json: Json = False,
) -> None:
    """Start the jobs of FOLDER that are due by their `[job] schedule`; for cron or a systemd timer, say each minute."""
    from anabranch.crawler.cli.due import run_due, run_schedules  # noqa: PLC0415 - help must be fast

    if as_json and not lists:
        raise typer.BadParameter("--json is for --list")
    if lists:
        raise typer.Exit(run_schedules(place, as_json=as_json))
    on_end = OnEnd(on_end_command, on_end_webhook, on_end_secret_env, on_end_allow_private)
    raise typer.Exit(run_due(place, on_end, run_code=run_code))


def pause(job: Job) -> None:
    """Pause a running crawl until it is resumed or ends."""
    _run_operate("pause", job)


def resume(
    job: Job,
    worker: Annotated[
        Text, typer.Option("--worker", metavar="NAME", help="Instead, let this drained worker of a database come back.")
    ] = None,
) -> None:
    """Resume a paused crawl, even past the limit that paused it. Workers of a stopped job in a database may start again."""
    _run_operate("resume", job, {} if worker is None else {"worker": worker})


def stop(
    job: Job,
    now: Annotated[bool, typer.Option("--now", help="Abort fetches in progress.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the crawl has ended.")] = False,
) -> None:
    """Stop a crawl in order: fetches in progress finish. Its command resumes it; a job in a database needs `resume` first."""
    _run_operate("stop", job, {"now": now}, wait=wait)


def status(
    job: Job,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every two seconds until the crawl ends.")] = False,
) -> None:
    """Show the status of a crawl, or how a stopped job was left."""
    from anabranch.crawler.cli.status import run_status  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_status(job, as_json=as_json, watch=watch))


def add(
    job: Job,
    seeds: Annotated[
        Texts, typer.Argument(metavar="SEED...", help="URLs, files of URLs, or - for standard input.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Queue also URLs that have ended, or that the filter takes for seen.")
    ] = False,
    run_code: RunCode = False,
    as_json: Json = False,
) -> None:
    """Add seeds to a job, running or not; `anabranch crawl` resumes a stopped one.

    Each is new, known (with its state), hidden (the filter takes it for seen, the store does not have it), or refused. The exit
    code is 5 if one is hidden or refused; the others are added all the same.
    """
    if not seeds:
        raise typer.BadParameter("name a URL, a file of URLs, or - for standard input")
    _run_operate("add", job, {"sources": list(seeds), "force": force}, as_json=as_json, run_code=run_code)


def retry(
    job: Job,
    statuses: Annotated[
        Text,
        typer.Option("--status", metavar="LIST", help="Only these, as crawl.log has them: -1,503 or 5xx."),
    ] = None,
    host: Annotated[Text, typer.Option(metavar="HOST", help="Only of this host, as in example.org.")] = None,
    since: Annotated[
        Number,
        typer.Option(metavar="TIME", parser=parse_moment, help="Only failed then or later, as in 2027-01-31T14:00."),
    ] = None,
    trap: Annotated[
        bool,
        typer.Option(
            "--trap", help="URLs that were skipped because a parameter changes nothing, instead of failed ones."
        ),
    ] = False,
    run_code: RunCode = False,
    as_json: Json = False,
) -> None:
    """Queue failed URLs again, of a job that runs or not; `anabranch crawl` resumes a stopped one."""
    if trap:
        if any(value is not None for value in (statuses, host, since)):
            raise typer.BadParameter("--trap takes all that was skipped; leave --status, --host and --since out")
        _run_operate("retry", job, {"trap": True}, as_json=as_json, run_code=run_code)
    listed = [] if statuses is None else list(parse_names(statuses))
    arguments = {"statuses": listed, "host": host, "since_s": since}
    _run_operate(
        "retry", job, {key: value for key, value in arguments.items() if value}, as_json=as_json, run_code=run_code
    )


def _run_operate(verb: str, job: str, arguments: Mapping[str, Any] | None = None, **how: Any) -> None:
    from anabranch.crawler.cli.operate import run_operate  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_operate(verb, job, arguments or {}, **how))


def set_(
    job: Job,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="SECTION.KEY=VALUE...", help="As in limits.pages=500; += adds to a list: 'scope.exclude+=/print/'."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Change limits, politeness, scope or schedule of a job, running or not; the job keeps the change."""
    from anabranch.crawler.cli.operate import run_set  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_set(job, settings, as_json=as_json))


#: The names in `crawler.report.reports.REPORTS`; written here because help must be fast.
NAMES = (
    "crawl-summary, seeds, hosts, mimetypes, response-codes, processors, frontier-summary, frontier-nonempty, filter, "
    "workers"
)


def report(
    job: Job,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            help=f"One of {NAMES}, source; or rounds, which compares two of them.",
            autocompletion=completed_from(*NAMES.split(", "), "source", "rounds"),
        ),
    ] = "crawl-summary",
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Show at most N rows.")] = 1000,
    rounds: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="With the report rounds: compare these two; without it the last two."),
    ] = None,
    as_json: Json = False,
    run_code: RunCode = False,
) -> None:
    """Print a report of a running or stopped job."""
    from anabranch.crawler.cli.operate import run_report, run_rounds  # noqa: PLC0415 - help must be fast

    if name == "rounds" or rounds is not None:
        raise typer.Exit(run_rounds(job, name, rounds, limit=limit, as_json=as_json))
    raise typer.Exit(run_report(job, name, limit=limit, as_json=as_json, run_code=run_code))


_Warcs = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's folder, or its name below jobs/, or a folder of WARC files.",
        autocompletion=complete_job,
    ),
]


def index(job: _Warcs) -> None:
    """Rebuild the index of the WARC files of JOB: a sorted NAME.cdxj for each file, as pywb reads it."""
    from anabranch.crawler.cli.archive import run_index  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_index(job))


archive = typer.Typer(
    help="Convert WARC files that are compressed with zstd; make a dictionary for them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@archive.command("convert")
def convert(
    job: _Warcs, folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the new files.")]
) -> None:
    """Write each finished .warc.zst of JOB as .warc.gz, with its index, into FOLDER. Files that are there are left out."""
    from anabranch.crawler.cli.archive import run_convert  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_convert(job, folder))


@archive.command("dictionary")
def dictionary(job: _Warcs, file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")]) -> None:
    """Make a zstd dictionary from records of JOB's WARC files, for write.zstd_dictionary of later crawls of such sites."""
    from anabranch.crawler.cli.archive import run_dictionary  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_dictionary(job, file))


def export(
    job: Job,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="wacz, parquet, sqlite, csv, or files: the logs of all workers as one, and one index.",
            autocompletion=completed_from("wacz", "parquet", "sqlite", "csv", "files"),
        ),
    ],
    out: Annotated[
        FilePath,
        typer.Option("--out", metavar="PATH", help="Where to (default: the job's name, in the current folder)."),
    ] = None,
    warcs: Annotated[
        FilePath,
        typer.Option("--warcs", metavar="FOLDER", help="Take these WARC files, as `archive convert` has written them."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> None:
    """Export pages, links, errors and the link graph of a job, running or not, as tables, or its WARC files as a WACZ.

    What the crawl has recorded when the command begins is exported. The exit code is 1 if lines of its logs are damaged.
    """
    from anabranch.crawler.cli.export import run_export  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_export(job, to, out, warcs, force=force))


def workers(
    job: Job,
    action: Annotated[
        Text,
        typer.Argument(
            metavar="[drain",
            help="drain: let worker NAME finish its fetches, then end it. In a database it stays away until `resume`.",
            autocompletion=completed_from("drain"),
        ),
    ] = None,
    name: Annotated[Text, typer.Argument(metavar="NAME]", help="A worker, as the list shows it.")] = None,
    as_json: Json = False,
) -> None:
    """List the workers of a job, or drain one of them."""
    if action not in {None, "drain"} or (action is None) != (name is None):
        raise typer.BadParameter("give no action, or drain and the name of a worker")
    from anabranch.crawler.cli.operate import run_workers  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_workers(job, name, as_json=as_json))


def requeue(
    job: Job,
    lost: Annotated[str, typer.Option("--lost", metavar="WORKER", help="The worker whose machine is lost.")],
) -> None:
    """Queue again the pages that were lost with a worker's machine, because no uploaded file has their records."""
    from anabranch.crawler.cli.operate import run_requeue  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_requeue(job, lost))


def divide(
    job: Job,
    shares: Annotated[
        int, typer.Option(metavar="N", min=2, max=4096, help="Number of shares; it cannot change later.")
    ] = 16,
    run_code: RunCode = False,
) -> None:
    """Divide a job that was started with one process, so that several can crawl it."""
    from anabranch.crawler.cli.operate import run_divide  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_divide(job, shares, run_code=run_code))


def move(
    job: Job,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A new folder, or the URL of an empty database.")],
    shares: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=4096, help="Shares of a job that had one worker (0: the usual number)."),
    ] = 0,
    run_code: RunCode = False,
) -> None:
    """Move a job, without a fetch: to a PostgreSQL database, back to a folder, or to another folder.

    In a database it has several workers. From the moment when the move begins the job is not crawled in its old place. A move
    that was killed is ended, or done again, by the same command.
    """
    from anabranch.crawler.cli.operate import run_move  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_move(job, target, shares, run_code=run_code))


frontier = typer.Typer(
    help="Show and change a job's queues, whether it runs or not.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: States of queues that `ls` can select.
_STATES = ("inactive", "loading", "ready", "in-flight", "snoozed", "retired", "paused")

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's key, as ls shows it.")]
Host = Annotated[str, typer.Argument(metavar="HOST", help="The host, as in example.org.")]


@frontier.command()
def ls(
    job: Job,
    state: Annotated[
        Text,
        typer.Option(
            help=f"Only queues in this state: {', '.join(_STATES)}.",
            autocompletion=completed_from(*_STATES),
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Show at most N queues.")] = 20,
    as_json: Json = False,
    run_code: RunCode = False,
) -> None:
    """List the longest queues, then the totals, and why nothing can be fetched."""
    _run_frontier("ls", job, {"state": state, "limit": limit}, as_json=as_json, run_code=run_code)


@frontier.command()
def show(
    job: Job,
    subject: Annotated[str, typer.Argument(metavar="QUEUE|URL", help="A queue's key, or a URL.")],
    as_json: Json = False,
    run_code: RunCode = False,
) -> None:
    """Explain the state of a queue or a URL, and show the gates of the queue."""
    _run_frontier("show", job, {"subject": subject}, as_json=as_json, run_code=run_code)


@frontier.command()
def dump(
    job: Job,
    output: Annotated[
        Text, typer.Option("-o", "--output", metavar="FILE", help="Write to this file (.gz: compressed).")
    ] = None,
    run_code: RunCode = False,
) -> None:
    """Write all URLs, queued and ended, as JSON lines."""
    _run_frontier("dump", job, {"file": None if output == "-" else output}, run_code=run_code)


@frontier.command()
def load(
    job: Job,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A dump, or Heritrix's frontier.recover; either may be .gz.")
    ],
    failures: Annotated[bool, typer.Option("--failures", help="Journal: do not retry failed URLs.")] = False,
    disregarded: Annotated[bool, typer.Option("--disregarded", help="Journal: do not retry disregarded URLs.")] = False,
    run_code: RunCode = False,
) -> None:
    """Load the URLs of another job or of Heritrix: queued URLs are queued, ended URLs are never fetched."""
    _run_frontier("load", job, {"file": file, "failures": failures, "disregarded": disregarded}, run_code=run_code)


@frontier.command()
def block(
    job: Job,
    host: Host,
    for_: Annotated[
        Number, typer.Option("--for", metavar="TIME", parser=parse_positive_seconds, help="Duration, as in 30m or 2h.")
    ] = None,
    until: Annotated[
        Number, typer.Option(metavar="TIME", parser=parse_moment, help="End of the block, as in 2027-01-31T14:00.")
    ] = None,
    run_code: RunCode = False,
) -> None:
    """Stop fetching from a host, for a time or until it is unblocked."""
    if for_ is not None and until is not None:
        raise typer.BadParameter("--for and --until exclude each other; give one")
    _run_frontier("block", job, {"host": host, "for_s": for_, "until_s": until}, run_code=run_code)


@frontier.command()
def unblock(job: Job, host: Host, run_code: RunCode = False) -> None:
    """Remove every block of a host, including the one after 429 or 503."""
    _run_frontier("unblock", job, {"host": host}, run_code=run_code)


@frontier.command("pause")
def pause_queue(job: Job, queue: Queue, run_code: RunCode = False) -> None:
    """Pause a queue until it is resumed."""
    _run_frontier("pause", job, {"queue": queue}, run_code=run_code)


@frontier.command("resume")
def resume_queue(job: Job, queue: Queue, run_code: RunCode = False) -> None:
    """Resume a paused or retired queue."""
    _run_frontier("resume", job, {"queue": queue}, run_code=run_code)


@frontier.command("retire")
def retire_queue(job: Job, queue: Queue, run_code: RunCode = False) -> None:
    """Retire a queue: its URLs are kept, and the crawl may end without them."""
    _run_frontier("retire", job, {"queue": queue}, run_code=run_code)


@frontier.command()
def set_budget(
    job: Job,
    queue: Queue,
    units: Annotated[
        str, typer.Argument(metavar="UNITS", help="A number, unlimited, or order (the value of the crawl order).")
    ],
    run_code: RunCode = False,
) -> None:
    """Set the total budget of a queue. This may retire the queue or make it active again."""
    _run_frontier("set-budget", job, {"queue": queue, "units": parse_units(units)}, run_code=run_code)


@frontier.command()
def rebuild_filter(
    job: Job,
    settings: Annotated[
        Texts,
        typer.Option(
            "-s",
            "--set",
            metavar="KEY=VALUE",
            help="Change a key of [dedup] first, as in dedup.filter=exact; repeatable.",
        ),
    ] = None,
    run_code: RunCode = False,
) -> None:
    """Rebuild the job's filter from its URLs, with the options of its order or of -s. Nothing is fetched again."""
    from anabranch.crawler.cli.rebuild_filter import run_rebuild_filter  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_rebuild_filter(job, settings or (), run_code=run_code))


@frontier.command()
def rm(
    job: Job,
    url: Annotated[Text, typer.Option(metavar="REGEX", help="URLs that match.")] = None,
    queue: Annotated[Text, typer.Option(metavar="QUEUE", help="URLs of this queue.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    run_code: RunCode = False,
) -> None:
    """Remove queued URLs: they count as disregarded and are never fetched."""
    if url is None and queue is None:
        raise typer.BadParameter("give --url REGEX, --queue QUEUE, or both")
    _run_frontier("rm", job, {"url": url, "queue": queue, "yes": yes}, run_code=run_code)


def why(
    job: Job,
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL, written like a seed.")],
    order_file: Annotated[
        FilePath, typer.Option("-c", "--order", help="Explain by this crawl order (TOML), and run its functions.")
    ] = None,
    settings: Annotated[
        Texts, typer.Option("-s", "--set", metavar="SECTION.KEY=VALUE", help="Any key of the order.")
    ] = None,
    run_code: RunCode = False,
    as_json: Json = False,
) -> None:
    """Explain the state of a URL, and when it can be fetched at the earliest. Functions that only the job names do not run."""
    named = {"order_file": order_file, "settings": tuple(settings or ())}
    _run_frontier("why", job, {"url": url}, as_json=as_json, run_code=run_code, **named)


def _run_frontier(verb: str, job: str, arguments: Mapping[str, Any], *, as_json: bool = False, **code: Any) -> None:
    from anabranch.crawler.cli.frontier import run_frontier  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_frontier(verb, job, arguments, as_json=as_json, **code))
