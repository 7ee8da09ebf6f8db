import errno
import os
from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.errors import StoreFull
from anabranch.dedup.fingerprint import fingerprints
from anabranch.dedup.leaves.image import PLACES, Image
from anabranch.dedup.leaves.room import HEADER_BYTES

SHAPE = DsbfParameters(expected=0, false_positive=0.01, leaf_bits=1024)
STAMP = bytes(range(16))
KEYS = fingerprints([b"%d" % i for i in range(40)])


def image(size: int, checksum: int | None, stamp: bytes = STAMP) -> Image:
    return Image(stamp=stamp, size=size, checksum=checksum, slots=[-1, 0], counts=[0, 5], loads=[0, 0], lengths={1: 64})


def kept(folder: Path, where: str) -> Image:
    """The image of a folder whose slot 1 holds the keys."""
    place = PLACES[where](folder, SHAPE)
    leaves = place.fresh(3)
    slots = [leaves.take() for _ in range(2)]
    leaves.fill(slots[1], KEYS)
    checksum, size = place.keep(STAMP), leaves.memory_bytes
    place.close()
    place.close()
    return image(size, checksum)


@pytest.mark.parametrize("there", PLACES)
@pytest.mark.parametrize("here", PLACES)
def test_bits_are_kept_from_either_place_for_either(tmp_path: Path, there: str, here: str) -> None:
    """The file is the same, whoever made it and whoever opens it."""
    place = PLACES[here](tmp_path, SHAPE)
    found = place.restored(kept(tmp_path, there))
    assert found is not None
    found.claim([0, 1])
    assert found.agrees(0, KEYS[:0])
    assert found.agrees(1, KEYS)
    assert not found.unseen(np.ones(40, dtype=np.int64), KEYS).any()
    assert found.take() == 2
    place.close()


@pytest.mark.parametrize("here", PLACES)
def test_a_file_that_is_not_the_images_is_not_taken(tmp_path: Path, here: str) -> None:
    """Another stamp, another shape, another size, garbage, or none at all."""
    true, path = kept(tmp_path, "memory"), tmp_path / "BITS"
    place = PLACES[here]
    assert place(tmp_path, SHAPE).restored(image(true.size, true.checksum, stamp=bytes(16))) is None
    assert place(tmp_path, SHAPE).restored(image(true.size - 128, true.checksum)) is None
    assert place(tmp_path, SHAPE).restored(image(0, true.checksum)) is None
    assert place(tmp_path, SHAPE).restored(image(-128, true.checksum)) is None
    other = DsbfParameters(expected=0, false_positive=0.01, leaf_bits=128)
    assert place(tmp_path, other).restored(true) is None
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"\0", b"", b"x" * len(content)):
        path.write_bytes(wrong)
        assert place(tmp_path, SHAPE).restored(true) is None
    path.unlink()
    assert place(tmp_path, SHAPE).restored(true) is None


def test_what_is_read_must_have_its_checksum(tmp_path: Path) -> None:
    """One bit that turned over is found."""
    true, path = kept(tmp_path, "memory"), tmp_path / "BITS"
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 200] ^= 1
    path.write_bytes(content)
    assert PLACES["memory"](tmp_path, SHAPE).restored(true) is None


def test_large_files_are_kept_and_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum is that of the whole."""
    whole = kept(tmp_path, "memory")
    monkeypatch.setattr("anabranch.dedup.leaves.image._AT_ONCE", 100)
    assert kept(tmp_path, "memory").checksum == whole.checksum
    found = PLACES["memory"](tmp_path, SHAPE).restored(whole)
    assert found is not None
    assert found.agrees(1, KEYS)


def test_a_file_that_ends_while_it_is_read_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits that were mapped have no checksum that would tell."""
    true, whole = kept(tmp_path, "mapped"), os.preadv
    assert true.checksum is None
    monkeypatch.setattr(os, "preadv", lambda fd, parts, offset: whole(fd, [parts[0][:-1]], offset))
    assert PLACES["memory"](tmp_path, SHAPE).restored(true) is None


def test_bits_that_cannot_be_written_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at the end: a clear error, and nothing half-written."""
    place = PLACES["memory"](tmp_path, SHAPE)
    place.fresh(3)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFull):
        place.keep(STAMP)
    assert list(tmp_path.iterdir()) == []


def test_a_record_gives_the_image_back() -> None:
    """Also through JSON, which makes lists of pairs."""
    for checksum in (None, 7):
        true = image(384, checksum)
        record = true.record() | {"lengths": [[1, 64]]}
        assert Image.of_record(record, 2) == true


@pytest.mark.parametrize(
    "damage",
    [
        {"stamp": None},
        {"stamp": "00"},
        {"stamp": "zz" * 16},
        {"size": "3"},
        {"checksum": "3"},
        {"slots": [0]},
        {"counts": [0, 0.5]},
        {"loads": [0, 0, 0]},
        {"loads": [0, 1 << 63]},
        {"slots": [0, -(10**30)]},
        {"lengths": [1, 2]},
        {"lengths": [[1, 2, 3]]},
        {"lengths": {}},
    ],
)
def test_a_record_that_is_none_gives_no_image(damage: dict[str, object]) -> None:
    """Then the logs are read, which is always right."""
    record = image(384, 7).record() | {"lengths": [[1, 64]]}
    assert Image.of_record(record, 2) is not None
    assert Image.of_record(record | damage, 2) is None
    assert Image.of_record({}, 2) is None
    assert Image.of_record(record, 3) is None
