"""Checkpoints: up to which row the filter's marks are durable, and which rows are marked again at an opening.

A checkpoint is three steps in this order: take S, the ordinal up to which every row is committed and marked; sync the filter;
note S and the filter's position after that sync in the store. After an unclean end only rows above S are marked again. The note
belongs to the filter that it names: an older copy or a new filter lacks some of these marks, so every row is marked again. A
filter that may have marks of rows that the store lacks is refused, because it would hide URLs for ever.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import TIMEOUT_MAX, Event, Lock, Thread
from typing import NamedTuple

from anabranch.frontier.errors import FormatMismatch, StoreUnavailable, caused_by, unwritable
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import CHECKPOINT, FILTER, FrontierStore, Opening

#: Keys that are marked again at a time.
MARK_CHUNK = 10_000


class Checkpoints:
    """Makes checkpoints in a thread of its own, `every_s` after the last one if there is something new, until the end.

    After one failed there is no further one in this process: a filter whose sync failed may have lost what the next sync
    claims to have kept. The core raises `failure` at its next call.
    """

    def __init__(
        self,
        store: FrontierStore,
        seen: SeenFilter,
        every_s: float = 60.0,
        *,
        marked: int = 0,
        on_change: Callable[[], None] = lambda: None,
        more: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`marked`: every row up to this one is committed and marked. `more`: what else each notes; asked in its thread."""
        self._store = store
        self._seen = seen
        self._every_s = min(every_s, TIMEOUT_MAX)
        self._marked = marked  #: S; up to here every row is committed and marked
        self._noted: int | None = None  # S of the last checkpoint of this process
        self._on_change = on_change
        self._more = more
        self.failure: StoreUnavailable | None = None  #: why there are no more checkpoints
        self._making = Lock()
        self._ends = Event()
        self._thread = Thread(target=self._run, name="anabranch-checkpoints", daemon=True)
        self._thread.start()

    def marked(self, ordinal: int) -> None:
        """Every row up to this one is committed and marked in the filter, by calls that have returned. O(1), no lock."""
        self._marked = ordinal

    def now(self) -> None:
        """Make one (blocks, any thread). Raises: StoreFull, StoreUnavailable if the filter cannot be written; then always."""
        with self._making:
            if self.failure is None:
                self.failure = self._make()
            if self.failure is not None:
                raise self.failure

    def close(self, *, final: bool = True) -> None:
        """End the thread, then make a last checkpoint if `final` (blocks as long as a sync under way).

        Call it after the last mark and before filter and store are closed. A second call is harmless. Raises: as `now`,
        with the thread ended.
        """
        if self._ends.is_set():
            return
        self._ends.set()
        self._thread.join()
        if final:
            self.now()

    def _run(self) -> None:
        while not self._ends.wait(self._every_s):
            if self._marked == self._noted:
                continue
            with suppress(StoreUnavailable):  # it is kept in `failure`
                self.now()
            if self.failure is not None:
                self._on_change()
                return

    def _make(self) -> StoreUnavailable | None:
        """Make a checkpoint; the answer is why that failed."""
        marked = self._marked  # before the sync: what is marked meanwhile may not be in it
        try:
            self._seen.sync()
            self._store.note({CHECKPOINT: str(marked), FILTER: self._seen.position(), **self._more()})
        except StoreUnavailable as error:
            return error
        except OSError as error:
            return caused_by(unwritable("the filter", error), error)
        except Exception as error:  # noqa: BLE001  whatever it is, the core must hear of it: a dead thread says nothing
            return caused_by(StoreUnavailable(f"a checkpoint failed: {error!r}"), error)
        self._noted = marked
        return None


def catch_up(store: FrontierStore, seen: SeenFilter, opening: Opening) -> None:
    """Let the filter know every key of a store that was just opened (blocks).

    Cost: nothing after a clean end, else some microseconds per row above the last checkpoint, or per row of all. Raises: as
    `remark_from`; StoreUnavailable; an OSError of the filter. It may be broken off at any moment and done again.
    """
    above = remark_from(opening.notes, seen, clean=opening.clean)
    if above is None:
        return
    from_nothing = {CHECKPOINT: "0", FILTER: seen.position()}
    noted = {CHECKPOINT: opening.notes.get(CHECKPOINT, "0"), FILTER: opening.notes.get(FILTER, "")}
    if not above and noted != from_nothing:
        # First of all: if this is broken off, the filter has a newer position, and the old note would seem to hold for it.
        store.note(from_nothing)
    for keys in store.keys(MARK_CHUNK, above):
        seen.mark(keys)


def remark_from(notes: Mapping[str, str], seen: SeenFilter, *, clean: bool) -> int | None:
    """The ordinal above which every row must be marked again: 0 = all rows, None = none.

    A store that was closed in order noted the filter's last position. If the filter has synced since, or has another name, it
    belongs to another state of the crawl. (After an unclean end an older copy of the store looks like one that missed a note.)

    Raises: FormatMismatch for such a filter, and for a note or position that cannot be read.
    """
    here, noted = seen.position(), notes.get(FILTER, "")
    name, _, syncs = here.rpartition("-")
    noted_name, _, noted_syncs = noted.rpartition("-")
    ahead = (_number(syncs) if here else 0) - (_number(noted_syncs) if noted else 0)
    if not here or not (noted or clean):
        return 0
    if not noted or name != noted_name or (clean and ahead > 0):  # a clean end notes the last position
        raise _mismatch()
    if ahead < 0:
        return 0
    return None if clean else _number(notes.get(CHECKPOINT, "0"))


def _number(text: str) -> int:
    if not text.isdecimal():
        raise FormatMismatch(f"the note of the last checkpoint is damaged: {text!r} is not a number")
    return int(text)


#: The name of the store's note.
PAIR = "pair"


class Pair(NamedTuple):
    """What both keep."""

    name: str  #: 32 random hex digits, of the first opening that took both
    openings: int  #: from 1

    def __str__(self) -> str:
        """The text that both keep."""
        return f"{self.name}-{self.openings}"

    @classmethod
    def read(cls, text: str) -> Pair | None:
        """None for an empty text. Raises: ValueError."""
        name, _, openings = text.rpartition("-")
        if text and not (name and openings.isdecimal()):
            raise ValueError(text)
        return cls(name, int(openings)) if text else None


def next_pair(noted: Pair | None, kept: Pair | None) -> Pair:
    """What both keep from this opening on; `noted` by the store, `kept` by the filter.

    A filter that keeps nothing is new, or from before there were pairs: its position is compared all the same. Raises:
    FormatMismatch for a filter that was used with another store, or with a later state of this one.
    """
    if kept is None:
        return Pair(secrets.token_hex(16), 1) if noted is None else Pair(noted.name, noted.openings + 1)
    if noted is None or noted.name != kept.name:
        has = "never saw it" if noted is None else f"belongs to filter {noted.name:.8}"
        raise _mismatch(f"it is filter {kept.name:.8}, the store {has}")
    if kept.openings > noted.openings:
        raise _mismatch(f"it was opened {kept.openings} times, the store {noted.openings} times: that is an older copy")
    return Pair(noted.name, noted.openings + 1)


def _mismatch(why: str = "") -> FormatMismatch:
    return FormatMismatch(
        f"the filter belongs to another state of the crawl{why and f' ({why})'}, and URLs that only it knows would be lost; "
        "restore store and filter from the same copy, or remove the filter, which is then made again from the store"
    )
