"""The seam to dedup: all that the Frontier asks of a filter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


class SeenFilter(Protocol):
    """Says which keys were marked before. It may say "seen" wrongly (rarely, by design), never "unseen" wrongly.

    A plug-in is a class with these methods that is made with the path of a folder, which exists and is its own:
    `[dedup] filter = "package.module:Class"`. `docs/how-to/dedup.md` has an example.

    `unseen` and `mark` are called by one thread at a time, `sync` and `position` by any other one meanwhile. Errors: an
    OSError (disk full, read-only) from `mark`, `sync` or `close`.
    """

    @property
    def blocks(self) -> bool:
        """`unseen` and `mark` may wait for a network, so only the store's thread calls them. It never changes."""

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each key, whether it was never marked."""

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys as seen; marking twice is harmless."""

    def sync(self) -> None:
        """Make durable all that was marked before this call."""

    def position(self) -> str:
        """Return a token of the state at the last `sync`: a name that no other filter has, a hyphen, a number.

        The number is as durable as those marks, and rises with each sync of new ones: a filter found later under this name
        with at least this number knows them all. Empty if nothing was synced yet, or nothing outlives the process.
        """

    def close(self) -> None:
        """Let go of files; a second call is harmless."""

    def facts(self) -> Mapping[str, float | str]:
        """Figures for reports, by name. It is called every two seconds: keep it below a millisecond.

        The usual ones are `filter` (its name), `asked`, `keys`, `false_drop_probability` and `expected_lost`.
        """


class KnownCounts:
    """Counts the links that are known to another layer than the filter, in all runs of a job.

    `recent` are those that the crawl itself remembers and never asks about, `pending` those whose rows are not durable yet,
    `store` those that the filter let pass and the store dropped. A kill loses the counts since the last checkpoint, those of
    the filter, too: `since_s` is the time from which on nothing is missing.
    """

    def __init__(self, since_s: float = 0.0) -> None:
        self.recent = self.pending = self.store = 0
        self.since_s = since_s

    def count_recent(self, links: int) -> None:
        """Count links that the host remembers as known and never asks about. O(1)."""
        self.recent += links

    def count_pending(self, links: int) -> None:
        """Count links whose rows are not durable yet. O(1)."""
        self.pending += links

    def count_store(self, links: int) -> None:
        """Count links that the filter let pass and the store dropped. O(1)."""
        self.store += links

    def restore(self, note: str, *, clean: bool) -> None:
        """Go on with the counts of a note; after an unclean end they have a gap, so `since_s` stays."""
        self.recent, self.pending, self.store, since_s = json.loads(note)
        if clean:
            self.since_s = since_s

    def note(self) -> str:
        """The text that `restore` reads."""
        return json.dumps([self.recent, self.pending, self.store, self.since_s])

    def facts(self) -> Mapping[str, float | str]:
        """Figures beside those of the filter."""
        since = datetime.fromtimestamp(self.since_s, UTC).isoformat(timespec="seconds")
        return {
            "recent_known": self.recent,
            "pending_known": self.pending,
            "store_known": self.store,
            "counted_since": since,
        }


@runtime_checkable
class FollowingFilter(Protocol):
    """A filter that keeps how far into the store's history it knows keys."""

    def note_batch(self, number: int) -> None:
        """Keys of batches up to this number are marked from now on."""


class ExactFilter:
    """A Python set: exact, in memory, forgotten at the end of the process (about 150 bytes a key)."""

    blocks = False

    def __init__(self) -> None:
        self._keys: set[bytes] = set()
        self._asked = 0
        self._new = 0

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """For each key, whether it was never marked."""
        answers = [key not in self._keys for key in keys]
        self._asked += len(keys)
        self._new += sum(answers)
        return answers

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys as seen."""
        self._keys.update(keys)

    def sync(self) -> None:
        """Memory is as durable as it will ever be."""

    def position(self) -> str:
        """Empty: nothing outlives the process."""
        return ""

    def close(self) -> None:
        """Nothing to let go of."""

    def facts(self) -> dict[str, float | str]:
        """No false drops, and the number of keys."""
        return {
            "filter": "memory",
            "keys": len(self._keys),
            "asked": self._asked,
            "memory_known": self._asked - self._new,
            "memory_new": self._new,
            "false_drop_probability": 0.0,
            "expected_lost": 0.0,
        }
