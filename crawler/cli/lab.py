"""`anabranch lab` and `compare`: run an experiment, show its tables, write numbers and picture; or serve a web in a box."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from anabranch.crawler.cli.tables import PIPE_WIDTH, report_text
from anabranch.crawler.cli.terminal import StopSignals, guarded, say
from anabranch.crawler.lab.experiments import run_experiment
from anabranch.crawler.lab.plots import draw, require_plots
from anabranch.crawler.lab.report import LabReport, OnProgress, csv_of
from anabranch.crawler.lab.urls import require_readable
from anabranch.crawler.lab.web.ledger import PolitenessRule, ledger_table
from anabranch.crawler.lab.web.miniweb import Served, serving
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code
from anabranch.crawler.outcomes.errors import STORAGE_ERRORS, ExitCode, StorageError, UsageError, deciding
from anabranch.crawler.report.logs import configure_logs

#: Seconds between two lines of progress where no terminal shows it live.
PLAIN_INTERVAL_S = 10.0

#: Signals that end the run as Ctrl-C does: from an operator, and from a terminal that is closed.
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


#: A file of this name is standard output.
STDOUT = Path("-")


#: Parameters of `anabranch compare` that only a comparison of filters takes, and all that it takes.
_OF_FILTERS = {"filters", "expected", "false_positive", "bits", "urls"}
_OF_COMPARED = _OF_FILTERS | {"kinds", "pages", "hosts", "seed", "replay"}


class _Terminated(KeyboardInterrupt):
    """A signal came, as Ctrl-C: servers and temporary folders are removed on the way out. Its argument is the exit code."""


def run_lab(
    name: str,
    flags: Mapping[str, object],
    *,
    plot: Path | None = None,
    csv: Path | None = None,
    json: Path | None = None,
) -> int:
    """Run an experiment with values for fields of its options (None: the default). An error or interrupt is an exit code."""

    def raise_terminated(number: int, _frame: FrameType | None) -> None:
        raise _Terminated(128 + number)

    configure_logs(0)
    try:
        for number in _ENDINGS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
                signal.signal(number, raise_terminated)
        with deciding():
            return _run(name, flags, plot, csv, json)
    except FORESEEABLE as error:
        return _fail(error)
    except _Terminated as terminated:
        return int(terminated.args[0])
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def run_comparison(parameters: Mapping[str, object], options: Mapping[str, str]) -> int:
    """Run `anabranch compare`: of filters if some are named, else of policies. `options`: parameter -> option."""
    name, other = ("policies", "filters") if parameters["filters"] is None else ("filters", "policies")
    # A list that is not given is empty.
    flags = {key: value for key, value in parameters.items() if value not in (None, [], ())}
    frame: dict[str, Any] = {key: flags.pop(key) for key in ("plot", "csv", "json") if key in flags}
    unfit = [options[key] for key in flags if (key in _OF_FILTERS if name == "policies" else key not in _OF_COMPARED)]
    if unfit:
        why = "without --filters policies are compared" if name == "policies" else "--filters compares filters"
        return _fail(UsageError(f"{', '.join(unfit)}: only for a comparison of {other}; {why}"))
    return run_lab(name, flags, **frame)


def _run(name: str, flags: Mapping[str, object], plot: Path | None, csv: Path | None, json_file: Path | None) -> int:
    _require_files({"--csv": csv, "--json": json_file, "--plot": plot}, flags.get("urls"))
    given = {key: value for key, value in flags.items() if value is not None}
    with progress_display(name, Console(stderr=True)) as show:
        report = run_experiment(name, given, show)
    measured = json.dumps(report.data) + "\n" if json_file else ""
    codes = [_print(measured) if json_file == STDOUT else show_report(report)]
    if json_file and json_file != STDOUT:
        codes.append(_write(json_file, lambda: json_file.write_text(measured, encoding="utf-8")))
    if csv:
        numbers = csv_of((*report.tables, *report.csv_tables))
        codes.append(_write(csv, lambda: csv.write_text(numbers, encoding="utf-8", newline="")))
    if plot:
        codes.append(_write(plot, lambda: draw(report, plot)))
    return next(filter(None, codes), 0)


@contextmanager
def progress_display(name: str, console: Console) -> Iterator[OnProgress]:
    """Show an experiment's progress: live on a terminal, elsewhere a line each `PLAIN_INTERVAL_S`."""
    if not console.is_terminal:
        shown_s = -PLAIN_INTERVAL_S

        def show(done: int, total: int, what: str) -> None:
            nonlocal shown_s
            if (now_s := time.monotonic()) - shown_s >= PLAIN_INTERVAL_S:
                shown_s = now_s
                with suppress(OSError):  # the experiment goes on without a reader
                    console.print(f"anabranch: lab {name}: {done} of {total} steps done; now: {what}", soft_wrap=True)

        yield show
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total, what: progress.update(task, completed=done, total=total, description=what)


def _require_files(outputs: Mapping[str, Path | None], urls: object) -> None:
    """Raise UsageError if something cannot be shown, drawn or written in the end, or the URLs cannot be read."""
    if sys.stdout is None:
        raise UsageError("standard output is closed; redirect it")
    if plot := outputs["--plot"]:
        require_plots(plot)
    for option, path in outputs.items():
        if path and path != STDOUT:
            _require_writable(path, option)
    if isinstance(urls, Path):
        require_readable(urls)


def _require_writable(path: Path, option: str) -> None:
    """Raise UsageError if the file cannot be written. Its contents stay until the experiment has ended."""
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise UsageError(
            f"{path}: {(error.strerror or str(error)).lower()}; name another file with {option}"
        ) from error


def _write(path: Path, write: Callable[[], object]) -> int:
    try:
        write()
    except OSError as error:
        kind = STORAGE_ERRORS.get(error.errno or 0, StorageError)
        return _fail(
            kind(f"{path}: {(error.strerror or str(error)).lower()}; the tables above have all that was measured")
        )
    return 0


def show_report(report: LabReport) -> int:
    """The tables on standard output, whatever it can write. If its reader has gone, the files are written all the same."""
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else PIPE_WIDTH
    return _print(report_text(report, width=width, is_terminal=is_terminal))


def _print(text: str) -> int:
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), end="", flush=True)  # noqa: T201 - the command's own output
    except OSError as error:
        # What is flushed at the end of the process must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return ExitCode.READER_GONE
        kind = STORAGE_ERRORS.get(error.errno or 0, StorageError)
        return _fail(kind(f"standard output: {(error.strerror or str(error)).lower()}; --csv FILE keeps the numbers"))
    return 0


def _fail(error: Exception) -> int:
    say(f"anabranch: {error}")
    return failure_code(error)


def run_web(
    flags: Mapping[str, Any],
    *,
    replay: Path | None,
    port: int,
    order: Path | None,
    connections: int,
    min_delay_s: float,
) -> int:
    """Serve a web in a box until Ctrl-C (0). `flags` are the given fields of `WebOptions`; `order` is a file to write."""

    def run() -> int:
        if replay is not None and flags:
            given = ", ".join(f"--{name.removesuffix('_s')}" for name in flags)
            raise UsageError(f"{given}: cannot be combined with --replay, whose log decides; leave one of them out")
        with StopSignals() as signals, serving(replay or WebOptions(**flags), port=port) as served:
            if order is not None:
                _write_order(order, served)
            served.begin(PolitenessRule(slots=connections, min_delay_s=min_delay_s))
            for line in _introduction(served, order):
                print(line, flush=True)  # noqa: T201 - the command's own output
            select.select([signals.wake, served.fileno()], [], [])
            ledger = served.ledger()
        closing = (f"Politeness {ledger.verdict()}.",) if ledger.hosts else ("No request came.",)
        tables = (ledger_table(ledger),) if ledger.hosts else ()
        return show_report(LabReport(name="web", tables=tables, panels=(), closing=closing))

    return guarded(run)


def _introduction(served: Served, order: Path | None) -> Iterator[str]:
    """Yield the lines that tell what is served and how crawlers are pointed at it."""
    address = f"http://127.0.0.1:{served.port}"
    seed, host = served.seeds[0], next((host for host in served.hosts if host not in served.addresses), None)
    more = f" and {len(served.seeds) - 5:,} more" if len(served.seeds) > 5 else ""
    yield f"{served.urls:,} URLs of {len(served.hosts):,} hosts at {address}; Ctrl-C ends it and shows each host's requests"
    yield from served.notes
    yield f"  seeds        {' '.join(served.seeds[:5])}{more}"
    yield f"  any program  http_proxy={address} wget --recursive --span-hosts --delete-after {seed}"
    if host is not None:
        yield f"  curl         curl --resolve {host}:{served.port}:127.0.0.1 http://{host}:{served.port}/"
    proxy = f"--proxy {address} -s fetch.proxy_resolves=true"
    yield f"  anabranch    anabranch crawl {' '.join(served.seeds[:5])} --scope any {proxy}"
    if host is None:
        yield "  by name      not possible: its hosts are addresses, which a crawl does not look up"
    elif order is not None:
        yield f"  by name      anabranch crawl -c {order}"
    else:
        line = f'"{host}" = "{served.hosts[host]}"'
        yield f"  by name      {line} below [dns.hosts], a line for each host (--order FILE writes them)"


#: Begins the orders that `lab web --order` writes: the next start may replace them, because the port is another one.
_ORDER_HEAD = "# Written by `anabranch lab web`, which replaces it at its next start.\n"


def _write_order(path: Path, served: Served) -> None:
    """A crawl order that finds the hosts here, and leaves none out. Raises: UsageError, also for a file of somebody else."""
    if served.addresses:
        raise UsageError(
            f"--order: {served.addresses[0]} is an address, which a crawl does not look up; leave --order out and use the proxy"
        )
    hosts = (f"{json.dumps(host)} = {json.dumps(address)}\n" for host, address in served.hosts.items())
    seeds = f"[job]\nseeds = {json.dumps(served.seeds)}\n\n"
    text = (
        f'{_ORDER_HEAD}{seeds}[fetch]\nallow_private = true\n\n[scope]\nscope = "any"\n\n[dns.hosts]\n{"".join(hosts)}'
    )
    try:
        if path.exists() and not path.read_text("utf-8", "replace").startswith(_ORDER_HEAD):
            raise UsageError(
                f"{path}: was not written by this command, and would be lost; name another file with --order"
            )
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}; name another file with --order") from error
