"""Caps of bandwidth hold for the real command: of a host, and of a job of several processes together."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, parse_crawl_log_line
from tests.acceptance.command import anabranch, write_order
from tests.site.page import Host, Page, Web, file, go
from tests.site.server import SmallWeb

BODY = 64 * 1024
PAGES = 20


def web(hosts: int) -> Web:
    """Hosts of bodies of 64 KiB."""
    paths = [f"/{number}.bin" for number in range(PAGES)]
    body = file("application/octet-stream", bytes(BODY))
    return {
        f"h{number}.test": Host(pages={"/": Page(links=go(*paths)), **dict.fromkeys(paths, body)})
        for number in range(hosts)
    }


async def crawled(folder: Path, hosts: int, *arguments: str, **fetch: object) -> list[CrawlLogEntry]:
    """Crawl such a web to its end; the lines of the bodies, in the order of their ends."""
    async with SmallWeb(web(hosts)) as served:
        order = write_order(folder, served.hosts, fetch=fetch, crawl={"workers": 20})
        seeds = [f"http://{host}/" for host in served.hosts]
        run = await anabranch("crawl", *seeds, "-c", order, "--job", "job", *arguments, cwd=folder)
    assert run.code == 0, run.err
    logs = [log.read_bytes().splitlines() for log in (folder / "job").glob("**/crawl.log")]
    entries = [parse_crawl_log_line(line) for lines in logs for line in lines]
    bodies = [
        *{entry.url: entry for entry in entries if entry.url.endswith(".bin")}.values()
    ]  # the job and its workers have logs
    assert sorted(entry.size_bytes or 0 for entry in bodies) == [BODY] * hosts * PAGES
    return sorted(bodies, key=lambda entry: entry.end_s or 0.0)


def rate_of(bodies: list[CrawlLogEntry]) -> float:
    """Bytes a second, from the end of the first body to that of the last one."""
    first_s, last_s = bodies[0].end_s, bodies[-1].end_s
    assert first_s is not None
    assert last_s is not None
    return (len(bodies) - 1) * BODY / (last_s - first_s)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_host_is_read_no_faster_than_its_cap(tmp_path: Path, loop: str) -> None:
    """Within 5 % over 10 s; no fetch is long because it waited."""
    cap = 128 * 1024
    bodies = await crawled(tmp_path, 1, "--loop", loop, host_bandwidth=cap)
    assert rate_of(bodies) <= 1.05 * cap
    print(f"\n{loop}: {rate_of(bodies) / cap:.3f} of the cap of a host")
    longest_s = max((entry.end_s or 0.0) - (entry.start_s or 0.0) for entry in bodies)
    print(f"the longest fetch took {longest_s:.3f} s")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 3])
async def test_all_processes_together_read_no_faster_than_the_cap_of_the_job(tmp_path: Path, processes: int) -> None:
    """Within 10 %."""
    cap = 512 * 1024
    bodies = await crawled(tmp_path, 6, "--processes", str(processes), bandwidth=cap)
    assert rate_of(bodies) <= 1.1 * cap
    print(f"\n{processes} processes: {rate_of(bodies) / cap:.3f} of the cap of the job")
