"""Answers that the parser library refuses: what browsers read of them is read, and nothing else."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.client_proto import ResponseHandler
from warcio.statusandheaders import StatusAndHeadersParser

from anabranch.crawler.archive.records import response_head
from anabranch.crawler.fetch import repairs
from anabranch.crawler.fetch.connections import READ_BUFFER_BYTES
from anabranch.crawler.fetch.exchange import MAX_HEADERS, parse_cut_head
from anabranch.crawler.fetch.repairs import (
    MAX_SIZE_LINE_BYTES,
    MAX_TRAILER_BYTES,
    ChunkReader,
    Repair,
    may_be_head,
    repaired_head,
)
from anabranch.crawler.fetch.response import Cut
from anabranch.crawler.outcomes.failures import BadHttp, KeptConnectionClosed
from tests.crawler.fetch.servers import Web, get_raw

if TYPE_CHECKING:
    from types import FrameType

STATUS, LINES, FRAMING, CHUNKS = Repair.STATUS_LINE, Repair.LINES, Repair.FRAMING, Repair.CHUNKS
PAGE = b"<p>page"
LENGTH = b"Content-Length: 7\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
IN_CHUNKS = b"7\r\n<p>page\r\n0\r\n\r\n"


def answer(status: bytes = b"HTTP/1.1 200 OK\r\n", fields: bytes = LENGTH, body: bytes = PAGE) -> bytes:
    return status + b"Content-Type: text/html\r\nX-Before: 1\r\n" + fields + b"X-Behind: 2\r\n\r\n" + body


#: Name of a kind -> an answer that the library refuses, and what is repaired.
KINDS: dict[str, tuple[bytes, tuple[Repair, ...]]] = {
    # lines that are no fields
    "PHP warning": (answer(fields=b"PHP Warning:  Undefined index in /x.php on line 3\r\n" + LENGTH), (LINES,)),
    "no colon": (answer(fields=b"Warning\r\n" + LENGTH), (LINES,)),
    "no colon and spaces": (answer(fields=b"this is not a field\r\n" + LENGTH), (LINES,)),
    "HTML": (answer(fields=b"<b>Notice</b>: Undefined variable\r\n" + LENGTH), (LINES,)),
    "HTML with a colon in an attribute": (answer(fields=b'<a href="http://x/">y</a>\r\n' + LENGTH), (LINES,)),
    "status line once more": (answer(fields=b"HTTP/1.1 200 OK\r\n" + LENGTH), (LINES,)),
    "status line of a proxy": (answer(fields=b"HTTP/1.0 200 Connection established\r\n" + LENGTH), (LINES,)),
    "request line": (answer(fields=b"GET / HTTP/1.1\r\n" + LENGTH), (LINES,)),
    "space in the name": (answer(fields=b"My Header: 1\r\n" + LENGTH), (LINES,)),
    "space before the colon": (answer(fields=b"X-Odd : 1\r\n" + LENGTH), (LINES,)),
    "tab before the colon": (answer(fields=b"X-Odd\t: 1\r\n" + LENGTH), (LINES,)),
    "brackets": (answer(fields=b"X-[a]: 1\r\n" + LENGTH), (LINES,)),
    "quotes": (answer(fields=b'"X-Odd": 1\r\n' + LENGTH), (LINES,)),
    "typographic quotes": (answer(fields="\u2018allow-origin\u2019: *\r\n".encode() + LENGTH), (LINES,)),
    "umlaut in Latin-1": (answer(fields=b"X-B\xfccher: 1\r\n" + LENGTH), (LINES,)),
    "at sign": (answer(fields=b"@x: 1\r\n" + LENGTH), (LINES,)),
    "slash": (answer(fields=b"text/html: 1\r\n" + LENGTH), (LINES,)),
    "semicolon": (answer(fields=b"charset=utf-8; a: 1\r\n" + LENGTH), (LINES,)),
    "comma": (answer(fields=b"a,b: 1\r\n" + LENGTH), (LINES,)),
    "equals sign": (answer(fields=b"a=b: 1\r\n" + LENGTH), (LINES,)),
    "brace": (answer(fields=b'{"error": 1}\r\n' + LENGTH), (LINES,)),
    "backslash": (answer(fields=b"a\\b: 1\r\n" + LENGTH), (LINES,)),
    "empty name": (answer(fields=b": 1\r\n" + LENGTH), (LINES,)),
    "control character in a name": (answer(fields=b"X-\x01: 1\r\n" + LENGTH), (LINES,)),
    "NUL in a name": (answer(fields=b"X-\x00: 1\r\n" + LENGTH), (LINES,)),
    "byte order mark": (answer(fields=b"\xef\xbb\xbfX-Odd: 1\r\n" + LENGTH), (LINES,)),
    "bare CR in a value": (answer(fields=b"X-Odd: a\rb\r\n" + LENGTH), (LINES,)),
    "bare CR that hides a field": (answer(fields=b"X-Odd: a\rSet-Cookie: b=1\r\n" + LENGTH), (LINES,)),
    "bare CR in a name": (answer(fields=b"X\r-Odd: a\r\n" + LENGTH), (LINES,)),
    "folded behind a dropped line": (answer(fields=b"no field\r\n and: more\r\n" + LENGTH), (LINES,)),
    "folded twice behind a dropped line": (answer(fields=b"<pre>\r\n at x:1\r\n\tat y:2\r\n" + LENGTH), (LINES,)),
    "many": (answer(fields=b"trace of a call\r\n" * 500 + LENGTH), (LINES,)),
    "LF lines with one that is none": (answer(fields=b"Warning\nX-Odd: 1\n" + LENGTH), (LINES,)),
    "line breaks before": (b"\r\n\n\r\n" + answer(fields=b"Warning\r\n" + LENGTH), (LINES,)),
    # status lines
    "no minor version": (answer(b"HTTP/1 200 OK\r\n"), (STATUS,)),
    "lower case": (answer(b"http/1.1 200 ok\r\n"), (STATUS,)),
    "mixed case": (answer(b"Http/1.1 200 OK\r\n"), (STATUS,)),
    "two spaces": (answer(b"HTTP/1.1  200 OK\r\n"), (STATUS,)),
    "tab": (answer(b"HTTP/1.1\t200 OK\r\n"), (STATUS,)),
    "space before": (answer(b" HTTP/1.1 200 OK\r\n"), (STATUS,)),
    "no version": (answer(b"HTTP 200 OK\r\n"), (STATUS,)),
    "no space behind the status": (answer(b"HTTP/1.1 200OK\r\n"), (STATUS,)),
    "later version": (answer(b"HTTP/3.0 200 OK\r\n"), (STATUS,)),
    "long version": (answer(b"HTTP/1.10 200 OK\r\n"), (STATUS,)),
    # framing
    "length and chunked": (answer(fields=LENGTH + CHUNKED, body=IN_CHUNKS), (FRAMING,)),
    "chunked and length": (answer(fields=CHUNKED + b"Content-Length: 3\r\n", body=IN_CHUNKS), (FRAMING,)),
    "chunked and a bad length": (answer(fields=CHUNKED + b"Content-Length: x\r\n", body=IN_CHUNKS), (FRAMING,)),
    "equal lengths": (answer(fields=LENGTH + LENGTH), (FRAMING,)),
    "equal lengths in one field": (answer(fields=b"Content-Length: 7, 7\r\n"), (FRAMING,)),
    "equal lengths of unequal form": (answer(fields=LENGTH + b"Content-Length: 07\r\n"), (FRAMING,)),
    "a length and one that is none": (answer(fields=LENGTH + b"Content-Length: x\r\n"), (FRAMING,)),
    "length in words": (answer(fields=b"Content-Length: seven\r\n"), (FRAMING,)),
    "length with a sign": (answer(fields=b"Content-Length: +7\r\n"), (FRAMING,)),
    "negative length": (answer(fields=b"Content-Length: -1\r\n"), (FRAMING,)),
    "decimal length": (answer(fields=b"Content-Length: 7.0\r\n"), (FRAMING,)),
    "length with a unit": (answer(fields=b"Content-Length: 7 bytes\r\n"), (FRAMING,)),
    "length in quotes": (answer(fields=b'Content-Length: "7"\r\n'), (FRAMING,)),
    "hexadecimal length": (answer(fields=b"Content-Length: 0x7\r\n"), (FRAMING,)),
    "endless length": (answer(fields=b"Content-Length: " + b"9" * 30 + b"\r\n"), (FRAMING,)),
    "length with spaces in it": (answer(fields=b"Content-Length: 1 000\r\n"), (FRAMING,)),
    "length in Arabic digits": (answer(fields="Content-Length: \u0667\r\n".encode()), (FRAMING,)),
    "identity and a length": (answer(fields=b"Transfer-Encoding: identity\r\n" + LENGTH), (FRAMING,)),
    "line and framing": (answer(fields=b"Warning\r\n" + LENGTH + LENGTH), (LINES, FRAMING)),
    "all three": (answer(b"http/1 200 ok\r\n", b"Warning\r\n" + LENGTH + CHUNKED, IN_CHUNKS), (STATUS, LINES, FRAMING)),
    # chunks
    "LF behind sizes": (answer(fields=CHUNKED, body=b"7\n<p>page\n0\n\n"), (CHUNKS,)),
    "space before a size": (answer(fields=CHUNKED, body=b" 7\r\n<p>page\r\n0\r\n\r\n"), (CHUNKS,)),
    "tab before a later size": (answer(fields=CHUNKED, body=b"3\r\n<p>\r\n\t4\r\npage\r\n0\r\n\r\n"), (CHUNKS,)),
    "LF from the second chunk on": (answer(fields=CHUNKED, body=b"3\r\n<p>\r\n4\npage\n0\n\n"), (CHUNKS,)),
    "LF and a trailer": (answer(fields=CHUNKED, body=b"7\n<p>page\n0\nX-Trailer: 1\n\n"), (CHUNKS,)),
    "line and chunks": (answer(fields=b"Warning\r\n" + CHUNKED, body=b"7\n<p>page\n0\n\n"), (LINES, CHUNKS)),
    # heads before the final one
    "early hints with a line that is none": (b"HTTP/1.1 103 Early Hints\r\nno field\r\n\r\n" + answer(), ()),
    "early hints before a head with one": (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer(fields=b"Warning\r\n" + LENGTH),
        (LINES,),
    ),
    "early hints in lower case": (b"http/1.1 103 early hints\r\n\r\n" + answer(b"http/1.1 200 ok\r\n"), (STATUS,)),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_browsers_read_is_read(site: Web, kind: str, size: int) -> None:
    """However it is cut into packets; what was repaired is named. Fields before and behind the odd one count."""
    sent, repaired = KINDS[kind]
    response = await get_raw(site, *(sent[place : place + size] for place in range(0, len(sent), size)))
    assert (response.status, response.body.read(), response.cuts) == (200, PAGE, ())
    assert (response.headers["Content-Type"], response.headers["X-Before"], response.headers["X-Behind"]) == (
        "text/html",
        "1",
        "2",
    )
    assert response.repairs == repaired
    assert "Set-Cookie" not in response.headers


@pytest.mark.parametrize("kind", [kind for kind, (_, repaired) in KINDS.items() if LINES in repaired])
async def test_the_archive_has_each_line_as_received(site: Web, kind: str) -> None:
    """Also what was dropped; only the framing is corrected, and line breaks that are none."""
    sent, _ = KINDS[kind]
    response = await get_raw(site, sent)
    final = sent[sent.index(b"Content-Type") : sent.index(b"X-Behind")]
    head = response_head(response)
    for line in final.replace(b"\r\n", b"\n").split(b"\n"):
        if not line.lower().startswith((b"content-length", b"transfer-encoding")):
            assert line.replace(b"\r", b" ").replace(b"\0", b" ") in head
    assert head.count(b"\r\nContent-Length: 7\r\n") == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"<html>no HTTP",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"220 smtp.x.test ready\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/one 200 OK\r\n\r\n",
        b"HTTPS/1.1 200 OK\r\n\r\n",
        b"Content-Length: 5\r\n\r\nhello",
        answer(fields=LENGTH + b"Content-Length: 8\r\n"),
        answer(fields=b"Content-Length: 7, 8\r\n"),
        answer(fields=CHUNKED, body=b"g\r\n"),
        answer(fields=CHUNKED, body=b"\r\n7\r\n<p>page\r\n0\r\n\r\n"),
        answer(fields=CHUNKED, body=b"-7\r\n<p>page\r\n0\r\n\r\n"),
        answer(fields=CHUNKED, body=b"0x7\r\n<p>page\r\n0\r\n\r\n"),
        answer(fields=CHUNKED, body=b"hello"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
async def test_what_browsers_cannot_read_is_a_failure_of_its_own(site: Web, sent: bytes, size: int) -> None:
    """It fails at once, without a wait for more bytes."""
    with pytest.raises(BadHttp):
        await get_raw(site, *(sent[place : place + size] for place in range(0, len(sent), size)))


@pytest.mark.parametrize("body", [b"4\n<p>p\n3\nage", b"4\n<p>p\n3\nagexx\n0\n\n", b"4\n<p>p\n3\nage\nzz\n"])
@pytest.mark.parametrize("size", [1, 1000])
async def test_what_was_read_before_a_chunk_without_sense_is_kept(site: Web, body: bytes, size: int) -> None:
    """The body counts as one that broke off."""
    sent = answer(fields=CHUNKED, body=body)
    parts = [sent[place : place + size] for place in range(0, len(sent), size)]
    response = await get_raw(site, *parts, keep_broken=True)
    assert (response.body.read(), response.cuts, response.repairs) == (PAGE, (Cut.DISCONNECT,), (CHUNKS,))


async def test_a_large_body_is_kept_up_to_a_chunk_that_the_library_refuses(site: Web) -> None:
    """Its first bytes are no longer there to be read once more."""
    size = READ_BUFFER_BYTES * 2
    sent = answer(fields=CHUNKED, body=b"%x\r\n%s\r\n 5\nhello\n0\n\n" % (size, b"x" * size))
    response = await get_raw(site, sent[:-30], sent[-30:], keep_broken=True, max_body_bytes=2 * size)
    assert (response.body.size, response.cuts) == (size, (Cut.DISCONNECT,))


@pytest.mark.parametrize(
    "sent",
    [
        answer(fields=b"Warning\r\n" + LENGTH),
        answer(b"http/1.1 200 ok\r\n"),
        answer(fields=LENGTH + CHUNKED, body=IN_CHUNKS),
        answer(fields=CHUNKED, body=b"7\n<p>page\n0\n\n"),
    ],
)
@pytest.mark.parametrize("smuggled", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"])
async def test_a_connection_with_a_repaired_answer_is_never_used_again(site: Web, sent: bytes, smuggled: bytes) -> None:
    """What stands behind it is the answer to no request (O5)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(sent + smuggled)

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetcher = site.fetcher()
    for number in (1, 2, 3):
        response = await fetcher.get(url)
        assert (response.body.read(), site.connections, response.has_surplus) == (PAGE, number, bool(smuggled))


async def test_a_dropped_line_decides_nothing(site: Web) -> None:
    """Neither where the body ends, nor where the page moved, nor a cookie."""
    odd = b"Content-Length : 3\r\nTransfer-Encoding\t: chunked\r\nLocation : http://evil.test/\r\nSet-Cookie : a=b\r\n"
    response = await get_raw(site, answer(b"HTTP/1.1 302 Found\r\n", odd + LENGTH))
    assert (response.body.read(), response.location, response.headers.getall("Set-Cookie", [])) == (PAGE, None, [])
    head = response_head(response)
    assert b"X-Crawler-Content-Length : 3\r\n" in head
    assert b"X-Crawler-Transfer-Encoding\t: chunked\r\n" in head


@pytest.mark.parametrize(
    "line",
    [
        b"Location : http://evil.test/",
        b"Location\t: http://evil.test/",
        b"\x0bLocation: http://evil.test/",
        b"Location: http://evil.test/\r x",
        b"Location: http://evil.test/\0",
        b"Content-Encoding : gzip",
        b"Content-Type : image/png",
        b"\t \t",
        b"\x0c",
        b"\x1c\x1f",
        b"\x85",
        b"\xa0",
        b" \xc2\xa0",
        "\u3000".encode(),
        "\u2018allow-origin\u2019: *".encode(),
        "\ufeffX: 1".encode(),
        "warnung in Zeile f\xfcnf".encode(),
    ],
)
@pytest.mark.parametrize("place", ["first", "behind a field", "behind a dropped line", "last"])
async def test_a_dropped_line_decides_nothing_in_the_archive_either(site: Web, line: bytes, place: str) -> None:
    """Readers find the same fields as the crawl did, and each line; none is read as the end of the head."""
    before, behind = {
        "first": (b"", b"X-A: a\r\nno field\r\nX-B: b\r\n"),
        "behind a field": (b"no field\r\nX-A: a\r\n", b"X-B: b\r\n"),
        "behind a dropped line": (b"X-A: a\r\nno field\r\n", b"X-B: b\r\n"),
        "last": (b"X-A: a\r\nno field\r\nX-B: b\r\n", b""),
    }[place]
    response = await get_raw(site, b"HTTP/1.1 200 OK\r\n" + before + line + b"\r\n" + behind + LENGTH + b"\r\n" + PAGE)
    head = response_head(response)
    stream = BytesIO(head + PAGE)
    read = StatusAndHeadersParser(["HTTP/1.1"]).parse(stream)
    named = [(name, value) for name, value in read.headers if not name.startswith("X-Crawler-Line-")]
    assert [(name, value.rstrip()) for name, value in named] == [("X-A", "a"), ("X-B", "b"), ("Content-Length", "7")]
    assert stream.read() == PAGE
    assert re.sub(rb"[\r\0]+", b" ", line) in head


@pytest.mark.parametrize("head", [b"http/1.1 200 ok\r\n", b"HTTP 200\n"])
async def test_a_repaired_head_without_fields_has_none_in_the_archive(site: Web, head: bytes) -> None:
    """An empty line would be the first one of the payload."""
    response = await get_raw(site, head + b"\r\n" + PAGE)
    assert response_head(response).count(b"\r\n") == 2
    assert response.body.read() == PAGE


async def test_folded_lines_of_a_field_stay_its_own_in_the_archive(site: Web) -> None:
    """Also those that look like fields, or are no ASCII."""
    odd = b"no field\r\nX-Note: a\r\n \xfcber: b\r\n\t\xc3\xbc: c\r\n d : e\r\n"
    lines = response_head(await get_raw(site, answer(fields=odd + LENGTH))).split(b"\r\n")
    assert lines[-8:-2] == [
        b"X-Note: a",
        b" \xfcber: b",
        b"\t\xc3\xbc: c",
        b" d : e",
        b"Content-Length: 7",
        b"X-Behind: 2",
    ]


async def test_a_head_that_is_refused_is_bounded_like_every_other(site: Web) -> None:
    """Its lines are kept up to the bound, and then the answer is cut."""
    response = await get_raw(site, b"HTTP/1.1 200 OK\r\nno field\r\n" + b"X: 1\r\n" * 100_000)
    assert response.cuts == (Cut.HEADERS,)


async def test_dropped_lines_beyond_the_bound_are_noted(site: Web) -> None:
    """The record has the first ones, and the log says that there were more."""
    response = await get_raw(site, answer(fields=b"no field\r\n" * 2 * MAX_HEADERS + LENGTH))
    assert (len(response.received), response.cuts) == (MAX_HEADERS, (Cut.HEADERS,))
    assert (response.body.read(), response.headers["X-Behind"]) == (PAGE, "2")


@pytest.mark.parametrize("rest", [b"\r\n" + PAGE, b"X: 1\r\n" * 30_000], ids=["a head", "a head without end"])
@pytest.mark.parametrize("version", [b"9" * 10_000, b"1." + b"9" * 10_000, b"0" * 10_000 + b"1.1"])
async def test_a_version_of_ten_thousand_digits_is_read_like_any(site: Web, version: bytes, rest: bytes) -> None:
    """Its first digits count: no number of the server's breaks the crawl."""
    response = await get_raw(site, b"HTTP/" + version + b" 200 OK\r\nno field\r\n" + rest)
    assert (response.status, len(response.version) < 25) == (200, True)


@pytest.mark.parametrize("early", [b"HTTP/1.1 103 Early Hints\r\n\r\n", b"http/1.1 103 x\r\nno field\r\n\r\n"])
async def test_a_head_without_end_begins_behind_the_informational_ones(site: Web, early: bytes) -> None:
    """Also behind those that were repaired."""
    response = await get_raw(
        site, early * 2 + answer(b"HTTP/1.1 302 Found\r\n", b"Location: /x\r\n" + b"X: %b\r\n" % (b"1" * 1000) * 200)
    )
    assert (response.status, response.location, response.cuts) == (302, "/x", (Cut.HEADERS,))


SMUGGLED = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nno field\r\n\r\n" + answer() + SMUGGLED, 200, PAGE),
        (b"http/1.1 100 x\r\n\r\n" * 3 + answer() + SMUGGLED, 200, PAGE),
        (answer(b"HTTP/1.1 204 No Content\r\n", b"Warning\r\n" + LENGTH, b"") + SMUGGLED, 204, b""),
        (answer(b"HTTP/1.1 304 Not Modified\r\n", b"Warning\r\n" + LENGTH, b"") + SMUGGLED, 304, b""),
        (answer(fields=b"Warning\r\nContent-Length: 0\r\n", body=b"") + SMUGGLED, 200, b""),
        (answer(fields=CHUNKED, body=b"7\n<p>page\n0\nX: 1\n\n") + SMUGGLED, 200, PAGE),
        (answer(fields=CHUNKED + b"Content-Length: 100\r\n", body=b" 7\n<p>page\n0\n\n") + SMUGGLED, 200, PAGE),
        (answer(fields=b"Content-Length: 7\r\nX: a\rContent-Length: 99\r\n") + SMUGGLED, 200, PAGE),
        (answer(fields=LENGTH + b"\r X: folded\r\n") + SMUGGLED, 200, PAGE),
        # With no length all up to the end of the connection is the page, a second answer in it included.
        (answer(fields=b"Content-Length: x\r\n", body=PAGE + SMUGGLED), 200, PAGE + SMUGGLED),
        (answer(fields=b"Transfer-Encoding: identity\r\n", body=PAGE + SMUGGLED), 200, PAGE + SMUGGLED),
        (
            answer(fields=b"Warning\r\nContent-Length: 49\r\n", body=b"<p>\r\n\r\n" + SMUGGLED[:42]),
            200,
            b"<p>\r\n\r\n" + SMUGGLED[:42],
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 50, 1000])
async def test_a_second_answer_is_never_that_of_another_url(
    site: Web, sent: bytes, status: int, body: bytes, size: int
) -> None:
    """Wherever it stands: behind a repaired head, behind its body, in the body. Each URL has a connection of its own."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                for place in range(0, len(sent), size):
                    writer.write(sent[place : place + size])
                    await asyncio.sleep(0)
                if body.endswith(SMUGGLED):
                    writer.close()

    fetcher, port = site.fetcher(), await site.listen(talk)
    for number in (1, 2):
        response = await fetcher.get(f"http://127.0.0.1:{port}/{number}")
        assert (response.url, response.status, response.body.read()) == (
            f"http://127.0.0.1:{port}/{number}",
            status,
            body,
        )
        assert site.connections == number


@pytest.mark.parametrize("breaks", [b"\r\n", b"\n"])
async def test_line_breaks_before_a_head_are_parsed_together(site: Web, breaks: bytes) -> None:
    """Each by itself would copy the rest of its packet: seconds of the crawl's time for a packet."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is ResponseHandler.data_received.__code__

    sys.setprofile(count)
    try:
        response = await get_raw(site, breaks * 50_000 + answer())
    finally:
        sys.setprofile(None)
    assert (response.status, response.body.read()) == (200, PAGE)
    assert calls < 200


async def test_a_kept_connection_that_says_no_http_fails_no_url(site: Web) -> None:
    """It may be the end of another answer: the URL is asked for again."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"nonsense\r\n\r\n")
            await reader.read()

    fetcher, url = site.fetcher(), f"http://127.0.0.1:{await site.listen(talk)}/"
    await fetcher.get(url)
    with pytest.raises(KeptConnectionClosed):
        await fetcher.get(url)


@pytest.mark.parametrize("body", [(LENGTH, PAGE), (CHUNKED, IN_CHUNKS)])
async def test_a_good_answer_calls_no_function_of_the_repairs(site: Web, body: tuple[bytes, bytes]) -> None:
    """The quick path is the library's: measured by the interpreter's own hook, with a repaired answer as the control."""

    async def functions(sent: bytes) -> set[str]:
        called = set()

        def note(frame: FrameType, event: str, _: Any) -> None:
            name = frame.f_code.co_filename
            if event == "call" and (name == repairs.__file__ or frame.f_code.co_name.startswith("_repair")):
                called.add(frame.f_code.co_name)

        sys.setprofile(note)
        try:
            response = await get_raw(site, sent)
        finally:
            sys.setprofile(None)
        assert response.body.read() == PAGE
        return called

    assert await functions(answer(fields=body[0], body=body[1])) == set()
    assert "_repair_head" in await functions(answer(fields=b"Warning\r\n" + body[0], body=body[1]))


# The parts without a connection


def test_a_head_is_written_anew_with_one_framing_field() -> None:
    """In a form that can be read in one way only."""
    head = repaired_head(
        b"http/1  204  No\x01 Content \r\nContent-Length: 1\r\nA: b\r\n c\r\nTransfer-Encoding: x, Chunked\r\n\r\n"
    )
    assert head is not None
    assert head.data == b"HTTP/1.0 204 No  Content\r\nA: b c\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert head.received == (b"Content-Length: 1", b"A: b", b" c", b"Transfer-Encoding: x, Chunked")


@pytest.mark.parametrize("coding", [b"gzip", b"chunked, gzip", b"identity", b""])
def test_a_body_that_is_not_chunked_last_ends_with_the_connection(coding: bytes) -> None:
    """RFC 9112 section 6.3; a length beside it would be a guess. Without a coding the length counts."""
    head = repaired_head(b"HTTP/1.1  200 OK\r\nTransfer-Encoding: %s\r\nContent-Length: 3\r\n\r\n" % coding)
    assert head is not None
    length = b"" if coding in (b"gzip", b"chunked, gzip") else b"Content-Length: 3\r\n"
    assert head.data == b"HTTP/1.1 200 OK\r\n" + length + b"\r\n"


@pytest.mark.parametrize("start", [b"", b"H", b" \tht", b"HTTP/1.", b"http/1.1 200 ok\r\nX: y"])
def test_the_start_of_a_status_line_may_become_one(start: bytes) -> None:
    """So its end is waited for."""
    assert may_be_head(start)


@pytest.mark.parametrize("start", [b"x", b"HX", b"<html", b"HTTP/1.1\n", b"HTTP/1.1 20\r\n"])
def test_what_begins_otherwise_never_becomes_one(start: bytes) -> None:
    """So nobody waits."""
    assert not may_be_head(start)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\nX:\n" + b" x\n" * 400_000,
        b"HTTP/1.1 200 OK\n" + b"Content-Length: 1\n" * 30_000 + b"a:\n" * 120_000,
        b"HTTP/1.1 200" + b" " * 100_000 + b"\rx\n",
        b" \t" * 50_000 + b"HTTP/1.1 200" + b" " * 100_000 + b"\r\r\n",
        b"HTTP/" + b"1" * 100_000 + b"." + b"1" * 100_000 + b" 200" + b"1" * 100_000 + b"\n",
        b"HTTP/1.1 200\n" + b"HTTP/1.1 100\n" * 20_000,
    ],
    ids=["folded lines", "framing", "spaces", "more spaces", "digits", "status lines"],
)
def test_a_long_head_is_read_once(head: bytes) -> None:
    """Longer than any that is kept; its end is not read otherwise."""
    repaired_head(head + b"\n")
    may_be_head(head)
    parse_cut_head(head)


@pytest.mark.parametrize(
    "endless",
    [
        b"7;" + b"x" * MAX_SIZE_LINE_BYTES,
        b"7;" + b"x" * MAX_SIZE_LINE_BYTES + b"\n",
        b"0\n" + b"X: 1\n" * MAX_TRAILER_BYTES,
    ],
)
@pytest.mark.parametrize("size", [100, 10**6])
def test_lines_between_chunks_are_bounded(endless: bytes, size: int) -> None:
    """A server cannot make them grow in memory."""
    reader = ChunkReader()
    for place in range(0, len(endless), size):
        assert reader.feed(endless[place : place + size]) == b""
    assert reader.fault
