"""The server of the hostile web: it does what the table says, and what it did stands in its ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.site.hostile.hosts import GROUPS, HOSTILE, INNOCENT, INNOCENT_URLS, found, host_of, many_hosts
from tests.site.hostile.server import HostileWeb

#: Hosts that say nothing at first, by what their line says.
SILENT = {"mute", "reset-accept", "closed", "reset-status", "reset-headers", "reset-body"}


@pytest.fixture
async def web() -> AsyncIterator[HostileWeb]:
    """The hostile web on a free port."""
    async with HostileWeb() as server:
        yield server


async def asked(web: HostileWeb, host: str, target: str = "/", size: int = 4096) -> bytes:
    """At most the first bytes of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    try:
        return await reader.read(size)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - SILENT))
async def test_every_hostile_host_says_something(web, name):
    """Its first bytes come, and the ledger knows who asked for what."""
    assert await asked(web, host_of(name), HOSTILE[name].target)
    assert web.ledger.count(f"http://{host_of(name)}{HOSTILE[name].target}") == 1


@pytest.mark.parametrize("name", ["reset-accept", "closed"])
async def test_some_hosts_end_the_connection_without_a_word(web, name):
    """Nothing comes, and it ends."""
    assert await asked(web, host_of(name)) == b""


async def test_a_mute_host_ends_with_its_client(web):
    """It is in service until the client goes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: {host_of('mute')}\r\n\r\n".encode())
    while not web.ledger.in_service:
        await asyncio.sleep(0)
    writer.close()
    while web.ledger.in_service:
        await asyncio.sleep(0.001)
    assert await reader.read() == b""


async def test_an_endless_body_ends_with_its_client(web):
    """Nobody goes on sending what nobody reads."""
    assert len(await asked(web, host_of("endless"))) > 0
    while web.ledger.in_service:
        await asyncio.sleep(0.001)


async def test_the_innocent_host_has_all_its_pages(web):
    """Each URL of its table is answered with 200, others are not."""
    for url in [*INNOCENT_URLS, f"http://{INNOCENT}/page{len(INNOCENT_URLS)}", f"http://{INNOCENT}/x"]:
        target = url.removeprefix(f"http://{INNOCENT}")
        answer = await asked(web, INNOCENT, target)
        assert answer.startswith(b"HTTP/1.1 200" if url in INNOCENT_URLS else b"HTTP/1.1 404")


async def test_what_stands_beside_the_table_is_not_found(web):
    """An unknown host has no pages, and most hosts have no robots.txt."""
    assert (await asked(web, "unknown.test")).startswith(b"HTTP/1.1 404")
    assert (await asked(web, host_of("calendar"), "/robots.txt")).startswith(b"HTTP/1.1 404")


def test_each_host_has_its_line():
    """Words, and at least one status that its first URL may get; a name is unique."""
    assert all(hostile.words and hostile.statuses for hostile in HOSTILE.values())
    assert all(found(host_of(name)) is HOSTILE[name] for name in HOSTILE)
    assert sum(map(len, GROUPS.values())) == len(HOSTILE)
    assert all(found(host) is not None for host in many_hosts(3))
