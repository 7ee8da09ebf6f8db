"""One run from opening to report: its ends, its limits, its signals, its errors."""

import asyncio
import json
import os
import signal
import threading
from dataclasses import replace
from itertools import pairwise

import pytest

from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.job import journal
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.journal import Journal
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.seedtable import known_seeds
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, JobUnfinished, JournalFull
from anabranch.crawler.outcomes.failures import RETRY_WAITS_S, BodyBroken
from anabranch.crawler.run import composition, membership
from anabranch.crawler.run.control import ask
from anabranch.crawler.run.controller import CrawlController
from anabranch.crawler.run.membership import Surroundings
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.errors import FormatMismatch, PolicyError, StoreUnavailable
from anabranch.frontier.filterchoice import filter_choice
from anabranch.frontier.records import GateKey, WaitsFor
from tests.acceptance.command import SMALL_FILTER
from tests.crawler.archive.exchanges import read_by_warcio, warcs
from tests.crawler.builder import settle, timers_set, until
from tests.patience import HANG_S
from tests.site.dns_server import DnsServer
from tests.site.page import Fault, Host, Page, file, go, redirect
from tests.site.server import SmallWeb

SITE = {"/": Page(links=go("/1", "/2", "/3")), "/1": Page(), "/2": Page(), "/3": Page()}
SEED = "http://a.test/"
#: Longer than any fetch of a test that does not hang on purpose.
PATIENCE_S = HANG_S
SHORT_S = 0.05


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


def web_of(pages):
    return SmallWeb({"a.test": Host(pages=pages)})


class Run(Surroundings):
    """A controller over the small web, and what it told the outside."""

    def __init__(self, web, job, *, seeds=(SEED,), **sections) -> None:
        self.said = []
        self.snapshots = []
        self.take = None
        self.forced = 0
        self.is_shown = False
        order = {
            "politeness": {"min_delay": 0, "max_delay": 0, "max_connections": 4, "backoff_base": 0, "backoff_cap": 0},
            "crawl": {"workers": 4},
            "fetch": {"allow_private": True, "timeout": PATIENCE_S},
            "dns": {"hosts": web.hosts},
            "dedup": SMALL_FILTER,
        }
        for name, section in sections.items():
            order[name] = section if name == "override" else order.get(name, {}) | section
        given = [Seed(url=url, source="command line") for url in seeds]
        self.controller = CrawlController(CrawlOrder.model_validate(order), job, given, self)

    def notify(self, text) -> None:
        self.said.append(text)

    async def show(self, take) -> None:
        self.take = take
        self.snapshots.append(take())
        self.is_shown = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_shown = False
            self.snapshots.append(take())

    def force_exit(self) -> None:
        self.forced += 1


async def crawl(web, tmp_path, **order):
    """Run the job once; its exit code and what it said."""
    with JobFolder.open(tmp_path / "job") as job:
        run = Run(web, job, **order)
        code = await run.controller.run()
        assert not run.is_shown
        return code, run


def crawled(tmp_path):
    """The URLs in pages.jsonl."""
    lines = (tmp_path / "job" / "pages.jsonl").read_text().splitlines()
    return sorted(json.loads(line)["url"] for line in lines)


def kept(tmp_path, url=SEED):
    """Open the job's Frontier after the run, check it, and return its record of a URL."""
    with open_frontier(tmp_path / "job" / "state", FrontierOrder(uniq=filter_choice(SMALL_FILTER))) as frontier:
        frontier.operations.check()
        return frontier.operations.get(url.encode())


ALL = [SEED, f"{SEED}1", f"{SEED}2", f"{SEED}3"]


# Good ends


async def test_a_crawl_runs_until_nothing_is_left_and_reports(tmp_path) -> None:
    """First the opening line, last the reports, which are in the job's folder too."""
    async with web_of(SITE) as web:
        code, run = await crawl(web, tmp_path)
    assert code is ExitCode.DONE
    assert crawled(tmp_path) == ALL
    first, last = run.said
    assert first == f"new job {tmp_path}/job: 1 URL queued"
    reports = tmp_path / "job" / "reports"
    assert "Crawl Status: finished: nothing is queued\n" in (reports / "crawl-report.txt").read_text()
    assert last.endswith((reports / "seeds-report.txt").read_text())
    assert "ended          finished: nothing is queued\n" in last
    assert "this run       4 pages, 0 failed, 0 excluded, 1 robots.txt\n" in last


async def test_a_finished_job_says_so_and_fetches_nothing(tmp_path) -> None:
    """Nobody works, nothing is shown, and its seeds still count as answered."""
    async with web_of(SITE) as web:
        await crawl(web, tmp_path)
        asked = web.ledger.counts()
        code, run = await crawl(web, tmp_path)
        assert web.ledger.counts() == asked
    assert code is ExitCode.DONE
    assert run.said[0] == f"job {tmp_path}/job is finished: 4 pages; use --again for another round"
    assert run.snapshots == []


async def test_the_order_of_the_run_is_kept_in_the_folder_once_the_job_has_taken_it(tmp_path) -> None:
    """A refused policy leaves the order of the last run in place."""
    async with web_of(SITE) as web:
        await crawl(web, tmp_path)
        file = tmp_path / "job" / "order.toml"
        assert "workers = 4" in file.read_text()
        await crawl(web, tmp_path, crawl={"workers": 7})
        with pytest.raises(FormatMismatch):
            await crawl(web, tmp_path, frontier={"policy": "host"}, crawl={"workers": 9})
        assert "workers = 7" in file.read_text()


async def test_a_limit_reached_with_the_last_page_is_a_finished_job(tmp_path) -> None:
    """Nothing is queued, so nothing is left to go on with."""
    async with web_of(SITE) as web:
        code, run = await crawl(web, tmp_path, limits={"pages": len(ALL)})
    assert code is ExitCode.DONE
    assert "finished: nothing is queued" in run.said[-1]


async def test_a_queue_over_its_budget_keeps_its_urls_until_the_budget_is_raised(tmp_path) -> None:
    """The run says why it ended, the job is not finished, and the next run with a higher budget goes on by itself."""
    async with web_of(SITE) as web:
        frugal = {"policy": "host", "total_budget": 2}
        code, run = await crawl(web, tmp_path, frontier=frugal)
        assert (code, len(crawled(tmp_path))) == (ExitCode.DONE, 2)
        assert f"ended          {WhyEnded.RETIRED.value}\n" in run.said[-1]
        assert "retired        2 URLs, in queues over their budget or put aside\n" in run.said[-1]
        _, again = await crawl(web, tmp_path, frontier=frugal)
        expected = f"job {tmp_path}/job: 2 URLs left, all in retired queues; raise total_budget to go on"
        assert again.said[0] == expected
        assert not (tmp_path / "job" / "state" / "finished").exists()
        _, last = await crawl(web, tmp_path, frontier=frugal | {"total_budget": 100})
    assert crawled(tmp_path) == ALL
    assert f"ended          {WhyEnded.FINISHED.value}\n" in last.said[-1]


async def test_hosts_at_one_address_share_a_gate_if_the_order_says_so(tmp_path) -> None:
    """The group `ip` asks the crawl's own resolver: never two requests at once, though both hosts allow four."""
    slow = {path: replace(page, delay_s=0.02) for path, page in SITE.items()}
    hosts = {"a.test": Host(pages=slow), "b.test": Host(pages=slow)}
    politeness = {"group": "ip", "group_min_delay": 0, "group_max_delay": 0}
    async with SmallWeb(hosts) as web:
        code, _ = await crawl(web, tmp_path, seeds=(SEED, "http://b.test/"), politeness=politeness)
        visits = web.ledger.visits
    assert (code, len(crawled(tmp_path))) == (ExitCode.DONE, 2 * len(ALL))
    assert all(later.start_s >= earlier.end_s for earlier, later in pairwise(visits))


async def test_an_override_changes_what_holds_for_one_host(tmp_path) -> None:
    """One connection at a.test, four at b.test."""
    slow = {path: replace(page, delay_s=0.05) for path, page in SITE.items()}
    hosts = {"a.test": Host(pages=slow), "b.test": Host(pages=slow)}
    async with SmallWeb(hosts) as web:
        only_one = [{"surt": "a.test", "max_connections": 1}]
        await crawl(web, tmp_path, seeds=(SEED, "http://b.test/"), crawl={"workers": 8}, override=only_one)
        assert web.ledger.max_in_service("a.test") == 1
        assert web.ledger.max_in_service("b.test") > 1


async def test_robots_txt_is_not_asked_for_when_the_order_ignores_it(tmp_path) -> None:
    """Only pages are fetched, the forbidden ones too."""
    forbidding = {**SITE, "/robots.txt": file("text/plain", b"User-agent: *\nDisallow: /\n")}
    async with web_of(forbidding) as web:
        code, _ = await crawl(web, tmp_path, robots={"robots": "ignore"})
        assert set(web.ledger.counts()) == set(ALL)
    assert code is ExitCode.DONE


async def test_a_host_is_looked_up_before_its_robots_txt_is_asked_for(tmp_path) -> None:
    """With a line of its own, hop P, as Heritrix has it; a host without an address is asked for nothing."""
    async with web_of(SITE) as web, DnsServer({"a.test": ["127.0.0.1"]}) as names:
        seeds = (f"http://a.test:{web.port}/", f"http://no.test:{web.port}/")
        await crawl(web, tmp_path, seeds=seeds, dns={"hosts": {}, "servers": [names.address], "timeout": 0.3})
        assert web.ledger.count("http://a.test/robots.txt") == 1
    fields = [line.split() for line in (tmp_path / "job" / "logs" / "crawl.log").read_text().splitlines()]
    told = [(line[1], line[3].replace(f":{web.port}", ""), line[4], line[6]) for line in fields]
    urls = [url for _, url, _, _ in told]
    assert ("1", "dns:a.test", "P", "text/dns") in told
    assert urls.index("dns:a.test") < urls.index("http://a.test/robots.txt") < urls.index("http://a.test/")
    assert sorted(line for line in told if "no.test" in line[1]) == [
        ("-1", "dns:no.test", "P", "unknown"),
        ("-1", "http://no.test/", "-", "unknown"),
    ]
    assert urls.count("dns:a.test") == 1


async def test_a_crawl_delay_of_an_earlier_run_is_taken_back_when_the_order_ignores_robots_txt(tmp_path) -> None:
    """The gate was parked for an hour after each fetch, and is so no longer."""
    async with web_of(SITE) as web:
        with (
            JobFolder.open(tmp_path / "job") as job,
            open_frontier(job.state, FrontierOrder(max_unacknowledged=4, uniq=filter_choice(SMALL_FILTER))) as frontier,
        ):
            frontier.set_delay(GateKey("a.test"), 3600.0)
        code, _ = await asyncio.wait_for(crawl(web, tmp_path, robots={"robots": "ignore"}), HANG_S)
    assert (code, crawled(tmp_path)) == (ExitCode.DONE, ALL)


async def test_a_seed_that_moves_takes_the_crawl_along(tmp_path) -> None:
    """The seed's redirect is a seed: its host is in scope, and the report names it."""
    table = {
        "a.test": Host(pages={"/": redirect(301, "http://b.test/", None)}),
        "b.test": Host(pages={"/": Page(links=go("http://b.test/1")), "/1": Page()}),
    }
    async with SmallWeb(table) as web:
        _, run = await crawl(web, tmp_path)
    assert crawled(tmp_path) == [SEED, "http://b.test/", "http://b.test/1"]
    assert f"   301 CRAWLED    {SEED} http://b.test/\n" in run.said[-1]


async def test_without_any_answer_the_exit_code_is_5(tmp_path) -> None:
    """And the same command tries again."""
    async with web_of(SITE) as web:
        code, run = await crawl(web, tmp_path, fetch={"allow_private": False})
        assert (code, crawled(tmp_path)) == (ExitCode.NO_SEED_ANSWERED, [])
        assert "is not a public address" in run.said[-1]
        code, run = await crawl(web, tmp_path)
    assert run.said[0] == f"resuming job {tmp_path}/job: 1 URL done, 1 queued"
    assert (code, crawled(tmp_path)) == (ExitCode.DONE, ALL)


async def test_progress_shows_what_the_crawl_does(tmp_path) -> None:
    """Before the first lease, and after the last."""
    async with web_of(SITE) as web:
        _, run = await crawl(web, tmp_path)
    before, after = run.snapshots
    assert (before.pages, before.workers, before.gates) == (0, 4, 1)
    assert before.pending + before.active == 1
    assert (after.pages, after.pending, after.active) == (4, 0, 0)
    assert (after.wakes_in_s, after.waits_for) == (None, WaitsFor.URLS)
    assert 0 <= before.elapsed_s <= after.elapsed_s


async def test_progress_knows_when_the_next_gate_opens(tmp_path) -> None:
    """Seconds from now, not a moment of time."""
    async with web_of(SITE) as web:
        rest = {"politeness": {"min_delay": 60, "max_delay": 60}, "robots": {"robots": "ignore"}}
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job, **rest)
            running = asyncio.create_task(run.controller.run())
            await until(lambda: run.controller._statistics.pages == 4)
            run.controller.stop(WhyEnded.TIME_LIMIT)
            await running
            slow = Run(web, job, seeds=(f"{SEED}new",), **rest)
            running = asyncio.create_task(slow.controller.run())
            await until(lambda: slow.take and slow.take().wakes_in_s is not None)
            snapshot = slow.take()
            slow.controller.stop(WhyEnded.TIME_LIMIT)
            await running
    assert 0 < snapshot.wakes_in_s <= 60


# Limits


async def test_the_limit_counts_the_pages_of_the_whole_job(tmp_path) -> None:
    """Two, no more with the same limit, and one more with a higher one."""
    async with web_of(SITE) as web:
        for limit, pages in ((2, 2), (2, 2), (3, 3)):
            code, run = await crawl(web, tmp_path, limits={"pages": limit})
            assert (code, len(crawled(tmp_path))) == (ExitCode.DONE, pages)
            assert WhyEnded.PAGE_LIMIT.value in run.said[-1]


async def test_the_time_limit_ends_a_crawl_that_goes_on_later(tmp_path) -> None:
    """It waits for its gate, the time is up, and the rest stays queued."""
    async with web_of(SITE) as web:
        code, run = await crawl(
            web,
            tmp_path,
            limits={"time": SHORT_S},
            politeness={"min_delay": 3600, "max_delay": 3600, "max_connections": 1},
        )
    assert code is ExitCode.DONE
    assert WhyEnded.TIME_LIMIT.value in run.said[-1]
    assert kept(tmp_path) is not None


async def test_an_unused_time_limit_leaves_nothing_behind(tmp_path) -> None:
    """A crawl that ends by itself has simply finished."""
    async with web_of(SITE) as web:
        with timers_set() as timers:
            _, run = await crawl(web, tmp_path, limits={"time": 3600})
    assert WhyEnded.FINISHED.value in run.said[-1]
    soon_s = asyncio.get_running_loop().time() + 1800
    late = [timer.cancelled() for timer in timers if timer.when() > soon_s]
    assert late
    assert all(late)


async def test_only_a_job_that_is_done_is_marked_so(tmp_path) -> None:
    """A finished one may be started afresh without consent, one that a limit has stopped may not."""
    async with web_of(SITE) as web:
        await crawl(web, tmp_path, limits={"pages": 2})
        with pytest.raises(JobUnfinished):
            JobFolder.open(tmp_path / "job", delete_old=True, even_unfinished=False)
        await crawl(web, tmp_path)
    JobFolder.open(tmp_path / "job", delete_old=True, even_unfinished=False).close()


class HangingFetcher(Fetcher):
    """A fetch that does not even keep its own time-out (as a robots.txt with many slow redirects)."""

    async def get(self, url, **options):
        await asyncio.Event().wait()


async def test_a_fetch_that_outlasts_the_drain_is_cancelled_and_its_url_goes_back(tmp_path, monkeypatch) -> None:
    """After the fetch time-out the run ends; the URL is queued as before, and no attempt is counted."""
    monkeypatch.setattr(composition, "Fetcher", HangingFetcher)
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job, fetch={"timeout": SHORT_S})
            running = asyncio.create_task(run.controller.run())
            await until(lambda: run.controller._statistics.active)
            run.controller.stop(WhyEnded.TIME_LIMIT)
            assert await running is ExitCode.DONE
    record = kept(tmp_path)
    assert (record.state.value, record.attempts) == ("queued", 0)
    assert (tmp_path / "job" / "logs" / "crawl.log").read_text() == ""


# Signals


class HeldFetcher(Fetcher):
    """Fetches when the test lets it."""

    may_fetch: asyncio.Event

    async def get(self, url, **options):
        await self.may_fetch.wait()
        return await super().get(url, **options)


@pytest.fixture
def may_fetch(monkeypatch):
    """Every fetch waits for this event."""
    HeldFetcher.may_fetch = asyncio.Event()
    monkeypatch.setattr(composition, "Fetcher", HeldFetcher)
    return HeldFetcher.may_fetch


async def signalled(may_fetch, tmp_path, *numbers, first=None):
    """A run that holds a fetch: `first` stops it, then the signals come, then the fetch ends; the code and the run."""
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job, robots={"robots": "ignore"})
            running = asyncio.create_task(run.controller.run())
            await until(lambda: run.controller._statistics.active)
            if first is not None:
                run.controller.stop(first)
            for number in numbers:
                said = len(run.said)
                os.kill(os.getpid(), number)
                await until(lambda said=said: len(run.said) > said)
            may_fetch.set()
            return await running, run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_drains(tmp_path, may_fetch, number) -> None:
    """It says what happens now; the fetch under way ends, no other begins, and the exit code is 11."""
    code, run = await signalled(may_fetch, tmp_path, number)
    assert (code, run.forced) == (ExitCode.DRAINED, 0)
    assert run.said[1] == "draining: fetches under way may end; a second signal leaves at once"
    assert WhyEnded.SIGNAL.value in run.said[-1]
    assert crawled(tmp_path) == [SEED]
    assert kept(tmp_path, f"{SEED}1").state.value == "queued"


async def test_a_signal_that_comes_while_the_job_opens_ends_the_run_in_order(tmp_path, monkeypatch) -> None:
    """It is heard at once; when the opening is through, the seeds are queued for the next run and nothing is fetched."""
    has_begun, may_open = threading.Event(), threading.Event()

    def open_slowly(*arguments, **more):
        has_begun.set()
        may_open.wait()
        return open_job(*arguments, **more)

    monkeypatch.setattr(membership, "open_job", open_slowly)
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job)
            running = asyncio.create_task(run.controller.run())
            await until(has_begun.is_set)
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: run.said)
            assert not running.done()
            may_open.set()
            code = await running
        assert not web.ledger.counts()
    assert (code, run.forced, run.snapshots) == (ExitCode.DRAINED, 0, [])
    assert run.said[0] == "draining: fetches under way may end; a second signal leaves at once"
    assert WhyEnded.SIGNAL.value in run.said[-1]
    assert kept(tmp_path).state.value == "queued"


async def test_the_second_signal_leaves_at_once(tmp_path, may_fetch) -> None:
    """Whichever of the two it is."""
    _, run = await signalled(may_fetch, tmp_path, signal.SIGINT, signal.SIGTERM)
    assert run.forced == 1


async def test_during_the_drain_of_a_limit_it_is_the_second_signal_too_that_leaves(tmp_path, may_fetch) -> None:
    """The first one then changes nothing: the crawl ends for the reason that came first."""
    code, run = await signalled(may_fetch, tmp_path, signal.SIGINT, signal.SIGINT, first=WhyEnded.TIME_LIMIT)
    assert (code, run.forced) == (ExitCode.DONE, 1)
    assert WhyEnded.TIME_LIMIT.value in run.said[-1]


async def test_the_signals_are_the_systems_again_after_a_run(tmp_path) -> None:
    """After a good end, and after a bad one."""
    before = signal.getsignal(signal.SIGTERM)
    async with web_of(SITE) as web:
        await crawl(web, tmp_path)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with pytest.raises(PolicyError):
            await crawl(web, tmp_path, frontier={"policy": "no-such-policy"})
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) == before


# Errors


def journal_that_raises(*errors):
    """A journal whose writes fail, each with the next of the errors."""
    left = list(errors)

    class FailingJournal(Journal):
        async def write(self, entry):
            if left:
                raise left.pop(0)
            await super().write(entry)

    return FailingJournal


async def test_a_full_disk_ends_the_run_with_its_own_error(tmp_path, monkeypatch) -> None:
    """No group around it, though many workers failed; everything is closed, and the job goes on later."""
    async with web_of(SITE) as web:
        with monkeypatch.context() as full:
            full.setattr(journal, "Journal", journal_that_raises(*[JournalFull("the disk is full")] * 4))
            with pytest.raises(JournalFull, match="the disk is full"):
                await crawl(web, tmp_path)
        code, _ = await crawl(web, tmp_path)
    assert (code, crawled(tmp_path)) == (ExitCode.DONE, ALL)


async def test_a_store_that_fails_in_the_middle_ends_the_run_with_its_own_error(tmp_path, monkeypatch) -> None:
    """An error of the Frontier comes without a group around it, as one of the crawler does."""
    async with web_of(SITE) as web:
        monkeypatch.setattr(journal, "Journal", journal_that_raises(StoreUnavailable("gone")))
        with pytest.raises(StoreUnavailable, match="gone"):
            await crawl(web, tmp_path)


async def test_a_defect_is_not_mistaken_for_a_full_disk(tmp_path, monkeypatch) -> None:
    """An unforeseen error is raised within its exception group, not as an error of the disk."""
    async with web_of(SITE) as web:
        monkeypatch.setattr(journal, "Journal", journal_that_raises(KeyError("odd")))
        with pytest.raises(ExceptionGroup) as failed:
            await crawl(web, tmp_path, robots={"robots": "ignore"})
    assert failed.group_contains(KeyError)


async def test_an_error_beside_a_defect_does_not_hide_it(tmp_path, monkeypatch) -> None:
    """Progress breaks while a worker finds the disk full."""
    monkeypatch.setattr(journal, "Journal", journal_that_raises(JournalFull("full")))
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job)

            async def show(_):
                try:
                    await asyncio.Event().wait()
                finally:
                    raise KeyError("odd")

            run.show = show
            with pytest.raises(ExceptionGroup) as failed:
                await run.controller.run()
    assert failed.group_contains(KeyError)
    assert failed.group_contains(JournalFull)


async def test_whoever_watches_sees_frontier_and_counts_until_the_workers_have_ended(tmp_path) -> None:
    """It is started with the workers and cancelled after them."""
    seen = []

    async def watch(frontier, counts) -> None:
        seen.append((frontier.core.counts().pending, counts.pages))
        try:
            await asyncio.Event().wait()
        finally:
            seen.append((frontier.core.is_done, counts.pages))

    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job)
            run.watch = watch
            await run.controller.run()
    assert seen == [(1, 0), (True, 4)]


async def test_a_report_that_cannot_be_written_is_told_after_the_summary(tmp_path) -> None:
    """The error names the file; the crawl itself is done, and what it came to is said."""
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job)

            async def show(take) -> None:
                if job.reports.is_dir():
                    job.reports.rmdir()
                await Run.show(run, take)

            run.show = show
            with pytest.raises(CrawlerError, match=r"crawl-report\.txt"):
                await run.controller.run()
    assert crawled(tmp_path) == ALL
    assert "this run       4 pages" in run.said[-1]


async def test_reports_that_cannot_be_written_are_noticed_before_the_crawl(tmp_path) -> None:
    """The error names the file, and nothing is fetched."""
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            (job.reports / "hosts-report.txt").mkdir()
            with pytest.raises(CrawlerError, match=r"hosts-report\.txt: is a directory"):
                await Run(web, job).controller.run()
        assert not web.ledger.counts()


async def test_seeds_are_recorded_before_anything_is_fetched(tmp_path, may_fetch) -> None:
    """A job that is killed at once knows what it is about."""
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job)
            running = asyncio.create_task(run.controller.run())
            await until(lambda: run.controller._statistics.active)
            assert known_seeds(job.state) == {SEED}
            may_fetch.set()
            await running


# The operator and the limits


async def test_a_crawl_without_room_on_its_disk_begins_no_fetch(tmp_path) -> None:
    """Not even the first: the disk is looked at before the workers begin; the progress says why."""
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job, limits={"min_free_disk": "4000TB"})
            running = asyncio.create_task(run.controller.run())
            await until(lambda: run.take)
            assert "min_free_disk is" in run.take().paused
            run.controller.stop(WhyEnded.OPERATOR)
            assert await running is ExitCode.DRAINED
        assert not web.ledger.counts()
    assert "4000" not in run.said[0]
    assert WhyEnded.OPERATOR.value in run.said[-1]


async def test_a_crawl_that_is_to_end_at_once_gives_its_fetches_up(tmp_path, may_fetch) -> None:
    """It does not wait for them; the URL is queued as before, no attempt is counted."""
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job, robots={"robots": "ignore"})
            running = asyncio.create_task(run.controller.run())
            await until(lambda: run.controller._statistics.active)
            await asked(job, "crawl-stop", now=False)
            await settle()
            assert not running.done()
            await asked(job, "crawl-stop", now=True)
            assert await running is ExitCode.FORCED
    assert WhyEnded.OPERATOR_NOW.value in run.said[-1]
    record = kept(tmp_path)
    assert (record.state.value, record.attempts) == ("queued", 0)


async def asked(job, verb, **arguments):
    """Return the answer that another process gets from the control socket."""
    return await asyncio.to_thread(ask, job.state, verb, arguments)


async def test_a_seed_that_is_added_in_the_last_moment_is_crawled(tmp_path, monkeypatch) -> None:
    """The workers have ended, the socket still answers: new ones begin."""
    added = []
    real = CrawlController._work

    async def work(self, parts, *others):
        await real(self, parts, *others)
        if not added:
            assert parts.frontier.core.is_done
            added.append(await asked(self._job, "crawl-add", seeds=[{"url": f"{SEED}new", "source": "x"}]))

    monkeypatch.setattr(CrawlController, "_work", work)
    async with web_of({**SITE, "/new": Page()}) as web:
        code, run = await crawl(web, tmp_path)
    assert (code, crawled(tmp_path)) == (ExitCode.DONE, sorted([*ALL, f"{SEED}new"]))
    assert added[0]["seeds"][0]["verdict"] == "new"
    assert WhyEnded.FINISHED.value in run.said[-1]


async def test_with_on_limit_pause_a_limit_waits_for_the_operator(tmp_path) -> None:
    """Two pages, then nothing; after `resume` all of them."""
    async with web_of(SITE) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job, limits={"pages": 2, "on_limit": "pause"})
            running = asyncio.create_task(run.controller.run())
            await until(lambda: run.take and run.take().paused and not run.take().active)
            assert (await asked(job, "crawl-status"))["pages"] == 2
            await asked(job, "crawl-resume")
            assert await running is ExitCode.DONE
    assert crawled(tmp_path) == ALL
    assert run.said[1:3] == ["paused by limits.pages; fetches under way may end", "resumed"]


async def test_a_page_that_always_breaks_off_is_kept_and_its_host_goes_on(tmp_path, monkeypatch) -> None:
    """Three tries, then what came, with its links; at the usual backoff a host in trouble would outlast the test."""
    monkeypatch.setitem(RETRY_WAITS_S, BodyBroken, (0.0, 0.0))
    cut = Page(fault=Fault.CUT, links=go("/1"), filler_bytes=4096)
    async with web_of({"/": cut, "/1": Page()}) as web:
        usual = {"backoff_base": 60, "backoff_cap": 3600}
        code, _ = await crawl(web, tmp_path, politeness=usual, write={"warc": True})
        assert (code, web.ledger.counts()[SEED]) == (0, 3)
    assert crawled(tmp_path) == ALL[:2]
    (path,) = warcs(tmp_path / "job" / "warc")
    (answer,) = [read for read in read_by_warcio(path) if (read.kind, read.url) == ("response", SEED)]
    assert answer.fields["WARC-Truncated"] == "disconnect"
    log = (tmp_path / "job" / "logs" / "crawl.log").read_text().splitlines()
    assert [line.split()[1:12:10] for line in log if line.split()[3] == SEED] == [["200", "3t,midFetchTrunc,round:1"]]
    errors = [json.loads(line) for line in (tmp_path / "job" / "logs" / "errors.jsonl").read_text().splitlines()]
    assert [(line["status"], line["attempt"]) for line in errors] == [(-3, 1), (-3, 2)]
