"""The passes are timed over the real filters; here what they count is looked at."""

import pytest

from anabranch.crawler.lab.filters.smm_passes import Passes, bloom_run, smm_false_hits, smm_run, table_run, timed
from anabranch.dedup.errors import BadParameters

URLS = [b"http://a.example/%d" % number for number in range(300)]
OTHERS = [b"http://b.example/%d" % number for number in range(300)]
SHAPE = ("crc32", (1, 3))


def counts(passes: Passes) -> tuple[int, int]:
    assert passes.first_us > 0
    assert passes.second_us > 0
    return passes.new, passes.forgotten


@pytest.fixture
def folders(tmp_path):
    return [tmp_path / "singly", tmp_path / "batch"]


def test_a_fresh_store_finds_all_new_and_a_reopened_one_none(folders) -> None:
    """Singly and in a batch alike; nothing is forgotten."""
    fresh, reopened = (smm_run(folders, URLS, SHAPE) for _ in range(2))
    assert (fresh.store, counts(fresh.singly), counts(fresh.batch)) == ("fresh", (300, 0), (300, 0))
    assert (reopened.store, counts(reopened.singly), counts(reopened.batch)) == ("reopened", (0, 0), (0, 0))
    assert min(fresh.open_us, fresh.close_us, reopened.open_us, reopened.close_us) > 0


def test_repeats_are_new_once(folders) -> None:
    """The SMM, the table and the Bloom filter count distinct URLs."""
    twice = [*URLS, *URLS]
    run = smm_run(folders, twice, SHAPE)
    assert (counts(run.singly), counts(run.batch)) == ((300, 0), (300, 0))
    assert counts(table_run(10, twice, OTHERS).passes) == (300, 0)
    bloom = bloom_run((8_000_000, 10), twice, OTHERS, singly=True)
    assert (counts(bloom.singly), counts(bloom.batch)) == ((300, 0), (300, 0))


def test_false_hits_of_a_store_are_counted(folders) -> None:
    """Probes that were inserted after all would be hits; others are not, at this fill."""
    smm_run(folders, URLS, SHAPE)
    assert smm_false_hits(folders[0], [*URLS[:7], *OTHERS], SHAPE) == (7, 1 << 32)


def test_a_table_makes_no_false_hit_and_a_full_filter_many() -> None:
    """The one is exact; the other has 80 bits for 300 URLs."""
    run = table_run(10, URLS, OTHERS)
    assert (run.buckets, run.false_hits) == (10, 0)
    assert min(run.empty_us, run.missing_us) > 0
    full = bloom_run((80, 1), URLS, OTHERS, singly=False)
    assert (full.bits, full.hashes, full.singly) == (80, 1, None)
    assert full.false_hits > 250
    assert full.batch.new < 81


def test_a_shape_that_does_not_exist_is_refused(folders) -> None:
    """CRC-32 has four bytes."""
    with pytest.raises(BadParameters):
        smm_run(folders, URLS, ("crc32", (1, 4)))


def test_a_time_is_in_microseconds() -> None:
    """A thousand nanoseconds each; the result goes along."""
    us, result = timed(lambda: sum(range(200_000)))
    assert result == 19999900000
    assert 200 < us < 10_000_000
