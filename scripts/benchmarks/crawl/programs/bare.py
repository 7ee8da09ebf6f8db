"""The bare loop: aiohttp gets a page, selectolax reads its links, a set knows them. No crawler in Python can be faster.

`python bare.py SEED CONCURRENCY LOOP`, LOOP asyncio or uvloop.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from importlib import import_module
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from selectolax.lexbor import LexborHTMLParser


class Loopback(AbstractResolver):
    """Every name is 127.0.0.1."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = ResolveResult(hostname=host, host="127.0.0.1", port=port, family=family, proto=0, flags=0)
        return [found]

    async def close(self) -> None:
        pass


async def crawl(seed: str, concurrency: int) -> None:
    """Crawl until no worker has anything to do."""
    known, due = {seed}, asyncio.Queue[str]()
    due.put_nowait(seed)
    connector = aiohttp.TCPConnector(limit=concurrency, resolver=Loopback())

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            async with session.get(await due.get()) as answer:
                body = await answer.read()
            for link in LexborHTMLParser(body).css("a[href]"):
                target = link.attributes["href"]
                if target and target not in known:
                    known.add(target)
                    due.put_nowait(target)
            due.task_done()

    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        workers = [asyncio.create_task(work(session)) for _ in range(concurrency)]
        done = asyncio.create_task(due.join())
        ended, _ = await asyncio.wait([done, *workers], return_when=asyncio.FIRST_COMPLETED)
        for worker in (done, *workers):
            worker.cancel()
        for one in ended:  # a worker ends by an error alone
            one.result()


def loop_factory(name: str) -> Any:
    """The factory of event loops of this kind; None for asyncio's own."""
    return None if name == "asyncio" else import_module(name).new_event_loop


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(sys.argv[3])) as runner:
        runner.run(crawl(sys.argv[1], int(sys.argv[2])))
