import mmap
import os
import sys
from pathlib import Path

import pytest

from anabranch.dedup.errors import FormatMismatch, StoreFull
from anabranch.dedup.leaves import room as rooms
from anabranch.dedup.leaves.room import HEADER_BYTES, FileRoom, MemoryRoom, header, require_header


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "BITS"


def file_room(path: Path, size: int) -> FileRoom:
    room = FileRoom(path, 64, 3)
    room.begin()
    room.extend(size)
    return room


@pytest.mark.parametrize("can_move", [True, False])
def test_memory_grows_and_keeps_its_bytes(monkeypatch: pytest.MonkeyPatch, can_move: bool) -> None:
    """By moving the map where the kernel can, else by a copy; new bytes are 0."""
    if can_move and sys.platform != "linux":
        pytest.skip("this system does not move maps")
    monkeypatch.setattr(rooms, "_CAN_MOVE", can_move)
    room = MemoryRoom()
    for size in (8, 24, 3 * mmap.PAGESIZE, 1 << 20):
        old = room.data.size
        room.extend(size)
        assert room.data.size == size
        assert (room.data[:old] == 7).all()
        assert not room.data[old:].any()
        room.data[:] = 7
        room.secure(0, size)
    room.close()
    room.close()
    assert room.data.size == 0


def test_memory_grows_while_somebody_holds_an_array_over_it() -> None:
    """As the traceback of an error does that is kept: the bytes are copied then, since such a map cannot move."""
    room = MemoryRoom()
    room.extend(8)
    room.data[:] = 7
    held = room.data
    room.extend(1 << 20)
    assert room.data[:9].tolist() == [7] * 8 + [0]
    assert held.tolist() == [7] * 8


def test_a_file_grows_and_keeps_its_bytes(path: Path) -> None:
    """What is set in the map is in the file, after the header."""
    room = file_room(path, 8)
    room.secure(0, 8)
    room.data[:] = 7
    room.extend(3 * mmap.PAGESIZE)
    assert room.data[:8].tolist() == [7] * 8
    assert not room.data[8:].any()
    room.close()
    room.close()
    assert path.read_bytes()[HEADER_BYTES:].startswith(bytes([7] * 8 + [0]))
    again = FileRoom(path, 64, 3)
    again.resume(3 * mmap.PAGESIZE)
    assert again.data[:9].tolist() == [7] * 8 + [0]


def test_a_new_file_forgets_the_old_one(path: Path) -> None:
    """Nothing of an earlier filter's bits is left."""
    room = file_room(path, 64)
    room.data[:] = 7
    room.close()
    again = file_room(path, 64)
    assert not again.data.any()
    again.begin()
    assert again.data.size == 0


def test_only_a_secured_part_has_blocks(path: Path) -> None:
    """The file is sparse until a slot is taken; then its blocks are there before a bit is set."""
    room = file_room(path, 1 << 24)
    before = path.stat().st_blocks
    room.secure(1 << 20, 1 << 20)
    assert before * 512 <= 1 << 16
    assert path.stat().st_blocks * 512 >= 1 << 20


def test_a_full_disk_is_said_when_a_part_is_secured(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names the file, no SIGBUS later."""

    def full(*_: object) -> None:
        raise OSError(28, "full")

    room = file_room(path, 4096)
    monkeypatch.setattr("anabranch.dedup.smm.pagetable._allocate", full)
    with pytest.raises(StoreFull, match="BITS"):
        room.secure(0, 4096)


def test_a_stamp_follows_the_bits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits are durable before the header says whose they are, and the header after that."""
    room, order = file_room(path, 64), []
    real_sync, real_write = os.fdatasync, os.pwrite
    monkeypatch.setattr(os, "fdatasync", lambda fd: (order.append("sync"), real_sync(fd))[1])
    monkeypatch.setattr(os, "pwrite", lambda *args: (order.append("write"), real_write(*args))[1])
    room.stamp(b"s" * 16)
    assert order == ["sync", "write", "sync"]
    with path.open("rb") as file:
        require_header(path, file.fileno(), header(3, 64, b"s" * 16))
        for other in (header(4, 64, b"s" * 16), header(3, 128, b"s" * 16), header(3, 64, b"t" * 16)):
            with pytest.raises(FormatMismatch, match="BITS is another"):
                require_header(path, file.fileno(), other)
