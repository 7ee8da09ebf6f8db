"""The seam to dedup: all that the Frontier asks of a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class SeenFilter(Protocol):
    """Says which keys were marked before. It may say "seen" wrongly (rarely, by design), never "unseen" wrongly.

    Errors: an OSError (disk full, read-only) from `mark`, `sync` or `close`.
    """

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each key, whether it was never marked."""
        ...

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys as seen; marking twice is harmless."""
        ...

    def sync(self) -> None:
        """Make every mark durable."""
        ...

    def close(self) -> None:
        """Let go of files; a second call is harmless."""
        ...

    def facts(self) -> Mapping[str, float]:
        """Figures for reports, by name (false-drop probability, URLs expected to be lost, …)."""
        ...


class ExactFilter:
    """A Python set: exact, in memory, forgotten at the end of the process (about 150 bytes a key)."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """For each key, whether it was never marked."""
        return [key not in self._keys for key in keys]

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys as seen."""
        self._keys.update(keys)

    def sync(self) -> None:
        """Memory is as durable as it will ever be."""

    def close(self) -> None:
        """Nothing to let go of."""

    def facts(self) -> dict[str, float]:
        """No false drops, and the number of keys."""
        return {"keys": float(len(self._keys)), "false_drop_probability": 0.0, "expected_lost": 0.0}
