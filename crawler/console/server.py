"""The process of a console: listens, and serves until it is told to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from time import monotonic

import uvicorn

from anabranch.crawler.console.access import Access, default_folder
from anabranch.crawler.console.api import Console
from anabranch.crawler.console.audit import AuditLog
from anabranch.crawler.console.guard import BasePath, HostGuard, allowed_hosts
from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.passwords import Passwords
from anabranch.crawler.console.queues import QueueTables
from anabranch.crawler.console.sessions import SessionGuard, Sessions
from anabranch.crawler.fetch.addresses import parse_address
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError

#: Fetches, streams and other requests under way are given so long when the console ends.
_ENDING_S = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What the operator gives to a console."""

    place: str  #: the folder of the jobs, or the URL of a job's database
    listen: str  #: IP address and port
    hosts: Sequence[str] = ()  #: further names by which it may be called, as a reverse proxy passes them on
    state: Path | None = None  #: the console's own folder; None: the default
    tls: tuple[Path, Path] | None = None  #: certificate and key, as PEM files
    base_path: str = ""  #: the path of the console behind a reverse proxy, as in /crawls


def serve(options: ConsoleOptions, notify: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. Raises: UsageError, CrawlerError if the address is taken; StorageError."""
    address, port = _listened(options)
    folder = options.state or default_folder(os.environ)
    console = Console(ConsoleJobs(options.place), Access(folder), AuditLog(folder))
    os.environ.setdefault("NICEGUI_STORAGE_PATH", str(folder / "nicegui"))  # read when the library is imported
    from anabranch.crawler.console.browser import console_app  # noqa: PLC0415

    sessions = Sessions(Passwords(folder), monotonic)
    base = options.base_path
    tables = QueueTables(folder, console.jobs)
    app = SessionGuard(
        console_app(console, tables), sessions, base, is_secure=options.tls is not None or bool(options.hosts)
    )
    config = uvicorn.Config(
        HostGuard(BasePath(app, base), allowed_hosts(address, port, options.hosts)),
        host=address,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=_ENDING_S,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=None if options.tls is None else options.tls[0],
        ssl_keyfile=None if options.tls is None else options.tls[1],
    )
    server = uvicorn.Server(config)
    try:
        socket = config.bind_socket()
    except (OSError, SystemExit) as error:
        raise CrawlerError(
            f"--listen {options.listen}: the console cannot listen there; choose another port"
        ) from error
    scheme = "http" if options.tls is None else "https"
    host = f"[{address}]" if ":" in address else address
    here = f"{scheme}://{host}:{socket.getsockname()[1]}{base}"
    notify(f"open {here}/login?token={sessions.start_token}")
    notify(f"the API is at {here}/api/v1 (make a token: anabranch console token NAME)")
    with closing(tables), suppress(KeyboardInterrupt):
        asyncio.run(server.serve([socket]))


def _listened(options: ConsoleOptions) -> tuple[str, int]:
    """The address and the port. Raises: UsageError if others could read what is sent."""
    try:
        place = parse_address(options.listen)
    except ValueError as error:
        raise UsageError(f"--listen {error}") from error
    if place.port is None:
        raise UsageError(f"--listen {options.listen}: add a port, like {options.listen}:8700")
    if not ip_address(place.host).is_loopback and options.tls is None and not options.hosts:
        raise UsageError(
            f"--listen {options.listen}: other machines reach this address, so tokens must not pass in the clear; "
            "give --tls-cert and --tls-key, or name the reverse proxy that has TLS: --allow-host NAME"
        )
    return place.host, place.port
