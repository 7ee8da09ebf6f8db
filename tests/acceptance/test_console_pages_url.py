"""The console's pages of a URL, of logs, reports and the order of a job, and of the lab, in a real browser."""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from anabranch.crawler.job.orderfile import order_file
from anabranch.crawler.order.loading import load_order
from tests.acceptance.browser import ON_ONE_LOOP, expect, on_one_loop
from tests.acceptance.command import anabranch, crawl_log, write_order
from tests.site.server import SmallWeb

pytestmark = [pytest.mark.slow, ON_ONE_LOOP]

SEED = "http://blog.alpha.test/"


@on_one_loop(scope="module")
async def ended_job(tmp_path_factory):
    """A job that has ended, with WARC files and links.jsonl; its folder, which is copied."""
    folder = tmp_path_factory.mktemp("crawled")
    async with SmallWeb() as web:
        order = write_order(folder, web.hosts, write={"warc": True, "links": True})
        run = await anabranch("crawl", SEED, "-c", order, "--limit", "20", "--job", folder / "news", cwd=folder)
    assert run.code == 0, run.err
    return folder / "news"


@pytest.fixture
def job(ended_job, console):
    """A copy of it among the jobs of the console."""
    shutil.rmtree(console.jobs / "news", ignore_errors=True)
    return Path(shutil.copytree(ended_job, console.jobs / "news"))


async def test_a_url_is_explained_with_its_log_lines_links_and_record(console, window, job):
    """From its state to the body that was archived; a link leads to the explanation of the next one."""
    await window.goto(f"{console.base}/jobs/news/url")
    await window.get_by_label("URL", exact=True).fill(SEED)
    await window.keyboard.press("Enter")
    await expect(window.get_by_text("it is done with status 200 OK")).to_be_visible()
    await expect(window.get_by_role("region", name="Scope")).to_contain_text("a seed")
    await expect(window.get_by_text("It is a seed.")).to_be_visible()
    await expect(window.get_by_label("History of the URL")).to_contain_text("200 OK")
    await window.get_by_text("Lines of crawl.log (1)").click()
    await expect(window.get_by_role("region", name="Lines of crawl.log")).to_contain_text(" 200 ")
    await expect(window.get_by_role("region", name="Response")).to_contain_text("HTTP/1.1 200 OK")
    await expect(window.get_by_role("region", name="Body")).to_contain_text("<html")
    await window.get_by_text(re.compile(r"^Links on it \(\d+\)$")).click()
    child = next(url for url in crawl_log(job) if url != SEED and not url.endswith("/robots.txt"))
    await window.goto(f"{console.base}/jobs/news/url?url={quote(child, safe='')}")
    await window.get_by_role("link", name=f"{SEED} (first)").click()
    await expect(window.get_by_text("it is done with status 200 OK")).to_be_visible()


async def test_what_a_stranger_typed_is_text(console, window, job):
    """A URL full of markup runs nothing, and leads nowhere."""
    dialogs = []
    window.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for hostile in ("http://x.test/<script>alert(1)</script>", "javascript:alert(1)", '"><img src=x onerror=alert(1)>'):
        await window.goto(f"{console.base}/jobs/news/url?url={quote(hostile, safe='')}")
        await expect(window.get_by_label("URL", exact=True)).to_have_value(hostile)
        await expect(window.get_by_label("looking")).to_have_count(0)
        links = await window.eval_on_selector_all("a", "links => links.map(link => link.href)")
        assert all(link.startswith(console.base) for link in links)
    assert dialogs == []


async def test_a_log_is_followed_and_filtered(console, window, job):
    """New lines come by themselves, escaped; a wrong regular expression is named."""
    await window.goto(f"{console.base}/jobs/news/logs")
    lines = window.get_by_role("log")
    await expect(lines).to_contain_text(SEED)
    with (job / "logs" / "crawl.log").open("ab") as log:
        log.write(b"new \x1b[31m <b>line</b>\n")
    await expect(lines).to_contain_text("new \\x1b[31m <b>line</b>")
    await window.get_by_label("Filter").fill("^new")
    await expect(lines).not_to_contain_text("new")
    await window.get_by_role("switch", name="Regular expression").click()
    await expect(lines).to_have_text(re.compile("^new"))
    lines_found = window.get_by_role("status").filter(has_text=re.compile("line"))
    await expect(lines_found).to_have_text("1 line")
    await window.get_by_label("Filter").fill("(")
    await expect(window.get_by_role("alert")).to_contain_text("is not a regular expression")
    await expect(lines_found).to_have_count(0)
    await window.get_by_label("Filter").fill("nosuch")
    await expect(lines_found).to_have_text("no line fits the filter")


async def test_a_report_is_shown_and_downloaded(console, window, job):
    """Chosen by the name that the command has."""
    await window.goto(f"{console.base}/jobs/news/reports?report=hosts")
    table = window.get_by_label("hosts", exact=True)
    await expect(table).to_contain_text("blog.alpha.test")
    async with window.expect_download() as started:
        await window.get_by_role("button", name="JSON").click()
    file = await (await started.value).path()
    assert "blog.alpha.test" in {row["host"] for row in json.loads(file.read_text())["rows"]}
    await window.get_by_label("Report", exact=True).click()
    await window.get_by_role("option", name="crawl-summary").click()
    await expect(window.get_by_label("crawl-summary", exact=True)).to_contain_text("URIs Processed")


async def test_the_order_is_changed_in_place(console, window, job):
    """A wrong value is refused in the words of the command; a right one is in the job's order, and its origin is shown."""
    await window.goto(f"{console.base}/jobs/news/order?key=limits.pages")
    row = window.get_by_role("row").filter(has=window.get_by_text("limits.pages", exact=True))
    await window.get_by_role("button", name="Change limits.pages", exact=True).click()
    form = window.get_by_role("dialog")
    await form.get_by_label("Value").fill("many")
    await form.get_by_role("button", name="Change").click()
    await expect(window.get_by_text("must be a whole number").first).to_be_visible()
    await form.get_by_label("Value").fill("77")
    await form.get_by_role("button", name="Change").click()
    await expect(row).to_contain_text("anabranch set limits.pages")
    assert load_order(order_file(job), {}).limits.pages == 77


async def test_a_comparison_is_seen_to_its_end(console, window):
    """Its panels, its means, and its place among the past ones."""
    await window.goto(f"{console.base}/lab")
    for name, value in (("Seconds", "2"), ("Pages", "100"), ("Hosts", "5"), ("Workers", "10")):
        await window.get_by_label(name, exact=True).fill(value)
    await window.get_by_role("button", name="Compare").click()
    await expect(window.get_by_role("button", name="Stop")).to_be_visible()
    await expect(window.get_by_label("Means")).to_contain_text("bkdr:997")
    await expect(window.get_by_label("Active workers by policy")).to_be_visible()
    await window.get_by_label("Past comparisons").get_by_role("link").click()
    await expect(window.get_by_label("Means")).to_contain_text("host")
