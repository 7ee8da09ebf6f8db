"""The page of a job with 100,000 queues in a real browser, while the job is crawled."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.frontier.composition import FrontierOrder
from scripts.benchmarks.frontier.filling import fill
from scripts.benchmarks.frontier.links import host_name
from scripts.benchmarks.frontier.speed import POLITENESS
from tests.acceptance.browser import ON_ONE_LOOP, expect, on_one_loop
from tests.acceptance.command import anabranch, ended, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), ON_ONE_LOOP]

QUEUES = 100_000
#: It is given a thousand pages while the others wait.
LONGEST = "longest.test"
PAGE = b"<html></html>"


@asynccontextmanager
async def proxy():
    """A proxy that answers for every host of any name, without a look at another server; its port."""

    async def serve(reader, writer):
        with suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.05)  # as a network does, so that the crawl leaves the browser room
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\n\r\n"
                writer.write(head.encode() + PAGE)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@on_one_loop
async def crawl(tmp_path, console):
    """A crawl of a job with 100,000 queues of two URLs and a longer one."""
    job = console.jobs / "large"
    order = CrawlOrder.model_validate({"frontier": {"policy": "host"}})
    with JobFolder.open(job) as folder:
        folder.write_order(dump_order(order))
        fill(folder.state, FrontierOrder(policy="host", politeness=POLITENESS), QUEUES, lambda _: None, same_host=1)
    added = await anabranch("add", job, *(f"http://{LONGEST}/{page}" for page in range(1000)), cwd=tmp_path)
    assert added.code == 0, added.err
    async with proxy() as port:
        options = ("--scope", "any", "-s", f"fetch.proxy=http://127.0.0.1:{port}", "-s", "fetch.allow_private=true")
        fast = ("-s", "politeness.min_delay=0", "-s", "politeness.max_delay=0", "--workers", "4")
        contact = ("-s", "agent.contact=https://example.org/bot")
        process = await start("crawl", "--job", job, *options, *fast, *contact, cwd=tmp_path)
        await fetching(process, job)
        yield process
        process.terminate()
        await ended(process)


async def fetching(process, job):
    """Wait until the crawl has logged another fetch."""
    log = job / "logs/crawl.log"
    before = log.stat().st_size if log.exists() else 0
    while not (log.exists() and log.stat().st_size > before):
        assert process.returncode is None, await ended(process)
        await asyncio.sleep(0.05)


async def test_any_of_100_000_queues_is_found_and_opened_while_the_crawl_goes_on(console, window, crawl):
    """Sorted by a column, filtered, scrolled to the middle and to the end; a row of it is opened."""
    await window.goto(f"{console.base}/jobs/large/queues")
    await expect(window.get_by_text("100,001 queues, as of")).to_be_visible()
    await expect(row_at(window, 0)).to_contain_text(LONGEST)

    key = window.get_by_role("columnheader", name="Queue")
    await key.click()  # the largest key first
    await expect(row_at(window, 1)).to_contain_text(host_name(QUEUES - 1))
    await key.click()
    await expect(row_at(window, 0)).to_contain_text(host_name(0))
    await scrolled(window, 0.5)
    await expect(row_at(window, QUEUES // 2)).to_contain_text(host_name(QUEUES // 2))
    await scrolled(window, 1)
    await expect(row_at(window, QUEUES)).to_contain_text(LONGEST)

    await window.get_by_label("Part of the name").fill("0077")
    await expect(window.get_by_text(f"{matching('0077'):,} queues, as of")).to_be_visible()
    await expect(row_at(window, 0)).to_contain_text(host_name(77))
    await row_at(window, 0).get_by_role("gridcell").first.click()
    await expect(window.get_by_role("dialog")).to_contain_text(host_name(77))
    await window.keyboard.press("Escape")

    await window.get_by_role("button", name="Read again").click()
    await expect(window.get_by_text("queues, as of")).to_be_visible()
    await fetching(crawl, console.jobs / "large")


def matching(text):
    """How many hosts have it in their names."""
    return sum(text in host_name(number) for number in range(QUEUES))


def row_at(window, place):
    """The row at a place of the grid, once it has come."""
    return window.locator(f'.ag-row[row-index="{place}"]')


async def scrolled(window, part):
    """Scroll the grid to this part of its height, from 0 to 1."""
    await window.locator(".ag-body-viewport").evaluate(
        "(grid, part) => { grid.scrollTop = part * grid.scrollHeight; }", part
    )
