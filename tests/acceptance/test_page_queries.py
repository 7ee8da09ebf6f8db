"""Queries of links in their page's encoding, and jobs of earlier versions, which have them in UTF-8."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.acceptance.command import anabranch, write_order
from tests.site.page import Host, Page, file, go
from tests.site.server import SmallWeb

SEED = "http://a.test/"
RUSSIAN = "text/html; charset=windows-1251"
IN_UTF8, IN_PAGE = "/find?q=%D1%91%D0%B6", "/find?q=%B8%E6"
LINK = '<a href="/find?q=ёж">ёж</a>'.encode("cp1251")
TABLE = {
    "a.test": Host(
        pages={
            "/": Page(links=go("/one")),
            "/one": file(RUSSIAN, LINK + b'<a href="/two">more</a>'),
            "/two": file(RUSSIAN, LINK),
            IN_UTF8: Page(),
            IN_PAGE: Page(),
        }
    )
}


async def crawl(folder: Path, web: SmallWeb, *more: str) -> None:
    run = await anabranch("crawl", SEED, "-c", write_order(folder, web.hosts), "--job", "job", *more, cwd=folder)
    assert run.code == 0, run.err


async def test_a_job_of_an_earlier_version_keeps_its_queries_until_its_next_round(tmp_path: Path) -> None:
    """So no page is fetched twice, under another name; the next round asks as browsers do."""
    async with SmallWeb(TABLE) as web:
        await crawl(tmp_path, web, "--limit", "1")
        state = tmp_path / "job" / "state"
        (state / "frontier.db.seal").unlink()
        with closing(sqlite3.connect(state / "frontier.db", isolation_level=None)) as store:
            assert store.execute("DELETE FROM crawl WHERE name = 'made'").rowcount == 1  # as an earlier version left it
        await crawl(tmp_path, web, "--limit", "2")
        await crawl(tmp_path, web, "--limit", "0")
        paths = {SEED[:-1] + path for path in ("/", "/one", "/two", IN_UTF8)}
        robots = f"{SEED}robots.txt"
        assert {url: asked for url, asked in web.ledger.counts().items() if url != robots} == dict.fromkeys(paths, 1)
        await crawl(tmp_path, web, "--again")
        again = web.ledger.counts()
        assert (again[SEED[:-1] + IN_PAGE], again[SEED[:-1] + IN_UTF8]) == (1, 1)
