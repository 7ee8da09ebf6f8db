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
from time import monotonic, time

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from anabranch.crawler.console.access import Access, default_folder
from anabranch.crawler.console.audit import AuditLog
from anabranch.crawler.console.guard import (
    IS_KNOWN,
    App,
    BasePath,
    HostGuard,
    SafeHeaders,
    allowed_hosts,
    remote_address,
)
from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.outbox import KnownEnds, NoticeOutbox, take_outbox
from anabranch.crawler.console.passwords import Passwords
from anabranch.crawler.console.queues import QueueTables
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.sessions import COOKIE, SessionGuard, Sessions
from anabranch.crawler.console.timekeeper import Timekeeper
from anabranch.crawler.console.watch import WatchedJobs
from anabranch.crawler.fetch.addresses import parse_address
from anabranch.crawler.operate import NoticeTargets
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError

#: Fetches, streams and other requests under way are given this long when the console ends.
_ENDING_S = 3
#: Connections at once; of them those of strangers, which leave the others to users, and those of one strange address.
_MOST_AT_ONCE, _MOST_OF_STRANGERS, _MOST_OF_ADDRESS = 500, 300, 100
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
    on_end: NoticeTargets | None = None  #: where notices of the ends of crawls go


def serve(options: ConsoleOptions, make_app: MakeApp, notify: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. Raises: UsageError, StorageError; CrawlerError if the address is taken."""
    address, port = checked_address(options)
    folder = (options.state or default_folder(os.environ)).absolute()
    jobs = ConsoleJobs(options.place, run_code=options.run_code)
    access, keeper = Access(folder), _timekeeper(options, jobs, folder)
    console = Console(jobs, WatchedJobs(jobs), access, AuditLog(folder), keeper)
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
        with _listener(options, address, port) as listener, keeper, suppress(KeyboardInterrupt):
            notify(f"open {here}/login?token={sessions.start_token}" if is_ours else f"open {here}/ and log in")
            notify(f"the API is at {here}/api/v1 (make a token: anabranch console token NAME)")
            signal(SIGTERM, default_int_handler)  # uvicorn raises it again at the end
            asyncio.run(uvicorn.Server(config).serve([listener]))


def _timekeeper(options: ConsoleOptions, jobs: ConsoleJobs, folder: Path) -> Timekeeper:
    """Open the part that starts jobs that are due and notices ends. Raises: UsageError, StorageError."""
    if options.on_end is None:
        return Timekeeper(jobs, NoticeOutbox(folder, NoticeTargets()), None)
    if jobs.folder is None:
        raise UsageError(
            "--on-end-command, --on-end-webhook: a console of a database does not see its runs end; give these options to "
            "`anabranch crawl --store`"
        )
    take_outbox(folder)  # until the process ends
    return Timekeeper(jobs, NoticeOutbox(folder, options.on_end), KnownEnds(folder, time()))


class _HurriedProtocol(H11Protocol):
    """Closes connections that ask nothing for long, and the oldest ones of strangers if there are too many.

    A stranger is who has sent no session and no token. By h11, because httptools reads heads without end.
    """

    is_shared = False  #: all come from the address of a reverse proxy

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.begun_s = monotonic()
        self.address = remote_address({"client": self.client, "headers": ()}, ())
        self._make_room()
        self.loop.call_later(_HEAD_S, self._close_idle, self.cycle)

    @property
    def is_idle(self) -> bool:
        """It asks nothing now."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_stranger(self) -> bool:
        """Its last request was none of a user, or it has sent none yet."""
        return self.scope is None or not self.scope["state"].get(IS_KNOWN)

    def _make_room(self) -> None:
        """Close the connection that has waited longest for nothing, or else the oldest of a stranger, if there are too many."""
        others = [
            one for one in self.connections if isinstance(one, _HurriedProtocol) and one.is_open and one is not self
        ]
        surplus = self._surplus(others)
        if surplus is not None:
            oldest = min(surplus, key=lambda one: (not one.is_idle, one.begun_s), default=self)
            oldest.transport.abort()

    def _surplus(self, others: Sequence[_HurriedProtocol]) -> Sequence[_HurriedProtocol] | None:
        """The connections of which one must go; None if there is room."""
        strangers = [one for one in others if one.is_stranger]
        near = [one for one in strangers if one.is_near(self)]
        if len(near) >= _MOST_OF_ADDRESS:
            return near
        if len(strangers) >= _MOST_OF_STRANGERS or len(self.connections) > _MOST_AT_ONCE:
            return strangers or [one for one in others if one.is_idle]
        return None

    def is_near(self, other: _HurriedProtocol) -> bool:
        """Both come from one address, which is not that of all users."""
        return self.address == other.address and not (self.is_shared or self.is_local)

    @property
    def is_open(self) -> bool:
        """It is not closed, and has not become a WebSocket."""
        return not self.transport.is_closing() and self.transport.get_protocol() is self

    @property
    def is_local(self) -> bool:
        """It comes from this machine, where all users have one address."""
        return bool(self.address) and ip_address(self.address.partition("/")[0]).is_loopback

    def _close_idle(self, last: RequestResponseCycle | None) -> None:
        """`last` is the request that was the last one at the look before."""
        if not self.is_open:
            return
        if self.cycle is last and (last is None or last.response_complete):
            self.transport.close()
        else:
            self.loop.call_later(_HEAD_S, self._close_idle, self.cycle)


class _ProxiedProtocol(_HurriedProtocol):
    """Connections from a reverse proxy, which tells the addresses of clients with their requests."""

    is_shared = True


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
        http=_ProxiedProtocol if options.hosts else _HurriedProtocol,
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
