"""A crawl in a notebook: a real kernel, whose event loop runs already."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest

from tests.acceptance.programs import variables
from tests.patience import HANG_S
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

PAGES = {"/": Page(links=go("/1", "/2")), "/1": Page(), "/2": Page()}
URLS = [f"http://a.test/{path}" for path in ("", "1", "2")]

Cell = Callable[[str], Coroutine[object, object, str]]


@pytest.fixture
async def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cell]:
    """Runs the code of a cell and returns what it printed. The kernel knows a.test, the small web."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    from jupyter_client.manager import AsyncKernelManager  # which takes long

    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    async with SmallWeb({"a.test": Host(pages=PAGES)}) as web:
        kernel = AsyncKernelManager()
        await kernel.start_kernel(cwd=str(tmp_path), env=variables(web.hosts))
        client = kernel.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=HANG_S)

            async def run(code: str) -> str:
                printed: list[str] = []

                def show(message: dict[str, dict[str, object]]) -> None:
                    if message["content"].get("name") == "stdout":
                        printed.append(str(message["content"]["text"]))

                reply = await client.execute_interactive(code, output_hook=show, timeout=HANG_S, allow_stdin=False)
                assert reply["content"]["status"] == "ok", reply["content"]
                return "".join(printed)

            yield run
        finally:
            client.stop_channels()
            await kernel.shutdown_kernel(now=True)


async def test_a_notebook_crawls_with_and_without_await(cell: Cell) -> None:
    """Cell after cell, in one kernel; a function that a cell defines is a plug-in, also when the cell is run again."""
    asked = """
import anabranch
async with anabranch.crawl("http://a.test/") as crawl:
    urls = [page.url async for page in crawl]
print(sorted(urls), crawl.result.pages)
"""
    assert await cell(asked) == f"{URLS} 3\n"
    assert await cell('print(sorted(page.url for page in anabranch.crawl("http://a.test/")))') == f"{URLS}\n"
    for left in (1, 2):
        rule = f"""
def not_that(target):
    return False if target.url.endswith("/{left}") else None

print(sorted(page.url for page in anabranch.crawl("http://a.test/", rules=[not_that])))
"""
        assert await cell(rule) == f"{[url for url in URLS if not url.endswith(str(left))]}\n"
