"""Failures: which status they have, how often a URL is tried again, what they tell of the host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from multidict import CIMultiDict

from anabranch.crawler.order.quantities import exact_duration
from anabranch.crawler.outcomes import failures
from anabranch.crawler.outcomes.failures import (
    HOST_BUSY,
    HOST_BUSY_TRIES,
    RETRY_WAITS_S,
    TROUBLES,
    AddressRefused,
    BadHttp,
    BodyBroken,
    CertificateRefused,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    KeptConnectionClosed,
    LoginRefused,
    LoginUnavailable,
    NameNotFound,
    NameTimeout,
    ProxyRefused,
    RobotsUnavailable,
    ServiceAway,
    Unfetchable,
    retry_after,
    trouble_of,
)
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.frontier.records import HostTrouble
from tests.rows import each_row

NOW_S = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def waits_of(failure: FetchError | int) -> list[float]:
    """All waits of a failure that comes back at each try."""
    waits: list[float] = []
    while (wait := retry_after(failure, len(waits))) is not None:
        waits.append(wait)
    return waits


@each_row(
    ("kind", "status"),
    [
        (NameNotFound, FetchStatus.DNS_FAILED),
        (NameTimeout, FetchStatus.DNS_FAILED),
        (ConnectFailed, FetchStatus.CONNECT_FAILED),
        (CertificateRefused, FetchStatus.CONNECT_FAILED),
        (ServiceAway, FetchStatus.CONNECT_FAILED),
        (ConnectionLost, FetchStatus.CONNECTION_LOST),
        (KeptConnectionClosed, FetchStatus.CONNECTION_LOST),
        (BadHttp, FetchStatus.BAD_HTTP),
        (BodyBroken, FetchStatus.CONNECTION_LOST),
        (FetchTimeout, FetchStatus.TIMED_OUT),
        (AddressRefused, FetchStatus.BLOCKED),
        (Unfetchable, FetchStatus.UNFETCHABLE),
        (RobotsUnavailable, FetchStatus.ROBOTS_FAILED),
    ],
)
def test_each_failure_has_its_status(kind: type[FetchError], status: FetchStatus) -> None:
    """The status of a failure is a property of its class."""
    assert kind("x").status is status


def test_every_failure_stands_in_the_retry_table() -> None:
    """A new kind of failure must be given its waits on purpose."""
    kinds = {kind for kind in vars(failures).values() if isinstance(kind, type) and issubclass(kind, FetchError)}
    assert kinds - {FetchError} == {kind for kind in RETRY_WAITS_S if isinstance(kind, type)}


@each_row(
    ("failure", "waits"),
    [
        (NameNotFound("x"), []),
        (AddressRefused("x"), []),
        (Unfetchable("x"), []),
        (NameTimeout("x"), [10.0, 30.0, 600.0, 3600.0, 14_400.0]),
        (ConnectFailed("x"), [5.0, 60.0]),
        (CertificateRefused("x"), []),
        (ProxyRefused("x", "no"), []),
        (LoginRefused("x", "no"), []),
        (LoginUnavailable("x"), [0.0, 0.0, 0.0, 0.0]),
        (ConnectionLost("x"), [5.0, 60.0]),
        (BadHttp("x"), []),
        (BodyBroken("x"), [5.0, 60.0]),
        (FetchTimeout("x"), [5.0, 60.0]),
        (RobotsUnavailable("x"), []),
        (404, []),
        (500, []),
        (200, []),
    ],
)
def test_a_failure_is_tried_again_after_the_waits_of_its_row(failure: FetchError | int, waits: list[float]) -> None:
    """The n-th wait follows the n-th try; after the last the failure is final."""
    assert waits_of(failure) == waits


@pytest.mark.parametrize("status", sorted(HOST_BUSY))
def test_a_busy_host_is_tried_five_times_and_its_gate_does_the_waiting(status: int) -> None:
    """429 and 503: due at once, since the host's gate is closed meanwhile; the fifth answer stands."""
    assert waits_of(status) == [0.0] * (HOST_BUSY_TRIES - 1)
    assert HOST_BUSY_TRIES == 5


def test_a_failure_carries_the_times_of_its_fetch() -> None:
    """`timed` writes both times and gives the same error back."""
    error = ConnectFailed("x")
    assert (error.start_s, error.end_s) == (0.0, 0.0)
    assert error.timed(1.0, 2.5) is error
    assert (error.start_s, error.end_s) == (1.0, 2.5)


def test_a_header_is_found_in_any_case() -> None:
    """Servers spell it as they like."""
    assert trouble_of(429, CIMultiDict({"retry-after": "7"}), NOW_S) == (HostTrouble.THROTTLED, 7.0)
    assert trouble_of(429, {}, NOW_S) == (HostTrouble.THROTTLED, 0.0)


def test_only_a_host_that_cannot_be_reached_or_logged_in_to_is_in_trouble() -> None:
    """A name that is not found, an address that is refused, or a URL that cannot be fetched say nothing of a server."""
    unreachable = dict.fromkeys((ConnectFailed, ConnectionLost, FetchTimeout), HostTrouble.UNREACHABLE)
    assert dict(TROUBLES) == unreachable | {LoginUnavailable: HostTrouble.UNAVAILABLE}


def test_the_page_for_operators_has_the_waits_of_each_kind() -> None:
    """docs/how-to/operate.md, row by row."""
    page = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "operate.md"
    rows = re.findall(r"^\| `(\w+)` \| (-\d+) \|.*\| ([^|]+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    told = {kind: (int(status), "" if waits == "never" else waits) for kind, status, waits in rows}
    assert told == {
        kind.__name__: (kind.status, ", ".join(map(exact_duration, waits)))
        for kind, waits in RETRY_WAITS_S.items()
        if not isinstance(kind, int)
    }
