import errno
import json
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.errors import BadParameters, FilterClosed, FilterInUse, FormatMismatch, InvariantBroken, StoreFull
from anabranch.dedup.files import mapped
from anabranch.dedup.smm import bitfiles, sharing
from anabranch.dedup.smm.store import Smm

SMALL = (1, 1)


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


def test_a_new_store_is_256_sparse_files_of_2_mib(tmp_path: Path) -> None:
    """The default store has full-size files `00` to `FF` without blocks for their bits."""
    Smm.open(tmp_path / "s").close()
    files = sorted(path for path in (tmp_path / "s").iterdir() if len(path.name) == 2)
    assert [path.name for path in files] == [f"{i:02X}" for i in range(256)]
    assert {path.stat().st_size for path in files} == {2 << 20}
    assert sum(path.stat().st_blocks for path in files) == 0


def test_a_key_is_the_bit_at_its_signature(tmp_path: Path) -> None:
    """The published addressing: first byte the file, other bytes the bit, most significant bit first."""
    with Smm.open(tmp_path / "s") as store:
        store.mark([b"123456789"])  # CRC-32 CBF43926
    content = (tmp_path / "s" / "CB").read_bytes()
    assert content[0xF43926 >> 3] == 128 >> (0xF43926 & 7)
    assert sum(content) == content[0xF43926 >> 3]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["mark", "add", "sync", "reopen"]), st.lists(st.integers(0, 400), max_size=20)),
        max_size=12,
    )
)
def test_the_store_is_the_set_of_its_signatures(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]]
) -> None:
    """Against a Python set of 16-bit signatures as the model, through marks, adds and reopenings."""
    folder = tmp_path_factory.mktemp("smm") / "s"
    store, model = Smm.open(folder, levels=SMALL), set[int]()
    for action, numbers in steps:
        batch = [b"%d" % number for number in numbers]
        signatures = [zlib.crc32(key) >> 16 for key in batch]
        assert store.unseen(batch).tolist() == [signature not in model for signature in signatures]
        if action == "mark":
            store.mark(batch)
            model |= set(signatures)
        elif action == "add":
            expected = []
            for signature in signatures:
                expected.append(signature not in model)
                model.add(signature)
            assert store.add(batch).tolist() == expected
        elif action == "sync":
            store.sync()
        else:
            store.close()
            store = Smm.open(folder, levels=SMALL)
        assert store.bits_set == len(model)
    store.check()
    store.close()
    shutil.rmtree(folder.parent)


def test_two_processes_maps_see_one_set(tmp_path: Path) -> None:
    """A key marked through one map is known at once through another map of the same files."""
    with Smm.open(tmp_path / "s") as one, Smm.open(tmp_path / "s") as other:
        one.mark([b"a"])
        assert other.unseen([b"a", b"b"]).tolist() == [False, True]


def test_the_fill_is_the_share_of_set_bits(tmp_path: Path) -> None:
    """1,000 keys in 2^16 bits: their distinct signatures."""
    with Smm.open(tmp_path / "s", levels=SMALL) as store:
        store.mark(keys(0, 1000))
        distinct = len({zlib.crc32(key) >> 16 for key in keys(0, 1000)})
        assert store.fill == distinct / 65536
        assert repr(store) == f"<Smm crc32 (1, 1) {distinct} of 65536 bits set>"
    assert repr(store) == "<Smm crc32 (1, 1) closed>"


@pytest.mark.parametrize("signature", ["md5", "sha1", "xxh3-64", "xxhash:xxh3_128_digest"])
@pytest.mark.parametrize("levels", [(1, 2), (1, 1, 3), (1, 1, 1, 3), (2, 2, 2), (3, 1)])
def test_any_signature_and_any_levels_make_a_store(tmp_path: Path, signature: str, levels: tuple[int, ...]) -> None:
    """Keys are known after the mark, alone and in a batch, and after reopening; other keys are not."""
    with Smm.open(tmp_path / "s", signature, levels) as store:
        assert store.add(keys(0, 20)).all()
        store.mark_one(b"one")
        assert store.bits == 256 ** sum(levels)
    with Smm.open(tmp_path / "s", signature, levels) as store:
        assert not store.unseen(keys(0, 20)).any()
        assert not store.is_unseen(b"one")
        assert store.unseen(keys(20, 40)).all()
        assert store.bits_set == 21
        store.check()


def test_three_levels_store_bits_below_folders(tmp_path: Path) -> None:
    """The published MD5 of "abc" begins 900150983CD2: folder 90, file 01, bit 0x50983C."""
    with Smm.open(tmp_path / "s", "md5", (1, 1, 3)) as store:
        store.mark([b"abc"])
    content = (tmp_path / "s" / "90" / "01").read_bytes()
    assert len(content) == 2 << 20
    assert content[0x50983C >> 3] == 128 >> (0x50983C & 7)


def test_addresses_stand_for_their_keys(tmp_path: Path) -> None:
    """Asking and marking by addresses hashes each key once and gives the same answers."""
    with Smm.open(tmp_path / "s", levels=SMALL) as store:
        addresses = store.addresses(keys(0, 10))
        assert store.are_clear(addresses).all()
        store.set(addresses[:5])
        assert store.unseen(keys(0, 10)).tolist() == store.are_clear(addresses).tolist() == [False] * 5 + [True] * 5


def test_a_store_held_alone_is_no_one_elses(tmp_path: Path) -> None:
    """Others are refused while it is open, and it is refused while others have it."""
    with Smm.open(tmp_path / "s", levels=SMALL, alone=True) as store:
        assert store.add([b"a", b"a"]).tolist() == [True, False]
        store.mark_one(b"b")
        with pytest.raises(FilterInUse, match="open elsewhere"):
            Smm.open(tmp_path / "s", levels=SMALL)
        store.check()
    with (
        Smm.open(tmp_path / "s", levels=SMALL) as store,
        pytest.raises(FilterInUse, match="open elsewhere"),
    ):
        Smm.open(tmp_path / "s", levels=SMALL, alone=True)


def test_a_signature_that_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORMAT records what the signature made of a sample: the name alone does not say that the function is the same."""
    module = tmp_path / "signature_that_changes.py"
    module.write_text("def digest(key): return key[-2:].rjust(2)\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = "signature_that_changes:digest"
    Smm.open(tmp_path / "s", name, SMALL).close()
    monkeypatch.setattr(f"{name.replace(':', '.')}", lambda key: key[:2].rjust(2))
    with pytest.raises(FormatMismatch, match="signature_of_123456789 is '3839' in the folder, '3132' here"):
        Smm.open(tmp_path / "s", name, SMALL)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"levels": (1, 2)}, r"levels is \[1, 1\] in the folder, \[1, 2\] here"),
        ({"signature": "md5"}, "signature is 'crc32' in the folder, 'md5' here"),
        ({"signature": "md6"}, "signature 'md6' is unknown"),
        ({"levels": (1, 1, 1)}, r"levels is \[1, 1\] in the folder, \[1, 1, 1\] here"),
        ({"levels": (2, 3)}, "ask for more than the 4 bytes of crc32"),
    ],
)
def test_other_parameters_are_refused(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    """A store opens with the parameters that it was made with, and with none that cannot be."""
    Smm.open(tmp_path / "s", levels=SMALL).close()
    with pytest.raises((FormatMismatch, BadParameters), match=message):
        Smm.open(tmp_path / "s", **changed)


def test_a_store_interrupted_in_the_making_is_finished(tmp_path: Path) -> None:
    """Files missing before the store was complete are made; afterwards they are damage."""
    Smm.open(tmp_path / "s", levels=SMALL).close()
    record = json.loads((tmp_path / "s" / "FORMAT").read_text())
    (tmp_path / "s" / "FORMAT").write_text(json.dumps(record | {"complete": False}))
    (tmp_path / "s" / "7F").unlink()
    (tmp_path / "s" / "PAGES").unlink()
    Smm.open(tmp_path / "s", levels=SMALL).close()
    (tmp_path / "s" / "7F").unlink()
    with pytest.raises(FormatMismatch, match="7F is missing"):
        Smm.open(tmp_path / "s", levels=SMALL)


@pytest.mark.parametrize("levels", [SMALL, (1, 1, 1)])
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("PAGES", b"?", "PAGES has 1 bytes instead of"),
        ("PAGES", b"", "PAGES is damaged"),
        ("PAGES", None, "PAGES is missing"),
        ("FORMAT", b"?", "FORMAT is damaged: it is not JSON"),
        ("FORMAT", b'{"magic": "foreign"}', "FORMAT is not the file of an anabranch smm"),
        ("FORMAT", b'{"magic": "anabranch smm", "version": 1}', "FORMAT has version 1, this program reads 2"),
        ("FORMAT", None, "is not empty and has no FORMAT file"),
    ],
)
def test_damaged_and_foreign_files_are_refused(
    tmp_path: Path, levels: tuple[int, ...], name: str, text: bytes | None, message: str
) -> None:
    """Whatever is cut, gone or another's is named in one line, and the store can be opened again once it is mended."""
    Smm.open(tmp_path / "s", levels=levels).close()
    whole = (tmp_path / "s" / name).read_bytes()
    if text is None:
        (tmp_path / "s" / name).unlink()
    else:
        (tmp_path / "s" / name).write_bytes(text)
    with pytest.raises(FormatMismatch, match=message):
        Smm.open(tmp_path / "s", levels=levels)
    (tmp_path / "s" / name).write_bytes(whole)
    Smm.open(tmp_path / "s", levels=levels, alone=True).close()


def test_a_cut_bit_file_is_refused(tmp_path: Path) -> None:
    """Both sizes are named."""
    Smm.open(tmp_path / "s", levels=SMALL).close()
    (tmp_path / "s" / "0B").write_bytes(b"?")
    with pytest.raises(FormatMismatch, match="0B has 1 bytes instead of 32"):
        Smm.open(tmp_path / "s", levels=SMALL)


def test_an_emptied_bit_file_is_refused_after_a_clean_end(tmp_path: Path) -> None:
    """If it had pages; one without any may be empty, as a power loss while the store was made leaves it."""
    with Smm.open(tmp_path / "s", levels=SMALL) as store:
        store.mark([b"123456789"])  # CRC-32 CBF43926
    content = (tmp_path / "s" / "CB").read_bytes()
    (tmp_path / "s" / "0B").write_bytes(b"")
    Smm.open(tmp_path / "s", levels=SMALL).close()
    (tmp_path / "s" / "CB").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(
            FormatMismatch, match=r"CB is shorter than it was .*: it is damaged; restore it from a copy"
        ):
            Smm.open(tmp_path / "s", levels=SMALL)
        assert (tmp_path / "s" / "CB").stat().st_size == 0
    (tmp_path / "s" / "CB").write_bytes(content)
    with Smm.open(tmp_path / "s", levels=SMALL) as store:
        assert not store.is_unseen(b"123456789")
        store.check()


def test_a_bit_file_that_a_power_loss_left_empty_is_begun_again(tmp_path: Path) -> None:
    """The ledger may have reached the disk with a page that the file never got; it held no synced bit."""
    store = Smm.open(tmp_path / "s", levels=SMALL)
    store.mark([b"123456789"])
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    store.close()
    (tmp_path / "copy" / "CB").write_bytes(b"")
    with Smm.open(tmp_path / "copy", levels=SMALL) as copy:
        assert copy.is_unseen(b"123456789")
        copy.check()
        assert copy.bits_set == 0


def test_a_full_disk_sets_no_bit_and_the_batch_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are allocated before bits are set, so a batch that does not fit changes nothing."""
    store = Smm.open(tmp_path / "s")
    allocate, left = mapped._allocate, list(range(40))

    def limited(fd: int, offset: int, length: int) -> None:
        if not left:
            raise OSError(errno.ENOSPC, "full")
        left.pop()
        allocate(fd, offset, length)

    with monkeypatch.context() as patch:
        patch.setattr(mapped, "_allocate", limited)
        for _ in range(2):
            with pytest.raises(StoreFull):
                store.mark(keys(0, 100))
        assert store.unseen(keys(0, 100)).all()
    store.mark(keys(0, 100))
    assert not store.unseen(keys(0, 100)).any()
    store.check()
    store.close()


def test_a_page_is_allocated_once_in_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second bit of a page costs no call; a file with all its blocks costs none after reopening either."""
    calls: list[int] = []
    allocate = mapped._allocate
    monkeypatch.setattr(mapped, "_allocate", lambda *args: (calls.append(1), allocate(*args)))
    with Smm.open(tmp_path / "s", levels=SMALL) as store:
        store.mark(keys(0, 3000))
        assert len(calls) == 256
    with Smm.open(tmp_path / "s", levels=SMALL) as store:
        store.mark(keys(3000, 4000))
        assert len(calls) == 256


def test_a_sync_covers_the_touched_files_and_repeats_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file touched since the last sync is synced once, then the page table; a failed sync forgets none."""
    store = Smm.open(tmp_path / "s")
    store.mark([b"123456789"])
    synced: list[str] = []

    def sync(path: Path) -> None:
        synced.append(path.name)
        if len(synced) == 1:
            raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(bitfiles, "sync_path", sync)
        patch.setattr(sharing, "sync_path", sync)
        with pytest.raises(OSError, match="broken"):
            store.sync()
        store.sync()
        store.sync()
    assert synced == ["CB", "CB", "PAGES"]
    store.close()


def test_after_a_crash_the_count_is_corrected_by_a_check(tmp_path: Path) -> None:
    """After the death of a writer a store counts its bits again on demand, once."""
    store = Smm.open(tmp_path / "s", levels=SMALL)
    store.mark(keys(0, 50))
    store._bits._ledger._header[3] = 3
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    with pytest.raises(InvariantBroken, match="50 bits are set, 3 were counted"):
        store.check()
    with Smm.open(tmp_path / "copy", levels=SMALL) as copy:
        copy.check()
        copy.check()
        assert copy.bits_set == 50
    store.close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Every use after `close` is refused, and closing twice is allowed."""
    store = Smm.open(tmp_path / "s", levels=SMALL)
    store.close()
    store.close()
    for use in (store.sync, store.check, lambda: store.mark([b"a"]), lambda: store.add([b"a"])):
        with pytest.raises(FilterClosed):
            use()
    with pytest.raises(FilterClosed):
        store.unseen([b"a"])


def test_an_empty_batch_changes_nothing(tmp_path: Path) -> None:
    """No keys, no answers."""
    with Smm.open(tmp_path / "s", levels=SMALL) as store:
        store.mark([])
        assert store.add([]).tolist() == store.unseen([]).tolist() == []
        assert store.bits_set == 0
