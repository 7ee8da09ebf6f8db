"""When a job is due, by `[job] schedule`: a cron expression of five fields, or `every 6h`. Pure.

Cron expressions are cronsim's, imported at their first use: as Debian's cron has them, also where clocks change.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from anabranch.crawler.order.quantities import parse_duration

if TYPE_CHECKING:
    from cronsim import CronSim

_EVERY = "every "
_CRON_FIELDS = 5
#: Jobs are not started more often.
_LEAST_S = 60.0
#: Missed times that are counted.
MOST_MISSED = 1000
_FORMS = "a cron expression of five fields, like '30 3 * * MON', or like 'every 6h'"


class Due(NamedTuple):
    """A time at which a job is due, and has not been started."""

    due_s: float  #: the last such time; epoch seconds
    missed: int  #: earlier times without a run, `MOST_MISSED` at most


class JobSchedule(NamedTuple):
    """The times at which a job is due."""

    text: str  #: as the order has it
    zone: str  #: of a cron expression

    def next_after(self, time_s: float) -> float | None:
        """The first time after this one, in epoch seconds; after a run if the times are so far apart. None: there is none."""
        return next(self._times(time_s), None)

    def due(self, handled_s: float, now_s: float) -> Due | None:
        """The last time until now, if it is after the one that was handled last. Cost: 20 µs for each missed time."""
        missed = list(islice(takewhile(lambda time_s: time_s <= now_s, self._times(handled_s)), MOST_MISSED + 1))
        if not missed:
            return None
        return Due(missed[-1] if len(missed) <= MOST_MISSED else self._last_until(handled_s, now_s), len(missed) - 1)

    def _times(self, after_s: float) -> Iterator[float]:
        every_s = self._every_s
        if every_s:
            while True:
                after_s += every_s
                yield after_s
        yield from (moment.timestamp() for moment in self._moments(after_s))

    def _last_until(self, handled_s: float, now_s: float) -> float:
        if self._every_s:
            return now_s - (now_s - handled_s) % self._every_s
        return next(self._moments(now_s + 1, reverse=True)).timestamp()

    @property
    def _every_s(self) -> float:
        """The seconds between two times; 0 for a cron expression."""
        return parse_duration(self.text.removeprefix(_EVERY)) if self.text.startswith(_EVERY) else 0.0

    def _moments(self, time_s: float, *, reverse: bool = False) -> CronSim:
        from cronsim import CronSim  # noqa: PLC0415 - few jobs have a schedule

        return CronSim(self.text, datetime.fromtimestamp(time_s, zone_of(self.zone)), reverse=reverse)


def check_schedule(text: str) -> str:
    """The text if it is empty or a schedule. Raises: ValueError."""
    if not text:
        return text
    try:
        every_s = parse_duration(text.removeprefix(_EVERY)) if text.startswith(_EVERY) else _of_cron(text)
    except ValueError as error:
        raise ValueError(f"must be {_FORMS}; not {text!r} ({error})") from error
    if every_s < _LEAST_S:
        raise ValueError(f"must be at least 'every 1m'; not {text!r}")
    return text


def _of_cron(text: str) -> float:
    """The least seconds between two times of a cron expression. Raises: ValueError if it is none."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - few jobs have a schedule

    if len(text.split()) != _CRON_FIELDS:
        raise ValueError(f"it has {len(text.split())} fields")
    try:
        CronSim(text, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(str(error).lower()) from error
    return _LEAST_S


def check_zone(name: str) -> str:
    """The name if it is a time zone's. Raises: ValueError."""
    try:
        zone_of(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"must be the name of a time zone, like UTC or Europe/Berlin; not {name!r}") from error
    return name


def zone_of(name: str) -> tzinfo:
    """A time zone. Raises: ZoneInfoNotFoundError, ValueError, OSError."""
    return UTC if name == "UTC" else ZoneInfo(name)
