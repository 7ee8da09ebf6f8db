import pytest

from dedup.errors import BadParameters
from dedup.signature import signature_named


def test_crc32_is_the_published_one_and_big_endian() -> None:
    """The check value of CRC-32 ("123456789" -> CBF43926); a prefix is its leading bytes."""
    crc = signature_named("crc32")
    assert crc.addresses([b"123456789"], 4).tolist() == [0xCBF43926]
    assert crc.addresses([b"123456789"], 3).tolist() == [0xCBF439]
    assert crc.addresses([b"123456789", b""], 1).tolist() == [0xCB, 0]
    assert [crc.address(b"123456789", width) for width in (4, 3, 1)] == [0xCBF43926, 0xCBF439, 0xCB]


def test_no_keys_have_no_addresses() -> None:
    """An empty batch is a batch."""
    assert signature_named("crc32").addresses([], 4).tolist() == []


def test_an_unknown_signature_is_refused_with_the_known_ones() -> None:
    """The message says what may be asked for."""
    with pytest.raises(BadParameters, match="'crc64' is unknown; there are: crc32"):
        signature_named("crc64")
