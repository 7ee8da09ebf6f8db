"""What can go wrong between us and a site, and how often and when a URL is tried again.

A `FetchError` is the site's or the network's fault. It never ends a crawl: the worker turns it into
a status and asks `retry_after`. The policy is data: one table of waits.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, ClassVar

from crawler.status import FetchStatus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self


class FetchError(Exception):
    """No answer could be had from the site. The message is one line; subclasses say which kind."""

    status: ClassVar[FetchStatus]  #: what `crawl.log` shows

    start_s: float = 0.0  #: epoch seconds, when the fetch began; 0 outside a fetch
    end_s: float = 0.0  #: epoch seconds, when it was given up; 0 outside a fetch

    def timed(self, start_s: float, end_s: float) -> Self:
        """The same error, with the times (epoch seconds) of the fetch that it ended."""
        self.start_s, self.end_s = start_s, end_s
        return self


class NameNotFound(FetchError):
    """There is no such host name, or no name server to ask: final."""

    status = FetchStatus.DNS_FAILED


class NameTimeout(FetchError):
    """The name servers gave no usable answer this time."""

    status = FetchStatus.DNS_FAILED


class ConnectFailed(FetchError):
    """No connection: refused, unreachable, or TLS failed (certificates are verified)."""

    status = FetchStatus.CONNECT_FAILED


class ConnectionLost(FetchError):
    """A connection was there, but no whole HTTP answer came out of it."""

    status = FetchStatus.CONNECTION_LOST


class FetchTimeout(FetchError):
    """The fetch did not end within its time, all steps together."""

    status = FetchStatus.TIMED_OUT


class AddressRefused(FetchError):
    """The host's addresses are private, loopback or reserved, and the order does not allow them: final."""

    status = FetchStatus.BLOCKED


class Unfetchable(FetchError):
    """Not an http or https URL with a host: final."""

    status = FetchStatus.UNFETCHABLE


class RobotsUnavailable(FetchError):
    """robots.txt cannot be had (5xx, endless redirects), so nothing of the host may be fetched."""

    status = FetchStatus.ROBOTS_FAILED


#: Statuses by which a host asks for a rest. Its gate is closed for `host_rest_s`.
HOST_BUSY = frozenset({429, 503})

#: How often a URL is tried when its host says that it is busy; then the answer stands as it is.
HOST_BUSY_TRIES = 5

#: The wait after the first counted try, the second, ...; after the last one the failure is final.
#: A busy host waits by its gate, so its URLs are due at once.
RETRY_WAITS_S: dict[type[FetchError] | int, tuple[float, ...]] = {
    NameNotFound: (),
    NameTimeout: (10.0, 30.0),
    ConnectFailed: (5.0, 60.0),
    ConnectionLost: (5.0, 60.0),
    FetchTimeout: (5.0, 60.0),
    RobotsUnavailable: (),  # tried again before it is raised: see processors/preconditions.py
    AddressRefused: (),
    Unfetchable: (),
    **dict.fromkeys(HOST_BUSY, (0.0,) * (HOST_BUSY_TRIES - 1)),
}

#: The rest of a busy host that names none, and the longest that it may ask for.
DEFAULT_REST_S = 60.0
MAX_REST_S = 3600.0


def retry_after(failure: FetchError | int, attempts: int) -> float | None:
    """Seconds until the URL is tried again; None = no more, the failure or answer is final.

    `failure` is what the fetch raised, or the status it got. `attempts` is the number of tries that
    counted before this one (as in a lease), whatever they ended with. Pure.
    """
    kind = failure if isinstance(failure, int) else type(failure)
    waits = RETRY_WAITS_S.get(kind, ())
    return waits[attempts] if attempts < len(waits) else None


def host_rest_s(headers: Mapping[str, str], now_s: float) -> float:
    """Seconds that a busy host asks for, in 0..3600; 60 if `Retry-After` is missing or unreadable.

    `Retry-After` is a number of seconds or an HTTP date (RFC 9110 section 10.2.3); a date that has
    passed is 0. `headers` must find names in any case; `now_s` is epoch seconds. Pure.
    """
    asked_s = _retry_after_s(headers.get("Retry-After", "").strip(), now_s)
    return DEFAULT_REST_S if asked_s is None else min(max(asked_s, 0.0), MAX_REST_S)


def _retry_after_s(text: str, now_s: float) -> float | None:
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - datetime.fromtimestamp(now_s, UTC)).total_seconds()
