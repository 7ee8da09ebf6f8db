from __future__ import annotations

import json
import math
import os
import random
import shutil
import zlib
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup import (
    BadParameters,
    FilterInUse,
    FormatMismatch,
    InvariantBroken,
    StoreFull,
    uniq,
)
from anabranch.dedup.files.mapped import resident_file_bytes
from anabranch.dedup.smm import store
from anabranch.dedup.smm.addresses import levels_for
from anabranch.dedup.uniq import MODES, UniqFilter, UniqParameters, recorded
from tests.acceptance.blocking import Process
from tests.acceptance.forkserver import DEDUP

GIVEN = UniqParameters(levels=(1, 1), expected=1000, false_positive=0.01, leaf_bits=1 << 12)


def test_the_cheapest_stage_is_asked_first_and_the_exact_one_last() -> None:
    """A later stage is asked about fewer keys."""
    assert MODES["both"] == ("smm", "dsbf")
    assert MODES["exact"] == ("smm", "exact")


def test_an_unknown_mode_names_those_that_there_are(tmp_path: Path) -> None:
    """And leaves no folder that another mode could not use."""
    with pytest.raises(BadParameters, match="mode 'fast' is unknown; there are: smm, dsbf, both, exact"):
        UniqFilter.open(tmp_path / "u", replace(GIVEN, mode="fast"))
    UniqFilter.open(tmp_path / "u", GIVEN).close()


@pytest.mark.parametrize(
    "wrong", [{"leaf_bits": 1000}, {"expected": -5}, {"signature": "crc33"}, {"levels": (1, 9)}, {"levels": (2, 3)}]
)
def test_numbers_that_make_no_filter_spoil_no_folder(tmp_path: Path, wrong: dict[str, object]) -> None:
    """They are refused before anything is recorded, so that the corrected ones may be tried in the same place."""
    with pytest.raises(BadParameters, match=next(iter(wrong))):
        UniqFilter.open(tmp_path / "u", replace(GIVEN, **wrong))
    UniqFilter.open(tmp_path / "u", GIVEN).close()


def test_what_is_recorded_is_read_without_the_users_own_signature(tmp_path: Path) -> None:
    """The function may not be importable where somebody only looks; to open the filter it has to be."""
    UniqFilter.open(tmp_path / "u", GIVEN).close()
    path = tmp_path / "u" / "FORMAT"
    path.write_text(path.read_text().replace("crc32", "nowhere:function"))
    found = recorded(tmp_path / "u")
    assert found is not None
    assert found.signature == "nowhere:function"
    with pytest.raises(BadParameters, match="nowhere"):
        UniqFilter.open(tmp_path / "u", found)


@pytest.mark.parametrize("expected", [0, 1000, 10_000_000])
def test_levels_follow_the_expected_keys_unless_they_are_given(expected: int) -> None:
    """None asks for the smallest that do; what was chosen is recorded."""
    assert UniqParameters(expected=expected).smm_levels == levels_for(expected)
    assert UniqParameters(expected=expected).format.parameters["levels"] == list(levels_for(expected))
    assert UniqParameters(expected=expected, levels=(1, 1, 3)).smm_levels == (1, 1, 3)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_recorded_is_what_the_filter_was_made_with(tmp_path: Path, mode: str) -> None:
    """So a program can go on with a folder without knowing its parameters."""
    made = replace(GIVEN, mode=mode)
    UniqFilter.open(tmp_path / "u", made).close()
    found = recorded(tmp_path / "u")
    assert found is not None
    assert found.mode == mode
    assert found.format == made.format
    UniqFilter.open(tmp_path / "u", found).close()


def test_only_what_concerns_the_mode_is_recorded_and_compared(tmp_path: Path) -> None:
    """An SMM has no use for the leaves' size: another one is the same filter."""
    UniqFilter.open(tmp_path / "u", replace(GIVEN, mode="smm")).close()
    UniqFilter.open(tmp_path / "u", replace(GIVEN, mode="smm", leaf_bits=1 << 13, expected=7)).close()
    assert set(json.loads((tmp_path / "u" / "FORMAT").read_text())["parameters"]) == {"mode", "signature", "levels"}


def test_where_there_is_no_filter_nothing_is_recorded(tmp_path: Path) -> None:
    """Neither in a folder without FORMAT nor where there is no folder."""
    assert recorded(tmp_path) is None
    assert recorded(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"magic": "other"}, "is not the file of an anabranch uniq filter"),
        ({"version": 1}, "version 1, this program reads 2"),
        ({"parameters": 5}, "parameters"),
        ({"parameters": {"mode": "both", "color": "red"}}, "its parameters are not those of a filter"),
        ({"parameters": {"mode": "other"}}, "its parameters are not those of a filter"),
        ({"parameters": {"mode": ["both"]}}, "its parameters are not those of a filter"),
        (
            {"parameters": {"mode": "smm", "levels": 3, "signature": "crc32"}},
            "its parameters are not those of a filter",
        ),
        ({"parameters": {"mode": "both"}}, "parameters"),
        ({"version": 2}, "its parameters are not those of a filter"),
        (
            {"parameters": dict(GIVEN.format.parameters) | {"false_positive": "x"}},
            "its parameters are not those of a filter",
        ),
    ],
)
def test_a_damaged_or_foreign_record_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    """The message names the file and what is wrong with it."""
    UniqFilter.open(tmp_path / "u", GIVEN).close()
    path = tmp_path / "u" / "FORMAT"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FormatMismatch, match=message):
        recorded(tmp_path / "u")
    with pytest.raises(FormatMismatch, match="FORMAT"):
        UniqFilter.open(tmp_path / "u", GIVEN)


ROOT = Path(__file__).resolve().parents[2]

#: A leaf holds nine keys, the SMM 65,536 bits: both err often enough to be seen.
TINY = UniqParameters(levels=(1, 1), expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)
LOSSY = UniqParameters(levels=(1, 1), expected=10_000, false_positive=0.1, leaf_bits=1 << 13)
SMALL = UniqParameters(levels=(1, 1), expected=5000, false_positive=0.01, leaf_bits=1 << 13)

#: Two names with the same CRC-32.
COLLIDING = (b"http://site29685295.example", b"http://site32060020.example")

ADDER = """
import sys
from pathlib import Path
from anabranch.dedup import UniqFilter, UniqParameters
print("ready", flush=True)
sys.stdin.readline()
with UniqFilter.open(Path(sys.argv[1]), UniqParameters(mode="smm", signature="crc32", levels=(1, 2))) as seen:
    keys = [b"%d" % i for i in range(20_000)]
    new = [key for i in range(0, len(keys), 50) for key, n in zip(keys[i:i+50], seen.add(keys[i:i+50]).tolist()) if n]
    seen.sync()
print(b" ".join(new).decode())
"""


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


@pytest.fixture
def tiny_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact indexes with tails of four elements: they write and merge runs all the time."""
    real = uniq.ExactIndex.open
    monkeypatch.setattr(uniq.ExactIndex, "open", lambda folder: real(folder, 4))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("tiny_tails")
def test_what_was_marked_is_known_in_every_mode(tmp_path_factory: pytest.TempPathFactory, mode: str) -> None:
    """Against sets as the model: no key is forgotten, no key with a new signature is dropped, and an exact filter is
    right about every key. Reopenings, and crashes right after a sync, change nothing.
    """

    @settings(max_examples=8, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["mark", "add", "sync", "reopen", "crash"]),
                st.lists(st.integers(0, 300), max_size=30),
            ),
            max_size=8,
        )
    )
    def runs(steps: list[tuple[str, list[int]]]) -> None:
        shape, folder = replace(TINY, mode=mode), tmp_path_factory.mktemp("uniq") / "0"
        seen, model, signatures = UniqFilter.open(folder, shape), set[bytes](), set[int]()
        for number, (action, numbers) in enumerate(steps):
            batch = [b"%d" % n for n in numbers]
            for key, new in zip(batch, seen.unseen(batch).tolist(), strict=True):
                assert not (new and key in model)
                assert new or mode == "dsbf" or zlib.crc32(key) >> 16 in signatures
                assert mode != "exact" or new == (key not in model)
            marked: list[bytes] = []
            if action == "mark":
                seen.mark(batch)
                marked = batch
            elif action == "add":
                marked = [key for key, is_new in zip(batch, seen.add(batch).tolist(), strict=True) if is_new]
                assert len(marked) == len(set(marked))
            elif action == "crash":
                seen.sync()
                shutil.copytree(folder, folder.with_name(str(number + 1)))
                seen.close()
                folder = folder.with_name(str(number + 1))
                seen = UniqFilter.open(folder, shape)
            elif action == "reopen":
                seen.close()
                seen = UniqFilter.open(folder, shape)
            else:
                seen.sync()
            model |= set(marked)
            signatures |= {zlib.crc32(key) >> 16 for key in marked}
            seen.check()
            shown = seen.statistics()
            assert (shown.smm.bits_set if shown.smm else 0) == (len(signatures) if mode != "dsbf" else 0)
            assert mode != "exact" or shown.keys == len(model)
        seen.close()
        shutil.rmtree(folder.parent)

    runs()


@settings(max_examples=16, deadline=None)
@given(
    st.sampled_from([*MODES]),
    st.lists(st.tuples(st.sampled_from(["mark", "add", "unseen"]), st.integers(0, 300)), max_size=60),
)
def test_one_key_goes_the_same_way_as_a_batch(
    tmp_path_factory: pytest.TempPathFactory, mode: str, steps: list[tuple[str, int]]
) -> None:
    """A single key has a path of its own; it is compared with a filter that gets the same key twice in each batch."""
    folder, shape = tmp_path_factory.mktemp("uniq"), replace(TINY, mode=mode)
    with UniqFilter.open(folder / "one", shape) as one, UniqFilter.open(folder / "twice", shape) as twice:
        for action, number in steps:
            key = b"%d" % number
            single, batch = getattr(one, action)([key]), getattr(twice, action)([key, key])
            if action != "mark":
                assert single.dtype == batch.dtype
                assert single.tolist() == batch[:1].tolist()
        everything = [b"%d" % number for number in range(301)]
        assert [bool(one.unseen([key])[0]) for key in everything] == twice.unseen(everything).tolist()
        shown, expected = one.statistics(), twice.statistics()
        assert (shown.keys, shown.smm and shown.smm.bits_set) == (expected.keys, expected.smm and expected.smm.bits_set)
        one.check()
    with UniqFilter.open(folder / "one", shape) as one, UniqFilter.open(folder / "twice", shape) as twice:
        assert one.statistics().keys == twice.statistics().keys
        assert one.unseen(everything).tolist() == twice.unseen(everything).tolist()
    shutil.rmtree(folder)


@pytest.mark.parametrize(("mode", "expected"), [("both", [3, 3, 3]), ("exact", [3, 3, 3, 4])])
def test_the_last_stage_is_asked_only_about_what_the_smm_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, expected: list[int]
) -> None:
    """Bit 0 of the SMM is an answer by itself. (The exact index asks itself once more about what it is to take.)"""
    with UniqFilter.open(tmp_path / "u", replace(SMALL, mode=mode)) as seen:
        seen.mark(keys(0, 3))
        seen._smm.mark([b"only smm"])
        asked: list[int] = []
        stage = seen._stages[-1]
        real = stage.unseen_elements
        monkeypatch.setattr(stage, "unseen_elements", lambda e: (asked.append(len(e)), real(e))[1])
        assert seen.unseen([*keys(1, 6), b"only smm"]).tolist() == [False, False, True, True, True, True]
        assert seen.unseen(keys(0, 3)).tolist() == [False] * 3
        assert seen.unseen(keys(10, 12)).all()
        assert seen.add([*keys(1, 6), b"only smm"]).tolist() == [False, False, True, True, True, True]
        assert asked == expected


def test_an_addition_hashes_each_key_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the SMM, once for the stage that goes by fingerprints, though both are first asked and then marked."""
    hashed: list[int] = []
    with UniqFilter.open(tmp_path / "u", replace(SMALL, mode="exact")) as seen:
        addresses, fingerprints = store.Smm.addresses, uniq.fingerprints
        monkeypatch.setattr(store.Smm, "addresses", lambda s, k: (hashed.append(len(k)), addresses(s, k))[1])
        monkeypatch.setattr(uniq, "fingerprints", lambda k: (hashed.append(len(k)), fingerprints(k))[1])
        for module in ("anabranch.dedup.bloom.filter", "anabranch.dedup.exact.index"):
            monkeypatch.setattr(f"{module}.fingerprints", lambda k: pytest.fail("hashed again"))
        assert seen.add(keys(0, 10)).all()
        assert hashed == [10, 10]


def test_a_false_drop_that_both_bloom_stages_make_is_caught_in_mode_exact(tmp_path: Path) -> None:
    """Filters so small that they drop new keys by the dozen: with an exact index no key is lost."""
    dropped = {}
    for mode in ("both", "exact"):
        with UniqFilter.open(tmp_path / mode, replace(LOSSY, mode=mode)) as seen:
            seen.mark(keys(0, 20_000))
            new = seen.unseen(keys(20_000, 60_000))
            single = [bool(seen.unseen([key])[0]) for key in keys(20_000, 22_000)]
            assert single == new[:2000].tolist()
            dropped[mode] = int(np.count_nonzero(~new))
            assert not seen.unseen(keys(0, 20_000)).any()
            assert seen.add(keys(20_000, 21_000)).tolist() == new[:1000].tolist() or mode == "both"
    assert dropped["both"] > 50
    assert dropped["exact"] == 0


@pytest.mark.parametrize("full", ["smm", "exact"])
@pytest.mark.parametrize("count", [1, 100])
def test_what_a_full_disk_kept_out_is_new_in_mode_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str, count: int
) -> None:
    """Whichever stage fails, also where the others falsely know the keys: so a repeated addition reports them."""
    with UniqFilter.open(tmp_path / "u", replace(LOSSY, mode="exact")) as seen:
        seen.mark(keys(0, 40_000))
        for start in range(40_000, 40_000 + 40 * count, count):
            batch = keys(start, start + count)
            with monkeypatch.context() as patch:
                for name in ("mark", "mark_one", "set", "mark_elements"):
                    patch.setattr(getattr(seen, f"_{full}"), name, full_disk, raising=False)
                for call in (seen.add, seen.mark):
                    with pytest.raises(StoreFull):
                        call(batch)
            assert seen.unseen(batch).all()
        assert seen.add(keys(40_000, 40_000 + 40 * count)).all()


def full_disk(*_: object) -> None:
    raise StoreFull("full")


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
    assert shown.false_drop == shown.smm.fill * shown.dsbf.mean_rate
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


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_states_its_false_drops(tmp_path: Path, mode: str) -> None:
    """The probability is the product of what the stages err; what a stage does not have is 0 or None."""
    with UniqFilter.open(tmp_path / "u", replace(LOSSY, mode=mode)) as seen:
        seen.mark(keys(0, 5000))
        shown = seen.statistics()
        probability = {
            "smm": lambda: shown.smm.fill,
            "dsbf": lambda: shown.dsbf.mean_rate,
            "both": lambda: shown.smm.fill * shown.dsbf.mean_rate,
            "exact": lambda: 0.0,
        }[mode]()
        assert shown.false_drop == seen.false_drop() == probability
        assert (shown.expected_lost > 0) == (probability > 0) == (mode != "exact")
        assert shown.mode == mode
        assert (shown.smm is None) == (mode == "dsbf")
        assert shown.smm is None or shown.smm.fill == shown.smm.bits_set / shown.smm.bits > 0
        assert (shown.dsbf is None) == (mode in {"smm", "exact"})
        assert (shown.exact is None) == (mode != "exact")
        counted = {"smm": lambda: shown.smm.bits_set, "exact": lambda: 5000}.get(mode, lambda: shown.dsbf.elements)()
        assert shown.keys == counted
        chance = random.Random(7)
        measured = int(np.count_nonzero(~seen.unseen([chance.randbytes(12) for _ in range(100_000)])))
        assert abs(measured - 100_000 * probability) <= 5 * (100_000 * probability) ** 0.5


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(SMALL, levels=(1, 2)), r"levels is \[1, 1\] in the folder, \[1, 2\] here$"),
        (replace(SMALL, expected=5001), "expected is 5000 in the folder, 5001 here$"),
        (replace(SMALL, false_positive=0.02), "false_positive"),
        (replace(SMALL, signature="xxh3-64"), "signature is 'crc32' in the folder"),
        (replace(SMALL, mode="exact"), "mode is 'both' there, 'exact' here$"),
        (replace(SMALL, mode="smm"), "mode is 'both' there, 'smm' here$"),
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
    assert repr(uniq) == "<UniqFilter both <Smm crc32 (1, 1) closed> <Dsbf closed>>"
    with pytest.raises(BadParameters):
        UniqFilter.open(tmp_path / "v", UniqParameters(signature="md6"))
    with pytest.raises(BadParameters):
        UniqFilter.open(tmp_path / "v", UniqParameters(signature="md6"))


@pytest.mark.parametrize(("mode", "part"), [("both", "smm"), ("both", "dsbf"), ("exact", "exact")])
def test_a_lost_stage_is_damage_not_a_new_filter(tmp_path: Path, mode: str, part: str) -> None:
    """A complete filter does not make a missing stage anew; one interrupted in the making does."""
    shape = replace(SMALL, mode=mode)
    UniqFilter.open(tmp_path / "u", shape).close()
    shutil.rmtree(tmp_path / "u" / part)
    with pytest.raises(FormatMismatch, match="is missing"):
        UniqFilter.open(tmp_path / "u", shape)
    record = json.loads((tmp_path / "u" / "FORMAT").read_text())
    (tmp_path / "u" / "FORMAT").write_text(json.dumps(record | {"complete": False}))
    UniqFilter.open(tmp_path / "u", shape).close()


def test_an_opening_that_fails_lets_go_of_all_stages(tmp_path: Path) -> None:
    """The last stage is damaged: the folders of the others are free again."""
    shape = replace(SMALL, mode="exact")
    UniqFilter.open(tmp_path / "u", shape).close()
    log = next((tmp_path / "u" / "exact").glob("log-*"))
    content = log.read_bytes()
    log.write_bytes(b"?")
    for _ in range(2):
        with pytest.raises(FormatMismatch, match="log-"):
            UniqFilter.open(tmp_path / "u", shape)
    log.write_bytes(content)
    UniqFilter.open(tmp_path / "u", shape).close()


@pytest.mark.parametrize("mode", ["dsbf", "both", "exact"])
def test_a_folder_belongs_to_one_filter_unless_it_is_an_smm(tmp_path: Path, mode: str) -> None:
    """A second one is refused until the first is closed; in mode smm both serve, and see what the other marks."""
    with UniqFilter.open(tmp_path / "u", replace(SMALL, mode=mode)), pytest.raises(FilterInUse):
        UniqFilter.open(tmp_path / "u", replace(SMALL, mode=mode))
    UniqFilter.open(tmp_path / "u", replace(SMALL, mode=mode)).close()
    alone = replace(SMALL, mode="smm")
    with UniqFilter.open(tmp_path / "s", alone) as one, UniqFilter.open(tmp_path / "s", alone) as other:
        assert one.add([b"a", b"b"]).all()
        assert other.add([b"b", b"c"]).tolist() == [False, True]
        assert one.add([b"c"]).tolist() == [False]
        assert one.statistics().keys == other.statistics().keys == 3


def test_several_processes_share_a_folder_in_mode_smm(tmp_path: Path) -> None:
    """Opened, even made, at the same moment: each key is new to exactly one of them, and the losses are recorded."""
    with ExitStack() as stack:
        command = ["-c", ADDER, str(tmp_path / "u")]
        children = [stack.enter_context(Process(command, cwd=ROOT, stderr=None, preload=DEDUP)) for _ in range(3)]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        new = [key for child in children for key in child.communicate()[0].split()]
        assert [child.returncode for child in children] == [0, 0, 0]
    with UniqFilter.open(tmp_path / "u", UniqParameters(mode="smm", signature="crc32", levels=(1, 2))) as seen:
        signatures = {zlib.crc32(b"%d" % i) >> 8 for i in range(20_000)}
        assert len(new) == len(set(new)) == len(signatures) == seen.statistics().keys
        assert seen.statistics().expected_lost > 0
        seen.check()


def test_leaves_may_be_elsewhere_each_time(tmp_path: Path) -> None:
    """Memory or a mapped file: no part of the format."""
    for start, leaves in enumerate(["memory", "mapped", "memory"]):
        with UniqFilter.open(tmp_path / "u", SMALL, leaves) as seen:
            assert not seen.unseen(keys(0, 100 * start)).any()
            seen.mark(keys(100 * start, 100 * start + 100))
            seen.check()
    with pytest.raises(BadParameters, match="leaves"):
        UniqFilter.open(tmp_path / "u", SMALL, "elsewhere")


def test_a_closing_that_cannot_sync_lets_go_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised, and the folder can be opened again with nothing synced lost."""
    uniq = UniqFilter.open(tmp_path / "u", SMALL)
    uniq.mark(keys(0, 10))
    uniq.sync()
    uniq.mark(keys(10, 20))
    with monkeypatch.context() as patch:
        patch.setattr("anabranch.dedup.bloom.log.LeafLogs.sync", lambda self: (_ for _ in ()).throw(OSError("broken")))
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


def test_without_parameters_a_filter_goes_on_with_its_own(tmp_path: Path) -> None:
    """Those that its folder records; a new folder gets the defaults. A path may be text."""
    with UniqFilter.open(tmp_path / "u", replace(SMALL, mode="exact")) as seen:
        seen.mark(keys(0, 10))
    with UniqFilter.open(str(tmp_path / "u")) as seen:
        assert seen.statistics().mode == "exact"
        assert not seen.unseen(keys(0, 10)).any()
    UniqFilter.open(tmp_path / "new").close()
    found = recorded(tmp_path / "new")
    default = UniqParameters()
    assert found == replace(
        default, signature=default.smm_signature, levels=default.smm_levels, leaf_kind=default.dsbf_leaf_kind
    )


@pytest.mark.skipif(not resident_file_bytes(), reason="this system does not tell resident pages")
@pytest.mark.parametrize("mode", ["smm", "both", "exact"])
def test_a_limit_of_mapped_pages_changes_no_answer(tmp_path: Path, mode: str) -> None:
    """After each call the pages over the limit are given back; so it is exceeded by what one call touches at most."""
    given = UniqParameters(mode=mode, levels=(1, 3))
    with (
        UniqFilter.open(tmp_path / "free", given, "mapped") as free,
        UniqFilter.open(tmp_path / "held", replace(given, mapped_limit_bytes=1 << 22), "mapped") as held,
    ):
        assert held._limit is not None
        before, most = resident_file_bytes(), 0
        for start in range(0, 3000, 60):
            batch = keys(start, start + 60)
            assert held.add(batch).tolist() == free.add(batch).tolist()
            asked = keys(0, start + 90)[:: start // 60 + 1]
            assert held.unseen(asked).tolist() == free.unseen(asked).tolist()
            for stage in free._stages:
                stage.release_pages()  # so that only the other one's pages are counted
            most = max(most, resident_file_bytes() - before)
        assert most < (1 << 22) + 2 * 60 * (1 << 16)
        assert held._limit.times > 3 or mode == "exact"
        held.check()
    assert recorded(tmp_path / "held") == recorded(tmp_path / "free")


def test_a_filter_says_what_it_takes_of_memory_and_of_mapped_files(tmp_path: Path) -> None:
    """A small SMM is in memory; leaves are where they were asked for."""
    given = UniqParameters(levels=(1, 3), expected=1000)
    with UniqFilter.open(tmp_path / "a", given, alone=True) as seen:
        seen.mark(keys(0, 100))
        shown = seen.statistics()
        assert (shown.memory_bytes, shown.mapped_bytes) == ((1 << 20) + 100 * 92, 0)
    with UniqFilter.open(tmp_path / "b", replace(given, mode="dsbf"), "mapped") as seen:
        shown = seen.statistics()
        assert (shown.memory_bytes, shown.mapped_bytes) == (0, 1 << 20)
    with UniqFilter.open(tmp_path / "c", replace(given, mode="smm")) as seen:
        seen.mark(keys(0, 100))
        shown = seen.statistics()
        assert shown.memory_bytes == 0
        assert 90 * (1 << 14) < shown.mapped_bytes <= 100 * (1 << 14)


@pytest.mark.parametrize("mode", ["dsbf", "both"])
def test_a_filter_keeps_the_leaves_that_it_was_made_with(tmp_path: Path, mode: str) -> None:
    """A new one has blocked leaves. One of an earlier version has classic ones; its files stay as they were."""
    asked = replace(SMALL, mode=mode)
    for name, kind in (("old", "classic"), ("new", None)):
        with UniqFilter.open(tmp_path / name, replace(asked, leaf_kind=kind)) as seen:
            seen.mark(keys(0, 200))
    for _ in range(2):
        for name, version, kind in (("old", 2, None), ("new", 3, "blocked")):
            record = json.loads((tmp_path / name / "FORMAT").read_text())
            assert (record["version"], record["parameters"].get("leaf_kind")) == (version, kind)
            with UniqFilter.open(tmp_path / name, asked) as seen:
                assert not seen.unseen(keys(0, 200)).any()
                seen.mark(keys(200, 400))
                seen.check()
    for name, here, there in (("old", "blocked", "classic"), ("new", "classic", "blocked")):
        with pytest.raises(FormatMismatch, match=f"leaf_kind is '{there}' there, '{here}' here"):
            UniqFilter.open(tmp_path / name, replace(asked, leaf_kind=here))
    assert replace(asked, leaf_bits=256).dsbf.leaf_kind == "classic"


@pytest.mark.parametrize("expected", [1_000, 50_000, 10_000_000])
def test_an_smm_of_an_earlier_version_keeps_its_signature_and_size(tmp_path: Path, expected: int) -> None:
    """Both were chosen otherwise; a new one has a signature that is not linear, and a size that follows `false_positive`."""
    asked = UniqParameters(mode="smm", expected=expected)
    before = replace(asked, signature="crc32", levels=levels_for(expected))
    UniqFilter.open(tmp_path / "old", before).close()
    for _ in range(2):
        with UniqFilter.open(tmp_path / "old", asked) as seen:
            statistics = seen.statistics().smm
            assert statistics is not None
            assert (statistics.signature, statistics.levels) == ("crc32", levels_for(expected))
            assert seen.statistics().facts()["smm_is_linear"]
    with UniqFilter.open(tmp_path / "new", asked) as seen:
        statistics = seen.statistics().smm
        assert statistics is not None
        assert statistics.signature == "xxh3-64"
        assert not seen.statistics().facts()["smm_is_linear"]
        assert -math.expm1(-expected / statistics.bits) <= asked.false_positive or statistics.levels == (1, 3)
    with pytest.raises(FormatMismatch, match="signature is 'crc32' in the folder, 'md5' here"):
        UniqFilter.open(tmp_path / "old", replace(asked, signature="md5"))


def test_the_default_of_an_smm_alone_does_not_lose_whole_sites(tmp_path: Path) -> None:
    """Two names with one CRC-32 collide in every path that is appended to both."""
    one, two = ([b"%s/news/%d.html" % (name, number) for number in range(1000)] for name in COLLIDING)
    assert zlib.crc32(COLLIDING[0]) == zlib.crc32(COLLIDING[1])
    for signature, lost in (("crc32", 1000), (None, 0)):
        asked = UniqParameters(mode="smm", expected=5_000_000, signature=signature)
        with UniqFilter.open(tmp_path / str(signature), asked) as seen:
            seen.mark(one)
            assert np.count_nonzero(~seen.unseen(two)) == lost


@pytest.mark.parametrize("mode", ["smm", "both"])
def test_the_planned_loss_is_the_mean_of_what_is_lost(tmp_path: Path, mode: str) -> None:
    """The plan is for as many distinct keys as the filter is made for; both stages together lose next to nothing."""
    asked = UniqParameters(mode=mode, expected=20_000, levels=(1, 2), leaf_bits=1 << 19, split_fan_out=4)
    lost = 0
    with UniqFilter.open(tmp_path / "u", asked) as seen:
        for start in range(0, 20_000, 500):
            batch = keys(start, start + 500)
            lost += int(np.count_nonzero(~seen.unseen(batch)))
            seen.mark(batch)
    if mode == "smm":
        assert abs(lost - asked.planned_loss) < 5 * math.sqrt(asked.planned_loss)
    else:
        assert lost <= asked.planned_loss + 1 <= asked.false_positive * asked.expected


def test_a_log_that_was_cut_off_after_a_kill_is_noticed(tmp_path: Path) -> None:
    """The filter counts clearly fewer keys than were durable at the last sync, and says so each time."""
    with UniqFilter.open(tmp_path / "u", SMALL) as seen:
        seen.mark(keys(0, 8000))
        seen.sync()
        seen.mark(keys(8000, 8010))
        shutil.copytree(tmp_path / "u", tmp_path / "killed")
    shutil.copytree(tmp_path / "killed", tmp_path / "whole")
    with UniqFilter.open(tmp_path / "whole") as seen:
        assert not seen.unseen(keys(0, 8000)).any()
    for path in (tmp_path / "killed" / "dsbf").glob("leaf-*.log"):
        os.truncate(path, 64 + (path.stat().st_size - 64) // 32 * 16)
    for _ in range(2):
        with pytest.raises(FormatMismatch, match=r"holds \d+ keys, its record says (7\d{3}|8000): a log is damaged"):
            UniqFilter.open(tmp_path / "killed")
    (tmp_path / "killed" / "LOSSES").unlink()
    UniqFilter.open(tmp_path / "killed").close()


def test_what_a_sync_records_was_marked_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that another thread marks while it runs are not durable, so a kill may lose them without a complaint."""
    with UniqFilter.open(tmp_path / "u", SMALL) as seen:
        seen.mark(keys(0, 100))
        real = type(seen._dsbf).sync
        monkeypatch.setattr(type(seen._dsbf), "sync", lambda dsbf: (real(dsbf), seen.mark(keys(100, 4000)))[0])
        seen.sync()
        monkeypatch.undo()
        assert json.loads((tmp_path / "u" / "LOSSES").read_text())["durable"] == 100


@pytest.mark.parametrize(("mode", "pattern"), [("both", "dsbf/leaf-*.log"), ("exact", "exact/*-*.[lr][ou]*")])
def test_files_damaged_behind_an_open_filter_are_found_by_a_check(tmp_path: Path, mode: str, pattern: str) -> None:
    """Cut off at any place, or with another's header: each file of the stages that keep keys."""
    with UniqFilter.open(tmp_path / "u", replace(SMALL, mode=mode)) as seen:
        seen.mark(keys(0, 300))
        if seen._exact is not None:
            seen._exact._files._turn_tail()
            seen.mark(keys(300, 400))
        seen.sync()
        paths = list((tmp_path / "u").glob(pattern))
        assert len(paths) >= 2
        for path in paths:
            content = path.read_bytes()
            for wrong in (content[:-16], content[:-5], b"", b"x" * len(content), b"ANA" + content[3:-1] + b"x"):
                with path.open("r+b") as file:
                    file.write(wrong)
                    file.truncate()
                with pytest.raises((FormatMismatch, InvariantBroken), match=path.name):
                    seen.check()
            path.write_bytes(content)
        seen.check()


@pytest.mark.parametrize("mode", MODES)
def test_a_key_twice_in_a_batch_is_counted_alike_in_every_mode(tmp_path: Path, mode: str) -> None:
    """The second one counts as known."""
    with UniqFilter.open(tmp_path / "u", replace(SMALL, mode=mode)) as seen:
        seen.add([b"a", b"a", b"b"])
        now = seen.statistics().answers
    assert (now.asked, now.smm_new + now.set_new, now.dropped) == (3, 2, 1)
    assert mode not in {"both", "exact"} or now.set_asked == now.smm_known == 1


@pytest.mark.parametrize("mode", MODES)
def test_the_answers_add_up(tmp_path: Path, mode: str) -> None:
    """Every key that is asked about is counted once, by who answered; the counts outlive the process."""
    draw, sent = random.Random(3), 0
    pool = [draw.randbytes(12) for _ in range(4000)]  # alike keys have CRCs that collide less than by chance
    seen = UniqFilter.open(tmp_path / "u", replace(LOSSY, mode=mode, levels=(1, 1)))
    for number in range(300):
        batch = draw.choices(pool, k=draw.choice([1, 1, 7, 40]))
        sent += len(batch)
        if number % 3:
            seen.unseen(batch)
            seen.mark(batch[::2])
        else:
            seen.add(batch)
        if number % 50 == 0:
            seen.count_known(5)
            sent += 5
        if number == 150:
            seen.close()
            seen = UniqFilter.open(tmp_path / "u")
    now = seen.statistics().answers
    assert now.asked == sent == now.memory_known + now.smm_new + now.set_new + now.dropped
    assert now.memory_known == 30
    if mode in {"both", "exact"}:
        assert now.set_asked == now.smm_known == now.set_new + now.dropped
        assert min(now.smm_new, now.set_new, now.dropped) > 0
    elif mode == "smm":
        assert (now.set_asked, now.smm_known) == (0, now.dropped)
    else:
        assert (now.smm_new, now.set_asked) == (0, sent - 30)
    seen.close()


def test_a_filter_that_begins_with_too_many_leaves_is_refused(tmp_path: Path) -> None:
    """It would make files for hours, and then find no memory. Nothing is left behind."""
    many = UniqParameters(expected=10**12)
    with pytest.raises(BadParameters, match=r"expected is 1000000000000; it asks for 1,891,816 leaves .* expect fewer"):
        UniqFilter.open(tmp_path / "u", many)
    assert not (tmp_path / "u").exists()
    assert UniqParameters(mode="exact", expected=10**12).format is not None
    assert UniqParameters(expected=10**12, leaf_bits=1 << 33).format is not None
