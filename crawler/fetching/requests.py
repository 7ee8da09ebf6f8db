"""What is sent: the fields that one request has besides those that all have, and what of it may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yarl import URL

from anabranch.crawler.fetching.decoding import CODINGS
from anabranch.crawler.fetching.options import ACCEPT, FetchOptions, is_sendable

#: Fields that are never shown: credentials.
_SECRET = re.compile(rb"(?<=\n)(?:proxy-)?authorization:[^\n]*\n", re.IGNORECASE)
#: What would end a field, or is none of HTTP's characters.
_NOT_SENT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def referer(via: str, url: str) -> str:
    """The page's URL without user and fragment (RFC 9110 section 10.1.3); empty from https to http, or if it cannot be sent."""
    if not is_sendable(via) or (via.startswith("https:") and not url.startswith("https:")):
        return ""
    page = URL(via, encoded=True)
    return str(page.with_user(None).with_fragment(None)) if page.raw_user or page.raw_fragment else via


def usual_fields(options: FetchOptions) -> dict[str, str]:
    """What all requests say: who asks, and what can be read."""
    codings = [name for name in options.accept_encoding if name in CODINGS]
    return {
        "User-Agent": options.user_agent,
        "Accept": ACCEPT,
        "Accept-Encoding": ", ".join(codings) or "identity",
    }


class Fields:
    """The fields of requests as bytes. Those that all have are written once."""

    def __init__(self, usual: Mapping[str, str]) -> None:
        self._usual = {name.lower(): (name, value) for name, value in usual.items()}
        self._written = _written(self._usual)

    def with_own(self, own: Mapping[str, str]) -> bytes:
        """The usual fields and those of one request, which win. Raises: ValueError for what cannot be sent."""
        if not own:
            return self._written
        return _written(self._usual | {name.lower(): (name, value) for name, value in own.items()})


def without_credentials(request: bytes) -> bytes:
    """A request as it may be shown and kept."""
    return _SECRET.sub(b"", request)


def _written(fields: Mapping[str, tuple[str, str]]) -> bytes:
    text = [f"{name}: {value}" for name, value in fields.values()]
    if any(map(_NOT_SENT.search, text)):
        raise ValueError("a header has a character that cannot be sent")
    return "".join(f"{line}\r\n" for line in text).encode()
