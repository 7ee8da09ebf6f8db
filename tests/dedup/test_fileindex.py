from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.errors import BadParameters
from dedup.fileindex import FileIndex


def located(index: FileIndex, address: int) -> tuple[PurePosixPath, int]:
    """File and bit of an address, by the index's two numbers."""
    return index.name(address // index.file_bits), address % index.file_bits


def test_the_default_levels_make_256_files_of_2_mib() -> None:
    """Two levels of 1 and 3 bytes: `00` to `FF`, 2^24 bits each."""
    index = FileIndex((1, 3))
    names = [str(name) for name in index.names()]
    assert (names[0], names[10], names[-1], len(names)) == ("00", "0A", "FF", 256)
    assert index.file_bytes == 2 << 20
    assert list(index.folders()) == []


def test_the_leading_byte_names_the_file_and_the_rest_the_bit() -> None:
    """Most significant bytes first, upper-case hex."""
    assert located(FileIndex((1, 3)), 0xABCDEF01) == (PurePosixPath("AB"), 0xCDEF01)
    assert located(FileIndex((2, 2)), 0xABCDEF01) == (PurePosixPath("ABCD"), 0xEF01)


def test_levels_before_the_last_but_one_are_folders() -> None:
    """Three levels: folder, file, bit; four: folder in folder."""
    assert located(FileIndex((1, 1, 2)), 0x0A0BFFFF) == (PurePosixPath("0A/0B"), 0xFFFF)
    assert located(FileIndex((1, 1, 1, 1)), 0x0A0B0C0D) == (PurePosixPath("0A/0B/0C"), 0x0D)
    folders = [str(folder) for folder in FileIndex((1, 1, 1, 1)).folders()]
    assert folders[:2] + folders[255:258] == ["00", "01", "FF", "00/00", "00/01"]
    assert len(folders) == 256 + 65536


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4).filter(lambda levels: sum(levels) <= 7), st.data())
def test_addresses_and_bits_are_one_to_one(levels: list[int], data: st.DataObject) -> None:
    """File name and bit, put together again, are the address."""
    index = FileIndex(tuple(levels))
    address = data.draw(st.integers(0, 256**index.address_bytes - 1))
    name, bit = located(index, address)
    assert int("".join(name.parts), 16) * index.file_bits + bit == address


@pytest.mark.parametrize("levels", [(), (4,), (0, 3), (4, 4)])
def test_levels_that_make_no_store_are_refused(levels: tuple[int, ...]) -> None:
    """At least two levels of at least one byte, at most seven bytes together."""
    with pytest.raises(BadParameters, match="levels"):
        FileIndex(levels)
