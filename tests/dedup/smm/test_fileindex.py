from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.smm.fileindex import FileIndex, levels_for


def located(index: FileIndex, address: int) -> tuple[PurePosixPath, int]:
    """File and bit of an address, by the index's two numbers."""
    return index.name(address // index.file_bits), address % index.file_bits


def test_the_default_levels_make_256_files_of_2_mib() -> None:
    """Two levels of 1 and 3 bytes: `00` to `FF`, 2^24 bits each."""
    index = FileIndex((1, 3))
    names = [str(name) for name in index.names()]
    assert (names[0], names[10], names[-1], len(names)) == ("00", "0A", "FF", 256)
    assert index.file_bytes == 2 << 20


def test_the_leading_byte_names_the_file_and_the_rest_the_bit() -> None:
    """Most significant bytes first, upper-case hex."""
    assert located(FileIndex((1, 3)), 0xABCDEF01) == (PurePosixPath("AB"), 0xCDEF01)
    assert located(FileIndex((2, 2)), 0xABCDEF01) == (PurePosixPath("ABCD"), 0xEF01)


def test_levels_before_the_last_but_one_are_folders() -> None:
    """Three levels: folder, file, bit; four: folder in folder."""
    assert located(FileIndex((1, 1, 2)), 0x0A0BFFFF) == (PurePosixPath("0A/0B"), 0xFFFF)
    assert located(FileIndex((1, 1, 1, 1)), 0x0A0B0C0D) == (PurePosixPath("0A/0B/0C"), 0x0D)


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4).filter(lambda levels: sum(levels) <= 7), st.data())
def test_addresses_and_bits_are_one_to_one(levels: list[int], data: st.DataObject) -> None:
    """File name and bit, put together again, are the address."""
    index = FileIndex(tuple(levels))
    address = data.draw(st.integers(0, 256**index.address_bytes - 1))
    name, bit = located(index, address)
    assert int("".join(name.parts), 16) * index.file_bits + bit == address


@pytest.mark.parametrize("levels", [(), (4,), (0, 3), (4, 4), (1, 6)])
def test_levels_that_make_no_store_are_refused(levels: tuple[int, ...]) -> None:
    """At least two levels of at least one byte, at most seven bytes together, and five in the last."""
    with pytest.raises(BadParameters, match="levels"):
        FileIndex(levels)


@pytest.mark.parametrize(
    ("expected", "levels"),
    [
        (0, (1, 1)),
        (256, (1, 1)),
        (257, (1, 2)),
        (65_664, (1, 2)),
        (65_665, (1, 3)),
        (16_809_000, (1, 3)),
        (10**10, (1, 3)),
    ],
)
def test_levels_fit_the_number_of_keys(expected: int, levels: tuple[int, ...]) -> None:
    """The smallest store that stays below a fill of 1/256; none is larger than 2^32 bits."""
    assert levels_for(expected) == levels
