"""Asks CDX servers which captures of a URL they know, while it is being fetched: pywb, OutbackCDX, the Wayback machine's.

A page waits no longer than for a time that begins with its fetch. A server that is away, slow, or answers nonsense is named in
the log, and not asked for a while, twice as long each time in a row; then one page asks it. Its pages are written whole, and
counted.

A server is the operator's own, named in the order, as proxies, Redis, databases and the folder of uploads are. So it may have a
private address, which pages may not; it is reached without a proxy, and a redirect of it is not followed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any
from urllib.parse import urlencode

import aiohttp
import structlog
from yarl import URL

from anabranch.crawler.archive.cdxj import original_of
from anabranch.crawler.archive.records import Original

log = structlog.get_logger(__name__)

#: Captures of a URL that are asked for, the newest, and the longest answer.
MOST_CAPTURES = 100
MOST_BYTES = 256 << 10
#: Connections to all servers at once.
_CONNECTIONS = 64
#: A server that failed is not asked for so long, and at most.
FIRST_REST_S = 1.0
MOST_REST_S = 300.0
_REASON_CHARS = 200
#: Of a row without names the columns that all servers have first: urlkey, timestamp, original, mimetype, statuscode, digest.
_COLUMNS = 6


class UnfitAnswer(ValueError):
    """An answer that a CDX server does not give."""


class CdxServers:
    """The servers of a run. `count_unanswered` is called for each page that is written without the answer of one."""

    def __init__(
        self, urls: Iterable[str], *, timeout_s: float, user_agent: str, count_unanswered: Callable[[], None]
    ) -> None:
        self._servers = [_Server(url) for url in urls]
        self._timeout_s = timeout_s
        self._count_unanswered = count_unanswered
        self._asking: set[_Asking] = set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS),
            headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    def ask(self, url: str) -> Captures:
        """Begin to ask for the captures of a URL; the caller closes what is returned. Cost: 0.4 ms a server."""
        asked = [self._begin(server, url) for server in self._servers]
        return Captures([one for one in asked if one is not None], None in asked, self._count_unanswered)

    async def close(self) -> None:
        """End all questions."""
        for asking in self._asking:
            asking.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        await self._session.close()

    def _begin(self, server: _Server, url: str) -> _Asking | None:
        """Ask a server; None if it rests."""
        now_s = monotonic()
        if not server.may_be_asked(now_s):
            return None
        asking = asyncio.create_task(self._captures(server, url, now_s))
        server.is_asked_by(asking)
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return asking

    async def _captures(self, server: _Server, url: str, asked_s: float) -> Sequence[Original] | None:
        """The captures that a server names; None without a fit answer in time."""
        try:
            async with asyncio.timeout(self._timeout_s):
                captures = captures_in(await self._answer(server.query(url)))
        except TimeoutError:
            server.failed(asked_s, f"no answer within {self._timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            server.failed(asked_s, str(error) or type(error).__name__)
        else:
            server.answered()
            return captures
        return None

    async def _answer(self, query: str) -> bytes:
        """The body of an answer. Raises: UnfitAnswer, aiohttp's errors."""
        async with self._session.get(URL(query, encoded=True), allow_redirects=False) as answer:
            if answer.status != 200:
                raise UnfitAnswer(f"it answered {answer.status}")
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:  # leaving the block closes the connection
                    raise UnfitAnswer(f"its answer is longer than {MOST_BYTES >> 10} KiB")
            return bytes(body)


class Captures:
    """The captures of one URL, on their way."""

    def __init__(self, asking: Sequence[_Asking], is_lacking: bool, count_unanswered: Callable[[], None]) -> None:
        """`is_lacking`: a server could not be asked."""
        self._asking = asking
        self._is_lacking = is_lacking
        self._count_unanswered = count_unanswered

    async def original(self, digest: bytes) -> Original | None:
        """The record that has this payload, if a server names one in time. A page without an answer is counted."""
        for asking in self._asking:
            captures = await asking
            if captures is None:
                self._is_lacking = True
            for capture in captures or ():
                if capture.digest == digest:
                    return capture
        if self._is_lacking:
            self._count_unanswered()
        return None

    def close(self) -> None:
        """Wait for no answer any more."""
        for asking in self._asking:
            asking.cancel()


class _Server:
    """A server: whether it failed, how long it rests, and which page asks it then."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.failures = 0  #: in a row
        self._probe: _Asking | None = None  # the page that asks whether it is back
        self._failed_s = 0.0
        self._is_named = False

    def query(self, url: str) -> str:
        """The URL of a question: for the newest captures, and not for those of other URLs if it ends with an asterisk."""
        asked = {"url": url, "matchType": "exact", "output": "json", "sort": "reverse", "limit": MOST_CAPTURES}
        return f"{self._url}{'&' if '?' in self._url else '?'}{urlencode(asked)}"

    def may_be_asked(self, now_s: float) -> bool:
        """Whether it answered last time, or has rested and no other page is asking."""
        if not self.failures:
            return True
        is_over = now_s >= self._failed_s + min(FIRST_REST_S * 2 ** min(self.failures - 1, 30), MOST_REST_S)
        return is_over and (self._probe is None or self._probe.done())

    def is_asked_by(self, asking: _Asking) -> None:
        """Note a question: if it failed last time, no other page asks until this one has an answer."""
        if self.failures:
            self._probe = asking

    def failed(self, asked_s: float, reason: str) -> None:
        """It gave no answer to a question of this time. Those that were on their way already count once."""
        if not self.failures or asked_s > self._failed_s:
            self.failures, self._failed_s = self.failures + 1, monotonic()
        if not self._is_named:
            self._is_named = True
            log.warning(
                "a CDX server gives no answer; until it does, pages are written whole",
                server=self._url.partition("?")[0],
                reason=" ".join(reason.split())[:_REASON_CHARS],
            )

    def answered(self) -> None:
        """It gave an answer."""
        if self.failures:
            log.info("a CDX server answers again", server=self._url.partition("?")[0])
        self.failures = 0


def captures_in(body: bytes) -> list[Original]:
    """The captures of an answer that a revisit may refer to. Pure. Raises: UnfitAnswer.

    pywb answers with a JSON object a line (or the lines of a CDXJ), OutbackCDX and the Wayback machine with an array of arrays,
    the second with the names of its columns first.
    """
    try:
        text = body.decode().strip()
        rows = (
            json.loads(text) if text.startswith("[") else [_object(line) for line in text.splitlines() if line.strip()]
        )
        found = [_capture(row) for row in rows]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnfitAnswer("it does not answer like a CDX server") from error
    return [capture for capture in found if capture is not None]


def _object(line: str) -> dict[str, Any]:
    """The JSON of a line, with the time that stands before it in a CDXJ. Raises: ValueError, TypeError."""
    before, brace, rest = line.partition("{")
    fields = json.loads(brace + rest)
    words = before.split()
    return {"timestamp": words[1], **fields} if len(words) == 2 else {**fields}


def _capture(row: Any) -> Original | None:
    """The record of a row. Raises: ValueError, TypeError, KeyError."""
    if isinstance(row, dict):
        stamp, digest = row["timestamp"], row["digest"]
        url, mime, status = row["url"], row.get("mime", ""), row.get("status", "")
    elif isinstance(row, list) and len(row) >= _COLUMNS:
        _, stamp, url, mime, status, digest = row[:_COLUMNS]
    else:
        raise TypeError("a row is an object or an array")
    return original_of(*map(_text, (stamp, url, mime, status, digest)))


def _text(value: Any) -> str:
    """A value as text: some servers write numbers. Raises: TypeError."""
    if not isinstance(value, str | int):
        raise TypeError("a value is a text or a number")
    return str(value)


_Asking = asyncio.Task[Sequence[Original] | None]
