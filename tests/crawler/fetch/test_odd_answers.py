"""The real fetcher reads hundreds of odd answers from a real socket as browsers do."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import pytest

from anabranch.crawler.archive.records import response_head
from anabranch.crawler.fetch.connections import HttpConnection
from anabranch.crawler.fetch.mime import mime_type
from anabranch.crawler.fetch.response import content_type_of
from anabranch.crawler.outcomes.failures import BadHttp, ConnectionLost, FetchError
from tests.crawler.fetch.odd_answers import FAMILIES, LINES, NO_ANSWER, OddAnswer
from tests.patience import HANG_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.crawler.fetch.fetcher import Fetcher
    from anabranch.crawler.fetch.response import Response
    from tests.crawler.fetch.servers import Web

LIMIT_BYTES = 1 << 20
#: Longer answers are not cut into pieces of a byte.
SHORT_BYTES = 1000

#: Families without an answer over whose connection another may come.
ALL_ODD = ("lines that are no fields", "no HTTP")

each_family = pytest.mark.parametrize("family", FAMILIES)


class Visit(NamedTuple):
    """The result of a fetch, in the words of `OddAnswer`."""

    status: int
    content: bytes
    is_cut: bool
    media_type: str


def expected(odd: OddAnswer) -> Visit:
    return Visit(odd.status, odd.content, odd.is_cut, odd.media_type if odd.status else "")


async def read(fetcher: Fetcher, url: str) -> tuple[Visit, Response | None]:
    try:
        response = await fetcher.get(url, keep_broken=True)
    except (BadHttp, ConnectionLost):
        return Visit(NO_ANSWER, b"", is_cut=False, media_type=""), None
    content, is_more = response.content(LIMIT_BYTES)
    essence = mime_type(content_type_of(response.headers)).essence
    return Visit(response.status, content, bool(response.cuts) or is_more, essence), response


async def hosts(site: Web, answers: Mapping[str, OddAnswer]) -> dict[str, str]:
    """A server of all answers, each on a host of its own; it closes a connection only where the answer ends with it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while request := await reader.readuntil(b"\r\n\r\n"):
                odd = listed[int(request.split(None, 2)[1][1:])]
                writer.write(odd.sent)
                if odd.closes:
                    return

    listed, port = list(answers.values()), await site.listen(talk)
    site.hosts |= {f"h{number}.test": "127.0.0.1" for number in range(len(listed))}
    return {name: f"http://h{number}.test:{port}/{number}" for number, name in enumerate(answers)}


def test_there_are_some_hundred() -> None:
    """In each family some dozens, under different names."""
    assert sum(map(len, FAMILIES.values())) >= 300
    assert min(map(len, FAMILIES.values())) >= 20


@each_family
async def test_they_are_read_as_browsers_read_them(site: Web, family: str) -> None:
    """Status, content and type, or no answer; what was repaired is named."""
    answers = FAMILIES[family]
    urls = await hosts(site, answers)
    fetcher, found = site.fetcher(timeout_s=HANG_S / 10), {}
    for name, url in urls.items():
        odd, (visit, response) = answers[name], await read(fetcher, url)
        if (
            response is not None and odd.lines
        ):  # fields before and behind the odd ones count, nothing that hides in those
            fields = [response.headers.get(field, "")[:1] for field in ("X-Before", "X-Behind", "Set-Cookie")]
            assert (name, fields) == (name, ["1", "2", ""])
        repairs = () if response is None else response.repairs
        found[name] = (visit, repairs if odd.repairs is not None else None)
    assert found == {name: (expected(odd), odd.repairs) for name, odd in answers.items()}


@each_family
async def test_a_connection_with_a_repaired_answer_is_never_used_again(site: Web, family: str) -> None:
    """Nor one with surplus bytes: what stands behind might answer another request (O5). Good ones are used again."""
    answers = {name: odd for name, odd in FAMILIES[family].items() if odd.status and not (odd.closes or odd.is_cut)}
    urls, fetcher, again = await hosts(site, answers), site.fetcher(timeout_s=HANG_S / 10), []
    for name, url in urls.items():
        before = site.connections
        _, first = await read(fetcher, url)
        await read(fetcher, url)
        if site.connections == before + 1:
            assert first is not None, name
            assert (name, first.repairs, first.has_surplus) == (name, (), False)
            again.append(name)
    assert bool(again) == (family not in ALL_ODD)


async def test_the_archive_has_each_line_as_received(site: Web) -> None:
    """Also what was dropped; only the framing is corrected, and line breaks that are none."""
    answers = {
        f"{family}: {name}": odd for family, found in FAMILIES.items() for name, odd in found.items() if odd.lines
    }
    urls, fetcher, lost = await hosts(site, answers), site.fetcher(timeout_s=HANG_S / 10), []
    for name, url in urls.items():
        _, response = await read(fetcher, url)
        if response is None or not (response.repairs and LINES in response.repairs):
            continue
        head = response_head(response)
        for line in answers[name].lines:
            kept = line.strip(b"\r").replace(b"\r", b" ").replace(b"\0", b" ")
            if kept not in head:
                lost.append((name, line))
        if head.count(b"\r\nContent-Length: ") > 1 or b"\r\nTransfer-Encoding:" in head:
            lost.append((name, b"framing"))
    assert not lost


class Wire(asyncio.Transport):
    """A connection's other end that only knows whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = False

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    abort = close

    def write(self, data: object) -> None:
        """Nobody reads it."""

    def pause_reading(self) -> None:
        """All bytes are here already."""

    resume_reading = pause_reading


async def pieces_read(sent: bytes, size: int) -> tuple[int, bytes, object]:
    """Status, body and repairs of an answer in pieces of this size; the kind of failure without one."""
    connection, wire = HttpConnection(asyncio.get_running_loop(), lambda _: None), Wire()
    connection.connection_made(wire)
    connection.send_request(b"", float("inf"), None, None)
    for place in range(0, len(sent), size):
        if wire.is_closing() and connection.exception() is not None:
            break
        connection.data_received(sent[place : place + size])
    connection.connection_lost(None)
    try:
        message, content = await connection.read()
    except aiohttp.ClientError as error:
        return NO_ANSWER, b"", type(error)
    except aiohttp.http.HttpProcessingError as error:
        return NO_ANSWER, b"", type(error)
    body = bytearray()
    with suppress(aiohttp.ClientPayloadError):
        while not content.at_eof():
            body += await content.readany()
    return message.code, bytes(body), connection.repairs


@each_family
async def test_packets_change_nothing(family: str) -> None:
    """Wherever they are cut: each byte on its own, and some together."""
    differences = []
    for name, odd in FAMILIES[family].items():
        whole = await pieces_read(odd.sent, len(odd.sent) or 1)
        for size in (1, 7) if len(odd.sent) < SHORT_BYTES else (997,):
            found = await pieces_read(odd.sent, size)
            if found != whole:
                differences.append((name, size, found, whole))
    assert not differences


async def test_what_breaks_off_is_a_failure_unless_it_is_kept(site: Web) -> None:
    """Chunks without a size are no HTTP; a connection that ends too early is lost."""
    answers = FAMILIES["chunks"]
    broken = {name: odd for name, odd in answers.items() if odd.is_cut}
    urls, fetcher, kinds = await hosts(site, broken), site.fetcher(), set()
    for url in urls.values():
        with pytest.raises((BadHttp, ConnectionLost)) as raised:
            await fetcher.get(url)
        kinds.add(raised.type)
    assert kinds == {BadHttp, ConnectionLost}


async def test_of_what_is_no_answer_the_end_is_not_waited_for(site: Web) -> None:
    """Whoever sends eight bytes without HTTP in them may keep the connection open."""
    answers = {
        name: odd._replace(closes=False)
        for name, odd in FAMILIES["no HTTP"].items()
        if not odd.status and len(odd.sent) >= 8 and not odd.sent.startswith(b"HTTP")
    }
    urls, fetcher = await hosts(site, answers), site.fetcher()
    for name, url in urls.items():
        with pytest.raises(FetchError) as raised:
            await fetcher.get(url)
        assert (name, raised.type) == (name, BadHttp)
