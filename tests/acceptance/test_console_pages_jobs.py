"""The list of jobs, the form of a new one, and what a job says of itself, in a real browser on real crawls."""

import json
import re
import shutil

import pytest

from tests.acceptance.browser import ON_ONE_LOOP, expect, on_one_loop
from tests.acceptance.command import anabranch, write_order
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

pytestmark = [pytest.mark.slow, ON_ONE_LOOP]

SEED = "http://a.test/"


def web_of(*paths, **server):
    """A site whose first page links to these paths."""
    return SmallWeb({"a.test": Host(pages={"/": Page(links=go(*paths)), **{path: Page() for path in paths}})}, **server)


@on_one_loop(scope="module")
async def twice(tmp_path_factory):
    """A job of two rounds, of which the second one found another page; its folder, which is copied."""
    folder = tmp_path_factory.mktemp("crawled")
    for paths, more in ((("/1", "/2"), (SEED,)), (("/1", "/3"), ("--again", "--yes"))):
        async with web_of(*paths) as web:
            order = write_order(folder, web.hosts, limits={"pages": 50})
            run = await anabranch("crawl", *more, "-c", order, "--job", folder / "twice", "--quiet", cwd=folder)
            assert run.code == 0, run.err
    return folder / "twice"


@pytest.fixture
def job(twice, console):
    """A copy of it among the jobs of the console; there are no others."""
    for entry in console.jobs.iterdir():
        shutil.rmtree(entry)
    shutil.copytree(twice, console.jobs / "twice")
    return console.jobs / "twice"


async def test_uploaded_seeds_are_checked_as_typed_ones_are(tmp_path, console, window, job):
    """A hundred bad lines of ten thousand are counted at once, and can be downloaded there and from the page of the job."""
    good = [f"http://a.test/{number}" for number in range(9_896)]
    (tmp_path / "seeds.txt").write_text("\n".join([*good, *["ftp://x/", "javascript:alert(1)"] * 52]))
    form = await new_job(console, window, "uploaded")
    await form.locator("input[type=file]").set_input_files(tmp_path / "seeds.txt")
    await expect(form.get_by_text("seeds.txt: 9,896 seeds, 104 refused")).to_be_visible()
    async with window.expect_download() as started:
        await form.get_by_role("button", name="Download the 104 refused").click()
    lines = (await (await started.value).path()).read_text().splitlines()
    assert (len(lines), lines[0].partition(" # ")[0]) == (104, "ftp://x/")
    await form.get_by_label("Seeds, one URL per line").fill("no url here")
    await expect(form.get_by_role("status").filter(has_text="0 seeds, 1 refused")).to_be_visible()
    await form.get_by_role("button", name="Create", exact=True).click()
    await window.wait_for_url(f"{console.base}/jobs/uploaded")
    warnings = window.get_by_role("status", name="Warnings")
    await expect(warnings).to_contain_text("9,896 seeds, 105 refused")
    async with window.expect_download() as started:
        await window.get_by_role("button", name="Download the refused seeds").click()
    assert len((await (await started.value).path()).read_text().splitlines()) == 105
    await window.reload()
    await window.get_by_role("button", name="Dismiss").click()
    await expect(warnings).not_to_be_visible()
    await window.reload()
    await expect(window.get_by_text("It has not been started yet.")).to_be_visible()
    await expect(warnings).not_to_be_visible()


async def test_common_keys_are_fields_and_a_template_fills_them(console, window, job):
    """The form saves one; a key that has no field is in its TOML."""
    form = await new_job(console, window, "first")
    await form.get_by_label("Seeds, one URL per line").fill(SEED)
    await form.get_by_label("Pages, at most").fill("7")
    await form.get_by_label("Contact for site owners").fill("me@x.test")
    await form.get_by_text("Advanced: other keys").click()
    await form.locator(".cm-content").click()
    await window.keyboard.insert_text("[scope]\nmax_path_depth = 3\n")
    await form.get_by_role("button", name="Save as template").click()
    naming = window.get_by_role("dialog", name="Save as template")
    await naming.get_by_label("Name of the template").fill("small")
    await naming.get_by_role("button", name="Save").click()
    await expect(window.locator(".q-notification", has_text="small is saved")).to_be_visible()
    await form.get_by_role("button", name="Create", exact=True).click()
    await window.wait_for_url(f"{console.base}/jobs/first")
    form = await new_job(console, window, "second")
    await form.get_by_label("Seeds, one URL per line").fill(SEED)
    await form.get_by_label("Start from a template").click()
    await window.get_by_role("option", name="small").click()
    await expect(form.get_by_label("Pages, at most")).to_have_value("7")
    await form.get_by_role("button", name="Create", exact=True).click()
    await window.wait_for_url(f"{console.base}/jobs/second")
    first, second = ((console.jobs / name / "order.toml").read_text() for name in ("first", "second"))
    assert first.replace("/first/", "/second/").replace('name = "first"', 'name = "second"') == second
    assert "max_path_depth = 3" in second
    await window.goto(f"{console.base}/templates")
    await window.get_by_text("small", exact=True).click()
    await expect(window.get_by_role("region", name="The template small")).to_contain_text("pages = 7")
    await window.get_by_role("button", name="Remove").click()
    await window.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(window.get_by_text("No templates yet.")).to_be_visible()


async def test_a_job_is_copied_with_its_order_and_seeds(console, window, job):
    """Under another name; what its order has of this machine only a command may have."""
    form = await new_job(console, window, "original")
    await form.get_by_label("Seeds, one URL per line").fill(SEED)
    await form.get_by_label("Pages, at most").fill("9")
    await form.get_by_role("button", name="Create", exact=True).click()
    await window.wait_for_url(f"{console.base}/jobs/original")
    await window.get_by_role("main").get_by_role("button", name="More").click()
    await window.get_by_text("Copy …").click()
    form = window.get_by_role("dialog", name="New job")
    await expect(form.get_by_text("Copy of original")).to_be_visible()
    await expect(form.get_by_label("Seeds, one URL per line")).to_have_value(re.compile(SEED))
    await expect(form.get_by_label("Pages, at most")).to_have_value("9")
    await form.get_by_label("Name", exact=True).fill("copied")
    await form.get_by_role("button", name="Create", exact=True).click()
    await window.wait_for_url(f"{console.base}/jobs/copied")
    assert "pages = 9" in (console.jobs / "copied" / "order.toml").read_text()


async def test_jobs_are_found_by_tags_states_and_words(console, window, job):
    """Tags are set on the page of a job; a click on one searches for it."""
    shutil.copytree(job, console.jobs / "other")
    await window.goto(f"{console.base}/jobs/twice")
    await window.get_by_role("main").get_by_role("button", name="More").click()
    await window.get_by_text("Tags …").click()
    await window.get_by_role("dialog").get_by_label("Tags").fill("portals, weekly")
    await window.get_by_role("dialog").get_by_role("button", name="Set tags").click()
    await expect(window.get_by_text("weekly", exact=True)).to_be_visible()
    assert (job / "tags.txt").read_text() == "portals\nweekly\n"
    await window.goto(f"{console.base}/")
    names = window.locator("tbody td:nth-child(2) a")
    await expect(names).to_have_text(["other", "twice"])
    await window.get_by_label("Search for the tag weekly").click()
    await expect(names).to_have_text(["twice"])
    await window.get_by_label("Search names").fill("finished oth")
    await expect(names).to_have_text(["other"])
    await expect(window.get_by_role("button", name="Finished 2")).to_be_visible()


async def test_several_crawls_are_paused_resumed_and_stopped_at_once(tmp_path, console, window, job):
    """Only those that allow it; what does not apply is off. A crawl that is paused needs attention, and comes first."""
    async with web_of(*(f"/{number}" for number in range(200)), delay_s=0.5) as web:
        order = write_order(tmp_path, web.hosts, politeness={"max_connections": 1}).read_text()
        for name in ("one", "two"):
            form = await new_job(console, window, name)
            await form.get_by_label("Seeds, one URL per line").fill(SEED)
            await form.get_by_text("Advanced: other keys").click()
            await form.locator(".cm-content").click()
            await window.keyboard.insert_text(order)
            await form.get_by_role("button", name="Create and start").click()
            await window.wait_for_url(f"{console.base}/jobs/{name}")
        await window.goto(f"{console.base}/")
        verbs = {verb: window.get_by_role("button", name=verb, exact=True) for verb in ("Pause", "Resume", "Stop")}
        await expect(window.get_by_role("row", name="two").get_by_role("status")).to_have_text("running")
        for verb in verbs.values():
            await expect(verb).to_be_disabled()
        for verb, phase in (("Pause", "paused"), ("Resume", "running"), ("Stop", "stopped")):
            for name in ("one", "two", "twice"):  # of which the last one is finished
                await window.get_by_role("row", name=name).get_by_role("checkbox").click()
            await expect(verbs["Resume"]).to_be_enabled(enabled=verb == "Resume")
            await verbs[verb].click()
            if verb == "Stop":
                await window.get_by_role("dialog").get_by_role("button", name="Stop").click()
            for name in ("one", "two"):
                await expect(window.get_by_role("row", name=name).get_by_role("status")).to_have_text(phase)
            if verb == "Pause":
                await expect(window.get_by_role("button", name="Needs attention 2")).to_be_visible()
                await expect(window.locator("tbody td:nth-child(2) a")).to_have_text(["one", "two", "twice"])
    noted = [json.loads(line) for line in (console.state / "audit.jsonl").read_text().splitlines()]
    assert [one["action"] for one in noted if one["job"] == "two"] == ["create", "pause", "resume", "stop"]


async def test_a_start_is_seen_and_cannot_be_clicked_twice(console, window, job):
    """The button is off and the state says so until the crawl answers, and no look says unknown."""
    await window.goto(f"{console.base}/jobs/twice")
    state = window.get_by_role("status", name="state")
    await expect(state).to_have_text("finished")
    await window.evaluate(
        """() => {
          window.seen = new Set();
          const badge = document.querySelector('[aria-label="state"]');
          new MutationObserver(() => window.seen.add(badge.innerText)).observe(badge, {childList: true, subtree: true,
            characterData: true});
        }"""
    )
    start = window.get_by_role("button", name="Start", exact=True)
    await start.dblclick()
    await expect(state).to_have_text("starting")
    await expect(start).to_be_disabled()
    await expect(state).to_have_text("finished")
    seen = set(await window.evaluate("[...window.seen]"))
    assert "starting" in seen
    assert "unknown" not in seen
    noted = [json.loads(line) for line in (console.state / "audit.jsonl").read_text().splitlines()]
    assert [one["action"] for one in noted if one["job"] == "twice"][-1:] == ["start"]
    assert sum(one["action"] == "start" and one["job"] == "twice" for one in noted) == 1


async def test_a_job_of_one_worker_has_no_tab_of_workers(console, window, job):
    """What limits it stands on top, and the button that helps is marked; the lab is in a menu."""
    await window.goto(f"{console.base}/jobs/twice")
    await expect(window.get_by_role("status", name="What limits it now")).to_contain_text(
        "It is finished: nothing is queued."
    )
    await expect(window.get_by_role("button", name="Another round")).to_have_class(re.compile("q-btn--unelevated"))
    for verb in ("Pause", "Resume", "Stop"):
        await expect(window.get_by_role("button", name=verb, exact=True)).to_be_disabled()
    tabs = window.get_by_role("navigation", name="Pages of the job")
    await expect(tabs.get_by_role("link", name="Queues")).to_be_visible()
    await expect(tabs.get_by_role("link", name="Workers")).to_have_count(0)
    await expect(window.get_by_text("Lab: compare")).to_have_count(0)
    await window.get_by_role("banner").get_by_role("button", name="More").click()
    await expect(window.get_by_text("Lab: compare")).to_be_visible()


async def test_rounds_are_compared_and_downloaded_as_csv(console, window, job):
    """What is new and gone, with links to the explanations."""
    await window.goto(f"{console.base}/jobs/twice/reports?report=rounds")
    comparison = window.get_by_role("status", name="Comparison")
    await expect(comparison).to_have_text("round 1 to 2: 1 new, 1 gone, 1 changed, 0 status, 2 unchanged")
    await expect(window.get_by_role("row", name=re.compile("^new"))).to_contain_text("http://a.test/3")
    await window.get_by_label("Change").click()
    await window.get_by_role("option", name="gone").click()
    await expect(window.get_by_role("row", name=re.compile("^new"))).to_have_count(0)
    async with window.expect_download() as started:
        await window.get_by_role("button", name="CSV").click()
    text = (await (await started.value).path()).read_text()
    assert text.splitlines() == ["change,url,status-before,status-after", "gone,http://a.test/2,200,"]
    await window.get_by_role("link", name="http://a.test/2").click()
    await expect(window.get_by_role("status", name="Verdict")).to_be_visible()


async def test_a_log_has_columns_and_is_downloaded(console, window, job):
    """A click on a line, or on the URL in its column, explains it."""
    await window.goto(f"{console.base}/jobs/twice/logs")
    lines = window.get_by_role("log")
    await expect(lines).to_contain_text(SEED)
    await window.get_by_role("switch", name="Columns").click()
    table = window.get_by_label("The log in columns")
    await expect(table.get_by_role("link", name="http://a.test/3")).to_be_visible()
    await expect(lines).not_to_be_visible()
    async with window.expect_download() as started:
        await window.get_by_role("button", name="Download").click()
    assert (await (await started.value).path()).read_bytes() == (job / "logs" / "crawl.log").read_bytes()
    await window.get_by_role("switch", name="Columns").click()
    await lines.get_by_text("http://a.test/3").click()
    await window.wait_for_url(re.compile(r"/jobs/twice/url\?url=http%3A%2F%2Fa\.test%2F3"))
    answer = await window.request.get(f"{console.base}/jobs/twice/logs/file?log=../order.toml")
    assert answer.status == 400


async def test_the_order_shows_what_differs_by_section(console, window, job):
    """All keys by a switch, any key by its name."""
    await window.goto(f"{console.base}/jobs/twice/order")
    await expect(window.get_by_role("heading", name="[limits]")).to_be_visible()
    await expect(window.get_by_text("limits.pages", exact=True)).to_be_visible()
    await expect(window.get_by_text("limits.bytes", exact=True)).to_have_count(0)
    await window.get_by_role("switch", name="All keys").click()
    await expect(window.get_by_text("limits.bytes", exact=True)).to_be_visible()


async def test_queues_begin_with_those_that_have_urls(console, window, job):
    """A finished job has none, so the page offers the empty ones."""
    await window.goto(f"{console.base}/jobs/twice/queues")
    await expect(window.get_by_text("0 queues, as of")).to_be_visible()
    await window.get_by_role("button", name="Show empty ones, too").click()
    await expect(window.locator(".ag-row").first).to_contain_text("empty")
    await expect(window.get_by_text("3 queues, as of")).to_be_visible()


async def new_job(console, window, name):
    """The form of a new job, open and with this name."""
    await window.goto(f"{console.base}/")
    await window.get_by_role("button", name="New job").click()
    form = window.get_by_role("dialog", name="New job")
    await form.get_by_label("Name", exact=True).fill(name)
    return form
