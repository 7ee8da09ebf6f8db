"""What is sent: the headers that one URL gets besides those that all get, and the head of the request as it went out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yarl import URL

from crawler.fetching.options import is_sendable

if TYPE_CHECKING:
    from aiohttp import RequestInfo

#: Headers that are never shown: credentials.
_SECRET = frozenset({"authorization", "proxy-authorization"})


def referer(via: str, url: str) -> str:
    """The page's URL without user and fragment (RFC 9110 section 10.1.3); empty from https to http, or if it cannot be sent."""
    if not is_sendable(via) or (via.startswith("https:") and not url.startswith("https:")):
        return ""
    page = URL(via, encoded=True)
    return str(page.with_user(None).with_fragment(None)) if page.raw_user or page.raw_fragment else via


def request_head(info: RequestInfo, *, is_absolute: bool) -> bytes:
    """The request as aiohttp wrote it, without credentials. An HTTP proxy is told the whole URL."""
    target, headers = str(info.url) if is_absolute else info.url.raw_path_qs, info.headers
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name.lower() not in _SECRET)
    return f"{info.method} {target} HTTP/1.1\r\n{fields}\r\n".encode()
