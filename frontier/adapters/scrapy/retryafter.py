"""What an answer says of its host: troubles, and how long it asks to be left alone."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from frontier.models import HostTrouble

#: Status -> what it tells of the host.
TROUBLES = {429: HostTrouble.THROTTLED, 503: HostTrouble.UNAVAILABLE}


def retry_after_s(header: str, now_s: float) -> float:
    """Seconds from now that a Retry-After asks for: a number of them, or a date (RFC 9110, 10.2.3); 0 for anything else."""
    text = header.strip()
    if text.isdecimal():
        return float(text) if len(text) < 16 else math.inf
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(aware.timestamp() - now_s, 0.0)


def wall_s() -> float:
    """Epoch seconds, as servers count them."""
    return datetime.now(UTC).timestamp()
