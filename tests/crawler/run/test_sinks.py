"""Sinks get each recorded page at least once, whatever fails; a crawl waits for one that is far behind, and ends by none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.state import is_finished
from anabranch.crawler.order.sections import JobSection
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import ExitCode, OrderError
from anabranch.crawler.outcomes.failures import ServiceAway
from anabranch.crawler.outcomes.userfunctions import SINK, UserFunction, user_sink
from anabranch.crawler.run import sinks as sinks_module
from anabranch.crawler.run.controller import CrawlController
from anabranch.crawler.run.run_state import Cause, RunState
from anabranch.crawler.run.sinks import PageSink, SinkFeed, SinkPlaces, SinkPlacesDamaged, Sinks
from anabranch.dedup.files.durable import FileMark
from tests.crawler.archive.exchanges import START_S
from tests.crawler.builder import until
from tests.crawler.export.jobs import entry, running
from tests.crawler.run.test_controller import Run
from tests.patience import HANG_S
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

URLS = [f"http://a.test/{number}" for number in range(5)]


class Kept(PageSink):
    """A sink that keeps pages in memory, and fails as long as it is told to."""

    made: list[Kept]
    error: BaseException | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches: list[list[str]] = []
        self.is_closed = False
        Kept.made.append(self)

    async def write(self, pages: Sequence[Mapping[str, Any]]) -> None:
        if Kept.error is not None:
            raise Kept.error
        self.batches.append([page["url"] for page in pages])

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _no_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kept, "made", [], raising=False)
    monkeypatch.setattr(Kept, "error", None)


def taken() -> list[str]:
    """All pages that sinks have taken, in order."""
    return [url for sink in Kept.made for batch in sink.batches for url in batch]


class Written:
    """A job that is written, and the sinks that read it."""

    def __init__(self, job: Path, journal: Any, accounts: Any) -> None:
        self.job = job
        self.journal = journal
        self.accounts = accounts
        self._now_s = START_S

    async def visit(self, *urls: str) -> None:
        for url in urls:
            self._now_s += 1
            await self.journal.write(entry(url, at_s=self._now_s))

    def feed(self) -> SinkFeed:
        places = SinkPlaces(self.job / "state" / "sinks.json")
        return SinkFeed(UserFunction(SINK, "ours:Kept", Kept), self.job, places, self.accounts)


@asynccontextmanager
async def writing(job: Path) -> AsyncIterator[Written]:
    async with running(job, warc=False) as journal:
        yield Written(job, journal, journal._record)


async def fed(feed: SinkFeed) -> None:
    """All that the sink can get."""
    while await feed.step() is not None:
        pass
    await feed.close()


async def test_a_sink_gets_each_page_that_is_recorded_once(tmp_path: Path) -> None:
    """In batches, in the order of pages.jsonl, and not what does not count yet."""
    async with writing(tmp_path / "job") as written:
        await written.visit(*URLS[:2])
        with (tmp_path / "job" / "pages.jsonl").open("ab") as pages:
            pages.write(b'{"url":"http://not.recorded.test/"}\n')
        feed = written.feed()
        await fed(feed)
        assert taken() == URLS[:2]
        assert Kept.made[0].is_closed
        assert Kept.made[0].folder == tmp_path / "job"


async def test_a_run_goes_on_where_the_last_one_has_got_to(tmp_path: Path) -> None:
    """Its place is on disk; lines of a damaged file are left out."""
    async with writing(tmp_path / "job") as written:
        await written.visit(*URLS[:2])
        await fed(written.feed())
    async with writing(tmp_path / "job") as written:
        await written.visit(*URLS[2:])
        await fed(written.feed())
    assert [sink.batches for sink in Kept.made] == [[URLS[:2]], [URLS[2:]]]


async def test_what_was_not_recorded_as_taken_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed between the two, or a full disk: at least once."""

    def note(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with writing(tmp_path / "job") as written:
        await written.visit(*URLS)
        feed = written.feed()
        with monkeypatch.context() as patched, capture_logs():
            patched.setattr(SinkPlaces, "note", note)
            assert await feed.step() == 1.0
        assert feed.trouble == "OSError: [Errno 28] No space left on device"
        await fed(feed)
    assert taken() == [*URLS, *URLS]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ServiceAway("index", "503"), "503"),
        (ServiceAway("index"), "away"),
        (KeyError("odd"), "KeyError: 'odd'"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
async def test_a_sink_that_raises_gets_the_same_pages_again(tmp_path: Path, error: BaseException, reason: str) -> None:
    """Later and later, up to a minute; one line says why, and one that it is over."""
    async with writing(tmp_path / "job") as written:
        await written.visit(*URLS)
        feed = written.feed()
        Kept.error = error
        with capture_logs() as logs:
            assert [await feed.step() for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
            assert feed.trouble == reason
            Kept.error = None
            assert await feed.step() == 0.0
        assert [line["event"] for line in logs] == [
            "a sink does not take its pages; they wait",
            "the sink takes its pages again",
        ]
        assert feed.trouble == ""
        await feed.close()
    assert taken() == URLS


async def test_a_sink_that_cannot_be_made_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class may connect to what is away."""
    made = Kept.__init__

    def fail(self: Kept, folder: Path) -> None:
        raise ServiceAway("index", "refused")

    async with writing(tmp_path / "job") as written:
        await written.visit(*URLS)
        feed = written.feed()
        monkeypatch.setattr(Kept, "__init__", fail)
        with capture_logs():
            assert await feed.step() == 1.0
        monkeypatch.setattr(Kept, "__init__", made)
        await fed(feed)
    assert taken() == URLS


async def test_a_batch_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and bytes are bounded."""
    monkeypatch.setattr(sinks_module, "BATCH_PAGES", 2)
    async with writing(tmp_path / "job") as written:
        await written.visit(*URLS)
        await fed(written.feed())
        assert list(map(len, Kept.made[0].batches)) == [2, 2, 1]
        monkeypatch.setattr(sinks_module, "_BATCH_BYTES", 1)
        (tmp_path / "job" / "state" / "sinks.json").unlink()
        await fed(written.feed())
    assert list(map(len, Kept.made[1].batches)) == [1] * 5


async def test_a_file_that_is_moved_away_is_read_to_its_end(tmp_path: Path) -> None:
    """By a run that reads it, and by the next one, in order; one that was removed is named, and the rest is read."""
    job = tmp_path / "job"
    async with writing(job) as written:
        feed = written.feed()
        await written.visit(URLS[0])
        assert await feed.step() == 0.0
        await written.visit(URLS[1])
        (job / "pages.jsonl").rename(job / "pages.jsonl.1")
        await written.visit(URLS[2])
        assert feed.behind_bytes > 0
        await fed(feed)
        assert feed.behind_bytes == 0
        assert taken() == URLS[:3]
        await written.visit(URLS[3])
        (job / "pages.jsonl").rename(job / "pages.jsonl.2")
        await written.visit(URLS[4])
        await fed(written.feed())
        assert taken() == URLS
        (job / "pages.jsonl").unlink()
        await written.visit(URLS[0])
        with capture_logs() as logs:
            await fed(written.feed())
    assert taken() == [*URLS, URLS[0]]
    assert [line["event"] for line in logs] == ["pages that a sink has not got were moved away"]


def test_places_that_cannot_be_read_end_the_start(tmp_path: Path) -> None:
    """It is not known what the sinks have; the line says what removing the file does."""
    (tmp_path / "sinks.json").write_text("{}x\n")
    with pytest.raises(SinkPlacesDamaged, match="damaged; remove it: all pages go to the sinks again") as raised:
        SinkPlaces(tmp_path / "sinks.json")
    assert raised.value.exit_code is ExitCode.BAD_ORDER


class Behind:
    """A feed that is so far behind."""

    name, trouble = "ours:Kept", "503"

    def __init__(self) -> None:
        self.behind_bytes = 0


def test_the_crawl_pauses_while_a_sink_is_far_behind() -> None:
    """Until it has caught up with half of it; the operator cannot resume it before."""
    said: list[str] = []
    state, feed = RunState(said.append), Behind()
    sinks = Sinks([feed], state, 100)  # type: ignore[list-item]
    for behind, is_paused in ((100, False), (101, True), (51, True), (50, False), (60, False)):
        feed.behind_bytes = behind
        sinks.press_back()
        state.resume_all()
        assert state.is_paused_by(Cause.SINK) is is_paused
    assert said == ["paused: the sink ours:Kept is behind: 503; fetches under way may end", "resumed"]


async def test_the_end_of_a_run_waits_for_its_sinks_until_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then 10 s at most; the next run goes on with what is left."""
    monkeypatch.setattr(sinks_module, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(sinks_module, "_ASKED_S", 0.01)
    async with writing(tmp_path / "job") as written:
        await written.visit(*URLS)
        state = RunState(lambda _: None)
        sinks = Sinks([written.feed()], state, 1 << 20)
        Kept.error = ServiceAway("index", "503")
        with capture_logs() as logs:
            finishing = asyncio.create_task(sinks.finish())
            await until(lambda: sinks.feeds[0].trouble)
            state.stop(WhyEnded.SIGNAL)
            async with asyncio.timeout(HANG_S):
                assert await finishing is False
        assert logs[-1]["event"] == "a sink has not got all pages; the next run goes on with it"
        Kept.error = None
        await sinks.close()
        sinks = Sinks([written.feed()], RunState(lambda _: None), 1)
        assert await sinks.finish() is True
        await sinks.close()
    assert taken() == URLS


async def test_without_sinks_the_end_waits_for_nothing() -> None:
    """And no task is made."""
    assert await Sinks([], RunState(lambda _: None), 1).finish() is True
    assert len(asyncio.all_tasks()) == 1


class NoSink:
    """A class without an async `write`."""

    def __init__(self, folder: Path) -> None:
        pass

    def write(self, pages: object) -> None:
        pass


def test_a_class_that_is_no_sink_is_refused() -> None:
    """In one line that says what it needs."""
    with pytest.raises(OrderError, match=r"\[job\] sinks .*:NoSink is no class with `async def write\(self, pages\)`"):
        user_sink(f"{__name__}:NoSink")
    with pytest.raises(OrderError, match="cannot be imported"):
        user_sink("no_such_module:Sink")
    assert user_sink(f"{__name__}:Kept").function.__name__ == "Kept"


def test_a_place_is_kept_as_a_mark(tmp_path: Path) -> None:
    """With the digest of what is before it, so that a file that was moved is known again."""
    SinkPlaces(tmp_path / "sinks.json").note("ours:Kept", FileMark(3, 5, "ab"))
    assert SinkPlaces(tmp_path / "sinks.json").of("ours:Kept") == FileMark(3, 5, "ab")
    assert json.loads((tmp_path / "sinks.json").read_text()[9:]) == {"ours:Kept": [3, 5, "ab"]}


# In a crawl


class Slow(Kept):
    """A sink that is away until it is let go."""

    is_away = True

    async def write(self, pages: Sequence[Mapping[str, Any]]) -> None:
        if Slow.is_away:
            raise ServiceAway("index", "503")
        await super().write(pages)


def crawl_of(web: SmallWeb, job: JobFolder, **section: object) -> Any:
    """A run whose pages go to the sink."""
    run = Run(web, job)
    section = {"sinks": [f"{__name__}:Slow"], **section}
    order = run.controller._order.model_copy(update={"job": JobSection.model_validate(section)})
    run.controller = CrawlController(order, job, [Seed(url="http://a.test/", source="command line")], run)
    return run


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks_module, "LOOK_S", 0.001)
    monkeypatch.setattr(sinks_module, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(sinks_module, "_LONGEST_WAIT_S", 0.01)
    monkeypatch.setattr(Slow, "is_away", True)


@pytest.mark.usefixtures("_quick")
async def test_a_crawl_with_a_sink_that_is_away_waits_and_ends_whole(tmp_path: Path) -> None:
    """It pauses when the sink is too far behind, and goes on when that is back; each page has come."""
    pages = {"/": Page(links=go(*(f"/{number}" for number in range(30)))), **{f"/{n}": Page() for n in range(30)}}
    async with SmallWeb({"a.test": Host(pages=pages)}) as web:
        with JobFolder.open(tmp_path / "job") as job:
            run = crawl_of(web, job, sink_backlog=2000)
            with capture_logs():
                crawling = asyncio.create_task(run.controller.run())
                await until(lambda: any(said.startswith("paused: the sink") for said in run.said))
                fetched = sum(web.ledger.counts().values())
                Slow.is_away = False
                async with asyncio.timeout(HANG_S):
                    assert await crawling is ExitCode.DONE
    assert fetched < 31
    urls = [json.loads(line)["url"] for line in (tmp_path / "job" / "pages.jsonl").read_text().splitlines()]
    assert len(urls) == 31
    assert taken() == urls
    assert all(sink.is_closed for sink in Kept.made)


@pytest.mark.usefixtures("_quick")
async def test_a_job_is_not_finished_before_its_sinks_have_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator ends the wait; the same command gives the sinks the rest."""
    monkeypatch.setattr(sinks_module, "_ASKED_S", 0.001)
    async with SmallWeb({"a.test": Host(pages={"/": Page()})}) as web:
        with JobFolder.open(tmp_path / "job") as job, capture_logs():
            run = crawl_of(web, job)
            crawling = asyncio.create_task(run.controller.run())
            await until(lambda: (tmp_path / "job" / "pages.jsonl").exists() and Kept.made)
            await until(lambda: (tmp_path / "job" / "pages.jsonl").stat().st_size)
            run.controller.stop(WhyEnded.SIGNAL)
            assert await crawling is ExitCode.DRAINED
        assert not is_finished(tmp_path / "job" / "state")
        Slow.is_away = False
        with JobFolder.open(tmp_path / "job") as job:
            run = crawl_of(web, job)
            assert await run.controller.run() is ExitCode.DONE
        assert is_finished(tmp_path / "job" / "state")
    assert taken() == ["http://a.test/"]
