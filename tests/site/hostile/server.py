"""The server of the hostile web: raw sockets, one port for all hosts, and the ledger of what was asked for.

In tests: `async with HostileWeb() as web: ...`; `web.hosts()` goes into `[dns.hosts]`. As a program, in a process of its own:

    python tests/site/hostile/server.py [--address 127.0.0.1] [--port 0] [--ledger FILE] [--list]

prints its port on one line and ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

if __package__ in (None, ""):  # started as a program: the import path holds this folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.site.hostile.asking import Answer, Ask, Hostile
from tests.site.hostile.hosts import GROUPS, INNOCENT, first_url, found, host_of, many_hosts, missing
from tests.site.ledger import Ledger, line_writer
from tests.site.server import epoch_clock

ROBOTS = "/robots.txt"
_HEAD_BYTES = 1 << 18
_BACKLOG = 2048


class HostileWeb:
    """One server on one address that does to each request what the table says of its host.

    The ledger has every request with its host and target; a status of 0 means that no whole answer was given. `address` is
    where it listens; `find` says who answers for a host name (None: 404 for everything). Closing ends requests in service.
    """

    def __init__(
        self,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        ledger: Ledger | None = None,
        find: Callable[[str], Hostile | None] = found,
    ) -> None:
        self.address = address
        #: The port; 0 until the server is entered, if a free one was asked for.
        self.port = port
        self.ledger = Ledger() if ledger is None else ledger
        self._find = find
        self._now = epoch_clock()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, self.address, self.port, backlog=_BACKLOG, limit=_HEAD_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    def hosts(self, group: str | None = None, many: int = 0) -> dict[str, str]:
        """Map hosts to "IP:PORT" for `[dns.hosts]`: the group's (None: all), the innocent one, and `many` of the many."""
        names = [host_of(name) for key, hosts in GROUPS.items() if group in (None, key) for name in hosts]
        return dict.fromkeys([*names, INNOCENT, *many_hosts(many)], f"{self.address}:{self.port}")

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has gone, or is no HTTP client
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; True if the connection may bring another one."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        target = head.split(" ", 2)[1]
        ask = Ask(self._host(head), target, reader, writer)
        ticket = self.ledger.begin(ask.host, target, self._now())
        try:
            await self._answer_of(ask)(ask)
        finally:
            self.ledger.end(ticket, ask.status, self._now())
        return ask.is_kept

    def _host(self, head: str) -> str:
        fields = (line.partition(":") for line in head.split("\r\n")[1:])
        authority = next((value.strip().lower() for name, _, value in fields if name.lower() == "host"), "")
        return authority.removesuffix(f":{self.port}")

    def _answer_of(self, ask: Ask) -> Answer:
        hostile = self._find(ask.host)
        if hostile is None:
            return missing
        if ask.target.partition("?")[0] == ROBOTS:
            return hostile.robots or missing
        return hostile.answer


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ledger = Ledger(line_writer(options.ledger) if options.ledger else None)
    async with HostileWeb(address=options.address, port=options.port, ledger=ledger) as web:
        print(web.port, flush=True)
        await stop.wait()


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; with --list print the table instead. The exit code."""
    parser = argparse.ArgumentParser(description="Serve the hostile web on one address.")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 = any free port")
    parser.add_argument("--ledger", type=Path, help="append one JSON line per request to this file")
    parser.add_argument("--list", action="store_true", help="print what each host does")
    options = parser.parse_args(arguments)
    if options.list:
        for group, hosts in GROUPS.items():
            print(f"{group}:", *(f"  {first_url(name)}  {host.words}" for name, host in hosts.items()), sep="\n")
        return 0
    asyncio.run(_run(options))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
