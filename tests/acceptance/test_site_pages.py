"""The documentation as a site, in a browser: its diagrams, its search, and what its pages load."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from scripts.site import CLONE, build
from scripts.wheel_smoke import QuietHandler
from tests.acceptance.browser import ON_ONE_LOOP, expect, on_one_loop

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.slow, ON_ONE_LOOP]

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    made = tmp_path_factory.mktemp("site")
    assert build(CLONE, made) == ""
    return made


@pytest.fixture(scope="module")
def names(folder: Path) -> list[str]:
    """The paths of all pages in it."""
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("index.html"))


@pytest.fixture(scope="module")
def base(folder: Path) -> Iterator[str]:
    """The address of the site, without a last slash."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@on_one_loop()
async def phone(browser: Browser) -> AsyncIterator[Page]:
    """A narrow window."""
    yield await browser.new_page(viewport=PHONE)


async def test_diagrams_are_drawn_without_the_internet(phone: Page, base: str) -> None:
    """Mermaid comes from the site. The theme keeps the picture in a closed shadow root, so its size tells."""
    asked = []
    phone.on("request", lambda request: asked.append(request.url))
    for name in ("docs/cluster/", "docs/explanation/lifecycle/"):
        await phone.goto(f"{base}/{name}")
        await expect(phone.locator("pre.mermaid")).to_have_count(0)
        size = await phone.locator("div.mermaid").bounding_box()
        assert size is not None
        assert size["height"] > 50
    assert {url for url in asked if not url.startswith(base)} == set()


async def test_no_page_is_wider_than_a_phone_or_loads_from_elsewhere(phone: Page, base: str, names: list[str]) -> None:
    """Wide tables and programs scroll in themselves."""
    asked, wide = [], []
    phone.on("request", lambda request: asked.append(request.url))
    for name in names:
        await phone.goto(f"{base}/{name}")
        await expect(phone.locator("pre.mermaid")).to_have_count(0)
        if await phone.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wide.append(name)
    assert wide == []
    assert {url for url in asked if not url.startswith(base)} == set()
    assert len(asked) >= 30


async def test_the_search_finds_a_section(phone: Page, base: str) -> None:
    """The index is a file of the site; no server answers."""
    await phone.goto(f"{base}/")
    await phone.keyboard.press("Control+k")
    await phone.keyboard.type("crawl delay")
    await expect(phone.get_by_role("link", name="Politeness").first).to_be_visible()
