from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.errors import FormatMismatch, InvariantBroken, StoreFull
from anabranch.dedup.exact.runs import FEWEST_GUESSED, RunWriter, SortedRun, find, ranked, write_run

LARGEST = (1 << 64) - 1


def columns(pairs: set[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(sorted(pairs), dtype=np.uint64).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


def run_of(path: Path, pairs: set[tuple[int, int]], number: int = 3) -> SortedRun:
    return write_run(path, number, *columns(pairs))


#: Few different halves, the ends of their range among them: equal high halves and equal low halves are common.
HALF = st.sampled_from([0, 1, 2, 1 << 63, LARGEST - 1, LARGEST])
PAIRS = st.sets(st.tuples(HALF, HALF), min_size=1)


@settings(max_examples=60, deadline=None)
@given(PAIRS, PAIRS)
def test_a_run_knows_its_elements_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, held: set[tuple[int, int]], asked: set[tuple[int, int]]
) -> None:
    """Against a Python set, also where elements share a half; alone or in a batch."""
    run = run_of(tmp_path_factory.mktemp("run") / "r", held)
    run.check()
    questions = sorted(held | asked)
    assert run.knows(*columns(held | asked)).tolist() == [pair in held for pair in questions]
    assert [run.knows_one(*pair) for pair in questions] == [pair in held for pair in questions]


def test_a_batch_need_not_be_in_order(tmp_path: Path) -> None:
    """Order makes a search faster, not right."""
    run = run_of(tmp_path / "r", {(n, n) for n in range(0, 1000, 2)})
    asked = np.random.default_rng(1).permutation(1000).astype(np.uint64)
    assert (run.knows(asked, asked) == (asked % 2 == 0)).all()


@pytest.mark.parametrize("is_long", [False, True])
def test_forged_elements_that_share_their_high_half_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """10,000 elements with one high half: the low half decides, by a search among them; also if places are guessed."""
    if is_long:
        monkeypatch.setattr("anabranch.dedup.exact.runs.WORTH_GUESSING", 100)
    run = run_of(tmp_path / "r", {(7, low) for low in range(0, 20_000, 2)} | {(6, 1), (8, 3)})
    lows = np.arange(20_000, dtype=np.uint64)
    assert (run.knows(np.full(20_000, 7, dtype=np.uint64), lows) == (lows % 2 == 0)).all()
    assert run.knows_one(7, 19_998)
    assert not run.knows_one(7, 19_999)
    assert not run.knows_one(7, 3)


@pytest.mark.parametrize("asked", [1, FEWEST_GUESSED - 1, FEWEST_GUESSED, 1000])
def test_few_elements_and_many_are_found_in_a_long_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """Few are searched for, many are guessed: the answers are the same, at the ends of the run and beyond them too."""
    monkeypatch.setattr("anabranch.dedup.exact.runs.WORTH_GUESSING", 100)
    guessed: list[int] = []
    monkeypatch.setattr(
        "anabranch.dedup.exact.runs.find", lambda h, wanted: (guessed.append(len(wanted)), find(h, wanted))[1]
    )
    highs = np.sort(np.random.default_rng(5).integers(1, LARGEST, 10_000, dtype=np.uint64))
    run = write_run(tmp_path / "r", 3, highs, highs)
    for wanted in (highs[:asked], highs[-asked:], highs[:asked] + np.uint64(1), highs[-asked:] + np.uint64(1)):
        assert (run.knows(wanted, wanted) == np.isin(wanted, highs)).all()
        assert not run.knows(wanted, wanted + np.uint64(1)).any()
    assert guessed == ([asked] * 8 if asked >= FEWEST_GUESSED else [])


def test_ranking_orders_by_both_halves() -> None:
    """Equal high halves are ordered by the low ones, whatever stood first."""
    pairs = {(5, 9), (5, 2), (1, 7), (LARGEST, 0), (5, 4)}
    shuffled = np.array(list(pairs), dtype=np.uint64)[::-1]
    highs, lows = ranked(shuffled[:, 0], shuffled[:, 1])
    assert list(zip(highs.tolist(), lows.tolist(), strict=True)) == sorted(pairs)


def test_the_file_is_as_described(tmp_path: Path) -> None:
    """Header of 64 bytes, all high halves, all low halves, little-endian."""
    run_of(tmp_path / "r", {(1, 2), (3, 4)})
    content = (tmp_path / "r").read_bytes()
    assert content[:8] == b"ANASRUN\n"
    assert len(content) == 64 + 2 * 16
    assert np.frombuffer(content, dtype="<u8", offset=64).tolist() == [1, 3, 2, 4]


def test_a_run_without_its_header_is_no_run(tmp_path: Path) -> None:
    """The header comes last, so a process that died left nothing that could be taken for a run."""
    writer = RunWriter(tmp_path / "r", 3, 2)
    writer.append(*columns({(1, 2), (3, 4)}))
    with pytest.raises(FormatMismatch, match="does not start as a run"):
        SortedRun(tmp_path / "r", 3)
    assert writer.finish().count == 2
    assert SortedRun(tmp_path / "r", 3).knows_one(3, 4)


def test_a_run_has_as_many_elements_as_announced(tmp_path: Path) -> None:
    """Less is an error of the writer, not a shorter run."""
    writer = RunWriter(tmp_path / "r", 3, 3)
    writer.append(*columns({(1, 2), (3, 4)}))
    with pytest.raises(InvariantBroken, match="2 elements, 3 were announced"):
        writer.finish()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "does not start as a run"),
        (lambda content: content[:40], "does not start as a run"),
        (lambda content: b"%PDF-1.7" + content[8:], "does not start as a run"),
        (lambda content: content[:8] + b"\x09" + content[9:], "version 9, this program reads 1"),
        (lambda content: content[:-1], "does not fit 2 elements"),
        (lambda content: content + bytes(16), "does not fit 2 elements"),
        (lambda content: content[:24] + bytes(8) + content[32:64], "does not fit 0 elements"),
        (lambda content: content[:16] + b"\x04" + content[17:], "is run 4: the file was renamed"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path, damage: object, message: str) -> None:
    """Opening reads the header and the size, and the message says what is wrong."""
    path = tmp_path / "r"
    run_of(path, {(1, 2), (3, 4)})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FormatMismatch, match=message):
        SortedRun(path, 3)


def test_a_missing_run_is_damage(tmp_path: Path) -> None:
    """It says so, and does not make it anew."""
    with pytest.raises(FormatMismatch, match="is missing"):
        SortedRun(tmp_path / "r", 3)


@pytest.mark.parametrize("place", [64, 64 + 8 * 999, 64 + 8 * 1000, 64 + 16 * 1000 - 1])
def test_a_changed_byte_is_found_by_a_check(tmp_path: Path, place: int) -> None:
    """The checksums cover both columns to their ends."""
    run_of(tmp_path / "r", {(n, n) for n in range(1000)})
    content = bytearray((tmp_path / "r").read_bytes())
    content[place] ^= 1
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(InvariantBroken, match="damaged"):
        SortedRun(tmp_path / "r", 3).check()


@pytest.mark.parametrize("wrong", [[(2, 0), (1, 0)], [(1, 5), (1, 4)], [(1, 5), (1, 5)]])
def test_elements_out_of_order_are_found_by_a_check(tmp_path: Path, wrong: list[tuple[int, int]]) -> None:
    """The order is that of both halves, and no element is there twice."""
    array = np.array(wrong, dtype=np.uint64)
    run = write_run(tmp_path / "r", 3, array[:, 0].copy(), array[:, 1].copy())
    with pytest.raises(InvariantBroken, match="ascending order"):
        run.check()


def test_order_is_checked_across_the_stretches_of_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last element of a stretch is compared with the first of the next one."""
    monkeypatch.setattr("anabranch.dedup.exact.runs._CHECK_AT_ONCE", 2)
    highs = np.array([1, 5, 2, 6], dtype=np.uint64)
    with pytest.raises(InvariantBroken, match="ascending order"):
        write_run(tmp_path / "r", 3, highs, highs).check()


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the error is StoreFull and the file is gone."""
    monkeypatch.setattr("anabranch.dedup.exact.runs.write_all", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(StoreFull):
        run_of(tmp_path / "r", {(1, 2)})
    assert list(tmp_path.iterdir()) == []


LARGEST_HASH = (1 << 64) - 1


def verify(ascending: np.ndarray, wanted: np.ndarray) -> None:
    places, found = find(ascending, wanted)
    assert (found == np.isin(wanted, ascending)).all()
    assert (places[found] == ascending.searchsorted(wanted[found])).all()


@pytest.mark.parametrize("count", [32, 33, 1000, 300_000])
def test_evenly_spread_values_are_found_at_their_first_place(count: int) -> None:
    """The search is right for values that are there, for values that are not, and for the ends of the range."""
    chance = np.random.default_rng(3)
    ascending = np.sort(chance.integers(0, LARGEST_HASH, count, dtype=np.uint64, endpoint=True))
    others = chance.integers(0, LARGEST_HASH, 2000, dtype=np.uint64, endpoint=True)
    ends = np.array([0, 1, 1 << 63, LARGEST_HASH - 1, LARGEST_HASH], dtype=np.uint64)
    verify(ascending, np.concatenate((ascending[:2000], ascending[-2000:], others, ends)))
    verify(ascending, others[:0])


def test_most_values_are_in_the_window_that_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only few are searched for from the beginning: that is what the guess is for."""
    chance = np.random.default_rng(4)
    ascending = np.sort(chance.integers(0, LARGEST_HASH, 1_000_000, dtype=np.uint64))
    wanted = chance.integers(0, LARGEST_HASH, 20_000, dtype=np.uint64)
    searched: list[int] = []

    class Watched(np.ndarray):
        def searchsorted(self, values: np.ndarray) -> np.ndarray:  # type: ignore[override]
            searched.append(len(values))
            return np.asarray(self).searchsorted(np.asarray(values))

    find(ascending.view(Watched), wanted)
    assert sum(searched) < 200


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from([0, 1, 2, 5, 1 << 32, 1 << 63, LARGEST_HASH - 1, LARGEST_HASH]), min_size=32, max_size=200
    ),
    st.lists(st.sampled_from([0, 1, 2, 3, 5, 1 << 32, 1 << 63, LARGEST_HASH - 1, LARGEST_HASH]), min_size=1),
)
def test_unevenly_spread_values_are_found_too(held: list[int], wanted: list[int]) -> None:
    """Forged values, many of them equal, in a few places of the range."""
    verify(np.sort(np.array(held, dtype=np.uint64)), np.array(wanted, dtype=np.uint64))
