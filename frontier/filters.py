"""The filters of dedup behind this room's seam: a job's own one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dedup.errors import BadParameters
from dedup.uniq import UniqFilter, UniqParameters
from dedup.young import YoungFilter
from frontier.errors import PolicyError


class DedupFilter:
    """The room `dedup`'s UniqFilter behind this room's seam."""

    blocks = False

    def __init__(self, uniq: UniqFilter | YoungFilter) -> None:
        self._uniq = uniq

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each key, whether it was never marked."""
        answer = self._uniq.unseen(keys)
        return answer if isinstance(answer, list) else answer.tolist()

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys as seen."""
        self._uniq.mark(keys)

    def sync(self) -> None:
        """Make every mark durable."""
        self._uniq.sync()

    def position(self) -> str:
        """What stands for all that was marked before the last sync."""
        return self._uniq.position()

    def close(self) -> None:
        """Let go of maps and files."""
        self._uniq.close()

    def facts(self) -> Mapping[str, float]:
        """The filter's statistics by name."""
        statistics = self._uniq.statistics()
        return {
            "keys": float(statistics.keys),
            "false_drop_probability": statistics.false_drop,
            "expected_lost": statistics.expected_lost,
        }


def uniq_parameters(*, exact: bool, expect: int, false_positive: float) -> UniqParameters:
    """What `FrontierOrder.uniq` is for so many URLs; `exact`: the filter never errs. Raises: PolicyError."""
    given = UniqParameters(mode="exact" if exact else "both", expected=expect, false_positive=false_positive)
    try:
        _ = given.format
    except BadParameters as error:
        raise PolicyError(str(error)) from error
    return given


def checked_uniq(uniq: object) -> UniqParameters:
    """What a FrontierOrder says of the filter. Raises: PolicyError for anything but parameters or None."""
    if isinstance(uniq, UniqParameters | None):
        return uniq or UniqParameters()
    raise PolicyError(f"uniq {uniq!r}: give UniqParameters of dedup.uniq, or None")
