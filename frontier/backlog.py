"""Back-pressure: what was said to the store and is not durable yet."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from anabranch.frontier.stores.messages import Batch

#: Rows that may be written and not durable before the Frontier waits for the store.
MAX_ROWS: Final = 20_000
#: The same for what these rows hold: URLs and payloads.
MAX_BYTES: Final = 64 << 20


class Behind(NamedTuple):
    """How far the store was behind at one moment."""

    rows: int  #: rows said and not durable
    is_full: bool  #: so many that nothing new was begun


class Waiting(NamedTuple):
    """The store cannot write now and tries again."""

    what: str  #: what fails and how
    since_s: float  #: epoch seconds
    patience_s: float  #: so long at most; then the store fails

    def words(self, now_s: float) -> str:
        """`waits for the filter: the Redis server … does not answer (12 s of 30 s)`."""
        return f"waits for {self.what} ({max(now_s - self.since_s, 0):.0f} s of {self.patience_s:.0f} s)"


class Backlog:
    """Numbers the batches and counts those that are not durable. O(1) a batch."""

    def __init__(self, max_unacknowledged: int) -> None:
        self._max_finishes = max_unacknowledged
        self._batches: deque[tuple[int, int, int, int]] = deque()
        self.rows = 0  #: rows not durable
        self.bytes = 0  #: URLs and payloads of new rows that are not durable
        self.finishes = 0  #: finished leases not durable
        self.said = 0  #: number of the last batch
        self.durable = 0  #: number of the last durable batch
        self.is_full = False  #: the store must catch up before anything new is begun
        #: Rows, bytes and finishes since the store was last told to begin.
        self._gathered = (0, 0, 0)

    @property
    def behind(self) -> Behind:
        """How far the store is behind now: taken before a flush, after which it never is."""
        return Behind(self.rows, self.is_full)

    @property
    def is_empty(self) -> bool:
        """Whether all that was said is durable."""
        return self.durable == self.said

    def add(self, batch: Batch, finishes: int) -> None:
        """A batch is written that ends so many leases."""
        self.said = number = batch.number
        rows, size = batch.rows, batch.bytes if batch.new or batch.exchanged else 0
        self._batches.append((number, rows, size, finishes))
        gathered = self._gathered
        self._gathered = (gathered[0] + rows, gathered[1] + size, gathered[2] + finishes)
        self.rows += rows
        self.bytes += size
        self.finishes += finishes
        self._weigh()

    def synced(self, number: int) -> None:
        """Every batch up to `number` is durable."""
        self.durable = max(self.durable, number)
        batches = self._batches
        while batches and batches[0][0] <= number:
            _, rows, size, finishes = batches.popleft()
            self.rows -= rows
            self.bytes -= size
            self.finishes -= finishes
        if not batches:
            self._gathered = (0, 0, 0)
        if self.is_full:
            self._weigh()

    def begins(self) -> bool:
        """Whether the store should begin with what it has gathered: half of what may be behind. Says so once for each half."""
        rows, size, finishes = self._gathered
        if 2 * finishes >= self._max_finishes or 2 * rows >= MAX_ROWS or 2 * size >= MAX_BYTES:
            self._gathered = (0, 0, 0)
            return True
        return False

    def _weigh(self) -> None:
        self.is_full = self.finishes >= self._max_finishes or self.rows >= MAX_ROWS or self.bytes >= MAX_BYTES
