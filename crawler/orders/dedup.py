"""What a crawl order says of dedup: how sure the job's own filter is, and which filter it shares with other crawls."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator

from anabranch.crawler.orders.types import Factor, Positive, Section

#: What the URLs of Redis servers begin with.
_SCHEMES = ("redis://", "rediss://")


class DedupSection(Section):
    """How it is known which URLs were seen."""

    exact: bool = False  #: the job's own filter drops nothing wrongly, for 16 bytes per URL and a little time
    expect: Positive = 10_000_000  #: URLs that the filters are made for; all who share one give the same number
    #: Share of new URLs that a full DSBF takes for seen; all who share one give the same.
    false_positive: Annotated[Factor, Field(gt=0, lt=1)] = 1e-3
    leaves: tuple[str, ...] = ()  #: Redis servers that hold a DSBF in common with other crawls; none: no such filter
    #: The name of that filter: its keys on the servers begin with it.
    leaves_name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")] = "anabranch"

    @field_validator("leaves")
    @classmethod
    def _without_password(cls, leaves: tuple[str, ...]) -> tuple[str, ...]:
        """The order is kept in the job's folder as it was run, for everyone to read."""
        for url in leaves:
            if not url.startswith(_SCHEMES) or not _has_host(url):
                raise ValueError(f"must be URLs of Redis servers, like redis://127.0.0.1:6379/0; not {url!r}")
            if urlsplit(url).password is not None or "password=" in url:
                raise ValueError("must not hold a password; put it into the variable REDISCLI_AUTH")
        if len(set(leaves)) < len(leaves):
            raise ValueError("must not name a server twice")
        return leaves


def _has_host(url: str) -> bool:
    """It can be taken apart, and names a host and a possible port."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.hostname)
