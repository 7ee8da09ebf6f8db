"""The position of a filter: a name, and a number that rises with each sync of new marks and never runs ahead of them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.dedup import FormatMismatch, UniqFilter, UniqParameters
from anabranch.dedup.modes import MODES

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
    """The last sync is that of `close`; who opens the filter to ask it only leaves it where it stands."""
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
    """So both are told apart from the filter that went on."""
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
    """What another thread marks meanwhile is stood for by the next sync only, which therefore counts as one of new marks."""
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
                "anabranch.dedup.leaves.log.LeafLogs.sync", lambda self: (_ for _ in ()).throw(OSError("broken"))
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
    """Who removes LOSSES, as the complaint about lost keys advises, gets a filter that nobody's note holds for."""
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
