"""The pages of a job's queues, hosts, workers and filter in a real browser, on real crawls."""

import asyncio
import re

import pytest

from tests.acceptance.browser import ON_ONE_LOOP, expect, logged_in, on_one_loop
from tests.acceptance.command import ended, start, write_order
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

pytestmark = [pytest.mark.slow, ON_ONE_LOOP]

SEED = "http://a.test/"
HOSTILE = "/?q=<script>window.canary=1</script>\u202e"
#: Two hosts that tests read, and one for each test that changes what is known of a host.
HOSTS = ("a.test", "b.test", "c.test", "d.test", "e.test")
PAGES = go(*(f"/{number}" for number in range(200)))
WEB = {host: Host(pages={"/": Page(links=PAGES)}) for host in HOSTS} | {
    "a.test": Host(pages={"/": Page(links=go(HOSTILE) + PAGES + go(*(f"http://{host}/" for host in HOSTS[1:])))}),
}


@on_one_loop(scope="module", autouse=True)
async def crawl(tmp_path_factory, console):
    """A crawl of the hosts that has read their first pages, and does not end by itself."""
    folder = tmp_path_factory.mktemp("crawl")
    async with SmallWeb(WEB) as web:
        sections = {
            "politeness": {"max_connections": 1, "min_delay": 3, "max_delay": 3},
            "frontier": {"policy": "host"},
        }
        order = write_order(folder, web.hosts, **sections)
        job = ("--scope", "any", "--job", console.jobs / "news")
        process = await start("crawl", SEED, "-c", order, *job, cwd=folder)
        while {str(url).split("/")[2] for url in web.ledger.counts()} < {*HOSTS}:
            await asyncio.sleep(0.01)
        yield
        process.terminate()
        await ended(process)


async def test_a_queue_is_found_explained_paused_and_retired(console, window):
    """The grid is filtered by the server; the panel tells what the crawl says; what stops work is confirmed."""
    await window.goto(f"{console.base}/jobs/news/queues")
    await expect(row(window, "b.test")).to_be_visible()
    await window.get_by_label("Part of the name").fill("c.te")
    await expect(row(window, "b.test")).to_have_count(0)
    await row(window, "c.test").locator(".ag-cell").first.click()
    panel = window.get_by_role("dialog")
    await expect(panel).to_contain_text("c.test")
    await panel.get_by_role("button", name="Pause").click()
    await expect(panel.get_by_role("status")).to_contain_text("paused")
    await panel.get_by_role("button", name="Resume").click()
    await expect(panel.get_by_role("status")).not_to_contain_text("paused")
    await panel.get_by_role("button", name="Retire").click()
    await window.get_by_role("button", name="Retire", exact=True).click()
    await expect(panel.get_by_role("status")).to_contain_text("retired")
    assert "retire" in (console.state / "audit.jsonl").read_text()


async def test_a_queue_is_opened_by_the_keyboard(console, window):
    """Tab leads to the heads, an arrow to the rows; Enter on a cell is a click."""
    await window.goto(f"{console.base}/jobs/news/queues")
    await row(window, "a.test").locator(".ag-cell").first.click()
    await expect(window.get_by_role("dialog")).to_be_visible()
    await window.keyboard.press("Escape")
    await expect(window.get_by_role("dialog")).to_have_count(0)
    await window.get_by_role("button", name="Read again").focus()
    for key in ("Tab", "ArrowDown", "Enter"):
        await window.keyboard.press(key)
    await expect(window.get_by_role("dialog")).to_be_visible()


async def test_urls_full_of_script_are_text(console, window):
    """They are shown with their marks escaped, and lead to a page of the console."""
    await window.goto(f"{console.base}/jobs/news/hosts?host=a.test")
    link = window.get_by_role("dialog").get_by_role("link").first
    await expect(link).to_be_visible()
    assert (await link.get_attribute("href")).startswith("/jobs/news/url?url=http%3A%2F%2Fa.test%2F")
    await window.goto(f"{console.base}/jobs/news/queues?queue=%3Cimg%20src%3Dx%20onerror%3Dwindow.canary%3D1%3E")
    await expect(window.get_by_role("dialog")).to_contain_text("<img src=x onerror=window.canary=1>")
    assert await window.evaluate("window.canary") is None


async def test_a_host_is_blocked_for_a_time_and_unblocked(console, window):
    """The panel shows that it is closed, and why. A moment that is past is refused, and the dialog asks again."""
    await window.goto(f"{console.base}/jobs/news/hosts")
    await row(window, "d.test").locator(".ag-cell").first.click()
    panel = window.get_by_role("dialog").first
    await panel.get_by_role("button", name="Block …", exact=True).click()
    await window.get_by_role("button", name="Block", exact=True).click()
    await expect(panel.get_by_role("status")).to_contain_text("closed: blocked")
    await panel.get_by_role("button", name="Unblock …", exact=True).click()
    await window.get_by_role("button", name="Unblock", exact=True).click()
    await expect(panel.get_by_role("status")).not_to_contain_text("blocked")
    await panel.get_by_role("button", name="Block …", exact=True).click()
    await window.get_by_label("Or until").fill("2001-01-31T14:00")
    await window.get_by_role("button", name="Block", exact=True).click()
    await expect(window.locator(".q-notification", has_text="in the past")).to_be_visible()
    await expect(window.get_by_label("Or until")).to_have_value("2001-01-31T14:00")
    await window.get_by_label("Or until").fill("2099-01-31T14:00")
    await window.get_by_role("button", name="Block", exact=True).click()
    await expect(panel.get_by_role("status")).to_contain_text("closed: blocked")


async def test_the_host_of_a_queue_is_blocked_and_unblocked(console, window):
    """From the queue's panel, as from the host's."""
    await window.goto(f"{console.base}/jobs/news/queues?queue=e.test")
    panel = window.get_by_role("dialog").first
    gate = panel.get_by_label("Gates", exact=True).get_by_role("row", name="e.test")
    await expect(gate).to_be_visible()
    await panel.get_by_role("button", name="Block host …", exact=True).click()
    await window.get_by_role("button", name="Block", exact=True).click()
    await expect(gate).to_contain_text("blocked")
    await panel.get_by_role("button", name="Unblock host …", exact=True).click()
    await window.get_by_role("button", name="Unblock", exact=True).click()
    await expect(gate).not_to_contain_text("blocked")


async def test_rows_are_read_again_at_a_click(console, window):
    """Rows are as they were when they were read; the button reads them now, whatever their age."""
    await window.goto(f"{console.base}/jobs/news/queues")
    await expect(row(window, "b.test")).to_be_visible()
    before = taken_folders(console)
    await window.get_by_role("button", name="Read again").click()
    await expect(window.get_by_text("queues, as of")).to_be_visible()
    while taken_folders(console) == before:
        await asyncio.sleep(0.05)


def taken_folders(console):
    """The tables of the console: their folders change when rows are read."""
    return {str(folder) for folder in (console.state / "queues").glob("*/*")}


async def test_rows_need_a_session_and_a_sensible_question(console, browser):
    """Without a session one is sent to the login; a wrong column is refused in one line."""
    window = await logged_in(browser, console)  # of its own, because it loses its cookies
    address = f"{console.base}/jobs/news/queues/rows"
    refused = await window.request.get(f"{address}?sort=nothing&limit=1")
    assert refused.ok is False
    assert (await refused.json())["error"].startswith("'nothing' is no column")
    await window.context.clear_cookies()
    answer = await window.request.get(address, max_redirects=0)
    assert (answer.status, answer.headers["location"]) == (303, "/login")


async def test_a_job_of_one_worker_shows_its_fetches(console, window):
    """With the processor that each is in."""
    await window.goto(f"{console.base}/jobs/news/workers")
    await expect(window.get_by_role("button", name="Requeue")).to_have_count(0)
    await expect(window.get_by_role("heading", name="Fetches under way")).to_be_visible()


async def test_a_worker_of_several_is_drained(tmp_path, console, window):
    """It leaves the table when it has ended; the others go on."""
    async with SmallWeb(WEB) as web:
        sections = {"politeness": {"max_connections": 1, "min_delay": 3, "max_delay": 3}}
        order = write_order(tmp_path, web.hosts, **sections)
        job = console.jobs / "duo"
        process = await start(
            "crawl", SEED, "-c", order, "--scope", "any", "--processes", "2", "--job", job, cwd=tmp_path
        )
        await window.goto(f"{console.base}/jobs/duo/workers")
        table = window.get_by_label("Workers", exact=True)
        await expect(table.get_by_role("button", name="Drain")).to_have_count(2)
        await table.get_by_role("button", name="Drain 2").click()
        await window.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
        await expect(table.get_by_role("button", name="Drain 2")).to_have_count(0)
        await expect(table.get_by_role("button", name="Drain 1")).to_be_visible()
        process.terminate()
        await ended(process)


async def test_the_filter_shows_its_figures_and_curves(console, window):
    """The curves begin with the second look."""
    await window.goto(f"{console.base}/jobs/news/filter")
    await expect(window.get_by_role("status", name="Verdict")).to_have_text(
        re.compile("^Healthy: .*; none expected lost")
    )
    for folded in ("Charts", "All figures"):
        await window.get_by_text(folded, exact=True).click()
    await expect(window.get_by_role("row", name=re.compile("URLs known"))).to_contain_text(re.compile(r"keys\s*\d+"))
    await expect(window.get_by_role("img", name="URLs known")).to_be_visible()


def row(window, key):
    """A row of the grid, once it has come."""
    return window.locator(f'.ag-row[row-id="{key}"]')
