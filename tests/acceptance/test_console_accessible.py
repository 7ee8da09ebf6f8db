"""Pages and dialogs by axe-core, in light and dark; and the way of a user who has a keyboard alone, or comes by a link."""

import shutil

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

from anabranch.crawler.console.access import ConsoleRole
from anabranch.crawler.console.passwords import Passwords
from tests.acceptance.browser import ON_ONE_LOOP, expect, logged_in, on_one_loop, running_console
from tests.acceptance.command import anabranch, write_order
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

pytestmark = [pytest.mark.slow, ON_ONE_LOOP]

SEED = "http://a.test/"
PATHS = [f"/{number}" for number in range(9)]
WEB = {"a.test": Host(pages={"/": Page(links=go(*PATHS)), **{path: Page() for path in PATHS}})}
PAGES = (
    "", "jobs/left", "jobs/left/queues", "jobs/left/hosts", "jobs/left/workers", "jobs/left/filter",
    f"jobs/left/url?url={SEED}", "jobs/left/logs", "jobs/left/reports", "jobs/left/order", "templates", "lab",
)  # fmt: skip
#: Path, buttons that lead to a dialog, and its name.
DIALOGS = (
    ("", ("New job",), "New job"),
    ("jobs/left", ("Add seeds",), "Add seeds"),
    ("jobs/left", ("Retry failed",), "Retry failed"),
    ("jobs/left", ("Another round",), "Another round"),
    ("jobs/left/queues?queue={}", (), "Details of {}"),
    ("jobs/left/queues?queue={}", ("Budget …",), "Budget of a queue"),
    ("jobs/left/hosts?host=a.test", ("Block …",), "Block a host"),
    ("jobs/left/order?key=limits.pages", ("Change limits.pages",), "Change limits.pages"),
)


@on_one_loop(scope="module", autouse=True)
async def queue(tmp_path_factory, console):
    """A job that was left with URLs in its queue; the key of that."""
    folder = tmp_path_factory.mktemp("crawl")
    async with SmallWeb(WEB) as web:
        order = write_order(folder, web.hosts, limits={"pages": 4}, frontier={"policy": "host"})
        run = await anabranch("crawl", SEED, "-c", order, "--job", console.jobs / "left", "--quiet", cwd=folder)
        assert run.code == 0, run.err
    return "a.test"


@on_one_loop(params=["light", "dark"])
async def judged(request, browser, console):
    """A window with axe in each page; scripts of tests may run there whatever the page's headers say."""
    context = await browser.new_context(color_scheme=request.param, bypass_csp=True)
    await context.add_init_script(path=AXE_FILE_PATH)
    window = await context.new_page()
    await window.goto(f"{console.base}/login")
    assert await violations(window) == []
    await window.goto(console.login)
    return window


async def violations(window, place="document"):
    """What axe finds wrong in a page, or in a part of it."""
    found = await window.evaluate(f"axe.run({place}, {{resultTypes: ['violations']}})")
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]]


@pytest.mark.timeout(300)
async def test_axe_finds_nothing_wrong_on_any_page(console, judged):
    """Language, names, contrast, headings, landmarks, in light and dark."""
    for path in PAGES:
        await judged.goto(f"{console.base}/{path}")
        await expect(judged.get_by_role("heading", level=1)).to_be_visible()
        await settled(judged)
        assert await violations(judged) == [], path


@pytest.mark.timeout(300)
async def test_axe_finds_nothing_wrong_in_any_dialog(console, judged, queue):
    """Each has a name. The menus, too."""
    for path, buttons, name in DIALOGS:
        await judged.goto(f"{console.base}/{path.format(queue)}")
        await settled(judged)
        for button in buttons:
            await judged.get_by_role("button", name=button, exact=True).click()
        await expect(judged.get_by_role("dialog", name=name.format(queue))).to_be_visible()
        await settled(judged)
        assert await violations(judged) == [], name
    await judged.goto(f"{console.base}/jobs/left")
    for place in (judged.get_by_role("banner"), judged.get_by_role("main")):
        await place.get_by_role("button", name="More").click()
        await expect(judged.get_by_role("menuitem").first).to_be_visible()
        await settled(judged)
        assert await violations(judged, "'.q-menu'") == []
        await judged.keyboard.press("Escape")
        await expect(judged.get_by_role("menuitem")).to_have_count(0)


async def test_a_keyboard_alone_makes_a_job(console, window):
    """The first stop of Tab leads past the header; the form is filled and sent without a mouse."""
    await window.goto(f"{console.base}/")
    await settled(window)
    await window.keyboard.press("Tab")
    skip = window.get_by_role("link", name="Skip to the content")
    await expect(skip).to_be_focused()
    await expect(skip).to_be_in_viewport()
    await window.keyboard.press("Enter")
    await tab_to(window, window.get_by_role("button", name="New job"))
    await window.keyboard.press("Enter")
    form = window.get_by_role("dialog", name="New job")
    await expect(form.get_by_label("Name", exact=True)).to_be_focused()
    await window.keyboard.type("typed")
    await tab_to(window, form.get_by_label("Seeds, one URL per line"))
    await window.keyboard.type(SEED)
    await tab_to(window, form.get_by_role("button", name="Create", exact=True))
    await window.keyboard.press("Enter")
    await window.wait_for_url(f"{console.base}/jobs/typed")
    await tab_to(window, window.get_by_role("button", name="Start", exact=True))
    await expect(window.get_by_role("status", name="state")).to_have_text("stopped")
    shutil.rmtree(console.jobs / "typed")


async def test_a_deep_link_survives_the_login(tmp_path, browser):
    """By a password and by the link that the console prints; it leads to no other site."""
    with running_console(tmp_path) as console:
        Passwords(console.state).put("ada", "correct horse battery", ConsoleRole.READER)
        wanted = f"{console.base}/jobs/%3Cx%3E/url?url=http%3A%2F%2Fa.test%2F%3Fa%3D1"
        window = await (await browser.new_context()).new_page()
        await window.goto(wanted)
        assert window.url == f"{console.base}/login"
        await window.get_by_label("Name").fill("ada")
        await window.get_by_label("Password").fill("correct horse battery")
        await window.get_by_role("button", name="Log in").click()
        await window.wait_for_url(wanted)
        window = await (await browser.new_context()).new_page()
        await window.goto(wanted)
        await window.goto(console.login)
        await window.wait_for_url(wanted)
        window = await (await browser.new_context()).new_page()
        await window.goto(f"{console.base}//other.test/")
        await window.goto(console.login)
        await window.wait_for_url(f"{console.base}/")


async def test_panels_filters_and_sort_are_in_the_address_and_back_closes_a_panel(browser, console, queue):
    """Whoever gets the address sees the same."""
    window = await logged_in(browser, console)
    await window.goto(f"{console.base}/jobs/left/queues")
    row = window.locator(f'.ag-row[row-id="{queue}"]')
    await row.locator(".ag-cell").first.click()
    panel = window.get_by_role("dialog", name=f"Details of {queue}")
    await expect(panel).to_be_visible()
    await window.wait_for_url(lambda url: f"queue={queue}" in url)
    await window.go_back()
    await expect(panel).to_have_count(0)
    await window.wait_for_url(lambda url: "queue=" not in url)
    await row.locator(".ag-cell").first.click()
    await window.wait_for_url(lambda url: "queue=" in url)
    await panel.get_by_role("button", name="Close").click()
    await expect(panel).to_have_count(0)
    await window.wait_for_url(lambda url: "queue=" not in url)
    await window.get_by_label("Part of the name").fill("a.te")
    await window.get_by_role("columnheader", name="Spent").click()
    await window.wait_for_url(lambda url: "text=a.te" in url and "sort=spent" in url)
    other = await window.context.new_page()
    await other.goto(window.url)
    await expect(other.get_by_label("Part of the name")).to_have_value("a.te")
    await expect(other.get_by_role("columnheader", name="Spent")).to_have_attribute("aria-sort", "descending")
    await other.goto(f"{console.base}/?text=nosuch&group=Stopped")
    await expect(other.get_by_label("Search names")).to_have_value("nosuch")
    await expect(other.get_by_role("button", name="Stopped 1")).to_have_attribute("aria-pressed", "true")


async def tab_to(window, wanted, most=60):
    """Press Tab until this has the focus."""
    for _ in range(most):
        await window.keyboard.press("Tab")
        if await wanted.evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"Tab does not reach {wanted}")


async def settled(window):
    """Wait until the page shows what it has asked for, and nothing moves any more."""
    await expect(window.get_by_label("looking")).to_have_count(0)
    await window.wait_for_timeout(2500)
