from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.errors import FormatMismatch, InvariantBroken, StoreFull
from anabranch.dedup.exact.tail import HEADER_BYTES, TailLog

HALF = st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1])


def elements(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array(pairs, dtype=np.uint64).reshape(-1, 2)


def known(tail: TailLog, pairs: list[tuple[int, int]]) -> list[bool]:
    array = elements(pairs)
    return tail.knows(array[:, 0], array[:, 1]).tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["take", "one", "flush", "reopen"]), st.tuples(HALF, HALF)), max_size=30))
def test_the_tail_is_the_set_of_what_was_taken(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, tuple[int, int]]]
) -> None:
    """Against a Python set, with elements that share a half, and across reopenings."""
    path, model = tmp_path_factory.mktemp("tail") / "log", set[tuple[int, int]]()
    tail = TailLog(path, 4)
    everything = [(high, low) for high in (0, 1, 1 << 63, (1 << 64) - 1) for low in (0, 1, 1 << 63, (1 << 64) - 1)]
    for action, (high, low) in steps:
        if action == "take":
            tail.take(elements([(high, low), (low, high), (high, low)]))
            model |= {(high, low), (low, high)}
        elif action == "one":
            tail.take_one(high << 64 | low)
            model.add((high, low))
        else:
            tail.flush()
            tail = TailLog.reopen(path, 4) if action == "reopen" else tail
        assert len(tail) == len(model)
        assert known(tail, everything) == [pair in model for pair in everything]
        assert [tail.knows_one(*pair) for pair in everything] == [pair in model for pair in everything]
    highs, lows = tail.columns()
    assert list(zip(highs.tolist(), lows.tolist(), strict=True)) == sorted(model)
    tail.check()


def test_there_is_no_file_before_the_first_flush(tmp_path: Path) -> None:
    """A tail that becomes a run between two syncs never touches the disk."""
    tail = TailLog(tmp_path / "log", 4)
    tail.take(elements([(1, 2)]))
    assert not (tmp_path / "log").exists()
    tail.flush()
    assert (tmp_path / "log").read_bytes()[HEADER_BYTES:] == bytes(7) + b"\1" + bytes(7) + b"\2"


def test_a_torn_element_is_cut_off(tmp_path: Path) -> None:
    """A half-written element after a crash is dropped, and the next element follows the last complete one."""
    tail = TailLog(tmp_path / "log", 4)
    tail.take(elements([(1, 2), (3, 4)]))
    tail.flush()
    with (tmp_path / "log").open("ab") as file:
        file.write(b"torn")
    again = TailLog.reopen(tmp_path / "log", 4)
    assert (tmp_path / "log").stat().st_size == HEADER_BYTES + 2 * 16
    again.take_one(5 << 64 | 6)
    again.flush()
    assert known(TailLog.reopen(tmp_path / "log", 4), [(1, 2), (3, 4), (5, 6)]) == [True] * 3
    assert len(TailLog.reopen(tmp_path / "log", 4)) == 3


def test_what_could_not_be_written_waits_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is StoreFull; with room again the same flush writes everything once."""
    tail = TailLog(tmp_path / "log", 4)
    tail.flush()
    tail.take(elements([(1, 2)]))
    with monkeypatch.context() as patch:
        patch.setattr("anabranch.dedup.exact.tail.write_all", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(StoreFull):
            tail.flush()
    tail.flush()
    tail.check()
    assert (tmp_path / "log").stat().st_size == HEADER_BYTES + 16 == tail.file_bytes


def test_a_sync_that_failed_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a sync that succeeded makes the next one free."""
    calls: list[Path] = []
    tail = TailLog(tmp_path / "log", 4)
    tail.flush()
    with monkeypatch.context() as patch:
        patch.setattr("anabranch.dedup.exact.tail.sync_path", lambda path: (_ for _ in ()).throw(OSError("broken")))
        with pytest.raises(OSError, match="broken"):
            tail.sync()
    monkeypatch.setattr("anabranch.dedup.exact.tail.sync_path", calls.append)
    tail.sync()
    tail.sync()
    assert calls == [tmp_path / "log"]
    again = TailLog.reopen(tmp_path / "log", 4)
    again.sync()
    assert len(calls) == 2, "what was read may never have been synced"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "does not start as a log"),
        (lambda content: content[: HEADER_BYTES - 1], "does not start as a log"),
        (lambda content: b"ANALEAF\n" + content[8:], "does not start as a log"),
        (lambda content: content[:8] + b"\x02" + content[9:], "version 2, this program reads 1"),
        (lambda content: content[:16] + b"\x05" + content[17:], "is log 5: the file was renamed"),
    ],
)
def test_a_damaged_or_foreign_log_is_refused(tmp_path: Path, damage: object, message: str) -> None:
    """The header names the log."""
    path = tmp_path / "log"
    tail = TailLog(path, 4)
    tail.take(elements([(1, 2)]))
    tail.flush()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FormatMismatch, match=message):
        TailLog.reopen(path, 4)


def test_a_missing_log_is_damage(tmp_path: Path) -> None:
    """It says so, and does not begin an empty one."""
    with pytest.raises(FormatMismatch, match="is missing"):
        TailLog.reopen(tmp_path / "log", 4)


def test_a_check_compares_the_file_with_the_memory(tmp_path: Path) -> None:
    """An element that changed on the disk is found."""
    tail = TailLog(tmp_path / "log", 4)
    tail.take(elements([(1, 2)]))
    tail.check()
    content = bytearray((tmp_path / "log").read_bytes())
    content[-1] ^= 1
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(InvariantBroken, match="disagree"):
        tail.check()


def test_a_sealed_log_is_what_it_was(tmp_path: Path) -> None:
    """The seal is true of the log for ever, however it grows, also if it was reopened or a write failed in between."""
    tail, path = TailLog(tmp_path / "log", 4), tmp_path / "log"
    seals = []
    for number in range(4):
        tail.take_one(number)
        tail.flush()
        seals.append(tail.seal)
        tail = TailLog.reopen(path, 4, tail.seal)
        assert tail.seal == seals[-1]
    for seal in seals:
        TailLog.reopen(path, 4, seal)
    assert len(set(seals)) == 4


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], "log is shorter than it was"),
        (lambda content: content[:-16], "log is shorter than it was"),
        (lambda content: content[:HEADER_BYTES], "log is shorter than it was"),
        (lambda content: content[:-1] + b"?", "log and its checksum disagree"),
        (lambda content: content[: HEADER_BYTES - 1] + b"?" + content[HEADER_BYTES:], "log and its checksum disagree"),
    ],
)
def test_a_log_that_its_seal_does_not_fit_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    """Cut off or changed, and then left as it was."""
    tail, path = TailLog(tmp_path / "log", 4), tmp_path / "log"
    tail.take(elements([(1, 2), (3, 4)]))
    tail.flush()
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(FormatMismatch, match=message):
        TailLog.reopen(path, 4, tail.seal)
    assert path.read_bytes() == before


def test_a_check_finds_a_log_that_was_cut_off_or_replaced(tmp_path: Path) -> None:
    """In the middle of an element too; the header is read again."""
    tail, path = TailLog(tmp_path / "log", 4), tmp_path / "log"
    tail.take(elements([(1, 2), (3, 4)]))
    tail.flush()
    content = path.read_bytes()
    for wrong, message in (
        (content[:-3], "is shorter than it was"),
        (content[:-16], "is shorter than it was"),
        (b"x" * len(content), "does not start as a log"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(FormatMismatch, match=message):
            tail.check()
    path.write_bytes(content)
    tail.check()
