import asyncio
import contextlib
import gzip
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import aiohttp
import pytest
import yarl
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.site.alpha import SPELLINGS
from tests.site.ledger import CLIENT_GONE, NO_ANSWER, Ledger
from tests.site.page import MIB, Fault, Host, Page, failure, plain_body, versioned
from tests.site.pages import WEB
from tests.site.server import LoopbackServer, SmallWeb, file_finder

REPOSITORY = Path(__file__).parents[2]


class ToTheWeb(AbstractResolver):
    """Sends every host name to one loopback port."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host="127.0.0.1", port=self._port, family=2, proto=0, flags=0),
        ]

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def client_of(web: LoopbackServer) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(resolver=ToTheWeb(web.port), use_dns_cache=False)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        yield session


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, Mapping[str, str], bytes]:
    target = yarl.URL(url, encoded=True)
    async with session.get(target, allow_redirects=False, skip_auto_headers=["Accept-Encoding"]) as answer:
        headers: Mapping[str, str] = answer.headers
        return answer.status, headers, await answer.read()


async def raw_exchange(web: LoopbackServer, request: bytes) -> bytes:
    """All bytes that the server sends for a raw request, until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


class Watched(LoopbackServer):
    """A server with one page for all targets, and events for the first arrival and the first end."""

    def __init__(self, page: Page) -> None:
        self.arrived, self.ended = asyncio.Event(), asyncio.Event()
        super().__init__(self._note_arrival, ledger=Ledger(lambda visit: self.ended.set()))
        self._page = page

    def _note_arrival(self, host: str, target: str, earlier: int) -> Page:
        self.arrived.set()
        return self._page


def web_of(**pages: Page) -> dict[str, Host]:
    return {"a.test": Host(pages={f"/{name}": page for name, page in pages.items()})}


async def test_every_page_of_the_table_is_served_as_it_says(small_web: SmallWeb) -> None:
    """Status, type and body on the wire are the table's, for every page that answers at once."""
    async with client_of(small_web) as session:
        for host, entry in WEB.items():
            for target, page in entry.pages.items():
                if page.fault or page.first:
                    continue
                status, headers, body = await get(session, f"http://{host}{target}")
                wanted = (page.status, page.content_type, plain_body(page))
                body = gzip.decompress(body) if "Content-Encoding" in headers else body
                assert (status, headers.get("Content-Type"), body) == wanted, (host, target)
    assert set(small_web.ledger.counts().values()) == {1}


async def test_hosts_name_every_host_at_the_servers_port(small_web: SmallWeb) -> None:
    """`hosts` is what the crawl order's table of hosts needs."""
    assert set(small_web.hosts) == set(WEB)
    assert set(small_web.hosts.values()) == {f"127.0.0.1:{small_web.port}"}


async def test_unknown_paths_and_hosts_are_refused_and_counted(small_web: SmallWeb) -> None:
    """A request that no page expects stands in the ledger with its status."""
    async with client_of(small_web) as session:
        assert (await get(session, "http://beta.test/gone"))[0] == 404
        assert (await get(session, "http://nowhere.test/"))[0] == 421
    assert small_web.ledger.answered(404) == {"http://beta.test/gone"}
    assert small_web.ledger.answered(421) == {"http://nowhere.test/"}


async def test_the_servers_own_port_is_no_part_of_the_host(small_web: SmallWeb) -> None:
    """A crawl that reaches the web by name server uses URLs with the port."""
    answer = await raw_exchange(
        small_web, b"GET / HTTP/1.1\r\nHost: BETA.test:%d\r\nConnection: close\r\n\r\n" % small_web.port
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert small_web.ledger.answered() == {"http://beta.test/"}


async def test_targets_are_matched_byte_for_byte(small_web: SmallWeb) -> None:
    """Two spellings that the URL standard keeps apart are two pages."""
    async with client_of(small_web) as session:
        for url in ("http://www.alpha.test/%73ame", "http://www.alpha.test/odd/50%"):
            assert (await get(session, url))[0] == 200
        assert (await get(session, "http://www.alpha.test/sam%65"))[0] == 404
    assert small_web.ledger.count("http://www.alpha.test/same") == 0


async def test_a_busy_page_answers_on_the_third_request(small_web: SmallWeb) -> None:
    """429 with Retry-After comes twice per path, then 200."""
    async with client_of(small_web) as session:
        answers = [await get(session, "http://busy.test/1") for _ in range(4)]
        other = await get(session, "http://busy.test/2")
    assert [status for status, _, _ in answers] == [429, 429, 200, 200]
    assert answers[0][1]["Retry-After"] == other[1]["Retry-After"] == "1"
    assert small_web.ledger.statuses("http://busy.test/1") == [429, 429, 200, 200]


async def test_a_page_with_a_version_is_not_sent_to_whoever_has_it() -> None:
    """By its tag, or by its date; another version gets the page."""
    dated = Page(headers=(("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"),))
    pages = {"/tagged": versioned(Page()), "/dated": dated}
    async with SmallWeb({"a.test": Host(pages=pages)}) as web, client_of(web) as session:
        for target, field, condition in (
            ("/tagged", "ETag", "If-None-Match"),
            ("/dated", "Last-Modified", "If-Modified-Since"),
        ):
            url = f"http://a.test{target}"
            _, headers, _ = await get(session, url)
            for version, status in ((headers[field], 304), ("another", 200)):
                async with session.get(url, headers={condition: version}) as answer:
                    assert (answer.status, bool(await answer.read())) == (status, status == 200)


async def test_an_overloaded_page_says_not_when_to_come_back(small_web: SmallWeb) -> None:
    """The first answer is 503 without Retry-After, the second 200."""
    async with client_of(small_web) as session:
        status, headers, _ = await get(session, "http://overloaded.test/")
        assert (status, "Retry-After" in headers) == (503, False)
        assert (await get(session, "http://overloaded.test/"))[0] == 200


async def test_a_page_without_content_type_is_sent_without_one(small_web: SmallWeb) -> None:
    """The server library's default type must not slip in."""
    async with client_of(small_web) as session:
        _, headers, _ = await get(session, "http://beta.test/no-type")
    assert "Content-Type" not in headers


async def test_a_page_of_17_mib_has_links_before_and_behind_the_limit(small_web: SmallWeb) -> None:
    """The late link stands behind 16 MiB; packed, the same page is small."""
    async with client_of(small_web) as session:
        _, _, huge = await get(session, "http://big.test/huge")
        _, headers, bomb = await get(session, "http://big.test/bomb")
    assert huge.index(b"/early-huge") < 1000
    assert huge.index(b"/late-huge") > 17 * MIB
    assert headers["Content-Encoding"] == "gzip"
    assert len(bomb) < MIB < 17 * MIB < len(gzip.decompress(bomb))


async def test_a_closed_connection_gives_no_byte_and_then_an_answer() -> None:
    """`first` with CLOSE: nothing comes, and the second request is answered."""
    request = b"GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
    async with SmallWeb(web_of(x=Page(first=(Page(fault=Fault.CLOSE),)))) as web:
        assert await raw_exchange(web, request) == b""
        assert (await raw_exchange(web, request)).startswith(b"HTTP/1.1 200 ")
        assert web.ledger.statuses("http://a.test/x") == [NO_ANSWER, 200]


async def test_a_cut_answer_ends_in_the_middle_of_its_body() -> None:
    """The head announces the whole body, half of it comes."""
    page = Page(fault=Fault.CUT, body=b"0123456789")
    async with SmallWeb(web_of(x=page)) as web:
        answer = await raw_exchange(web, b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Length: 10" in head
    assert body == b"01234"


async def test_garbage_is_no_http() -> None:
    """The answer cannot be read as HTTP."""
    async with SmallWeb(web_of(x=Page(fault=Fault.GARBAGE))) as web:
        assert await raw_exchange(web, b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n") == b"this is no HTTP\r\n\r\n"
        assert web.ledger.statuses("http://a.test/x") == [NO_ANSWER]


async def test_closing_the_server_ends_requests_that_hang() -> None:
    """A page that never answers does not keep the server; the ledger says that nobody got it."""
    async with Watched(Page(fault=Fault.SILENCE)) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n")
        await web.arrived.wait()
    assert await reader.read() == b""
    writer.close()
    assert web.ledger.statuses("http://a.test/x") == [CLIENT_GONE]


async def test_a_stalled_answer_stops_in_the_middle_and_stays_open() -> None:
    """Half of the body comes; the rest does not, and the request stays in service."""
    async with Watched(Page(fault=Fault.STALL, body=b"0123456789")) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert b"Content-Length: 10" in await reader.readuntil(b"\r\n\r\n01234")
        assert (web.ledger.in_service, web.ledger.visits) == (1, ())
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("page", [Page(fault=Fault.SILENCE), Page(delay_s=3600.0)])
async def test_a_client_that_goes_away_ends_its_request(page: Page) -> None:
    """Requests of a killed client leave service at once, so they are not counted beside its successor's."""
    async with Watched(page) as web:
        _, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n")
        await web.arrived.wait()
        writer.transport.abort()
        await web.ended.wait()
        assert web.ledger.statuses("http://a.test/x") == [CLIENT_GONE]


async def test_a_client_that_leaves_during_a_large_answer_ends_its_request() -> None:
    """The write fails, the request ends, the server stays."""
    async with Watched(Page(filler_bytes=32 * MIB)) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n")
        await reader.readexactly(1000)
        writer.transport.abort()
        await web.ended.wait()
        async with client_of(web) as session:
            assert (await get(session, "http://a.test/y"))[0] == 200
        assert web.ledger.statuses("http://a.test/x") == [CLIENT_GONE]


async def test_requests_in_service_at_once_are_counted() -> None:
    """Four delayed requests overlap, then two more: the most at once is four."""
    async with SmallWeb(web_of(x=Page()), delay_s=0.02) as web, client_of(web) as session:
        for together in (4, 2):
            await asyncio.gather(*(get(session, "http://a.test/x") for _ in range(together)))
        assert web.ledger.max_in_service("a.test") == 4
        assert web.ledger.count("http://a.test/x") == 6
        assert web.ledger.in_service == 0


async def test_one_request_after_the_other_is_never_two_in_service() -> None:
    """The end is noted before the client can know it, for small, large and packed answers."""
    pages = web_of(small=Page(), empty=Page(body=b""), large=Page(filler_bytes=MIB), last=failure(500))
    async with SmallWeb(pages) as web:
        for _ in range(2):
            async with client_of(web) as session:
                for target in pages["a.test"].pages:
                    await get(session, f"http://a.test{target}")
        assert web.ledger.max_in_service() == 1
        assert web.ledger.shortest_rest("a.test") >= 0.0


async def test_every_answer_waits_for_the_servers_and_the_pages_delay() -> None:
    """The ledger's times hold both delays."""
    async with SmallWeb(web_of(x=Page(), y=Page(delay_s=0.03)), delay_s=0.02) as web, client_of(web) as session:
        await get(session, "http://a.test/x")
        await get(session, "http://a.test/y")
        lengths = [visit.end_s - visit.start_s for visit in web.ledger.visits]
    assert lengths[0] >= 0.019
    assert lengths[1] >= 0.049


async def test_all_spellings_stand_in_the_html_as_the_table_has_them() -> None:
    """HTML escaping aside, a spelling reaches the reader unchanged."""
    body = plain_body(WEB["www.alpha.test"].pages["/spelled-one"]).decode()
    assert all(f'href="{raw}"' in body for raw in SPELLINGS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub dir").mkdir(parents=True)
    (root / "index.html").write_text('<a href="sub%20dir/">x</a>')
    (root / "sub dir" / "index.html").write_text("<p>deep</p>")
    (root / "style.css").write_text("p { margin: 0 }")
    (root / "noname").write_bytes(b"\0\1")
    (tmp_path / "secret").write_text("outside")
    return root


@pytest.mark.parametrize(
    ("target", "status", "kind"),
    [
        ("/", 200, "text/html"),
        ("/index.html?a=1", 200, "text/html"),
        ("/sub%20dir/", 200, "text/html"),
        ("/sub%20dir", 301, "text/plain"),
        ("/style.css", 200, "text/css"),
        ("/noname", 200, "application/octet-stream"),
        ("/gone.html", 404, "text/plain"),
        ("/style.css/", 404, "text/plain"),
        ("/../secret", 400, "text/plain"),
        ("/%2e%2e/secret", 400, "text/plain"),
        ("/a%00b", 400, "text/plain"),
    ],
)
def test_a_folder_is_served_as_a_plain_static_server_does(folder: Path, target: str, status: int, kind: str) -> None:
    """Types come from names, folders from their index.html, and nothing from outside the folder."""
    page = file_finder(folder)("any.test", target, 0)
    assert (page.status, page.content_type) == (status, kind)


@contextlib.contextmanager
def program(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The server in a process of its own, and its port."""
    command = [sys.executable, str(REPOSITORY / "tests/site/server.py"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


async def test_the_program_serves_a_folder_and_writes_its_ledger(folder: Path, tmp_path: Path) -> None:
    """One flushed line per request: start, end, requests in service, path, status; SIGTERM ends it with 0."""
    notes = tmp_path / "ledger.jsonl"
    with program("--port", "0", "--root", str(folder), "--delay", "0.2", "--ledger", str(notes)) as (process, port):
        async with aiohttp.ClientSession() as session:
            home = f"http://127.0.0.1:{port}/"
            assert (await get(session, home))[1]["Content-Type"] == "text/html"
            await asyncio.gather(*(get(session, f"{home}style.css") for _ in range(3)))
        ledger = Ledger.read(notes)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert set(json.loads(notes.read_text().splitlines()[0])) == {*("start_s", "end_s", "host", "path", "status")}
    assert ledger.counts() == {f"http://127.0.0.1:{port}/": 1, f"http://127.0.0.1:{port}/style.css": 3}
    assert ledger.max_in_service() == 3
    assert min(visit.end_s - visit.start_s for visit in ledger.visits) >= 0.019


async def test_the_program_serves_the_small_web_without_a_root() -> None:
    """The hosts are told apart by the Host header."""
    with program() as (_, port):
        async with aiohttp.ClientSession() as session:
            headers = {"Host": "beta.test"}
            async with session.get(f"http://127.0.0.1:{port}/notes.txt", headers=headers) as answer:
                assert answer.content_type == "text/plain"


def test_the_program_names_a_root_that_is_missing(tmp_path: Path) -> None:
    """A wrong folder is a usage error, before anything is served."""
    command = [sys.executable, str(REPOSITORY / "tests/site/server.py"), "--root", str(tmp_path / "gone")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert f"--root {tmp_path / 'gone'}: no such folder" in ended.stderr
