"""The reports of a job, by name, as literal text."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.cli.job_options import NAMES
from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.job.state import Round
from anabranch.crawler.outcomes.errors import NoFolder, UsageError, storage_errors
from anabranch.crawler.report.reports import (
    ALL_NEEDS,
    REPORTS,
    SEEDS_SHOWN,
    JobFacts,
    report_kind,
    seeds_shown,
    seeds_table,
    write_all,
)
from anabranch.crawler.report.statistics import StepTime, WorkerFact
from anabranch.crawler.report.table import text_lines
from anabranch.frontier.inspect.explain import GateView, QueueView
from anabranch.frontier.inspect.statistics import FrontierStatistics
from anabranch.frontier.records import GateKey, QueueKey
from anabranch.frontier.scheduling.lifecycle import QueueState
from tests.crawler.accounts.test_accounts import Entry
from tests.crawler.report.test_summary import ANSWERED, DEAD, MOVED, SHUT, UNTRIED
from tests.rows import each_row

FRONTIER = FrontierStatistics(
    pending=40, waiting=1, in_flight=2, done=900, failed=5, disregarded=6, retired=3,
    queues={"ready": 2, "in-flight": 1}, gates=4, gates_open=1, parked=1, leases_lost=0, unsynced_rows=0,
    why_idle="", seen={},
)  # fmt: skip

A_QUEUE = QueueView(
    QueueKey("a.test"), QueueState.READY, urls=7, waiting=1, out=1, spent=12, budget=-1, lanes=1,
    gates=(GateView(GateKey("a.test"), 1795173753.0, 1.0),),
)  # fmt: skip
HASHED = QueueView(
    QueueKey("12"), QueueState.INACTIVE, urls=9, lanes=3, gates=(GateView(GateKey("b.test"), math.inf, 1.0),)
)


def line(url, status=200, size=10, mime="text/html", **more):
    entry = CrawlLogEntry(
        logged_s=0.0, status=status, size_bytes=size if status > 0 else None, url=url, worker=1, mime=mime, **more
    )
    return crawl_log_line(entry)


@pytest.fixture
def facts(tmp_path):
    now = [0.0]
    accounts = Accounts(tmp_path, tmp_path / "crawl.log", lambda: now[0])
    lines = [
        line("http://a.test/", source="http://a.test/"),
        line("http://a.test/2", 404, 20, source="http://a.test/", annotations=("duplicate:digest",)),
        line("http://a.test/3", -9998),
        line("http://b.test/", 304, 0, "", annotations=("duplicate:server-not-modified",)),
        line("http://b.test/2", -9),
        line("dns:a.test", 1, 5, "text/dns", hops="P"),
    ]
    accounts.append([Entry(each) for each in lines])
    accounts.keep()
    now[0] = 10.0
    accounts.close()
    with AccountsView(tmp_path) as view:
        yield JobFacts(
            name="portals", status="Finished: nothing is queued", now_s=10.0, accounts=view, frontier=FRONTIER,
            seeds=[SeedFact("http://a.test/", 200, "", None), SeedFact("http://z.test/", -1, "", None)],
            longest=[HASHED, A_QUEUE], queues=[A_QUEUE, HASHED],
            workers=[WorkerFact(7, "http://a.test/4", 1, "fetch", 0.5, 0.75)],
            steps={"fetch": StepTime(4, 2.0, 1.5)},
        )  # fmt: skip


EXPECTED = {
    "crawl-summary": """\
Crawl Name: portals
Crawl Status: Finished: nothing is queued
Duration Time: 10s
Total Seeds Crawled: 1
Total Seeds not Crawled: 1
Total Hosts Crawled: 2
URIs Processed: 6
URIs Crawled successfully: 4
URIs Failed to Crawl: 1
URIs Disregarded: 1
Novel URIs: 2
Duplicate-by-hash URIs: 1
Not-modified URIs: 1
Total Crawled Bytes: 35
Novel Bytes: 15
Duplicate-by-hash Bytes: 20
Not-modified Bytes: 0
URIs/sec: 0.40
KB/sec: 0.00
""",
    "seeds": """\
[code] [status] [seed] [redirect or reason]
    -1 NOTCRAWLED http://z.test/ -1 DNS lookup failed
   200 CRAWLED    http://a.test/
""",
    "hosts": """\
[#urls] [#bytes] [host] [#robots] [#remaining] [#novel-urls] [#novel-bytes] [#dup-by-hash-urls] [#dup-by-hash-bytes] \
[#not-modified-urls] [#not-modified-bytes] [#bad-http]
2 30 a.test 1 7 1 10 1 20 0 0 0
1 0 b.test 0 - 0 0 0 0 1 0 1
1 5 dns: 0 - 1 5 0 0 0 0 0
""",
    "mimetypes": "[#urls] [#bytes] [mime-types]\n2 30 text/html\n2 0 unknown\n1 0 no-type\n1 5 text/dns\n",
    "response-codes": "[#urls] [rescode]\n1 -9998\n1 -9\n1 1\n1 200\n1 304\n1 404\n",
    "source": "[source] [host] [#urls]\n- b.test 1\n- dns: 1\nhttp://a.test/ a.test 2\n",
    "frontier-summary": """\
URIs processed: 911
  succeeded: 900
  failed: 5
  disregarded: 6
URIs queued: 40
  waiting for a retry: 1
URIs in process: 2
URIs in retired queues: 3
Queues: 3
  ready: 2
  in-flight: 1
  parked (ready, all gates closed): 1
Gates in memory: 4
  open: 1
Leases lost: 0
Nothing is leased because: -
LONGEST 1: 12 9 inactive
LONGEST 2: a.test 7 ready
""",
    "frontier-nonempty": """\
[queue] [precedence] [currentSize] [totalEnqueues] [sessionBalance] [lastCost(averageCost)] [lastDequeueTime] [wakeTime] \
[totalSpend/totalBudget] [errorCount] [lastPeekUri] [lastQueuedUri] [state] [waiting] [inFlight]
12 3 9 - - - - - 0/-1 - - - inactive 0 0
a.test 3 7 - - - - 2026-11-20T11:22:33Z 12/-1 - - - ready 1 1
""",
    "filter": "[figure] [value] [meaning]\n",
    "workers": "[worker] [processor] [step-s] [lease-s] [try] [uri]\n#007 fetch 0.50 0.75 2 http://a.test/4\n",
    "processors": """\
[processor] [counter] [number]
fetch answers 3
fetch bad HTTP 1
fetch bytes 30
fetch no answer 1
fetch not modified 1
preconditions denied by robots.txt 1
preconditions names looked up 1
fetch visits in this run 4
fetch mean ms in this run 500.00
fetch longest ms in this run 1500.00
""",
}


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_has_heritrix_columns(facts, name) -> None:
    """Every name has its text here: a report without one is not shown."""
    assert "".join(text_lines(REPORTS[name].make(facts))) == EXPECTED[name]


def test_all_reports_are_written_into_their_files(facts, tmp_path) -> None:
    """One file each, with the text of the report."""
    write_all(tmp_path, facts)
    assert len({kind.file for kind in REPORTS.values()}) == len(REPORTS)
    for name, kind in REPORTS.items():
        assert (tmp_path / kind.file).read_text() == EXPECTED[name]


def test_a_report_that_cannot_be_written_names_its_file(facts, tmp_path) -> None:
    """The error is the system's; the caller says it in one line."""
    with pytest.raises(NoFolder, match=r"crawl-report\.txt"), storage_errors(tmp_path):
        write_all(tmp_path / "missing", facts)


def test_when_nothing_is_queued_nothing_remains_of_any_host(facts) -> None:
    """Also of hosts that share their queues."""
    done = replace(facts, frontier=FRONTIER._replace(pending=0, retired=0), queues=())
    assert [row[4] for row in REPORTS["hosts"].make(done).rows] == [0, 0, 0]


@each_row("name", ["nosuch", "", None, 7, []])
def test_an_unknown_name_is_told_with_those_there_are(name) -> None:
    """One line."""
    with pytest.raises(UsageError, match=r"^there is no report .*; choose one of crawl-summary, seeds, .*source$"):
        report_kind(name)


def test_help_names_every_report() -> None:
    """It is written there by hand, since help must be fast."""
    assert [*NAMES.split(", "), "source"] == list(REPORTS)


def test_a_job_without_seeds_or_time_divides_by_nothing(tmp_path) -> None:
    """A crawl that has just begun."""
    Accounts(tmp_path, tmp_path / "crawl.log", lambda: 0.0).close()
    with AccountsView(tmp_path) as view:
        fresh = JobFacts(name="x", status="running", now_s=0.0, accounts=view)
        texts = {name: "".join(text_lines(kind.make(fresh))) for name, kind in REPORTS.items()}
    assert "URIs/sec: 0.00\n" in texts["crawl-summary"]
    assert texts["frontier-summary"] == ""
    assert {"seeds", "frontier", "failures", "longest", "queues", "workers"} == ALL_NEEDS


def test_the_summary_of_a_crawl_that_shares_a_filter_says_what_others_have(facts) -> None:
    """Two rows that no other crawl's summary has."""
    shared = FRONTIER._replace(seen={"shared_left": 113.0, "shared_twice": 40.0})
    text = "".join(text_lines(REPORTS["crawl-summary"].make(replace(facts, frontier=shared))))
    assert "Not-modified URIs: 1\nLinks left to other crawls: 113\nURIs taken by another crawl, too: 40\nTotal" in text


def test_the_summary_of_a_further_round_counts_it_apart(facts) -> None:
    """All other rows are of all rounds; a round of before accounts were removed has counted nothing."""
    later = replace(facts, round=Round(2, urls_before=4))
    text = "".join(text_lines(REPORTS["crawl-summary"].make(later)))
    assert "\nRound: 2\nURIs Processed in This Round: 2\nDuration" in text
    assert "URIs Processed: 6\n" in text
    text = "".join(text_lines(REPORTS["crawl-summary"].make(replace(later, round=Round(2, urls_before=7)))))
    assert "URIs Processed in This Round: 0\n" in text


def test_the_reference_names_the_reports_as_they_are() -> None:
    """A reader can ask for every report that it names."""
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "commands.md"
    (row,) = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `reports/` |"))
    assert set(re.findall(r"`([a-z-]+)`", row)) == REPORTS.keys()


def seeds_report(seeds) -> str:
    return "".join(text_lines(seeds_table(seeds)))


def test_the_seeds_report_has_unanswered_seeds_first() -> None:
    """Status, a word, the seed, and where it went or why it was not answered."""
    assert seeds_report([ANSWERED, MOVED, UNTRIED, DEAD, SHUT]) == (
        "[code] [status] [seed] [redirect or reason]\n"
        " -9998 NOTCRAWLED http://c.test/ -9998 excluded by robots.txt\n"
        "    -1 NOTCRAWLED http://dead.test/ no such name: dead.test\n"
        "     0 NOTCRAWLED http://z.test/ 0 not tried yet\n"
        "   301 CRAWLED    http://a.test/ http://www.a.test/\n"
        "   200 CRAWLED    http://b.test/\n"
    )


def test_a_seeds_report_of_no_seeds_is_its_heading() -> None:
    """Nothing is invented."""
    assert seeds_report([]) == "[code] [status] [seed] [redirect or reason]\n"


def test_of_many_seeds_only_the_first_are_shown(tmp_path) -> None:
    """A few are shown whole; of many, those without an answer first, and where the others stand."""
    few = [SeedFact(f"http://{number:02}.test/", 200, "", None) for number in range(SEEDS_SHOWN)]
    assert seeds_shown(few, tmp_path / "seeds-report.txt") == seeds_report(few)
    lines = seeds_shown([*few, DEAD, UNTRIED], tmp_path / "seeds-report.txt").splitlines()
    assert len(lines) == 1 + SEEDS_SHOWN + 1
    assert DEAD.url in lines[1]
    assert lines[-1] == f"… and 2 more seeds in {tmp_path}/seeds-report.txt"
