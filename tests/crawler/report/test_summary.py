"""Reports as literal text."""

from __future__ import annotations

from collections import Counter

from anabranch.crawler.accounts.totals import Totals
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.report.summary import RunFacts, crawl_report, opening_line
from anabranch.frontier.inspect.statistics import FrontierStatistics
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind
from tests.crawler.builder import memory_frontier
from tests.rows import each_row

SEED = "http://a.test/"

ANSWERED = SeedFact("http://b.test/", 200, "", None)
MOVED = SeedFact("http://a.test/", 301, "", "http://www.a.test/")
DEAD = SeedFact("http://dead.test/", -1, "no such name: dead.test", None)
SHUT = SeedFact("http://c.test/", -9998, "", None)
UNTRIED = SeedFact("http://z.test/", 0, "", None)


def facts(*seeds, elapsed_s=125.0, lost=0.0, job="jobs/portals", mimes=None, retired=0, leases_lost=0, **rounds):
    return RunFacts(
        job=job,
        ended="finished: nothing is queued",
        elapsed_s=elapsed_s,
        seeds=list(seeds),
        run=CrawlStatistics(
            started_s=0.0,
            pages=250,
            failed=2,
            excluded=1,
            robots=3,
            fetched_bytes=3 << 20,
            by_status=Counter({200: 240, 404: 10, -2: 2}),
            by_mime=mimes or Counter({"text/html": 247, "no-type": 3}),
        ),
        frontier=FrontierStatistics(
            pending=40,
            waiting=1,
            in_flight=2,
            done=900,
            failed=5,
            disregarded=6,
            retired=retired,
            queues={},
            gates=1,
            gates_open=1,
            parked=0,
            leases_lost=leases_lost,
            unsynced_rows=0,
            why_idle="",
            seen={"keys": 953.0, "expected_lost": lost},
        ),
        **rounds,
    )


def test_the_crawl_report_tells_this_run_and_the_job() -> None:
    """One fact a line, then what became of the URLs, then what the pages are; the most frequent first."""
    assert crawl_report(facts(ANSWERED, DEAD, lost=0.02)) == (
        "job            jobs/portals\n"
        "ended          finished: nothing is queued\n"
        "duration       2m 5s\n"
        "seeds          1 answered, 1 not\n"
        "this run       250 pages, 2 failed, 1 excluded, 3 robots.txt\n"
        "fetched        3.0 MiB, 2.0 pages/s\n"
        "job so far     900 pages, 5 failed, 6 excluded\n"
        "still queued   42\n"
        "dedup          953 URLs known; 0.02 expected lost\n"
        "           240 200 OK\n"
        "            10 404 Not Found\n"
        "             2 -2 connect failed\n"
        "           247 text/html\n"
        "             3 no-type\n"
    )


@each_row(
    ("given", "line"),
    [
        (
            {"round_number": 2, "all_rounds": Totals(urls=2003, prerequisites=3, failures=9, disregards=8)},
            "round 2        900 pages, 5 failed, 6 excluded\nall rounds     2,000 pages, 9 failed, 8 excluded\nstill",
        ),
        ({"elapsed_s": 0.0}, "fetched        3.0 MiB, 0.0 pages/s\n"),
        ({"lost": 1e-9}, "dedup          953 URLs known; none expected lost\n"),
        ({"lost": 1e-6}, "dedup          953 URLs known; 1e-06 expected lost\n"),
        ({"retired": 7}, "still queued   42\nretired        7 URLs, in queues over their budget or put aside\ndedup"),
        ({"leases_lost": 3}, "still queued   42\nleases lost    3, their URLs were fetched again\ndedup"),
    ],
)
def test_the_crawl_report_keeps_to_what_can_be_said(given, line) -> None:
    """No rate of no time, no losses that nobody will see."""
    assert line in crawl_report(facts(**given))


def test_the_faults_of_sitemaps_are_named() -> None:
    """If there were any: what was skipped is no secret."""
    assert "sitemaps " not in crawl_report(facts())
    broken = facts()
    broken.run.sitemap_faults = Counter(sitemaps=2, tags=1400, bytes=3)
    line = "sitemaps       2 had faults and were read as far as possible: bad bytes (3), bad tags (1,400)\n"
    assert line in crawl_report(broken)


def test_pages_without_the_answer_of_a_cdx_server_are_counted() -> None:
    """If there are any."""
    assert "CDX" not in crawl_report(facts())
    some = facts()
    some.run.cdx_unanswered = 1400
    assert "CDX servers    gave no answer for 1,400 pages, which may be archived twice\n" in crawl_report(some)


def test_rare_types_share_a_line() -> None:
    """However many types the servers invent, the report stays short."""
    mimes = Counter({f"a/{number:02}": 20 - number for number in range(13)})
    lines = crawl_report(facts(mimes=mimes)).splitlines()[-11:]
    assert lines[0] == "            20 a/00"
    assert lines[-2:] == ["            11 a/09", "            27 other types"]


def test_a_type_is_shown_without_harm_to_the_terminal() -> None:
    """Servers write the header: control characters are escaped, long types cut."""
    lines = crawl_report(facts(mimes=Counter({"\x1b[2j\udcff": 2, "x" * 200: 1}))).splitlines()[-2:]
    assert lines == ["             2 \\x1b[2j\\udcff", "             1 " + "x" * 60]


def test_a_frontier_whose_filter_has_no_figures_says_nothing_about_it() -> None:
    """A program may have one of its own."""
    exact = facts()
    exact = exact._replace(frontier=exact.frontier._replace(seen={}))
    assert "dedup" not in crawl_report(exact)


def test_a_filter_that_loses_whole_sites_says_that_its_estimate_hides_them() -> None:
    """Also one that is expected to lose nothing, as in a crawl that lost 1,000 pages of 1,000."""
    alone = facts()
    seen = {"keys": 1.0, "expected_lost": 1e-9, "smm_is_linear": 1.0}
    said = crawl_report(alone._replace(frontier=alone.frontier._replace(seen=seen)))
    assert (
        "dedup          1 URL known; 1e-09 expected lost, the mean over unrelated URLs: the signature is linear, so two "
        in said
    )
    both = {**seen, "dsbf_asked": 0.0}
    assert "1 URL known; none expected lost\n" in crawl_report(
        alone._replace(frontier=alone.frontier._replace(seen=both))
    )


def test_a_shared_filter_has_a_line_of_its_own() -> None:
    """It counts links left to other crawls, and URLs that another crawl took, too. Other filters have no such line."""
    alone = facts()
    assert "shared dedup" not in crawl_report(alone)
    seen = {"expected_lost": 0.0, "shared_left": 113.0, "shared_twice": 40.0}
    shared = alone._replace(frontier=alone.frontier._replace(seen=seen))
    assert "shared dedup   113 links left to other crawls, 40 URLs taken by another crawl, too\ndedup" in crawl_report(
        shared
    )


async def test_the_opening_line_tells_new_resumed_and_finished_apart(tmp_path) -> None:
    """By what the folder was before, and by what is left."""
    async with memory_frontier(SEED, f"{SEED}1") as frontier:
        with JobFolder.open(tmp_path / "job") as job:
            assert opening_line(job, frontier.core.counts()) == f"new job {tmp_path}/job: 2 URLs queued"
        with JobFolder.open(tmp_path / "job") as job:
            assert opening_line(job, frontier.core.counts()) == f"resuming job {tmp_path}/job: 0 URLs done, 2 queued"
            for kind, status in ((OutcomeKind.DONE, 200), (OutcomeKind.FAILED, -1)):
                frontier.finish(await frontier.lease(), Outcome(kind=kind, status=status))
            frontier.schedule([Candidate(url=f"{SEED}2")])
            assert opening_line(job, frontier.core.counts()) == f"resuming job {tmp_path}/job: 2 URLs done, 1 queued"
            reached = "its limit of 1 page is reached, 1 URL queued; a higher --limit goes on (0: no limit)"
            assert opening_line(job, frontier.core.counts(), 1) == f"job {tmp_path}/job: {reached}"
            assert opening_line(job, frontier.core.counts(), 2).startswith("resuming job ")
            frontier.finish(await frontier.lease(), Outcome(kind=OutcomeKind.DISREGARDED, status=-9998))
            expected = f"job {tmp_path}/job is finished: 1 page; use --again for another round"
            assert opening_line(job, frontier.core.counts()) == expected
            left = frontier.core.counts()._replace(retired=9)
            expected = f"job {tmp_path}/job: 9 URLs left, all in retired queues; raise total_budget to go on"
            assert opening_line(job, left) == expected
