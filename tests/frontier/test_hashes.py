"""BKDR: the published function, one string at a time and by the batch."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.hashes import bkdr, bkdr_batch


def by_sum(data: bytes) -> int:
    """BKDR as a polynomial in 131, worked out with integers of any size."""
    return sum(byte * 131 ** (len(data) - 1 - place) for place, byte in enumerate(data)) % 2**32 % 2**31


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"a", 97),
        (b"ab", 97 * 131 + 98),
        (b"abc", 1677554),
        # The test key of Arash Partow's "General Purpose Hash Function Algorithms" library; its result is 32 bits wide.
        (b"abcdefghijklmnopqrstuvwxyz1234567890", 3153586616 & 0x7FFFFFFF),
        (b"http://www.example.com/", by_sum(b"http://www.example.com/")),
        (b"\xff" * 64, by_sum(b"\xff" * 64)),
    ],
)
def test_values_of_the_published_function(data: bytes, value: int) -> None:
    """H = h x 131 + c over the bytes, in 32 bits, the sign bit cleared."""
    assert bkdr(data) == value


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_it_is_the_polynomial_in_131(data: bytes) -> None:
    """The loop and the closed formula agree for any bytes."""
    assert bkdr(data) == by_sum(data)


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_a_batch_gives_what_single_calls_give(batch: list[bytes]) -> None:
    """Vectorised or not, empty strings among them or not: the same values in the same order."""
    assert bkdr_batch(batch).tolist() == [bkdr(data) for data in batch]


def test_a_batch_of_long_urls_gives_what_single_calls_give() -> None:
    """Powers of 131 wrap as 32 bits do, however long the string."""
    batch = [f"http://a.test/{'x' * length}?{length}".encode() for length in range(0, 3000, 37)]
    assert bkdr_batch(batch).tolist() == [bkdr(data) for data in batch]


def test_a_portal_fills_every_one_of_997_queues() -> None:
    """URLs that differ in few characters spread evenly: no queue is empty, none holds thrice its share."""
    urls = [f"http://www.portal.test/news/2024/{n % 12 + 1:02}/article-{n:06}.html".encode() for n in range(40_000)]
    share = Counter((bkdr_batch(urls) % 997).tolist())
    assert len(share) == 997
    assert max(share.values()) < 3 * len(urls) / 997
