"""A job in a database is asked by whoever crawls it, also by a worker that begins just then."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.crawler.job.database import JobDatabase
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job, open_share_holder
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.workerfolders import shared_file
from anabranch.crawler.operate.job import Job
from anabranch.crawler.operate.moving import divide, move
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import dump_order
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE
from anabranch.crawler.run import stopped_verbs
from anabranch.crawler.run.job_rows import JobRows, NoWorkers
from anabranch.crawler.run.stopped_verbs import held_whole
from anabranch.crawler.run.verbs import JobIsRunning
from anabranch.frontier.stores.sql.worker import WorkerIdentity
from tests.patience import HANG_S
from tests.postgres_server import server

ORDER = load_order(None, {"worker_lease": "500ms"}, [])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a stopped job's database."""
    with server() as url:
        place = url.replace(":@", "@")
        with JobFolder.open(tmp_path / "job") as folder:
            folder.write_order(dump_order(ORDER))
            open_job(folder.state, ORDER).close()
        move(str(tmp_path / "job"), place, 4)
        yield place


def worker(tmp_path: Path, place: str) -> Any:
    state = tmp_path / "state"
    state.mkdir()
    with closing(JobDatabase(place)) as database:
        order = JobRows(database).order
    return closing(open_share_holder(state, order, WorkerIdentity(name="a", token="1"), place))


def test_a_command_gives_the_job_up_to_a_worker_that_begins(tmp_path: Path, place: str) -> None:
    """At once: it has found none at work, and waits for the shares."""
    with (
        closing(JobDatabase(place)) as database,
        worker(tmp_path, place),
        pytest.raises(JobIsRunning, match="worker a crawls it"),
        held_whole(JobRows(database)),
    ):
        pass


def test_a_worker_that_begins_meanwhile_is_asked(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that has found none at work asks again by itself."""
    found = iter([NoWorkers("nobody")])

    def answer(_: JobRows, verb: str, arguments: object) -> dict[str, object]:
        for error in found:
            raise error
        return {"verb": verb, "by": "a", "arguments": arguments}

    monkeypatch.setattr(JobRows, "answer", answer)
    with worker(tmp_path, place):
        assert Job(None, place).report({"name": "hosts"})["by"] == "a"


def test_a_command_that_holds_the_job_is_no_worker_that_others_ask(place: str) -> None:
    """It would never answer: they wait until it has ended, and hold the job themselves."""
    with closing(JobDatabase(place)) as database, held_whole(JobRows(database)):
        rows = JobRows(database)
        assert rows.at_work() == []
        with pytest.raises(NoWorkers):
            rows.answer("report", {"name": "hosts"})


def test_two_commands_hold_a_stopped_job_one_after_the_other(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits for the first."""
    monkeypatch.setattr(stopped_verbs, "PATIENCE_S", HANG_S)
    with ThreadPoolExecutor() as pool:
        reports = [pool.submit(Job(None, place).report, {"name": "hosts"}) for _ in range(3)]
    assert [report.result()["rows"] for report in reports] == [[]] * 3


def test_two_commands_hold_a_stopped_job_of_processes_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain job is held so, too."""
    monkeypatch.setattr(stopped_verbs, "LOOKING_S", HANG_S)
    with JobFolder.open(tmp_path / "job") as folder:
        folder.write_order(dump_order(ORDER))
        open_job(folder.state, ORDER).close()
    divide(tmp_path / "job", 4)
    file = shared_file(tmp_path / "job")
    assert file is not None
    with ThreadPoolExecutor() as pool:
        reports = [pool.submit(Job(tmp_path / "job", file).report, {"name": "hosts"}) for _ in range(3)]
    assert [report.result()["rows"] for report in reports] == [[]] * 3


def test_a_stopped_job_of_processes_is_explained_like_one_of_one_process(tmp_path: Path) -> None:
    """The URL waits because nobody crawls the job, and the line says how the last run ended."""
    with JobFolder.open(tmp_path / "job") as folder:
        folder.write_order(dump_order(ORDER))
        open_job(folder.state, ORDER).close()
    alone = Job(tmp_path / "job")
    assert alone.add([Seed(url="http://a.test/", source="x")])[1][0]["verdict"] == "new"
    (tmp_path / "job" / "logs" / PROGRESS_LOG_FILE).write_text(
        "2026-11-20T11:22:34Z CRAWL ENDED - stopped by a signal\n"
    )
    before = alone.answer("why", {"url": "http://a.test/"})
    divide(tmp_path / "job", 4)
    after = Job(tmp_path / "job", shared_file(tmp_path / "job")).answer("why", {"url": "http://a.test/"})
    assert after.facts["explanation"]["reason"] == before.facts["explanation"]["reason"]
    assert "no process crawls the job (stopped by a signal)" in after.facts["explanation"]["reason"]


def test_a_command_that_another_one_keeps_waiting_ends(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so."""
    monkeypatch.setattr(stopped_verbs, "PATIENCE_S", 0.0)
    with (
        closing(JobDatabase(place)) as database,
        held_whole(JobRows(database)),
        pytest.raises(stopped_verbs.WorkersSilent, match="another command holds the job; ask again"),
        held_whole(JobRows(database)),
    ):
        pass
