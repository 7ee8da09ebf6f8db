"""Errors of a fetch: when a URL is tried again, and what the error means for its host. The policy is data: tables.

A `FetchError` never ends a crawl: the worker turns it into a status and asks `retry_after` for the URL, and `TROUBLES` or
`trouble_of` for the host, for which the Frontier closes the gate until its backoff has passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.frontier import HOST_BUSY
from anabranch.frontier import trouble_of as host_trouble_of
from anabranch.frontier.errors import Passing
from anabranch.frontier.records import HostTrouble

if TYPE_CHECKING:
    from typing import Self


class FetchError(Exception):
    """The site gave no answer. The message is one line; subclasses are the kinds."""

    status: ClassVar[FetchStatus]  #: what `crawl.log` shows

    annotation: str = ""  #: a further note in `crawl.log`
    start_s: float = 0.0  #: epoch seconds, when the fetch began; 0 outside a fetch
    end_s: float = 0.0  #: epoch seconds, when it was given up; 0 outside a fetch

    def timed(self, start_s: float, end_s: float) -> Self:
        """Set the times (epoch seconds) of the fetch that the error ended, and return the error."""
        self.start_s, self.end_s = start_s, end_s
        return self


class NameNotFound(FetchError):
    """There is no such host name: final."""

    status = FetchStatus.DNS_FAILED


class NameTimeout(FetchError):
    """The name servers gave no usable answer this time."""

    status = FetchStatus.DNS_FAILED


class ConnectFailed(FetchError):
    """No connection: refused, unreachable, too slow, or TLS failed."""

    status = FetchStatus.CONNECT_FAILED


class CertificateRefused(FetchError):
    """The host's certificate is not valid: final for now, and no sign of trouble of the host."""

    status = FetchStatus.CONNECT_FAILED


#: The services that every crawl shares; a proxy is named by `proxy_service`, others by who raises `ServiceAway`.
NAME_SERVERS, NETWORK, OPEN_FILES = "name servers", "network", "open files"


def proxy_service(url: str) -> str:
    """The name of a proxy, by its URL without credentials, as a service."""
    return f"proxy {url}"


class ServiceAway(FetchError, Passing):
    """A service that many URLs share is away: this says nothing about the URL or its host, and counts as no try.

    The URL goes back to its place without a line in any log, and nothing that needs the service is fetched until it is back.
    A user function may raise it with a name of its own, see docs/how-to/plugins.md.
    """

    status = FetchStatus.CONNECT_FAILED

    def __init__(self, service: str, reason: str = "") -> None:
        """`service` is its name for the operator; `reason` says how it failed."""
        super().__init__(service, reason)
        self.service = service
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.service}: {self.reason or 'away'}"


class ProxyRefused(FetchError):
    """The proxy wants other credentials, or its rules forbid the connection: no outage, but a matter of the operator."""

    status = FetchStatus.CONNECT_FAILED

    def __init__(self, proxy: str, reason: str, is_rule: bool = False) -> None:
        """`proxy` is its URL without credentials. `is_rule`: a rule forbids this connection, maybe not every one."""
        super().__init__(proxy, reason, is_rule)
        self.proxy = proxy
        self.reason = reason
        self.is_rule = is_rule

    def __str__(self) -> str:
        return f"the proxy {self.proxy} {self.reason}"


class LoginRefused(FetchError):
    """A login by a form did not succeed: a matter of the operator, and not tried again, since accounts may be locked."""

    status = FetchStatus.CONNECT_FAILED

    def __init__(self, page: str, reason: str) -> None:
        """`page` is the URL of the form."""
        super().__init__(page, reason)
        self.page = page
        self.reason = reason

    def __str__(self) -> str:
        return f"the login page {self.page} {self.reason}"


class LoginUnavailable(FetchError):
    """The page of a login, or what takes its form, is busy or broken for now: as if the host were."""

    status = FetchStatus.CONNECT_FAILED


class ConnectionLost(FetchError):
    """A connection was there, but it ended, or was given up, before a whole answer had come out of it."""

    status = FetchStatus.CONNECTION_LOST


class KeptConnectionClosed(FetchError):
    """A connection kept from an earlier fetch brought no answer, or several: no fault of the URL or the host.

    The URL goes back to its place without a counted attempt; its slot rests, since the host may have read the request.
    """

    status = FetchStatus.CONNECTION_LOST


class HostTakenOver(FetchError):
    """Another worker of the job may have taken the host over, so nothing was sent: the URL keeps its place."""

    status = FetchStatus.CONNECTION_LOST


#: Failures that count as no try of the URL, and that say nothing about its host.
UNTRIED = (KeptConnectionClosed, HostTakenOver, ServiceAway)


class BadHttp(FetchError):
    """The host answered, but not in HTTP that browsers could read: it was reached, and would answer the same again."""

    status = FetchStatus.BAD_HTTP


class BodyBroken(FetchError):
    """The host answered, but its body broke off: nothing is wrong with the host, and the page is worth another try."""

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
    """robots.txt is unavailable (5xx, endless redirects), so nothing of the host may be fetched."""

    status = FetchStatus.ROBOTS_FAILED


#: How often a URL is tried while its host is busy; then the answer is final.
HOST_BUSY_TRIES = 5

#: The host trouble of a failed fetch. Other kinds say nothing about the host: they concern our name servers, or the URL.
TROUBLES: Mapping[type[FetchError], HostTrouble] = {
    **dict.fromkeys((ConnectFailed, ConnectionLost, FetchTimeout), HostTrouble.UNREACHABLE),
    LoginUnavailable: HostTrouble.UNAVAILABLE,
}

#: The waits of a name that only times out, unless `[fetch] name_retries` says otherwise.
NAME_RETRIES_S = (10.0, 30.0, 600.0, 3600.0, 14_400.0)

#: The wait after the first counted try, the second, ...; after the last one the failure is final.
#: A busy host waits by its gate, so its URLs are due at once.
RETRY_WAITS_S: dict[type[FetchError] | int, tuple[float, ...]] = {
    NameNotFound: (),
    NameTimeout: NAME_RETRIES_S,
    ConnectFailed: (5.0, 60.0),
    CertificateRefused: (),
    LoginRefused: (),  # it ends the run, see run/services.py
    LoginUnavailable: (0.0,) * (HOST_BUSY_TRIES - 1),  # as of a busy host
    ProxyRefused: (),  # by its rules, while it serves others: else it ends the run, see run/services.py
    ServiceAway: (0.0,),  # however often: the disposition counts no try
    ConnectionLost: (5.0, 60.0),
    HostTakenOver: (0.0,),  # as the next one
    KeptConnectionClosed: (0.0,),  # however often: the disposition counts no try, and the URL waits by its gate
    BadHttp: (),
    BodyBroken: (5.0, 60.0),
    FetchTimeout: (5.0, 60.0),
    RobotsUnavailable: (),  # tried again before it is raised: see processors/preconditions.py
    AddressRefused: (),
    Unfetchable: (),
    **dict.fromkeys(HOST_BUSY, (0.0,) * (HOST_BUSY_TRIES - 1)),
}


def retry_after(
    failure: FetchError | int, attempts: int, name_retries_s: Sequence[float] = NAME_RETRIES_S
) -> float | None:
    """Seconds until the URL is tried again after a failure or a status, by the tries before this one; None: never. Pure.

    `name_retries_s` are the waits of a name that only times out.
    """
    kind = failure if isinstance(failure, int) else type(failure)
    waits = name_retries_s if kind is NameTimeout else RETRY_WAITS_S.get(kind, ())
    return waits[attempts] if attempts < len(waits) else None


def trouble_of(status: int, headers: Mapping[str, str], now_s: float) -> tuple[HostTrouble, float]:
    """Call `frontier.trouble_of`. `headers` must find names in any case; `now_s` is epoch seconds. Pure."""
    return host_trouble_of(status, headers.get("Retry-After", ""), now_s)
