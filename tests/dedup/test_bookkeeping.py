from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.dedup import UniqFilter, UniqParameters
from anabranch.dedup.bookkeeping import Answers, LossCount
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.uniq import MODES


def test_a_step_is_due_after_a_thousand_keys_or_a_64th(tmp_path: Path) -> None:
    """Whichever is more."""
    losses = LossCount(tmp_path / "LOSSES", 0)
    assert not losses.is_due(999)
    assert losses.is_due(1000)
    losses.step(128_000, 0.0)
    assert not losses.is_due(129_999)
    assert losses.is_due(130_000)


def test_the_sum_is_the_integral_of_the_odds(tmp_path: Path) -> None:
    """At a probability of 1/2 one key is lost for each that is found new; between two steps the odds grow evenly."""
    losses = LossCount(tmp_path / "LOSSES", 0)
    losses.step(100, 0.5)
    assert losses.at(100, 0.5) == 50
    assert losses.at(300, 0.5) == 250
    losses.step(300, 0.5)
    assert losses.at(300, 0.5) == 250


def test_a_step_back_counts_nothing_twice(tmp_path: Path) -> None:
    """A sync in another thread may step to the number of keys that it read before the marks went on."""
    losses = LossCount(tmp_path / "LOSSES", 0)
    losses.step(1, 0.5)
    before = losses.at(1, 0.5)
    for keys in (2001, 1500, 2001):
        losses.step(keys, 0.5)
    assert losses.at(2001, 0.5) - before == 2000


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """`at` may be asked for often."""
    losses = LossCount(tmp_path / "LOSSES", 0)
    losses.step(100, 0.1)
    assert losses.at(500, 0.2) == losses.at(500, 0.2)


def test_a_filter_that_does_not_err_loses_nothing(tmp_path: Path) -> None:
    """At a probability of 0 the sum stays 0."""
    losses = LossCount(tmp_path / "LOSSES", 0)
    for keys in range(0, 10_000, 1000):
        losses.step(keys, 0.0)
    assert losses.at(20_000, 0.0) == 0


def test_losses_catch_up_with_keys_after_a_crash(tmp_path: Path) -> None:
    """The record may be older than the logs, or newer if unsynced keys were lost: never counted twice."""
    path = tmp_path / "LOSSES"
    losses = LossCount(path, 0)
    losses.step(1000, 0.0)
    losses.save()
    losses.save()
    assert LossCount(path, 3000).at(3000, 0.5) == 2000 * 0.5
    assert LossCount(path, 400).at(400, 0.5) == 0
    assert LossCount(path, 400).at(500, 0.5) == 100 * 0.5


def test_nothing_is_written_unless_the_sum_moved(tmp_path: Path) -> None:
    """A sync without new keys costs no write."""
    path = tmp_path / "LOSSES"
    losses = LossCount(path, 0)
    losses.save()
    assert not path.exists()
    losses.step(10, 0.1)
    losses.save()
    before = path.stat().st_ino
    losses.save()
    assert path.stat().st_ino == before


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "not JSON",
        '{"magic": "anabranch loss count", "version": 1, "parameters": {}, "keys": 1, "odds": 0.5}',
        '{"magic": "anabranch loss count", "version": 1, "parameters": {}, "keys": 1, "odds": 0.5, "lost": NaN}',
        (
            '{"magic": "anabranch loss count", "version": 1, "parameters": {}, "keys": 1, "odds": 0.5, "lost": 0.1, '
            '"durable": "7"}'
        ),
        (
            '{"magic": "anabranch loss count", "version": 1, "parameters": {}, "keys": 1, "odds": 0.5, "lost": 0.1, '
            '"answers": {"asked": "7"}}'
        ),
        '{"magic": "anabranch loss count", "version": 9, "parameters": {}, "keys": 1, "odds": 0.5, "lost": 0.1}',
    ],
)
def test_a_damaged_or_foreign_record_is_refused(tmp_path: Path, text: str) -> None:
    """The sum is of no use to the filter's answers, so the message says that the file may be removed."""
    (tmp_path / "LOSSES").write_text(text)
    with pytest.raises(FormatMismatch, match=r"LOSSES.*remove it to count losses from 0 again"):
        LossCount(tmp_path / "LOSSES", 0)


def test_the_record_is_as_described(tmp_path: Path) -> None:
    """Magic, version, the three numbers of the sum, the keys that were durable, and who answered what."""
    losses = LossCount(tmp_path / "LOSSES", 0)
    losses.step(10, 0.5)
    losses.save(7, Answers(asked=5, memory_known=1, smm_new=4))
    assert json.loads((tmp_path / "LOSSES").read_text()) == {
        "magic": "anabranch loss count",
        "version": 1,
        "parameters": {},
        "keys": 10,
        "odds": 1.0,
        "lost": 5.0,
        "durable": 7,
        "answers": Answers(asked=5, memory_known=1, smm_new=4)._asdict(),
    }
    assert LossCount(tmp_path / "LOSSES", 10).answers == Answers(asked=5, memory_known=1, smm_new=4)


def test_a_filter_is_held_to_the_keys_that_were_durable(tmp_path: Path) -> None:
    """Up to chance; a record without their number requires nothing. The message says what to do."""
    path = tmp_path / "LOSSES"
    losses = LossCount(path, 0)
    losses.step(100, 0.5)
    losses.save(90)
    again = LossCount(path, 50)
    assert again.durable == 90
    again.require_kept(50, 0.2, 22)
    with pytest.raises(FormatMismatch, match=r"holds 49 keys, its record says 90: .*restore it .* or remove .*LOSSES"):
        again.require_kept(49, 0.2, 22)
    found = json.loads(path.read_text())
    del found["durable"]
    path.write_text(json.dumps(found))
    LossCount(path, 0).require_kept(0, 0.0, 0)


def test_a_record_without_answers_counts_from_nothing(tmp_path: Path) -> None:
    """Folders of earlier versions have none."""
    path = tmp_path / "LOSSES"
    losses = LossCount(path, 0)
    losses.step(100, 0.5)
    losses.save(90, Answers(asked=1, smm_new=1))
    found = json.loads(path.read_text())
    del found["answers"]
    path.write_text(json.dumps(found))
    assert LossCount(path, 100).answers == Answers()


def test_answers_are_written_though_the_sum_did_not_move(tmp_path: Path) -> None:
    """A crawl that meets known URLs alone asks, too."""
    losses = LossCount(tmp_path / "LOSSES", 0)
    losses.save(0, Answers(asked=1, dropped=1))
    assert LossCount(tmp_path / "LOSSES", 0).answers.dropped == 1


def test_the_durable_keys_are_written_though_the_sum_did_not_move(tmp_path: Path) -> None:
    """Counts may fall when a leaf splits, and the record has to follow."""
    losses = LossCount(tmp_path / "LOSSES", 0)
    losses.step(100, 0.5)
    losses.save(100)
    losses.save(99)
    assert LossCount(tmp_path / "LOSSES", 99).durable == 99


SMALL = UniqParameters(mode="dsbf", levels=(1, 1), expected=5000, false_positive=0.01, leaf_bits=1 << 13)


def number(seen: UniqFilter) -> int:
    return int(seen.position().rpartition("-")[2])


@pytest.mark.parametrize("mode", MODES)
def test_a_position_rises_with_each_sync_of_new_marks(tmp_path: Path, mode: str) -> None:
    """It is empty before the first one, and a sync that has nothing new leaves it as it is."""
    with UniqFilter.open(tmp_path / "u", replace(SMALL, mode=mode)) as seen:
        seen.sync()
        assert seen.position() == ""
        seen.mark([b"a", b"b"])
        assert seen.position() == ""
        seen.sync()
        assert number(seen) == 1
        seen.sync()
        assert number(seen) == 1
        seen.mark([b"c"])
        seen.sync()
        seen.add([b"d", b"e"])
        seen.sync()
        assert number(seen) == 3


def test_a_position_survives_the_end_and_a_look_does_not_change_it(tmp_path: Path) -> None:
    """The last sync is that of `close`; opening the filter only to ask it does not move it."""
    with UniqFilter.open(tmp_path / "u", SMALL) as seen:
        seen.mark([b"a"])
        seen.sync()
        seen.mark([b"b"])
    assert number(seen) == 2
    for _ in range(2):
        with UniqFilter.open(tmp_path / "u") as again:
            assert again.position() == seen.position()
            again.unseen([b"a", b"c"])
        assert again.position() == seen.position()


def test_a_copy_stays_behind_and_a_new_filter_has_another_name(tmp_path: Path) -> None:
    """So both differ from the filter that went on."""
    with UniqFilter.open(tmp_path / "u", SMALL) as seen:
        seen.mark([b"a"])
        seen.sync()
        shutil.copytree(tmp_path / "u", tmp_path / "copy")
        seen.mark([b"b"])
    with UniqFilter.open(tmp_path / "copy") as copy, UniqFilter.open(tmp_path / "new", SMALL) as new:
        new.mark([b"a"])
        new.sync()
        assert copy.position() == seen.position().replace("-2", "-1")
        assert new.position().partition("-")[0] != seen.position().partition("-")[0]


def test_a_sync_that_runs_amid_marking_does_not_stand_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the next sync covers keys that another thread marks during a sync, so the next one counts as a sync of new marks."""
    with UniqFilter.open(tmp_path / "u", SMALL) as seen:
        seen.mark([b"a"])
        real = type(seen._dsbf).sync
        with monkeypatch.context() as patch:
            patch.setattr(type(seen._dsbf), "sync", lambda dsbf: (real(dsbf), seen.mark([b"b", b"c"]))[0])
            seen.sync()
        assert number(seen) == 1
        seen.sync()
        assert number(seen) == 2


def test_a_sync_that_fails_does_not_stand_for_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is written last; the sync that succeeds at last counts."""
    with UniqFilter.open(tmp_path / "u", SMALL) as seen:
        seen.mark([b"a"])
        with monkeypatch.context() as patch:
            patch.setattr(
                "anabranch.dedup.bloom.log.LeafLogs.sync", lambda self: (_ for _ in ()).throw(OSError("broken"))
            )
            with pytest.raises(OSError, match="broken"):
                seen.sync()
        assert seen.position() == ""
        assert not (tmp_path / "u" / "POSITION").exists()
        seen.sync()
        assert number(seen) == 1


def test_two_openings_of_one_folder_share_its_position(tmp_path: Path) -> None:
    """In mode "smm" several may mark: each one's syncs raise the same number, under the same name."""
    shape = replace(SMALL, mode="smm")
    with UniqFilter.open(tmp_path / "u", shape) as one, UniqFilter.open(tmp_path / "u", shape) as two:
        for seen, expected in ((one, 1), (two, 2), (one, 3), (two, 4)):
            seen.mark([b"%d" % expected])
            seen.sync()
            assert number(seen) == expected
        assert one.position().partition("-")[0] == two.position().partition("-")[0]


def test_a_filter_that_goes_on_without_lost_keys_has_no_position(tmp_path: Path) -> None:
    """Removing LOSSES, as the message about lost keys advises, gives a filter that no saved position covers."""
    with UniqFilter.open(tmp_path / "u", SMALL) as seen:
        seen.mark([b"a"])
    (tmp_path / "u" / "LOSSES").unlink()
    with UniqFilter.open(tmp_path / "u") as again:
        assert again.position() == ""
        again.mark([b"b"])
    assert again.position().endswith("-1")
    assert again.position() != seen.position()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"syncs": 0},
            "POSITION is damaged: it does not hold a name and a number; remove it to have every key marked again",
        ),
        ({"filter": 7}, "does not hold a name and a number"),
        ({"version": 2}, "has version 2, this program reads 1"),
        ({"magic": "?"}, "is not the file of an anabranch filter position"),
    ],
)
def test_a_position_that_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """The line says what to do, and doing it helps."""
    with UniqFilter.open(tmp_path / "u", SMALL) as seen:
        seen.mark([b"a"])
    path = tmp_path / "u" / "POSITION"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FormatMismatch, match=message):
        UniqFilter.open(tmp_path / "u")
    path.unlink()
    with UniqFilter.open(tmp_path / "u") as again:
        assert again.position() == ""
        assert not again.unseen([b"a"]).any()
