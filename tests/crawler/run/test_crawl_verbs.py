"""Answers of the control socket of a running crawl about the crawl as a whole."""

from __future__ import annotations

import threading

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeding import CandidateMaker, Seeding
from anabranch.crawler.job.seeds import Seed, SourceTags
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import LimitsSection, ScopeSection, UsedLimits
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.logtail import Trouble
from anabranch.crawler.report.reports import MOST_ROWS, REPORTS, write_all
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.run.composition import RunContext, RunParts
from anabranch.crawler.run.crawl_verbs import (
    ADD,
    METRICS,
    PAUSE,
    RESUME,
    STATUS,
    STOP,
    CrawlVerbs,
    facts_of_running,
    limits_note,
)
from anabranch.crawler.run.explain import Evidence, UrlExplainer
from anabranch.crawler.run.limits import RunLimits
from anabranch.crawler.run.membership import SoleMembership, Surroundings
from anabranch.crawler.run.run_state import Cause, Phase, RunState
from anabranch.crawler.run.stopped_verbs import add_to_stopped
from anabranch.crawler.scope.scope import open_scope
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind
from tests.crawler.builder import memory_frontier
from tests.rows import each_row

A, B = "http://a.test/", "http://b.test/"


class LastTrouble(Evidence):
    """A trouble of each URL; keeps the threads in which it is asked for."""

    def __init__(self, threads) -> None:
        self.threads = threads

    def trouble(self, *_):
        self.threads.append(threading.current_thread())
        return Trouble(A, "connection refused", ago_s=20.0, is_final=False, again_in_s=40.0)


class Crawl:
    """The parts that the verbs steer."""

    def __init__(self, frontier, book, job) -> None:
        self.threads: list[threading.Thread] = []  #: in which the last trouble was asked for
        self.run_state = RunState(lambda _: None)
        self.run_state.begin(frontier)
        self.frontier = frontier
        self.scope = open_scope(ScopeSection())
        self.book = book
        statistics = CrawlStatistics(started_s=0.0)
        self.context = RunContext(
            order=CrawlOrder(),
            job=job,
            clock=frontier.core.now_s,
            statistics=statistics,
            board=WorkerBoard(),
            run_state=self.run_state,
            member=SoleMembership(CrawlOrder(), job),
            outside=Surroundings(),
        )
        accounts = Accounts(job.state, job.crawl_log, frontier.core.now_s)

        def view() -> AccountsView:
            accounts.sync()
            return AccountsView(job.state)

        self.parts = RunParts(
            frontier=frontier,
            resolver=None,
            seeding=Seeding(book, self.scope, frontier, CandidateMaker(Canonicalizer().key, SourceTags())),
            accounts=accounts,
            view_totals=view,
            journal=None,
            limits=RunLimits(LimitsSection(), self.run_state, statistics, UsedLimits(0, 0), lambda: None),
            services=None,
            bandwidth=None,
            sinks=None,
            pool=None,
            explainer=UrlExplainer(self.scope, Canonicalizer().key, book, evidence=LastTrouble(self.threads)),
            admission=None,
        )
        self.followed = []
        self.verbs = CrawlVerbs(self.context, self.parts, self, self, self.followed.append)

    def facts(self):
        return {"phase": self.run_state.phase.value}

    def numbers(self):
        return {"anabranch_pages_total": 1}

    async def ask(self, verb, **arguments):
        """The facts."""
        return await self.verbs.answer(verb, arguments)


@pytest.fixture
async def crawl(tmp_path):
    with JobFolder.open(tmp_path / "job") as job, opened_seeds(job.state) as recorded:
        async with memory_frontier(A) as frontier:
            crawl = Crawl(frontier, recorded, job)
            yield crawl
            crawl.parts.accounts.close()


def seeds(*urls):
    return [{"url": url, "source": "command line"} for url in urls]


async def test_pause_and_resume_answer_with_what_then_holds(crawl) -> None:
    """The answer is that of `status`."""
    assert await crawl.ask(STATUS) == {"phase": "running"}
    assert await crawl.ask(PAUSE) == {"phase": "paused"}
    assert await crawl.ask(RESUME) == {"phase": "running"}


async def test_a_store_that_waits_does_not_hold_up_the_status(crawl, monkeypatch) -> None:
    """Known trouble: it is not asked. Trouble that begins just now: it is waited for no longer than a moment."""
    crawl.frontier.finish(await crawl.frontier.lease(), Outcome(OutcomeKind.FAILED, status=503))
    status = {"phase": "running", "trouble": "", "failures": []}
    monkeypatch.setattr(crawl, "facts", lambda: dict(status))
    is_back, operations = threading.Event(), type(crawl.frontier.core.operations)
    monkeypatch.setattr(operations, "failures", lambda _: {503: 1})
    assert [one["count"] for one in (await crawl.ask(STATUS))["failures"]] == [1]
    with monkeypatch.context() as away:
        away.setattr(operations, "failures", lambda _: is_back.wait(20) and {})
        away.setattr("anabranch.crawler.run.crawl_verbs._FAILURES_S", 0.01)
        assert await crawl.ask(STATUS) == status
        is_back.set()
    status["trouble"] = "the store: the disk is full"
    assert await crawl.ask(STATUS) == status


async def test_metrics_are_numbers_by_name(crawl) -> None:
    """Whoever may use the socket can serve them."""
    assert await crawl.ask(METRICS) == {"anabranch_pages_total": 1}


@pytest.mark.parametrize(("now", "ending"), [(False, WhyEnded.OPERATOR), (True, WhyEnded.OPERATOR_NOW)])
async def test_stop_ends_the_run_in_order_or_at_once(crawl, now, ending) -> None:
    """Both say why in the end."""
    assert await crawl.ask(STOP, now=now) == {"phase": "draining"}
    assert (crawl.run_state.ending, crawl.run_state.hurried.is_set()) == (ending, now)


@pytest.mark.parametrize("verb", [PAUSE, RESUME])
async def test_what_is_ending_is_neither_paused_nor_resumed(crawl, verb) -> None:
    """It says so, instead of doing nothing."""
    await crawl.ask(STOP)
    with pytest.raises(UsageError, match="the crawl is ending, so there is nothing to"):
        await crawl.ask(verb)
    assert crawl.run_state.phase is Phase.DRAINING


async def test_why_asks_for_the_last_trouble_off_the_loop(crawl) -> None:
    """The log of errors may have to be read for it."""
    facts = await crawl.ask("why", url=A)
    assert (facts["last_trouble"]["reason"], "scope" in facts) == ("connection refused", True)
    assert threading.current_thread() not in crawl.threads
    assert len(crawl.threads) == 1


async def test_all_other_verbs_are_the_frontiers_or_the_reports(crawl) -> None:
    """Also `pause`, which is that of a queue."""
    assert (await crawl.ask("ls", limit=5))["totals"]["pending"] == 1
    facts = await crawl.ask("pause", queue="a.test")
    assert facts["queue"]["state"] == "paused"
    assert (await crawl.ask("report", name="hosts"))["rows"] == []
    with pytest.raises(UsageError, match="unknown"):
        await crawl.ask("fly")


async def test_an_added_seed_is_noted_opened_and_queued(crawl) -> None:
    """A URL that is queued already is not queued twice; the scope opens for the new seed."""
    answered = await crawl.ask(ADD, seeds=seeds(A, B, B))
    assert [(seed["url"], seed["verdict"]) for seed in answered["seeds"]] == [(A, "known"), (B, "new"), (B, "known")]
    assert [seed.url for seed in crawl.book] == [A, B]
    assert crawl.scope.accepts(f"{B}1", "L")
    assert crawl.frontier.core.counts().pending == 2


@pytest.mark.parametrize(("status", "verdict"), [(-2, "new"), (200, "known")])
async def test_a_seed_that_was_given_up_without_an_answer_is_tried_again(crawl, status, verdict) -> None:
    """One that was answered is not."""
    kind = OutcomeKind.DONE if status > 0 else OutcomeKind.FAILED
    crawl.frontier.finish(await crawl.frontier.lease(), Outcome(kind=kind, status=status))
    await crawl.frontier.flush()
    (answered,) = (await crawl.ask(ADD, seeds=seeds(A)))["seeds"]
    assert answered["verdict"] == verdict


@pytest.mark.parametrize(
    "wrong",
    [None, [], "http://a.test/", ["http://a.test/"], [{"url": A}], [{"url": "a.test", "source": "x"}], [{"url": 3}]],
)
async def test_what_is_no_list_of_seeds_is_refused(crawl, wrong) -> None:
    """Nothing of it is written down."""
    with pytest.raises(UsageError):
        await crawl.ask(ADD, seeds=wrong)
    assert len(crawl.book) == 0


async def test_a_job_that_is_stopped_takes_seeds_in_the_same_way(tmp_path) -> None:
    """Recorded first, then queued; both durably."""
    given = [Seed(url=url, source="command line") for url in (A, B)]
    async with memory_frontier() as frontier:
        frontier.schedule([Candidate(url=A)])
        with opened_seeds(tmp_path) as recorded:
            facts = add_to_stopped(frontier.core, recorded, given, Canonicalizer().key)
            assert list(recorded) == given
        assert [seed["verdict"] for seed in facts["seeds"]] == ["known", "new"]
        assert frontier.core.unacknowledged.durable == frontier.core.unacknowledged.last


async def test_a_pause_of_the_disk_cannot_be_ended_by_a_word(crawl) -> None:
    """Whoever says `resume` is told why nothing goes on; what else kept the crawl from it is gone."""
    crawl.run_state.pause(Cause.DISK, "paused: 1 GB are free at /job, min_free_disk is 2 GB")
    await crawl.ask(PAUSE)
    with pytest.raises(UsageError, match=r"^paused: 1 GB are free at /job, min_free_disk is 2 GB; free some space"):
        await crawl.ask(RESUME)
    crawl.run_state.resume(Cause.DISK)
    assert await crawl.ask(STATUS) == {"phase": "running"}
    crawl.run_state.pause(Cause.SINK, "paused: the sink ours:Sink is behind: 503")
    with pytest.raises(UsageError, match=r"^paused: the sink ours:Sink is behind: 503; see to what keeps it, and the"):
        await crawl.ask(RESUME)


# Reports


@pytest.fixture
async def reported(crawl):
    """A crawl that has fetched a page and fetches its seed."""
    crawl.frontier.schedule([Candidate(f"{A}2")])
    crawl.book.add_all([Seed(url=A, source="command line")])
    entry = CrawlLogEntry(logged_s=0.0, status=200, size_bytes=5, url=A, mime="a/b", worker=1)
    crawl.parts.accounts.append([JournalEntry(crawl_log_line(entry))])
    crawl.parts.accounts.keep()
    lease = await crawl.frontier.lease()
    crawl.context.board.begin(3, lease.url, 0)
    crawl.context.board.enter(3, "fetch")
    return crawl


@pytest.mark.parametrize("name", REPORTS)
async def test_a_running_crawl_has_every_report(reported, name) -> None:
    """Facts or rows, what JSON holds."""
    said = await reported.ask("report", name=name)
    assert said.get("facts") or said["rows"] or name == "frontier-nonempty"


async def test_what_was_kept_a_moment_ago_is_in_the_report(reported) -> None:
    """Nobody waits for the next commit."""
    assert (await reported.ask("report", name="mimetypes"))["rows"] == [{"#urls": 1, "#bytes": 5, "mime-types": "a/b"}]
    assert (await reported.ask("report", name="crawl-summary"))["facts"]["Crawl Status"] == "running"
    (worker,) = (await reported.ask("report", name="workers"))["rows"]
    assert (worker["worker"], worker["processor"], worker["uri"]) == ("#003", "fetch", A)


@pytest.mark.parametrize(
    "given", [{}, {"name": "x"}, {"name": "hosts", "limit": -1}, {"name": "hosts", "limit": MOST_ROWS + 1}]
)
async def test_what_makes_no_sense_is_refused(reported, given) -> None:
    """One line for whoever asked."""
    with pytest.raises(UsageError):
        await reported.ask("report", **given)


async def test_at_the_end_all_reports_are_written(reported, tmp_path) -> None:
    """From the same facts."""
    facts = await facts_of_running(reported.context, reported.parts)
    with facts.accounts:
        write_all(tmp_path, facts)
    assert (tmp_path / "hosts-report.txt").read_text().splitlines()[1].startswith("1 5 a.test 0 ")


@each_row(
    ("limits", "changed", "is_running", "note"),
    [
        ({"pages": 10}, "pages", True, "40 pages done already: the crawl ends now"),
        ({"pages": 40}, "pages", False, "40 pages done already: the crawl ends at once when it is started"),
        ({"pages": 40, "on_limit": "pause"}, "pages", True, "40 pages done already: the crawl pauses now"),
        ({"bytes": "1MB"}, "bytes", True, "1.9 MiB fetched already: the crawl ends now"),
        ({"time": "1m"}, "time", True, "running for 1m 30s already: the crawl ends now"),
        ({"pages": 41}, "pages", True, ""),
        ({"pages": 0}, "pages", True, ""),
        ({"pages": 10}, "pages_per_host", True, ""),
    ],
)
def test_a_changed_limit_that_is_reached_already_is_noted(limits, changed, is_running, note) -> None:
    """One that was not changed is not: the operator may have lifted it."""
    used = UsedLimits(pages=40, fetched_bytes=2_000_000, elapsed_s=90.0)
    assert limits_note(LimitsSection.model_validate(limits), {f"limits.{changed}"}, used, is_running=is_running) == note
