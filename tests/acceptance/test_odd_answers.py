"""A crawl with --warc of servers that break the rules: strangers find in its files all that was received."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from warcio.archiveiterator import ArchiveIterator

from tests.acceptance.archive import archived
from tests.acceptance.command import anabranch, crawl_log, write_order
from tests.crawler.archive.exchanges import warcs
from tests.crawler.fetch.odd_answers import FAMILIES, PAGE

pytestmark = pytest.mark.slow

SITE = "pages.test"
#: What is sent for a target of the site, with a cookie and without: head and body.
Sent = tuple[bytes, bytes]


def sent(body: bytes, *fields: bytes, status: bytes = b"200 OK", kind: bytes = b"text/html") -> Sent:
    """An answer with lines that are no fields in its head, so that each of them is repaired."""
    odd = (b"PHP Warning:  x in y on line 1", b"Content-Encoding : br", b"\xe2\x80\x98x\xe2\x80\x99: 1", b"\xa0")
    lines = [b"HTTP/1.1 " + status, b"Content-Type: " + kind, *odd, *fields]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", b""]), body


#: Pages whose links are found only if they are read as browsers read them, and what these lead to.
PAGES: Mapping[str, Sent] = {
    "/": sent(b"".join(b"<a href=/%b>" % name for name in b"late guess lie half moved cookie no feed".split())),
    "/late": sent(b" " * 2000 + "<meta charset=shift_jis><a href=/late/in?q=検索>".encode("shift_jis")),
    "/late/in?q=%8C%9F%8D%F5": sent(b"<p>searched"),
    "/guess": sent("<p>Съешь же ещё этих мягких французских булок<a href=/guess/in>".encode("windows-1251")),
    "/guess/in": sent(b"<p>guessed"),
    "/lie": sent(b"<a href=/lie/in>", b"Content-Encoding: gzip"),
    "/lie/in": sent(b"<p>lied", b"Content-Encoding: gzip, gzip"),
    "/half": sent(
        gzip.compress(b"<a href=/half/in>" + bytes(range(256)) * 9, mtime=0)[:-20], b"Content-Encoding: gzip"
    ),
    "/half/in": sent(gzip.compress(b"<p>half", mtime=0), b"Content-Encoding: x-gzip"),
    "/moved": sent(b"<p>moved", b"Location: /\xe4?\xe4", status=b"302 \xe4"),
    "/%E4?%E4": sent(b"<p>bytes", kind=b"text/html; charset=\xe4"),
    "/cookie": sent(b"<p>once more", b"Location: /cookie", b"Set-Cookie: known=1", status=b"302 Found"),
    "/feed": sent(b"Notice: x\n<rss><channel><item><link>/feed/in?a&b</link></channel>", kind=b"text/html, x/rss+xml"),
    "/feed/in?a&b": sent(b"<p>fed"),
    "/robots.txt": sent(b"User-agent: *\nDisallow: /no\n", b"Content-Encoding: gzip", kind=b"text/plain"),
}
WITH_COOKIE: Mapping[str, Sent] = {"/cookie": sent(b"<p>welcome")}
ABSENT = sent(b"", status=b"404 Not Found")


class Answer(NamedTuple):
    """An answer as it goes over the wire, and the body in it."""

    data: bytes
    payload: bytes


def answers_of_kinds() -> dict[str, Answer]:
    """Each kind of head and framing is the answer of a host, with a body of its own."""
    found = {}
    kinds = [
        odd for family in FAMILIES.values() for odd in family.values() if odd.repairs and odd[2:5] == (200, PAGE, False)
    ]
    for number, (_, data, *_) in enumerate(kinds[::3]):  # each family has some dozens
        own = b"%04d" % number  # as long as `page`
        found[f"kind{number}.test"] = Answer(data.replace(b"page", own), PAGE.replace(b"page", own))
    return found


class Server:
    """Answers each request by its host and target, and closes the connection."""

    def __init__(self, kinds: Mapping[str, Answer]) -> None:
        self._kinds = kinds
        self.port = 0
        self.sent: list[tuple[str, Answer]] = []  #: URL, and what was sent for it

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            target = head.split()[1]
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            host = fields["host"].partition(":")[0]
            answer = self._kinds.get(host) if target == "/" else None
            if answer is None:
                table = {**PAGES, **(WITH_COOKIE if "cookie" in fields else {})} if host == SITE else {}
                found = table.get(target, ABSENT)
                answer = Answer(b"".join(found), found[1])
            self.sent.append((f"http://{host}{target}", answer))
            writer.write(answer.data)
            await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server(answers_of_kinds())
    listening = await asyncio.start_server(made.talk, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()
    await listening.wait_closed()


def blocks(job: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """URL -> head and body of each response record, in order, without a look of the reader at what is in them."""
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    for path in warcs(job / "warc"):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, no_record_parse=True):
                if record.rec_type == "response":
                    head, _, body = record.raw_stream.read().partition(b"\r\n\r\n")
                    found.setdefault(record.rec_headers.get_header("WARC-Target-URI"), []).append((head, body))
    return found


async def test_strangers_find_each_line_and_each_body_that_was_received(tmp_path: Path, server: Server) -> None:
    """Status lines, odd lines, chunks, encodings, lies about gzip, redirects for cookies: none is lost, none is another's."""
    kinds = answers_of_kinds()
    hosts = dict.fromkeys([SITE, *kinds], f"127.0.0.1:{server.port}")
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("".join(f"http://{host}/\n" for host in hosts))
    order = write_order(
        tmp_path,
        hosts,
        fetch={"cookies": True, "allow_private": True},
        extract={"sitemaps": True},
        write={"revisit": False},
    )
    job = tmp_path / "job"
    run = await anabranch("crawl", seeds, "-c", order, "--job", job, "--warc", cwd=tmp_path)
    assert run.code == 0, run.err
    statuses = crawl_log(job)
    expected = {f"http://{host}/": 200 for host in kinds} | {f"http://{SITE}{target}": 200 for target in PAGES}
    expected |= {f"http://{SITE}/moved": 302, f"http://{SITE}/no": -9998}
    del expected[f"http://{SITE}/robots.txt"]
    assert {url: status for url, status in statuses.items() if not url.endswith("/sitemap.xml")} == expected

    found = archived(job)  # digests, lengths, indexes, by two readers
    assert len(found.answers) == len(server.sent)
    read, lost = blocks(job), []
    for url, answer in server.sent:
        head, body = read[url].pop(0)
        lost += [(url, line) for line in lines_of(answer.data) if line not in head]
        assert body == answer.payload, url
    assert lost == []
    assert not any(read.values())

    again = await anabranch("index", job, cwd=tmp_path)
    assert again.code == 0, again.err
    indexed = [
        json.loads(line.split(b" ", 2)[2])
        for path in (job / "warc").glob("*.cdxj")
        for line in path.read_bytes().splitlines()
    ]
    assert {(entry["url"], int(entry["status"])) for entry in indexed} >= {
        (url, status) for url, status in statuses.items() if status > 0
    }


def lines_of(data: bytes) -> list[bytes]:
    """The lines of an answer's last head, as a record has them; those that the record corrects are left out."""
    first = b"HTTP/1.1 103 Early Hints", b"http/1.1 103 early hints"
    if data.startswith(first):
        data = data.partition(b"\r\n\r\n")[2]
    head = data.lstrip(b"\r\n").replace(b"\r\n", b"\n").partition(b"\n\n")[0].replace(b"\r", b" ").replace(b"\0", b" ")
    return [
        line for line in head.split(b"\n")[1:] if not line.lower().startswith((b"content-length", b"transfer-encoding"))
    ]
