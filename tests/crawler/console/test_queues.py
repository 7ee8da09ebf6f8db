"""Queues and hosts of real jobs as pages: of stopped and of running ones, with nothing left behind."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import pytest

from anabranch.crawler.console import queues
from anabranch.crawler.console.jobs import ConsoleJobs, NoSuchJob
from anabranch.crawler.console.queues import QueueTables
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import CrawlerError, DiskFull, UsageError
from anabranch.crawler.run.control import Control
from anabranch.crawler.run.verbs import answer
from anabranch.frontier.errors import FrontierError, UnknownQueue
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate
from anabranch.frontier.stores.sql import browse
from anabranch.frontier.stores.sql.browse import PageQuery
from tests.acceptance.command import environment
from tests.acceptance.smalldisk import needs_small_disk

LONGEST = PageQuery(sort="urls", descending=True)


def schedule(frontier: Frontier, **hosts: int) -> None:
    frontier.schedule(
        [Candidate(f"http://{host}.test/{page}") for host, pages in hosts.items() for page in range(pages)]
    )
    frontier.flush()


def changed(job: Path, **hosts: int) -> None:
    """Queue more URLs of a stopped job."""
    order = CrawlOrder.model_validate({"frontier": {"policy": "host"}})
    with JobFolder.open(job) as folder, open_job(folder.state, order) as frontier:
        schedule(frontier, **hosts)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped job of three hosts. Tests have copies."""
    order = CrawlOrder.model_validate({"frontier": {"policy": "host"}})
    directory = tmp_path_factory.mktemp("queues") / "news"
    with JobFolder.open(directory) as folder:
        folder.write_order(dump_order(order))
        with open_job(folder.state, order) as frontier:
            schedule(frontier, a=2, b=3, c=1)
    return directory


@pytest.fixture
def job(made: Path, tmp_path: Path) -> Path:
    """The job, in a folder of jobs."""
    return shutil.copytree(made, tmp_path / "jobs" / "news")


def here(do: Callable[[], None]) -> None:
    """In place of a process of its own, which a real console starts: 1 s of CPU time each."""
    do()


@pytest.fixture
def tables(tmp_path: Path, job: Path) -> Iterator[QueueTables]:
    """Tables that are made in this process."""
    made = QueueTables(tmp_path / "console", ConsoleJobs(str(tmp_path / "jobs")), run_aside=here)
    yield made
    made.close()


@pytest.fixture
def real(tmp_path: Path, job: Path) -> Iterator[QueueTables]:
    """Tables as a console has them, made in a process of their own."""
    made = QueueTables(tmp_path / "console", ConsoleJobs(str(tmp_path / "jobs")))
    yield made
    made.close()


def left_in(folder: Path) -> list[Path]:
    return [*(folder / "queues").iterdir()]


def test_a_stopped_job_is_listed_and_can_be_crawled_meanwhile(real: QueueTables, job: Path) -> None:
    """Its file is copied, so no lock keeps a crawl out."""
    page = real.queues("news", LONGEST)
    assert [(row.key, row.urls, row.state, row.is_live) for row in page.rows] == [
        ("b.test", 3, "inactive", False),
        ("a.test", 2, "inactive", False),
        ("c.test", 1, "inactive", False),
    ]
    assert (page.total, page.live_s) == (3, None)
    with JobFolder.open(job), open_job(job / "state", CrawlOrder.model_validate({"frontier": {"policy": "host"}})):
        assert real.queues("news", PageQuery(text="A.")).rows[0].key == "a.test"
    (gate,) = real.gates("news", PageQuery(text="b")).rows
    assert (gate.key, gate.urls, gate.state, gate.troubles, gate.slots) == ("b.test", 3, "open", 0, None)


def test_a_queue_and_a_host_are_shown_with_their_next_urls(tables: QueueTables) -> None:
    """In the order in which they are fetched; one that is not there is told."""
    assert [url.url for url in tables.queue("news", "b.test", urls=2).urls] == ["http://b.test/0", "http://b.test/1"]
    assert [url.url for url in tables.gate("news", "c.test").urls] == ["http://c.test/0"]
    with pytest.raises(UnknownQueue, match=r"there was no queue d\.test"):
        tables.queue("news", "d.test")


async def test_what_a_crawl_has_in_memory_comes_from_it(tables: QueueTables, job: Path) -> None:
    """Its states count when rows are filtered, too."""
    order = CrawlOrder.model_validate({"frontier": {"policy": "host"}})
    with JobFolder.open(job) as folder, open_job(folder.state, order) as frontier:
        while (lease := frontier.lease()) is None:
            frontier.flush()

        async def answered(verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            return answer(frontier, verb, arguments)

        async with Control(folder.state, answered):
            query = PageQuery(states=("in-flight",))
            page = await asyncio.to_thread(tables.queues, "news", query)
            gates = await asyncio.to_thread(tables.gates, "news", query)
    (row,) = page.rows
    assert (row.key, row.in_flight, row.is_live) == (lease.queue, 1, True)
    assert page.live_s is not None
    assert [(gate.key, gate.in_flight) for gate in gates.rows] == [(lease.queue, 1)]
    assert tables.queues("news", query).rows == []  # that crawl has ended


def test_old_tables_are_made_anew_when_somebody_looks(
    tables: QueueTables, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look gets the old ones, which are gone when the new ones are there."""
    monkeypatch.setattr(queues, "_KEPT_S", -1.0)
    monkeypatch.setattr(queues, "_KEPT_TIMES", 0)
    assert tables.queues("news", LONGEST).total == 3
    changed(job, d=9)
    assert tables.queues("news", LONGEST).total == 3
    tables._tables["news"].wait()
    assert tables.queues("news", LONGEST).rows[0].key == "d.test"


def test_rows_are_read_again_at_once_if_somebody_wants_it(tables: QueueTables, job: Path) -> None:
    """However young they are."""
    assert tables.queues("news", LONGEST).total == 3
    changed(job, d=9)
    assert tables.queues("news", LONGEST).total == 3
    tables.renew("news")
    assert tables.queues("news", LONGEST).rows[0].key == "d.test"


def test_a_queue_that_has_not_changed_is_not_read_again(tables: QueueTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are as they are now."""
    first = tables.queues("news", LONGEST)
    monkeypatch.setattr(queues, "make_tables", None)
    tables.renew("news")
    again = tables.queues("news", LONGEST)
    assert again.taken_s > first.taken_s
    assert again.rows == first.rows


def test_tables_that_cannot_be_renewed_stay_until_they_can(
    tables: QueueTables, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page tells their age, and reading them again tells why it fails."""
    monkeypatch.setattr(queues, "_KEPT_S", -1.0)
    monkeypatch.setattr(queues, "_KEPT_TIMES", 0)
    first = tables.queues("news", LONGEST)
    store = job / "state" / "frontier.db"
    content = store.read_bytes()
    store.write_bytes(b"\0" * len(content))
    for _ in range(2):
        assert tables.queues("news", LONGEST) == first
        tables._tables["news"].wait()
    with pytest.raises(FrontierError):
        tables.renew("news")
    store.write_bytes(content)
    changed(job, d=9)
    tables.renew("news")
    assert tables.queues("news", LONGEST).rows[0].key == "d.test"


def test_a_damaged_store_is_one_line_that_names_it(real: QueueTables, job: Path, tmp_path: Path) -> None:
    """Not the copy, which is removed. The process that reads it passes the error on."""
    store = job / "state" / "frontier.db"
    content = store.read_bytes()
    store.write_bytes(content[:4096] + b"\xaa" * (len(content) - 4096))
    with pytest.raises(FrontierError, match=rf"^{store}: [^\n]+$"):
        real.queues("news", LONGEST)
    (own,) = left_in(tmp_path / "console")
    assert [*own.iterdir()] == []


async def test_a_queue_in_memory_is_listed_by_its_crawl_alone(tables: QueueTables, tmp_path: Path) -> None:
    """It has neither hosts nor next URLs to be shown; without its crawl there is nothing."""
    order = CrawlOrder.model_validate({"frontier": {"policy": "host", "store": "memory"}})
    with JobFolder.open(tmp_path / "jobs" / "brief") as folder:
        folder.write_order(dump_order(order))
        with open_job(folder.state, order) as frontier:
            schedule(frontier, a=2, b=3)

            async def answered(verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
                return answer(frontier, verb, arguments)

            async with Control(folder.state, answered):
                page = await asyncio.to_thread(tables.queues, "brief", LONGEST)
                gates = await asyncio.to_thread(tables.gates, "brief", LONGEST)
                opened = await asyncio.to_thread(tables.queue, "brief", "a.test")
    assert [(row.key, row.urls) for row in page.rows] == [("b.test", 3), ("a.test", 2)]
    assert (gates.rows, opened.row.urls, opened.urls) == ([], 2, [])
    tables.forget(before_s=float("inf"))
    with pytest.raises(UsageError, match="had it in memory only"):
        tables.queues("brief", LONGEST)


def test_tables_that_were_forgotten_are_made_anew(tables: QueueTables, job: Path) -> None:
    """At the next look."""
    tables.queues("news", LONGEST)
    tables.forget(before_s=float("inf"))
    changed(job, d=9)
    assert tables.queues("news", LONGEST).rows[0].key == "d.test"


KILLED = """
import sys, time
from pathlib import Path
from anabranch.crawler.console import queues
from anabranch.crawler.console.jobs import ConsoleJobs

def make(do):
    (folder,) = (Path(sys.argv[1]) / "console" / "queues").glob("*/*")
    (folder / "frontier.db").write_bytes(b"half")
    print("it makes them", flush=True)
    time.sleep(1e6)

jobs = ConsoleJobs(sys.argv[1] + "/jobs")
queues.QueueTables(Path(sys.argv[1]) / "console", jobs, run_aside=make).queues("news", queues.PageQuery())
"""


def test_what_a_console_was_making_when_it_was_killed_is_removed_by_the_next(job: Path, tmp_path: Path) -> None:
    """A copy may be as large as the queue."""
    console = Popen([sys.executable, "-c", KILLED, tmp_path], stdout=PIPE, text=True)
    assert console.stdout is not None
    assert console.stdout.readline() == "it makes them\n"
    console.kill()
    console.communicate()
    assert [*(tmp_path / "console").rglob("frontier.db")]
    tables = QueueTables(tmp_path / "console", ConsoleJobs(str(tmp_path / "jobs")))
    assert [*(tmp_path / "console").rglob("frontier.db")] == []
    tables.close()


FULL = """
import sys
from pathlib import Path
from anabranch.crawler.console import queues
from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.outcomes.errors import DiskFull
from anabranch.frontier.stores.sql import browse

jobs = ConsoleJobs("jobs")
for case in ("seen before", "met on the way"):
    if case == "met on the way":
        browse._refuse_lack_of_room = lambda *_: None
    tables = queues.QueueTables(Path("disk"), jobs, run_aside=lambda do: do())
    try:
        tables.queues("news", browse.PageQuery())
    except DiskFull as error:
        print(case, error, sorted(path.name for path in Path("disk").glob("queues/*/*")), sep="|")
    tables.close()
"""


@needs_small_disk
def test_a_small_disk_is_told_in_one_line(job: Path, tmp_path: Path) -> None:
    """Nothing is left on it, whether the lack of room is seen before or met on the way."""
    script = 'mkdir disk && mount -t tmpfs -o size=128k tmpfs disk && "$0" -c "$1"'
    command = ["unshare", "-Urm", "bash", "-c", script, sys.executable, FULL]
    ran = run(command, cwd=tmp_path, env=environment(), check=True, capture_output=True, text=True)
    told = "disk/queues/[^/ ]+: no room for a copy of the queue of 0 MiB; free some, then look again"
    first, second = ran.stdout.splitlines()
    assert re.fullmatch(rf"seen before\|{told}\|\[\]", first)
    assert re.fullmatch(rf"met on the way\|{told}\|\[\]", second)


def test_nothing_is_left_behind(tables: QueueTables, tmp_path: Path) -> None:
    """Neither when nobody has looked for long, nor at the end; nor of a console that was killed."""
    (tmp_path / "console" / "queues" / "killed").mkdir()
    tables.queues("news", LONGEST)
    tables.forget(before_s=float("inf"))
    (own, killed) = sorted(left_in(tmp_path / "console"), key=lambda folder: folder.name == "killed")
    assert [*own.iterdir()] == []
    other = QueueTables(tmp_path / "console", ConsoleJobs(str(tmp_path / "jobs")))
    assert not killed.exists()
    assert own.exists()
    other.close()
    tables.close()
    assert left_in(tmp_path / "console") == []
    with pytest.raises(CrawlerError, match="the console ends"):
        tables.queues("news", LONGEST)


def test_the_tables_of_a_job_that_is_removed_go_with_it(tables: QueueTables, job: Path, tmp_path: Path) -> None:
    """At the next look, which tells that there is no such job."""
    tables.queues("news", LONGEST)
    shutil.rmtree(job)
    with pytest.raises(NoSuchJob, match="'news': there is no such job"):
        tables.queues("news", LONGEST)
    (own,) = left_in(tmp_path / "console")
    assert [*own.iterdir()] == []


def test_a_full_disk_is_one_line_that_names_the_folder_of_the_console(
    tables: QueueTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the copy is left."""
    (own,) = left_in(tmp_path / "console")
    monkeypatch.setattr(queues, "make_tables", partial(full, own))
    with pytest.raises(
        DiskFull, match=rf"^{own}: no room for a copy of the queue of 0 MiB; free some, then look again$"
    ):
        tables.queues("news", LONGEST)
    assert [*own.iterdir()] == []


def full(folder: Path, *_: object, **__: object) -> None:
    raise OSError(28, "no room for a copy", str(folder / "frontier.db"))


def test_a_job_without_a_queue_is_told(tables: QueueTables, tmp_path: Path) -> None:
    """It was made, and never crawled."""
    JobFolder.open(tmp_path / "jobs" / "new").close()
    with pytest.raises(UsageError, match="the job has no queue yet"):
        tables.queues("new", LONGEST)
    assert browse.COPY not in [file.name for file in tmp_path.rglob("*") if "console" in file.parts]
