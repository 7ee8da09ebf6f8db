"""Time: a clock in epoch seconds that never goes back, and durations, times and rates as text.

An operator or NTP may set the machine clock, and one hour back would keep every gate closed for an hour. Therefore the epoch
is read once, at start, and the monotonic clock counts from there. If the host program supplies its own clock and that goes
back, time continues from the highest value seen. In both cases every rest lasts as long as intended: politeness holds and
nothing stalls.

`FrontierStore.open` describes what a clock that went back between two runs means for stored times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

#: Epoch seconds.
Clock = Callable[[], float]


def steady_clock(epoch: Clock = time.time, monotonic: Clock = time.monotonic) -> Clock:
    """The usual clock: the epoch at this moment plus the monotonic time since. A call costs as much as `monotonic`."""
    offset_s = epoch() - monotonic()
    return lambda: offset_s + monotonic()


def never_back(clock: Clock) -> Clock:
    """A host's own clock, its steps back left out: after each it goes on from the highest time seen. For one thread."""
    highest_s = -math.inf
    lead_s = 0.0  # what was left out so far

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
    """In the two largest units: `1d 2h`, `2m 3s`, `4.2s`, `250ms`; `for ever` for infinity."""
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
    """`; what at 21:07:30, in 12s`, to go behind a sentence; empty if no time is known."""
    return "" if at_s is None or at_s == math.inf else f"; {what} {moment_words(at_s, now_s)}"


def counted(count: int, singular: str, plural: str = "") -> str:
    """`1 URL`, `2 URLs`, `3 tries`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
