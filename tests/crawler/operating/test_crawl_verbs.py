"""What the control socket of a running crawl answers about the crawl as a whole."""

import threading

import pytest

from anabranch.crawler.jobs.seeding import Seeding
from anabranch.crawler.jobs.seeds import Seed, SeedBook
from anabranch.crawler.operating.course import Cause, Course, Phase
from anabranch.crawler.operating.crawl_verbs import ADD, PAUSE, RESUME, STATUS, STOP, CrawlVerbs, add_to_stopped
from anabranch.crawler.operating.judging import Judge
from anabranch.crawler.orders.scope import ScopeSection
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.reporting.troubles import Trouble
from anabranch.crawler.scope.opening import open_scope
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.models import Candidate, Outcome, OutcomeKind
from tests.crawler.builder import memory_frontier

A, B = "http://a.test/", "http://b.test/"


class Crawl:
    """The parts that the verbs steer."""

    def __init__(self, frontier, book) -> None:
        self.threads: list[threading.Thread] = []  #: in which the last trouble was asked for
        self.course = Course(lambda _: None)
        self.course.steer(frontier)
        self.frontier = frontier
        self.scope = open_scope(ScopeSection())
        self.book = book
        seeding = Seeding(book, self.scope, frontier)
        judge = Judge(self.scope, Canonicalizer().key, book, trouble=self.trouble)
        self.verbs = CrawlVerbs(
            self.course, frontier, seeding, judge, lambda: {"phase": self.course.phase.value}, self.report
        )

    def trouble(self, *_):
        self.threads.append(threading.current_thread())
        return Trouble(A, "connection refused", ago_s=20.0, is_final=False, again_in_s=40.0)

    async def report(self, given):
        return {"rows": [given["name"]]}

    async def ask(self, verb, **arguments):
        """The facts."""
        return await self.verbs.answer(verb, arguments)


@pytest.fixture
async def crawl(tmp_path):
    with SeedBook(tmp_path / "seeds.jsonl") as book:
        async with memory_frontier(A) as frontier:
            yield Crawl(frontier, book)


def seeds(*urls):
    return [{"url": url, "source": "command line"} for url in urls]


async def test_pause_and_resume_answer_with_what_then_holds(crawl) -> None:
    """The answer is that of `status`."""
    assert await crawl.ask(STATUS) == {"phase": "running"}
    assert await crawl.ask(PAUSE) == {"phase": "paused"}
    assert await crawl.ask(RESUME) == {"phase": "running"}


@pytest.mark.parametrize(("now", "ending"), [(False, WhyEnded.OPERATOR), (True, WhyEnded.OPERATOR_NOW)])
async def test_stop_ends_the_run_in_order_or_at_once(crawl, now, ending) -> None:
    """Both say why in the end."""
    assert await crawl.ask(STOP, now=now) == {"phase": "draining"}
    assert (crawl.course.ending, crawl.course.hurried.is_set()) == (ending, now)


@pytest.mark.parametrize("verb", [PAUSE, RESUME])
async def test_what_is_ending_is_neither_paused_nor_resumed(crawl, verb) -> None:
    """It says so, instead of doing nothing."""
    await crawl.ask(STOP)
    with pytest.raises(UsageError, match="the crawl is ending, there is nothing to"):
        await crawl.ask(verb)
    assert crawl.course.phase is Phase.DRAINING


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
    assert await crawl.ask("report", name="hosts") == {"rows": ["hosts"]}
    with pytest.raises(UsageError, match="unknown"):
        await crawl.ask("fly")


async def test_an_added_seed_is_noted_opened_and_queued(crawl) -> None:
    """What is queued already is seen; its place is opened all the same."""
    answered = await crawl.ask(ADD, seeds=seeds(A, B, B))
    assert [(seed["url"], seed["verdict"]) for seed in answered["seeds"]] == [(A, "seen"), (B, "new"), (B, "seen")]
    assert [seed.url for seed in crawl.book] == [A, B]
    assert crawl.scope.accepts(f"{B}1", "L")
    assert crawl.frontier.core.counts().pending == 2


@pytest.mark.parametrize(("status", "verdict"), [(-2, "new"), (200, "seen")])
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
    """The book first, then the queue; both durably."""
    given = [Seed(url=url, source="command line") for url in (A, B)]
    async with memory_frontier() as frontier:
        frontier.schedule([Candidate(url=A)])
        with SeedBook(tmp_path / "seeds.jsonl") as book:
            facts = add_to_stopped(frontier.core, book, given, Canonicalizer().key)
            assert list(book) == given
        assert [seed["verdict"] for seed in facts["seeds"]] == ["seen", "new"]
        assert frontier.core.durable == frontier.core.said


async def test_a_pause_of_the_disk_cannot_be_ended_by_a_word(crawl) -> None:
    """Whoever says `resume` is told why nothing goes on; what else kept the crawl from it is gone."""
    crawl.course.pause(Cause.DISK, "paused: 1 GB are free at /job, min_free_disk is 2 GB")
    await crawl.ask(PAUSE)
    with pytest.raises(UsageError, match=r"^paused: 1 GB are free at /job, min_free_disk is 2 GB; make room"):
        await crawl.ask(RESUME)
    crawl.course.resume(Cause.DISK)
    assert await crawl.ask(STATUS) == {"phase": "running"}
