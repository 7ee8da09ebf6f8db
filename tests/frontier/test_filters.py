"""A job's own filter on disk: it and its store know each other, in files, through every way to end and every copy put back."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import redis

from anabranch.dedup.bloom.sharedfilter import SharedDsbf
from anabranch.dedup.errors import BadParameters, DedupError, FilterClosed
from anabranch.dedup.errors import FormatMismatch as FilterMismatch
from anabranch.dedup.errors import StoreFull as FilterFull
from anabranch.dedup.errors import StoreUnavailable as FilterUnavailable
from anabranch.dedup.uniq import UniqFilter, UniqParameters
from anabranch.frontier import admission, composition
from anabranch.frontier.checkpoints import BATCH_FILE, LastBatch
from anabranch.frontier.composition import open_frontier
from anabranch.frontier.errors import FormatMismatch, FrontierError, PolicyError, StoreFull, StoreUnavailable
from anabranch.frontier.filters import (
    LOOK_EVERY,
    PAIR_FILE,
    BesideShared,
    DedupFilter,
    Pair,
    SharedCounts,
    SharedFilter,
    keep_pair,
    kept_name,
    open_shared,
)
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.records import LATER, SEEN, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.seen import ExactFilter
from anabranch.frontier.stores.contract import Counters, Opening
from anabranch.frontier.stores.memory.store import MemoryStore
from anabranch.frontier.stores.sql.store import SqlStore
from tests.frontier.builder import FakeClock, candidates
from tests.frontier.test_composition import crash
from tests.redis_server import redis_servers

SMALL = UniqParameters(levels=(1, 1), expected=1000, leaf_bits=1 << 14)
ORDER = FrontierOrder(policy="host", uniq=SMALL)
#: Accepted in the first run, and in the second.
FIRST, SECOND = "http://a.test/1", "http://a.test/2"


def opened(state: Path) -> Frontier:
    return open_frontier(state, ORDER, clock=FakeClock())


def run(state: Path, url: str, end: Callable[[Frontier], None] = Frontier.close) -> None:
    frontier = opened(state)
    frontier.schedule(candidates(url))
    frontier.operations.checkpoint()
    end(frontier)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A job of two runs, and beside it copies of store and filter as the first one left them."""
    state = tmp_path / "state"
    run(state, FIRST)
    shutil.copytree(state, tmp_path / "copy")
    run(state, SECOND)
    return state


def remove_store(state: Path) -> None:
    for path in state.glob("frontier.db*"):
        path.unlink()


def put_back_store(state: Path) -> None:
    remove_store(state)
    shutil.copy(state.parent / "copy" / "frontier.db", state)


def test_a_store_that_was_begun_anew_is_refused_each_time(state: Path) -> None:
    """A refusal is no reason to take it at the next try; without the filter it is taken, and every URL is new again."""
    remove_store(state)
    for _ in range(3):
        with pytest.raises(
            FormatMismatch, match=r"another state of the crawl .*the store never saw it.*or remove the filter"
        ):
            opened(state)
    shutil.rmtree(state / "seen")
    with opened(state) as frontier:
        assert frontier.schedule(candidates(SECOND))[0].kind.value == "new"


def is_lost(state: Path, *urls: str) -> list[bool]:
    """Whether each URL is taken for seen, though no queue holds it."""
    with opened(state) as frontier:
        assert "older copy" in frontier.filter_renewed
        return [verdict.kind.value != "new" for verdict in frontier.schedule(candidates(*urls))]


def test_with_an_older_store_the_filter_is_made_anew(state: Path) -> None:
    """URLs that only the filter knew are new again, those of the store are known; the next opening is ordinary."""
    put_back_store(state)
    assert is_lost(state, FIRST, SECOND) == [True, False]
    with opened(state) as frontier:
        assert frontier.filter_renewed == ""


def test_an_own_filter_is_made_anew_as_well(state: Path) -> None:
    """A user's filter has no part in it: what is compared lies beside it."""
    order = replace(ORDER, uniq="tests.frontier.test_filterchoice:LinesFilter")
    home = state.parent / "own"

    def with_own() -> Frontier:
        return open_frontier(home, order, clock=FakeClock())

    for url in (FIRST, SECOND):
        with with_own() as frontier:
            frontier.schedule(candidates(url))
        if url == FIRST:
            shutil.copy(home / "frontier.db", state.parent / "own.db")
    shutil.copy(state.parent / "own.db", home / "frontier.db")
    with with_own() as frontier:
        assert frontier.filter_renewed
        assert [verdict.kind.value for verdict in frontier.schedule(candidates(FIRST, SECOND))] == ["seen", "new"]


@pytest.mark.parametrize("end", [Frontier.close, crash])
def test_a_copy_that_was_made_during_a_run_is_noticed_after_it(state: Path, end: Callable[[Frontier], None]) -> None:
    """Store and filter were opened equally often then: the number of the last batch tells, also after a kill."""
    frontier = opened(state)
    frontier.schedule(candidates("http://a.test/3"))
    frontier.operations.checkpoint()
    hot = state.parent / "hot"
    hot.mkdir()
    for path in state.glob("frontier.db*"):  # nothing is written meanwhile
        shutil.copy(path, hot)
    frontier.schedule(candidates("http://a.test/4"))
    frontier.flush()
    end(frontier)
    remove_store(state)
    shutil.copytree(hot, state, dirs_exist_ok=True)
    assert is_lost(state, "http://a.test/3", "http://a.test/4") == [True, False]


def power_lost(place: Path, *, is_set_back: bool) -> Callable[[], Frontier]:
    """A run on a store of another machine, until the own one lost its power; then opens it.

    The disk has all marks, but the number of the last checkpoint. `is_set_back`: a standby took over that lacks the rest.
    """
    state, server = place / "state", place / "server"
    server.mkdir()

    def again() -> Frontier:
        return open_frontier(state, ORDER, store=SqlStore(server / "frontier.db"), clock=FakeClock())

    frontier = again()
    frontier.schedule(candidates(FIRST))
    frontier.operations.checkpoint()
    number = (state / "seen" / BATCH_FILE).read_bytes()
    shutil.copytree(server, place / "standby")  # nothing is written meanwhile
    frontier.schedule(candidates(SECOND))
    frontier.flush()
    crash(frontier)
    (state / "seen" / BATCH_FILE).write_bytes(number)
    if is_set_back:
        shutil.rmtree(server)
        (place / "standby").rename(server)
    return again


@pytest.mark.parametrize("is_set_back", [True, False])
def test_marks_that_outlived_their_number_in_a_power_loss_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_set_back: bool
) -> None:
    """Nobody can tell by the number whether the store has all: the filter is made anew if the machine was restarted."""
    again = power_lost(tmp_path, is_set_back=is_set_back)
    monkeypatch.setattr("anabranch.frontier.checkpoints.boot_name", lambda: b"the-next-boot")
    with again() as frontier:
        assert "the machine was restarted while it was in use" in frontier.filter_renewed
        kinds = [verdict.kind.value for verdict in frontier.schedule(candidates(FIRST, SECOND))]
        assert kinds == ["seen", "new" if is_set_back else "seen"]


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_a_restarted_machine_costs_nothing_after_an_end_in_order_or_beside_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """A filter that was closed has said all; a store on the same disk has every row that was marked."""

    def again() -> Frontier:
        store = SqlStore(tmp_path / "server.db") if is_elsewhere else None
        return open_frontier(tmp_path / "state", ORDER, store=store, clock=FakeClock())

    frontier = again()
    frontier.schedule(candidates(FIRST))
    if is_elsewhere:
        frontier.close()
    else:
        crash(frontier)
    monkeypatch.setattr("anabranch.frontier.checkpoints.boot_name", lambda: b"the-next-boot")
    with again() as frontier:
        assert frontier.filter_renewed == ""
        assert frontier.schedule(candidates(FIRST))[0].kind.value == "seen"


def test_a_filter_of_a_store_that_went_another_way_is_made_anew(state: Path) -> None:
    """Both were opened equally often, and the store is the further one: only the name of the opening tells."""
    put_back_store(state)
    seen, elsewhere = state / "seen", state.parent / "elsewhere"
    seen.rename(elsewhere)
    run(state, "http://a.test/5")
    run(state, "http://a.test/6")
    shutil.rmtree(seen)
    elsewhere.rename(seen)
    with opened(state) as frontier:
        assert "older copy" in frontier.filter_renewed
        kinds = [verdict.kind.value for verdict in frontier.schedule(candidates("http://a.test/6", SECOND))]
        assert kinds == ["seen", "new"]


@pytest.mark.parametrize("text", [b"", b"0123 77", b"\xff" * 40])
def test_a_damaged_number_of_the_last_batch_has_the_filter_made_anew(state: Path, text: bytes) -> None:
    """An interrupted copy leaves such a number."""
    (state / "seen" / BATCH_FILE).write_bytes(text)
    with opened(state) as frontier:
        assert frontier.filter_renewed.endswith("is damaged")
        assert frontier.schedule(candidates(SECOND))[0].kind.value == "seen"


def test_a_number_of_the_last_batch_without_a_boot_is_believed(state: Path) -> None:
    """An earlier version wrote it so."""
    file = state / "seen" / BATCH_FILE
    file.write_bytes(file.read_bytes().rpartition(b" ")[0] + b"\n")
    with opened(state) as frontier:
        assert frontier.filter_renewed == ""


def test_a_renewal_that_is_killed_is_done_again(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder goes as a whole, so what is left of it is no damaged filter."""
    put_back_store(state)

    def killed(path: Path) -> None:
        next(Path(path).rglob("FORMAT")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as broken_off:
        broken_off.setattr("anabranch.frontier.filters.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(state)
    with opened(state) as frontier:
        assert [verdict.kind.value for verdict in frontier.schedule(candidates(FIRST, SECOND))] == ["seen", "new"]


@pytest.mark.parametrize("end", [Frontier.close, crash])
def test_a_copy_of_a_run_that_was_killed_is_no_better(state: Path, end: Callable[[Frontier], None]) -> None:
    """The store's unclean end says nothing of who is older."""
    shutil.rmtree(state.parent / "copy")
    run(state, "http://a.test/3", crash)
    shutil.copytree(state, state.parent / "copy")
    run(state, "http://a.test/4", end)
    put_back_store(state)
    for path in (state.parent / "copy").glob("frontier.db-*"):
        shutil.copy(path, state)
    assert is_lost(state, "http://a.test/3", "http://a.test/4") == [True, False]


def test_another_jobs_filter_is_refused(state: Path, tmp_path: Path) -> None:
    """Also one that was used less often."""
    run(tmp_path / "other", "http://b.test/")
    shutil.rmtree(state / "seen")
    shutil.copytree(tmp_path / "other" / "seen", state / "seen")
    with pytest.raises(FormatMismatch, match=r"it is filter \w{8}, the store belongs to filter \w{8}"):
        opened(state)


def counted(frontier: Frontier) -> dict[str, float | str]:
    seen = frontier.operations.statistics().seen
    return {name: seen[name] for name in ("recent_known", "pending_known", "memory_known", "dropped", "counted_since")}


def test_every_known_link_is_counted_by_who_knew_it_and_since_when(tmp_path: Path) -> None:
    """Over all runs; a kill loses what came after the last checkpoint, so the time from which on nothing is missing moves."""
    clock = FakeClock()
    begun = "2001-09-09T01:46:40+00:00"
    clock.now_s = 1_000_000_000.0

    def at_work() -> Frontier:
        return open_frontier(tmp_path, ORDER, clock=clock)

    with at_work() as frontier:
        frontier.schedule(candidates(FIRST))
        frontier.schedule(candidates(FIRST))  # its row is not durable
        frontier.flush()
        frontier.schedule(candidates(FIRST))  # in the memory of recent keys
        frontier.known.count_recent(7)
        first = counted(frontier)
    assert first == {
        "recent_known": 7,
        "pending_known": 1,
        "memory_known": 1,
        "dropped": 0,
        "counted_since": begun,
    }
    clock.now_s += 3600
    frontier = at_work()
    frontier.schedule(candidates(FIRST))  # after the opening only the filter has it
    assert counted(frontier) == {**first, "dropped": 1}
    crash(frontier)
    clock.now_s += 3600
    with at_work() as frontier:
        assert counted(frontier)["counted_since"] == "2001-09-09T03:46:40+00:00"
        assert counted(frontier)["recent_known"] == 7


def test_an_older_filter_is_told_what_it_lacks(state: Path) -> None:
    """It knows less than the store, which is no danger."""
    shutil.rmtree(state / "seen")
    shutil.copytree(state.parent / "copy" / "seen", state / "seen")
    with opened(state) as frontier:
        assert [verdict.kind.value for verdict in frontier.schedule(candidates(FIRST, SECOND))] == ["seen", "seen"]


def test_a_job_from_before_the_notes_is_taken_once(state: Path) -> None:
    """And is a pair from then on."""
    (state / "seen" / PAIR_FILE).unlink()
    (state / "seen" / BATCH_FILE).unlink()
    opened(state).close()
    put_back_store(state)
    assert is_lost(state, FIRST, SECOND) == [True, False]


def test_a_position_that_does_not_fit_is_refused_each_time(tmp_path: Path) -> None:
    """A filter of the host's own has nothing but its position: opening the store to refuse it must not pass for a crash."""

    def of_its_own() -> Frontier:
        own = DedupFilter(UniqFilter.open(tmp_path / "own", SMALL))
        return open_frontier(tmp_path / "state", ORDER, seen=own, clock=FakeClock())

    for url in (FIRST, SECOND):
        with of_its_own() as frontier:
            frontier.schedule(candidates(url))
        if url == FIRST:
            shutil.copytree(tmp_path / "state", tmp_path / "copy")
    put_back_store(tmp_path / "state")
    for _ in range(3):
        with pytest.raises(FormatMismatch, match="another state of the crawl, and"):
            of_its_own()


def test_an_opening_that_breaks_off_between_the_two_notes_is_done_again(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's comes first, so the filter is behind, whatever moment it is."""

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken_off:
        broken_off.setattr("anabranch.frontier.filters.replace_file", broken)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="Input/output error"):
                opened(state)
    with opened(state) as frontier:
        assert [verdict.kind.value for verdict in frontier.schedule(candidates(FIRST, SECOND))] == ["seen", "seen"]


@pytest.mark.parametrize("text", ["", "[]", '{"magic": "x"}'])
def test_a_damaged_file_is_named(state: Path, text: str) -> None:
    """It is not taken for that of a filter that keeps nothing."""
    (state / "seen" / PAIR_FILE).write_text(text)
    with pytest.raises(FormatMismatch, match=PAIR_FILE):
        opened(state)


def test_a_damaged_pair_is_named_wherever_it_is(state: Path, tmp_path: Path) -> None:
    """In the file, and in the store's notes."""
    file = state / "seen" / PAIR_FILE
    whole = file.read_text()
    file.write_text(whole.replace('"pair": "', '"pair": "-'))
    file.write_text(file.read_text().rpartition("-")[0] + '-x"}')
    with pytest.raises(FormatMismatch, match=rf"{PAIR_FILE} is damaged: .*-x'; restore store and filter"):
        opened(state)
    file.write_text(whole)
    store = composition._file_store(state, None)
    store.open(composition._identity(ORDER), 0.0, lambda: None)
    store.note({"pair": "x"})
    store.close(clean=True)
    with pytest.raises(FormatMismatch, match=r"the store's note of its filter is damaged: 'x'"):
        opened(state)


def test_a_filter_in_a_folder_is_not_for_the_next_store_in_memory(tmp_path: Path) -> None:
    """Rows in memory end with their process; what is left of the filter would hide their URLs."""
    with open_frontier(tmp_path, ORDER, store=MemoryStore(), clock=FakeClock()) as frontier:
        frontier.schedule(candidates(FIRST))
    with pytest.raises(FormatMismatch, match="the store never saw it"):
        open_frontier(tmp_path, ORDER, store=MemoryStore(), clock=FakeClock())


def test_a_filter_of_ones_own_keeps_no_file(tmp_path: Path) -> None:
    """Its place is not known; only its position can be compared."""
    with open_frontier(tmp_path, ORDER, seen=ExactFilter(), clock=FakeClock()) as frontier:
        frontier.schedule(candidates(FIRST))
    assert not (tmp_path / "seen").exists()


def test_the_store_is_noted_first(tmp_path: Path) -> None:
    """A filter that were ahead after a crash would be refused for ever."""

    class Notes:
        def note(self, notes: object) -> None:
            assert notes == {"pair": "a-3"}
            assert not (tmp_path / PAIR_FILE).exists()

    keep_pair(tmp_path, Notes(), Pair("a", 3), "both")
    assert (tmp_path / PAIR_FILE).exists()
    assert kept_name(tmp_path) == "both"


ALONE_ORDER = FrontierOrder(
    policy="host", uniq=UniqParameters(expected=100), politeness=Politeness(delay_factor=0.0, min_delay_s=0.0)
)
DONE = Outcome(OutcomeKind.DONE, 200)
A, B, C = b"http://a.test/", b"http://b.test/", b"http://c.test/"


@dataclass
class Servers:
    """The memory that all views share."""

    keys: set[bytes] = field(default_factory=set)
    generation: str = "first"
    kept: dict[str, dict[str, int]] = field(default_factory=dict)


class View:
    """One crawl's sight of the servers: an exact set with the face of a SharedDsbf; it fails when it is told."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.said: list[tuple[str, list[bytes]]] = []
        self.fails: dict[str, DedupError] = {}
        self.rate = 0.0
        self.is_closed = False

    @property
    def generation(self) -> str:
        return self._servers.generation

    def _say(self, verb: str, keys: Sequence[bytes]) -> None:
        self.said.append((verb, list(keys)))
        if verb in self.fails:
            raise self.fails.pop(verb)

    def unseen(self, keys: Sequence[bytes]) -> Any:
        self._say("unseen", keys)
        return np.array([key not in self._servers.keys for key in keys], dtype=np.bool_)

    def mark(self, keys: Sequence[bytes]) -> None:
        self._say("mark", keys)
        self._servers.keys.update(keys)

    def add(self, keys: Sequence[bytes]) -> Any:
        new = np.array([key not in self._servers.keys for key in keys], dtype=np.bool_)
        self._servers.keys.update(keys)  # before it fails: a call that fails may have been done
        self._say("add", keys)
        return new

    def keep(self, crawl: str, name: str, number: int, *, alone: bool = False) -> None:
        if alone:
            self._servers.kept.pop(crawl, None)
        self._servers.kept.setdefault(crawl, {})[name] = number

    def kept(self, crawl: str) -> dict[str, int]:
        return dict(self._servers.kept.get(crawl, {}))

    def statistics(self) -> Any:
        return SimpleNamespace(elements=len(self._servers.keys), mean_rate=self.rate)

    def close(self) -> None:
        self.is_closed = True


class Away:
    """A call of servers that are away until it is said that they are back."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.is_away = True

    def __call__(self, keys: Sequence[bytes]) -> Any:
        if self.is_away:
            raise FilterUnavailable("the Redis server does not answer")
        return self._call(keys)


@pytest.fixture
def servers() -> Servers:
    return Servers()


def opening(*, clean: bool = True, last: int = 9, **notes: str) -> Opening:
    return Opening(clean=clean, counters=Counters(last_ordinal=last), notes=notes)


# The filter alone


def test_a_key_that_another_crawl_marked_is_seen(servers: Servers) -> None:
    """One answer per key, in order, and it is counted as left to the other."""
    one, two = SharedFilter(View(servers)), SharedFilter(View(servers))
    one.mark([A])
    assert two.unseen([A, B]) == [False, True]
    assert two.counts == SharedCounts(left=1)
    assert two.facts()["shared_left"] == 1.0


def test_what_both_took_is_counted_by_the_one_that_marks_second(servers: Servers) -> None:
    """Both asked before either marked; the counts of all crawls add up to the keys taken twice."""
    one, two = SharedFilter(View(servers)), SharedFilter(View(servers))
    for each, keys in ((one, [A, B]), (two, [B, C])):
        assert each.unseen(keys) == [True, True]
    two.mark([B, C])
    one.mark([A, B])
    assert (one.counts.twice, two.counts.twice) == (1, 0)
    assert one.facts()["shared_twice"] == 1.0


def test_three_that_take_a_key_count_two(servers: Servers) -> None:
    """Each fetch beyond the first one."""
    views = [SharedFilter(View(servers)) for _ in range(3)]
    for each in views:
        each.unseen([A])
    for each in views:
        each.mark([A])
    assert [each.counts.twice for each in views] == [0, 1, 1]


def test_what_was_not_asked_about_is_marked_and_not_counted(servers: Servers) -> None:
    """Forced rows, duplicates and what is marked again at an opening may meet this crawl's own marks."""
    view = View(servers)
    one = SharedFilter(view)
    one.mark([A])
    one.unseen([B])
    one.mark([A, B, B])
    assert view.said[-2:] == [("mark", [A]), ("add", [B])]
    assert one.counts.twice == 0


def test_a_mark_that_is_repeated_counts_nothing(servers: Servers) -> None:
    """The first try may have been done before it failed: its marks look like another crawl's."""
    view = View(servers)
    one = SharedFilter(view)
    one.unseen([A, B])
    view.fails["add"] = FilterUnavailable("the Redis server does not answer")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        one.mark([A, B])
    one.mark([A, B])
    assert one.counts.twice == 0
    assert servers.keys == {A, B}


def test_a_mark_that_failed_before_it_began_still_counts(servers: Servers) -> None:
    """A question before the failure is remembered, although the mark also had a key that was never asked about."""
    view = View(servers)
    one = SharedFilter(view)
    one.unseen([A])
    servers.keys.add(A)
    view.fails["mark"] = FilterUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        one.mark([A, B])
    one.mark([A, B])
    assert one.counts.twice == 1


def test_wrong_drops_are_expected_by_the_filters_rate(servers: Servers) -> None:
    """Each key that is new might have been dropped with it. The rate is looked at every so often, since others change it."""
    view = View(servers)
    one = SharedFilter(view)
    view.rate = 0.5
    one.unseen([A])
    assert one.facts()["shared_expected_lost"] == 0.0
    one.unseen([b"%d" % number for number in range(LOOK_EVERY - 1)])
    one.unseen([B, C])
    assert one.facts()["shared_false_drop_probability"] == 0.5
    assert one.counts.lost == 0.5 * (LOOK_EVERY - 1 + 2)


@pytest.mark.parametrize(
    ("notes", "clean", "above"),
    [
        ({"shared": "first", "checkpoint": "7"}, True, None),
        ({"shared": "first", "checkpoint": "7"}, False, 7),
        ({"shared": "first"}, False, 0),
        ({"shared": "other", "checkpoint": "7"}, True, 0),
        ({"shared": "", "checkpoint": "7"}, True, 0),
        ({"checkpoint": "7"}, True, 0),
    ],
)
def test_which_rows_are_marked_again_at_an_opening(
    servers: Servers, notes: dict[str, str], clean: bool, above: int | None
) -> None:
    """None after a clean end, those above the checkpoint after a crash, all for a filter that is new to the job."""
    assert SharedFilter(View(servers)).rows_to_mark(opening(clean=clean, **notes)) == above


def test_counts_go_on_from_run_to_run(servers: Servers) -> None:
    """By the notes of a checkpoint."""
    one = SharedFilter(View(servers))
    one.counts = SharedCounts(3, 2, 0.25)
    later = SharedFilter(View(servers))
    later.take_counts(opening(**one.notes()))
    assert later.counts == SharedCounts(3, 2, 0.25)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FilterUnavailable("x"), StoreUnavailable),
        (FilterFull(errno.ENOSPC, "x", "127.0.0.1:1"), StoreFull),
        (FilterMismatch("x"), FormatMismatch),
        (BadParameters("x"), PolicyError),
        (FilterClosed("x"), FrontierError),
    ],
)
def test_errors_are_those_of_this_room(servers: Servers, error: DedupError, kind: type[FrontierError]) -> None:
    """Those that may pass are StoreUnavailable, and no other."""
    view = View(servers)
    view.fails["unseen"] = error
    with pytest.raises(FrontierError, match="x") as raised:
        SharedFilter(view).unseen([A])
    assert type(raised.value) is kind


def test_beside_the_own_filter_it_is_neither_asked_nor_marked(servers: Servers) -> None:
    """The core asks memory alone; the facts are of both, and a URL is lost to the one or the other."""
    view = View(servers)
    view.rate = 0.25
    shared = SharedFilter(view)
    shared.unseen([A, B])
    view.said.clear()
    both = BesideShared(ExactFilter(), shared)
    both.mark([A])
    assert list(both.unseen([A, B])) == [False, True]
    both.sync()
    assert both.position() == ""
    assert view.said == []
    assert both.facts()["expected_lost"] == 0.5
    both.close()
    assert view.is_closed


# Frontiers that share it


@pytest.fixture
def crawls(tmp_path: Path, servers: Servers) -> Iterator[Any]:
    """Opens crawls by name, each with a folder of its own and the servers in common; those left open are closed."""
    opened: list[Frontier] = []

    def crawl(name: str, view: View | None = None, retry_s: float = 0.0) -> Frontier:
        shared = SharedFilter(view or View(servers))
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        store = SqlStore(folder / "frontier.db", seen=shared, retry_s=retry_s)
        opened.append(open_frontier(folder, ALONE_ORDER, store=store, seen=shared, clock=FakeClock()))
        return opened[-1]

    yield crawl
    for each in opened:
        each.close()


def fetched(frontier: Frontier) -> list[str]:
    """All that there is to fetch, in order."""
    urls = []
    while not frontier.is_done:
        frontier.flush()
        lease = frontier.lease()
        if lease is not None:
            urls.append(lease.url)
            frontier.finish(lease, DONE)
            frontier.flush()
    return urls


def test_what_one_crawl_accepted_the_other_leaves(crawls: Any) -> None:
    """Verdicts are LATER, since the servers decide; the counts are right when they have."""
    one, two = crawls("one"), crawls("two")
    assert one.schedule(candidates("http://a.test/", "http://b.test/")) == [LATER, LATER]
    one.flush()
    assert two.schedule(candidates("http://b.test/", "http://c.test/")) == [LATER, LATER]
    assert (fetched(one), fetched(two)) == (["http://a.test/", "http://b.test/"], ["http://c.test/"])
    assert two.operations.statistics().seen["shared_left"] == 1.0
    for each in (one, two):
        each.operations.check()


def test_a_restored_job_leaves_the_filter_that_has_its_later_urls(tmp_path: Path, servers: Servers) -> None:
    """They would hide its own; the keys stay for the other crawls, and the job may be opened again and again."""
    copy = tmp_path / "copy"

    def crawled(*urls: str) -> tuple[str, list[str]]:
        shared = SharedFilter(View(servers))
        store = SqlStore(tmp_path / "job" / "frontier.db", seen=shared, retry_s=0.0)
        with open_frontier(tmp_path / "job", ALONE_ORDER, store=store, seen=shared, clock=FakeClock()) as frontier:
            frontier.schedule(candidates(*urls))
            return shared.left, fetched(frontier)

    (tmp_path / "job").mkdir()
    assert crawled(FIRST) == ("", [FIRST])
    shutil.copytree(tmp_path / "job", copy)
    assert crawled(SECOND) == ("", [SECOND])
    assert crawled() == ("", [])
    shutil.rmtree(tmp_path / "job")
    shutil.copytree(copy, tmp_path / "job")
    keys = set(servers.keys)
    for expected in ([SECOND], []):
        left, urls = crawled(FIRST, SECOND)
        assert ("later state of this job" in left, urls) == (True, expected)
    assert servers.keys == keys


def test_a_link_that_was_left_is_not_asked_about_again(crawls: Any, servers: Servers) -> None:
    """A popular page of another crawl costs one question, not one for each link to it; the own pages cost none, either."""
    view = View(servers)
    one, two = crawls("one"), crawls("two", view)
    one.schedule(candidates("http://a.test/"))
    one.flush()
    two.schedule(candidates("http://a.test/", "http://b.test/"))
    two.flush()
    view.said.clear()
    assert two.schedule(candidates("http://a.test/", "http://b.test/")) == [SEEN, SEEN]
    two.flush()
    assert view.said == []


def test_links_that_were_left_are_remembered_within_bounds(
    crawls: Any, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web of other crawls' pages costs questions, not memory."""
    monkeypatch.setattr(admission, "REMEMBERED_KEYS", 2)
    urls = [f"http://a.test/{number}" for number in range(5)]
    servers.keys = {url.encode() for url in urls}
    crawl = crawls("one")
    for url in urls:
        crawl.schedule(candidates(url))
        crawl.flush()
    assert crawl.schedule(candidates(*urls)) == [LATER] * 4 + [SEEN]


def test_the_own_filter_learns_only_what_the_own_store_has(crawls: Any, servers: Servers) -> None:
    """I8: what was left to a crawl whose filter was removed since is accepted when it comes again."""
    one, two = crawls("one"), crawls("two")
    one.schedule(candidates("http://a.test/"))
    one.flush()
    two.schedule(candidates("http://a.test/", "http://b.test/"))
    two.flush()
    for each in (one, two):
        each.close()
    servers.keys, servers.generation = set(), "second"
    two = crawls("two")
    assert two.schedule(candidates("http://a.test/", "http://b.test/")) == [LATER, SEEN]
    assert sorted(fetched(two)) == ["http://a.test/", "http://b.test/"]


def test_a_filter_that_was_removed_is_told_all_rows_again(crawls: Any, servers: Servers) -> None:
    """Those that have ended, too: nobody else is to fetch them."""
    one = crawls("one")
    one.schedule(candidates("http://a.test/"))
    fetched(one)
    one.schedule(candidates("http://b.test/"))
    one.close()
    servers.keys, servers.generation = set(), "second"
    crawls("one")
    assert servers.keys == {A, B}


def test_a_job_that_ran_without_the_filter_tells_all_rows_when_it_is_back(
    crawls: Any, servers: Servers, tmp_path: Path
) -> None:
    """The filter does not know the URLs accepted meanwhile."""
    crawls("one").close()
    with open_frontier(tmp_path / "one", ALONE_ORDER, clock=FakeClock()) as alone:
        alone.schedule(candidates("http://a.test/"))
    crawls("one")
    assert servers.keys == {A}


@pytest.mark.parametrize("is_done", [False, True], ids=["before the mark", "after the mark"])
def test_a_crawl_that_dies_between_its_commit_and_the_mark_keeps_its_urls(
    crawls: Any, servers: Servers, is_done: bool
) -> None:
    """It has the row and fetches it after the restart, whether or not its mark arrived; nothing is counted as another's."""
    view = View(servers)
    one = crawls("one", view)
    view.fails["add"] = FilterClosed("died")
    one.schedule(candidates("http://a.test/"))
    with pytest.raises(StoreUnavailable):
        one.flush()
    with pytest.raises(StoreUnavailable):
        one.close()
    servers.keys = {A} if is_done else set()
    again = crawls("one")
    assert servers.keys == {A}
    two = crawls("two")
    two.schedule(candidates("http://a.test/"))
    assert (fetched(again), fetched(two)) == (["http://a.test/"], [])
    assert again.operations.statistics().seen["shared_twice"] == 0.0
    again.operations.check()


def test_a_url_is_not_marked_before_it_is_committed(crawls: Any, servers: Servers) -> None:
    """A crawl that dies before its commit has accepted nothing, so another one fetches it."""
    view = View(servers)
    one = crawls("one", view)
    view.fails["unseen"] = FilterClosed("died")
    one.schedule(candidates("http://a.test/"))
    with pytest.raises(StoreUnavailable):
        one.flush()
    with pytest.raises(StoreUnavailable):
        one.close()
    assert servers.keys == set()
    two = crawls("two")
    two.schedule(candidates("http://a.test/"))
    assert fetched(two) == ["http://a.test/"]


def test_servers_that_are_back_in_time_are_not_noticed(crawls: Any, servers: Servers) -> None:
    """The transaction is kept whole and tried again, at the question and at the mark."""
    view = View(servers)
    one = crawls("one", view, retry_s=30.0)
    view.fails = {verb: FilterUnavailable("the Redis server does not answer") for verb in ("unseen", "add")}
    one.schedule(candidates("http://a.test/"))
    assert fetched(one) == ["http://a.test/"]
    assert servers.keys == {A}


def test_servers_that_are_away_are_told_until_they_are_back(tmp_path: Path, servers: Servers) -> None:
    """The trouble names what is waited for, for how long, and the longest wait; its end is reported, too."""
    view, changed, clock = View(servers), Event(), FakeClock()
    told: list[str] = []
    servers_away = Away(view.unseen)
    view.unseen = servers_away  # type: ignore[method-assign]
    shared = SharedFilter(view)
    store = SqlStore(tmp_path / "frontier.db", seen=shared, retry_s=30.0)
    with open_frontier(tmp_path, ALONE_ORDER, store=store, seen=shared, clock=clock, on_change=changed.set) as frontier:
        frontier.on_trouble(told.append)
        frontier.schedule(candidates("http://a.test/"))
        while not frontier.counts().trouble:
            assert changed.wait(30.0)
            changed.clear()
        clock.advance(12.0)
        assert frontier.counts().trouble == "waits for the filter: the Redis server does not answer (12 s of 30 s)"
        servers_away.is_away = False
        frontier.flush()
        assert frontier.counts().trouble == ""
    assert told == ["the filter: the Redis server does not answer", ""]


def test_the_line_of_the_end_names_what_failed(crawls: Any, servers: Servers) -> None:
    """The filter's server, not the file of the store."""
    view = View(servers)
    one = crawls("one", view, retry_s=0.0)
    view.fails["unseen"] = FilterUnavailable("the Redis server does not answer")
    one.schedule(candidates("http://a.test/"))
    with pytest.raises(StoreUnavailable, match=r"^the filter cannot be used: the Redis server does not answer$"):
        one.flush()
    with pytest.raises(StoreUnavailable):
        one.close()


def test_a_shared_filter_needs_a_store_that_asks_it(servers: Servers) -> None:
    """Memory alone would not."""
    with pytest.raises(TypeError, match="needs a store"):
        open_frontier(None, ALONE_ORDER, seen=SharedFilter(View(servers)))


def test_a_folder_has_a_store_that_asks_it(tmp_path: Path, servers: Servers) -> None:
    """Without a store of one's own, too. It is closed with the Frontier."""
    view = View(servers)
    with open_frontier(tmp_path, ALONE_ORDER, seen=SharedFilter(view), clock=FakeClock()) as frontier:
        frontier.schedule(candidates("http://a.test/"))
        frontier.flush()
    assert servers.keys == {A}
    assert view.is_closed


def test_an_opening_that_fails_lets_all_go(tmp_path: Path, servers: Servers) -> None:
    """If the others cannot be told, nothing stays open and the state can be opened again."""
    with open_frontier(tmp_path, ALONE_ORDER, clock=FakeClock()) as frontier:
        frontier.schedule(candidates("http://a.test/"))
    view = View(servers)
    view.fails["mark"] = FilterUnavailable("gone")
    with pytest.raises(StoreUnavailable, match="gone"):
        open_frontier(tmp_path, ALONE_ORDER, seen=SharedFilter(view), clock=FakeClock())
    assert view.is_closed
    open_frontier(tmp_path, ALONE_ORDER, seen=SharedFilter(View(servers)), clock=FakeClock()).close()


# Real servers


def test_leaves_in_redis_are_shared(tmp_path: Path) -> None:
    """Two views of the filter of one name on two servers; another name is another filter."""
    with redis_servers(tmp_path, 2) as running:
        urls = [server.url for server in running]
        one, two = (open_shared(urls, "news", expect=10_000, false_positive=1e-3) for _ in range(2))
        other = open_shared(urls, "sport", expect=10_000, false_positive=1e-3)
        for each in (one, two):
            assert each.unseen([A, B]) == [True, True]
        one.mark([A, B])
        two.mark([B])
        assert (one.counts.twice, two.counts.twice) == (0, 1)
        assert other.unseen([A]) == [True]
        assert one.notes()["shared"] == two.notes()["shared"] != other.notes()["shared"]
        for each in (one, two, other):
            each.close()


def test_a_crawl_keeps_numbers_beside_the_leaves(tmp_path: Path) -> None:
    """Each its own; with `alone` the former ones are forgotten. A server that has lost the filter refuses."""
    with redis_servers(tmp_path, 1) as (server,):
        common = SharedDsbf.open([server.url], "news")
        for name, number in (("first", 1), ("second", 2), ("first", 3)):
            common.keep("job", name, number)
        common.keep("other", "first", 7)
        assert common.kept("job") == {"first": 3, "second": 2}
        common.keep("job", "third", 0, alone=True)
        assert (common.kept("job"), common.kept("other"), common.kept("none")) == ({"third": 0}, {"first": 7}, {})
        redis.Redis.from_url(server.url).flushall()
        with pytest.raises(FilterUnavailable, match="has lost the filter news"):
            common.keep("job", "third", 1)
        common.close()


def test_a_filter_that_was_removed_and_made_anew_has_another_generation(tmp_path: Path) -> None:
    """So a job that marked the old one notices."""
    with redis_servers(tmp_path, 1) as (server,):
        first = open_shared([server.url], "news", expect=100, false_positive=1e-3)
        first.close()
        redis.Redis.from_url(server.url).flushall()
        second = open_shared([server.url], "news", expect=100, false_positive=1e-3)
        second.close()
    assert first.notes()["shared"] != second.notes()["shared"]


def test_what_cannot_be_shared_is_one_line_that_names_it(tmp_path: Path) -> None:
    """The server that does not answer, the number that differs, the URL that is none."""
    with redis_servers(tmp_path, 1) as (server,):
        url, address = server.url, server.url.removeprefix("redis://")
        open_shared([url], "news", expect=100, false_positive=1e-3).close()
        with pytest.raises(FormatMismatch, match=r"^shared filter news: .*false_positive") as differs:
            open_shared([url], "news", expect=100, false_positive=1e-2)
        assert address in str(differs.value)
    with pytest.raises(StoreUnavailable, match=rf"^shared filter news: the Redis server {address} does not answer"):
        open_shared([url], "news", expect=100, false_positive=1e-3)
    with pytest.raises(PolicyError, match=r"^shared filter news: .* is not the URL of a Redis server"):
        open_shared(["redis://127.0.0.1:x"], "news", expect=100, false_positive=1e-3)
    with pytest.raises(PolicyError, match=r"^shared filter news: "):
        open_shared([url], "news", expect=100, false_positive=2.0)


def test_a_filter_that_cannot_be_looked_at_is_let_go(monkeypatch: pytest.MonkeyPatch, servers: Servers) -> None:
    """Its connections do not outlive the error."""
    view = View(servers)

    def fails() -> Any:
        raise FilterUnavailable("gone")

    monkeypatch.setattr(view, "statistics", fails)
    monkeypatch.setattr(SharedDsbf, "open", lambda *_, **__: view)
    with pytest.raises(StoreUnavailable):
        open_shared(["redis://127.0.0.1:1"], "news", expect=100, false_positive=1e-3)
    assert view.is_closed


def test_a_disk_that_takes_half_leaves_a_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a torn one the filter would be made anew."""
    opening = Opening(clean=True, counters=Counters(), notes={}, history="here", earlier={"here": 7})
    last = LastBatch(tmp_path)
    last.begin(opening)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[: len(data) // 2 or 1], at))
    last.note(7)
    last.require_in(opening, is_old=True, is_elsewhere=False)
