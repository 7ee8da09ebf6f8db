from __future__ import annotations

import errno
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.bloom.bits import LeafBits, bits_of
from anabranch.dedup.bloom.filter import Dsbf, check_loads, check_node, check_split
from anabranch.dedup.bloom.formulas import BLOCKED, LEAF_KINDS, MOVES_PER_KEY, DsbfParameters
from anabranch.dedup.bloom.splitting import Split
from anabranch.dedup.bloom.table import LeafTable
from anabranch.dedup.bloom.tree import Tree
from anabranch.dedup.errors import BadParameters, FilterClosed, FilterInUse, FormatMismatch, InvariantBroken
from anabranch.dedup.keys import Fingerprints, fingerprints, first_of_each, to_bytes

CHECKED = DsbfParameters(expected=300, false_positive=0.001, leaf_bits=2048)
ELEMENTS = fingerprints([b"http://a.example/%d" % i for i in range(60)])
OTHERS = fingerprints([b"other %d" % i for i in range(40)])
LOG = Path("leaf.log")


def table(tree: Tree) -> LeafTable:
    """A table with these elements in its leaves."""
    made = LeafTable(CHECKED, tree, LeafBits(CHECKED.leaf_bits, CHECKED.hashes))
    for leaf in tree.leaves:
        made.settle(leaf, of(made, leaf, ELEMENTS))
    return made


def of(table_: LeafTable, node: int, elements: Fingerprints) -> Fingerprints:
    return elements[table_.tree.leads_through(node, elements)]


def test_a_leaf_agrees_with_its_log_however_often_an_element_is_there() -> None:
    """Logs may hold equal elements; counts are of distinct ones, less the falsely known."""
    checked = table(Tree.rooted(3))
    own = of(checked, 1, ELEMENTS)
    checked.nodes.counts[1] -= 1
    check_node(checked, 1, np.concatenate((own, own)), LOG)


def test_each_contradiction_of_a_leaf_and_its_log_is_named() -> None:
    """Elements of another leaf, fewer than were counted, other bits."""
    checked = table(Tree.rooted(3))
    own, other = of(checked, 1, ELEMENTS), of(checked, 2, ELEMENTS)
    for logged, message in (
        (other, "^leaf.log holds elements of another leaf"),
        (own[1:], f"^leaf.log holds {len(own) - 1} elements, {len(own)} were counted"),
        (np.concatenate((own, of(checked, 1, OTHERS))), "^leaf.log and the bits of its leaf disagree"),
    ):
        with pytest.raises(InvariantBroken, match=message):
            check_node(checked, 1, logged, LOG)


def splitting(moved: int) -> tuple[LeafTable, Split, Fingerprints]:
    """Node 1 is splitting; the first elements of its log were moved."""
    checked = LeafTable(CHECKED, Tree.rooted(2), LeafBits(CHECKED.leaf_bits, CHECKED.hashes))
    logged = of(checked, 1, ELEMENTS)
    for leaf in (1, 2):
        checked.settle(leaf, of(checked, leaf, ELEMENTS))
    checked.begin_splits([1], checked.tree.split([1], 2), checked.take(2))
    checked.mark(logged[:moved], np.ones(moved, dtype=np.bool_))
    return checked, Split(node=1, length=len(logged), moved=moved), logged


def test_what_was_moved_is_known_below() -> None:
    """In the leaf of its way, or in a splitting node between."""
    checked, split, logged = splitting(moved=10)
    check_split(checked, split, logged, LOG)
    checked.begin_splits([3, 4], checked.tree.split([3, 4], 2), checked.take(4))
    check_split(checked, split, logged, LOG)
    split.moved = 12
    with pytest.raises(InvariantBroken, match="2 of the elements recorded as moved are not known below"):
        check_split(checked, split, logged, LOG)


@pytest.mark.parametrize("change", [{"moved": 100}, {"recorded": 11}, {"length": 9}])
def test_a_split_cannot_have_moved_more_than_there_is(change: dict[str, int]) -> None:
    """It holds that recorded <= moved <= length, and that is the log's."""
    checked, split, logged = splitting(moved=10)
    for name, value in change.items():
        setattr(split, name, value)
    with pytest.raises(InvariantBroken, match="are recorded as moved"):
        check_split(checked, split, logged, LOG)


def test_the_bits_of_a_splitting_node_are_its_logs_until_all_is_moved() -> None:
    """After that it has none."""
    checked, split, logged = splitting(moved=10)
    with pytest.raises(InvariantBroken, match="bits of its leaf disagree"):
        check_split(checked, split, np.concatenate((logged[:-1], of(checked, 1, OTHERS)[:1])), LOG)
    checked.mark(logged, np.ones(len(logged), dtype=np.bool_))
    checked.end_split(1)
    split.moved = split.length
    check_split(checked, split, logged, LOG)


#: Leaves that hold six elements: splits happen all the time.
TINY = DsbfParameters(expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)
#: Leaves of some 100 elements, where false answers are rare.
SMALL = DsbfParameters(expected=300, false_positive=0.001, leaf_bits=2048)


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


#: Blocked leaves of one block.
TINY_BLOCKED = DsbfParameters(expected=0, false_positive=1e-6, leaf_bits=512, split_fan_out=2, leaf_kind=BLOCKED)


class Model:
    """A filter and a Python set: each step is done to both, and then they are compared."""

    def __init__(self, folder: Path, shape: DsbfParameters) -> None:
        self.folder, self.shape = folder, shape
        self.dsbf = Dsbf.open(folder / "d", shape)
        self.marked: set[int] = set()
        self.synced: set[int] = set()

    def step(self, action: str, numbers: list[int]) -> None:
        batch = [b"%d" % number for number in numbers]
        unseen = self.dsbf.unseen(batch).tolist()
        assert not any(new and number in self.marked for new, number in zip(unseen, numbers, strict=True))
        assert [self.dsbf.is_unseen(key) for key in batch] == unseen
        getattr(self, action)(numbers, batch, unseen)
        self.dsbf.check()
        assert len(self.dsbf) <= len(self.marked)
        self.knows(self.dsbf, self.marked)
        leaves = self.dsbf._table.tree.leaves
        assert (self.dsbf._table.nodes.counts[leaves] <= self.shape.split_above).all()

    @staticmethod
    def knows(dsbf: Dsbf, numbers: set[int]) -> None:
        assert not dsbf.unseen([b"%d" % number for number in numbers]).any()

    def mark(self, numbers: list[int], batch: list[bytes], unseen: list[bool]) -> None:
        self.dsbf.mark(batch)
        self.marked |= set(numbers)

    def mark_one(self, numbers: list[int], batch: list[bytes], unseen: list[bool]) -> None:
        for key in batch:
            self.dsbf.mark_one(key)
        self.marked |= set(numbers)

    def add(self, numbers: list[int], batch: list[bytes], unseen: list[bool]) -> None:
        new = self.dsbf.add(batch).tolist()
        assert new == [
            is_new and n not in numbers[:i] for i, (n, is_new) in enumerate(zip(numbers, unseen, strict=True))
        ]
        self.marked |= {number for number, is_new in zip(numbers, new, strict=True) if is_new}

    def sync(self, *_: object) -> None:
        self.dsbf.sync()
        self.synced = set(self.marked)

    def reopen(self, numbers: list[int], *_: object) -> None:
        """After a clean end, memory and mapped by turns: nothing has changed."""
        shown = self.dsbf.statistics()
        self.dsbf.close()
        self.dsbf = Dsbf.open(self.folder / "d", self.shape, leaves=["memory", "mapped"][len(numbers) % 2])
        again = self.dsbf.statistics()
        kept = ("elements", "leaves", "splits", "splitting", "mean_rate", "worst_rate")
        assert [getattr(again, name) for name in kept] == [getattr(shown, name) for name in kept]
        self.synced = set(self.marked)

    def kill(self, numbers: list[int], *_: object) -> None:
        """A folder left by a killed process knows all keys that were synced, and keys can be marked in it."""
        copied = self.folder / "copy"
        shutil.copytree(self.folder / "d", copied)
        with Dsbf.open(copied, self.shape, leaves=["memory", "mapped"][len(numbers) % 2]) as copy:
            copy.check()
            self.knows(copy, self.synced)
            copy.mark([b"%d" % number for number in self.marked])
            self.knows(copy, self.marked)
            copy.check()
        shutil.rmtree(copied)

    def rebuild(self, *_: object) -> None:
        """Without the kept bits the logs have all; distinct elements are counted if no element is moving."""
        self.dsbf.close()
        (self.folder / "d" / "BITS").unlink(missing_ok=True)
        self.dsbf = Dsbf.open(self.folder / "d", self.shape)
        self.synced = set(self.marked)
        if not self.dsbf.statistics().splitting:
            assert len(self.dsbf) == len(self.marked)


ACTIONS = ["mark", "mark_one", "add", "sync", "reopen", "kill", "rebuild"]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([TINY, TINY_BLOCKED]),
    st.sampled_from([1, 3, MOVES_PER_KEY]),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.lists(st.integers(0, 300), max_size=30)), max_size=12),
)
def test_nothing_marked_is_ever_forgotten(
    tmp_path_factory: pytest.TempPathFactory,
    shape: DsbfParameters,
    moves_per_key: int,
    steps: list[tuple[str, list[int]]],
) -> None:
    """Against a Python set as the model, with splits under way nearly always: no false "unseen", and sound inside."""
    folder = tmp_path_factory.mktemp("dsbf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anabranch.dedup.bloom.splitting.MOVES_PER_KEY", moves_per_key)
        patch.setattr("anabranch.dedup.bloom.splitting.MOVE_AT_LEAST", moves_per_key)
        model = Model(folder, shape)
        for action, numbers in [("mark", list(range(500, 540))), *steps]:
            model.step(action, numbers)
        model.dsbf.close()
    shutil.rmtree(folder)


def test_few_keys_in_good_sized_leaves_are_an_exact_set(tmp_path: Path) -> None:
    """At a rate far below one in the number of questions, answers are those of a set."""
    shape = DsbfParameters(expected=1000, false_positive=1e-6, leaf_bits=1 << 16)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        assert dsbf.add(keys(0, 500)).all()
        assert dsbf.unseen(keys(0, 1000)).tolist() == [False] * 500 + [True] * 500
        assert dsbf.add(keys(400, 600) + keys(400, 600)).tolist() == [False] * 100 + [True] * 100 + [False] * 200
        assert len(dsbf) == 600


@pytest.mark.parametrize("kind", LEAF_KINDS)
@pytest.mark.parametrize("f", [1e-2, 1e-3])
def test_the_rate_at_the_expected_number_is_the_one_asked_for(tmp_path: Path, f: float, kind: str) -> None:
    """200,000 keys as expected, 200,000 others asked: no split, at most 1.05 f + 3 sigma known, as stated."""
    shape = DsbfParameters(expected=200_000, false_positive=f, leaf_bits=1 << 17, leaf_kind=kind)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        dsbf.mark(keys(0, 200_000))
        known = int(np.count_nonzero(~dsbf.unseen(keys(200_000, 400_000))))
        shown = dsbf.statistics()
    sigma = math.sqrt(f * (1 - f) / 200_000)
    assert known / 200_000 <= 1.05 * f + 3 * sigma
    assert abs(known / 200_000 - shown.mean_rate) <= 0.05 * f + 4 * sigma
    assert (shown.splits, shown.leaves, shown.height) == (0, shape.first_leaves, 1)
    assert shown.mean_rate <= shown.worst_rate <= f


@pytest.mark.parametrize("kind", LEAF_KINDS)
def test_the_rate_holds_after_splits(tmp_path: Path, kind: str) -> None:
    """Ten times the expected number: leaves have split, and the rate is still the one asked for."""
    shape = DsbfParameters(expected=10_000, false_positive=0.01, leaf_bits=1 << 14, leaf_kind=kind)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        for start in range(0, 100_000, 5_000):
            dsbf.mark(keys(start, start + 5_000))
        rate = np.count_nonzero(~dsbf.unseen(keys(100_000, 200_000))) / 100_000
        shown = dsbf.statistics()
        dsbf.check()
    assert rate <= 1.05 * 0.01 + 3 * math.sqrt(0.01 * 0.99 / 100_000)
    assert shown.splits > 0
    assert shown.worst_rate <= 0.01
    assert 0.99 * 100_000 <= shown.elements <= 100_000


def test_a_key_falsely_known_is_logged_all_the_same(tmp_path: Path) -> None:
    """After the splits that follow it is still known: its fingerprint was kept though its bits were all set."""
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        dsbf.mark(keys(0, 6))
        falsely = [key for key in keys(9, 3000) if not dsbf.unseen([key])[0]]
        assert len(falsely) > 3
        assert dsbf.statistics().splits == 0
        dsbf.mark(falsely)
        assert len(dsbf) <= 6
        dsbf.mark(keys(6, 400))
        assert dsbf.statistics().splits > 5
        assert not dsbf.unseen(falsely + keys(0, 400)).any()


def test_reopening_gives_the_same_bits_and_compacts_the_logs(tmp_path: Path) -> None:
    """Equal fingerprints are dropped and the shorter log is written; counts are the distinct ones."""
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        for _ in range(3):
            dsbf.mark(keys(0, 100))
        long = dsbf.statistics().log_bytes
        dsbf._is_torn = True  # so that no bits are kept
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        shown = dsbf.statistics()
        assert (shown.elements, shown.strays) == (100, 0)
        assert long - shown.log_bytes == 200 * 16
        assert not dsbf.unseen(keys(0, 100)).any()
        dsbf.check()
        assert repr(dsbf) == f"<Dsbf 100 elements in {shown.leaves} leaves>"
    assert repr(dsbf) == "<Dsbf closed>"


def test_elements_in_a_wrong_log_are_dropped_and_counted(tmp_path: Path) -> None:
    """Debris of a torn write leads elsewhere; no question would ever find it here."""
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        dsbf.mark(keys(0, 10))
        other = fingerprints(keys(10, 200))
        wrong = other[dsbf._table.tree.descend(other) != 1]
        path = dsbf._logs.path(1)
    with path.open("ab") as file:
        file.write(to_bytes(wrong) + b"torn")
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        assert dsbf.statistics().strays == len(wrong) > 0
        assert len(dsbf) == 10
        dsbf.check()


def test_a_full_disk_before_anything_is_taken_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting elements are written before new keys are taken, so that memory does not grow while the disk is full."""
    monkeypatch.setattr("anabranch.dedup.bloom.log._FEWEST_WAITING", 1)
    monkeypatch.setattr("anabranch.dedup.bloom.log._WAITING_PER_LEAF", 1)
    dsbf = Dsbf.open(tmp_path / "d", DsbfParameters(expected=300, leaf_bits=1 << 16))
    dsbf.mark(keys(0, 50))

    def fail(*args: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        for mark in (dsbf.mark, lambda batch: dsbf.mark_one(batch[0])):
            with pytest.raises(OSError, match="no room"):
                mark(keys(50, 100))
    assert len(dsbf) == 50
    assert dsbf.unseen(keys(50, 100)).all()
    dsbf.close()


def test_a_folder_serves_one_filter_at_a_time(tmp_path: Path) -> None:
    """A second opening is refused until the first is closed; a failed opening holds nothing."""
    dsbf = Dsbf.open(tmp_path / "d", SMALL)
    with pytest.raises(FilterInUse):
        Dsbf.open(tmp_path / "d", SMALL)
    dsbf.close()
    dsbf.close()
    with pytest.raises(FormatMismatch, match="leaf_bits is 2048 in the folder, 64 here"):
        Dsbf.open(tmp_path / "d", TINY)
    Dsbf.open(tmp_path / "d", SMALL).close()


def test_a_folder_without_manifest_is_ours_only_while_it_is_being_made(tmp_path: Path) -> None:
    """Empty logs are a making that was interrupted; elements or other files without manifest are damage."""
    Dsbf.open(tmp_path / "d", SMALL).close()
    (tmp_path / "d" / "BITS").touch()
    (tmp_path / "d" / "MANIFEST").unlink()
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        dsbf.mark(keys(0, 9))
    (tmp_path / "d" / "MANIFEST").unlink()
    with pytest.raises(FormatMismatch, match="no MANIFEST"):
        Dsbf.open(tmp_path / "d", SMALL)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "letter.txt").touch()
    with pytest.raises(FormatMismatch, match="not ours"):
        Dsbf.open(tmp_path / "e", SMALL)


def test_bits_are_kept_only_if_they_save_time(tmp_path: Path) -> None:
    """Those of a small crawl are mostly zeros: its logs are read in less time, and take less of the disk."""
    with Dsbf.open(tmp_path / "few", DsbfParameters()) as dsbf:
        dsbf.mark(keys(0, 1000))
    assert not (tmp_path / "few" / "BITS").exists()
    assert sum(path.stat().st_size for path in (tmp_path / "few").iterdir()) < 50_000
    with Dsbf.open(tmp_path / "few", DsbfParameters()) as dsbf:
        assert not dsbf.unseen(keys(0, 1000)).any()
        assert len(dsbf) == 1000
    many = DsbfParameters(expected=1000, leaf_bits=1 << 15)
    with Dsbf.open(tmp_path / "many", many) as dsbf:
        dsbf.mark(keys(0, 1000))
    assert (tmp_path / "many" / "BITS").exists()


def test_a_check_finds_bits_counts_and_logs_that_disagree(tmp_path: Path) -> None:
    """Each part, changed alone, contradicts another one."""
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        dsbf.mark(keys(0, 50))
        dsbf.check()
        dsbf._table.elements += 1
        with pytest.raises(InvariantBroken, match="its leaves count"):
            dsbf.check()
        dsbf._table.elements -= 1
        dsbf._table.leaves.mark(dsbf._table.nodes.slots[[1]], fingerprints([b"stranger"]))
        with pytest.raises(InvariantBroken, match="bits of its leaf disagree"):
            dsbf.check()
        dsbf._table.nodes.counts[1] += 1000
        with pytest.raises(InvariantBroken, match="were counted"):
            dsbf.check()
        dsbf._logs.append(np.array([1] * 50), fingerprints(keys(0, 50)))
        dsbf._is_torn = True
        with pytest.raises(InvariantBroken, match="elements of another leaf"):
            dsbf.check()


def test_a_check_judges_a_blocked_leaf_by_the_load_of_each_block(tmp_path: Path) -> None:
    """As many elements as fit, but in half of the blocks: fewer bits are set, and the rate is far above the one asked for."""
    shape = DsbfParameters(expected=0, leaf_bits=1 << 19, leaf_kind=BLOCKED)
    found = fingerprints(keys(0, 70_000))
    even, crowded = found[:33_000], found[found[:, 1] % 1024 < 512][:33_000]
    check_loads(shape, even, LOG)
    assert bits_of(crowded, 1 << 19, 9, BLOCKED).sum() < bits_of(even, 1 << 19, 9, BLOCKED).sum()
    with pytest.raises(
        InvariantBroken, match=r"leaf.log: its elements load the blocks so unevenly that the rate is 0\.01"
    ):
        check_loads(shape, crowded, LOG)
    check_loads(replace(shape, leaf_kind="classic"), crowded, LOG)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        dsbf.mark_elements(crowded, np.ones(len(crowded), dtype=np.bool_))
        with pytest.raises(InvariantBroken, match="so unevenly"):
            dsbf.check()


@pytest.mark.parametrize("kind", LEAF_KINDS)
def test_leaves_of_the_other_kind_are_refused(tmp_path: Path, kind: str) -> None:
    """By name, and nothing is changed; a program that knows only classic leaves meets versions that it does not read."""
    shape, (other,) = replace(SMALL, leaf_kind=kind), LEAF_KINDS.keys() - {kind}
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        dsbf.mark(keys(0, 300))
    with pytest.raises(FormatMismatch, match=f"leaf_kind is '{kind}' in the folder, '{other}' here"):
        Dsbf.open(tmp_path / "d", replace(shape, leaf_kind=other))
    manifest = json.loads((tmp_path / "d" / "MANIFEST").read_text())
    log = (tmp_path / "d" / "leaf-00000001.log").read_bytes()
    is_blocked = kind == BLOCKED
    assert (manifest["version"], log[8]) == ((3, 2) if is_blocked else (2, 1))
    assert ("leaf_kind" in manifest["parameters"]) == is_blocked
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        assert not dsbf.unseen(keys(0, 300)).any()
        dsbf.check()


def test_a_log_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    """The elements would fit, their positions would not."""
    with Dsbf.open(tmp_path / "d", replace(SMALL, leaf_kind=BLOCKED)) as dsbf:
        dsbf.mark(keys(0, 10))
        path = dsbf._logs.path(1)
    content = bytearray(path.read_bytes())
    content[8] = 1
    path.write_bytes(content)
    with pytest.raises(FormatMismatch, match="version is 1 instead of 2"):
        Dsbf.open(tmp_path / "d", replace(SMALL, leaf_kind=BLOCKED))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"leaf_kind": "round"}, "leaf_kind is 'round'; it must be one of classic, blocked"),
        ({"leaf_kind": "blocked", "leaf_bits": 256}, "leaf_bits is 256; blocked leaves have 512 or more"),
    ],
)
def test_impossible_kinds_of_leaves_are_refused(change: dict[str, Any], message: str) -> None:
    """The message names the number."""
    with pytest.raises(BadParameters, match=message):
        replace(SMALL, **change)


def test_elements_go_the_way_of_their_keys(tmp_path: Path) -> None:
    """A caller that has the fingerprints already gets the same answers without hashing again."""
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf, Dsbf.open(tmp_path / "e", SMALL) as other:
        batch = keys(0, 60) + keys(0, 10)
        dsbf.mark(batch)
        other.mark_elements(fingerprints(batch), first_of_each(batch))
        dsbf.mark([])
        asked = keys(30, 120)
        assert dsbf.unseen(asked).tolist() == other.unseen_elements(fingerprints(asked)).tolist()
        assert len(dsbf) == len(other) == 60
        other.check()


def test_leaves_have_two_places(tmp_path: Path) -> None:
    """Any other name is refused, before anything is made."""
    with pytest.raises(BadParameters, match=r"^leaves is 'disk'; it must be one of memory, mapped$"):
        Dsbf.open(tmp_path / "d", SMALL, leaves="disk")
    assert not (tmp_path / "d").exists()


def test_a_closed_filter_says_so(tmp_path: Path) -> None:
    """Every use after `close` is refused."""
    dsbf = Dsbf.open(tmp_path / "d", SMALL)
    dsbf.close()
    for use in (dsbf.sync, dsbf.check, dsbf.statistics, lambda: dsbf.mark([b"a"])):
        with pytest.raises(FilterClosed):
            use()


def test_the_default_shape_is_for_ten_million(tmp_path: Path) -> None:
    """Without parameters: 18 leaves of 1 MiB."""
    with Dsbf.open(tmp_path / "d") as dsbf:
        shown = dsbf.statistics()
    assert (shown.leaves, shown.memory_bytes, shown.mean_rate) == (18, 18 << 20, 0)
