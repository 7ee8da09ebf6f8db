"""The server's process: it makes the web, listens on loopback, and does what it is told by lines of JSON on its standard input.

The first line says what to serve; the answer names the port, the seeds and the hosts, or what is wrong. Then `begin` (with a
rule) begins new books, `ledger` answers them. The end of the input ends the process, so none outlives who started it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.crawler.lab.web.connection import Connection, Served
from anabranch.crawler.lab.web.ledger import Books, Rule
from anabranch.crawler.lab.web.model import Web, WebOptions
from anabranch.crawler.lab.web.replay import replayed_file
from anabranch.crawler.lab.web.shape import make_web
from anabranch.crawler.network.descriptors import raise_file_limit
from anabranch.crawler.outcomes.errors import CrawlerError

_BACKLOG = 4096


class Server:
    """A web on a port of loopback, with its books."""

    def __init__(self, web: Web) -> None:
        self._sites = {site.host: site for site in web.sites}
        self._delays = {site.host: site.crawl_delay_s for site in web.sites}
        self._clock = asyncio.get_running_loop().time
        self.begin(Rule())
        self._served = Served(web, self._sites, lambda: self.books, self._clock)
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int) -> int:
        """Begin to serve; the port, which the system chooses if 0 is asked for. Raises: OSError."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self._served), "127.0.0.1", port, backlog=_BACKLOG)
        found: int = self._listener.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Listen no more; connections stay until their clients go."""
        if self._listener is not None:
            self._listener.close()

    def begin(self, rule: Rule) -> None:
        """Begin new books; a request that is in service ends in those in which it began."""
        self.books = Books(self._delays, rule, self._clock)

    def obey(self, request: dict[str, Any]) -> object:
        """Do what a line says; its answer."""
        match request["do"]:
            case "begin":
                self.begin(Rule(**request["rule"]))
                return None
            case "ledger":
                return asdict(self.books.ledger())
            case other:
                raise ValueError(f"{other!r} is nothing that the server does")


def main() -> None:
    """The process: serve what the first line says until the input ends."""
    asyncio.run(_serve())


async def _serve() -> None:
    lines = await _lines()
    first = json.loads(await lines.readline())
    raise_file_limit()
    try:
        replay = first["replay"]
        web: Web = make_web(WebOptions(**first["web"])) if replay is None else replayed_file(Path(replay))
        server = Server(web)
        port = await server.listen(first["port"])
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        _say({"error": f"port {first['port']}: {why.lower()}; choose another, or 0 for any free one"})
        return
    except CrawlerError as error:
        _say({"error": str(error)})
        return
    gc.collect()
    gc.freeze()
    hosts = [site.host for site in web.sites]
    _say({"port": port, "seeds": web.seeds, "hosts": hosts, "urls": web.urls, "notes": getattr(web, "notes", ())})
    while line := await lines.readline():
        _say(server.obey(json.loads(line)))


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _say(answer: object) -> None:
    """One line; the reader waits for it."""
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
