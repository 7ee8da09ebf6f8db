"""`anabranch links`: what is printed for a file and for a URL."""

import asyncio
import threading

import pytest
from aiohttp import web
from typer.testing import CliRunner

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
    """The same switches as in `[extract]`."""
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
