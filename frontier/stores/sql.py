"""The store in SQL: a file of SQLite or a database of PostgreSQL, behind one thread.

What is said is appended to a FIFO (`thread`) and worked off by one thread (`service`, `work`), which alone holds the
connection. This class is the face: it never touches the tables itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from anabranch.frontier.errors import FrontierError, StoreInUse, StoreUnavailable
from anabranch.frontier.models import GateKey, Head, UrlRecord
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores import listing, parcels, reading
from anabranch.frontier.stores.base import Counters, EndedRecord, Opening, QueueFacts
from anabranch.frontier.stores.database import Database, SqliteFile
from anabranch.frontier.stores.messages import Answer, Batch, GateRow, LaneId, LaneRow, Parcel, Place, Standing
from anabranch.frontier.stores.opening import open_tables, put_notes
from anabranch.frontier.stores.recounting import recount
from anabranch.frontier.stores.service import Service
from anabranch.frontier.stores.thread import Asked, Item, Question
from anabranch.frontier.turns import Turn

T = TypeVar("T")


class SqlStore:
    """A `FrontierStore` that survives its process: what was `Synced` is on the disk. One owner at a time.

    A transaction that fails for a reason that may pass (a full disk, a server that is gone) is kept whole and tried again
    for `retry_s` seconds. After that, or at once if no patience can help, comes `StoreFailed`: all that is written or asked
    then is dropped, and whoever waits gets the error.
    """

    def __init__(
        self, target: Path | str, *, max_pages: int | None = None, seen: SeenFilter | None = None, retry_s: float = 30.0
    ) -> None:
        """A path is a file of SQLite, a string the URL of a PostgreSQL database; its tables live in the connection's schema.

        `max_pages` bounds the file's size: beyond it the store is full. `seen` is a filter that may block: it is asked
        before rows are written and marked after they are durable, both in the store thread, and belongs to that thread from
        `open` to `close`. Raises: PolicyError for a URL of another kind.
        """
        self._database = _database(target, max_pages)
        self._seen = seen
        self._retry_s = retry_s
        self._answers: deque[Answer] = deque()
        self._service: Service | None = None

    def open(self, identity: Mapping[str, str], now_s: float, on_change: Callable[[], None]) -> Opening:
        """Create or open the tables and mark them unclean (blocks). `on_change` is called from the store thread.

        Raises: FormatMismatch, StoreInUse naming the owner, StoreFull, StoreUnavailable.
        """
        if self._service is not None:
            raise StoreInUse("this store is open already; close it first, or make another one")

        def post(answers: list[Answer]) -> None:
            self._answers.extend(answers)
            on_change()

        self._service = Service(self._database, self._seen, self._retry_s, post)
        try:
            return self._service.open(partial(open_tables, identity=identity, now_s=now_s))
        except FrontierError:
            self._service = None
            raise

    def write(self, batch: Batch) -> None:
        """Take a batch; `Synced` will tell when it is durable."""
        self._append(batch)

    def ask_heads(self, lane: LaneId, limit: int, *, with_queue: bool) -> None:
        """Ask for the first `limit` rows of a lane that do not wait."""
        self._append(Asked(reading.read_heads, (lane, limit, with_queue)))

    def ask_lanes(self, gate: int, after: Turn | None, limit: int) -> None:
        """Ask for the servable lanes of a gate behind a turn."""
        self._append(Asked(reading.read_lanes, (gate, after, limit)))

    def ask_gate(self, gate: int, key: GateKey, lanes: int) -> None:
        """Take one gate into memory, make its row if there is none."""
        self._append(Asked(reading.take_gate, (gate, key, lanes), takes=True))

    def ask_gates(self, now_s: float, limit: int, lanes: int) -> None:
        """Take up to `limit` gates into memory that are not there and have something to serve."""
        self._append(Asked(reading.take_gates, (now_s, limit, lanes), takes=True))

    def ask_retries(self, after: tuple[float, int] | None, limit: int) -> None:
        """Ask for waiting rows behind (due_s, ordinal)."""
        self._append(Asked(reading.read_retries, (after, limit)))

    def hurry(self) -> None:
        """Begin the next transaction now: somebody waits for what it brings."""
        if self._service is not None:
            self._service.hurry()

    def take_answers(self) -> list[Answer]:
        """All answers since the last call, oldest first."""
        answers: list[Answer] = []
        while self._answers:
            answers.append(self._answers.popleft())
        return answers

    def flush(self) -> None:
        """Return when every batch written so far is durable (blocks). Raises: StoreUnavailable."""
        self._wait_for(lambda _: None)

    def note(self, notes: Mapping[str, str]) -> None:
        """Keep these facts by name, durably (blocks). Raises: StoreUnavailable."""
        self._wait_for(put_notes, dict(notes))

    def parcels(self, share: int, after: int, limit: int) -> list[Parcel]:
        """What is kept for another share of the crawl, by number, behind one (blocks). Cost: one seek."""
        return self._wait_for(parcels.read, share, after, limit)

    def close(self, *, clean: bool) -> None:
        """Write all, mark the store clean if asked, let go of it (blocks). Calling it twice is harmless.

        A transaction that is being tried again is tried at once, and then as long as the time allows. After a failure the store
        is never marked clean. Raises: the failure, if `clean` was asked.
        """
        service, self._service = self._service, None
        if service is not None:
            service.close(clean=clean)

    # Questions of others

    def look_up(self, key: bytes, lane: LaneId | None = None) -> UrlRecord | None:
        """What is known of the URL with this dedup key (for a queued one without its lane it costs a scan)."""
        return self._wait_for(reading.look_up, key, lane)

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """What is known of those of these URLs that have ended, by dedup key (two seeks for each)."""
        return self._wait_for(reading.look_up_ended, keys)

    def of_url(self, url: str, limit: int) -> list[UrlRecord]:
        """The latest rows of the keys under which this URL is known, by ordinal (a scan: half a second a million rows)."""
        return self._wait_for(reading.of_url, url, limit)

    def keys(self, chunk: int, after: int = 0) -> Iterator[list[bytes]]:
        """Every dedup key of a row with an ordinal above `after`, in chunks, read as they are taken.

        Rows that move while it runs may be missed or come twice: ask before anything is written.
        """
        place: Place | None = None
        while True:
            keys, place = self._wait_for(reading.queued_keys, place, chunk, after)
            if keys:
                yield keys
            if place is None:
                break
        ordinal: int | None = after
        while ordinal is not None:
            keys, ordinal = self._wait_for(reading.ended_keys, ordinal, chunk)
            if keys:
                yield keys

    def queue(self, queue: int) -> QueueFacts | None:
        """One queue."""
        return self._wait_for(listing.queue, queue)

    def queues(self, standing: Standing | None, after: int | None, limit: int) -> list[QueueFacts]:
        """Queues that have rows (or are paused or retired), by id, behind one; of one standing if given."""
        return self._wait_for(listing.queues, standing, after, limit)

    def longest(self, limit: int) -> list[QueueFacts]:
        """The queues with most rows, longest first (costs a look at every lane)."""
        return self._wait_for(listing.longest, limit)

    def lanes(self, queue: int, after: int | None, limit: int) -> list[LaneRow]:
        """The lanes of a queue that have rows, by gate id, behind one."""
        return self._wait_for(listing.lanes, queue, after, limit)

    def gate(self, gate: int) -> GateRow | None:
        """One gate, as it was last written."""
        return self._wait_for(listing.gate, gate)

    def queued(self, after: Place | None, limit: int) -> list[Head]:
        """Rows of `url` by place, behind one."""
        return self._wait_for(listing.queued, after, limit)

    def ended_after(self, after: int, limit: int) -> list[EndedRecord]:
        """Rows of `done` by ordinal, above one."""
        return self._wait_for(listing.ended_after, after, limit)

    def tally(self) -> Mapping[str, int]:
        """Queues by what their rows say (costs a look at every lane)."""
        return self._wait_for(listing.tally)

    def counters(self) -> Counters:
        """The totals, recounted from the rows (costs a scan). Raises: InvariantBroken, naming a difference."""
        return self._wait_for(recount)

    def _append(self, item: Item) -> None:
        if self._service is None or not self._service.append(item):
            raise StoreUnavailable(f"{self._database.place}: the store is not open")

    def _wait_for(self, ask: Callable[..., T], *arguments: Any) -> T:
        question = Question(lambda connection: ask(connection, *arguments))
        self._append(question)
        answer: T = question.answer.result()
        return answer


def _database(target: Path | str, max_pages: int | None) -> Database:
    if isinstance(target, Path):
        return SqliteFile(target, max_pages)
    from anabranch.frontier.stores.postgres import PostgresDatabase  # noqa: PLC0415  the driver comes with an extra

    return PostgresDatabase(target)
