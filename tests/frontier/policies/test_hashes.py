"""The three string hashes: the published functions, one string at a time and by the batch."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.frontier.policies import hashes
from anabranch.frontier.policies.hashes import Hashes, bkdr, bkdr_batch, elf, elf_batch, sdbm, sdbm_batch

Hash = Callable[[bytes], int]
Batch = Callable[[Sequence[bytes]], Hashes]
BOTH = {"bkdr": (bkdr, bkdr_batch), "elf": (elf, elf_batch), "sdbm": (sdbm, sdbm_batch)}
EACH = pytest.mark.parametrize(("one", "many"), BOTH.values(), ids=BOTH)

#: The test key of Arash Partow's library, whose results are 32 bits wide.
PARTOW = b"abcdefghijklmnopqrstuvwxyz1234567890"


def by_sum(data: bytes, factor: int) -> int:
    """A hash as a polynomial, worked out with integers of any size."""
    return sum(byte * factor ** (len(data) - 1 - place) for place, byte in enumerate(data)) % 2**32 % 2**31


@pytest.mark.parametrize(
    ("one", "data", "value"),
    [
        (bkdr, PARTOW, 3153586616 & 0x7FFFFFFF),
        (sdbm, PARTOW, 3449571336 & 0x7FFFFFFF),
        (elf, PARTOW, 126631744),
        (bkdr, b"", 0),
        (bkdr, b"ab", 97 * 131 + 98),
        (bkdr, b"abc", 1677554),
        (sdbm, b"", 0),
        (sdbm, b"ab", 97 * 65599 + 98),
        (elf, b"", 0),
        (elf, b"ab", (97 << 4) + 98),
        (elf, b"a" * 8, 125268225),  # the eighth letter reaches the highest four bits, which are folded back
    ],
)
def test_values_of_the_published_functions(one: Hash, data: bytes, value: int) -> None:
    """Known results, the sign bit cleared."""
    assert one(data) == value


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_two_of_them_are_polynomials(data: bytes) -> None:
    """The loop and the closed formula agree for any bytes: in 131, and in 65599."""
    assert bkdr(data) == by_sum(data, 131)
    assert sdbm(data) == by_sum(data, 65599)


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_a_batch_gives_what_single_calls_give(batch: list[bytes]) -> None:
    """Vectorised or not, empty strings among them or not: the same values in the same order."""
    for one, many in BOTH.values():
        assert many(batch).tolist() == [one(data) for data in batch]


@EACH
def test_a_batch_of_long_urls_gives_what_single_calls_give(one: Hash, many: Batch) -> None:
    """Results wrap as 32 bits do, however long the string."""
    batch = [f"http://a.test/{'x' * length}?{length}".encode() for length in range(0, 3000, 137)]
    assert many(batch).tolist() == [one(data) for data in batch]


def test_a_very_long_string_is_hashed_as_a_short_one() -> None:
    """Beyond the powers that are kept, too."""
    data = bytes(range(256)) * 20
    assert bkdr(data) == by_sum(data, 131)
    assert sdbm_batch([data, data[:-1]]).tolist() == [by_sum(data, 65599), by_sum(data[:-1], 65599)]


@EACH
def test_one_very_long_string_makes_no_table_of_its_length_for_all(one: Hash, many: Batch) -> None:
    """The batch falls into parts; the values keep their order."""
    batch = [f"http://a.test/{number}".encode() for number in range(2000)]
    batch[1234] += b"x" * 10_000
    assert many(batch).tolist() == [one(data) for data in batch]


@EACH
@pytest.mark.parametrize("bound", [hashes._WIDE, hashes._KEPT_POWERS])
def test_around_its_bounds_a_batch_gives_what_single_calls_give(one: Hash, many: Batch, bound: int) -> None:
    """Whichever strings are hashed together: one long one among short ones, long ones among themselves, one of each length."""
    page = [b"http://a.test/%d" % number for number in range(20)]
    longs = [(bytes(range(256)) * 17)[:length] for length in range(bound - 4, bound + 5)]
    for batch in (*([*page, long, *page] for long in longs), longs, [*page, *longs], [*longs, b"", *page]):
        assert many(batch).tolist() == [one(data) for data in batch]


@pytest.mark.parametrize("many", [bkdr_batch, sdbm_batch])
def test_long_strings_among_short_ones_have_a_table_of_their_own(many: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a hostile site would fill thousands of links up to the length of its longest one."""
    widths: list[int] = []
    powers = hashes._powers
    monkeypatch.setattr(hashes, "_powers", lambda factor, count: widths.append(count) or powers(factor, count))
    many([b"x" * (8000 if number % 131 == 0 else 900 if number % 100 == 0 else 50) for number in range(6000)])
    assert sorted(widths) == [50, 900, 8000]


@EACH
def test_a_portal_fills_every_one_of_997_queues(one: Hash, many: Batch) -> None:
    """URLs that differ in few characters spread over a prime number of queues: none is empty, none holds thrice its share."""
    urls = [f"http://www.portal.test/news/2024/{n % 12 + 1:02}/article-{n:06}.html".encode() for n in range(40_000)]
    share = Counter((many(urls) % 997).tolist())
    assert len(share) == 997
    assert max(share.values()) < 3 * len(urls) / 997


def test_elf_leaves_most_of_100_queues_empty() -> None:
    """Why a prime is advised: with .html endings ELF mod 100 takes few values."""
    urls = [f"http://www.portal.test/news/2024/{n % 12 + 1:02}/article-{n:06}.html".encode() for n in range(10_000)]
    assert len(Counter((elf_batch(urls) % 100).tolist())) <= 50
