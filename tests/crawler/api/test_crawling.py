"""A crawl of a program: what it gets, when a page is done, and how it ends."""

import asyncio
import json
import logging
import tempfile
import threading
from contextlib import suppress

import pytest
import structlog

import anabranch
from anabranch.crawler.operate.job import Job
from tests.acceptance.archive import archived
from tests.acceptance.command import SMALL_FILTER
from tests.facts_schema import checked
from tests.patience import HANG_S
from tests.site.page import Host, Page, file, go, redirect
from tests.site.server import SmallWeb

SITE = {
    "/": Page(links=go("/1", "/2", "/3", "/missing", "/moved")),
    "/1": Page(links=go("/4")),
    "/2": Page(),
    "/3": Page(),
    "/4": Page(),
    "/moved": redirect(301, "/2", "/2"),
}
SEED = "http://a.test/"
URLS = {SEED, *(f"{SEED}{path}" for path in ("1", "2", "3", "4", "missing", "moved"))}


@pytest.fixture
async def web():
    async with SmallWeb({"a.test": Host(pages=SITE)}) as served:
        yield served


@pytest.fixture
def given(web, monkeypatch):
    """Keywords that each crawl of the small web needs."""
    monkeypatch.chdir("/")
    return settings_for(web)


def settings_for(web):
    return {
        "dns": {"hosts": dict(web.hosts)}, "allow_private": True, "min_delay": 0, "max_delay": 0, "contact": "https://a.test/",
        "max_connections": 4, "dedup": SMALL_FILTER,
    }  # fmt: skip


def fetched(web):
    return [url for url in web.ledger.counts() if "robots.txt" not in url]


async def test_each_answered_url_comes_once(given):
    """With its facts and its content; a 404 and a redirect, too."""
    async with anabranch.crawl(SEED, **given) as crawl:
        pages = {page.url: page async for page in crawl}
    assert pages.keys() == URLS
    source = pages[SEED]
    assert (source.status, source.title, source.depth, source.via) == (200, "A page", 0, None)
    assert [link.url for link in source.links][:2] == [f"{SEED}1", f"{SEED}2"]
    assert source.headers["content-type"].startswith("text/html")
    assert source.html.css("a")
    assert "A page" in source.text
    assert pages[f"{SEED}4"].via == f"{SEED}1"
    assert pages[f"{SEED}4"].depth == 2
    assert pages[f"{SEED}missing"].status == 404
    assert pages[f"{SEED}moved"].redirect_to == f"{SEED}2"
    assert crawl.result.pages == len(URLS)
    assert crawl.result.job is None
    assert str(crawl.result).startswith("job")


async def test_a_page_is_done_when_the_next_one_is_asked_for(tmp_path, given):
    """`break` leaves the last one undone: the next crawl of the job begins with what was not done."""
    seen = []
    async with anabranch.crawl(SEED, job=tmp_path / "job", **given) as crawl:
        async for page in crawl:
            seen.append(page.url)
            if len(seen) == 3:
                break
    async with anabranch.crawl(job=tmp_path / "job", **given) as crawl:
        rest = [page.url async for page in crawl]
    assert seen[-1] in rest
    assert not {*seen[:-1]} & {*rest}
    assert {*seen, *rest} == URLS
    done = [json.loads(line)["url"] for line in (tmp_path / "job/pages.jsonl").read_text().splitlines()]
    assert sorted(done) == sorted(URLS), "one line each"


async def test_a_page_may_be_done_before(tmp_path, given):
    """By `ack`; the iteration may end then, and nothing comes again."""
    async with anabranch.crawl(SEED, job=tmp_path / "job", **given) as crawl:
        async for page in crawl:
            page.ack()
            page.ack()
            while (await crawl.status())["totals"]["done"] < 1:
                await asyncio.sleep(0)
            break
    async with anabranch.crawl(job=tmp_path / "job", **given) as crawl:
        assert SEED not in [page.url async for page in crawl]


async def test_an_error_of_the_program_ends_the_crawl_and_passes(tmp_path, web, given):
    """The program gets the error that it raised; the page is not done."""

    async def program():
        async with anabranch.crawl(SEED, job=tmp_path / "job", **given) as crawl:
            async for _ in crawl:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await program()
    async with anabranch.crawl(job=tmp_path / "job", **given) as crawl:
        assert {page.url async for page in crawl} == URLS


@pytest.mark.parametrize(
    ("body_bytes", "workers", "buffer", "least"),
    [pytest.param(1, 12, 4, 5, id="buffer"), pytest.param(12 << 20, 8, 64, 6, id="64 MiB of bodies")],
)
async def test_no_fetch_begins_while_as_many_pages_wait_as_may(tmp_path, body_bytes, workers, buffer, least):
    """Each worker fetches a page at first. They fetch more when fewer than `least` are left, that of the program included."""
    paths = [f"/{number}" for number in range(40)]
    site = {"/": Page(links=go(*paths)), **dict.fromkeys(paths, file("text/plain", b"x" * body_bytes))}
    async with SmallWeb({"a.test": Host(pages=site)}) as web:
        settings = {**settings_for(web), "max_connections": workers, "crawl": {"workers": workers}}
        async with anabranch.crawl(SEED, job=(job := tmp_path / "job"), buffer=buffer, **settings) as crawl:
            pages = aiter(crawl)
            await anext(pages)
            await anext(pages)
            while await steps(job) != ["delivery"] * workers:
                await asyncio.sleep(0)
            for _ in range(workers - least):
                await anext(pages)
            while (await crawl.status())["totals"]["done"] < 1 + workers - least or "disposition" in await steps(job):
                await asyncio.sleep(0)
            assert await steps(job) == ["delivery"] * least
            assert len(fetched(web)) == 1 + workers
            await anext(pages)
            while len(fetched(web)) == 1 + workers:
                await asyncio.sleep(0)


async def steps(job):
    """Return the present step of each worker that has a URL."""
    table = await asyncio.to_thread(Job(job).report, {"name": "workers"})
    return [row["processor"] for row in table["rows"]]


async def test_a_limit_counts_pages_that_are_done(web, given):
    """And no URL is fetched beyond it."""
    async with anabranch.crawl(SEED, limit=3, **given) as crawl:
        pages = [page async for page in crawl]
    assert len(pages) == 3
    assert len(fetched(web)) == 3


async def test_failures_come_on_request(given):
    """With a status below 0 and the reason."""
    blocked = {"scope": {"block": ["/3$"]}}
    async with anabranch.crawl(SEED, failures=True, **blocked, **given) as crawl:
        pages = {page.url: page async for page in crawl}
    assert pages.keys() == URLS
    failed = pages[f"{SEED}3"]
    assert failed.status == -5001
    assert failed.error
    assert (failed.content, failed.title, failed.mime, failed.fetched_at) == (b"", "", "", None)
    async with anabranch.crawl(SEED, **blocked, **given) as crawl:
        assert f"{SEED}3" not in [page.url async for page in crawl]


async def test_failures_and_skipped_urls_are_queued_again(given):
    """While the crawl runs; a wrong choice is told in one line."""
    given["dns"]["hosts"]["missing.test"] = "[::1]:1"
    async with anabranch.crawl("http://missing.test/", SEED, fetch={"ipv6": False}, **given) as crawl:
        await anext(aiter(crawl))
        while not (failures := (await crawl.status())["failures"]):
            await asyncio.sleep(0.01)
        assert [(failure["status"], failure["count"]) for failure in failures] == [(-1, 1)]
        assert (await crawl.retry("5xx"))["queued"] == 0
        assert checked(await crawl.retry(-1, host="missing.test", since_s=1.0), "Retried")["queued"] == 1
        assert checked(await crawl.retry(trap=True), "Retried")["queued"] == 0
        with pytest.raises(anabranch.UsageError, match="leave statuses, host and since_s out"):
            await crawl.retry(503, trap=True)
        await crawl.stop(now=True)


async def test_the_crawl_can_be_steered(given):
    """Paused, resumed, asked, given more, stopped."""
    async with anabranch.crawl(SEED, **given) as crawl:
        pages = aiter(crawl)
        first = await anext(pages)
        await crawl.pause()
        assert (await crawl.status())["phase"] == "paused"
        await crawl.resume()
        assert (await crawl.why(first.url))["explanation"]["state"] == "leased"
        assert [seed["verdict"] for seed in await crawl.add(f"{SEED}4")] == ["new"]
        with pytest.raises(anabranch.UsageError, match="mailto: is neither http: nor https:"):
            await crawl.add("mailto:a@b.test")
        await crawl.stop()
        left = [page async for page in pages]
        assert len(left) < len(URLS)
    with pytest.raises(anabranch.UsageError, match="has ended"):
        await crawl.status()
    assert "stopped by the operator" in crawl.result.ended


ENDED = "this crawl has ended; make another one with anabranch.crawl"


async def test_a_crawl_gives_its_pages_once(given):
    """A second iteration is refused, inside of the crawl and outside; so is opening it again."""
    crawl = anabranch.crawl(SEED, **given)
    async with crawl:
        with pytest.raises(anabranch.UsageError, match="open already"):
            await crawl.__aenter__()
        assert {page.url async for page in crawl} == URLS
        with pytest.raises(anabranch.UsageError, match=ENDED):
            aiter(crawl)
    with pytest.raises(anabranch.UsageError, match=ENDED):
        aiter(crawl)
    with pytest.raises(anabranch.UsageError, match=ENDED):
        await crawl.__aenter__()


async def test_a_crawl_that_ended_before_the_loop_has_no_pages(given):
    """That is no error, because when a crawl ends is no matter of the program."""
    async with anabranch.crawl(SEED, **given) as crawl:
        await crawl.stop(now=True)
        with suppress(anabranch.UsageError):
            while await crawl.status():
                await asyncio.sleep(0)
        assert [page async for page in crawl] == []


async def test_a_crawl_without_asyncio_gives_its_pages_once(given):
    """By `for`, also after a `break`, and inside of `with`."""

    def program():
        crawl = anabranch.crawl(SEED, limit=2, **given)
        for _ in crawl:
            break
        with pytest.raises(anabranch.UsageError, match=ENDED):
            next(iter(crawl))
        with anabranch.crawl(SEED, limit=2, **given) as blocking:
            assert len([*blocking]) == 2
            with pytest.raises(anabranch.UsageError, match=ENDED):
                next(iter(blocking))
        for late in (blocking.status, lambda: next(iter(blocking))):
            with pytest.raises(anabranch.UsageError, match="has ended"):
                late()

    await asyncio.wait_for(asyncio.to_thread(program), HANG_S)


async def test_a_cancelled_program_leaves_nothing_behind(tmp_path, given):
    """The crawl ends, and its job can be gone on with."""

    async def program():
        async with anabranch.crawl(SEED, job=tmp_path / "job", **given) as crawl:
            async for _ in crawl:
                taken.set()
                await asyncio.Event().wait()

    taken = asyncio.Event()
    task = asyncio.create_task(program())
    await asyncio.wait_for(taken.wait(), HANG_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with anabranch.crawl(job=tmp_path / "job", **given) as crawl:
        assert {page.url async for page in crawl} == URLS


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder in which temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_crawl_without_a_job_leaves_nothing_when_it_is_cancelled(given, scratch, has_begun):
    """No folder, no task and no thread, whether it is being opened or has pages."""
    threads = threading.active_count()

    async def program():
        async with anabranch.crawl(SEED, **given) as crawl:
            async for _ in crawl:
                taken.set()
                await asyncio.Event().wait()

    taken = asyncio.Event()
    task = asyncio.create_task(program())
    if has_begun:
        await asyncio.wait_for(taken.wait(), HANG_S)
        assert [*scratch.iterdir()]
    else:
        await asyncio.sleep(0)  # the task begins
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [*scratch.iterdir()]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await asyncio.get_running_loop().shutdown_default_executor()
    assert threading.active_count() <= threads


async def test_a_program_without_asyncio_that_fails_leaves_nothing_behind(given, scratch):
    """Neither the folder nor the thread of the crawl."""

    def program():
        for _ in anabranch.crawl(SEED, **given):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(program)
    assert not [*scratch.iterdir()]
    assert "anabranch-crawl" not in {thread.name for thread in threading.enumerate()}


async def urls_of_a_crawl(given):
    async with anabranch.crawl(SEED, **given) as crawl:
        return {page.url async for page in crawl}


async def test_several_crawls_in_one_program(given):
    """At once, in tasks and in threads; each has its own pages."""

    def blocking():
        return {page.url for page in anabranch.crawl(SEED, **given)}

    crawls = [urls_of_a_crawl(given) for _ in range(3)]
    assert await asyncio.gather(*crawls, *(asyncio.to_thread(blocking) for _ in range(2))) == [URLS] * 5


async def test_a_program_may_run_on_uvloop(given):
    """By `uvloop.run`."""
    uvloop = pytest.importorskip("uvloop")

    async def program():
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        return await urls_of_a_crawl(given)

    assert await asyncio.to_thread(uvloop.run, program()) == URLS


async def test_headers_depth_user_agent_and_proxy_are_keywords(given):
    """They reach every request, as the flags do, also the one for robots.txt; here the server is the proxy."""
    heads = []

    async def talk(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        page = b'<a href="/1">1</a>'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    named = {
        "header": ["X-A: b"],
        "depth": 0,
        "user_agent": "mine (anabranch)",
        "proxy": f"http://127.0.0.1:{port}",
        "proxy_resolves": True,
        "allow_private": False,
    }
    async with server, anabranch.crawl("http://a.invalid/", **{**given, **named}) as crawl:
        assert [page.url async for page in crawl] == ["http://a.invalid/"]
    assert [head.split()[1] for head in heads] == ["http://a.invalid/robots.txt", "http://a.invalid/"]
    assert all("\r\nX-A: b\r\n" in head and "\r\nUser-Agent: mine (anabranch)\r\n" in head for head in heads)


async def test_what_is_wrong_is_named(tmp_path, given):
    """The error has the keyword as the program wrote it, and nothing begins."""
    wrong = {
        "limt= is unknown; did you mean limit=?": {"limt": 3},
        "min_delay= must be a number of seconds": {"min_delay": "soon"},
        'politeness["mindelay"] is unknown': {"politeness": {"mindelay": 1}},
        "robots= must be": {"robots": 3},
        "headers= must not have Host": {"headers": {"Host": "x"}},
        "header= must be like": {"header": ["X"]},
        "depth= and max_hops= are the same": {"depth": 1, "max_hops": 2},
        "depth= must be a whole number": {"depth": "deep"},
        "[fetch] proxy_resolves = true": {"proxy": "http://p", "allow_private": False},
        "warc=True needs a job": {"warc": True},
        "store= needs a job": {"store": "postgresql://db/x"},
        'order["crawl"]["workers"] must be a whole number': {"order": {"crawl": {"workers": "many"}}},
        "job= must be the path of a folder; not 7": {"job": 7},
        "job= must be the path of a folder; not ''": {"job": ""},
        "again= must be True or False; not 'no'": {"again": "no"},
        "failures= must be True or False; not 'no'": {"failures": "no"},
        "buffer= must be a whole number of pages; not 'x'": {"buffer": "x"},
        "buffer= must be a whole number of pages; not True": {"buffer": True},
        "buffer= must be at least 1; not 0": {"buffer": 0},
        "order= must be the path of a file, a dict or a CrawlOrder; not 5": {"order": 5},
        "order= has the key 5; keys must be texts": {"order": {5: 5}},
        "politeness= has the key 5; keys must be texts": {"politeness": {5: 5}},
        "override= must be a list of dicts, one for each [[override]]; not 5": {"override": 5},
        "site= must be a list of dicts, one for each [[site]]; not ['a']": {"site": ["a"]},
        "store= must be": {"store": ["a"]},
        "a program crawls alone": {"crawl": {"processes": 2}, "job": tmp_path / "job"},
    }
    for message, keywords in wrong.items():
        with pytest.raises(anabranch.CrawlerError) as refused:
            async with anabranch.crawl(SEED, **{**given, **keywords}):
                pass
        assert message in str(refused.value)
    with pytest.raises(anabranch.NoSeeds):
        async with anabranch.crawl("::", **given):
            pass
    with pytest.raises(anabranch.UsageError, match="async with"):
        aiter(anabranch.crawl(SEED, **given))
    assert not [*tmp_path.iterdir()]


async def test_text_is_in_the_encoding_that_the_document_names(given, web):
    """By its `meta`, if the server names none."""
    body = "<meta charset=windows-1251><title>\u0416</title>".encode("cp1251")
    async with SmallWeb({"b.test": Host(pages={"/": Page(body=body, content_type="text/html")})}) as other:
        hosts = {"dns": {"hosts": dict(other.hosts)}}
        async with anabranch.crawl("http://b.test/", **{**given, **hosts}) as crawl:
            pages = [page async for page in crawl]
    assert [page.title for page in pages] == ["\u0416"]
    assert "\u0416" in pages[0].text


async def test_a_page_keeps_its_content(given):
    """Also when it is done, and when the crawl has ended."""
    async with anabranch.crawl(SEED, **given) as crawl:
        pages = [page async for page in crawl]
    assert {page.title for page in pages if page.url == SEED} == {"A page"}


async def test_pages_have_their_place_in_the_archive(tmp_path, given):
    """Before they are done; each record is there once."""
    async with anabranch.crawl(SEED, job=tmp_path / "job", warc=True, **given) as crawl:
        places = [page.warc_ref async for page in crawl]
    assert len({*places}) == len(URLS)
    (file,) = (tmp_path / "job/warc").glob("*.warc.gz")
    assert {place.filename for place in places} == {file.name}
    index = file.with_suffix("").with_suffix(".cdxj").read_text().splitlines()
    assert {place.offset for place in places} <= {int(json.loads(line.split(" ", 2)[2])["offset"]) for line in index}


async def test_a_program_without_asyncio_iterates_too(given):
    """In a thread of the crawl's own, also below a running loop, as in a notebook."""

    def program():
        with anabranch.crawl(SEED, **given) as crawl:
            urls = {page.url for page in crawl}
            assert crawl.result.pages == len(urls)
        bare = {page.url for page in anabranch.crawl(SEED, **given)}
        result = anabranch.run(SEED, **given)
        return urls, bare, result

    for found in (await asyncio.to_thread(program),):
        assert found[:2] == (URLS, URLS)
        assert found[2].pages == len(URLS)
        assert found[2].by_status == {200: 5, 301: 1, 404: 1}


ASKED = []


def no_secrets(head):
    """A body rule that fails for /3."""
    ASKED.append(head.url)
    if head.url.endswith("/3"):
        raise KeyError(head.url)
    return head.url != f"{SEED}1"


async def test_a_body_that_is_not_wanted_is_left(tmp_path, web, given):
    """The URL ends with its status, marked as in Heritrix, and is not archived; a rule that fails costs its URL."""
    ASKED.clear()
    async with anabranch.crawl(
        SEED, job=tmp_path / "job", warc=True, body_rules=[no_secrets], failures=True, **given
    ) as crawl:
        pages = {page.url: page async for page in crawl}
    assert pages.keys() == URLS - {f"{SEED}4"}
    assert (pages[f"{SEED}1"].status, pages[f"{SEED}1"].content) == (200, b"")
    assert pages[f"{SEED}2"].content
    assert pages[f"{SEED}3"].status == -5
    lines = {line.split()[3]: line.split()[11] for line in (tmp_path / "job/logs/crawl.log").read_text().splitlines()}
    assert lines[f"{SEED}1"] == "midFetchAbort,bodyRule:1,round:1"
    assert lines[f"{SEED}3"] == f"err=UserFunctionFailed,body_rule={__name__}:no_secrets,round:1"
    assert f"{SEED}robots.txt" not in ASKED
    assert list(archived(tmp_path / "job").of(f"{SEED}1")) == []


@pytest.fixture
def structlog_unset():
    """Reset structlog to the state in which a program has not configured it."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("structlog_unset")
async def test_a_filter_that_is_planned_to_lose_more_than_it_may_warns(tmp_path, caplog, given):
    """The command gives the same warning."""
    given = {**given, "dedup": {"filter": "smm", "levels": [1, 1], "expect": 1000}, "job": tmp_path / "job"}
    async with anabranch.crawl(SEED, **given) as crawl:
        async for _ in crawl:
            pass
    assert "is expected to lose 8 of 1,000 URLs" in caplog.text


@pytest.mark.usefixtures("structlog_unset")
async def test_events_go_to_logging(caplog, given):
    """Below the logger `anabranch`, unless the program has configured structlog."""
    with caplog.at_level(logging.INFO, "anabranch"):
        async with anabranch.crawl(SEED, **given) as crawl:
            async for _ in crawl:
                pass
    assert any(record.name.startswith("anabranch.") for record in caplog.records)


async def hostile(visit):
    """A processor that fails as if it quoted a site."""
    raise ValueError("boom \x1b[31m")


@pytest.mark.usefixtures("structlog_unset")
async def test_an_exception_is_logged_escaped(caplog, given):
    """Its message, too, with the traceback: a terminal obeys none of it."""
    async with anabranch.crawl(SEED, processors=[hostile], **given) as crawl:
        with pytest.raises(anabranch.NoSeedAnswered):
            async for _ in crawl:
                pass
    assert "ValueError: boom \\x1b[31m\n" in caplog.text
    assert "in hostile\n" in caplog.text
    assert "\x1b" not in caplog.text


CALLED = asyncio.Event()


async def endless(visit):
    """A processor that never returns."""
    CALLED.set()
    await asyncio.Event().wait()


@pytest.mark.usefixtures("structlog_unset")
async def test_a_processor_that_keeps_a_stopped_crawl_is_named(caplog, given):
    """With its URL, once, when the time of a fetch is over."""
    async with anabranch.crawl(SEED, processors=[endless], fetch={"timeout": "1s"}, **given) as crawl:
        await asyncio.wait_for(CALLED.wait(), HANG_S)
        await crawl.stop()
        async with asyncio.timeout(HANG_S):
            while "cannot end" not in caplog.text:
                await asyncio.sleep(0.01)
    (warning,) = [record.getMessage() for record in caplog.records if "cannot end" in record.getMessage()]
    assert f"url='{SEED}' step='{__name__}:endless' more=0" in warning


@pytest.mark.parametrize("seeds", [None, 5, [5]])
def test_what_is_no_seed_at_all_is_refused(seeds):
    """By a line of ours."""
    with pytest.raises(anabranch.UsageError, match="seeds must be URLs and files"):
        anabranch.run(seeds)


PRIVATE = "http://127.0.0.1:9/"
#: A seed that the tests' order blocks.
BLOCKED = "http://a.test/blocked"


async def urls_of(crawl):
    """The URLs of its pages, to the end."""
    async with crawl:
        return {page.url async for page in crawl}


def not_2(target):
    """A scope rule."""
    return False if target.url.endswith("/2") else None


async def test_a_crawl_whose_seeds_are_not_answered_ends_with_an_error(given):
    """Each way to crawl raises an error with the seeds and why, as the command exits with 5; it has the result, too."""
    refused = {**given, "allow_private": False}
    crawl = anabranch.crawl(PRIVATE, **refused)
    async with crawl:
        with pytest.raises(anabranch.NoSeedAnswered, match=f"{PRIVATE}: -5001 .*allow_private=True") as raised:
            async for _ in crawl:
                pass
    assert isinstance(raised.value, anabranch.NoSeeds)
    assert raised.value.result is crawl.result
    assert crawl.result.excluded == 1
    with pytest.raises(anabranch.NoSeedAnswered):
        for _ in anabranch.crawl(PRIVATE, **refused):
            pass
    with pytest.raises(anabranch.NoSeedAnswered, match="no seed was answered"):
        anabranch.run(PRIVATE, **refused)
    assert [page.status for page in anabranch.crawl(PRIVATE, failures=True, **refused)] == [-5001]


@pytest.mark.usefixtures("structlog_unset")
async def test_a_seed_that_is_not_answered_is_a_warning_if_others_are(given, caplog):
    """One line a seed; none if the program gets the failures."""
    given["scope"] = {"block": ["/blocked$"]}
    with caplog.at_level(logging.WARNING):
        assert await urls_of(anabranch.crawl(SEED, BLOCKED, **given)) == URLS
    (line,) = [record.getMessage() for record in caplog.records if "not answered" in record.getMessage()]
    assert BLOCKED in line
    caplog.clear()
    await urls_of(anabranch.crawl([SEED, BLOCKED], failures=True, **given))
    assert not [record for record in caplog.records if "not answered" in record.getMessage()]


@pytest.mark.usefixtures("structlog_unset")
async def test_a_seed_whose_tries_have_failed_so_far_is_a_warning(given, caplog):
    """The crawl ends by a limit before its last try."""
    with caplog.at_level(logging.WARNING):
        await urls_of(anabranch.crawl(SEED, "http://127.0.0.1:1/", limits={"pages": len(URLS)}, **given))
    (line,) = [record.getMessage() for record in caplog.records if "not answered" in record.getMessage()]
    assert "its tries have failed so far (connection refused)" in line


async def test_seeds_are_arguments_or_in_lists(given):
    """They may be of any kind that can be iterated; anything else is refused by its own name."""
    for seeds in ([f"{SEED}2", f"{SEED}3"], [(f"{SEED}2",), [f"{SEED}3"]], [iter([f"{SEED}2", f"{SEED}3"])]):
        assert await urls_of(anabranch.crawl(*seeds, **given)) == {f"{SEED}2", f"{SEED}3"}
    for wrong in (5, [5], None):
        with pytest.raises(anabranch.UsageError, match="seeds must be URLs"):
            anabranch.crawl(SEED, wrong)


async def test_the_repr_of_a_result_is_a_short_line(given):
    """Not the facts of all seeds and the whole report."""
    result = await asyncio.to_thread(lambda: anabranch.run(SEED, **given))
    assert repr(result) == "<CrawlResult pages=7, failed=0, excluded=0, queued=0: finished: nothing is queued>"


def test_without_a_loop_of_asyncio_one_line_says_what_to_do(given):
    """Trio's tasks step the same coroutine without such a loop."""
    opening = anabranch.crawl(SEED, **given).__aenter__()
    with pytest.raises(anabranch.UsageError, match="needs a running loop of asyncio; under trio") as refused:
        opening.send(None)
    assert "\n" not in str(refused.value)


async def test_a_program_names_its_functions_each_time(given, tmp_path):
    """Else a folder could name any; what the job alone names does not run, unless the program trusts it."""
    job = tmp_path / "job"
    assert await urls_of(anabranch.crawl(SEED, job=job, rules=[not_2], limit=1, **given)) == {SEED}
    more = {"job": job, "limit": 100}
    with pytest.raises(anabranch.UsageError, match=r"\[scope\] rules .*:not_2.*--run-code"):
        await urls_of(anabranch.crawl(**more))
    assert await urls_of(anabranch.crawl(rules=[not_2], **more)) == URLS - {SEED, f"{SEED}2"}
    assert await urls_of(anabranch.crawl(run_code=True, again=True, **more)) == URLS - {f"{SEED}2"}
