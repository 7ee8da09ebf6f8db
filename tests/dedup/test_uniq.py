import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup import BadParameters, FilterInUse, FormatMismatch, UniqFilter, UniqParameters
from dedup.uniq import LossCount

#: A leaf holds nine keys, the SMM 65,536 bits: both err often enough to be seen.
TINY = UniqParameters(levels=(1, 1), expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)
LOSSY = UniqParameters(levels=(1, 1), expected=10_000, false_positive=0.1, leaf_bits=1 << 13)
SMALL = UniqParameters(levels=(1, 1), expected=5000, false_positive=0.01, leaf_bits=1 << 13)


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["mark", "add", "sync", "reopen"]), st.lists(st.integers(0, 300), max_size=30)),
        max_size=10,
    )
)
def test_what_was_marked_is_known_and_what_the_smm_never_saw_is_new(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]]
) -> None:
    """Against sets as the model: no key is forgotten, and no key with a new signature is dropped."""
    folder = tmp_path_factory.mktemp("uniq") / "u"
    uniq, model, signatures = UniqFilter.open(folder, TINY), set[bytes](), set[int]()
    for action, numbers in steps:
        batch = [b"%d" % number for number in numbers]
        for key, new in zip(batch, uniq.unseen(batch).tolist(), strict=True):
            assert not (new and key in model)
            assert new or zlib.crc32(key) >> 16 in signatures
        marked = batch
        if action == "mark":
            uniq.mark(batch)
        elif action == "add":
            new = uniq.add(batch)
            marked = [key for key, is_new in zip(batch, new.tolist(), strict=True) if is_new]
            assert len(marked) == len(set(marked))
        elif action == "sync":
            uniq.sync()
            marked = []
        else:
            uniq.close()
            uniq, marked = UniqFilter.open(folder, TINY), []
        model |= set(marked)
        signatures |= {zlib.crc32(key) >> 16 for key in marked}
        uniq.check()
        assert uniq.statistics().smm_bits_set == len(signatures)
    uniq.close()
    shutil.rmtree(folder.parent)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["mark", "add", "unseen"]), st.integers(0, 300)), max_size=60))
def test_one_key_goes_the_same_way_as_a_batch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """A single key has a path of its own; beside it a filter that gets the same key twice in each batch."""
    folder = tmp_path_factory.mktemp("uniq")
    with UniqFilter.open(folder / "one", TINY) as one, UniqFilter.open(folder / "twice", TINY) as twice:
        for action, number in steps:
            key = b"%d" % number
            single, batch = getattr(one, action)([key]), getattr(twice, action)([key, key])
            if action != "mark":
                assert single.dtype == batch.dtype
                assert single.tolist() == batch[:1].tolist()
        everything = [b"%d" % number for number in range(301)]
        assert [bool(one.unseen([key])[0]) for key in everything] == twice.unseen(everything).tolist()
        shown, expected = one.statistics(), twice.statistics()
        assert (shown.keys, shown.smm_bits_set, shown.dsbf.splits) == (
            expected.keys,
            expected.smm_bits_set,
            expected.dsbf.splits,
        )
        one.check()
    with UniqFilter.open(folder / "one", TINY) as one, UniqFilter.open(folder / "twice", TINY) as twice:
        assert one.statistics().keys == twice.statistics().keys
        assert one.unseen(everything).tolist() == twice.unseen(everything).tolist()
    shutil.rmtree(folder)


def test_the_dsbf_is_asked_only_where_the_smm_bit_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit 0 is an answer by itself."""
    with UniqFilter.open(tmp_path / "u", SMALL) as uniq:
        uniq.mark(keys(0, 3))
        asked: list[bytes] = []
        real = uniq._dsbf.unseen
        monkeypatch.setattr(uniq._dsbf, "unseen", lambda batch: (asked.extend(batch), real(batch))[1])
        assert uniq.unseen(keys(1, 6)).tolist() == [False, False, True, True, True]
        assert uniq.unseen(keys(0, 3)).tolist() == [False] * 3
        assert uniq.unseen(keys(10, 12)).all()
        assert asked == keys(1, 3) + keys(0, 3)


def test_a_key_is_dropped_only_if_both_know_it(tmp_path: Path) -> None:
    """Known to one alone counts as new."""
    with UniqFilter.open(tmp_path / "u", SMALL) as uniq:
        uniq._smm.mark([b"a"])
        uniq._dsbf.mark([b"b"])
        assert uniq.unseen([b"a", b"b"]).all()
        assert uniq.add([b"a", b"b", b"a"]).tolist() == [True, True, False]
        assert not uniq.unseen([b"a", b"b"]).any()


def test_false_drops_multiply_and_are_stated(tmp_path: Path) -> None:
    """Known keys among 200,000 new ones come at the stated probability, SMM fill x DSBF rate."""
    with UniqFilter.open(tmp_path / "u", SMALL) as uniq:
        uniq.mark(keys(0, 5000))
        shown = uniq.statistics()
        dropped = int(np.count_nonzero(~uniq.unseen(keys(5000, 205_000))))
    assert shown.false_drop == shown.smm_fill * shown.dsbf.mean_rate
    expected = 200_000 * shown.false_drop
    assert expected > 50
    assert abs(dropped - expected) < 5 * expected**0.5


def test_the_expected_loss_is_the_integral_of_false_drops(tmp_path: Path) -> None:
    """Keys sent once each: those dropped are as many as the running sum says, also across a reopening.

    Opening counts the keys that the DSBF knew falsely as well, here a few in a hundred.
    """
    dropped, sent = 0, 40_000
    uniq = UniqFilter.open(tmp_path / "u", LOSSY)
    for start in range(0, sent, 200):
        if start == sent // 2:
            uniq.close()
            uniq = UniqFilter.open(tmp_path / "u", LOSSY)
        dropped += 200 - int(np.count_nonzero(uniq.add(keys(start, start + 200))))
    shown = uniq.statistics()
    assert shown.expected_lost > 30
    assert abs(dropped - shown.expected_lost) < 5 * shown.expected_lost**0.5
    uniq.close()
    with UniqFilter.open(tmp_path / "u", LOSSY) as again:
        assert again.statistics().expected_lost == pytest.approx(shown.expected_lost, rel=0.1)


def test_looking_at_a_filter_changes_nothing(tmp_path: Path) -> None:
    """Statistics may be asked for often: the sum is the same with and without."""
    with UniqFilter.open(tmp_path / "u", LOSSY) as watched, UniqFilter.open(tmp_path / "v", LOSSY) as other:
        for start in range(0, 4000, 200):
            for uniq in (watched, other):
                uniq.mark(keys(start, start + 200))
            before = vars(watched._losses).copy()
            assert watched.statistics() == watched.statistics()
            assert vars(watched._losses) == before
        assert watched.statistics().expected_lost == other.statistics().expected_lost > 0


def test_losses_catch_up_with_keys_after_a_crash(tmp_path: Path) -> None:
    """The record may be older than the logs, or newer if unsynced keys were lost: never counted twice."""
    path = tmp_path / "LOSSES"
    losses = LossCount(path, 0)
    assert not losses.is_due(999)
    assert losses.is_due(1000)
    losses.step(1000, 0.0)
    losses.save()
    losses.save()
    assert LossCount(path, 3000).at(3000, 0.5) == 2000 * 0.5
    assert LossCount(path, 400).at(400, 0.5) == 0
    assert LossCount(path, 400).at(500, 0.5) == 100 * 0.5


def test_a_damaged_loss_record_is_refused(tmp_path: Path) -> None:
    """It says what to do."""
    (tmp_path / "LOSSES").write_text("{}")
    with pytest.raises(FormatMismatch, match="remove it"):
        LossCount(tmp_path / "LOSSES", 0)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (UniqParameters(levels=(1, 2), expected=5000, false_positive=0.01, leaf_bits=1 << 13), "levels is"),
        (UniqParameters(levels=(1, 1), expected=5001, false_positive=0.01, leaf_bits=1 << 13), "expected is 5000"),
        (UniqParameters(levels=(1, 1), expected=5000, false_positive=0.02, leaf_bits=1 << 13), "false_positive"),
    ],
)
def test_other_parameters_are_refused_by_name(tmp_path: Path, other: UniqParameters, message: str) -> None:
    """The folder records all of them, and the message names the one that differs."""
    UniqFilter.open(tmp_path / "u", SMALL).close()
    with pytest.raises(FormatMismatch, match=message):
        UniqFilter.open(tmp_path / "u", other)


def test_a_filter_is_closed_whole_and_its_folder_free_again(tmp_path: Path) -> None:
    """Open twice is refused; a failed opening and a second close leave nothing behind."""
    uniq = UniqFilter.open(tmp_path / "u", SMALL)
    with pytest.raises(FilterInUse):
        UniqFilter.open(tmp_path / "u", SMALL)
    uniq.close()
    uniq.close()
    assert repr(uniq) == "<UniqFilter <Smm crc32 (1, 1) closed> <Dsbf closed>>"
    with pytest.raises(BadParameters):
        UniqFilter.open(tmp_path / "v", UniqParameters(signature="md5"))
    with pytest.raises(BadParameters):
        UniqFilter.open(tmp_path / "v", UniqParameters(signature="md5"))


@pytest.mark.parametrize("part", ["smm", "dsbf"])
def test_a_lost_half_is_damage_not_a_new_filter(tmp_path: Path, part: str) -> None:
    """A complete filter does not make a missing half anew; one interrupted in the making does."""
    UniqFilter.open(tmp_path / "u", SMALL).close()
    shutil.rmtree(tmp_path / "u" / part)
    with pytest.raises(FormatMismatch, match="is missing"):
        UniqFilter.open(tmp_path / "u", SMALL)
    record = json.loads((tmp_path / "u" / "FORMAT").read_text())
    (tmp_path / "u" / "FORMAT").write_text(json.dumps(record | {"complete": False}))
    UniqFilter.open(tmp_path / "u", SMALL).close()


def test_a_closing_that_cannot_sync_lets_go_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is told, and the folder can be opened again with nothing synced lost."""
    uniq = UniqFilter.open(tmp_path / "u", SMALL)
    uniq.mark(keys(0, 10))
    uniq.sync()
    uniq.mark(keys(10, 20))
    with monkeypatch.context() as patch:
        patch.setattr("dedup.leaves.log.LeafLogs.sync", lambda self: (_ for _ in ()).throw(OSError("broken")))
        with pytest.raises(OSError, match="broken"):
            uniq.close()
    with UniqFilter.open(tmp_path / "u", SMALL) as again:
        assert not again.unseen(keys(0, 10)).any()
        again.check()


def test_empty_batches_are_batches(tmp_path: Path) -> None:
    """No keys, no answers, no change."""
    with UniqFilter.open(tmp_path / "u", SMALL) as uniq:
        uniq.mark([])
        assert uniq.unseen([]).tolist() == uniq.add([]).tolist() == []
        assert uniq.statistics().keys == 0
