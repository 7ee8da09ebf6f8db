"""Repairs of answers that the parser library refuses: their parts, their bounds, and what becomes of the connection.

The kinds of answers are in `odd_answers`, and read by `test_odd_answers`.
"""

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
    STATUS_LINE,
    ChunkReader,
    is_chunked,
    may_be_head,
    repaired_head,
    status_of,
    version_of,
)
from anabranch.crawler.fetch.response import Cut
from anabranch.crawler.outcomes.failures import KeptConnectionClosed
from tests.crawler.fetch.odd_answers import CHUNKED, CHUNKS, IN_CHUNKS, LENGTH, OK, PAGE, answer
from tests.crawler.fetch.servers import Web, get_raw
from tests.rows import each_row

if TYPE_CHECKING:
    from types import FrameType


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
        answer(fields=b"Transfer-Encoding: chunked,\r\n", body=IN_CHUNKS),
    ],
)
async def test_what_is_smuggled_behind_a_repaired_answer_answers_no_request(site: Web, sent: bytes) -> None:
    """Its connection is never used again (O5)."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(sent + OK + b"Content-Length: 4\r\n\r\nevil")

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetcher = site.fetcher()
    for number in (1, 2):
        response = await fetcher.get(url)
        assert (response.body.read(), site.connections, response.has_surplus) == (PAGE, number, True)


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
async def test_a_dropped_line_decides_nothing_in_the_archive_either(site: Web, line: bytes) -> None:
    """Readers find the same fields as the crawl did, and each line; none is read as the end of the head, wherever it is."""
    for before, behind in (
        (b"", b"X-A: a\r\nno field\r\nX-B: b\r\n"),
        (b"no field\r\nX-A: a\r\n", b"X-B: b\r\n"),
        (b"X-A: a\r\nno field\r\n", b"X-B: b\r\n"),
        (b"X-A: a\r\nno field\r\nX-B: b\r\n", b""),
    ):
        head = b"HTTP/1.1 200 OK\r\n" + before + line + b"\r\n" + behind + LENGTH + b"\r\n"
        archived = response_head(await get_raw(site, head + PAGE))
        stream = BytesIO(archived + PAGE)
        read = StatusAndHeadersParser(["HTTP/1.1"]).parse(stream)
        named = [(name, value.rstrip()) for name, value in read.headers if not name.startswith("X-Crawler-Line-")]
        assert named == [("X-A", "a"), ("X-B", "b"), ("Content-Length", "7")], head
        assert stream.read() == PAGE, head
        assert re.sub(rb"[\r\0]+", b" ", line) in archived, head


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
def test_a_coding_that_is_not_chunked_is_ignored_and_the_length_counts(coding: bytes) -> None:
    """Chromium and wget do so; RFC 9112 section 6.3 would read up to the connection's end."""
    head = repaired_head(b"HTTP/1.1  200 OK\r\nTransfer-Encoding: %s\r\nContent-Length: 3\r\n\r\n" % coding)
    assert head is not None
    framing = b"Transfer-Encoding: chunked" if coding == b"chunked, gzip" else b"Content-Length: 3"
    assert head.data == b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n"


@each_row(
    ("line", "status", "version", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\n", 200, (1, 1), b" OK\r"),
        (b"http/1.0 404\n", 404, (1, 0), b""),
        (b"\xef\xbb\xbfHTTP/2 503\n", 503, (1, 0), b""),
        (b"abcdHTTP/2.0\t 0503x\n", 503, (1, 1), b"x"),
        (b"HTTP/11.10 200\n", 200, (1, 1), b""),
        (b"HTTP/0.9 200\n", 200, (1, 0), b""),
        (b"HTTP/x.1 200\n", 200, (1, 0), b""),
        (b"HTTP\n", 200, (1, 0), b""),
        (b"HTTP/1.1 fine\n", 200, (1, 1), b"fine"),
        (b"HTTP/1.1 " + b"0" * 9000 + b"404\n", 404, (1, 1), b""),
        (b"HTTP/" + b"9" * 9000 + b".9 404\n", 404, (1, 1), b""),
    ],
)
def test_a_status_line_is_read_as_chromium_reads_it(line, status, version, reason) -> None:
    """However long its numbers are; without one it is 200."""
    found = STATUS_LINE.match(line)
    assert found is not None
    assert (status_of(found), version_of(found), found[3]) == (status, version, reason)


@each_row("number", [b"2", b"20", b"2000", b"1" + b"0" * 9000, b"0" * 9000 + b"1234"])
def test_a_number_of_more_or_fewer_than_three_digits_is_no_status(number) -> None:
    """Nor is it left out, and taken for 200."""
    assert STATUS_LINE.match(b"HTTP/1.1   %s OK\n" % number) is None


@each_row(
    "start", [b"", b"H", b" \tht", b"x", b"HX", b"abcdHTT", b"HTTP/1.", b"HTTP/1.1\n", b"http/1.1 200 ok\r\nX: y"]
)
def test_the_start_of_a_status_line_may_become_one(start: bytes) -> None:
    """So its end is waited for."""
    assert may_be_head(start, is_first=True)


@each_row("start", [b"abcdeHTTP", b"HTXHTXHT", b"<html>  ", b"ICY 200 OK", b"HTTP/1.1 20\r\n", b"x\n"])
def test_what_begins_otherwise_never_becomes_one(start: bytes) -> None:
    """So nobody waits for more than eight bytes."""
    assert not may_be_head(start, is_first=True)


@pytest.mark.parametrize("start", [b"x", b" HTTP/1.1 200 OK\n", b"abcdHTTP/1.1 200\n", b"\xef\xbb\xbfH"])
def test_only_the_first_answer_of_a_connection_has_junk_before_it(start: bytes) -> None:
    """Before a later one it is the end of another answer (O5)."""
    assert may_be_head(start, is_first=True)
    assert not may_be_head(start, is_first=False)
    assert may_be_head(b"http/1.1 200 ok\n", is_first=False)


@pytest.mark.parametrize("value", [b"chunked", b" CHUNKED,", b",x ,chunked", b"chunked, x"])
def test_chunked_counts_wherever_it_stands(value: bytes) -> None:
    """Chromium, curl and wget take it so."""
    assert is_chunked([(b"X", b"x"), (b"transfer-Encoding", value)])
    assert not is_chunked([(b"X", value), (b"Transfer-Encoding", value.lower().replace(b"chunked", b"xchunked"))])


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
    may_be_head(head, is_first=True)
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
