"""Each shared service is away for 45 real seconds and comes back: the oracle's set, exit 0, nothing failed.

In one process and in several, before and after names are known. The shorter ones are in tests/crawler/run/test_outages.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import command
from tests.acceptance.command import (
    REPOSITORY,
    Ended,
    anabranch,
    crawl_log,
    ended,
    environment,
    pages,
    start,
    write_order,
)
from tests.crawler.run.test_outages import Names, Proxy
from tests.facts_schema import checked
from tests.patience import HANG_S
from tests.postgres_server import server
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

NAMES = ("a.test", "b.test", "c.test")
PATHS = [f"/{number}" for number in range(1, 21)]
WEB = {name: Host(pages={"/": Page(links=go(*PATHS)), **{path: Page() for path in PATHS}}) for name in NAMES}
AWAY_S = 45.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PATIENCE_S", 3 * HANG_S)


def oracle(port: str) -> list[str]:
    """Every page of the web."""
    return sorted(f"http://{name}{port}{path}" for name in NAMES for path in ["/", *PATHS])


def check_whole(run: Ended, job: Path, web: SmallWeb, urls: list[str], under_way: int) -> None:
    """Nothing is missing, nothing has failed, nothing was fetched twice but for what was under way through a proxy."""
    assert run.code == 0, run.out + run.err
    assert crawl_log(job) == dict.fromkeys(urls, 200)
    assert sorted(pages(job)) == urls
    repeated = [url for url, count in web.ledger.counts().items() if count > 1 and "robots.txt" not in url]
    assert len(repeated) <= under_way
    assert " 0 failed" in run.out


async def crawl_through(
    folder: Path,
    set_away: Callable[[bool], Any],
    *,
    processes: int,
    before: bool,
    port: bool,
    **sections: dict[str, Any],
) -> None:
    """Crawl while the service is away for 45 s: from the start, or after a third of the pages."""
    folder.mkdir()  # noqa: ASYNC240 - at the start
    async with SmallWeb(WEB) as web:
        sections = {name: values(web) if callable(values) else values for name, values in sections.items()}
        urls = oracle(f":{web.port}" if port else "")
        seeds = [url for url in urls if url.endswith("/")]
        order = write_order(
            folder, {}, politeness={"min_delay": 0.1, "max_delay": 0.1}, crawl={"workers": 6}, **sections
        )
        more = ["--processes", str(processes)] if processes > 1 else []
        if before:
            await set_away(True)
        process = await start("crawl", *seeds, "-c", order, "--job", folder / "job", *more, cwd=folder)
        if not before:
            while sum(web.ledger.counts().values()) < len(urls) // 3:
                await asyncio.sleep(0.01)
            await set_away(True)
        await asyncio.sleep(AWAY_S / 2)
        status = await anabranch("status", folder / "job", "--json", cwd=folder)
        facts = checked(json.loads(status.out))
        assert facts["phase"] == "waiting"
        assert {service["worker"] for service in facts["services"]} <= ({""} if processes == 1 else {"1", "2"})
        await asyncio.sleep(AWAY_S / 2)
        await set_away(False)
        check_whole(await ended(process), folder / "job", web, urls, len(NAMES) if "fetch" in sections else 0)


COMBINATIONS = [(processes, before) for processes in (1, 2) for before in (True, False)]


async def test_name_servers_and_proxies_that_are_away_for_45_seconds_cost_nothing(tmp_path: Path) -> None:
    """A proxy dies with the connections through it. All eight crawls run at once: they wait most of the time."""

    async def with_names(processes: int, *, before: bool) -> None:
        async with Names() as names:
            dns = {"servers": [names.address], "timeout": "500ms", "min_ttl": "0s", "max_ttl": "0s", "max_stale": "0s"}

            async def set_away(is_away: bool) -> None:
                names.is_away = is_away

            await crawl_through(
                tmp_path / f"dns{processes}{before}", set_away, processes=processes, before=before, port=True, dns=dns
            )

    async def with_proxy(processes: int, *, before: bool) -> None:
        async with SmallWeb(WEB) as unused, Proxy(unused.port) as proxy:

            def fetch(web: SmallWeb) -> dict[str, Any]:
                proxy.forwards_to(web.port)
                return {"proxy": f"http://127.0.0.1:{proxy.port}"}

            async def set_away(is_away: bool) -> None:
                await (proxy.end() if is_away else proxy.begin())

            folder = tmp_path / f"proxy{processes}{before}"
            await crawl_through(folder, set_away, processes=processes, before=before, port=False, fetch=fetch)

    async with asyncio.TaskGroup() as group:
        for processes, before in COMBINATIONS:
            group.create_task(with_names(processes, before=before))
            group.create_task(with_proxy(processes, before=before))


def test_a_network_that_is_away_for_45_seconds_costs_nothing(tmp_path: Path) -> None:
    """The machine has no route to anywhere: two networks, of one process and of two, whose only interface goes down."""
    runs = [crawl_without_network(tmp_path / str(processes), AWAY_S, processes) for processes in (1, 2)]
    for run in runs:
        facts = facts_of(run)
        assert (facts["codes"], facts["pages"]) == ([0], oracle("")), facts["out"] + facts["err"]
        assert facts["served"] < len(oracle(""))
        assert " 0 failed" in facts["out"]


def crawl_without_network(folder: Path, away_s: float, processes: int, *store: str) -> subprocess.Popen[str]:
    """Start `outage.py` in a network of its own."""
    unshare = shutil.which("unshare")
    # The server of a database runs as another user if this is root; a user namespace of root's does not see that one's socket.
    is_root = bool(store) and os.geteuid() == 0
    asked = [str(unshare), "--net"] if is_root else [str(unshare), "--user", "--map-root-user", "--net"]
    if unshare is None or subprocess.run([*asked, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network of its own can be made here")
    folder.mkdir()
    script = [sys.executable, REPOSITORY / "tests/acceptance/outage.py", folder, away_s, processes, *store]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*asked, *map(str, script)], text=True, cwd=folder, env=environment(), **pipes)  # type: ignore[call-overload,no-any-return]


def facts_of(run: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the run's end, which must be 0, and return the facts that it printed last."""
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    facts: dict[str, Any] = json.loads(out.splitlines()[-1])
    return facts


async def test_two_workers_of_a_job_in_postgresql_wait_each_for_its_name_server(tmp_path: Path) -> None:
    """One worker's name servers are away for 45 s: it keeps its hosts meanwhile, and the status says which one waits."""
    async with SmallWeb(WEB) as web, Names() as here, Names() as there:
        dns = {"timeout": "500ms", "min_ttl": "0s", "max_ttl": "0s", "max_stale": "0s"}
        urls = oracle(f":{web.port}")
        seeds = [url for url in urls if url.endswith("/")]
        slow = {"min_delay": 0.3, "max_delay": 0.3}
        order = write_order(tmp_path, {}, politeness=slow, crawl={"workers": 4}, dns=dns)
        with server() as address:
            store = address.replace(":@", "@")

            def crawl(name: str, names: Names) -> tuple[str | Path, ...]:
                servers = f'dns.servers=["{names.address}"]'
                place = ("--store", store, "--job", tmp_path / name, "--worker", name)
                return ("crawl", *seeds, "-c", order, "-s", servers, *place)

            workers = [await start(*crawl(name, names), cwd=tmp_path) for name, names in (("a", here), ("b", there))]
            while sum(web.ledger.counts().values()) < len(urls) // 3:
                await asyncio.sleep(0.01)
            here.is_away = there.is_away = True
            await asyncio.sleep(AWAY_S / 2)
            facts = checked(json.loads((await anabranch("status", store, "--json", cwd=tmp_path)).out))
            await asyncio.sleep(AWAY_S / 2)
            here.is_away = there.is_away = False
            runs = [await ended(worker) for worker in workers]
        assert [run.code for run in runs] == [0, 0], [run.out + run.err for run in runs]
        assert facts["phase"] == "waiting"
        assert {service["service"] for service in facts["services"]} == {"name servers"}
        assert {service["worker"] for service in facts["services"]} <= {"a", "b"}
        fetched = {**crawl_log(tmp_path / "a"), **crawl_log(tmp_path / "b")}
        assert fetched == dict.fromkeys(urls, 200)
        assert not [url for url, count in web.ledger.counts().items() if count > 1 and "robots.txt" not in url]


#: With a database the shorter outage is enough: what is new there is that workers share the job.
SHORT_S = 4.0


async def test_two_workers_of_a_job_in_postgresql_wait_for_a_proxy_that_is_away(tmp_path: Path) -> None:
    """It dies with the connections through it; the status says that both wait."""
    async with SmallWeb(WEB) as web, Proxy(web.port) as proxy:
        urls = oracle("")
        seeds = [url for url in urls if url.endswith("/")]
        sections = {"fetch": {"proxy": f"http://127.0.0.1:{proxy.port}"}}
        order = write_order(
            tmp_path, {}, politeness={"min_delay": 0.2, "max_delay": 0.2}, crawl={"workers": 4}, **sections
        )
        with server() as address:
            store = address.replace(":@", "@")
            crawl = ("crawl", *seeds, "-c", order, "--store", store)
            workers = [await start(*crawl, "--job", tmp_path / name, "--worker", name, cwd=tmp_path) for name in "ab"]
            while sum(web.ledger.counts().values()) < len(urls) // 3:
                await asyncio.sleep(0.01)
            await proxy.end()
            await asyncio.sleep(SHORT_S)
            facts = checked(json.loads((await anabranch("status", store, "--json", cwd=tmp_path)).out))
            await proxy.begin()
            runs = [await ended(worker) for worker in workers]
        assert [run.code for run in runs] == [0, 0], [run.out + run.err for run in runs]
        assert facts["phase"] == "waiting"
        assert {service["service"] for service in facts["services"]} == {f"proxy http://127.0.0.1:{proxy.port}"}
        assert {**crawl_log(tmp_path / "a"), **crawl_log(tmp_path / "b")} == dict.fromkeys(urls, 200)
        assert sorted([*pages(tmp_path / "a"), *pages(tmp_path / "b")]) == urls
        counts = web.ledger.counts().items()
        assert sum(count > 1 for url, count in counts if "robots.txt" not in url) <= len(NAMES)  # under way


def test_two_workers_of_a_job_in_postgresql_wait_for_a_network_that_is_away(tmp_path: Path) -> None:
    """The database is reached by its socket in the file system."""
    with server() as address:
        facts = facts_of(crawl_without_network(tmp_path / "job", SHORT_S, 1, address.replace(":@", "@")))
    assert (facts["codes"], facts["pages"]) == ([0, 0], oracle("")), facts["out"] + facts["err"]
    assert facts["served"] < len(oracle(""))
