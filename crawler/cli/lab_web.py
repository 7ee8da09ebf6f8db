"""`anabranch lab web`: serves a web in a box until it is interrupted, then shows its ledger."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.crawler.cli.guarding import guarded
from anabranch.crawler.cli.lab import show_report
from anabranch.crawler.cli.stopping import StopSignals
from anabranch.crawler.lab.miniweb import Served, serving
from anabranch.crawler.lab.report import Report
from anabranch.crawler.lab.web.ledger import Ledger, Rule
from anabranch.crawler.lab.web.ledger_table import ledger_table
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.outcomes.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class WebCommand:
    """What stands on the command line."""

    flags: Mapping[str, Any]  #: field of `WebOptions` -> value, if given
    replay: Path | None
    port: int
    order: Path | None  #: to be written
    connections: int
    min_delay_s: float


def run_web(command: WebCommand) -> int:
    """Run it; every foreseeable error is one line on standard error and its exit code. Ctrl-C is its usual end: 0."""
    return guarded(lambda: _run(command))


def _run(command: WebCommand) -> int:
    if command.replay is not None and command.flags:
        given = ", ".join(f"--{name.removesuffix('_s')}" for name in command.flags)
        raise UsageError(f"{given}: the log decides with --replay; leave out the one or the other")
    with StopSignals() as signals, serving(command.replay or WebOptions(**command.flags), port=command.port) as served:
        if command.order is not None:
            _write_order(command.order, served)
        served.begin(Rule(slots=command.connections, min_delay_s=command.min_delay_s))
        for line in _introduction(served, command):
            print(line, flush=True)  # noqa: T201 - the command's own output
        select.select([signals.wake, served.fileno()], [], [])
        ledger = served.ledger()
    return show_report(_report(ledger))


def _introduction(served: Served, command: WebCommand) -> Iterator[str]:
    """What is served, and how crawlers are pointed at it."""
    address = f"http://127.0.0.1:{served.port}"
    seed, host = served.seeds[0], next((host for host in served.hosts if host not in served.addresses), None)
    more = f" and {len(served.seeds) - 5:,} more" if len(served.seeds) > 5 else ""
    yield f"{served.urls:,} URLs of {len(served.hosts):,} hosts at {address}; Ctrl-C ends it and shows what they have borne"
    yield from served.notes
    yield f"  seeds        {' '.join(served.seeds[:5])}{more}"
    yield f"  any program  http_proxy={address} wget --recursive --span-hosts --delete-after {seed}"
    if host is not None:
        yield f"  curl         curl --resolve {host}:{served.port}:127.0.0.1 http://{host}:{served.port}/"
    yield f"  anabranch    anabranch crawl {' '.join(served.seeds[:5])} --scope any -s fetch.proxy={address}"
    if host is None:
        yield "  by name      not at all: its hosts are addresses, which no crawl looks up"
    elif command.order is not None:
        yield f"  by name      anabranch crawl -c {command.order}"
    else:
        line = f'"{host}" = "{served.hosts[host]}"'
        yield f"  by name      {line} below [dns.hosts], a line for each host (--order FILE writes them)"


def _write_order(path: Path, served: Served) -> None:
    """A crawl order that finds the hosts here, and leaves none out. Raises: UsageError."""
    if served.addresses:
        raise UsageError(
            f"--order: {served.addresses[0]} is an address, which no crawl looks up; leave --order out and crawl by the proxy"
        )
    hosts = (f"{json.dumps(host)} = {json.dumps(address)}\n" for host, address in served.hosts.items())
    seeds = f"[job]\nseeds = {json.dumps(served.seeds)}\n\n"
    text = f'{seeds}[fetch]\nallow_private = true\n\n[scope]\nscope = "any"\n\n[dns.hosts]\n{"".join(hosts)}'
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}; name another file with --order") from error


def _report(ledger: Ledger) -> Report:
    closing = (f"Politeness {ledger.verdict()}.",) if ledger.hosts else ("Nobody came.",)
    return Report(name="web", tables=(ledger_table(ledger),) if ledger.hosts else (), panels=(), closing=closing)
