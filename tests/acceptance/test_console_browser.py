"""The console as its users have it: a real browser, real crawls of the small web."""

import asyncio
import json
import os
import re
import shutil
import signal
from contextlib import suppress

import pytest
from playwright.async_api import TimeoutError as PlaywrightTimeout

from anabranch.crawler.console.access import ConsoleRole
from anabranch.crawler.console.passwords import Passwords
from tests.acceptance.browser import ON_ONE_LOOP, expect, logged_in, on_one_loop, running_console
from tests.acceptance.command import anabranch, write_order
from tests.ports import free_port
from tests.site.server import SmallWeb

pytestmark = [pytest.mark.slow, ON_ONE_LOOP]

SEED = "http://blog.alpha.test/"
OTHER = "http://new.test/"
#: Texts that would run, leave their place or turn the line, if they were more than texts.
EVIL = '<script>canary = 1</script><img src=x onerror="canary = 2">\x1b[31m\u202egnp.exe {{ 1 + 1 }} \u2028'


@on_one_loop
async def slow_web():
    """The small web, with every answer late by 50 ms, so that a crawl can be watched."""
    async with SmallWeb(delay_s=0.05) as web:
        yield web


@on_one_loop
async def endless_web():
    """The small web, so slow that a crawl goes on until it is stopped or the web becomes quick."""
    async with SmallWeb(delay_s=1.0) as web:
        yield web


@pytest.fixture(autouse=True)
def _no_crawl_outlives_its_test(console):
    """Each test has jobs of names of its own."""
    yield
    while crawls := console.crawls():
        for pid in crawls:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)


async def test_a_job_is_made_by_the_form_and_watched_until_it_ends(tmp_path, console, window, slow_web):
    """The page of the job shows its pages as they grow, and that it is finished; then it takes another round."""
    await make(console, window, "made", SEED, order_of(tmp_path, slow_web))
    await expect(state(window)).to_have_text("running")
    first = await pages_shown(window)
    while await pages_shown(window) <= first:
        await asyncio.sleep(0.1)
    await expect(state(window)).to_have_text("finished")
    served = sum(slow_web.ledger.counts().values())
    await window.get_by_role("button", name="Another round").click()
    await in_dialog(window, "Another round")
    while sum(slow_web.ledger.counts().values()) <= served:
        await asyncio.sleep(0.05)
    await expect(state(window)).to_have_text("finished")


async def test_a_wrong_order_is_refused_with_its_faults(tmp_path, console, window, slow_web):
    """All of them, in the form, which stays; and no folder is made."""
    before = {*console.jobs.iterdir()}
    await fill_form(console, window, "wrong", SEED, '[limits]\npages = "many"\nno-such-key = 1\n')
    form = window.get_by_role("dialog")
    await form.get_by_label("Seeds").fill(f"{SEED}\nftp://x/")
    await expect(
        form.get_by_role("status").filter(has_text="'ftp://x/': ftp: is neither http: nor https:")
    ).to_be_visible()
    for words in ("pages", "no-such-key"):
        await expect(form.get_by_role("alert").filter(has_text=words)).to_be_visible()
    await form.get_by_role("button", name="Create", exact=True).click()
    await expect(window.locator(".q-notification", has_text="no-such-key")).to_be_visible()
    await expect(form).to_be_visible()
    assert {*console.jobs.iterdir()} == before


async def test_a_second_click_does_not_create_a_job_twice(tmp_path, console, window, slow_web):
    """It would be refused, as if the first one had failed."""
    await fill_form(console, window, "twice", SEED, order_of(tmp_path, slow_web))
    await window.get_by_role("dialog").get_by_role("button", name="Create and start").dblclick()
    await expect(state(window)).to_have_text("finished")
    assert [(entry["action"], entry.get("error")) for entry in noted(console, "twice")] == [("create", None)]


async def test_two_windows_steer_one_crawl(tmp_path, console, browser, window, endless_web):
    """Each window shows actions of the other; a paused crawl says so, and a stopped one starts again."""
    await make(console, window, "both", SEED, order_of(tmp_path, endless_web))
    other = await logged_in(browser, console)
    await other.goto(window.url)
    for action, phase in (("Pause", "paused"), ("Resume", "running"), ("Stop", "stopped"), ("Start", "running")):
        first, second = (window, other) if action in {"Pause", "Stop"} else (other, window)
        await first.get_by_role("button", name=action, exact=True).click()
        if action == "Stop":
            await in_dialog(first, "Stop")
        for one in (first, second):
            await expect(state(one)).to_have_text(phase)
            if phase == "paused":
                await expect(one.get_by_text("paused by the operator").first).to_be_visible()
    actions = [entry["action"] for entry in noted(console, "both")]
    assert actions == ["create", "pause", "resume", "stop", "start"]


async def test_a_crawl_that_is_killed_is_seen_and_started_again(tmp_path, console, browser, window, endless_web):
    """SIGKILL while it is watched: both pages say so in red, and Start resumes it and goes on to the end."""
    await make(console, window, "shot", SEED, order_of(tmp_path, endless_web))
    await expect(state(window)).to_have_text("running")
    (pid,) = console.crawls()  # those of other tests have ended
    os.kill(pid, signal.SIGKILL)
    await expect(state(window)).to_have_text("killed")
    await expect(state(window)).to_have_class(re.compile("bg-negative"))
    await expect(window.get_by_text("Killed: its last sign of life was at").first).to_be_visible()
    jobs = await logged_in(browser, console)
    row = jobs.get_by_role("row", name="shot")  # other tests leave killed crawls behind
    await expect(row.locator(".bg-negative", has_text="killed")).to_be_visible()
    await expect(row.get_by_text("Start resumes it.")).to_be_visible()
    endless_web.delay_s = 0.0
    await window.get_by_role("button", name="Start", exact=True).click()
    await expect(window.get_by_text("Start: resumes")).to_be_visible()
    await expect(state(window)).to_have_text("finished")


async def test_a_window_outlives_the_console_and_asks_for_a_new_login(tmp_path, browser, endless_web):
    """The crawl goes on; the window that has lost its console comes to the login, and the new link opens it."""
    with running_console(tmp_path) as console:
        window = await logged_in(browser, console)
        await make(console, window, "news", SEED, order_of(tmp_path, endless_web))
        await asyncio.to_thread(console.end)
        (pid,) = console.crawls()
        await asyncio.to_thread(console.start)
        await window.wait_for_url(f"{console.base}/login")
        await window.goto(console.login)
        await window.get_by_role("link", name="news").click()
        await expect(state(window)).to_have_text("running")
        assert console.crawls() == [pid]


async def test_the_page_of_a_removed_job_says_so(tmp_path, console, browser, window, slow_web):
    """While it is open in another window, and when it is opened; nothing can be done there."""
    await fill_form(console, window, "removed", SEED, order_of(tmp_path, slow_web))
    await window.get_by_role("button", name="Create", exact=True).click()
    await window.get_by_role("link", name="removed").click()
    await expect(state(window)).to_have_text("stopped")
    other = await logged_in(browser, console)
    await other.goto(window.url)
    await window.get_by_role("button", name="More").last.click()
    await window.get_by_text("Remove …").click()
    await in_dialog(window, "Remove")
    await window.wait_for_url(f"{console.base}/")
    await expect(other.get_by_text("This job does not exist.")).to_be_visible()
    await other.goto(f"{console.base}/jobs/never-was")
    await expect(other.get_by_text("This job does not exist.")).to_be_visible()
    await expect(other.get_by_role("button", name="Start")).not_to_be_visible()


async def test_a_window_is_no_more_than_the_user_who_is_logged_in(tmp_path, console, browser, slow_web):
    """An operator's window stays open while somebody else logs in, in the same browser: its buttons change nothing."""
    window, before = await logged_in(browser, console), {*console.jobs.iterdir()}
    Passwords(console.state).put("ada", "correct horse battery", ConsoleRole.READER)
    await fill_form(console, window, "demoted", SEED, order_of(tmp_path, slow_web))
    other = await window.context.new_page()
    await other.goto(f"{console.base}/")
    await other.get_by_role("button", name="Log out").click()
    await other.get_by_label("Name").fill("ada")
    await other.get_by_label("Password").fill("correct horse battery")
    await other.get_by_role("button", name="Log in").click()
    await expect(other.get_by_text("ada (reader)")).to_be_visible()
    create = window.get_by_role("dialog").get_by_role("button", name=re.compile("^(Make|Create)$"))
    with suppress(PlaywrightTimeout):  # it may be gone by now
        await create.click(timeout=1000)
    # Its socket belonged to the session that has ended, so the page is loaded anew, as the other user's.
    await expect(window.get_by_text("ada (reader)")).to_be_visible()
    await expect(create).to_have_count(0)
    assert {*console.jobs.iterdir()} == before


async def test_a_reader_sees_everything_and_has_no_buttons(tmp_path, console, browser, slow_web):
    """Logged in by a password, in the form of a browser."""
    Passwords(console.state).put("ada", "correct horse battery", ConsoleRole.READER)
    await crawled(tmp_path, console, "seen", slow_web)
    window = await (await browser.new_context()).new_page()
    await window.goto(console.base)
    await window.get_by_label("Name").fill("ada")
    await window.get_by_label("Password").fill("wrong one, first")
    await window.get_by_role("button", name="Log in").click()
    await expect(window.get_by_role("alert")).to_have_text("no such name and password")
    await window.get_by_label("Name").fill("ada")
    await window.get_by_label("Password").fill("correct horse battery")
    await window.get_by_role("button", name="Log in").click()
    await expect(window.get_by_text("ada (reader)")).to_be_visible()
    await expect(window.get_by_role("button", name="New job")).to_have_count(0)
    await window.get_by_role("link", name="seen").click()
    await expect(state(window)).to_have_text("stopped")
    for action in ("Start", "Another round", "Remove", "Add seeds"):
        await expect(window.get_by_role("button", name=action)).not_to_be_visible()


async def test_an_operator_asks_and_changes_a_crawl_on_its_pages(tmp_path, console, window, endless_web):
    """Adds a seed, changes a limit, blocks a host, asks why a URL waits, queues it again by force, and reads a log."""
    await make(console, window, "asked", SEED, order_of(tmp_path, endless_web))
    job = f"{console.base}/jobs/asked"
    await window.get_by_role("button", name="Add seeds").click()
    await window.get_by_role("dialog").get_by_label("URLs, one per line").fill(OTHER)
    await in_dialog(window, "Add")
    await expect(window.locator(".q-notification", has_text="1 new")).to_be_visible()

    await window.get_by_role("link", name="Limits and other settings").click()
    await window.get_by_label("Filter").fill("limits.pages")
    value = window.get_by_role("dialog").get_by_label("Value")
    while not await value.is_visible():  # a click may meet a row that the filter is about to replace
        await window.get_by_role("button", name="limits.pages", exact=False).first.click()
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await value.wait_for()
    await value.fill("100000")
    await in_dialog(window, "Change")
    await expect(window.locator(".q-notification", has_text="limits.pages")).to_be_visible()

    await window.goto(f"{job}/hosts")
    await window.locator(".ag-row", has_text="blog.alpha.test").first.click()
    await window.get_by_role("button", name="Block").first.click()
    await window.get_by_role("dialog").last.get_by_role("button", name="Block", exact=True).click()
    await expect(window.locator(".q-notification", has_text="is blocked")).to_be_visible()

    await window.goto(f"{job}/url")
    await window.get_by_label("URL").fill(SEED)
    await window.get_by_role("button", name="Explain").click()
    await expect(window.get_by_text("it is done with status 200 OK")).to_be_visible()

    await window.goto(job)
    for by_force, words in ((False, "1 known"), (True, "1 new")):
        await window.get_by_role("button", name="Add seeds").click()
        await window.get_by_role("dialog").get_by_label("URLs, one per line").fill(SEED)
        if by_force:
            await window.get_by_role("checkbox", name="Also URLs that have ended").click()
        await in_dialog(window, "Add")
        await expect(window.locator(".q-notification", has_text=words)).to_be_visible()
    assert noted(console, "asked")[-1]["arguments"] == {"seeds": 1, "first": [SEED], "force": True}

    await window.goto(f"{job}/logs")
    await expect(window.get_by_role("log").get_by_text(SEED).first).to_be_visible()


async def test_a_crawl_that_waits_says_for_what_and_failures_are_retried(tmp_path, console, window, slow_web):
    """The page of a job whose proxy is away; then it is stopped, and its failures and what it skipped are queued again."""
    gone = free_port()
    order = order_of(tmp_path, slow_web, fetch={"proxy": f"http://127.0.0.1:{gone}"})
    await make(console, window, "waits", SEED, order)
    await expect(state(window)).to_have_text("waiting")
    words = re.compile(rf"waits for proxy http://127.0.0.1:{gone} since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ: ")
    await expect(window.get_by_text(words).first).to_be_visible()
    await window.goto(f"{console.base}/")
    row = window.get_by_role("row", name="waits")
    await expect(row.get_by_role("status")).to_have_text("waiting")
    await expect(row.get_by_text(words)).to_be_visible()
    await window.goto(f"{console.base}/jobs/waits")
    for trap, said in ((False, "no failure that fits"), (True, "0 skipped URLs queued again")):
        await expect(state(window)).to_have_text("waiting")  # the page is drawn as a whole
        await window.get_by_role("button", name="Retry failed").click()
        dialog = window.get_by_role("dialog")
        await dialog.get_by_label("Statuses").fill("-1, 5xx")
        if trap:
            await dialog.get_by_role("checkbox").click()
        await in_dialog(window, "Retry")
        await expect(window.locator(".q-notification", has_text=said)).to_be_visible()
    retried = [entry["arguments"] for entry in noted(console, "waits") if entry["action"] == "retry"]
    assert retried == [{"statuses": ["-1", "5xx"]}, {"trap": True}]


PAGES = ("", "/queues", "/hosts", "/workers", "/filter", "/url", "/logs", "/reports", "/order")


async def test_texts_of_the_web_are_texts_on_every_page(tmp_path, console, browser, slow_web):
    """In the name of a job, in a log, as a URL, a title and a reason: no script runs, no dialog opens, no line turns."""
    await crawled(tmp_path, console, "news", slow_web)
    name = "<img src=x onerror=canary=3>"
    shutil.move(console.jobs / "news", console.jobs / name)
    line = {"time": "2026-01-01T00:00:00.000Z", "status": -2, "exception": None, "attempt": 1, "final": True}
    for url in (f"javascript:canary=4//{EVIL}", f"http://evil.test/{EVIL}{'x' * 100_000}"):
        fields = line | {"url": url, "words": EVIL, "message": EVIL * 1000, "hops": "", "via": EVIL, "worker": 0}
        with (console.jobs / name / "logs" / "errors.jsonl").open("a") as log:
            log.write(json.dumps(fields) + "\n")
    with (console.jobs / name / "logs" / "crawl.log").open("a") as log:
        log.write(f"{EVIL.strip()}\n")
    window = await logged_in(browser, console)
    troubles, dialogs = [], []
    window.context.on("dialog", lambda dialog: dialogs.append(dialog.message))
    window.context.on("weberror", lambda trouble: troubles.append(str(trouble.error)))
    await expect(window.get_by_role("link", name=name)).to_be_visible()
    asked = f"{console.base}/jobs/%3Cimg%20src=x%20onerror=canary=3%3E"
    windows = [await window.context.new_page() for _ in PAGES]
    await asyncio.gather(*(texts_are_texts(*each, asked, name) for each in zip(windows, PAGES, strict=True)))
    await window.goto(f"{asked}/url?url={'%3Cscript%3Ecanary=5%3C/script%3E'}")
    await settled(window)
    assert await window.evaluate("typeof canary") == "undefined"
    assert (troubles, dialogs) == ([], [])


async def texts_are_texts(window, path, asked, name):
    """On one page, once it has settled."""
    await window.goto(asked + path)
    await expect(window.get_by_role("heading", level=1).first).to_be_visible()
    await expect(window.get_by_role("banner").get_by_text(name)).to_be_visible()
    await settled(window)
    assert await window.evaluate("typeof canary") == "undefined", path
    hrefs = await window.locator("main a").evaluate_all("all => all.map(one => one.href)")
    assert all(href.startswith(asked.partition("/jobs/")[0]) for href in hrefs), path
    shown = await window.inner_text("main")
    assert not {"\x1b", "\u202e"} & {*shown}, path
    if path in {"", "/logs"}:
        assert "<script>canary = 1</script>" in shown, path


async def crawled(folder, console, name, web):
    """A job of a few pages, whose crawl has ended."""
    order = write_order(folder, web.hosts, limits={"pages": 5})
    ended = await anabranch("crawl", SEED, "-c", order, "--job", console.jobs / name, "--quiet", cwd=folder)
    assert ended.code == 0, ended.err


def order_of(folder, web, **sections):
    """The text of an order for the small web."""
    return write_order(folder, web.hosts, **{"politeness": {"max_connections": 2}, **sections}).read_text()


async def make(console, window, name, seeds, order):
    """Make a job by the form, have it crawled, and open its page."""
    await fill_form(console, window, name, seeds, order)
    await in_dialog(window, "Create and start")
    await window.get_by_role("link", name=name).click()
    await expect(state(window)).not_to_have_text("")


async def fill_form(console, window, name, seeds, order):
    """Open the form of a new job, and fill it in."""
    await window.goto(f"{console.base}/")
    await window.get_by_role("button", name="New job").click()
    form = window.get_by_role("dialog")
    await form.get_by_label("Name", exact=True).fill(name)
    await form.get_by_label("Seeds, one URL per line").fill(seeds)
    await form.get_by_text("Advanced: other keys").click()
    await form.locator(".cm-content").click()
    await window.keyboard.press("Control+A")
    await window.keyboard.insert_text(order)


async def in_dialog(window, button):
    """Press a button of the dialog that is open; then it is closed."""
    dialog = window.get_by_role("dialog")
    await dialog.get_by_role("button", name=button, exact=True).click()
    await expect(dialog).to_have_count(0)


def noted(console, job):
    """The changes of a job that were noted."""
    lines = (console.state / "audit.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["job"] == job]


def state(window):
    """The badge that says what the job does."""
    return window.get_by_role("status", name="state")


async def settled(window):
    """Wait until the page has all that it requests at its opening: its text is the same at two looks."""
    before, now = None, ""
    while now != before:
        await window.wait_for_timeout(2500)
        before, now = now, await window.inner_text("main")


async def pages_shown(window):
    """The figure `Pages`; 0 while it is empty."""
    text = await window.locator(".q-card", has_text="Pages").first.locator(".text-h6").inner_text()
    return int(text.replace(",", "")) if text.strip("–") else 0
