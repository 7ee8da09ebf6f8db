"""The commands, queries and sinks of docs/how-to/export.md, run as they stand there; the sinks against real servers."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from tests.acceptance.command import REPOSITORY, Ended, anabranch, ended, kill_after, pages, start, write_order
from tests.acceptance.programs import blocks
from tests.patience import HANG_S
from tests.postgres_server import own_server
from tests.redis_server import redis_servers
from tests.site.page import Host, Page, file, go, redirect
from tests.site.server import SmallWeb

PAGE = "docs/how-to/export.md"
TEXT = (REPOSITORY / PAGE).read_text(encoding="utf-8")
MODULES = {block.partition("\n")[0].removeprefix("# "): block for block in blocks(PAGE)}
SHOWN = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
QUERIES = re.findall(r"^```sql\n(.*?)\n```$", TEXT, re.MULTILINE | re.DOTALL)
SEED = "http://news.test/"
SITE = {
    "/": Page(links=go("/1", "/2", "/gone", "/old", "/film")),
    "/1": Page(links=go("/", "/2")),
    "/2": Page(),
    "/old": redirect(301, "/1", "http://news.test/1"),
    "/film": file("video/mp4", b"x"),
}


async def crawled(tmp_path: Path, *more: str) -> None:
    """The job of the page, below `jobs`."""
    async with SmallWeb({"news.test": Host(pages=SITE)}) as web:
        order = write_order(tmp_path, web.hosts)
        run = await anabranch("crawl", SEED, "-c", order, "--name", "news", "--warc", "--links", *more, cwd=tmp_path)
    assert run.code == 0, run.err


async def test_what_the_console_shows_is_what_the_commands_say(tmp_path: Path) -> None:
    """Each command of the page; the tables are queried by DuckDB and SQLite."""
    await crawled(tmp_path)
    assert len(SHOWN) == 2
    for command, expected in SHOWN:
        run = await anabranch(*command.split()[1:], cwd=tmp_path)
        assert (run.code, run.out) == (0, expected), run
    assert (await anabranch("export", "news", "--to", "sqlite", cwd=tmp_path)).code == 0
    assert queried_by_duckdb(tmp_path) == [
        [(200, 4), (301, 1), (404, 1)],
        [(f"{SEED}1", 2), (f"{SEED}2", 2), (SEED, 1)],
    ]
    database = sqlite3.connect(tmp_path / "news.sqlite")
    assert database.execute(QUERIES[1]).fetchall() == queried_by_duckdb(tmp_path)[1]
    database.close()


def queried_by_duckdb(folder: Path) -> list[list[tuple[object, ...]]]:
    """The answers to the queries of the page."""
    import duckdb

    with duckdb.connect() as database:
        for table in ("edges", "nodes"):
            database.execute(f"CREATE VIEW {table} AS SELECT * FROM '{folder}/news-parquet/{table}.parquet'")
        here = QUERIES[0].replace("'news-parquet", f"'{folder}/news-parquet")
        return [database.execute(query).fetchall() for query in (here, QUERIES[1])]


# Sinks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the modules of the page beside the order."""
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


async def crawl_into(folder: Path, sink: str, after_start: Callable[[], object] = bool, **variables: str) -> Ended:
    """Crawl the site with a sink of the page; `after_start` is called when the sink has been away for a moment."""
    async with SmallWeb({"news.test": Host(pages=SITE)}) as web:
        order = write_order(folder, web.hosts, job={"sinks": [sink]})
        process = await start("crawl", SEED, "-c", order, "--name", "news", cwd=folder, **variables)
        if after_start is not bool:
            log = folder / "jobs" / "news" / "pages.jsonl"
            async with asyncio.timeout(HANG_S):
                while not (log.exists() and len(log.read_bytes().splitlines()) == len(SITE) + 1):
                    assert process.returncode is None, await ended(process)
                    await asyncio.sleep(0.05)
            assert process.returncode is None, "the crawl waits for its sink"
            after_start()
        run = await ended(process)
    assert run.code == 0, run.err
    return run


@pytest.mark.slow
async def test_the_redis_stream_has_all_pages_though_the_server_was_away(folder: Path) -> None:
    """A real server, which is started when the crawl waits for it."""
    with redis_servers(folder, 1) as (server,):
        assert isinstance(server, RedisServer)
        server.kill()
        run = await crawl_into(folder, "redis_stream:RedisStream", server.start, PAGES_REDIS=server.url)
        import redis

        client = redis.Redis.from_url(server.url, decode_responses=True)
        found = [json.loads(fields["page"])["url"] for _, fields in client.xrange("pages:news")]
        client.close()
    assert sorted(found) == sorted(pages(folder / "jobs" / "news"))
    assert "a sink does not take its pages; they wait" in run.err
    assert "the sink takes its pages again" in run.err


@pytest.mark.slow
async def test_the_table_has_each_page_once(folder: Path) -> None:
    """A real server; all pages are given a second time, as after a kill."""
    import psycopg

    with own_server() as server:
        address = server.url.set(drivername="postgresql").render_as_string(hide_password=False)
        for _ in range(2):
            await crawl_into(folder, "postgres_table:PostgresTable", PAGES_POSTGRES=address)
            with psycopg.connect(address) as connection:
                rows = connection.execute("SELECT url, status FROM pages WHERE job = 'news'").fetchall()
            assert len(rows) == len(SITE) + 1
            assert dict(rows) == {url: page["status"] for url, page in pages(folder / "jobs" / "news").items()}
            (folder / "jobs" / "news" / "state" / "sinks.json").unlink()
            (folder / "jobs" / "news" / "state" / "finished").unlink()


@pytest.mark.slow
async def test_bulk_files_have_each_page_after_kills(folder: Path) -> None:
    """At least once, and once in the index, since the keys are those of the pages; two processes have a sink each."""
    numbers = [f"/{number}" for number in range(40)]
    site = {"/": Page(links=go(*numbers)), **{path: Page() for path in numbers}}
    async with SmallWeb({f"{name}.test": Host(pages=site) for name in "abc"}, delay_s=0.02) as web:
        order = write_order(folder, web.hosts, job={"sinks": ["bulk_file:BulkFile"]}, crawl={"processes": 2})
        seeds = [f"http://{name}.test/" for name in "abc"]
        for served in (30, 60, 90):
            await kill_after(await start("crawl", *seeds, "-c", order, "--name", "news", cwd=folder), web, served)
        run = await anabranch("crawl", *seeds, "-c", order, "--name", "news", cwd=folder)
    assert run.code == 0, run.err
    indexed = {}
    for bulk in (folder / "jobs" / "news").glob("**/bulk/*.ndjson"):
        lines = [json.loads(line) for line in bulk.read_text().splitlines()]
        for action, page in zip(lines[::2], lines[1::2], strict=True):
            assert action["index"]["_index"] == "pages"
            indexed[action["index"]["_id"]] = page["url"]
    assert sorted(indexed.values()) == sorted(pages(folder / "jobs" / "news"))
    assert len(indexed) == 3 * 41
