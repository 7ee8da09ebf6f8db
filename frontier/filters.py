"""The filters of dedup as the Frontier uses them: a job's own one, and one shared with other crawls."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.sharedfilter import SharedDsbf
from anabranch.dedup.errors import BadParameters, DedupError, FilterClosed
from anabranch.dedup.errors import FormatMismatch as FilterMismatch
from anabranch.dedup.errors import StoreFull as FilterFull
from anabranch.dedup.files.durable import replace_file, store_full_errors
from anabranch.dedup.files.formatfile import Format, read_record
from anabranch.dedup.recent import RecentFront
from anabranch.dedup.uniq import UniqFilter
from anabranch.frontier.checkpoints import MARK_CHUNK, PAIR, OtherStore, Pair, next_pair
from anabranch.frontier.errors import (
    FilterAhead,
    FormatMismatch,
    FrontierError,
    PolicyError,
    StoreFull,
    StoreUnavailable,
)
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import CHECKPOINT, FrontierStore, Opening

#: In the filter's folder, JSON: the store that it belongs to.
PAIR_FILE = "STORE"
_FILTER = "filter"
_FORMAT = Format(magic="anabranch filter's store", version=1, parameters={})


class DedupFilter:
    """A `UniqFilter` of dedup as a `SeenFilter`."""

    blocks = False

    def __init__(self, uniq: UniqFilter | RecentFront) -> None:
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
        """Return a token of the filter's state at the last sync; see `SeenFilter.position`."""
        return self._uniq.position()

    def close(self) -> None:
        """Let go of maps and files."""
        self._uniq.close()

    def facts(self) -> Mapping[str, float | str]:
        """The filter's statistics by name."""
        return self._uniq.statistics().facts()


def pair_of(folder: Path, notes: Mapping[str, str], *, is_shared: bool = False) -> Pair:
    """Return the pair that the store with these notes and the folder's filter keep from this opening on; changes nothing.

    `is_shared`: the notes are those of one worker, and its job is known to be the same: whatever differs, the store is an older
    one. Raises: FormatMismatch if they do not belong together (dedup's for what is damaged); FilterAhead; OSError.
    """
    noted, kept = _read(notes.get(PAIR, ""), "the store's note of its filter"), _kept(folder / PAIR_FILE)
    try:
        return next_pair(noted, kept)
    except OtherStore as error:
        if not is_shared:
            raise
        raise FilterAhead(error.why) from error


def keep_pair(folder: Path, store: FrontierStore, pair: Pair, filter_name: str) -> None:
    """Write it durably into both, before the filter marks a new URL (blocks). Raises: OSError; StoreUnavailable.

    The filter's folder keeps `filter_name`, too: the name of a mode or of a plug-in.
    """
    store.note({PAIR: str(pair)})  # first: a filter that is ahead would be taken for one of a later state
    with store_full_errors(folder / PAIR_FILE):
        record = _FORMAT.record() | {PAIR: str(pair), _FILTER: filter_name}
        replace_file(folder / PAIR_FILE, json.dumps(record).encode() + b"\n")


def remove_filter(folder: Path) -> None:
    """Remove a filter's folder as a whole, also if the process is killed meanwhile. Raises: OSError."""
    removed = folder.with_name(f"{folder.name}-removed")
    if removed.exists():
        shutil.rmtree(removed)
    if folder.exists():
        folder.rename(removed)
        shutil.rmtree(removed)


def kept_name(folder: Path) -> str | None:
    """The name of the filter in the folder; None if it is new, or of a version that did not keep it. Raises: OSError."""
    path = folder / PAIR_FILE
    name = read_record(path).get(_FILTER) if path.exists() else None
    return name if isinstance(name, str) else None


def _kept(path: Path) -> Pair | None:
    if not path.exists():
        return None
    found = read_record(path)
    _FORMAT.require(path, found)
    return _read(str(found.get(PAIR)), str(path))


def _read(text: str, place: str) -> Pair | None:
    try:
        return Pair.read(text)
    except ValueError as error:
        damage = f"{place} is damaged: {text!r}; restore store and filter from the same copy, or start over"
        raise FilterMismatch(damage) from error


#: Notes: the generation of the shared filter that was marked up to the checkpoint, and the counts so far as JSON.
SHARED = "shared"
COUNTS = "shared_counts"
#: Keys asked for between two looks at the filter's rate, which others change, too.
LOOK_EVERY = 10_000


class SharedCounts(NamedTuple):
    """Counts of the encounters of a job and its filter with other crawls, over all its runs."""

    left: int = 0  #: rows that died since another crawl had accepted their URL; one URL may come several times
    twice: int = 0  #: URLs of this crawl that another one had accepted by the time of the mark: both fetch
    lost: float = 0.0  #: expected number of new URLs that the filter dropped


class SharedFilter:
    """Keys in common with other crawls, as one crawl's store asks and marks them (`SqlStore(…, seen=…)`).

    `unseen` and `mark` wait for servers and belong to one thread, the opener's and then the store's; `counts`, `notes` and
    `facts` are for any thread. Errors: StoreUnavailable, StoreFull (the same call may go well later); FormatMismatch,
    PolicyError.
    """

    blocks = True

    def __init__(self, common: SharedDsbf) -> None:
        self._common = common
        self.left = ""  #: why the crawl has left this filter, which then knows nothing; empty: it has not
        self._follows: tuple[str, str] | None = None  #: the store and its opening
        self._new: set[bytes] = set()  #: what was unseen when it was asked last, and is not marked yet
        self._asked = 0  #: keys since the last look
        self.counts = SharedCounts()
        self._generation = common.generation
        self._look()

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each key, whether no crawl has marked it. Ask about all that is marked next at once."""
        if self.left:
            return [True] * len(keys)
        with _translated():
            new: list[bool] = self._common.unseen(keys).tolist()
            self._asked += len(keys)
            if self._asked >= LOOK_EVERY:
                self._look()
        self._new = {key for key, is_new in zip(keys, new, strict=True) if is_new}
        left, twice, lost = self.counts
        self.counts = SharedCounts(left + new.count(False), twice, lost + len(self._new) * self._rate)
        return new

    def mark(self, keys: Sequence[bytes]) -> None:
        """Let the others know these keys; those that were unseen when asked, and are not now, count as accepted twice."""
        if self.left:
            return
        asked = [key for key in dict.fromkeys(keys) if key in self._new]
        with _translated():
            if len(asked) < len(keys):
                self._common.mark([key for key in keys if key not in self._new])
            self._new = set()  # before: if this fails half done, the next try meets its own marks
            met = len(asked) - int(self._common.add(asked).sum()) if asked else 0
        self.counts = self.counts._replace(twice=self.counts.twice + met)

    def sync(self) -> None:
        """The servers keep what they keep: see to their append-only files."""

    def position(self) -> str:
        """Empty: no other filter is compared with this one; see `catch_up_shared`."""
        return ""

    def close(self) -> None:
        """Disconnect; a second call is harmless."""
        self._common.close()

    def facts(self) -> dict[str, float]:
        """The counts, and the filter as it was when it was last looked at."""
        return {
            "shared_keys": float(self._elements),
            "shared_false_drop_probability": self._rate,
            "shared_expected_lost": self.counts.lost,
            "shared_left": float(self.counts.left),
            "shared_twice": float(self.counts.twice),
        }

    def notes(self) -> Mapping[str, str]:
        """Return the notes of this filter that a checkpoint keeps."""
        return {SHARED: "" if self.left else self._generation, COUNTS: json.dumps(self.counts)}

    def follow(self, opening: Opening, openings: Callable[[], Mapping[str, int]], *, alone: bool) -> None:
        """Follow the store of this opening, which has these openings; leave the filter if it knows more of this store.

        An older state of a store has the name of the later one, whose keys are in the filter: they would hide its own URLs.
        `alone`: nobody else writes this store, so this opening implies all before it.
        """
        if not opening.history:
            return
        with _translated():
            kept = self._common.kept(opening.identity)
            there = openings()  # after it: other workers of the job commit meanwhile
            for history, batch in kept.items():
                if batch > there.get(history, -1):
                    self.left = "it has URLs of a later state of this job, which was restored or set back"
                    return
            self._follows = opening.identity, opening.history
            self._common.keep(opening.identity, opening.history, 0, alone=alone)

    def note_batch(self, number: int) -> None:
        """Keys of batches up to this number are marked from now on."""
        if self._follows is not None:
            crawl, history = self._follows
            with _translated():
                self._common.keep(crawl, history, number)

    def rows_to_mark(self, opening: Opening) -> int | None:
        """The ordinal above which every row of the store must be marked again: 0 = all, None = none.

        Every row up to a checkpoint was marked before it, in the filter whose generation was noted with it.
        """
        if opening.notes.get(SHARED) != self._generation:
            return 0
        return None if opening.clean else int(opening.notes.get(CHECKPOINT, "0"))

    def take_counts(self, opening: Opening) -> None:
        """Go on with the counts of the job's earlier runs."""
        noted = opening.notes.get(COUNTS)
        if noted is not None:
            self.counts = SharedCounts(*json.loads(noted))

    def _look(self) -> None:
        with _translated():
            now = self._common.statistics()
        self._asked, self._elements, self._rate = 0, now.elements, now.mean_rate


class BesideShared:
    """A job's own filter for the core, with the shared one's facts, and the end of both. The store asks the shared one."""

    blocks = False

    def __init__(self, own: SeenFilter, shared: SharedFilter) -> None:
        self._own = own
        self._shared = shared
        self.unseen = own.unseen  #: the core asks this for every page: no call in between
        self.mark = own.mark
        self.sync = own.sync
        self.position = own.position

    def close(self) -> None:
        """Let go of both; a second call is harmless."""
        try:
            self._own.close()
        finally:
            self._shared.close()

    def facts(self) -> Mapping[str, float | str]:
        """The own filter's figures, and the shared one's; a URL is lost to the one or to the other."""
        own, shared = self._own.facts(), self._shared.facts()
        return {**own, **shared, "expected_lost": float(own.get("expected_lost", 0.0)) + shared["shared_expected_lost"]}


def open_shared(urls: Sequence[str], name: str, *, expect: int, false_positive: float) -> SharedFilter:
    """Open the filter of this name on these Redis servers; create it if it does not exist (blocks).

    All who share it name the same servers in the same order, the same name and the same numbers. Raises: PolicyError (a URL, a
    password or a number), FormatMismatch (it was made with other numbers or on other servers), StoreUnavailable, StoreFull.
    """
    with _translated(f"shared filter {name}: "):
        common = SharedDsbf.open(
            urls, name=name, parameters=DsbfParameters(expected=expect, false_positive=false_positive)
        )
    try:
        return SharedFilter(common)
    except BaseException:
        common.close()
        raise


def catch_up_shared(store: FrontierStore, shared: SharedFilter, opening: Opening) -> None:
    """Mark every row of a store that was just opened (blocks). It may be interrupted and repeated.

    Cost: nothing after a clean end, else a round trip per 10,000 rows above the last checkpoint, or of all. Raises: as `mark`.
    """
    shared.take_counts(opening)
    openings: Callable[[], Mapping[str, int]] | None = getattr(store, "openings", None)
    if openings is not None:
        shared.follow(opening, openings, alone=getattr(store, "share_rule", None) is None)
    if shared.left:
        return
    above = shared.rows_to_mark(opening)
    if above is None:
        return
    for keys in store.keys(MARK_CHUNK, above):
        shared.mark(keys)


@contextmanager
def _translated(prefix: str = "") -> Iterator[None]:
    """Inside, dedup's errors become this room's."""
    try:
        yield
    except FilterClosed as error:
        raise FrontierError(str(error)) from error  # no patience helps
    except BadParameters as error:
        raise PolicyError(prefix + str(error)) from error
    except FilterMismatch as error:
        raise FormatMismatch(prefix + str(error)) from error
    except FilterFull as error:
        raise StoreFull(f"{prefix}{error.filename}: {error.strerror}") from error
    except DedupError as error:
        raise StoreUnavailable(prefix + str(error)) from error
