"""None"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest

from anabranch.crawler.fetch.connection_limits import raise_file_limit
from anabranch.crawler.lab.web import miniweb
from anabranch.crawler.lab.web.ledger import PolitenessLedger, PolitenessRule
from anabranch.crawler.lab.web.miniweb import Served, WebLost, serving
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.lab.web.shape import make_web
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.runtime import child_command
from tests.crawler.lab.web.asking import client_of
from tests.site.processes import Watched, watched

SMALL = WebOptions(pages=200, hosts=7, latency_s=0.002)
RULE = PolitenessRule(slots=2, delay_factor=5.0, min_delay_s=0.03, max_delay_s=0.1)


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """A server of the small web; a test begins a run of its own."""
    with serving(SMALL) as served:
        yield served


async def fetch(port: int, urls: list[str]) -> list[int]:
    """The sizes of the bodies, over one connection."""
    async with client_of(port) as client:
        return [len((await client.get(url)).body) for url in urls]


async def crawl(port: int, url: str, *, slots: int, delay: PolitenessRule) -> None:
    """Ask for the URL four times on each of so many slots, which rest as long as that rule says of what the client measured."""
    now = asyncio.get_running_loop().time

    async def slot() -> None:
        async with client_of(port) as client:
            for _ in range(4):
                start_s = now()
                await client.get(url)
                rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_later(delay.rest_s(now() - start_s), rest.set_result, None)
                await rest

    await asyncio.gather(*(slot() for _ in range(slots)))


def test_every_page_of_the_web_is_served_as_it_was_made() -> None:
    """By a process of its own, of all hosts on one port, in both forms of a request; the books have each request."""
    web = make_web(SMALL)
    urls = [*web.seeds, *(link for seed in web.seeds for link in web.page(seed).links)]  # type: ignore[union-attr]
    with serving(SMALL) as served:
        assert served.seeds == web.seeds
        assert served.urls == 200
        assert served.hosts == {site.host: f"127.0.0.1:{served.port}" for site in web.sites}
        sizes = asyncio.run(fetch(served.port, urls))
        assert sizes == [web.page(url).size for url in urls]  # type: ignore[union-attr]
        ledger = served.ledger()
        assert ledger.requests == len(urls)
        assert sum(entry.size_bytes for entry in ledger.hosts) == sum(sizes)
        assert ledger.cpu_s < ledger.wall_s


def test_a_new_run_begins_with_an_empty_ledger(small: Served) -> None:
    """One server serves many runs."""
    small.begin(PolitenessRule())
    asyncio.run(fetch(small.port, ["http://www.qq.com/"]))
    assert small.ledger().requests == 1
    small.begin(RULE)
    assert (small.ledger().requests, small.ledger().rule) == (0, RULE)


def ledger_of_crawl(served: Served, *, slots: int, delay: PolitenessRule) -> PolitenessLedger:
    served.begin(RULE)
    asyncio.run(crawl(served.port, "http://www.qq.com/", slots=slots, delay=delay))
    return served.ledger()


def test_a_client_that_keeps_slots_and_delays_has_a_clean_ledger(small: Served) -> None:
    """Over real sockets, by the client's own clock; the gap that the server saw is no shorter than the least delay."""
    ledger = ledger_of_crawl(small, slots=2, delay=RULE)
    (entry,) = ledger.hosts
    assert ledger.is_kept, ledger.verdict()
    assert (entry.requests, entry.most_at_once) == (8, 2)
    assert entry.shortest_gap_s is not None
    assert entry.shortest_gap_s >= 0.03


def test_a_client_with_one_connection_too_many_is_found(small: Served) -> None:
    """It keeps the delays on each of them."""
    ledger = ledger_of_crawl(small, slots=3, delay=RULE)
    assert not ledger.is_kept
    assert ledger.hosts[0].too_many + ledger.hosts[0].too_early > 0


def test_a_client_that_does_not_wait_is_found(small: Served) -> None:
    """It keeps the slots. The rule's delay is so long that a busy machine does not wait for it either."""
    small.begin(PolitenessRule(slots=2, min_delay_s=60.0, max_delay_s=60.0))
    asyncio.run(crawl(small.port, "http://www.qq.com/", slots=2, delay=PolitenessRule(slots=2, min_delay_s=0.01)))
    ledger = small.ledger()
    (entry,) = ledger.hosts
    assert (ledger.is_kept, entry.too_many) == (False, 0)
    assert entry.too_early == 6


@pytest.mark.slow
def test_a_thousand_connections_are_served_at_once() -> None:
    """All wait for their first byte at the same time, and all get their page."""
    assert raise_file_limit() > 1100
    options = WebOptions(pages=50, hosts=1, latency_s=2.0)
    size = make_web(options).page("http://www.sina.com.cn/").size  # type: ignore[union-attr]

    async def ask(port: int) -> list[int]:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(port)) for _ in range(1000)]
            for client in clients:
                client.send("http://www.sina.com.cn/")
            return [len((await client.reply()).body) for client in clients]

    with serving(options) as served:
        sizes = asyncio.run(ask(served.port))
        assert sizes == [size] * 1000
        assert served.ledger().hosts[0].most_at_once == 1000


def test_a_web_that_cannot_be_is_refused_with_its_reason() -> None:
    """The process that would serve it says so."""
    with pytest.raises(UsageError, match="kind 'ring'"), serving(WebOptions(kind="ring")):
        pass


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(UsageError, match=r"nowhere\.log: no such file"), serving(tmp_path / "nowhere.log"):
        pass


def test_a_port_that_is_taken_is_named() -> None:
    """Nothing is served elsewhere instead."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}: address already in use"), serving(SMALL, port=port):
            pass


@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "has ended"), (signal.SIGSTOP, "was stopped")])
def test_a_server_that_was_killed_or_stopped_is_told_of(number: int, how: str) -> None:
    """Not an endless wait, nor an empty ledger: it can be waited for, and nothing of it is left."""
    with ExitStack() as stack:
        servers: list[Watched] = []

        def ask() -> None:
            with serving(SMALL) as served:
                servers.append(stack.enter_context(watched(served.pid)))
                os.kill(served.pid, number)
                assert select.select([served], [], [], 30)[0]
                served.ledger()

        with pytest.raises(WebLost, match=rf"\(pid \d+\) {how}; run it again"):
            ask()
        assert servers[0].alive() == []


def test_a_server_that_hangs_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes its orders, and never answers."""
    facts = '{"port": 1, "seeds": [], "hosts": [], "urls": 0, "notes": []}'
    hanging = f"sys.stdin.readline(); print({facts!r}, flush=True); import signal; signal.pause()"
    monkeypatch.setattr(miniweb, "child_command", lambda _: child_command(hanging))
    monkeypatch.setattr(miniweb, "_ANSWER_S", 0.05)
    with pytest.raises(WebLost, match=r"has not answered for 0\.05 s; run it again"), serving(SMALL) as served:
        served.begin()


def test_the_server_ends_with_the_process_that_started_it() -> None:
    """Also if that was killed: the end of its input ends it."""
    code = (
        "import sys\n"
        "from anabranch.crawler.lab.web.miniweb import serving\n"
        "from anabranch.crawler.lab.web.model import WebOptions\n"
        "with serving(WebOptions(pages=50, hosts=5)) as served:\n"
        "    print(served.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with starter:
        assert starter.stdout is not None
        pidfd = os.pidfd_open(int(starter.stdout.readline()))
        starter.kill()
    try:
        assert select.select([pidfd], [], [], 30)[0]
    finally:
        os.close(pidfd)
