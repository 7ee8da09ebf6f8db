"""What an answer tells of its host: whether it is in trouble, and how long it asks to be left alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType

from anabranch.frontier.models import HostTrouble

#: Status -> what it tells of the host.
HOST_BUSY: Mapping[int, HostTrouble] = MappingProxyType({429: HostTrouble.THROTTLED, 503: HostTrouble.UNAVAILABLE})

#: Retry-After is defined for redirects and errors (RFC 9110 section 10.2.3); below, it says nothing of the host.
_FIRST_REDIRECT = 300
_FIRST_ERROR = 400


def told_by(status: int, retry_after: str, now_s: float) -> tuple[HostTrouble, float]:
    """What an answer with this status and Retry-After tells of its host, and the seconds it asks for (0 = for none).

    429 is THROTTLED; 503, and any error with a Retry-After, is UNAVAILABLE. A redirect's Retry-After counts, but is no trouble.
    `now_s` is epoch seconds.
    """
    asked_s = asked_rest_s(retry_after, now_s) if status >= _FIRST_REDIRECT else 0.0
    trouble = HOST_BUSY.get(status, HostTrouble.NONE)
    if trouble is HostTrouble.NONE and asked_s and status >= _FIRST_ERROR:
        trouble = HostTrouble.UNAVAILABLE
    return trouble, asked_s


def asked_rest_s(retry_after: str, now_s: float) -> float:
    """Seconds that the text of a `Retry-After` asks for, however many; 0 if it is empty, unreadable or has passed.

    It is a number of seconds or an HTTP date (RFC 9110 section 10.2.3).
    """
    return max(_asked_s(retry_after.strip(), now_s), 0.0)


def _asked_s(text: str, now_s: float) -> float:
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - datetime.fromtimestamp(now_s, UTC)).total_seconds()
