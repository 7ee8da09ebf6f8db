"""What the libraries raise, and which failure of ours that is. Whatever is not in the table is a defect."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Mapping
from types import MappingProxyType

import aiohttp
from aiohttp.http import HttpProcessingError

from anabranch.crawler.network.wire import MAX_HEAD_BYTES, Dial, HeadTooLong
from anabranch.crawler.outcomes.failures import (
    AddressRefused,
    BadHttp,
    CertificateRefused,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    OutOfFiles,
    ProxyFailed,
    Unfetchable,
)

#: The first row that fits wins. An `OSError` of connecting is a `ClientConnectorError`.
FOREIGN: Mapping[type[Exception], type[FetchError]] = MappingProxyType(
    {
        aiohttp.ConnectionTimeoutError: ConnectFailed,
        aiohttp.SocketTimeoutError: FetchTimeout,
        TimeoutError: FetchTimeout,  # ours, for the whole fetch
        aiohttp.ClientConnectorCertificateError: CertificateRefused,
        aiohttp.ClientProxyConnectionError: ProxyFailed,
        aiohttp.ClientHttpProxyError: ProxyFailed,
        aiohttp.ClientConnectorError: ConnectFailed,  # refused, unreachable, TLS
        aiohttp.InvalidURL: Unfetchable,
        aiohttp.NonHttpUrlClientError: Unfetchable,
        HeadTooLong: ConnectionLost,
        HttpProcessingError: BadHttp,  # the parser's, of a head or a body
        aiohttp.ClientResponseError: BadHttp,  # the same of a proxy that is asked to connect
        aiohttp.ClientError: ConnectionLost,  # disconnects, payload errors
        OSError: ConnectionLost,
        ValueError: Unfetchable,  # a URL that yarl, the TLS layer or the request cannot take
    }
)

_MAX_MESSAGE_CHARS = 300


def failure_of(error: Exception, dial: Dial, timeout_s: float) -> FetchError:
    """The failure that a foreign error is; its message is one line. To be raised `from` it."""
    kind = next(ours for theirs, ours in FOREIGN.items() if isinstance(error, theirs))
    if kind is ConnectFailed and dial.refused and not dial.made:
        return AddressRefused(f"{dial.refused} is not a public address (--allow-private allows it)")
    if kind is FetchTimeout and not isinstance(error, aiohttp.ClientError):
        return FetchTimeout(f"not done within {timeout_s:g} s")
    return kind(one_line(error))


def out_of_files() -> OutOfFiles:
    """The failure of a fetch for which no socket, or no file for its body, could be had."""
    return OutOfFiles("too many files are open; raise the limit (ulimit -n) or lower [crawl] workers")


def one_line(error: Exception) -> str:
    """What an error says, in one printable line of at most 300 characters."""
    match error:
        case aiohttp.ServerDisconnectedError():
            text = "the server closed the connection without a whole answer"
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy answers {error.status} {error.message}"
        case HttpProcessingError() | aiohttp.ClientResponseError():
            text = f"bad HTTP: {error.message}"
        case aiohttp.SocketTimeoutError():
            text = "nothing came for too long"
        case aiohttp.ClientConnectorError() if words := _system_words(error):
            text = words
        case HeadTooLong():
            text = f"more than {MAX_HEAD_BYTES} bytes of headers, trailers or chunk extensions"
        case _:
            text = str(error) or type(error).__name__
    printable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return " ".join(printable.split())[:_MAX_MESSAGE_CHARS]


def _system_words(error: aiohttp.ClientConnectorError) -> str:
    """What the system says of a connection that could not be made, such as `connection refused`; empty if it says nothing."""
    cause = error.os_error
    if isinstance(error, aiohttp.ClientProxyConnectionError) or isinstance(cause, ssl.SSLError | socket.gaierror):
        return ""
    words = os.strerror(cause.errno) if cause.errno is not None and cause.errno in errno.errorcode else ""
    is_systems = cause.strerror == words or (cause.strerror or "").startswith("Connect call failed")  # asyncio's words
    return words[:1].lower() + words[1:] if is_systems else ""
