"""One HTTP exchange: a URL in, a response or a `FetchError` out. The only file that speaks HTTP.

Redirects are not followed (they are links), cookies are not kept, proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from crawler.network.connector import DIAL, Dial, make_connector
from crawler.outcomes.failures import (
    AddressRefused,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    Unfetchable,
)
from crawler.outcomes.status import FIRST_HTTP_STATUS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.client_middlewares import ClientHandlerType
    from aiohttp.connector import Connection
    from multidict import CIMultiDictProxy

    from crawler.network.dns import Resolver

#: What aiohttp and asyncio raise, and what it is to us. The first row that fits wins.
#: An `OSError` of connecting is a `ClientConnectorError`, so a `TimeoutError` is a time-out of ours.
FOREIGN: dict[type[Exception], type[FetchError]] = {
    TimeoutError: FetchTimeout,
    aiohttp.ClientConnectorError: ConnectFailed,  # refused, unreachable, TLS
    aiohttp.InvalidURL: Unfetchable,
    aiohttp.NonHttpUrlClientError: Unfetchable,
    aiohttp.ClientError: ConnectionLost,  # disconnects, payload errors, bad HTTP
    OSError: ConnectionLost,
    ValueError: Unfetchable,  # a URL that yarl, the TLS layer or the header writer cannot take
}

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

#: Longest status line and header, and most headers, of an answer. Above: `ConnectionLost`.
MAX_HEADER_BYTES = 32 * 1024
MAX_HEADERS = 256

#: How much of a body waits in a connection before the server is made to wait.
READ_BUFFER_BYTES = 64 * 1024

_MAX_MESSAGE_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a server answered."""

    status: int  #: HTTP status, 101 or 200..999
    headers: CIMultiDictProxy[str]  #: as sent; names in any case, several values by `getall`
    body: bytes  #: decoded (gzip, deflate, br, zstd), cut at the limit
    truncated: bool  #: True if the body was longer than the limit
    address: str  #: IP address that the connection went to
    start_s: float  #: epoch seconds, when the fetch began (before DNS)
    end_s: float  #: epoch seconds, when the body was read

    def beginning(self, start_s: float) -> Response:
        """The same answer, as the end of a fetch that began earlier (with a redirect)."""
        return replace(self, start_s=start_s)


class Fetcher:
    """Fetches URLs over kept connections. Built inside a running loop; serves any number of workers.

    `timeout_s` is for one fetch in all: name, connection, headers, body. A body is cut at
    `max_body_bytes` after decoding, so a decompression bomb costs no more than that. Addresses that are
    not public are refused unless `allow_private`. `clock` gives epoch seconds. The resolver
    stays the caller's to close, after the fetcher.
    """

    def __init__(
        self,
        *,
        user_agent: str,
        resolver: Resolver,
        timeout_s: float,
        max_body_bytes: int,
        allow_private: bool,
        clock: Callable[[], float],
    ) -> None:
        self._timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        # Accept-Encoding is left to aiohttp: it names what it can decode here, br and zstd included.
        self._session = aiohttp.ClientSession(
            connector=make_connector(resolver, allow_private=allow_private),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept": ACCEPT},
            timeout=aiohttp.ClientTimeout(total=None),  # `get` has the clock
            trust_env=False,
            response_class=_AddressedResponse,
            middlewares=(_never_twice_by_itself,),
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
        )

    async def get(self, url: str) -> Response:
        """Fetch a canonical URL with GET; its bytes are sent unchanged, its host is the Host header.

        Raises: FetchError subclasses only, with `start_s` and `end_s` (and CancelledError).
        """
        start_s = self._clock()
        dial = Dial()
        token = DIAL.set(dial)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(url, start_s)
        except FetchError as error:
            error.timed(start_s, self._clock())
            raise
        except tuple(FOREIGN) as error:
            raise self._translated(error, dial).timed(start_s, self._clock()) from error
        finally:
            DIAL.reset(token)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _exchange(self, url: str, start_s: float) -> Response:
        async with self._session.get(URL(url, encoded=True), allow_redirects=False) as response:
            if response.status < FIRST_HTTP_STATUS:
                raise ConnectionLost(f"{response.status} is no HTTP status")
            body, truncated = await self._read(response)
            assert isinstance(response, _AddressedResponse)
            return Response(
                status=response.status,
                headers=response.headers,
                body=body,
                truncated=truncated,
                address=response.address,
                start_s=start_s,
                end_s=self._clock(),
            )

    async def _read(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        """The body up to the limit, and whether there was more; the rest is never read."""
        chunks: list[bytes] = []
        left = self._max_body_bytes
        async for chunk in response.content.iter_any():
            if len(chunk) > left:
                chunks.append(chunk[:left])
                response.close()
                return b"".join(chunks), True
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks), False

    def _translated(self, error: Exception, dial: Dial) -> FetchError:
        kind = next(ours for theirs, ours in FOREIGN.items() if isinstance(error, theirs))
        if kind is ConnectFailed and dial.refused and not dial.made:
            return AddressRefused(f"{dial.refused} is not a public address (--allow-private allows it)")
        if kind is FetchTimeout:
            return FetchTimeout(f"not done within {self._timeout_s:g} s")
        return kind(_one_line(error))


class _AddressedResponse(aiohttp.ClientResponse):
    """A response that knows its peer; a short answer has left its connection when `get` returns."""

    address = ""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        assert connection.transport is not None
        peer = connection.transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        return await super().start(connection)


async def _never_twice_by_itself(request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
    """Only a kept connection that proved dead is worth a second try at once (RFC 9112 section 9.3.1).

    aiohttp repeats a GET after any disconnect, a fresh connection's too: that would be a fetch that
    the host's gate never saw.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if DIAL.get().made:
            raise ConnectionLost(_one_line(error)) from error
        raise


def _one_line(error: Exception) -> str:
    match error:
        case aiohttp.ServerDisconnectedError():
            text = "the server closed the connection without a whole answer"
        case aiohttp.ClientResponseError():
            text = f"bad HTTP: {error.message}"
        case _:
            text = str(error) or type(error).__name__
    printable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return " ".join(printable.split())[:_MAX_MESSAGE_CHARS]
