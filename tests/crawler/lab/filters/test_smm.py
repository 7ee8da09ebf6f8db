"""`anabranch lab smm` with few URLs: what does not depend on the machine's speed."""

from __future__ import annotations

import tempfile

import pytest

from anabranch.crawler.lab.filters import smm
from anabranch.crawler.lab.filters.smm import (
    SmmOptions,
    bloom_run,
    run,
    smm_false_hits,
    smm_run,
    table_run,
    timed,
)
from anabranch.crawler.lab.filters.smm_report import Passes
from anabranch.crawler.lab.report import NOT_RECOVERABLE
from anabranch.crawler.lab.urls import packet_urls
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.errors import BadParameters
from tests.rows import each_row


def tiny(**more):
    return SmmOptions(**{"count": 200, "probes": 500, "runs": 2, "levels": (1, 1), **more})


def run_tiny(**more):
    told = []
    return run(tiny(**more), lambda *step: told.append(step)), told


@pytest.fixture(scope="module")
def one_run():
    """One run with the published levels: its report, and what was told."""
    return run_tiny(levels=(1, 3))


@pytest.fixture
def report(one_run):
    return one_run[0]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files, the test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_three_published_tables_are_measured(report) -> None:
    """Table 1 in both cases, 2 with its buckets, 3 with its m and k, and all methods together."""
    reopening, fresh, tables, blooms, every, ratios = report.tables
    assert [row[:2] for row in reopening.rows[:3]] == [("1", "fresh"), ("2", "reopened"), ("mean", None)]
    assert [row[1] for row in fresh.rows[:2]] == ["fresh", "fresh"]
    assert [row[:2] for row in tables.rows] == [(10, 2), (100, 2), (1_000, 2), (10_000, 2)]
    assert [row[:3] for row in blooms.rows] == [
        (m, k, NOT_RECOVERABLE) for m in (80_000, 8_000_000) for k in (1, 4, 5, 6, 9, 10)
    ]
    assert len(every.rows) == 1 + 4 + 12
    assert len(ratios.rows) == 4 + 12


def test_every_time_is_measured_and_nothing_is_forgotten(report) -> None:
    """No cell is empty but the labels of means."""
    for table in (*report.tables[2:5], report.tables[0]):
        assert all(cell is not None for row in table.rows[:2] for cell in row), table.title
    assert report.closing[-1] == "No method forgot a URL, reopened stores included."


def test_the_input_is_what_the_source_says(report) -> None:
    """Distinct URLs of 50.5 bytes on average."""
    assert "200 URLs are distinct, 50.5 bytes on average" in report.tables[0].note


def test_nothing_stays_behind(temporary) -> None:
    """The stores lie in a temporary folder."""
    run_tiny(runs=1)
    assert list(temporary.iterdir()) == []


def test_nothing_stays_behind_an_interrupt_either(temporary) -> None:
    """Ctrl-C in the middle of a run."""

    def tell(done, total, what):
        if what == "round 2 of 2: SMM, the same store":
            assert list(temporary.iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tiny(), tell)
    assert list(temporary.iterdir()) == []


def test_progress_is_told_step_by_step(one_run) -> None:
    """Never backwards, never beyond the number of steps, which stays."""
    _, told = one_run
    done, totals = [step for step, _, _ in told[1:]], {total for _, total, _ in told[1:]}
    assert done == sorted(set(done))
    assert totals == {2 * (2 + 4 + 12)}
    assert done[-1] == max(totals) - 1


def test_repeats_are_a_share_of_the_input() -> None:
    """A half of 200 URLs: 100 are distinct, and none of these is dropped."""
    report, _ = run_tiny(repeats=0.5, runs=1, levels=(1, 3))
    assert "100 URLs are distinct" in report.tables[0].note
    assert "for 200 URLs" in report.tables[0].title
    assert [row[6] for row in report.tables[4].rows[:5]] == [0] * 5


def test_quick_leaves_out_what_takes_long() -> None:
    """The table of 10 buckets."""
    report, told = run_tiny(quick=True, runs=1)
    assert [row[0] for row in report.tables[2].rows] == [100, 1_000, 10_000]
    assert {total for _, total, _ in told[1:]} == {2 + 3 + 12}


def test_methods_take_turns_in_an_order_that_reverses(one_run) -> None:
    """A machine that changes its speed does so for all of them."""
    whats = [what for _, _, what in one_run[1][1:]]
    first, second = whats[:18], whats[18:]
    assert first[:2] == ["round 1 of 2: SMM, fresh store", "round 1 of 2: SMM, the same store"]
    assert second == [what.replace("round 1", "round 2") for what in reversed(first)]


def test_the_urls_may_be_ones_own(tmp_path) -> None:
    """One a line; a probe among them is no probe."""
    file = tmp_path / "urls.txt"
    file.write_bytes(b"http://a.example/1\r\n\nhttp://a.example/2\nhttp://a.example/1")
    report, _ = run_tiny(urls=file, runs=1)
    assert "2 URLs are distinct, 18.0 bytes on average" in report.tables[0].note
    assert "for 3 URLs" in report.tables[0].title


def test_what_is_inserted_is_no_probe(tmp_path) -> None:
    """The input has 100 of the 500 probes: they are left out, and no hit is counted."""
    file = tmp_path / "urls.txt"
    file.write_bytes(b"\n".join(packet_urls(500, seed=2)[:100]))
    report, _ = run_tiny(urls=file, runs=1, levels=(1, 3))
    smm_row, table_row = report.tables[4].rows[:2]
    assert (smm_row[8], table_row[8]) == (0.0, 0.0)
    assert "share of 400 URLs never inserted" in report.tables[4].note


def test_another_signature_and_other_levels_are_another_store() -> None:
    """65,536 bits for 200 URLs: a rate that can be measured."""
    report, _ = run_tiny(signature="crc32", levels=(1, 1), probes=20_000, runs=1, quick=True)
    row = report.tables[4].rows[0]
    assert row[9] == pytest.approx(1 - (1 - 2**-16) ** 200)
    assert row[8] == pytest.approx(row[9], abs=3 * (row[9] / 20_000) ** 0.5)


@each_row(("flag", "value"), [("repeats", -0.1), ("repeats", 0.95), ("runs", 0), ("count", 0), ("probes", 0)])
def test_a_number_that_makes_no_sense_is_refused(flag, value) -> None:
    """Before anything is measured, by its name."""
    with pytest.raises(UsageError, match=flag):
        tiny(**{flag: value})


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
    for peer in (table_run(10, twice, OTHERS), bloom_run((8_000_000, 10), twice, OTHERS)):
        assert (counts(peer.singly), counts(peer.batch)) == ((300, 0), (300, 0))


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_part_of_a_pass_counts_all_urls_once(repeats) -> None:
    """Whichever part is timed, and also if URLs repeat: the others are inserted all the same."""
    urls = URLS * repeats
    for part in range(smm.PARTS):
        table = table_run(10, urls, OTHERS, part)
        bloom = bloom_run((8_000_000, 10), urls, OTHERS, part)
        for passes in (table.singly, table.batch, bloom.singly, bloom.batch):
            assert (passes.new, passes.forgotten) == (300, 0)
            assert min(passes.first_us, passes.second_us) > 0
        assert table.false_hits == 0


def test_false_hits_of_a_store_are_counted(folders) -> None:
    """Probes that were inserted after all would be hits; others are not, at this fill."""
    smm_run(folders, URLS, SHAPE)
    assert smm_false_hits(folders[0], [*URLS[:7], *OTHERS], SHAPE) == (7, 1 << 32)


def test_the_time_of_missing_urls_is_that_of_as_many_as_were_inserted(monkeypatch) -> None:
    """Also if fewer are there to be asked for, or a part of them is."""
    monkeypatch.setattr(smm, "timed", lambda work: (10.0, work()))
    assert table_run(10, URLS, OTHERS[:100]).missing_us == 10 * len(URLS) / 100
    assert table_run(10, URLS, OTHERS[:90], 0).missing_us == 10 * len(URLS) / 10


def test_a_table_makes_no_false_hit_and_a_full_filter_many() -> None:
    """The one is exact; the other has 80 bits for 300 URLs."""
    run = table_run(10, URLS, OTHERS)
    assert (run.buckets, run.false_hits) == (10, 0)
    assert min(run.empty_us, run.missing_us) > 0
    full = bloom_run((80, 1), URLS, OTHERS)
    assert (full.bits, full.hashes) == (80, 1)
    assert full.singly.new == full.batch.new
    assert full.false_hits > 250
    assert full.batch.new < 81


def test_a_shape_that_does_not_exist_is_refused(folders) -> None:
    """CRC-32 has four bytes."""
    with pytest.raises(BadParameters):
        smm_run(folders, URLS, ("crc32", (1, 4)))


def test_a_time_is_cpu_time_in_microseconds() -> None:
    """A thousand nanoseconds each; the result goes along."""
    us, result = timed(lambda: sum(range(200_000)))
    assert result == 19999900000
    assert 200 < us < 10_000_000
