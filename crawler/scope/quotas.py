"""Quotas: how much may be fetched in all, and of each host. Pure: numbers in, a refusal out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from anabranch.crawler.outcomes.status import FetchStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Limits; 0 = none. The names are those of the order's section `[limits]`."""

    pages: int = 0  #: URLs that were answered
    bytes: int = 0  #: of bodies, as they came over the wire
    time: float = 0.0  #: seconds since the job began
    pages_per_host: int = 0
    bytes_per_host: int = 0
    time_per_host: float = 0.0  #: seconds since the host's first fetch


class Used(NamedTuple):
    """What was used up, by the crawl or by one host."""

    pages: int = 0
    bytes: int = 0
    time: float = 0.0


class OverQuota(NamedTuple):
    """Why a URL is not fetched any more."""

    status: FetchStatus
    annotation: str  #: `Q:` and the name of the limit, as `crawl.log` has it


#: What is over when a measure has reached its limit: a quota, or the time to run.
_STATUS: Mapping[str, FetchStatus] = MappingProxyType(
    {"pages": FetchStatus.OVER_QUOTA, "bytes": FetchStatus.OVER_QUOTA, "time": FetchStatus.OVER_TIME}
)


def over_quota(quotas: Quotas, crawl: Used, host: Used) -> OverQuota | None:
    """None if one more URL of this host may be fetched, else the first limit that is reached: the crawl's before the host's.

    A limit is reached when as much is used as it allows, so fetches under way may still go beyond it.
    """
    for used, suffix in ((crawl, ""), (host, "_per_host")):
        for measure, status in _STATUS.items():
            limit = getattr(quotas, measure + suffix)
            if limit and getattr(used, measure) >= limit:
                return OverQuota(status, f"Q:{measure}{suffix}")
    return None
