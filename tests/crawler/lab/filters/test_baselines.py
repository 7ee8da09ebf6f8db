import hashlib
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.filters import baselines
from anabranch.crawler.lab.filters.baselines import (
    WORD_SOURCES,
    BitmapHashTable,
    ClassicBloom,
    PerDomainFilters,
    hash_words,
    host_of,
)
from anabranch.dedup.errors import BadParameters, FilterClosed, StoreFull
from anabranch.dedup.smm.mapping import PAGE_BYTES
from tests.rows import each_row

PUBLISHED_URLS = 75_012


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


def portal(start: int, stop: int, hosts: int = 4) -> list[bytes]:
    return [b"http://h%d.example/%d" % (i % hosts, i) for i in range(start, stop)]


class Counted(bytes):
    """A key that counts the comparisons with it."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return bytes.__eq__(self, other)

    __hash__ = bytes.__hash__


@given(st.lists(st.lists(st.binary(max_size=2), max_size=20), max_size=5), st.integers(1, 5))
def test_the_hash_table_is_an_exact_set(batches: list[list[bytes]], buckets: int) -> None:
    """Every key is new once, whatever the buckets and the batches; a key never added is unknown."""
    table, model = BitmapHashTable(buckets), set[bytes]()
    for batch in batches:
        expected = [key not in model and key not in batch[:i] for i, key in enumerate(batch)]
        assert table.add(batch).tolist() == expected
        model.update(batch)
    asked = [bytes([i]) for i in range(256)]
    assert table.contains(asked).tolist() == [key in model for key in asked]


@pytest.mark.parametrize("buckets", [1, 10, 100])
def test_chains_are_scanned_linearly(buckets: int) -> None:
    """A miss costs one comparison per key of its bucket, so a B-th of the keys: n / B on average."""
    table = BitmapHashTable(buckets)
    added = [Counted(key) for key in keys(0, 1000)]
    table.add(added)
    chains = np.bincount([zlib.crc32(key) % buckets for key in added], minlength=buckets)
    asked = keys(1000, 1100)
    Counted.compared = 0
    assert not table.contains(asked).any()
    assert Counted.compared == sum(int(chains[zlib.crc32(key) % buckets]) for key in asked)
    assert Counted.compared / len(asked) == pytest.approx(1000 / buckets, rel=0.2)


def test_a_table_needs_a_bucket() -> None:
    """No bucket is refused."""
    with pytest.raises(BadParameters, match="buckets is 0"):
        BitmapHashTable(0)


def test_hash_words_are_whole_digests_one_after_the_other() -> None:
    """Ten words are CRC-32, then MD5, then SHA-1, big-endian."""
    key = b"123456789"
    whole = bytes.fromhex("cbf43926") + hashlib.md5(key).digest() + hashlib.sha1(key).digest()
    words = [int.from_bytes(whole[i : i + 4], "big") for i in range(0, 40, 4)]
    assert hash_words([b"other", key], 10)[1].tolist() == words
    shapes = {1: words[:1], 4: words[1:5], 5: words[5:], 6: words[:1] + words[5:], 9: words[1:], 10: words}
    assert {k: hash_words([key], k)[0].tolist() for k in WORD_SOURCES} == shapes


@given(st.lists(st.lists(st.binary(max_size=3), max_size=30), max_size=5), st.sampled_from([1, 4, 5, 6, 9, 10]))
def test_a_classic_filter_is_the_same_as_one_key_after_the_other(batches: list[list[bytes]], k: int) -> None:
    """A batch answers and sets bits as its keys would one by one; no added key is ever missed."""
    bloom, one_by_one, model = ClassicBloom(1000, k), ClassicBloom(1000, k), set[int]()
    for batch in batches:
        places = [{int(word) % 1000 for word in hash_words([key], k)[0]} for key in batch]
        expected = []
        for place in places:
            expected.append(not place <= model)
            model |= place
        assert bloom.add(batch).tolist() == expected
        assert bloom.contains(batch).all()
        assert [one_by_one.add_one(key) for key in batch] == expected
        assert all(map(one_by_one.contains_one, batch))
    assert bloom.fill == one_by_one.fill == len(model) / 1000
    others = keys(0, 50)
    assert [one_by_one.contains_one(key) for key in others] == bloom.contains(others).tolist()


@pytest.mark.parametrize(
    ("bits", "k", "published"),
    [(80_000, 1, 0.61), (80_000, 10, 0.999), (8_000_000, 1, 9.3e-3), (8_000_000, 10, 3.3e-11)],
)
def test_rates_are_near_the_formula_and_the_published_setting(bits: int, k: int, published: float) -> None:
    """75,012 keys in each of the published sizes: as many of others are taken for known as the formula says."""
    bloom, others = ClassicBloom(bits, k), 30_000
    bloom.add(keys(0, PUBLISHED_URLS))
    assert bloom.contains(keys(0, PUBLISHED_URLS)[::10]).all()
    expected = bloom.expected_rate(PUBLISHED_URLS)
    assert expected == pytest.approx(published, rel=0.02)
    known = int(np.count_nonzero(bloom.contains(keys(PUBLISHED_URLS, PUBLISHED_URLS + others))))
    assert known == pytest.approx(expected * others, rel=0.1, abs=0.5)


@pytest.mark.parametrize(("bits", "k", "what"), [(80, 2, "hashes is 2"), (81, 1, "bits is 81"), (2**32 + 8, 1, "bits")])
def test_a_classic_filter_refuses_what_its_words_cannot_do(bits: int, k: int, what: str) -> None:
    """Only whole digests, whole bytes, and no more bits than 32-bit words reach."""
    with pytest.raises(BadParameters, match=what):
        ClassicBloom(bits, k)


@each_row(
    ("url", "host"),
    [
        (b"http://News.Example:80/a?b#c", b"news.example"),
        (b"https://me:pw@a.example/x@y", b"a.example"),
        (b"//a.example?x", b"a.example"),
        (b"a.example/http://b.example", b"a.example"),
        (b"http://[::1]:80/", b"[::1]"),
        (b"\xff", b"\xff"),
        (b"", b""),
    ],
)
def test_the_domain_of_a_url_is_its_host(url: bytes, host: bytes) -> None:
    """Lower case, without scheme, user, port and path."""
    assert host_of(url) == host


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=100), st.integers(0, 3))
def test_no_url_of_any_domain_is_missed(pairs: list[tuple[int, int]], number: int) -> None:
    """Every inserted URL is known, with a filter per domain and with a fixed number; counts add up."""
    urls = [b"http://h%d.example/%d" % pair for pair in pairs]
    filters = PerDomainFilters(64, 3, number)
    new = filters.add(urls)
    assert filters.contains(urls).all()
    shown = filters.report()
    assert (sum(one.urls for one in shown), sum(one.accepted for one in shown)) == (len(urls), int(new.sum()))
    assert len(shown) == (number or len({pair[0] for pair in pairs}))


def test_each_domain_has_a_filter_of_its_own_and_portals_overflow_it() -> None:
    """32 KB with k = 10 hold 18,170 URLs at 1e-3; four times as many are far above it, a small site far below."""
    filters = PerDomainFilters.internet_archive()
    filters.add([b"http://fits.example/%d" % i for i in range(18_170)])
    filters.add([b"http://small.example/", *(b"http://portal.example/%d" % i for i in range(70_000))])
    hosts = (b"fits", b"small", b"portal", b"unknown")
    probes = [b"http://%s.example/p%d" % (host, i) for host in hosts for i in range(5_000)]
    shown = {one.name: one for one in filters.report(probes)}
    assert [(one.name, one.urls) for one in shown.values()] == [
        ("fits.example", 18_170),
        ("small.example", 1),
        ("portal.example", 70_000),
    ]
    fits, small, portal_ = shown.values()
    assert fits.expected_rate == pytest.approx(1e-3, rel=0.03)
    assert fits.fill == pytest.approx(0.5, abs=0.01)
    assert small.measured_rate == 0
    assert small.fill == 10 / 2**18
    assert portal_.measured_rate == pytest.approx(portal_.expected_rate, rel=0.05)
    assert portal_.expected_rate > 0.4
    assert portal_.accepted < portal_.urls
    assert not filters.contains([b"http://unknown.example/"]).any()
    assert len(filters.report()) == 3


def test_a_fixed_number_of_filters_is_chosen_by_the_hash_of_the_domain() -> None:
    """All URLs of a domain meet in filter CRC-32 mod number; measured rates are near the formula."""
    filters = PerDomainFilters.apoidea(3, hashes=4)
    urls, probes = portal(0, 60_000, hosts=20), portal(60_000, 120_000, hosts=20)
    filters.add(urls)
    shown = filters.report(probes)
    expected = np.bincount([zlib.crc32(host_of(url)) % 3 for url in urls], minlength=3)
    assert [one.urls for one in shown] == expected.tolist()
    assert [one.name for one in shown] == ["0", "1", "2"]
    for one in shown:
        assert one.measured_rate == pytest.approx(one.expected_rate, rel=0.1)
    assert {one.measured_rate for one in filters.report()} == {None}


def test_the_caller_may_say_what_a_domain_is() -> None:
    """With another rule the hosts of one site share a filter."""
    filters = PerDomainFilters(1 << 10, 2)
    filters.domain_of = lambda url: host_of(url).split(b".", 1)[1]
    filters.add(portal(0, 8))
    assert [(one.name, one.urls) for one in filters.report()] == [("example", 8)]


def test_a_batch_is_cut_into_parts_with_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a part changes no answer and no count."""
    urls = portal(0, 500) + portal(250, 750)
    whole, parts = PerDomainFilters(1 << 10, 2), PerDomainFilters(1 << 10, 2)
    expected = whole.add(urls).tolist()
    monkeypatch.setattr(baselines, "_AT_ONCE", 7)
    assert parts.add(urls).tolist() == expected
    assert parts.report() == whole.report()
    assert parts.add([]).tolist() == []


def test_the_single_filter_is_2_gb_in_a_sparse_file(tmp_path: Path) -> None:
    """The file has its full size; only pages with set bits have blocks, and the bits are in the file."""
    path = tmp_path / "bits"
    filters = PerDomainFilters.single(path)
    assert path.stat().st_size == 2 << 30
    assert not filters.contains(portal(0, 100)).any()
    assert filters.add(portal(0, 100)).all()
    assert filters.contains(portal(0, 100)).all()
    # Before others are asked for: on a disk in memory, a page that is read has a block, too.
    assert path.stat().st_blocks * 512 <= 1000 * PAGE_BYTES
    assert not filters.contains(portal(100, 200)).any()
    (shown,) = filters.report()
    assert (shown.urls, shown.fill) == (100, 1000 / 2**34)
    filters.close()
    filters.close()
    with pytest.raises(FilterClosed):
        filters.add(portal(0, 1))


def test_bits_of_a_mapped_filter_are_those_of_one_in_memory(tmp_path: Path) -> None:
    """Both set the same bits for the same URLs; fill counts them all."""
    path = tmp_path / "bits"
    mapped, memory = PerDomainFilters.single(path, PAGE_BYTES * 8, 3), PerDomainFilters(PAGE_BYTES * 8, 3, 1)
    assert mapped.add(portal(0, 20_000)).tolist() == memory.add(portal(0, 20_000)).tolist()
    assert mapped.report() == memory.report()
    fill = memory.report()[0].fill
    mapped.close()
    memory.close()
    held = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    assert int(np.bitwise_count(held).sum()) / held.size / 8 == fill
    with pytest.raises(FilterClosed):
        memory.report()


def test_a_full_disk_is_told_and_kills_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that cannot be allocated is not written to; what could be is asked for no second time."""
    filters = PerDomainFilters.single(tmp_path / "bits", 1 << 24, 2)
    answers: list[int | StoreFull] = [1, StoreFull()]

    def allocate(path: Path, offsets: list[int], length: int) -> int:
        answer = answers.pop(0)
        if isinstance(answer, StoreFull):
            raise answer
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(baselines, "allocate_pages", allocate)
        with pytest.raises(StoreFull):
            filters.add(portal(0, 10))
    assert not filters.contains(portal(0, 10)).any()
    assert filters.report()[0].urls == 0
    assert filters.add(portal(0, 10)).all()
    filters.close()


def test_an_existing_file_is_not_taken_over(tmp_path: Path) -> None:
    """The counts of its bits are unknown."""
    (tmp_path / "bits").touch()
    with pytest.raises(FileExistsError):
        PerDomainFilters.single(tmp_path / "bits")


@each_row(("bits", "k", "number"), [(4, 1, 0), (1 << 41, 1, 0), (24, 1, 0), (8, 0, 0), (8, 1, -1)])
def test_filters_refuse_sizes_that_positions_do_not_fit(bits: int, k: int, number: int) -> None:
    """A power of two of bits, at least one hash, no negative number."""
    with pytest.raises(BadParameters):
        PerDomainFilters(bits, k, number)


def test_a_mapped_filter_is_whole_pages(tmp_path: Path) -> None:
    """A file of part of a page is refused, and not made."""
    with pytest.raises(BadParameters, match="whole pages"):
        PerDomainFilters.single(tmp_path / "bits", 8)
    assert not (tmp_path / "bits").exists()
