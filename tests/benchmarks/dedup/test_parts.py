"""The parts of `scripts/bench dedup` that can be checked without timing anything."""

import mmap
import multiprocessing
import zlib
from pathlib import Path

import pytest

from anabranch.dedup import Dsbf, DsbfParameters, UniqFilter, UniqParameters
from scripts.benchmarks.dedup import processes
from scripts.benchmarks.dedup.keys import Speeds, batches, parts, urls
from scripts.benchmarks.dedup.lasting import disk_bytes, in_child, open_and_close, own_bytes
from scripts.benchmarks.dedup.peers import PEERS
from scripts.benchmarks.dedup.rates import Sample
from scripts.benchmarks.dedup.speed import nine_known_of_ten
from scripts.benchmarks.dedup.splits import Watch, percentile


def test_numbers_give_different_urls() -> None:
    """So that every key of a bench is new when it is meant to be."""
    assert len(set(urls(range(5000)))) == 5000


@pytest.mark.parametrize("count", [0, 7, 20, 1003])
def test_parts_and_batches_are_the_whole(count: int) -> None:
    """No key is left out at an edge, and none comes twice."""
    numbers = [number for part in parts(count) for number in part]
    assert numbers == list(range(count))
    of = batches(urls(range(count)), 64)
    assert [key for batch in of for key in batch] == urls(range(count))
    assert all(len(batch) == 64 for batch in of[:-1])


def test_speeds_call_once_per_batch() -> None:
    """The call sees each batch once, in order, and the words name the number of keys."""
    met: list[list[bytes]] = []
    speeds = Speeds(met.append)
    speeds.time([[b"a", b"b"], [b"c"]])
    speeds.time([[b"d"]])
    assert met == [[b"a", b"b"], [b"c"], [b"d"]]
    assert speeds.median > 0
    assert "2 parts" in speeds.spread
    assert "all 4 keys" in speeds.spread


def test_one_of_ten_keys_is_new() -> None:
    """Nine lie among the known ones, the tenth beyond all that was used before."""
    numbers = nine_known_of_ten(range(1000, 2000), known=5000, new=7000)
    assert len(numbers) == 1000
    assert [number for number in numbers if number >= 5000] == list(range(7000, 8000, 10))
    assert len({number for number in numbers if number < 5000}) > 800


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peers_answer_for_each_key(peer: object) -> None:
    """True where a key is new, as the UniqFilter answers, so that the same work is compared."""
    new, known = peer.make(1000)  # type: ignore[attr-defined]
    assert new(urls(range(100))) == [True] * 100
    assert new(urls(range(50))) == [False] * 50
    assert known(urls(range(100))) == [False] * 100
    assert sum(known(urls(range(5000, 6000)))) > 950


@pytest.mark.parametrize(
    ("values", "share", "found"), [([5], 0.9999, 5), (range(1, 101), 0.5, 50), (range(1, 10_001), 0.9999, 9999)]
)
def test_percentiles_are_values_that_were_measured(values: list[int], share: float, found: int) -> None:
    """The least value that the share does not exceed; with few values the largest."""
    assert percentile(values, share) == found


def test_moved_elements_are_counted_apart_from_the_marked_ones(tmp_path: Path) -> None:
    """Over a whole split as many elements move as the full leaf had; calls without a split under way do not count."""
    shape = UniqParameters(expected=0, levels=(1, 1), leaf_bits=1 << 16, false_positive=0.01)
    with UniqFilter.open(tmp_path / "u", shape) as uniq:
        watch = Watch(uniq, shape.split_fan_out)
        for batch in batches(urls(range(shape.dsbf.split_above)), 64):
            watch.feed(batch)
        assert (watch.most_moved, watch.marking.cpu_ns, watch.asking.wall_ns) == (0, [], [])
        moved = 0
        for batch in batches(urls(range(20_000, 30_000)), 64):
            watch.most_moved = 0
            watch.feed(batch)
            moved += watch.most_moved
        assert 1 <= len(watch.marking.cpu_ns) == len(watch.asking.cpu_ns) < 150
    assert shape.dsbf.split_above < moved < shape.dsbf.split_above + 2 * 64


def test_samples_count_what_is_falsely_known(tmp_path: Path) -> None:
    """A filter filled far beyond one leaf's bits knows some probes; the row's target is 1.05 f and three sigma."""
    sample = Sample()
    with Dsbf.open(tmp_path / "d", DsbfParameters(expected=2000, false_positive=0.2, leaf_bits=1024)) as dsbf:
        dsbf.mark(urls(range(2000)))
        sample.ask(dsbf, 4000)
    row = sample.row("name", "what", 0.2, "note")
    assert 0.05 < sample.rate < 0.25
    assert row.target == pytest.approx(1.05 * 0.2 + 3 * (0.2 * 0.8 / 4000) ** 0.5)
    assert sample.row("name", "what", 0.2, "note").measured == sample.hits / 4000


def test_a_sample_without_probes_is_not_run() -> None:
    """If no split was ever under way, nothing was measured, and the row says so."""
    assert Sample().row("name", "what", 0.01, "note").measured is None


def test_urls_for_the_race_have_different_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two URLs with one CRC-32 is left out: the store would know it, and the race would seem lost."""
    monkeypatch.setattr(processes, "urls", lambda _: [b"plumless", b"a", b"buckeroo", b"b", b"c"])
    assert zlib.crc32(b"plumless") == zlib.crc32(b"buckeroo")
    assert processes.distinct_urls(3) == [b"plumless", b"a", b"b"]


def test_holes_take_no_disk(tmp_path: Path) -> None:
    """Disk use is counted in blocks, so a sparse file counts for what was written."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
        file.write(b"x" * 8192)
    assert 8192 <= disk_bytes(tmp_path) < 1 << 20


def test_a_child_is_killed_with_its_filter_open(tmp_path: Path) -> None:
    """Its filter can be opened again at once, and its answers come back."""
    found = in_child(open_and_close, tmp_path / "u", 1000)
    assert found["lost"] == 10  # a new filter: of each 100 keys one is asked for, and none is known
    assert found["opened_s"] > 0
    assert multiprocessing.active_children() == []


def test_a_child_that_fails_is_an_error_here(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It never counts as a measurement; its own traceback says why."""
    (tmp_path / "u").write_bytes(b"a file where the folder should be")
    with pytest.raises(RuntimeError, match="open_and_close"):
        in_child(open_and_close, tmp_path / "u", 1000)
    assert "Error" in capfd.readouterr().err


def test_memory_of_its_own_grows_with_what_is_taken() -> None:
    """RssAnon, where the system tells it."""
    before = own_bytes()
    # A map of its own: the heap may have that much free already.
    taken = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
    taken.write(b"x" * (32 << 20))
    assert not before or own_bytes() - before > 16 << 20
    assert len(taken) == 32 << 20
