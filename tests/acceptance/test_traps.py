"""A crawl of small sites whose links have parameters: some change nothing, some do."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from anabranch.crawler.operate.answers import VerbAnswer
from anabranch.crawler.operate.finding import operated_folder
from anabranch.crawler.operate.job import Job
from tests.acceptance.command import anabranch, ended, start, write_order

#: The path with its query -> the page, or None: there is none.
Site = Callable[[str], str | None]

PAGES = [f"/p{number}" for number in range(10)]


@asynccontextmanager
async def served(site: Site) -> AsyncIterator[tuple[str, Counter[str]]]:
    """A site at an address of this machine; its root, and how often each URL was asked for."""
    asked: Counter[str] = Counter()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1].decode()
                asked[path] += 1
                page = site(path)
                body = b"" if page is None else page.encode()
                status = b"404 Not Found" if page is None else b"200 OK"
                kind = b"application/xml" if path.endswith(".xml") else b"text/html"
                fields = b"\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
                writer.write(b"HTTP/1.1 " + status + fields + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def crawled(tmp_path: Path, root: str, *more: str, **sections: dict[str, object]) -> str:
    order = write_order(tmp_path, {}, **sections)
    run = await anabranch("crawl", f"{root}/", "-c", order, "--job", tmp_path / "job", *more, cwd=tmp_path)
    assert run.code == 0, run.err
    return run.out


def token_site(traps: int = 3) -> Site:
    """Ten pages, each with links to three pages that link to each other with ever new tokens; or to fewer."""
    number = count()

    def site(path: str) -> str | None:
        if path == "/robots.txt":
            return None
        links = [f"/s/{which}?token={next(number):x}" for which in range(traps)]
        if path == "/":
            links += PAGES
        return "".join(f'<a href="{link}">x</a>' for link in links)

    return site


async def test_a_site_with_a_token_in_each_link_ends(tmp_path: Path) -> None:
    """With all its pages, with 50 of each trap, one in 20 of the others, and those under way; the log and `why` say so."""
    async with served(token_site()) as (root, asked):
        out = await crawled(tmp_path, root)
        job = tmp_path / "job"
        assert {"/", *PAGES} <= asked.keys()
        traps = sum(number for path, number in asked.items() if "token" in path)
        assert 150 <= traps <= 250, "endless without the rules"
        assert "-5005 skipped: one of its parameters changes nothing" in out
        lines = [line.split() for line in (job / "logs" / "crawl.log").read_text().splitlines()]
        skipped = [line[3] for line in lines if line[1] == "-5005"]
        assert len(skipped) > traps
        assert all("parameter:token" in line[11] for line in lines if line[1] == "-5005")
        why = await anabranch("why", job, skipped[0], cwd=tmp_path)
        assert "the parameter token changed nothing" in why.out, why.err
        assert "retry JOB --trap" in why.out
        retried = await anabranch("retry", job, "--trap", cwd=tmp_path)
        assert retried.out == f"{len(skipped)} skipped URLs queued again\n", retried.err
        assert (await asyncio.to_thread(Job(job).retry_skipped)).facts == {"queued": 0}
        done = sum(asked.values())
        run = await anabranch("crawl", "--job", job, "--limit", str(done + 30), cwd=tmp_path)
        assert run.code == 0, run.err
        assert any(asked[url.removeprefix(root)] for url in skipped)
        assert max(number for path, number in asked.items() if path != "/robots.txt") == 1


def has_skipped(job: Path) -> bool:
    """Whether a URL has ended as skipped: its worker logs that."""
    return any(" -5005 " in log.read_text() for log in job.glob("**/crawl.log"))


async def test_a_running_crawl_queues_again_what_it_has_skipped(tmp_path: Path) -> None:
    """When it is asked for, it fetches them and skips no more; so do the workers of a job, each what it has skipped."""
    async with served(token_site(2)) as (root, _asked):
        order = write_order(tmp_path, {}, politeness={"max_connections": 4})
        for name, more in (("alone", ()), ("workers", ("--processes", "2"))):
            job = tmp_path / name
            process = await start("crawl", f"{root}/", "-c", order, "--job", job, *more, cwd=tmp_path)
            answer = VerbAnswer({"queued": 0}, is_running=False)
            while not has_skipped(job):
                await asyncio.sleep(0.02)
            found = operated_folder(job)
            while not answer.facts["queued"]:
                assert process.returncode is None
                answer = await asyncio.to_thread(found.retry_skipped)
            assert answer.is_running
            assert (await anabranch("stop", job, "--now", cwd=tmp_path)).code == 0
            assert (await ended(process)).code == 13


async def test_the_setting_turns_it_off(tmp_path: Path) -> None:
    """Then only limits end such a crawl."""
    async with served(token_site(1)) as (root, asked):
        await crawled(tmp_path, root, "--limit", "150", scope={"skip_parameter_traps": False})
        assert sum(asked.values()) >= 150
        assert "-5005" not in (tmp_path / "job" / "logs" / "crawl.log").read_text()


async def test_a_shop_with_sessions_and_page_numbers_loses_no_page(tmp_path: Path) -> None:
    """Each link has a session of its own, which is in the page's links alone; the page number decides what is shown."""
    number, pages = count(), 3

    def site(path: str) -> str | None:
        if path == "/robots.txt":
            return None
        query = parse_qs(urlsplit(path).query)
        page = int(query.get("page", ["0"])[0])
        near = {0, min(page + 1, pages), max(page - 1, 0)}
        items = "".join(f'<a href="/item/{page}/{which}">item</a>' for which in range(3)) if "/l" in path else ""
        links = "".join(f'<a href="/l?page={one}&amp;sid={next(number):x}">list {one}</a>' for one in sorted(near))
        return f"<title>{urlsplit(path).path} {page}</title>{items}{links}" if "/item" not in path else f"<p>{path}</p>"

    async with served(site) as (root, asked):
        await crawled(tmp_path, root, "--limit", "1500")
        items = {f"/item/{page}/{which}" for page in range(pages + 1) for which in range(3)}
        assert items <= asked.keys()
        assert sum(asked.values()) < 800


async def test_pages_that_are_equal_for_long_and_then_differ_are_all_fetched(tmp_path: Path) -> None:
    """The first difference brings back what was skipped; and a sitemap's URLs are all fetched, though equal."""

    def site(path: str) -> str | None:
        if path == "/robots.txt":
            return None
        if path == "/":
            return "".join(f'<a href="/n?id={number}">n</a><a href="/e?id={number}">e</a>' for number in range(200))
        if path == "/sitemap.xml":
            urls = "".join(f"<url><loc>{root}/m?id={number}</loc></url>" for number in range(100))
            return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'
        number = int(path.partition("=")[2])
        return f"<p>{number}</p>" if path.startswith("/n") and number >= 150 else "<p>none</p>"

    async with served(site) as (root, asked):
        await crawled(tmp_path, root, extract={"sitemaps": True})
        assert {f"/n?id={number}" for number in range(200)} <= asked.keys()
        assert {f"/m?id={number}" for number in range(100)} <= asked.keys()
        assert sum(path.startswith("/e") for path in asked) == 50 + 150 // 20
        status = json.loads((await anabranch("status", tmp_path / "job", "--json", cwd=tmp_path)).out)
        assert status["phase"] == "stopped"
