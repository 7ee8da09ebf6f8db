"""Sites that redirect until their cookie is sent: each page is fetched, by several workers and after a kill, too."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.acceptance.command import anabranch, crawl_log, ended, start, write_order
from tests.site.application import serving

HOSTS = [f"h{number}.test" for number in range(6)]
#: A page that redirects to itself with a cookie, and one that is led back to by a page that sets the cookie.
GATES = ("/self", "/around")


#: A second request of a host comes so much later.
REST = {"min_delay": "1s", "max_delay": "1s"}


class Site:
    """Hosts whose gates open for those who send the cookie. `asked` counts requests, by host and path."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.port = 0

    @property
    def hosts(self) -> dict[str, str]:
        return dict.fromkeys(HOSTS, f"127.0.0.1:{self.port}")

    async def answer(self, request: web.Request) -> web.Response:
        self.asked[request.host + request.path_qs] += 1
        if request.path == "/robots.txt":
            return web.Response(status=404)
        if request.path == "/":
            links = "".join(f'<a href="{path}">a gate</a>' for path in GATES)
            return web.Response(text=links, content_type="text/html")
        if request.path == "/around" and "cookieSet" in request.query:
            return self._with_cookie("/around")
        if request.cookies.get("known") == "yes":
            return web.Response(text=f'<a href="{request.path}/inside">inside</a>', content_type="text/html")
        if request.path.endswith("/inside"):
            return web.Response(status=403)
        return self._with_cookie("/self") if request.path == "/self" else self._redirect("/around?cookieSet=1")

    def _with_cookie(self, target: str) -> web.Response:
        answer = self._redirect(target)
        answer.set_cookie("known", "yes")
        return answer

    def _redirect(self, target: str) -> web.Response:
        return web.Response(status=302, headers={"Location": target})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    found = Site()
    async with serving(found.answer) as port:
        found.port = port
        yield found


def inside(host: str) -> dict[str, int]:
    """Return the URLs of a host's gates and of the pages behind them, each with status 200."""
    return {f"http://{host}{path}{end}": 200 for path in GATES for end in ("", "/inside")}


@pytest.mark.parametrize("more", [(), ("--processes", "2")])
async def test_what_is_behind_a_cookie_is_fetched(tmp_path: Path, site: Site, more: tuple[str, ...]) -> None:
    order = write_order(tmp_path, site.hosts, fetch={"cookies": True})
    seeds = [f"http://{host}/" for host in HOSTS]
    run = await anabranch("crawl", *seeds, "-c", order, "--job", "job", *more, cwd=tmp_path)
    assert run.code == 0, run.err
    found = crawl_log(tmp_path / "job")
    for host in HOSTS:
        assert inside(host).items() <= found.items(), host
        assert site.asked[f"{host}/self"] == 2


async def test_a_gate_is_passed_after_a_kill_that_lost_the_cookie(tmp_path: Path, site: Site) -> None:
    """The cookies are in memory; the page redirects once more, and is asked for once more."""
    host = HOSTS[0]
    order = write_order(tmp_path, {host: site.hosts[host]}, fetch={"cookies": True}, politeness=REST)
    command = ("crawl", f"http://{host}/", "-c", order, "--job", tmp_path / "job")
    process = await start(*command, cwd=tmp_path)
    log = tmp_path / "job" / "logs" / "crawl.log"
    while not log.exists() or f"http://{host}/self " not in log.read_text():
        await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    await ended(process)
    run = await anabranch(*command, "-s", "politeness.min_delay=0s", "-s", "politeness.max_delay=0s", cwd=tmp_path)
    assert run.code == 0, run.err
    assert inside(host).items() <= crawl_log(tmp_path / "job").items()
    assert site.asked[f"{host}/self"] <= 4
