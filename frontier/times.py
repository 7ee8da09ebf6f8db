"""Time: a clock in epoch seconds that never goes back, and durations, times and rates as text.

If the machine clock were set back by an hour, every gate would stay closed for an hour. So the epoch is read once and the
monotonic clock counts from there; a host's own clock continues from its highest value. `FrontierStore.open` describes a clock
that went back between two runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

#: Epoch seconds.
Clock = Callable[[], float]


def steady_clock(epoch: Clock = time.time, monotonic: Clock = time.monotonic) -> Clock:
    """The default clock: the epoch now plus the monotonic time since then."""
    offset_s = epoch() - monotonic()
    return lambda: offset_s + monotonic()


def never_back(clock: Clock) -> Clock:
    """A clock that continues from its highest value when `clock` goes back. For one thread."""
    highest_s = -math.inf
    lead_s = 0.0  # the sum of all steps back

    def time_s() -> float:
        nonlocal highest_s, lead_s
        now_s = clock() + lead_s
        if now_s < highest_s:
            lead_s += highest_s - now_s
            return highest_s
        highest_s = now_s
        return now_s

    return time_s


_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
#: The end of the calendar's year 9999; no time is shown beyond it.
_LAST_S = 253_402_300_799


def duration_words(seconds: float) -> str:
    """The two largest units: `1d 2h`, `2m 3s`, `4.2s`, `250ms`; `for ever` for infinity."""
    if seconds == math.inf:
        return "for ever"
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{max(milliseconds, 0)}ms"
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.1f}s"
    rest = round(seconds)
    parts = []
    for unit, factor in _UNITS:
        count, rest = divmod(rest, factor)
        parts.append((count, unit))
    first = next(index for index, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count)


def clock_words(at_s: float, now_s: float) -> str:
    """The local time, with the date if it is another day's: `21:07:30`, `2026-12-01 00:00:00`; `never` beyond the year 9999."""
    if not at_s < _LAST_S:
        return "never"
    at, now = (datetime.fromtimestamp(second, UTC).astimezone() for second in (at_s, now_s))
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


def rate_words(rate_per_s: float) -> str:
    """`2.5 URLs a second`; below one a second the time between two: `a URL each 5.0s`; `no limit` for infinity."""
    if rate_per_s == math.inf:
        return "no limit"
    if rate_per_s >= 1:
        number = f"{rate_per_s:.3g}"
        return f"{number} {'URL' if number == '1' else 'URLs'} a second"
    return f"a URL each {duration_words(1 / rate_per_s)}" if rate_per_s > 0 else "no URL at all"


def moment_words(at_s: float, now_s: float) -> str:
    """When and how soon: `at 21:07:30, in 12s`; `now` for what is past."""
    return "now" if at_s <= now_s else f"at {clock_words(at_s, now_s)}, in {duration_words(at_s - now_s)}"


def in_time(what: str, at_s: float | None, now_s: float) -> str:
    """`; what at 21:07:30, in 12s`, the end of a sentence; empty if no time is known."""
    return "" if at_s is None or at_s == math.inf else f"; {what} {moment_words(at_s, now_s)}"


def counted(count: int, singular: str, plural: str = "") -> str:
    """`1 URL`, `2 URLs`, `3 tries`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
