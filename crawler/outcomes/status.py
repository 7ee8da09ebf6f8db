"""The status of a URL: an HTTP status, or one of Heritrix's codes when no answer was read.

Operators know these numbers from `crawl.log`, so they are kept. Source: Heritrix 3, `FetchStatusCodes`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from http import HTTPStatus


class FetchStatus(IntEnum):
    """Why a URL has no HTTP status. The numbers are Heritrix's; BAD_HTTP and SKIPPED are ours. HTTP statuses are not listed."""

    UNATTEMPTED = 0
    DNS_FAILED = -1
    CONNECT_FAILED = -2
    CONNECTION_LOST = -3
    TIMED_OUT = -4
    PROCESSOR_FAILED = -5
    DNS_PREREQUISITE_FAILED = -6
    UNFETCHABLE = -7
    BAD_HTTP = -9
    ROBOTS_FAILED = -61
    PREREQUISITE_FAILED = -62
    DEEMED_NOT_FOUND = -404
    OUT_OF_SCOPE = -5000
    BLOCKED = -5001
    BLOCKED_BY_PROCESSOR = -5002
    OVER_QUOTA = -5003
    OVER_TIME = -5004
    SKIPPED = -5005
    DELETED = -6000
    WORKER_KILLED = -7000
    ROBOTS_EXCLUDED = -9998


class StatusClass(Enum):
    """The meaning of a status for its URL: an answer was read, it failed, or it was not wanted."""

    SUCCESS = "success"
    FAILED = "failed"
    DISREGARDED = "disregarded"


#: Each code's words and class. Quotas (-5003, -5004) cost no penalty here; in Heritrix they are failed, and do.
MEANINGS: dict[int, tuple[str, StatusClass]] = {
    FetchStatus.UNATTEMPTED: ("not tried yet", StatusClass.FAILED),
    FetchStatus.DNS_FAILED: ("DNS lookup failed", StatusClass.FAILED),
    FetchStatus.CONNECT_FAILED: ("connect failed", StatusClass.FAILED),
    FetchStatus.CONNECTION_LOST: ("connection lost", StatusClass.FAILED),
    FetchStatus.TIMED_OUT: ("timed out", StatusClass.FAILED),
    FetchStatus.PROCESSOR_FAILED: ("a processor or an own function failed", StatusClass.FAILED),
    FetchStatus.DNS_PREREQUISITE_FAILED: ("its host's DNS lookup failed", StatusClass.FAILED),
    FetchStatus.UNFETCHABLE: ("not a URL that can be fetched", StatusClass.FAILED),
    FetchStatus.BAD_HTTP: ("bad HTTP", StatusClass.FAILED),
    FetchStatus.ROBOTS_FAILED: ("robots.txt could not be fetched", StatusClass.FAILED),
    FetchStatus.PREREQUISITE_FAILED: ("what it needs first failed", StatusClass.FAILED),
    FetchStatus.DEEMED_NOT_FOUND: ("deemed not found", StatusClass.FAILED),
    FetchStatus.OUT_OF_SCOPE: ("out of scope", StatusClass.DISREGARDED),
    FetchStatus.BLOCKED: ("blocked: by the operator, or a private or loopback address", StatusClass.DISREGARDED),
    FetchStatus.BLOCKED_BY_PROCESSOR: ("blocked by a processor", StatusClass.DISREGARDED),
    FetchStatus.OVER_QUOTA: ("over a quota", StatusClass.DISREGARDED),
    FetchStatus.OVER_TIME: ("over the time limit", StatusClass.DISREGARDED),
    FetchStatus.SKIPPED: ("skipped: one of its parameters changes nothing", StatusClass.DISREGARDED),
    FetchStatus.DELETED: ("deleted by the operator", StatusClass.DISREGARDED),
    FetchStatus.WORKER_KILLED: ("its worker was killed", StatusClass.FAILED),
    FetchStatus.ROBOTS_EXCLUDED: ("excluded by robots.txt", StatusClass.DISREGARDED),
}

#: The smallest number that is an HTTP status (RFC 9110 section 15).
FIRST_HTTP_STATUS = 100


def describe(status: int) -> str:
    """Number and words of a status: "404 Not Found", "-2 connect failed". Never raises."""
    return f"{int(status)} {_words(status)}"


def class_of(status: int) -> StatusClass:
    """The class of a status: every HTTP status is a success, as in Heritrix; an unknown code below 100 is failed."""
    if status >= FIRST_HTTP_STATUS:
        return StatusClass.SUCCESS
    known = MEANINGS.get(status)
    return known[1] if known else StatusClass.FAILED


def _words(status: int) -> str:
    if status in MEANINGS:
        return MEANINGS[status][0]
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown HTTP status" if status >= FIRST_HTTP_STATUS else "unknown status"
