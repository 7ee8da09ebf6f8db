"""Checkpoints: up to which row the filter's marks are durable, and which rows must be marked again at an opening.

A checkpoint is three steps in this order: take S, the ordinal up to which every row is committed and marked; sync the filter;
note in the store S and the filter's position. After an unclean end only rows above S are marked again. In a filter that is an
older copy or was made anew every row is marked. One that may know what the store does not would hide URLs: `FilterAhead`.

Whether it may is told by what it keeps of its store: the store's name, the opening that it took part in last, and the last
batch whose keys were marked (`require_in_store`); and by its position, for stores that name no openings.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import TIMEOUT_MAX, Event, Lock, Thread
from typing import NamedTuple

from anabranch.dedup.files.durable import descriptor, replace_file, store_full_errors, sync_path, write_all
from anabranch.frontier.errors import FilterAhead, FormatMismatch, StoreUnavailable, caused_by, unwritable
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import CHECKPOINT, FILTER, FrontierStore, Opening

#: Keys that are marked again at a time.
MARK_CHUNK = 10_000


#: In the filter's folder, one line: the opening of the store that it takes part in, the last batch whose keys it may know, and
#: the boot of the machine that uses it, or `_ENDED`. An earlier version wrote no boot.
BATCH_FILE = "BATCH"
_LINE = re.compile(rb"(\S+) ([0-9]{20})(?: (\S+))?\n")
#: Instead of a boot: the filter is closed, and the number and all that it knows are durable.
_ENDED = b"ended"
#: Linux: a random name for each start of the machine (proc(5)).
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: More than a store can have: the filter is not believed again.
_BEYOND = 10**19


class LastBatch:
    """How far into its store's history a filter may know keys, kept beside it, so that a store that was set back is noticed.

    The number is written before keys are marked, so a killed process leaves none that is too small; `sync` makes it durable
    before the filter is. After a power loss it may be as old as the last checkpoint, and the marks newer: so the file
    names the boot, too. Cost of a `note`: 20 µs, once for each transaction. Errors: OSError; StoreFull, an OSError, too.
    """

    def __init__(self, folder: Path, boot: bytes | None = None) -> None:
        """`boot`: the name of this start of the machine; None: as the system says."""
        self._path = folder / BATCH_FILE
        self._history = b""  #: the opening that is followed; empty: none
        self._boot = boot_name() if boot is None else boot

    def require_in(self, opening: Opening, *, is_old: bool, is_elsewhere: bool) -> None:
        """The store has all that the filter may know; a filter that keeps nothing is believed unless it `is_old`.

        `is_elsewhere`: the store is not beside the filter, so it need not have every row whose key outlived a power loss here.
        Raises: FilterAhead.
        """
        if not opening.history:
            return
        try:
            found = _LINE.fullmatch(self._path.read_bytes())
        except FileNotFoundError:
            if is_old:
                raise FilterAhead("it does not say how much of the store it knows") from None
            return
        if found is None:
            raise FilterAhead(f"{self._path} is damaged")
        if int(found[2]) == _BEYOND:
            raise FilterAhead("rows that this process had seen were not in the store")
        require_in_store(found[1].decode(errors="replace"), int(found[2]), opening)
        if is_elsewhere and found[3] is None:
            raise FilterAhead("an earlier version used it, which did not note a restart of the machine")
        if is_elsewhere and found[3] not in {_ENDED, self._boot}:
            raise FilterAhead("the machine was restarted while it was in use, so it may know more than it says")

    def begin(self, opening: Opening) -> None:
        """Follow this opening of the store, from its first batch on; durable."""
        if opening.history:
            self._history = opening.history.encode()
            with store_full_errors(self._path):
                replace_file(self._path, self._line(0))

    def note(self, batch: int) -> None:
        """Keys of batches up to this number are marked from now on."""
        if self._history:
            with descriptor(self._path, os.O_WRONLY) as fd:
                write_all(fd, self._line(batch), 0)

    def end(self) -> None:
        """Note that no more keys are marked and that all marks are durable."""
        if self._history:
            found = self._path.read_bytes()
            with store_full_errors(self._path):
                replace_file(self._path, found.rpartition(b" ")[0] + b" %s\n" % _ENDED)
            self._history = b""

    def distrust(self) -> None:
        """The store is not as this process left it: the next opening makes the filter anew."""
        with suppress(OSError):
            self.note(_BEYOND)

    def sync(self) -> None:
        """Make what was noted durable."""
        if self._history:
            sync_path(self._path)

    def _line(self, batch: int) -> bytes:
        return b"%s %020d %s\n" % (self._history, batch, self._boot)


def boot_name() -> bytes:
    """The name of this start of the machine; one for all starts where the system has none."""
    try:
        return b"".join(_BOOT.read_bytes().split()) or b"-"
    except OSError:
        return b"-"


#: For a filter that has no folder, or that others keep.
NO_FOLDER = LastBatch(Path(), b"-")


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
        on_change: Callable[[], None] | None = None,
        more: Callable[[], Mapping[str, str]] = dict,
        last_batch: LastBatch = NO_FOLDER,
    ) -> None:
        """`marked`: every row up to this one is committed and marked. `more`: what else each notes; asked in its thread.

        `last_batch` is durable before the filter is: it must never be the older one.
        """
        self._store = store
        self._seen = seen
        self._every_s = min(every_s, TIMEOUT_MAX)
        self._marked = marked  #: S; up to here every row is committed and marked
        self._noted: int | None = None  # S of the last checkpoint of this process
        self._on_change = on_change
        self._more = more
        self.last_batch = last_batch
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
            try:
                self.last_batch.end()
            except OSError as error:
                raise unwritable("the filter", error) from error

    def _run(self) -> None:
        while not self._ends.wait(self._every_s):
            if self._marked == self._noted:
                continue
            with suppress(StoreUnavailable):  # it is kept in `failure`
                self.now()
            if self.failure is not None:
                if self._on_change is not None:
                    self._on_change()
                return

    def _make(self) -> StoreUnavailable | None:
        """Make a checkpoint; the answer is why that failed."""
        marked = self._marked  # before the sync: what is marked meanwhile may not be in it
        try:
            self.last_batch.sync()
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

    Raises: FilterAhead for such a filter; FormatMismatch for a note or position that cannot be read.
    """
    here, noted = seen.position(), notes.get(FILTER, "")
    name, _, syncs = here.rpartition("-")
    noted_name, _, noted_syncs = noted.rpartition("-")
    ahead = (_number(syncs) if here else 0) - (_number(noted_syncs) if noted else 0)
    if not here or not (noted or clean):
        return 0
    if not noted or name != noted_name or (clean and ahead > 0):  # a clean end notes the last position
        raise FilterAhead
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
    """The note by which a store and its filter recognise each other; both keep it."""

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
    """Return the pair that both keep from this opening on; the store `noted` one before, the filter `kept` one.

    A filter that keeps none is new, or was made before there were pairs; its position is compared all the same. Raises:
    OtherStore for a filter of another store, FilterAhead for one that was used with a later state of this one.
    """
    if kept is None:
        return Pair(secrets.token_hex(16), 1) if noted is None else Pair(noted.name, noted.openings + 1)
    if noted is None or noted.name != kept.name:
        has = "never saw it" if noted is None else f"belongs to filter {noted.name:.8}"
        raise OtherStore(f"it is filter {kept.name:.8}, the store {has}")
    if kept.openings > noted.openings:
        raise FilterAhead(
            f"it was opened {kept.openings} times, the store {noted.openings} times: that is an older copy"
        )
    return Pair(noted.name, noted.openings + 1)


class OtherStore(FilterAhead):
    """The filter was used with another store: no older state of it, but another job's, or one that was begun anew."""


def require_in_store(history: str, batch: int, opening: Opening) -> None:
    """The store has every batch whose keys a filter may know: up to number `batch`, of its opening of this name.

    Any opening that this state of the store comes from will do. Raises: FilterAhead.
    """
    last = opening.earlier.get(history)
    if last is None:
        raise FilterAhead("the store does not have the opening that it was used in last: that is an older copy")
    if batch > last:
        raise FilterAhead(f"it has batches up to {batch:,}, the store up to {last:,}: that is an older copy")
