"""The pages of a job in PostgreSQL that two workers crawl, in a real browser."""

import asyncio
import re
import signal

import pytest

from anabranch.crawler.outcomes.errors import ExitCode
from tests.acceptance.browser import ON_ONE_LOOP, expect, logged_in, on_one_loop, running_console
from tests.acceptance.command import crawl_log, ended, start, write_order
from tests.postgres_server import server
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), ON_ONE_LOOP]

HOSTS = [f"h{number}.test" for number in range(20)]
WEB = {host: Host(pages={"/": Page(links=go(*(f"/{page}" for page in range(200))))}) for host in HOSTS}


@on_one_loop
async def job(tmp_path, request):
    """The URL of a job's database, and its workers by name; the crawl does not end by itself."""
    with server() as url:
        store = url.replace(":@", "@")
        async with SmallWeb(WEB) as web:
            order = write_order(
                tmp_path, web.hosts, politeness={"max_connections": 1, "min_delay": 1, "max_delay": 1},
                frontier={"policy": "host", "worker_lease": getattr(request, "param", "4s")},
            )  # fmt: skip
            workers = {}
            for name in "ab":
                folder = ("--store", store, "--job", tmp_path / name, "--worker", name)
                seeds = (f"http://{host}/" for host in HOSTS)
                workers[name] = await start("crawl", *seeds, "-c", order, "--scope", "any", *folder, cwd=tmp_path)
            for name, worker in workers.items():
                while len(fetched(tmp_path / name)) < 5:
                    assert worker.returncode is None, await ended(worker)
                    await asyncio.sleep(0.05)
            yield store, workers
            for worker in workers.values():
                if worker.returncode is None:
                    worker.kill()
                await worker.communicate()


def fetched(folder):
    """The URLs in the log of a worker."""
    return crawl_log(folder) if (folder / "logs/crawl.log").exists() else {}


@on_one_loop
async def window(tmp_path, browser, job):
    """A window on a console of the database, and the path of the job's pages."""
    store, _ = job
    with running_console(tmp_path, place=store) as console:
        window = await logged_in(browser, console)
        name = store.rpartition("/")[2].partition("?")[0]
        yield window, f"{console.base}/jobs/{name}"


async def test_a_worker_is_drained_and_a_killed_one_requeued_by_clicks(window, job):
    """Each after a question. Another worker has ended the killed one, so it is requeued by its name."""
    (page, path), (_, workers) = window, job
    await page.goto(f"{path}/workers")
    table = page.get_by_label("Workers", exact=True)
    await expect(table.get_by_role("button", name="Drain")).to_have_count(2)
    workers["b"].send_signal(signal.SIGKILL)
    await expect(table.get_by_role("button", name=re.compile(" b$"))).to_have_count(0)
    await page.get_by_role("button", name="Requeue a lost worker's pages").click()
    await page.get_by_label("Name of the worker").fill("b")
    await page.get_by_role("button", name="Requeue", exact=True).click()
    await expect(page.get_by_text("pages of b are queued again")).to_be_visible()

    await table.get_by_role("button", name="Drain a").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
    await expect(page.get_by_text("a has ended")).to_be_visible()
    await expect(table.get_by_role("button", name="Drain a")).to_have_count(0)
    run = await ended(workers["a"])
    assert run.code == ExitCode.DRAINED, run.err
    await table.get_by_role("button", name="Let a come back").click()
    await expect(page.get_by_text("a may come back")).to_be_visible()
    await expect(table.get_by_role("button")).to_have_count(0)

    await page.goto(path)
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    await expect(page.get_by_role("button", name="Start")).to_have_count(0)
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    await expect(page.get_by_text("its workers stay away until").first).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("not running; start a").first).to_be_visible()


async def test_the_lost_pages_of_a_late_worker_are_requeued_from_its_row(window, job):
    """Its row stays, because nothing ended the worker in order."""
    (page, path), (_, workers) = window, job
    await page.goto(f"{path}/workers")
    for worker in workers.values():
        worker.send_signal(signal.SIGKILL)
    await page.get_by_role("button", name="Requeue the lost pages of a").click()
    await page.get_by_role("button", name="Requeue", exact=True).click()
    await expect(page.get_by_text("pages of a are queued again")).to_be_visible()
    await expect(page.get_by_label("Workers", exact=True).get_by_role("button")).to_have_count(0)


@pytest.mark.parametrize("job", ["60s"], indirect=True, ids=["long lease"])
async def test_what_both_workers_do_is_shown_and_who_does_not_answer_is_named(window, job):
    """Fetches under way come from their memories; a worker that stands still has none that are known."""
    (page, path), (_, workers) = window, job
    rows = await page.request.get(f"{path}/queues/rows?state=in-flight&state=ready&limit=100")
    known = [row["id"] for row in (await rows.json())["rows"] if row["in_flight"]]
    assert set(known) == set(HOSTS)
    workers["b"].send_signal(signal.SIGSTOP)
    try:
        await page.goto(f"{path}/hosts")
        words = page.get_by_text("no answer from b, so states are from the database")
        await expect(words).to_be_visible()
    finally:
        workers["b"].send_signal(signal.SIGCONT)
