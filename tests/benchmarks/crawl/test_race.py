"""Rounds of crawls, and what becomes of them in the table."""

from __future__ import annotations

import sys
from collections.abc import Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.benchmarks import __main__ as bench
from scripts.benchmarks.crawl import GROUPS, knowing, long, memory
from scripts.benchmarks.crawl.contestants import (
    BARE,
    CRAWLEE,
    DURABLE,
    OURS,
    RAW,
    SCRAPY,
    TUNED,
    Contestant,
    Task,
    ours,
)
from scripts.benchmarks.crawl.observing import Note, Use
from scripts.benchmarks.crawl.race import Compared, Kept, Outcome, Result, Tenth, raced, ratio, result_of, rows
from scripts.benchmarks.crawl.speed import on_two_cores
from scripts.benchmarks.rows import Setting, Wishes
from scripts.benchmarks.site import nginx, process
from scripts.benchmarks.site.pages import Site
from scripts.benchmarks.site.process import Server
from scripts.benchmarks.site.tally import Counting

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


def result(pages_per_s: float, *, cpu_us: float = 100.0, cpu_s: float = 1.0, share: float = 0.95) -> Result:
    return Result(
        pages_per_s=pages_per_s,
        cpu_us=cpu_us,
        cpu_s=cpu_s,
        steady_per_s=pages_per_s,
        steady_us=cpu_us,
        whole_us=cpu_us,
        share=share,
        peak_bytes=1 << 20,
        own_bytes=1 << 19,
        own_last_bytes=1 << 18,
        took_s=1.0,
    )


def outcome(**speeds: Sequence[float]) -> Outcome:
    return Outcome(results={name: [result(speed) for speed in each] for name, each in speeds.items()})


def setting(folder: Path, pages: int, rounds: int = 1) -> Setting:
    return Setting(folder=folder, is_quick=False, say=lambda _: None, wishes=Wishes(pages=pages, rounds=rounds))


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    """Not that of medians: a disturbance that falls on both in one round falls out."""
    found = ratio(
        "one-host", Compared(name="durable", over="bare", target=0.45), outcome(durable=[1, 5, 8], bare=[2, 10, 10])
    )
    assert (found.measured, found.target, found.is_bound) == (0.5, 0.45, False)
    assert "0.5 to 0.8 in 3 rounds" in found.note


def test_the_gain_of_two_processes_on_idle_cores_follows_from_cpu_times() -> None:
    """One process fills one core; two of them and the site's server fill both."""
    one, two = result(1, cpu_us=500.0), replace(result(1, cpu_us=550.0), server_us=75.0)
    found = on_two_cores([one] * 3, [two, two, replace(two, cpu_us=900.0)])
    assert (found.measured, found.target) == (1.6, 1.5)
    assert "75 µs" in found.note


def test_a_shared_core_makes_hints_of_the_ratios() -> None:
    """One round in which the bare loop had less than 80 % of its core is enough; none says nothing."""
    asked, alone = Compared(name="durable", over="bare"), outcome(durable=[1, 1], bare=[2, 2])
    assert "HINT" not in ratio("one-host", asked, alone).note
    alone.results["bare"][1] = result(2, share=0.5)
    assert "A HINT: in 1 of 2 rounds" in ratio("one-host", asked, alone).note


def test_crawls_that_were_too_short_are_not_compared_by_cpu_time() -> None:
    """The kernel tells it in steps; of a crawl of a few milliseconds it may be none at all."""
    asked, held = Compared(name="durable", over="bare"), outcome(durable=[1, 1], bare=[2, 2])
    assert "by CPU time 1" in ratio("one-host", asked, held).note
    held.results["bare"][1] = result(2, cpu_us=0.0, cpu_s=0.0)
    assert "CPU" not in ratio("one-host", asked, held).note


def test_a_ratio_by_cpu_time_is_that_of_the_steady_state() -> None:
    """Half the CPU time is a ratio of 2, whatever the clock says."""
    held = Outcome(results={"durable": [result(1, cpu_us=50.0)] * 9, "bare": [result(2, cpu_us=100.0)] * 9})
    found = ratio("size", Compared(name="durable", over="bare", by_cpu=True), held)
    assert (found.measured, found.interval) == (2.0, (2.0, 2.0))
    assert "by the clock 0.5" in found.note


def test_a_ratio_of_few_rounds_has_no_interval() -> None:
    """The bootstrap of two rounds gives their extremes, which hold far less than 95 %."""
    asked = Compared(name="durable", over="bare", target=0.45)
    few = ratio("one-host", asked, outcome(durable=[1, 8], bare=[2, 10]))
    assert few.interval is None
    assert "an interval takes 9" in few.note
    assert ratio("one-host", asked, outcome(durable=[1] * 9, bare=[2] * 9)).interval == (0.5, 0.5)


def test_finished_crawls_are_not_run_again(tmp_path: Path) -> None:
    """Those in the file of an interrupted run count; no server is started for them."""
    kept = Kept(tmp_path / "crawls.jsonl")
    site, asked = (
        Site(pages=5),
        replace(setting(tmp_path, 5), wishes=Wishes(rounds=1, resume=tmp_path / "crawls.jsonl")),
    )
    kept[f"{site.text} asyncio bare 0"] = result(7)
    held = raced(site, (BARE,), asked, serve=_unreachable)
    assert held.results == {"bare": [result(7)]}


def _unreachable(site: Site, cores: Set[int]) -> AbstractContextManager[Server]:
    raise AssertionError(f"{site} is served on {cores}")


def test_a_fifth_of_the_pages_at_each_end_is_no_steady_state() -> None:
    """A page a second: six tenths are between the second and the eighth."""
    counting = Counting()
    for number in range(11):
        counting.add(f"/pages/{number}.html".encode(), 100.0 + number)
    tally = counting.take()
    assert tally.tenths_s == tuple(100.0 + number for number in range(11))
    used = Use(
        notes=[Note(at_s=float(at), cpu_s=at - 100.0, own_bytes=0) for at in range(100, 112)], peak_bytes=1, took_s=10.0
    )
    found = result_of(tally, used)
    assert found.steady_per_s == pytest.approx(1.1)
    assert found.steady_us == pytest.approx(6e6 / 6.6)
    assert found.tenths == (Tenth(pytest.approx(10e6 / 11), 0),) * 10


def test_a_long_crawl_is_judged_by_its_last_tenth_beside_the_second() -> None:
    """The first tenth fills caches; the curve of all is in the notes, and drawn."""
    tenths = tuple(Tenth(100.0 + number, number << 20) for number in range(10))
    cpu, own = long.rows(1000, replace(result(5), tenths=tenths))
    assert cpu.measured == pytest.approx(109 / 101)
    assert own.measured == 8 << 20
    assert "100, 101" in cpu.note
    assert [panel.curves[0].x[-1] for panel in long.picture(1000, tenths).panels] == [1000, 1000]


def test_who_could_not_crawl_is_named_with_the_reason() -> None:
    """And so is each ratio that has no figure for it; such a run fails."""
    held = outcome(bare=[2])
    held.faults["durable"] = "No such option"
    shown = list(rows("one-host", (BARE, DURABLE), (Compared(name="durable", over="bare"),), held))
    assert [(row.name, row.note) for row in shown if row.measured is None] == [
        ("one-host/durable", "No such option"),
        ("one-host/durable-bare-x", "there is no figure of durable"),
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)  # whole crawls, on a machine that others may use
def test_the_product_and_the_bare_loop_crawl_the_whole_site_by_names(tmp_path: Path) -> None:
    """They run one round each, as in the bench; the folders of their crawls are gone afterwards."""
    held = raced(Site(pages=90, hosts=7, is_named=True), (BARE, DURABLE), setting(tmp_path, 90))
    assert held.faults == {}
    assert all(each[0].pages_per_s > 0 and each[0].cpu_us > 0 for each in held.results.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(900)  # whole crawls, on a machine that others may use
def test_a_crawl_that_did_not_fetch_all_is_no_figure(tmp_path: Path) -> None:
    """It is an error that is told, and its contestant is not asked again."""
    lazy = Contestant(name="lazy", what="", command=ours("--limit", "5"), environment=DURABLE.environment)
    told: list[str] = []
    held = raced(Site(pages=200), (lazy,), replace(setting(tmp_path, 200, rounds=2), say=told.append))
    assert "of 200 pages were fetched" in held.faults["lazy"]
    assert (held.results, len(told)) == ({}, 1)


@pytest.mark.slow
@pytest.mark.timeout(900)  # whole crawls, on a machine that others may use
def test_a_setting_that_the_product_does_not_know_is_named_with_its_words(tmp_path: Path) -> None:
    """Never skipped silently, and no figure."""
    odd = Contestant(name="odd", what="", command=ours("--set", "crawl.wheels=4"), environment=DURABLE.environment)
    assert "crawl.wheels is unknown" in raced(Site(pages=3), (odd,), setting(tmp_path, 3)).faults["odd"]


def test_the_same_loop_is_asked_of_everyone(tmp_path: Path) -> None:
    """By name, whichever it is: left to itself the product takes uvloop where that is installed, and the peers asyncio."""

    class Found:
        def python(self, peer: str) -> Path:
            return Path(peer)

    class Served:
        site, seed = Site(pages=1), "http://127.0.1.1/pages/0.html"

    for loop, other in (("asyncio", "uvloop"), ("uvloop", "asyncio")):
        task = Task(server=Served(), loop=loop, folder=tmp_path, peers=Found())  # type: ignore[arg-type]
        for one in (BARE, SCRAPY, CRAWLEE, *TUNED, *OURS):
            assert loop in one.command(task)
            assert other not in one.command(task)


def test_plain_sockets_ask_for_every_page_once(tmp_path: Path) -> None:
    """All pages are fetched, whether they fill the last share or not. (nginx logs milliseconds: two pages may share one.)"""
    for pages in (2, 200):
        assert raced(Site(pages=pages), (RAW,), setting(tmp_path, pages), serve=process.serving).faults == {}


def test_each_round_goes_back_the_way_the_one_before_came(tmp_path: Path) -> None:
    """So whoever is beside another is so in all rounds, and nobody is always the first."""
    told: list[str] = []
    each = tuple(replace(RAW, name=name) for name in "abc")
    raced(Site(pages=5), each, replace(setting(tmp_path, 5, rounds=3), say=told.append), serve=process.serving)
    assert [line[0] for line in told] == [*"abc", *"cba", *"abc"]


def test_both_crawls_of_which_memory_is_compared_have_the_same_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nginx could serve the small site."""
    served: list[object] = []

    def noted(site: Site, *_: object, serve: object = None, **__: object) -> Outcome:
        served.append(serve)
        return outcome(durable=[1])

    monkeypatch.setattr(memory, "raced", noted)
    list(memory.grown(setting(tmp_path, 1)))
    assert served == [process.serving, process.serving]


def test_the_site_is_in_the_folder_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That nginx has it."""
    asked: list[Path] = []

    def serving(site: Site, cores: Set[int], folder: Path) -> AbstractContextManager[process.Server]:
        asked.append(folder)
        return process.serving(site, cores)

    monkeypatch.setattr(nginx, "fits", lambda _: True)
    monkeypatch.setattr(nginx, "serving", serving)
    assert raced(Site(pages=5), (RAW,), setting(tmp_path, 5)).faults == {}
    assert asked == [tmp_path]


def test_memory_is_judged_by_what_the_larger_crawl_takes_more() -> None:
    """At its most, whenever that was; what both take is no matter."""
    small, large = replace(result(1), own_bytes=10 << 20), replace(result(1), own_bytes=60 << 20)
    *each, added = memory.rows({20: small, 200: large})
    assert [row.measured for row in each] == [10 << 20, 60 << 20]
    assert (added.measured, added.target, added.is_bound) == (50 << 20, 50e6, True)


def test_a_long_crawl_is_judged_by_how_much_dearer_a_page_is() -> None:
    """By CPU time, many known URLs over few, in each round; of the rounds the median."""
    few = [result(1, cpu_us=us) for us in (1000.0, 500.0, 1000.0)]
    many = [result(9, cpu_us=us) for us in (1300.0, 1000.0, 1100.0)]
    *each, found = knowing.rows({10: few, 100: many})
    assert [row.measured for row in each] == [1000.0, 1100.0]
    assert (found.measured, found.target, found.is_bound) == (1.3, 1.25, True)
    assert found.note == "1.1 to 2 in 3 rounds"


@pytest.mark.slow
@pytest.mark.timeout(900)  # whole crawls, on a machine that others may use
def test_a_job_that_knows_urls_fetches_the_new_ones_alone(tmp_path: Path) -> None:
    """Loaded URLs are not requested, and all pages are, though a chain of pages is longer than a crawl's default depth."""
    with ExitStack() as running:
        job = knowing._loaded(50, setting(tmp_path, 64 * 22), running)
        assert all(knowing.goes_on(job).pages_per_s > 0 for _ in range(2))
    assert list(tmp_path.iterdir()) == [job.folder]


def test_the_subject_is_known_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong group is refused with the names of the right ones; what a subject does not take is refused."""
    assert bench.main(["crawl", "--only", "host"]) == 2
    told = capsys.readouterr().err
    assert all(group.name in told for group in GROUPS)
    assert bench.main(["dedup", "--rounds", "3"]) == 2
    assert "--rounds is for crawl" in capsys.readouterr().err
    assert bench.main(["profile", "--rounds", "3"]) == 2
    assert "--rounds is for crawl, not for profile" in capsys.readouterr().err
    assert bench.main(["crawl", "--pages", "0"]) == 2
