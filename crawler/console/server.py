"""The process of a console: listens, and serves until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from signal import SIGTERM, default_int_handler, signal
from socket import AF_INET, AF_INET6, create_server, socket
from time import monotonic

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from anabranch.crawler.console.access import Access, default_folder
from anabranch.crawler.console.api import Console
from anabranch.crawler.console.audit import AuditLog
from anabranch.crawler.console.guard import App, BasePath, HostGuard, SafeHeaders, allowed_hosts
from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.passwords import Passwords
from anabranch.crawler.console.queues import QueueTables
from anabranch.crawler.console.sessions import COOKIE, SessionGuard, Sessions
from anabranch.crawler.console.watch import WatchedJobs
from anabranch.crawler.fetch.addresses import parse_address
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError

#: Fetches, streams and other requests under way are given this long when the console ends.
_ENDING_S = 3
#: Connections and requests at once: clients that are slow, or never end what they ask, take no more.
_MOST_AT_ONCE = 500
#: A connection that waits this long for the head of a request is closed.
_HEAD_S = 30.0
#: Bytes of a message of a window. Files are uploaded by HTTP.
_MOST_MESSAGE_BYTES = 4 << 20
#: Makes the application, with the pages. They need this room, so it does not know them.
MakeApp = Callable[[Console, QueueTables], FastAPI]
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """The operator's options for a console."""

    place: str  #: the folder of the jobs, or the URL of a job's database
    listen: str  #: IP address and port
    hosts: Sequence[str] = ()  #: further names by which it may be called, as a reverse proxy passes them on
    state: Path | None = None  #: the console's own folder; None: the default
    tls: tuple[Path, Path] | None = None  #: certificate and key, as PEM files
    base_path: str = ""  #: the path of the console behind a reverse proxy, as in /crawls
    run_code: bool = False  #: the crawls that it starts run user functions that only the jobs' own orders name


def serve(options: ConsoleOptions, make_app: MakeApp, notify: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. Raises: UsageError, StorageError; CrawlerError if the address is taken."""
    address, port = checked_address(options)
    folder = (options.state or default_folder(os.environ)).absolute()
    jobs = ConsoleJobs(options.place, run_code=options.run_code)
    console = Console(jobs, WatchedJobs(jobs), Access(folder), AuditLog(folder))
    passwords = Passwords(folder)
    check_strangers(options, address, passwords)
    os.environ.setdefault("NICEGUI_STORAGE_PATH", str(folder / "nicegui"))  # read when the library is imported
    is_ours = ip_address(address).is_loopback
    sessions = Sessions(passwords, monotonic, has_link=is_ours)
    with closing(QueueTables(folder, console.jobs)) as tables:
        secure = options.tls is not None or bool(options.hosts)
        cookie = f"{COOKIE}_{port}"
        app = make_app(console, tables)
        pages = SessionGuard(
            app, sessions, cookie, options.base_path, is_secure=secure, proxy_hosts=options.hosts, audit=console.audit
        )
        config = _config(options, pages, address, port)
        scheme = "http" if options.tls is None else "https"
        here = f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}{options.base_path}"
        with _listener(options, address, port) as listener, suppress(KeyboardInterrupt):
            notify(f"open {here}/login?token={sessions.start_token}" if is_ours else f"open {here}/ and log in")
            notify(f"the API is at {here}/api/v1 (make a token: anabranch console token NAME)")
            signal(SIGTERM, default_int_handler)  # uvicorn raises it again at the end
            asyncio.run(uvicorn.Server(config).serve([listener]))


class _HurriedProtocol(H11Protocol):
    """Closes connections that ask nothing for long. By h11, because httptools reads heads without end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.loop.call_later(_HEAD_S, self._close_idle, self.cycle)

    def _close_idle(self, last: RequestResponseCycle | None) -> None:
        """`last` is the request that was the last one at the look before."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:  # it has become a WebSocket
            return
        if self.cycle is last and (last is None or last.response_complete):
            self.transport.close()
        else:
            self.loop.call_later(_HEAD_S, self._close_idle, self.cycle)


def _config(options: ConsoleOptions, pages: App, address: str, port: int) -> uvicorn.Config:
    """The server's settings. Raises: UsageError for a certificate that cannot be used."""
    has_tls = options.tls is not None
    names, schemes = allowed_hosts(address, port, options.hosts), ("https",) if has_tls else ("http", "https")
    config = uvicorn.Config(
        SafeHeaders(HostGuard(BasePath(pages, options.base_path), names, schemes)),
        host=address,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=_ENDING_S,
        server_header=False,
        proxy_headers=False,
        http=_HurriedProtocol,
        limit_concurrency=_MOST_AT_ONCE,
        ws_max_size=_MOST_MESSAGE_BYTES,
        ssl_certfile=None if options.tls is None else options.tls[0],
        ssl_keyfile=None if options.tls is None else options.tls[1],
    )
    try:
        config.load()
    except OSError as error:  # also ssl.SSLError
        raise UsageError(
            f"--tls-cert, --tls-key: cannot be used: {error}; give a certificate and its key, as PEM"
        ) from error
    return config


def _listener(options: ConsoleOptions, address: str, port: int) -> socket:
    """The socket that listens. Raises: CrawlerError if the address is taken."""
    try:
        return create_server((address, port), family=AF_INET6 if ":" in address else AF_INET)
    except OSError as error:
        raise CrawlerError(
            f"--listen {options.listen}: the console cannot listen there: {os.strerror(error.errno or 0).lower()}; "
            "choose another address or port"
        ) from error


def checked_address(options: ConsoleOptions) -> tuple[str, int]:
    """The address and the port. Raises: UsageError if others could read what is sent."""
    try:
        place = parse_address(options.listen)
    except ValueError as error:
        raise UsageError(f"--listen {error}") from error
    if place.port is None:
        raise UsageError(f"--listen {options.listen}: add a port, like {options.listen}:8700")
    if not ip_address(place.host).is_loopback and options.tls is None and not options.hosts:
        raise UsageError(
            f"--listen {options.listen}: other machines reach this address, so it needs TLS: "
            "give --tls-cert and --tls-key, or name the reverse proxy that has TLS: --allow-host NAME"
        )
    if not _BASE_PATH.fullmatch(options.base_path):
        raise UsageError(f"--base-path {options.base_path}: give a path without a slash at its end, like /crawls")
    return place.host, place.port


def check_strangers(options: ConsoleOptions, address: str, passwords: Passwords) -> None:
    """Raises: UsageError if other machines reach the console, and nobody has a password; StorageError."""
    if not ip_address(address).is_loopback and not passwords.has_any:
        raise UsageError(
            f"--listen {options.listen}: other machines reach this address, and nobody has a password yet; "
            "set one: anabranch console passwd NAME"
        )
