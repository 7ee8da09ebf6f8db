"""The scope decides which URLs the real command fetches, on small webs made for these tests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.acceptance.command import Ended, anabranch, crawl_log, ended, kill_after, start, write_order
from tests.facts_schema import checked
from tests.site.page import Host, Link, Page, Web, file, go
from tests.site.server import SmallWeb

OVER_QUOTA = -5003
OUT_OF_SCOPE = -5000
BLOCKED = -5001
SHEET = "text/css"

DOCS = "http://www.wiki.test/docs/"

WIKI: Web = {
    "www.wiki.test": Host(
        pages={
            "/": Page(links=go("/docs/", "/about")),
            "/about": Page(),
            "/docs/": Page(links=go("/docs/a", "/docs/old/b", "/", "http://en.wiki.test/", "http://other.test/")),
            "/docs/a": Page(),
            "/docs/old/b": Page(),
        }
    ),
    "en.wiki.test": Host(pages={"/": Page()}),
    "other.test": Host(pages={"/": Page(links=go("/further"))}),
}


async def crawled(folder: Path, web: SmallWeb, *arguments: str, **sections: dict[str, object]) -> Ended:
    """Crawl to the end in the job `job`; it must go well."""
    order = write_order(folder, web.hosts, **sections)
    run = await anabranch("crawl", *arguments, "-c", order, "--job", "job", cwd=folder)
    assert run.code == 0, run.err
    return run


async def why(folder: Path, url: str) -> str:
    run = await anabranch("why", "job", url, cwd=folder)
    assert (run.code, run.err) == (0, "")
    return run.out


def fields(folder: Path, url: str) -> list[str]:
    """The fields of the last line that crawl.log has for a URL."""
    lines = (folder / "job" / "logs" / "crawl.log").read_text().splitlines()
    return next(line.split() for line in reversed(lines) if line.split()[3] == url)


# The seeds' places, patterns


@pytest.mark.parametrize(
    ("scope", "more"),
    [
        ("page", []),
        ("prefix", ["docs/a", "docs/old/b"]),
        ("host", ["docs/a", "docs/old/b", "", "about"]),
        ("domain", ["docs/a", "docs/old/b", "", "about", "http://en.wiki.test/"]),
    ],
)
async def test_a_seed_opens_its_page_its_folder_its_host_or_its_domain(tmp_path, scope, more) -> None:
    """`--scope` chooses which of them; no other URL is requested."""
    async with SmallWeb(WIKI) as web:
        await crawled(tmp_path, web, DOCS, "--scope", scope)
        urls = {url if "://" in url else f"http://www.wiki.test/{url}" for url in more}
        assert set(crawl_log(tmp_path / "job")) == {DOCS} | urls
        asked = {url for url in web.ledger.counts() if not url.endswith("/robots.txt")}
        assert asked == {DOCS} | urls


async def test_include_opens_and_exclude_closes(tmp_path) -> None:
    """Patterns on the command line, several of one kind; what closes stands behind what opens."""
    async with SmallWeb(WIKI) as web:
        patterns = ("--include", "/about$", "--include", r"^http://www\.wiki\.test/$", "--exclude", "/old/")
        await crawled(tmp_path, web, DOCS, "--scope", "prefix", *patterns)
        host = "http://www.wiki.test/"
        assert set(crawl_log(tmp_path / "job")) == {DOCS, f"{DOCS}a", host, f"{host}about"}


async def test_what_is_queued_is_judged_again_by_the_order_of_the_next_run(tmp_path) -> None:
    """A scope that became narrower, a pattern that blocks: a line each, and no request."""
    async with SmallWeb(WIKI) as web:
        await crawled(tmp_path, web, DOCS, "--limit", "1")
        await crawled(tmp_path, web, DOCS, "--yes", scope={"exclude": ["/old/"], "block": ["/docs/a$"]})
        log = crawl_log(tmp_path / "job")
        assert (log[f"{DOCS}old/b"], log[f"{DOCS}a"]) == (OUT_OF_SCOPE, BLOCKED)
        assert not {f"{DOCS}old/b", f"{DOCS}a"} & set(web.ledger.counts())


async def test_embeds_are_followed_off_the_seeds_hosts_two_hops_far(tmp_path) -> None:
    """A page's style sheet and what that imports; the import of the import is too far."""
    sheet = Link("http://cdn.test/1.css", "http://cdn.test/1.css", "link", "stylesheet", hop="E")
    table: Web = {
        "a.test": Host(pages={"/": Page(links=(sheet, *go("http://cdn.test/page")))}),
        "cdn.test": Host(
            pages={
                **{f"/{n}.css": file(SHEET, f'@import "{n + 1}.css";'.encode()) for n in (1, 2, 3)},
                "/page": Page(),
            }
        ),
    }
    async with SmallWeb(table) as web:
        await crawled(tmp_path, web, "http://a.test/")
        assert set(crawl_log(tmp_path / "job")) == {"http://a.test/", "http://cdn.test/1.css", "http://cdn.test/2.css"}
        assert fields(tmp_path, "http://cdn.test/2.css")[4] == "EE"


# What counts as one URL


async def test_a_page_under_many_session_ids_is_fetched_once(tmp_path) -> None:
    """In the path and in the query; a run that goes on knows it, too, and `why` finds it by every spelling."""
    sessions = [f"{number:032x}" for number in range(5)]
    spellings = [f"/p;jsessionid={each}" for each in sessions] + [f"/q?PHPSESSID={each}&id=7" for each in sessions]
    table: Web = {"a.test": Host(pages={"/": Page(links=go(*spellings)), **dict.fromkeys(spellings, Page())})}
    async with SmallWeb(table) as web:
        await crawled(tmp_path, web, "http://a.test/")
        first = {f"http://a.test{spellings[0]}", f"http://a.test{spellings[5]}"}
        assert set(crawl_log(tmp_path / "job")) == {"http://a.test/"} | first
        again = f"http://a.test{spellings[3]}"
        await crawled(tmp_path, web, "http://a.test/", again)
        assert set(crawl_log(tmp_path / "job")) == {"http://a.test/"} | first
        said = await why(tmp_path, again)
        assert f"it is known as http://a.test{spellings[0]}, which has the same key; it is done with status 200" in said
        added = await anabranch("add", "job", f"http://a.test{spellings[4]}", cwd=tmp_path)
        assert added.out.startswith("known ")


async def test_of_urls_that_are_alike_only_the_first_are_taken(tmp_path) -> None:
    """`[scope] similar`: with a/x and b/y taken, a/y has nothing new; the next run has not forgotten, and `why` says so."""
    table: Web = {
        "a.test": Host(
            pages={
                "/": Page(links=go("/a/x", "/b/y", "/a/y", "/moved")),
                **{path: Page(links=go("/b/x", "/c/z")) for path in ("/a/x", "/b/y", "/a/y", "/b/x", "/c/z")},
                "/new": Page(links=go("/a/y")),
            }
        )
    }
    async with SmallWeb(table) as web:
        await crawled(tmp_path, web, "http://a.test/", scope={"similar": "published"})
        taken = {f"http://a.test{path}" for path in ("/", "/a/x", "/b/y", "/moved", "/c/z")}
        assert set(crawl_log(tmp_path / "job")) == taken
        assert "similar: it is like a URL that was taken" in await why(tmp_path, "http://a.test/a/y")
        assert "similar" not in await why(tmp_path, "http://a.test/d/d/d")
        await crawled(tmp_path, web, "http://a.test/new", scope={"similar": "published"})
        assert set(crawl_log(tmp_path / "job")) == taken | {"http://a.test/new"}


# What pages and sites say


NOFOLLOW: Web = {
    "a.test": Host(
        pages={
            "/": Page(links=go("/meta", "/header", "/rel")),
            "/meta": Page(
                head='<meta name="robots" content="noindex, nofollow">',
                links=(*go("/of-meta"), Link("/shown.png", "/shown.png", "img", hop="E")),
            ),
            "/header": Page(headers=(("X-Robots-Tag", "anabranch: nofollow"),), links=go("/of-header")),
            "/rel": Page(links=(Link("/of-rel", "/of-rel", "a", "nofollow"),)),
            **{path: Page() for path in ("/of-meta", "/of-header", "/of-rel", "/shown.png")},
        }
    )
}
FOLLOWED = {f"http://a.test{path}" for path in ("/", "/meta", "/header", "/rel", "/shown.png")}


async def test_the_links_of_a_page_that_says_nofollow_are_not_followed(tmp_path) -> None:
    """By meta or by header; what belongs to the page is fetched, and crawl.log says why the rest is not."""
    async with SmallWeb(NOFOLLOW) as web:
        await crawled(tmp_path, web, "http://a.test/")
        assert set(crawl_log(tmp_path / "job")) == FOLLOWED | {"http://a.test/of-rel"}
        assert fields(tmp_path, "http://a.test/meta")[11] == "nofollow,noindex,round:1"
        assert fields(tmp_path, "http://a.test/header")[11] == "nofollow,round:1"


async def test_the_order_may_leave_out_links_by_rel_and_take_no_notice_of_pages(tmp_path) -> None:
    """`nofollow_links` and `meta` are keys of their own."""
    async with SmallWeb(NOFOLLOW) as web:
        await crawled(tmp_path, web, "http://a.test/", robots={"meta": False, "nofollow_links": True})
        assert set(crawl_log(tmp_path / "job")) == FOLLOWED | {"http://a.test/of-meta", "http://a.test/of-header"}


def sitemap(*urls: str) -> Page:
    """A sitemap of these."""
    entries = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return file("application/xml", f"<urlset>{entries}</urlset>".encode())


def index(*urls: str) -> Page:
    """A sitemap of sitemaps."""
    entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return file("application/xml", f"<sitemapindex>{entries}</sitemapindex>".encode())


HIDDEN = [f"/hidden/{number}" for number in range(1100)]
MAPPED: Web = {
    "a.test": Host(
        pages={
            "/robots.txt": file("text/plain", b"Sitemap: /index.xml\nUser-agent: *\nDisallow: /private\n"),
            "/index.xml": index("http://a.test/map.xml"),
            "/map.xml": sitemap(*(f"http://a.test{path}" for path in HIDDEN), "http://b.test/off"),
            "/": Page(),
            **dict.fromkeys(HIDDEN, Page()),
        }
    ),
    "b.test": Host(pages={"/": Page(), "/sitemap.xml": sitemap("http://b.test/only-there"), "/only-there": Page()}),
}


async def test_with_sitemaps_the_pages_that_only_a_sitemap_names_are_found(tmp_path) -> None:
    """Named by robots.txt or in its usual place, however many pages it names; off the seeds' hosts it opens nothing."""
    async with SmallWeb(MAPPED) as web:
        seeds = ("http://a.test/", "http://b.test/")
        await crawled(tmp_path, web, *seeds, politeness={"max_connections": 20})
        assert set(crawl_log(tmp_path / "job")) == set(seeds)
        await crawled(tmp_path, web, *seeds, "--sitemaps", politeness={"max_connections": 20})
        found = {url for url, status in crawl_log(tmp_path / "job").items() if status == 200}
        maps = {"http://a.test/index.xml", "http://a.test/map.xml", "http://b.test/sitemap.xml"}
        pages = {f"http://a.test{path}" for path in HIDDEN} | {"http://b.test/only-there"}
        assert found == {*seeds, *maps, *pages}
        assert crawl_log(tmp_path / "job")["http://a.test/sitemap.xml"] == 404
        for page in (HIDDEN[0], HIDDEN[-1]):
            assert fields(tmp_path, f"http://a.test{page}")[4:6] == ["MMM", "http://a.test/map.xml"]
        assert fields(tmp_path, "http://b.test/only-there")[4:6] == ["MM", "http://b.test/sitemap.xml"]


# Quotas


async def test_a_host_gets_no_more_pages_than_its_quota(tmp_path) -> None:
    """The others of it are disregarded, with a line that says why; other hosts are not held up, robots.txt does not count."""
    paths = [f"/{number}" for number in range(12)]
    table: Web = {
        name: Host(pages={"/": Page(links=go(*paths)), **dict.fromkeys(paths, Page())}) for name in ("a.test", "b.test")
    }
    async with SmallWeb(table) as web:
        await crawled(tmp_path, web, "http://a.test/", "http://b.test/", limits={"pages_per_host": 5})
        log = crawl_log(tmp_path / "job")
        for host in ("a.test", "b.test"):
            statuses = sorted(status for url, status in log.items() if f"//{host}/" in url)
            assert statuses == [OVER_QUOTA] * 8 + [200] * 5
        over = next(url for url, status in log.items() if status == OVER_QUOTA)
        assert fields(tmp_path, over)[11] == "Q:pages_per_host,round:1"
        assert "it is disregarded with status -5003 over a quota" in await why(tmp_path, over)


@pytest.mark.parametrize("more", [(), ("--processes", "2")])
async def test_a_group_of_hosts_gets_no_more_pages_than_its_budget(tmp_path, more) -> None:
    """All its hosts together, in a run that goes on, too; hosts without a group have no budget."""
    paths = [f"/{number}" for number in range(6)]
    names = ("a.test", "b.test", "c.test")
    pages = {"/": Page(links=go(*paths)), **dict.fromkeys(paths, Page())}
    politeness = {"min_delay": 0, "max_delay": 0, "groups": {"test,a,": "ab", "test,b,": "ab"}}
    politeness |= {"group_min_delay": 0, "group_max_delay": 0}
    groups = politeness.pop("groups")
    async with SmallWeb({name: Host(pages=pages) for name in names}) as web:
        order = write_order(tmp_path, web.hosts, politeness=politeness, limits={"pages_per_group": 5})
        order.write_text(
            order.read_text() + "[politeness.groups]\n" + "".join(f'"{k}" = "{v}"\n' for k, v in groups.items())
        )
        seeds = [f"http://{name}/" for name in names]
        for limit in ("3", "0"):
            run = await anabranch("crawl", *seeds, "-c", order, "--job", "job", "--limit", limit, *more, cwd=tmp_path)
            assert run.code == 0, run.err
    log = crawl_log(tmp_path / "job")
    of_group = sorted(status for url, status in log.items() if "//c.test" not in url)
    assert of_group.count(200) == 5
    assert set(of_group) == {OVER_QUOTA, 200}
    assert [status for url, status in log.items() if "//c.test" in url] == [200] * 7
    over = next(url for url, status in log.items() if status == OVER_QUOTA)
    assert fields(tmp_path, over)[11] == "Q:pages_per_group,round:1"
    assert "it is disregarded with status -5003 over a quota" in await why(tmp_path, over)


async def test_a_higher_quota_lets_a_later_run_take_more(tmp_path) -> None:
    """A seed that was over it is tried again, and what it leads to is new."""
    table: Web = {"a.test": Host(pages={"/": Page(), "/2": Page(links=go("/3")), "/3": Page()})}
    async with SmallWeb(table) as web:
        seeds = ("http://a.test/", "http://a.test/2")
        order = {"limits": {"pages_per_host": 1}, "frontier": {"policy": "host"}}
        await crawled(tmp_path, web, *seeds, **order)
        assert sorted(crawl_log(tmp_path / "job").values()) == [OVER_QUOTA, 200]
        await crawled(tmp_path, web, *seeds, frontier={"policy": "host"}, limits={"pages_per_host": 3})
        assert crawl_log(tmp_path / "job") == dict.fromkeys([*seeds, "http://a.test/3"], 200)


# `anabranch why`


async def test_why_says_which_rule_of_the_scope_decides(tmp_path) -> None:
    """The rule is named for a seed, a queued page, a page that the crawl never met, and a page of another host."""
    async with SmallWeb(WIKI) as web:
        await crawled(tmp_path, web, DOCS, "--limit", "1", scope={"exclude": ["/old/"]})
        assert "in scope as a seed, by rule 2 (seeds)" in await why(tmp_path, DOCS)
        assert "in scope after 1 hop (L), by rule 2 (seeds)" in await why(tmp_path, f"{DOCS}a")
        told = await why(tmp_path, f"{DOCS}old/x")
        assert "how it was found is not known; as a link of a seed: out of scope after 1 hop (L), by rule" in told
        assert "regex rejects: reject what matches the pattern /old/" in told
        assert "2 seeds accepts: accept what is on the host of a seed" in told
        assert "out of scope after 1 hop (L), by rule 1 (all)" in await why(tmp_path, "http://other.test/")
        facts = checked(
            json.loads((await anabranch("why", "job", f"{DOCS}a", "--json", cwd=tmp_path)).out), "Explained"
        )
        assert facts["scope"].startswith("in scope after 1 hop (L)")


async def test_a_running_crawl_says_it_too(tmp_path) -> None:
    """By its own scope, with the seeds that were added meanwhile; the key finds what has another session id."""
    session = "/p;jsessionid=0123456789abcdef"
    table: Web = {
        "a.test": Host(pages={"/": Page(links=go(session)), session: Page()}),
        "b.test": Host(pages={"/": Page()}),
    }
    async with SmallWeb(table) as web:
        order = write_order(tmp_path, web.hosts, politeness={"min_delay": "300s", "max_delay": "300s"})
        process = await start(
            "crawl", "http://a.test/", "-c", order, "--job", "job", "--robots", "ignore", cwd=tmp_path
        )
        while not web.ledger.counts().get("http://a.test/") or not (tmp_path / "job/state/control").exists():
            await asyncio.sleep(0.01)
        told = await why(tmp_path, "http://a.test/p;jsessionid=fedcba9876543210")
        while "never scheduled" in told:  # the page that leads to it is being read
            told = await why(tmp_path, "http://a.test/p;jsessionid=fedcba9876543210")
        assert f"it is known as http://a.test{session}, which has the same key" in told
        assert "in scope after 1 hop (L), by rule 2 (seeds)" in told
        assert "out of scope" in await why(tmp_path, "http://b.test/1")
        assert (await anabranch("add", "job", "http://b.test/", cwd=tmp_path)).out.startswith("new ")
        assert "in scope after 1 hop (L), by rule 2 (seeds)" in await why(tmp_path, "http://b.test/1")
        assert (await anabranch("stop", "job", "--now", cwd=tmp_path)).code == 0
        assert (await ended(process)).code == 13


async def test_a_killed_crawl_with_the_similarity_filter_goes_on_and_misses_nothing(tmp_path) -> None:
    """Each page that is left out is like others that were taken: its folder and its name are each known."""
    names = [f"{letter}{number}" for letter in "abc" for number in range(10)]
    paths = [f"/{folder}/{name}" for folder in "xyz" for name in names]
    home = Page(links=go(*paths))
    table: Web = {"a.test": Host(pages={"/": home, **dict.fromkeys(paths, home)})}
    async with SmallWeb(table, delay_s=0.01) as web:
        order = write_order(tmp_path, web.hosts, scope={"similar": "published"})
        command = ("crawl", "http://a.test/", "-c", order, "--job", "job")
        await kill_after(await start(*command, cwd=tmp_path), web, 8)
        run = await anabranch(*command, cwd=tmp_path)
        assert run.code == 0, run.err
        taken = [url.split("/")[3:] for url in crawl_log(tmp_path / "job")]
        assert {name for *_, name in taken} == {"", *names}
        assert {folder for folder, *name in taken if name} == set("xyz")
