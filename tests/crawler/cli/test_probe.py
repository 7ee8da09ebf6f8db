"""`anabranch links`: what is printed for a file and for a URL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from anabranch.crawler.cli.app import app

PAGE = b"<base href=/b/><a href=1 rel=nofollow>x</a><img srcset='2 1x'><form action=3></form><meta name=robots content=none>"


@pytest.fixture
def page(tmp_path):
    file = tmp_path / "page.html"
    file.write_bytes(PAGE)
    return str(file)


def run(*arguments):
    return CliRunner().invoke(app, ["links", *arguments])


def test_a_file_is_read_as_if_it_had_been_fetched(page) -> None:
    """A line for each link: hop, URL, context; remarks go to standard error."""
    result = run(page, "--base", "http://a.test/dir/")
    assert result.exit_code == 0
    assert result.stdout == ("L http://a.test/b/1 a/@href rel=nofollow\nE http://a.test/b/2 img/@srcset\n")
    assert result.stderr == "2 links\nthe page asks robots not to follow its links\n"


def test_the_options_are_keys_of_the_order(page) -> None:
    """Each option is a key of `[extract]`."""
    assert "S http://file.invalid/b/3 form/@action\n" in run(page, "--forms").stdout
    assert "1 more were dropped" in run(page, "--max-outlinks", "1").stderr


def test_the_type_of_a_file_can_be_told(tmp_path) -> None:
    """Else its name tells it."""
    file = tmp_path / "list"
    file.write_text("http://a.test/1\n")
    assert run(str(file)).stdout == ""
    told = run(str(file), "--content-type", "text/plain", "--hops", "M", "--sitemaps")
    assert told.stdout == "M http://a.test/1 sitemap\n"
    style = tmp_path / "a.css"
    style.write_text("a{b:url(x)}")
    assert run(str(style)).stdout == "E http://file.invalid/x css\n"


def test_a_url_is_fetched() -> None:
    """With its header; loopback only if that is allowed."""
    ready, done = threading.Event(), threading.Event()
    ports = []

    async def serve():
        application = web.Application()

        async def answer(_):
            return web.Response(body=PAGE, content_type="text/html", headers={"Link": "</n>; rel=next"})

        application.router.add_get("/", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ports.append(runner.addresses[0][1])
        ready.set()
        await asyncio.to_thread(done.wait)
        await runner.cleanup()

    server = threading.Thread(target=asyncio.run, args=(serve(),))
    server.start()
    try:
        assert ready.wait(20)
        url = f"http://127.0.0.1:{ports[0]}/"
        result = run(url, "--allow-private")
        refused = run(url)
    finally:
        done.set()
        server.join()
    assert result.stdout.splitlines()[0] == f"L {url}n Link rel=next"
    assert len(result.stdout.splitlines()) == 3
    assert refused.exit_code == 5
    assert "not a public address" in refused.stderr


@pytest.mark.parametrize(("source", "code"), [("ftp://a.test/", 2), ("/no/such/file", 2)])
def test_what_is_neither_file_nor_url_is_refused(source, code) -> None:
    """In one line."""
    result = run(source)
    assert result.exit_code == code
    assert result.stderr == f"anabranch: {source}: neither a file nor an http(s) URL\n"


BODY = b"User-agent: *\nCrawl-delay: 2\nDisallow: /private\n\nUser-agent: other\nAllow: /\nSitemap: http://a.test/map.xml\n"


class Site(BaseHTTPRequestHandler):
    """Answers each path from a table of status, headers and body; notes who asked for what."""

    answers: dict[str, tuple[int, dict[str, str], bytes]]
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        status, headers, body = self.answers.get(self.path, (404, {}, b"none"))
        self.asked.append((self.path, self.headers["User-Agent"]))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def site() -> Iterator[tuple[type[Site], str]]:
    """The site's class, and its origin."""
    handler = type("OneSite", (Site,), {"answers": {"/robots.txt": (200, {}, BODY)}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def run_robots_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["robots", *arguments])


def test_it_says_which_group_and_which_line_decide(site: tuple[type[Site], str]) -> None:
    """After asking as a crawl asks: by our User-Agent."""
    handler, origin = site
    result = run_robots_command(f"{origin}/private/x", "--allow-private")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{origin}/robots.txt: 200 OK, {len(BODY)} bytes",
        f"anabranch: {origin}/private/x",
        "disallowed",
        "group: * (named in line 1)",
        "line 3: Disallow: /private (this rule has the most octets)",
        "crawl delay: 2 s",
        "sitemap: http://a.test/map.xml",
    ]
    assert [(path, agent.partition("/")[0]) for path, agent in handler.asked] == [("/robots.txt", "anabranch")]


def test_another_product_can_be_asked_for(site: tuple[type[Site], str]) -> None:
    """Its own group speaks."""
    result = run_robots_command(f"{site[1]}/private/x", "--allow-private", "--agent", "Other")
    assert result.stdout.splitlines()[1:4] == [
        f"Other: {site[1]}/private/x",
        "allowed",
        "group: other (named in line 5)",
    ]


def test_redirects_are_followed_as_a_crawl_follows_them(site: tuple[type[Site], str]) -> None:
    """The file at their end is read; endless redirects mean that there are no rules."""
    site[0].answers |= {"/robots.txt": (301, {"Location": "/moved"}, b""), "/moved": (200, {}, BODY)}
    assert "disallowed" in run_robots_command(f"{site[1]}/private", "--allow-private").stdout
    site[0].answers["/moved"] = (302, {"Location": "/moved"}, b"")
    told = run_robots_command(f"{site[1]}/private", "--allow-private").stdout.splitlines()
    assert (told[0], told[2:]) == (
        f"{site[1]}/robots.txt: 302 Found, 0 bytes",
        ["allowed", "group: none applies to this product", "everything may be fetched"],
    )
    assert len(site[0].asked) == 2 + 6


@pytest.mark.parametrize(("status", "word"), [(404, "allowed"), (429, "disallowed"), (503, "disallowed")])
def test_an_answer_without_rules_is_told_for_what_it_means(
    site: tuple[type[Site], str], status: int, word: str
) -> None:
    """4xx allows, a busy or broken server does not."""
    site[0].answers["/robots.txt"] = (status, {}, b"User-agent: *\nDisallow: /")
    assert run_robots_command(f"{site[1]}/x", "--allow-private").stdout.splitlines()[2] == word


def test_a_private_address_is_refused_unless_it_is_allowed(site: tuple[type[Site], str]) -> None:
    """In one line, with what allows it; nothing is asked."""
    result = run_robots_command(f"{site[1]}/private/x")
    assert result.exit_code == 5
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "127.0.0.1 is not a public address (--allow-private allows it)" in result.stderr
    assert site[0].asked == []


def test_a_redirect_to_where_nobody_answers_is_told_as_such(site: tuple[type[Site], str]) -> None:
    """The rules are not known, so nothing may be fetched."""
    site[0].answers["/robots.txt"] = (301, {"Location": "http://127.0.0.1:1/robots.txt"}, b"")
    told = run_robots_command(f"{site[1]}/x", "--allow-private").stdout.splitlines()
    assert told[1:4:2] == ["its redirect leads to a host that gives no answer", "disallowed"]


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "javascript:alert(1)", "http://[::1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    """One line that repeats it."""
    result = run_robots_command(url)
    assert (result.exit_code, result.stderr) == (2, f"anabranch: {url!r} is not an http or https URL\n")


def test_a_host_that_nobody_knows_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the failure in words."""
    monkeypatch.setenv("ANABRANCH_DNS__SERVERS", "127.0.0.1:9")
    monkeypatch.setenv("ANABRANCH_DNS__TIMEOUT", "200ms")
    result = run_robots_command("http://no.such.test/")
    assert result.exit_code == 5
    assert "no robots.txt: name servers: they do not answer" in result.stderr
    assert result.stderr.count("\n") == 1
