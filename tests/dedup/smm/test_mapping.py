from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.errors import FormatMismatch, InvariantBroken, StoreFull
from anabranch.dedup.smm import bitfiles, mapping
from anabranch.dedup.smm.addresses import FileIndex
from anabranch.dedup.smm.bitfiles import BitFiles
from anabranch.dedup.smm.mapping import PageTable
from anabranch.dedup.smm.sharing import Sharing


def table(present: str) -> PageTable:
    return PageTable(np.array([page == "1" for page in present]))


def test_a_page_is_doubtful_until_it_is_allocated_here() -> None:
    """Presence is no proof; doubtful pages are named once and in order."""
    pages = table("10000000")
    assert pages.doubtful(np.array([7, 0, 3, 7])) == [0, 3, 7]
    pages.record([3, 7])
    assert pages.doubtful(np.array([7, 0, 3, 7])) == [0]
    assert np.flatnonzero(pages.present).tolist() == [0, 3, 7]


def test_present_pages_of_full_files_are_sure() -> None:
    """A file with all its blocks cannot fail; its pages without presence stay doubtful."""
    pages = table("0110")
    pages.trust(0, 2)
    assert pages.doubtful(np.arange(4)) == [0, 2, 3]


def test_all_pages_are_present_or_sure_when_the_last_one_is() -> None:
    """Each page counts once, however often it is recorded."""
    pages = table("110")
    pages.record([2])
    pages.record([2])
    pages.trust(0, 1)
    pages.trust(0, 1)
    assert (pages.all_present, pages.all_sure) == (False, False)
    pages.record([0, 1])
    assert (pages.all_present, pages.all_sure) == (True, True)
    assert table("11").all_present


def test_forgotten_pages_are_neither_present_nor_sure() -> None:
    """A place that gets another file starts anew."""
    pages = table("11")
    pages.record([0, 1])
    pages.forget(1, 2)
    assert (pages.all_present, pages.all_sure) == (False, False)
    assert pages.doubtful(np.array([0, 1])) == [1]
    assert pages.present.tolist() == [True, False]
    pages.record([1])
    assert pages.all_sure


INDEX = FileIndex((1, 1, 1))
LARGE = FileIndex((1, 1, 3))


ROOT = Path(__file__).resolve().parents[3]

DISK_FILLER = """
import sys
from pathlib import Path
from anabranch.dedup import Smm, StoreFull
folder = Path(sys.argv[1])
(folder / "ballast").write_bytes(bytes(200_000))
smm, done = Smm.open(folder / "s", "md5", (1, 1, 3)), 0
try:
    while True:
        smm.mark([b"%d" % i for i in range(done, done + 10)])
        done += 10
except StoreFull as error:
    print(error.errno)
keys = [b"%d" % i for i in range(done)]
assert done > 0 and not smm.unseen(keys).any()
assert smm.unseen([b"new %d" % i for i in range(3_000)]).all()
(folder / "ballast").unlink()
smm.mark([b"%d" % i for i in range(done + 10)])
assert not smm.unseen([b"%d" % i for i in range(done + 10)]).any()
smm.check()
smm.close()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s").mkdir()
    return tmp_path / "s"


def opened(folder: Path, index: FileIndex = INDEX) -> BitFiles:
    if not any(folder.iterdir()):
        mapping.create_files(folder, index)
    return BitFiles(folder, index, Sharing(folder))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_only_files_with_bits_are_made(folder: Path) -> None:
    """Asking makes nothing; one bit makes one file of full size below its folder, with one page of blocks."""
    store = opened(folder, LARGE)
    assert store.is_clear(0x0A0B000000)
    assert store.are_clear(np.array([0x0A0B000000, 0x0C0D000000])).all()
    assert files(folder) == ["PAGES"]
    store.set(np.array([0x0A0B000000]))
    assert files(folder) == ["0A", "0A/0B", "PAGES"]
    status = (folder / "0A/0B").stat()
    assert (status.st_size, status.st_blocks * 512) == (2 << 20, 1 << 14)
    store.close()


def test_maps_and_descriptors_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With places for three files, forty files later three are mapped, and no descriptor is left open."""
    monkeypatch.setattr(mapping, "_MOST_OPEN", 3)
    store = opened(folder)
    descriptors = len(list(Path("/dev/fd").iterdir()))
    store.test_and_set(np.arange(40) << 8)
    for number in range(40):
        assert not store.is_clear(number << 8)
    assert len(list(Path("/dev/fd").iterdir())) == descriptors
    assert Path("/proc/self/maps").read_text().count(f"{folder}/00/") == 3
    store.close()


def test_the_file_used_longest_ago_gives_its_place_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is asked for again and again stays mapped."""
    monkeypatch.setattr(mapping, "_MOST_OPEN", 2)
    store = opened(folder)
    store.set(np.arange(9) << 8)
    looked = list[str]()
    look = mapping._opened
    monkeypatch.setattr(mapping, "_opened", lambda path, create: looked.append(path.name) or look(path, create=create))
    for file in (1, 2, 1, 3, 1, 4, 1, 2):
        store.is_clear(file << 8)
    assert looked == ["01", "02", "03", "04", "02"]
    store.close()


def test_a_page_that_another_process_allocates_is_noticed(folder: Path) -> None:
    """A file remembered as missing, and a page remembered as a hole, are looked at again when there is more."""
    one, other = opened(folder, LARGE), opened(folder, LARGE)
    for address in (0x0A0B000000, 0x0A0B800000, 0x0A0B800001):
        assert one.is_clear(address)
        other.set_one(address)
        assert not one.is_clear(address)
        assert not one.are_clear(np.array([address]))[0]
        assert not one.test_and_set(np.array([address]))[0]
    assert one.bits_set == other.bits_set == 3
    one.close()
    other.close()


def test_files_that_share_a_counter_are_told_apart(folder: Path) -> None:
    """Files 1 and 4,097 have one counter; what happens to one costs the other a look, no more."""
    store = opened(folder)
    first, second = 1 << 8, 4097 << 8
    store.set_one(first)
    store.set_one(second)
    store.set_one(first + 1)
    assert not store.are_clear(np.array([first, first + 1, second])).any()
    assert store.is_clear(second + 1)
    store.close()


def test_a_damaged_file_is_named(folder: Path) -> None:
    """A cut file, a file in a folder's place and a folder in a file's; the rest of the store still answers."""
    store = opened(folder)
    store.set(np.array([0x010100, 0x020200]))
    store.close()
    (folder / "01/01").write_bytes(b"cut")
    (folder / "03").write_bytes(b"no folder")
    (folder / "04/04").mkdir(parents=True)
    store = opened(folder)
    for _ in range(2):
        with pytest.raises(FormatMismatch, match="01/01 has 3 bytes instead of 32"):
            store.is_clear(0x010100)
        with pytest.raises(FormatMismatch, match="03/03 is not a file"):
            store.set_one(0x030300)
        with pytest.raises(FormatMismatch, match="04/04 is not a file"):
            store.is_clear(0x040400)
        assert not store.is_clear(0x020200)
    with pytest.raises(FormatMismatch, match="01/01 has 3 bytes"):
        store.check()
    store.close()


def test_a_lost_file_is_found_by_the_check(folder: Path) -> None:
    """Its absence alone says nothing, the number of bits does; names that are none of ours are passed over."""
    store = opened(folder)
    store.set(np.array([0x010100, 0x020200]))
    (folder / "01" / "notes").touch()
    (folder / "0g").touch()
    store.check()
    store.close()
    (folder / "01/01").unlink()
    store = opened(folder)
    with pytest.raises(InvariantBroken, match="1 bits are set, 2 were counted"):
        store.check()
    store.close()


def test_no_room_for_a_name_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without room for the file itself is StoreFull, and the bit can be set once there is room."""
    store = opened(folder)

    def fail(*args: object, **options: object) -> None:
        raise OSError(28, "full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", fail)
        with pytest.raises(StoreFull):
            store.set_one(0x010100)
    assert store.is_clear(0x010100)
    store.set_one(0x010100)
    store.check()
    store.close()


def test_full_files_need_no_allocation_after_reopening(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with all its blocks is sure as soon as it is mapped."""
    store = opened(folder)
    store.set_one(0x010100)
    store.close()
    store, allocated = opened(folder), list[Path]()
    monkeypatch.setattr("anabranch.dedup.smm.bitfiles.allocate_pages", lambda path, *rest: allocated.append(path) or 1)
    store.set_one(0x010101)
    assert allocated == []
    store.close()


def test_a_full_disk_is_an_oserror_and_no_sigbus(tmp_path: Path) -> None:
    """On a file system of 1 MiB in memory the store fills it, says so, still answers, and goes on when there is room."""
    mounted = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=1m none "$0" && exec "$@"', str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here (unshare -Urm)")
    command = [*mounted, sys.executable, "-c", DISK_FILLER, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == errno.ENOSPC


def test_a_page_allocated_without_a_bit_is_looked_at_when_it_has_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves such a page behind; no counter changes for others when its first bit is set."""
    one, other = opened(folder, LARGE), opened(folder, LARGE)
    in_two_files = np.array([5, LARGE.file_bits + 5])
    allocate, left = bitfiles.allocate_pages, [1]

    def room_for_one(path: Path, offsets: list[int], length: int) -> int:
        if not left:
            raise StoreFull(errno.ENOSPC, "full")
        left.pop()
        return allocate(path, offsets, length)

    with monkeypatch.context() as patch:
        patch.setattr(bitfiles, "allocate_pages", room_for_one)
        with pytest.raises(StoreFull):
            one.test_and_set(in_two_files)
    assert other.are_clear(in_two_files).all()
    assert one.test_and_set(in_two_files).all()
    assert not other.test_and_set(in_two_files).any()
    one.close()
    other.close()
