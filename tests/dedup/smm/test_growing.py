"""Addresses in a compact form, then in mapped files, and known at every moment in between, whatever happens."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup import FilterClosed, FilterInUse, FormatMismatch, InvariantBroken, Smm, StoreFull
from anabranch.dedup.smm import bitfiles
from anabranch.dedup.smm.growing import ADDRESSES_FILE, COMPACT_KEYS, MOVED_AT_ONCE, AddressTable, GrowingBits

LEVELS = (1, 1)
LIMIT = 100


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.dedup.smm.store.GrowingBits", partial(GrowingBits, limit=LIMIT))


def opened(folder: Path, levels: tuple[int, ...] = LEVELS) -> Smm:
    return Smm.open(folder, "crc32", levels, alone=True)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if len(path.name) == 2}


def grow(store: Smm, start: int = 0) -> int:
    """Set addresses, ten a call, until the mapped files answer; how many are set."""
    while store.statistics().is_compact:
        store.set(np.arange(start, start + 10, dtype=np.int64))
        start += 10
    return start


def test_a_small_store_is_one_small_file(tmp_path: Path) -> None:
    """No file of bits is made; the addresses outlive the process."""
    folder = tmp_path / "s"
    with Smm.open(folder, alone=True) as store:
        store.mark([b"123456789"])  # CRC-32 CBF43926
        store.mark_one(b"another")
    assert files_of(folder) == set()
    assert sum(path.stat().st_blocks * 512 for path in folder.iterdir()) < 200_000
    assert (folder / ADDRESSES_FILE).read_bytes()[16:24] == 0xCBF43926.to_bytes(8, "little")
    with Smm.open(folder, alone=True) as store:
        assert store.unseen([b"123456789", b"another", b"new"]).tolist() == [False, False, True]
        shown = store.statistics()
        assert (shown.bits_set, shown.files_used, shown.bytes_touched, shown.is_compact) == (2, 2, 32, True)
        store.check()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "set_one", "add", "sync", "reopen", "crash"]),
            st.lists(st.integers(0, (1 << 16) - 1), max_size=60),
        ),
        max_size=25,
    )
)
def test_the_store_is_a_set_in_every_form(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]]
) -> None:
    """Against a Python set. A crash is a copy of the folder after a sync; marks after the sync may be there or not."""
    folder, copies = tmp_path_factory.mktemp("growing") / "s", 0
    store, model = opened(folder), set[int]()
    for action, addresses in steps:
        asked = [*addresses, *list(model)[:5]]
        assert store.are_clear(numbers(*asked)).tolist() == [address not in model for address in asked]
        if action == "set":
            store.set(numbers(*addresses))
            model |= set(addresses)
        elif action == "set_one" and addresses:
            store._bits.set_one(addresses[0])
            model.add(addresses[0])
            assert not store._bits.is_clear(addresses[0])
        elif action == "add":
            expected = [
                address not in model and address not in addresses[:place] for place, address in enumerate(addresses)
            ]
            assert store._bits.test_and_set(numbers(*addresses)).tolist() == expected
            model |= set(addresses)
        elif action == "sync":
            store.sync()
        elif action == "crash":
            store.sync()
            copies += 1
            shutil.copytree(folder, folder.with_name(str(copies)))
            store.close()
            folder = folder.with_name(str(copies))
            store = opened(folder)
        elif action == "reopen":
            store.close()
            store = opened(folder)
        assert store.bits_set == len(model)
    store.check()
    store.close()
    shutil.rmtree(folder.parent)


def test_a_store_that_grows_moves_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call pays for all that came before; then the file of the compact form goes."""
    moved = list[int]()
    whole = bitfiles.BitFiles.set
    monkeypatch.setattr(bitfiles.BitFiles, "set", lambda self, some: (moved.append(len(some)), whole(self, some))[1])
    folder = tmp_path / "s"
    store = opened(folder)
    count = grow(store)
    assert len(moved) > 2
    assert max(moved) <= MOVED_AT_ONCE + 20
    assert (folder / ADDRESSES_FILE).exists()
    store.sync()
    assert not (folder / ADDRESSES_FILE).exists()
    assert len(files_of(folder)) == 256
    assert not store.are_clear(np.arange(count)).any()
    assert store.bits_set == count
    store.close()
    with opened(folder) as store:
        assert store.bits_set == count
        assert not store.statistics().is_compact
        store.check()


def test_a_large_batch_goes_to_the_files_at_once(tmp_path: Path) -> None:
    """A stream of millions of keys is no small store for long."""
    with Smm.open(tmp_path / "s", alone=True) as store:
        store.set(np.arange(0, 1 << 24, 1 << 8, dtype=np.int64))
        assert not store.statistics().is_compact
        assert store.bits_set == 1 << 16 == COMPACT_KEYS


def test_a_full_disk_while_it_grows_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call sets no bit and may be repeated; what was set before stays known."""
    store = opened(tmp_path / "s")
    store.set(np.arange(LIMIT))

    def full(*_: object) -> int:
        raise StoreFull(28, "full", "")

    with monkeypatch.context() as patch:
        patch.setattr(bitfiles, "allocate_pages", full)
        with pytest.raises(StoreFull):
            store.set(np.arange(LIMIT, LIMIT + 10))
    assert store.are_clear(np.arange(LIMIT + 10)).tolist() == [False] * LIMIT + [True] * 10
    store.set(np.arange(LIMIT, LIMIT + 10))
    count = grow(store, LIMIT + 10)
    assert not store.are_clear(np.arange(count)).any()
    store.close()


def test_a_kill_between_the_last_move_and_its_sync_keeps_what_was_synced(tmp_path: Path) -> None:
    """The file of the compact form is the truth until the mapped files are durable."""
    folder = tmp_path / "s"
    store = opened(folder)
    store.set(np.arange(50))
    store.sync()
    grow(store, 50)
    shutil.copytree(folder, tmp_path / "killed")
    store.close()
    with opened(tmp_path / "killed") as store:
        assert store.statistics().is_compact
        assert not store.are_clear(np.arange(50)).any()
        count = grow(store, 1000)
        assert not store.are_clear(np.arange(1000, count)).any()
        assert not store.are_clear(np.arange(50)).any()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """A changed byte, a cut, and an address beyond the end of the store."""
    folder = tmp_path / "s"
    with opened(folder) as store:
        store.set(np.arange(10))
    path = folder / ADDRESSES_FILE
    whole = path.read_bytes()
    for text in (b"", whole[:-1], whole[:-8], b"x" + whole[1:], whole[:30] + b"\xff" + whole[31:]):
        path.write_bytes(text)
        with pytest.raises(FormatMismatch, match="ADDRESSES is damaged"):
            opened(folder)
    path.write_bytes(whole)
    with opened(folder) as store:
        store.set(numbers(1 << 16))
    with pytest.raises(FormatMismatch, match="beyond the end"):
        opened(folder)


def test_a_check_compares_the_file_with_the_memory(tmp_path: Path) -> None:
    """Addresses in the file that were never set are an error."""
    with opened(tmp_path / "s") as store, opened(tmp_path / "other") as other:
        store.set(np.arange(10))
        other.set(np.arange(20))
        other.sync()
        store.check()
        shutil.copy(tmp_path / "other" / ADDRESSES_FILE, tmp_path / "s" / ADDRESSES_FILE)
        with pytest.raises(InvariantBroken, match="never set"):
            store.check()


def test_a_compact_store_is_held_alone(tmp_path: Path) -> None:
    """Two that write one file would lose each other's addresses."""
    store = opened(tmp_path / "s")
    for alone in (True, False):
        with pytest.raises(FilterInUse):
            Smm.open(tmp_path / "s", "crc32", LEVELS, alone=alone)
    store.close()
    store.close()
    for call in (store.sync, store.check, lambda: store.are_clear(numbers(1)), lambda: store.set(numbers(1))):
        with pytest.raises(FilterClosed):
            call()
    opened(tmp_path / "s").close()


def test_a_store_of_three_levels_grows_too(tmp_path: Path) -> None:
    """Its files are made one by one, and are not counted."""
    with opened(tmp_path / "s", (1, 1, 1)) as store:
        assert store.statistics().files_used == 0
        count = grow(store)
        assert not store.are_clear(np.arange(count)).any()
        assert store.statistics().files_used is None


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    """Its copy is older than the file: the parent's addresses stay."""
    folder = tmp_path / "s"
    store = opened(folder)
    store.set(np.arange(1))
    store.sync()
    store.set(np.arange(11))
    ours, theirs = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.read(ours[0], 1)
        with suppress(BaseException):
            store.sync()
        with suppress(BaseException):
            store.close()
        os.write(theirs[1], b"x")
        os._exit(0)
    store.set(np.arange(20))
    store.sync()
    os.write(ours[1], b"x")
    os.read(theirs[0], 1)
    os.waitpid(child, 0)
    store.close()
    for end in (*ours, *theirs):
        os.close(end)
    with opened(folder) as again:
        assert not again.are_clear(np.arange(20)).any()


def test_known_addresses_do_not_make_a_store_grow(tmp_path: Path) -> None:
    """A crawl that was killed marks again what its filter has."""
    folder = tmp_path / "s"
    with opened(folder) as store:
        store.set(np.arange(LIMIT))
        for _ in range(5):
            store.set(np.arange(LIMIT))
        assert store.statistics().is_compact
        assert files_of(folder) == set()


def test_an_earlier_program_refuses_the_folder(tmp_path: Path) -> None:
    """It would take a compact store, or one that has half moved, for an empty one: its FORMAT has another version."""
    with opened(tmp_path / "s"):
        pass
    with Smm.open(tmp_path / "shared", levels=LEVELS):
        pass
    versions = [json.loads((tmp_path / name / "FORMAT").read_text())["version"] for name in ("s", "shared")]
    assert versions == [3, 2]
    with Smm.open(tmp_path / "shared", levels=LEVELS, alone=True) as store:
        assert not store.statistics().is_compact


def test_a_damaged_ledger_is_refused_before_it_is_needed(tmp_path: Path) -> None:
    """And not when the store has grown, in the middle of a crawl."""
    with opened(tmp_path / "s"):
        pass
    path = tmp_path / "s" / "PAGES"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(FormatMismatch, match="PAGES is damaged"):
        opened(tmp_path / "s")
    path.unlink()
    with pytest.raises(FormatMismatch, match="PAGES is missing: the store is damaged"):
        opened(tmp_path / "s")


def test_what_is_touched_counts_the_files_that_fill(tmp_path: Path) -> None:
    """While the addresses move they take room in both places."""
    with opened(tmp_path / "s") as store:
        store.set(np.arange(LIMIT))
        before = store.statistics().bytes_touched
        store.set(np.arange(LIMIT, LIMIT + 5))
        now = store.statistics()
        assert now.is_compact
        assert before == 16 + 8 * LIMIT
        assert now.bytes_touched > before + 8 * 5


#: Addresses that all have one of the last two of the 128 places of a table.
CROWDED = [address for address in range(5000) if AddressTable(10)._place(address) >= 126]


@given(st.lists(st.one_of(st.integers(0, 40), st.integers(0, (1 << 56) - 1), st.sampled_from(CROWDED)), max_size=40))
def test_a_table_of_addresses_is_a_set(addresses: list[int]) -> None:
    """Against a set, one by one and as a batch, also where many addresses have one place and at the table's end."""
    table, model = AddressTable(10), set[int]()
    for address in addresses:
        if address not in model:
            table.add([address])
            model.add(address)
        asked = [*addresses, address + 1, 0]
        missing = table.are_missing(np.array(asked, dtype=np.int64)).tolist()
        assert missing == [each not in model for each in asked]
        assert [each not in table for each in asked] == missing
    assert table.count == len(model)
    assert table.are_missing(np.zeros(0, dtype=np.int64)).tolist() == []
