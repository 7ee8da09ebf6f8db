"""The console as its users have it: a real browser, real crawls of the small web."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.acceptance.command import write_order
from tests.site.server import SmallWeb

pytestmark = pytest.mark.slow

SEED = "http://blog.alpha.test/"


@pytest.fixture
async def slow_web():
    """The small web, with every answer late by 50 ms, so that a crawl can be watched."""
    async with SmallWeb(delay_s=0.05) as web:
        yield web


async def test_a_job_is_made_by_the_form_and_watched_until_it_ends(tmp_path, console, window, slow_web):
    """The page of the job shows its pages as they grow, and that it is finished."""
    await fill_form(window, "news", SEED, order_of(tmp_path, slow_web))
    await window.get_by_role("button", name="Make and start").click()
    await window.get_by_role("link", name="news").click()
    await expect(state(window)).to_have_text("running")
    first = await pages_shown(window)
    while await pages_shown(window) <= first:
        await asyncio.sleep(0.1)
    await expect(state(window)).to_have_text("finished")


def order_of(folder, web, **sections):
    """The text of an order for the small web."""
    return write_order(folder, web.hosts, **{"politeness": {"max_connections": 2}, **sections}).read_text()


async def fill_form(window, name, seeds, order):
    """Open the form of a new job, and fill it in."""
    await window.get_by_role("button", name="New job").click()
    form = window.get_by_role("dialog")
    await form.get_by_label("Name").fill(name)
    await form.get_by_label("Seeds, a URL a line").fill(seeds)
    await form.locator(".cm-content").click()
    await window.keyboard.press("Control+A")
    await window.keyboard.insert_text(order)


def state(window):
    """The badge that says what the job does."""
    return window.get_by_role("status", name="state")


async def pages_shown(window):
    """The figure `Pages`; 0 while it is empty."""
    text = await window.locator(".q-card", has_text="Pages").first.locator(".text-h6").inner_text()
    return int(text.replace(",", "")) if text.strip("–") else 0
