"""`anabranch compare --filters`: what the filters are asked, and how their answers are judged and shown."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path

import numpy as np
import pyfusefilter
import pytest

from anabranch.crawler import runtime
from anabranch.crawler.lab.filters import contestants
from anabranch.crawler.lab.filters.asking import ANSWERS, ASKINGS, LINKS, POINTS, FilterTrial, pages_in
from anabranch.crawler.lab.filters.compare import STEPS, FilterOptions, batches, check, pages_of, run
from anabranch.crawler.lab.filters.compare_report import (
    AskedShare,
    FilterComparison,
    FilterEnding,
    FilterPoint,
    FilterRun,
    Losses,
    hits_interval,
    judged,
    report_of,
)
from anabranch.crawler.lab.filters.contestants import CONTESTANTS, FilterSize, opener_of
from anabranch.crawler.lab.report import LabReport
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.lab.web.shape import make_web
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from anabranch.dedup.errors import BadParameters
from anabranch.frontier.seen import ExactFilter
from tests.acceptance.blocking import Children
from tests.rows import each_row

SMALL = FilterOptions(filters=("exact",), pages=300, hosts=10)
SIZE = FilterSize(expected=1000, false_positive=1e-3)
MEBIBYTE = 1 << 20


def quiet(done: int, total: int, what: str) -> None:
    """Progress that goes nowhere."""


def named(number: int) -> str:
    return f"url {number}"


def judge(numbers: Sequence[int], answers: Sequence[int], stops: Sequence[int] = ()) -> tuple[Losses, tuple[int, ...]]:
    return judged(np.array(numbers, dtype=np.int64), np.array(answers, dtype=np.bool_), stops, named)


# The truth


def test_a_filter_that_answers_as_a_set_does_loses_nothing() -> None:
    """New at the first appearance, known from then on."""
    losses, dropped = judge([0, 1, 0, 2], [1, 1, 0, 1], [2, 4])
    assert losses == Losses(lost=0, late=0, again=0, named=())
    assert dropped == (0, 0)


def test_a_url_that_is_never_called_new_is_lost() -> None:
    """However often its links come; it is named, and the curve steps at its first link."""
    losses, dropped = judge([0, 1, 1, 2, 1], [1, 0, 0, 1, 0], [1, 2, 5])
    assert losses == Losses(lost=1, late=0, again=0, named=("url 1",))
    assert dropped == (0, 1, 1)


def test_a_url_that_is_called_new_later_is_late_and_not_lost() -> None:
    """A filter that splits may learn better."""
    losses, dropped = judge([0, 0, 0], [0, 1, 0], [1, 3])
    assert losses == Losses(lost=0, late=1, again=0, named=())
    assert dropped == (1, 1)


def test_a_known_url_that_is_called_new_would_be_fetched_again() -> None:
    """Each time counts."""
    assert judge([0, 0, 1, 0], [1, 1, 1, 1])[0] == Losses(lost=0, late=0, again=2, named=())


def test_twenty_lost_urls_are_named() -> None:
    """The first ones."""
    losses, _ = judge(range(30), [0] * 30)
    assert losses.lost == 30
    assert losses.named == tuple(map(named, range(20)))


# The links


def test_a_made_web_gives_the_links_of_every_page() -> None:
    """The seeds first; each link of a page once; every URL of the web is found, and is linked before it is visited."""
    options = WebOptions(pages=300, hosts=10)
    web = make_web(options)
    pages = list(pages_of(web))
    assert pages[0] == [url.encode() for url in web.seeds]
    assert all(len(set(page)) == len(page) for page in pages)
    links = [url for page in pages for url in page]
    assert len(set(links)) == options.pages < len(links)
    first = web.page(web.seeds[0])
    assert first is not None
    assert set(pages[1]) == {url.encode() for url in (*first.links, *first.embeds)}


def test_a_list_is_asked_for_in_batches_as_of_a_page() -> None:
    """A URL that repeats within a batch counts once; one that repeats in another batch counts there."""
    urls = [b"%d" % number for number in range(19)]
    assert list(batches([*urls, urls[0], urls[1], b"new"])) == [urls, [urls[1], b"new"]]


def test_pages_are_read_as_they_were_written() -> None:
    """A URL a line, an empty line after each page."""
    assert list(pages_in(io.BytesIO(b"a\nb\n\nc\n\n"))) == [[b"a", b"b"], [b"c"]]


# The contestants


@pytest.mark.parametrize("name", [name for name, kind in CONTESTANTS.items() if not kind.is_static])
def test_each_filter_knows_after_a_reopening_what_was_marked(tmp_path: Path, name: str) -> None:
    """And takes nothing unlike it for known."""
    urls = [b"http://%d.example/%d/%d" % (number, number, number) for number in range(50)]
    seen = opener_of(name)(tmp_path, SIZE)
    assert all(seen.unseen(urls[:40]))
    seen.mark(urls[:40])
    assert not any(seen.unseen(urls[:40]))
    seen.close()
    again = opener_of(name)(tmp_path, SIZE)
    assert not any(again.unseen(urls[:40]))
    assert all(again.unseen(urls[40:])) or name == "similar"
    again.close()


def test_what_a_sync_wrote_is_not_written_again(tmp_path: Path) -> None:
    """The similarity filter keeps marks until the sync."""
    seen = opener_of("similar")(tmp_path, SIZE)
    for url in (b"http://a.example/1/2", b"http://b.example/3/4/5"):
        seen.mark([url])
        seen.sync()
    seen.close()
    assert "2 urls" in repr(opener_of("similar")(tmp_path, SIZE)._filter)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name, kind in CONTESTANTS.items() if kind.is_static])
def test_a_static_filter_knows_what_it_was_built_of(tmp_path: Path, name: str) -> None:
    """Also after a reopening; others are nearly all new."""
    urls = [b"http://%d.example/" % number for number in range(5_000)]
    seen = opener_of(name)(tmp_path, SIZE)
    seen.mark(urls[:4_000])
    seen.close()
    for each in (seen, opener_of(name)(tmp_path, SIZE)):
        assert not any(each.unseen(urls[:4_000]))
        assert sum(each.unseen(urls[4_000:])) > 950


@pytest.mark.parametrize("name", [name for name, kind in CONTESTANTS.items() if kind.package])
def test_a_peer_says_how_large_it_is(tmp_path: Path, name: str) -> None:
    """With the memory of a URL given it is as large as that allows, in place of the rate."""
    urls = [b"http://%d.example/" % number for number in range(4_000)]
    size = FilterSize(expected=4_000, false_positive=1e-3, bits=30.0)
    seen = opener_of(name)(tmp_path, size)
    seen.mark(urls)
    bits = float(seen.facts()["filter_bits"]) / len(urls)
    assert bits <= 30.0 or (name == "cuckoo" and bits < 40.0)
    assert bits > 27.0 or name in ("cuckoo", "fuse8", "fuse16")


def test_a_filter_that_no_rate_makes_so_small_says_so(tmp_path: Path) -> None:
    """In a comparison at equal memory it is left out."""
    for name in ("fuse16", "rbloom"):
        with pytest.raises(UsageError, match=r"^--bits"):
            opener_of(name)(tmp_path, FilterSize(expected=4_000, false_positive=1e-3, bits=0.5))


def test_the_library_of_fuse_filters_is_asked_with_a_hash_of_ours() -> None:
    """Its own passes a text to xxhash, which that refuses since version 4. If this name is gone, so is the reason."""
    assert callable(pyfusefilter.pyfusefilter.hash)


def test_a_missing_peer_is_one_line_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in an extra."""
    monkeypatch.setattr(contestants, "find_spec", lambda package: None if package == "scf" else "there")
    with pytest.raises(
        UsageError, match=r"^--filters cuckoo needs the package cjrh-scalable-cuckoo-filter: .* install '.*\[peers\]'$"
    ):
        check(replace(SMALL, filters=("exact", "rbloom", "cuckoo")))


# One filter


def ask(folder: Path, pages: Sequence[Sequence[bytes]], seen: type[ExactFilter] = ExactFilter) -> list[list[float]]:
    """The points of a filter that is made anew by each opening."""
    (folder / LINKS).write_bytes(b"".join(b"\n".join((*page, b"", b"")) for page in pages))
    links = sum(map(len, pages))
    points: list[FilterPoint] = []
    with FilterTrial(lambda *_: seen(), folder, links, SIZE) as trial:
        while not points or points[-1].links < links:
            points.append(trial.fill())
        ending = trial.end()
    urls = {url for page in pages for url in page}
    assert ending["forgotten"] == len(urls) == ending["urls"], "a set in memory forgets all"
    assert (ending["probes"], ending["false_hits"]) == (links, 0)
    return [list(point) for point in points]


@pytest.mark.parametrize(("count", "size"), [(1, 1), (3, 3), (21, 1), (39, 1), (119, 7), (200, 7)])
def test_the_last_point_is_of_all_links(tmp_path: Path, count: int, size: int) -> None:
    """However they are divided into pages, and there are no more points than planned."""
    urls = [b"http://a.example/%d" % number for number in range(count)]
    pages = [urls[start : start + size] for start in range(0, count, size)]
    points = ask(tmp_path, pages)
    assert points[-1][0] == count
    assert len(points) <= POINTS
    assert sorted(points) == points


def test_answers_are_a_byte_for_each_link(tmp_path: Path) -> None:
    """In their order."""
    ask(tmp_path, [[b"a", b"b"], [b"b", b"c"], [b"a"]])
    assert (tmp_path / ANSWERS).read_bytes() == bytes([1, 1, 0, 1, 0])


def test_only_new_urls_are_marked_and_a_filter_is_synced_on_the_way(tmp_path: Path) -> None:
    """A crawl does the same."""
    calls: list[object] = []

    class Recorded(ExactFilter):
        def mark(self, keys: Sequence[bytes]) -> None:
            calls.append(list(keys))
            super().mark(keys)

        def sync(self) -> None:
            calls.append("sync")

    ask(tmp_path, [[b"a", b"b"], [b"b"], [b"b", b"c"]], Recorded)
    assert [call for call in calls if call != "sync"] == [[b"a", b"b"], [b"c"]]
    assert "sync" in calls


def test_known_links_are_asked_for_in_shares_again_and_again(tmp_path: Path) -> None:
    """All of them in as many shares as while it was filled; the first share follows the last."""
    urls = [b"http://a.example/%d" % number for number in range(60)]
    (tmp_path / LINKS).write_bytes(b"".join(b"%b\n\n" % url for url in urls))
    with FilterTrial(lambda *_: ExactFilter(), tmp_path, 60, SIZE) as trial:
        for _ in range(POINTS):
            trial.fill()
        shares = [trial.ask() for _ in range(POINTS + 1)]
    assert [links for links, _ in shares] == [3] * (POINTS + 1)
    assert all(cpu_us >= 0 for _, cpu_us in shares)


# All together


@pytest.fixture
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of each filter is forked: a fresh one spends most of its time on imports."""
    monkeypatch.setattr(runtime, "subprocess", Children(("anabranch.crawler.lab.filters.asking", "rbloom")))


def test_a_filter_that_is_too_small_loses_urls_and_an_exact_one_none() -> None:
    """A Bloom filter for 10 URLs takes nearly all for known; each filter is a process of its own."""
    told: list[tuple[int, int, str]] = []
    found = run(replace(SMALL, filters=("exact", "rbloom"), expected=10), lambda *step: told.append(step))
    (exact,), (bloom,) = (table.rows for table in found.tables[:2])
    assert exact[:4] == ("exact", 0, 0.0, 0)
    assert bloom[0] == "rbloom"
    assert isinstance(bloom[1], int)
    assert 200 < bloom[1] < 300
    assert [row[0] for row in found.tables[-1].rows] == ["rbloom"] * 20
    assert all(str(row[1]).startswith("http://") for row in found.tables[-1].rows)
    assert found.closing[0] == "No URL lost: exact."
    assert found.data is not None
    json.dumps(found.data)
    assert {what.partition(",")[0] for _, _, what in told} == {"making the links", "exact", "rbloom"}
    assert all(done <= total == 1 + 3 * STEPS for done, total, _ in told)


@pytest.mark.usefixtures("_forked")
def test_sizes_on_disk_are_those_of_the_filters_own_folder() -> None:
    """The file with the links is not counted."""
    options = replace(SMALL, filters=("rbloom",), expected=1 << 16, false_positive=0.5, bits=0)
    found = run(options, quiet).tables[0]
    (row,) = found.rows
    bytes_needed = (1 << 16) / np.log(2) / 8
    size = row[found.columns.index("disk, MiB")]
    assert isinstance(size, float)
    assert bytes_needed <= size * MEBIBYTE < bytes_needed + (8 << 10)


@pytest.fixture
def own_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with a user's filters."""
    (tmp_path / "mine_of_compare.py").write_text(
        "import time\n\n"
        "from anabranch.frontier.seen import ExactFilter\n\n"
        "class Own(ExactFilter):\n"
        "    def __init__(self, folder):\n"
        "        print('hello')\n"
        "        super().__init__()\n\n"
        "class Broken(Own):\n"
        "    def mark(self, keys):\n"
        "        raise ValueError('no room')\n\n"
        "class Short(Own):\n"
        "    def unseen(self, keys):\n"
        "        return [True]\n\n"
        "class Hanging(Own):\n"
        "    def mark(self, keys):\n"
        "        super().mark(keys)\n"
        "        if len(self._keys) > 100:\n"
        "            time.sleep(3600)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("own_filters", "_forked")
def test_a_filter_of_ones_own_is_named_by_its_class() -> None:
    """It may print; that it does not last is said."""
    found = run(replace(SMALL, filters=("mine_of_compare:Own",)), quiet)
    assert found.tables[0].rows[0][:4] == ("mine_of_compare:Own", 0, 0.0, 0)
    assert (
        found.closing[-1] == "mine_of_compare:Own DOES NOT LAST: opened again, it does not know 300 of its first URLs."
    )


@pytest.mark.usefixtures("own_filters", "_forked")
@pytest.mark.parametrize(
    ("name", "why"), [("Broken", "ValueError: no room"), ("Short", "it gave .* answers for .* links")]
)
def test_a_filter_that_breaks_is_one_line(name: str, why: str) -> None:
    """With its name and the reason."""
    with pytest.raises(CrawlerError, match=f"^--filters: mine_of_compare:{name} broke: {why}$"):
        run(replace(SMALL, filters=(f"mine_of_compare:{name}",)), quiet)


@pytest.mark.usefixtures("own_filters", "_forked")
def test_an_interrupt_ends_the_process_at_once() -> None:
    """Even one that hangs."""

    def interrupt(done: int, total: int, what: str) -> None:
        if done == 2:  # the second share
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(replace(SMALL, filters=("mine_of_compare:Hanging",)), interrupt)


LOG = "2026-11-22T07:00:00.{0:03}Z 200 900 http://a.test/{1} {2} {3} text/html #001 20261122070000{0:03}+40 - - -\n"


@pytest.mark.usefixtures("_forked")
def test_the_urls_of_a_crawl_log_are_asked_for(tmp_path: Path) -> None:
    """Each was found once, on the page that it was logged with."""
    log = tmp_path / "crawl.log"
    lines = [LOG.format(1, "", "-", "-"), *(LOG.format(n, n, "L", "http://a.test/") for n in range(2, 9))]
    log.write_text("".join((*lines, LOG.format(9, "robots.txt", "P", "http://a.test/"))))
    found = run(FilterOptions(filters=("exact",), replay=log), quiet)
    source, _, rest = found.tables[0].title.rpartition(": ")
    assert source.startswith(f"the URLs of {log} (1 URLs are left out")
    assert rest == "8 links of 2 pages lead to 8 URLs; filters for 8; durable ones, made for a rate of 0.001"


@pytest.mark.usefixtures("_forked")
def test_a_list_of_urls_is_asked_for(tmp_path: Path) -> None:
    """The URLs are taken unchanged from the file."""
    urls = tmp_path / "urls.txt"
    urls.write_text("".join(f"http://a.test/{number % 30}\n" for number in range(60)))
    found = run(FilterOptions(filters=("dsbf",), urls=urls, expected=500), quiet)
    assert found.tables[0].title.startswith(
        f"the URLs of {urls}: 60 links of 3 pages lead to 30 URLs; filters for 500; durable ones"
    )


@each_row(
    ("options", "said"),
    [
        ({"filters": ("smm", "exact", "smm")}, "--filters: smm,exact,smm names one of them twice"),
        ({"kinds": ("portals", "subdomains")}, "--kind: --filters takes one web, not portals,subdomains"),
        ({"urls": Path("u"), "replay": Path("c")}, "--urls and --replay name other links"),
        ({"urls": Path("u"), "pages": 7}, "--urls: --pages would make another web"),
        ({"replay": Path("c"), "seed": 2, "hosts": 3}, "--replay: --hosts, --seed would make another web"),
        ({"pages": 3}, "pages 3: give at least one"),
        ({"bits": -1.0}, r"--bits -1: it must be 0, or the bits"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, object], said: str) -> None:
    """Before anything is started, in one line."""
    with pytest.raises(UsageError, match=said):
        check(FilterOptions(**options))  # type: ignore[arg-type]  # fields by name


def test_an_unknown_filter_and_an_impossible_rate_are_refused() -> None:
    """The error is that of the filters themselves."""
    with pytest.raises(BadParameters, match=r"filter 'bloom' is unknown; give package\.module:function or smm, dsbf"):
        check(FilterOptions(filters=("bloom",)))
    with pytest.raises(BadParameters, match="false_positive is 2"):
        check(FilterOptions(false_positive=2.0))


# The report


def filter_run(name: str, **more: float) -> FilterRun:
    losses = {"lost": 0, "late": 0, "again": 0} | {
        key: int(more[key]) for key in more.keys() & {"lost", "late", "again"}
    }
    us, size, shares = more.get("us", 10), int(more.get("size", 1)), int(more.get("shares", 10))
    return FilterRun(
        name=name,
        points=tuple(
            FilterPoint(20 * number, 30.0 * us * number, 20.0 * us * number, size * MEBIBYTE, 2 * size * MEBIBYTE)
            for number in range(1, shares + 1)
        ),
        dropped=(*[0] * (shares - 1), losses["lost"] + losses["late"]),
        losses=Losses(named=("http://a/",) * (losses["lost"] > 0), **losses),
        ending=FilterEnding(
            disk_bytes=int(more.get("disk", 1)) * MEBIBYTE,
            sync_s=0.5,
            close_s=0.25,
            open_s=0.125,
            expected_lost=None,
            forgotten=int(more.get("forgotten", 0)),
            probes=1000,
            false_hits=int(more.get("hits", 0)),
            filter_bits=1500.0,
            urls=100,
        ),
        asked=(AskedShare(20, 10.0 * us),) * ASKINGS,
    )


def static_run(name: str, **more: float) -> FilterRun:
    run = filter_run(name, shares=1, **more)
    return replace(run, dropped=())


def report(*runs: FilterRun, **more: object) -> LabReport:
    shape = {"source": "a web", "pages": 20, "links": 200, "urls": 100, "expected": 100, "false_positive": 1e-3}
    return report_of(FilterComparison(runs=runs, **shape, **more), {"pages": 20})  # type: ignore[arg-type]  # fields by name


def test_a_row_has_what_a_link_takes_and_what_the_filter_takes() -> None:
    """Times of a link are of asking and marking alone; known ones have a time of their own."""
    (row,) = report(filter_run("both", lost=3, again=2, size=4, disk=5, hits=7)).tables[0].rows
    assert row == ("both", 3, None, 2, 0.007, 15.0, 15.0, 10.0, 5.0, 4.0, 8.0, 5.0, 500.0, 250.0, 125.0)


def test_durable_filters_those_in_memory_and_static_ones_have_tables_of_their_own() -> None:
    """What a kill leaves, and whether they can be filled, are no matters of degree. A user's own counts as durable."""
    runs = [filter_run(name) for name in ("rbloom", "exact", "my.module:Own", "cuckoo")]
    found = report(static_run("fuse8"), *runs)
    durable, in_memory, static, ratios = found.tables
    assert [row[0] for row in durable.rows] == ["exact", "my.module:Own"]
    assert [row[0] for row in in_memory.rows] == ["rbloom", "cuckoo"]
    assert [row[0] for row in static.rows] == ["fuse8"]
    assert [len(row) for row in ratios.rows] == [5] * 4
    assert all(len(row) == len(table.columns) for table in found.tables for row in table.rows)


def test_the_fastest_of_those_that_lose_none_is_named() -> None:
    """One that loses URLs is not among them, however fast; a filter that drops similar URLs on purpose is not ranked."""
    found = report(
        filter_run("rbloom", us=1, lost=2),
        filter_run("exact", us=30, size=2, disk=1),
        filter_run("both", us=20, size=3, disk=4),
        filter_run("similar", us=2, lost=50),
    )
    assert found.closing[:2] == ("No URL lost: exact, both.", "rbloom lost 2 of 100 URLs (2 %).")
    fastest, smallest = found.closing[2:4]
    assert fastest == (
        "Of those that lost none, both is the fastest (20 µs of CPU a link); exact, the next, "
        "takes 1.5 (95 %: 1.5 to 1.5) times as long."
    )
    assert smallest == "exact takes the least memory of these (2 MiB), exact the least disk (1 MiB)."
    assert "similar drops URLs that resemble others on purpose" in found.tables[0].note
    assert "similar" not in report(filter_run("both")).tables[0].note


def test_no_fastest_is_named_where_the_shares_do_not_agree() -> None:
    """One that is slower in some shares and quicker in others shows no difference; so do too few shares."""
    exact, both = filter_run("exact", us=10), filter_run("both", us=10)
    ups_and_downs = (150, 400, 550, 800, 950, 1200, 1350, 1600, 1750, 2010)
    uneven = tuple(point._replace(cpu_us=1.0 * us) for point, us in zip(both.points, ups_and_downs, strict=True))
    undecided = "Of those that lost none, no difference in time is shown between exact, both, the fastest."
    assert undecided in report(exact, replace(both, points=uneven)).closing
    few = report(filter_run("exact", us=10, shares=4), filter_run("both", us=90, shares=4))
    assert undecided in few.closing
    assert few.tables[1].rows[0][1:3] == (9.0, "")


def test_at_equal_memory_the_fewest_false_hits_are_named_if_the_intervals_part() -> None:
    """Else the ones that could be the best."""
    runs = (filter_run("both"),)
    apart = report(*runs, bits=20.0, at_memory=(filter_run("rbloom", hits=3), filter_run("cuckoo", hits=200)))
    assert "With at most 20 bits a URL, rbloom makes the fewest false hits (3.0e-03)." in apart.closing
    assert apart.tables[1].title.startswith("Equal memory: in memory filters, made for at most 20 bits")
    assert apart.tables[1].rows[0][:3] == ("rbloom", 15.0, 0.003)
    near = report(*runs, bits=20.0, at_memory=(filter_run("rbloom", hits=3), filter_run("cuckoo", hits=4)))
    assert any("no difference in false hits is shown between rbloom, cuckoo" in line for line in near.closing)
    large = report(*runs, bits=9.0, too_large=("fuse16",))
    assert "More than 9 bits a URL whatever the rate: fuse16." in large.closing


def test_the_interval_of_a_rate_is_wilsons() -> None:
    """Three hits of 1,000, by the formula; without a hit it ends above 0."""
    assert hits_interval(filter_run("rbloom", hits=3)) == pytest.approx((0.00102, 0.00878), abs=1e-5)
    low, high = hits_interval(filter_run("rbloom"))
    assert (low, high) == (0.0, pytest.approx(0.00383, abs=1e-5))


def test_each_says_what_it_is_made_for() -> None:
    """In one sentence; a user's own has none."""
    closing = report(filter_run("rbloom"), filter_run("my.module:Own")).closing
    assert [line for line in closing if line.startswith(("rbloom: ", "my.module:Own: "))] == [
        "rbloom: a classic Bloom filter, for a number that is known before: nearly the least memory for a rate."
    ]


def test_what_forgets_is_shouted() -> None:
    """Both would be defects of a filter of ours."""
    closing = report(filter_run("own", again=3, forgotten=4, late=5)).closing
    assert closing == (
        "No URL lost: none of the filters.",
        "own dropped 5 URLs at first and called them new when they came again.",
        "own FORGETS: it called known URLs new 3 times; a crawl would fetch them again.",
        "own DOES NOT LAST: opened again, it does not know 4 of its first URLs.",
    )


def test_four_panels_have_every_filter() -> None:
    """Losses and times as curves, space and opening as bars. 0 is a gap: it has no place on a log axis."""
    lost, times, space, opening = report(filter_run("both"), filter_run("smm", lost=7)).panels
    assert [curve.label for curve in lost.curves] == ["both: 0", "smm: 7"]
    assert isnan(lost.curves[1].y[0])
    assert lost.curves[1].y[-1] == 7.0
    assert times.curves[0].y == (10.0,) * 10, "of the links between two points"
    assert space.names == opening.names == ("both", "smm")
    assert [curve.label for curve in space.curves] == ["memory", "resident, mapped files included", "disk"]
    assert [curve.y for curve in opening.curves] == [(250.0, 250.0), (125.0, 125.0)]


def test_json_and_csv_have_every_point() -> None:
    """By name, and as rows."""
    found = report(filter_run("smm", lost=7))
    assert found.data is not None
    data = json.loads(json.dumps(found.data))
    assert data["options"] == {"pages": 20}
    (kept,) = data["runs"]
    assert dict(zip(data["columns"], kept["points"][1], strict=True))["links"] == 40
    assert kept["losses"]["named"] == ["http://a/"]
    assert found.csv_tables[0].rows[-1][:3] == ("smm", 200, 7)
    assert found.csv_tables[1].rows[0] == ("smm", 1, 20, 100.0)
