"""Tables of the pages in a real browser: sorted by their figures, and on the narrow window of a phone."""

import asyncio
import shutil

import pytest

from tests.acceptance.browser import ON_ONE_LOOP, expect, on_one_loop
from tests.acceptance.command import anabranch, write_order
from tests.site.server import SmallWeb

pytestmark = [pytest.mark.slow, ON_ONE_LOOP]

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
#: The classes of the places whose content is wider than they are.
WIDER = """() => [...document.querySelectorAll(".q-table__middle, .ag-center-cols-viewport, body")]
  .filter(one => one.scrollWidth > one.clientWidth).map(one => one.className)"""


@on_one_loop(scope="module", autouse=True)
async def jobs(tmp_path_factory, console):
    """Two jobs that have fetched 10 and 9 pages."""
    folder = tmp_path_factory.mktemp("crawl")
    async with SmallWeb() as web:
        for name, pages in {"a": 10, "b": 9}.items():
            order = write_order(folder, web.hosts, limits={"pages": pages}, frontier={"policy": "host"})
            job = ("--job", console.jobs / name, "--scope", "any", "--quiet")
            ended = await anabranch("crawl", "http://blog.alpha.test/", "-c", order, *job, cwd=folder)
            assert ended.code == 0, ended.err


async def test_figures_are_sorted_by_their_amount(console, window):
    """They are compared as numbers: compared as texts, 10 would be less than 9."""
    await window.goto(f"{console.base}/")
    names, head = window.locator("tbody td:nth-child(2)"), window.get_by_role("columnheader", name="Pages", exact=True)
    await head.click()
    await expect(names).to_have_text(["b", "a"])
    await head.click()
    await expect(names).to_have_text(["a", "b"])


async def test_no_table_is_wider_than_the_window_of_a_phone(console, window):
    """Each row is a block with the labels of its values."""
    await window.set_viewport_size(PHONE)
    for path in ("", "jobs/a", "jobs/a/filter", "jobs/a/reports", "jobs/a/order"):
        await window.goto(f"{console.base}/{path}")
        if path.endswith("filter"):
            await window.get_by_text("All figures", exact=True).click()
        await expect(window.locator("tbody tr").first).to_be_visible()
        assert await window.evaluate(WIDER) == [], path


@pytest.fixture
def long_name(console):
    """The name of a third job, for one test."""
    name = "portals-of-all-countries-and-regions-2026"
    shutil.copytree(console.jobs / "b", console.jobs / name)
    yield name
    shutil.rmtree(console.jobs / name)


async def test_the_header_is_one_line_on_a_phone(console, window, long_name):
    """Also with a long name of a job, which is cut there."""
    heights = []
    for size in (DESKTOP, PHONE):
        await window.set_viewport_size(size)
        await window.goto(f"{console.base}/jobs/{long_name}")
        heights.append((await window.locator("header").bounding_box())["height"])
    assert heights[0] == heights[1] < 70
    await expect(window.get_by_role("button", name="Log out")).to_be_in_viewport()


@pytest.mark.parametrize("path", ["queues", "hosts"])
async def test_a_grid_shows_its_main_columns_on_a_phone(console, window, path):
    """The others come back when the window gets wide, without a scroll bar."""
    await window.goto(f"{console.base}/jobs/a/{path}")
    await expect(window.locator(".ag-row").first).to_contain_text(".test")
    heads = window.locator(".ag-header-cell")
    for size, number in ((PHONE, 3), (DESKTOP, {"queues": 10, "hosts": 9}[path]), (PHONE, 3)):
        await window.set_viewport_size(size)
        await expect(heads).to_have_count(number)
        while await window.evaluate(WIDER) != []:  # the grid gives its columns their widths a moment later
            await asyncio.sleep(0.05)
