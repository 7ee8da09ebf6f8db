"""A job that one process has begun is divided, whoever is killed meanwhile, and nothing is missing."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from anabranch.crawler.cluster import commands
from anabranch.crawler.job.database import JobDatabase, drop_fact, fetch, has_job
from anabranch.crawler.job.folder import JobFolder, refuse_moved
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.job.state import ARRIVES_FROM, MOVED_TO, is_finished
from anabranch.crawler.job.workerfolders import is_old_division, shared_file
from anabranch.crawler.operate import moving
from anabranch.crawler.operate.moving import Divided, divide, move, settle_arrival
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import dump_order
from anabranch.crawler.outcomes.errors import DiskFull, JobMoved, JobMoving, OrderError, UsageError
from anabranch.crawler.run.job_rows import JobRows
from anabranch.crawler.run.stopped_verbs import WholeJob, opened_whole
from anabranch.frontier.jobfolder import is_job
from anabranch.frontier.records import Candidate, GateKey, Outcome, OutcomeKind, QueueKey
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.stores.sql.postgres import PostgresDatabase
from tests.postgres_server import server


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of one process: of 40 URLs, 2 are fetched."""
    directory = tmp_path / "job"
    order = load_order(None, {"min_delay": "0s", "max_delay": "0s"}, [])
    with JobFolder.open(directory) as folder:
        folder.write_order(dump_order(order))
        with open_job(folder.state, order) as frontier, opened_seeds(folder.state) as recorded:
            recorded.add_all([Seed(url="http://h0.test/", source="command line")])
            frontier.schedule([Candidate(f"http://h{number % 7}.test/{number}") for number in range(40)])
            frontier.flush()
            for _ in range(2):
                while (lease := frontier.lease()) is None:
                    frontier.flush()
                frontier.finish(lease, Outcome(OutcomeKind.DONE, 200), [])
            frontier.flush()
    return directory


def urls(job: Path) -> tuple[set[str], set[str]]:
    """Return the queued and the ended URLs of the job's dump, after a check of its seeds."""
    file = shared_file(job)
    assert file is not None
    with JobDatabase(file) as database, opened_whole(JobRows(database)) as whole:
        lines = [json.loads(line) for line in whole.frontier.operations.dump()]
        assert [seed.url for seed in whole.seeds] == ["http://h0.test/"]
    listed = [line for line in lines if "url" in line]
    queued, ended = ({line["url"] for line in listed if ("outcome" in line) is is_ended} for is_ended in (False, True))
    return queued, ended


def test_what_is_queued_and_what_has_ended_stay_so(job: Path) -> None:
    """The number of shares is fixed from then on."""
    assert divide(job, 8) == Divided(shares=8, queued=38, ended=2)
    queued, ended = urls(job)
    assert (len(queued), len(ended), queued & ended) == (38, 2, set())
    with pytest.raises(UsageError, match="has several shares already; their number is fixed"):
        divide(job, 16)


def test_pauses_budgets_and_blocks_stay(tmp_path: Path) -> None:
    """A queue of many hosts has a part in each share of its hosts: the parts together have what is left of its budget."""
    directory = tmp_path / "job"
    order = load_order(None, {"min_delay": "0s", "max_delay": "0s", "policy": "bkdr:2"}, [])
    with JobFolder.open(directory) as folder:
        folder.write_order(dump_order(order))
        with open_job(folder.state, order) as frontier, opened_seeds(folder.state) as recorded:
            recorded.add_all([Seed(url="http://h0.test/", source="command line")])
            frontier.schedule([Candidate(f"http://h{number}.test/") for number in range(40)])
            frontier.flush()
            operations = frontier.operations
            operations.pause(QueueKey("bkdr:0"))
            operations.set_budget(QueueKey("bkdr:1"), 12)
            frontier.block(GateKey("h7.test"), frontier.now_s() + 3600)
            frontier.flush()
            while (lease := frontier.lease()) is None:
                frontier.flush()
            later = Outcome(OutcomeKind.RETRY, after_s=3600.0)
            frontier.finish(lease, later, [])
            frontier.flush()
            before = {queue.key: queue for queue in operations.queues(limit=10)}
    divide(directory, 4)
    file = shared_file(directory)
    assert file is not None
    with JobDatabase(file) as database, opened_whole(JobRows(database)) as whole:
        listed = whole.frontier.operations.queues(limit=50)
        paused = [queue for queue in listed if queue.key.endswith("bkdr:0")]
        assert {queue.state for queue in paused} == {QueueState.PAUSED}
        assert sum(queue.urls for queue in paused) == before[QueueKey("bkdr:0")].urls
        with database.transaction() as connection:
            parts = fetch(connection, "SELECT budget, spent FROM queue WHERE key LIKE '%/bkdr:1'")
        limited = before[QueueKey("bkdr:1")]
        assert sum(budget - spent for budget, spent in parts) == limited.budget - limited.spent
        blocked_s = whole.frontier.operations.gate(GateKey("h7.test")).opens_s - whole.frontier.now_s()
        assert 3500 < blocked_s <= 3600
        assert [due_s > whole.frontier.now_s() + 3500 for due_s in due_times(whole)] == [True]


def due_times(whole: WholeJob) -> list[float]:
    """When the URLs that wait for a retry are due."""
    lines = [json.loads(line) for line in whole.frontier.operations.dump()]
    return [line["due_s"] for line in lines if "due_s" in line]


@pytest.mark.parametrize("step", ["_made", "_put_in_place", "clear_filter", "begin_anew"])
def test_who_is_killed_while_dividing_does_it_again(job: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Before each step the job is as it was, or the next one does the rest."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(moving, step, killed)
        with pytest.raises(KeyboardInterrupt):
            divide(job)
    assert is_old_division(job) is (step != "_made")
    divide(job)
    assert not is_old_division(job)
    queued, ended = urls(job)
    assert (len(queued), len(ended)) == (38, 2)


def test_what_cannot_be_divided_is_refused(job: Path, tmp_path: Path) -> None:
    """Nothing is changed then."""
    order = load_order(job / "order.toml", {})
    similar = order.model_copy(update={"dedup": order.dedup.model_copy(update={"similar": "published"})})
    (job / "order.toml").write_text(dump_order(similar))
    with pytest.raises(OrderError, match="similar: whether a URL is similar depends on all that came before it"):
        divide(job)
    assert not is_old_division(job)
    with JobFolder.open(tmp_path / "new"):
        pass
    with pytest.raises(UsageError, match="the job has not begun"):
        divide(tmp_path / "new")


def test_links_under_way_in_an_earlier_version_keep_what_they_say() -> None:
    """Fields that the link lacks are left out."""
    assert moving._link("http://a/", "http://b/", "L") == {"url": "http://b/", "via": "http://a/", "hops": "L"}
    said = moving._link(None, "http://b/", None, "\x01", "k", True, False, 7)
    assert said == {"url": "http://b/", "payload": "AQ==", "key": "aw==", "precedence": 0x107}


@pytest.fixture
def store() -> Iterator[str]:
    with server() as url:
        yield url.replace(":@", "@")


NOTE = "note_place "


def moved_by_a_process_that_dies(step: str, source: str, target: str, *, is_far: bool) -> None:
    """Move in a process that is gone before this step: a function, or one that writes this file; `is_far`: to another disk."""
    name, _, file = step.partition(" ")
    called = getattr(moving, name)

    def gone(*given: object, **named: object) -> object:
        if not file or file in given:
            os._exit(9)
        return called(*given, **named)

    if (child := os.fork()) == 0:
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(moving, name, gone)
                if is_far:
                    patch.setattr(moving, "_renamed", lambda *_: False)
                move(source, target, 0 if source.startswith("postgresql") else 4)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def is_crawled(place: str) -> bool:
    """Whether a crawl would begin there."""
    try:
        if not place.startswith("postgresql"):
            settle_arrival(Path(place))
            refuse_moved(Path(place))
            return is_job(Path(place))
        with JobDatabase(place) as database, database.transaction() as connection:
            if not has_job(connection):
                return False
            with suppress(JobMoving):  # a worker waits for its end
                commands.refuse_moved(place, connection)
            return True
    except JobMoved:
        return False


@pytest.mark.parametrize(
    ("way", "step"),
    [("there", step) for step in ("copy_job", "_divided", "put_arrival", NOTE + MOVED_TO, "_end_arrival")]
    + [("back", step) for step in ("copy_job", "keep_changes", NOTE + ARRIVES_FROM, "put_moved", "_end_arrival")]
    + [("far", step) for step in (NOTE + ARRIVES_FROM, NOTE + MOVED_TO, "_end_arrival")],
)
def test_one_job_is_crawled_whatever_step_is_the_last_one(
    job: Path, store: str, tmp_path: Path, way: str, step: str
) -> None:
    """Until the source has its note it is the source; and the same call ends the move."""
    source, target = str(job), str(tmp_path / "new") if way == "far" else PostgresDatabase(store).place
    if way == "back":
        move(source, target, 4)
        source, target = target, str(tmp_path / "back")
    moved_by_a_process_that_dies(step, source, target, is_far=way == "far")
    assert [is_crawled(source), is_crawled(target)] == ([False, True] if step == "_end_arrival" else [True, False])
    if way == "back":  # the time is over for which a killed move holds the job
        with JobDatabase(store) as database:
            database.do(partial(drop_fact, name="moving"))
    move(source, target, 0 if way == "back" else 4)
    assert [is_crawled(source), is_crawled(target)] == [False, True]


def test_odd_places_are_refused_before_anything_is_changed(job: Path, tmp_path: Path) -> None:
    """A link would be renamed in the place of its folder; a slip in a URL would be a folder."""
    (tmp_path / "link").symlink_to(job)
    for source, target, words in (
        (tmp_path / "link", tmp_path / "new", "is a link; name the folder that it leads to"),
        (job, job / "new", "is in the folder that is to be moved"),
        (job, "postgres://x/y", "the URL of a job's database begins with postgresql://"),
        (job, "postgresql://x/my%20jobs", "has a name without spaces"),
    ):
        with pytest.raises(UsageError, match=words):
            move(str(source), str(target))
    assert is_crawled(str(job))
    assert [*tmp_path.glob("new*")] == []


def test_the_same_move_of_a_folder_that_was_renamed_has_nothing_to_do(job: Path, tmp_path: Path) -> None:
    """Another one is told that there is no job."""
    for _ in range(2):
        assert move(str(job), str(tmp_path / "new")).place == str(tmp_path / "new")
    with pytest.raises(UsageError, match="there is no such job"):
        move(str(tmp_path / "other"), str(tmp_path / "new"))


def test_a_folder_without_room_keeps_nothing_of_a_copy(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the job stays where it is."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(moving, "_renamed", lambda *_: False)
    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(DiskFull, match="new"):
        move(str(job), str(tmp_path / "new"))
    assert is_crawled(str(job))
    assert [*tmp_path.glob("*new*"), *tmp_path.glob(".*new*")] == []


def test_a_finished_job_stays_finished(job: Path, store: str, tmp_path: Path) -> None:
    """Its first worker is told so, and so is the folder that it comes back to."""
    order = load_order(job / "order.toml", {})
    with JobFolder.open(job) as folder:
        with open_job(folder.state, order) as frontier:
            while not frontier.is_done:
                while (lease := frontier.lease()) is None:
                    frontier.flush()
                frontier.finish(lease, Outcome(OutcomeKind.DONE, 200), [])
            frontier.flush()
        folder.mark_finished()
    move(str(job), store, 4)
    with JobDatabase(store) as database:
        assert database.do(commands.desired_state) is commands.DesiredState.FINISHED
    move(store, str(tmp_path / "back"))
    assert is_finished(tmp_path / "back" / "state")
