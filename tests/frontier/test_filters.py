"""A job's own filter on disk: it and its store know each other, in files, through every way to end and every copy put back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.dedup.uniq import UniqFilter, UniqParameters
from anabranch.frontier import composition
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.errors import FormatMismatch, StoreUnavailable
from anabranch.frontier.filters import PAIR_FILE, DedupFilter, Pair, keep_pair
from anabranch.frontier.seen import ExactFilter
from anabranch.frontier.stores.memory import MemoryStore
from tests.frontier.builder import FakeClock, candidates
from tests.frontier.test_composition import crash

SMALL = UniqParameters(levels=(1, 1), expected=1000, leaf_bits=1 << 14)
ORDER = FrontierOrder(policy="host", uniq=SMALL)
#: Accepted in the first run, and in the second.
FIRST, SECOND = "http://a.test/1", "http://a.test/2"


def opened(state: Path) -> Frontier:
    return open_frontier(state, ORDER, clock=FakeClock())


def run(state: Path, url: str, end: Callable[[Frontier], None] = Frontier.close) -> None:
    frontier = opened(state)
    frontier.schedule(candidates(url))
    frontier.checkpoint()
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


@pytest.mark.parametrize(
    ("damage", "why"), [(remove_store, "the store never saw it"), (put_back_store, "that is an older copy")]
)
def test_a_store_that_lacks_what_the_filter_knows_is_refused_each_time(
    state: Path, damage: Callable[[Path], None], why: str
) -> None:
    """A refusal is no reason to take it at the next try; without the filter it is taken, and every URL is new again."""
    damage(state)
    for _ in range(3):
        with pytest.raises(FormatMismatch, match=f"another state of the crawl .*{why}.*or remove the filter"):
            opened(state)
    shutil.rmtree(state / "seen")
    with opened(state) as frontier:
        assert frontier.schedule(candidates(SECOND))[0].kind.value == "new"


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
    with pytest.raises(FormatMismatch, match="that is an older copy"):
        opened(state)


def test_another_jobs_filter_is_refused(state: Path, tmp_path: Path) -> None:
    """Also one that was used less often."""
    run(tmp_path / "other", "http://b.test/")
    shutil.rmtree(state / "seen")
    shutil.copytree(tmp_path / "other" / "seen", state / "seen")
    with pytest.raises(FormatMismatch, match=r"it is filter \w{8}, the store belongs to filter \w{8}"):
        opened(state)


def test_an_older_filter_is_told_what_it_lacks(state: Path) -> None:
    """It knows less than the store, which is no danger."""
    shutil.rmtree(state / "seen")
    shutil.copytree(state.parent / "copy" / "seen", state / "seen")
    with opened(state) as frontier:
        assert [verdict.kind.value for verdict in frontier.schedule(candidates(FIRST, SECOND))] == ["seen", "seen"]


def test_a_job_from_before_the_notes_is_taken_once(state: Path) -> None:
    """And is a pair from then on."""
    (state / "seen" / PAIR_FILE).unlink()
    opened(state).close()
    put_back_store(state)
    with pytest.raises(FormatMismatch, match="that is an older copy"):
        opened(state)


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
    """Where it lives is not known; its position says what can be said."""
    with open_frontier(tmp_path, ORDER, seen=ExactFilter(), clock=FakeClock()) as frontier:
        frontier.schedule(candidates(FIRST))
    assert not (tmp_path / "seen").exists()


def test_the_store_is_noted_first(tmp_path: Path) -> None:
    """A filter that were ahead after a crash would be refused for ever."""

    class Notes:
        def note(self, notes: object) -> None:
            assert notes == {"pair": "a-3"}
            assert not (tmp_path / PAIR_FILE).exists()

    keep_pair(tmp_path, Notes(), Pair("a", 3))
    assert (tmp_path / PAIR_FILE).exists()
