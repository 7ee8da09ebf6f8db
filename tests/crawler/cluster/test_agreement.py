"""The agreement of a job's workers on order and seeds when they join."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from anabranch.crawler.cluster.agreement import (
    Agreement,
    Applicant,
    FolderCopied,
    Joined,
    OtherOrder,
    Wanted,
    agreement_of,
    check_agreement,
    join,
    set_order,
    settings_of_run,
    shared_order,
)
from anabranch.crawler.cluster.commands import (
    DesiredState,
    Wish,
    desired_state,
    note_finished,
    put_desired_state,
    put_drained,
    put_wish,
    wish,
)
from anabranch.crawler.job.database import JobDatabase, execute, fact, fetch
from anabranch.crawler.job.frontier import open_share_holder
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.order.changes import Change, changed_order, parsed_changes
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import JobUnfinished, StaysAway, StoreLost, UsageError
from anabranch.frontier.records import Candidate
from anabranch.frontier.stores.sql.forget import forget_urls
from anabranch.frontier.stores.sql.worker import WorkerIdentity, end_late_workers
from tests.crawler.cluster.stores import shared_store

SEEDS = [Seed(url=f"http://{name}.test/", source="command line") for name in "ab"]


@pytest.fixture(params=["file", "server"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    with shared_store(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
def database(store: Path | str) -> Iterator[JobDatabase]:
    with JobDatabase(store) as opened:
        yield opened


def order_of(store: Path | str, **flags: object) -> CrawlOrder:
    place = "" if isinstance(store, Path) else store
    return load_order(None, {"store": place, **flags}, ["frontier.shares=4"])


def joined(database: JobDatabase, order: CrawlOrder, name: str = "a", seeds: list[Seed] = SEEDS, **more: int) -> Joined:
    return join(database, Wanted(order, seeds, **more), Applicant(name, f"token of {name}", is_named=False))


def at_work(store: Path | str, order: CrawlOrder, tmp_path, name: str):
    """A worker with a lease."""
    identity = WorkerIdentity(name=name, token=f"token of {name}")
    return open_share_holder(tmp_path / name, order, identity, store)


def test_the_first_worker_decides_and_others_agree(database: JobDatabase, store: Path | str, tmp_path) -> None:
    """Settings of one machine may differ; a refusal names every other difference."""
    first = joined(database, order_of(store))
    assert (first.is_first, first.name, first.added, first.round) == (True, "a", 2, 1)
    assert abs(first.now_s - time.time()) < 60
    with at_work(store, order_of(store), tmp_path, "a"):
        second = joined(database, order_of(store, workers=3), "b")
        assert (second.is_first, second.added, second.job) == (False, 0, first.job)
        with pytest.raises(
            OtherOrder, match=r"\[politeness\] min_delay is '3s' there and '1s' here; run it with the job's"
        ):
            joined(database, order_of(store, min_delay="1s"), "b")
    assert joined(database, order_of(store, min_delay="1s"), "b").is_first
    with pytest.raises(OtherOrder, match="another worker has begun with another order"):
        check_agreement(database, order_of(store))
    check_agreement(database, order_of(store, min_delay="1s"))


def test_the_order_comes_from_the_database(database: JobDatabase, store: Path | str, tmp_path) -> None:
    """But for what concerns one machine: the worker's own order has that. In a job's folder there is its order."""
    assert shared_order(database, tmp_path) is None
    joined(database, order_of(store, min_delay="1s", workers=7, name="portals"))
    found = shared_order(database, tmp_path)
    assert found is not None
    assert (found.shares, found.has_seeds) == (4, True)
    assert len(found.layers) == isinstance(store, str)
    if isinstance(store, Path):
        return
    (layer,) = found.layers
    assert layer.tables["politeness"]["min_delay"] == "1s"
    assert "seeds" not in layer.tables["job"]
    assert "metrics" not in layer.tables["report"]  # an address is one machine's
    assert "store" not in layer.tables["frontier"]


def test_names_are_made_unique_unless_the_operator_gives_one(
    database: JobDatabase, store: Path | str, tmp_path
) -> None:
    """A name belongs to the folder that had it first; archives are named by it."""
    order = order_of(store)
    joined(database, order)
    at_work(store, order, tmp_path, "a").close()
    other = join(database, Wanted(order), Applicant("a", "another folder", is_named=False))
    assert other.name == "a-2"
    assert join(database, Wanted(order), Applicant("a", "token of a", is_named=False)).name == "a"
    assert join(database, Wanted(order), Applicant("a", "another folder", is_named=True)).name == "a"


def test_what_is_fixed_stays(database: JobDatabase, store: Path | str, tmp_path) -> None:
    """The kept order is as it was after a refusal."""
    joined(database, order_of(store))
    at_work(store, order_of(store), tmp_path, "a").close()
    with pytest.raises(OtherOrder, match=r"\[frontier\] policy is 'bkdr:997' there and 'host' here; that is fixed"):
        joined(database, order_of(store, policy="host"))
    check_agreement(database, order_of(store))


def test_what_throws_urls_away_needs_consent(database: JobDatabase, store: Path | str, tmp_path) -> None:
    """Another round, and another scope, while URLs are queued; nothing is changed without it."""
    order = order_of(store)
    joined(database, order)
    with at_work(store, order, tmp_path, "a") as frontier:
        frontier.schedule([Candidate("http://a.test/")])
        frontier.flush()
        with pytest.raises(UsageError, match="a crawl it; another round begins when they have ended"):
            joined(database, order, "b", again=True)
    with pytest.raises(JobUnfinished, match="add --yes"):
        joined(database, order, again=True)
    with pytest.raises(UsageError, match=r"\[scope\] max_hops is 20 there and 3 here; queued URLs .* add --yes"):
        joined(database, order_of(store, max_hops=3))
    assert joined(database, order_of(store, max_hops=3), has_consent=True).round == 1
    again = joined(database, order, again=True, has_consent=True)
    assert (again.round, again.added) == (2, 0)
    with at_work(store, order, tmp_path, "c") as frontier:
        assert frontier.schedule([Candidate("http://a.test/")])[0].kind.value == "new"


def desired(database: JobDatabase) -> DesiredState:
    return database.do(desired_state)


def want(database: JobDatabase, state: DesiredState) -> None:
    database.do(partial(put_desired_state, state=state))


def test_a_new_job_is_wanted_and_a_stopped_one_is_not_joined(
    database: JobDatabase, store: Path | str, tmp_path
) -> None:
    """Neither while others end, nor as the first one: only the operator's word lets a worker join, and nothing was changed."""
    order = order_of(store)
    joined(database, order)
    assert desired(database) is DesiredState.RUN
    with at_work(store, order, tmp_path, "a"):
        database.do(partial(put_wish, wanted=Wish.STOP))
        want(database, DesiredState.STOPPED)
        with pytest.raises(
            StaysAway, match=r"the job is stopped, so this worker does not start; `anabranch resume .*` lets"
        ):
            joined(database, order, "b")
    for name in "aab":
        with pytest.raises(StaysAway, match="the job is stopped"):
            joined(database, order_of(store, min_delay="1s"), name)
    assert database.do(wish)[1] is Wish.STOP
    check_agreement(database, order)
    want(database, DesiredState.RUN)
    assert database.do(wish)[1] is Wish.RUN
    assert joined(database, order, "b").is_first


@pytest.mark.parametrize("state", [DesiredState.STOPPED, DesiredState.FINISHED])
def test_what_lets_a_resting_job_run_again(database: JobDatabase, store: Path | str, tmp_path, state) -> None:
    """A new seed, another round, or a command that is the operator's own; a child of that one joins as it is told."""
    order = order_of(store)
    joined(database, order)
    at_work(store, order, tmp_path, "a").close()

    def rest() -> None:
        database.do(partial(put_wish, wanted=Wish.STOP))
        want(database, state)

    rest()
    with pytest.raises(StaysAway):
        joined(database, order)
    assert not joined(database, order, leads=False).added
    assert desired(database) is state
    more = [*SEEDS, Seed(url="http://c.test/", source="command line")]
    assert joined(database, order, seeds=more).added == 1
    assert (desired(database), database.do(wish)[1]) == (DesiredState.RUN, Wish.RUN)
    rest()
    assert joined(database, order, again=True).round == 2
    at_work(store, order, tmp_path, "b").close()
    rest()
    assert joined(database, order, resumes=True).is_first
    assert desired(database) is DesiredState.RUN


def test_a_new_seed_that_is_refused_with_its_order_changes_nothing(
    database: JobDatabase, store: Path | str, tmp_path
) -> None:
    """The job stays stopped, and has no seed more."""
    joined(database, order_of(store))
    at_work(store, order_of(store), tmp_path, "a").close()
    want(database, DesiredState.STOPPED)
    more = [Seed(url="http://c.test/", source="command line")]
    with pytest.raises(OtherOrder):
        joined(database, order_of(store, policy="host"), seeds=more)
    assert desired(database) is DesiredState.STOPPED
    assert database.do(lambda connection: fetch(connection, "SELECT count(*) FROM job_seed")) == [(2,)]


def test_a_job_is_finished_only_if_nothing_is_queued_and_every_seed_was_tried(
    database: JobDatabase, store: Path | str, tmp_path
) -> None:
    """A seed that another worker has recorded and not queued yet must not be forgotten; what is queued later undoes it."""
    order = order_of(store)
    joined(database, order)
    with at_work(store, order, tmp_path, "a") as frontier:
        assert not database.do(partial(note_finished, seeds=1))
        frontier.schedule([Candidate("http://a.test/")])
        frontier.flush()
        assert not database.do(partial(note_finished, seeds=2))
    database.do(forget_urls)
    want(database, DesiredState.STOPPED)
    assert not database.do(partial(note_finished, seeds=2))  # the operator's stop stays
    want(database, DesiredState.RUN)
    assert database.do(partial(note_finished, seeds=2))
    assert desired(database) is DesiredState.FINISHED
    with pytest.raises(StaysAway, match=r"the job is finished, .* `anabranch add` continues it, `anabranch crawl"):
        joined(database, order)
    with at_work(store, order, tmp_path, "b") as frontier:
        frontier.schedule([Candidate("http://b.test/")])
        frontier.flush()
    assert desired(database) is DesiredState.RUN
    assert joined(database, order).is_first


def test_a_process_that_joins_does_not_withdraw_a_stop(database: JobDatabase, store: Path | str) -> None:
    """The job's state stays RUN for processes of one machine, so the wish alone stops them."""
    order = order_of(store)
    joined(database, order)
    database.do(partial(put_wish, wanted=Wish.STOP))
    joined(database, order, leads=False)
    assert database.do(wish)[1] is Wish.STOP


def test_a_job_of_an_earlier_version_is_wanted(database: JobDatabase, store: Path | str, tmp_path) -> None:
    """It has no such fact, whatever was wished last; who joins first writes it."""
    order = order_of(store)
    joined(database, order)
    at_work(store, order, tmp_path, "a").close()
    with database.transaction() as connection:
        put_wish(connection, Wish.STOP)
        execute(connection, "DELETE FROM job_fact WHERE name = 'desired_state'")
    assert joined(database, order).is_first
    assert database.do(partial(fact, name="desired_state")) == "run"
    assert database.do(wish)[1] is Wish.RUN


def test_a_drained_worker_stays_away_by_its_name(database: JobDatabase, store: Path | str, tmp_path) -> None:
    """Also with an empty folder, and in another round; others join."""
    order = order_of(store)
    joined(database, order)
    at_work(store, order, tmp_path, "a").close()
    database.do(partial(put_drained, name="a", is_drained=True))
    for token in ("token of a", "another folder"):
        for is_named in (False, True):
            with pytest.raises(
                StaysAway, match=r"worker a was drained and stays away; `anabranch resume .* --worker a` lets"
            ):
                join(database, Wanted(order), Applicant("a", token, is_named=is_named))
    assert joined(database, order, "b", again=True).round == 2
    with pytest.raises(StaysAway):
        joined(database, order, again=True)
    assert joined(database, order, leads=False).round == 2
    database.do(partial(put_drained, name="a", is_drained=False))
    assert joined(database, order).name == "a"


def test_a_job_of_one_worker_is_not_joined(database: JobDatabase, store: Path | str, tmp_path) -> None:
    """It goes on from its own folder."""
    from anabranch.frontier.composition import FrontierOrder, open_frontier
    from anabranch.frontier.stores.sql.store import SqlStore

    open_frontier(tmp_path, FrontierOrder(), store=SqlStore(store)).close()
    with pytest.raises(UsageError, match="holds a job of one worker; go on with it from its own folder"):
        joined(database, order_of(store))


def test_user_functions_are_compared_by_their_source(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed module is named."""
    module = tmp_path / "shared_rules_for_a_test.py"
    module.write_text("def accepts(url):\n    return True\n")
    monkeypatch.syspath_prepend(tmp_path)
    order = load_order(None, {}, ["scope.rules=shared_rules_for_a_test:accepts"])
    before = agreement_of(order)
    assert before.functions.keys() == {"shared_rules_for_a_test:accepts"}
    module.write_text("def accepts(url):\n    return False\n")
    found = before.differences(agreement_of(order))
    assert list(found.values()) == ["the module of the user function shared_rules_for_a_test:accepts differs"]


def test_another_version_is_named() -> None:
    """Workers of one job have one version."""
    here = agreement_of(CrawlOrder())
    there = Agreement("0.0.9", here.order, here.functions)
    assert there.differences(here) == {"version": f"version 0.0.9 there, {here.version} here"}


def test_a_folder_of_another_job_changes_nothing(database: JobDatabase, store: Path | str, tmp_path) -> None:
    """Not even a round that it orders is begun."""
    order = order_of(store)
    joined(database, order)
    with at_work(store, order, tmp_path, "a") as frontier:
        frontier.schedule([Candidate("http://a.test/")])
    applicant = Applicant("b", "token of b", is_named=False, job="another")
    with pytest.raises(StoreLost, match="holds another job than the one that this worker's folder belongs to"):
        join(database, Wanted(order, again=True, has_consent=True), applicant)
    assert joined(database, order).round == 1
    with at_work(store, order, tmp_path, "a") as frontier:
        assert frontier.schedule([Candidate("http://a.test/")])[0].kind.value == "seen"


def test_who_is_late_loses_its_lease_to_the_next_first_worker(
    database: JobDatabase, store: Path | str, tmp_path
) -> None:
    """It must not come back to another order, or to another round."""
    order = order_of(store)
    joined(database, order)
    with at_work(store, order, tmp_path, "a") as late, database.transaction() as connection:
        execute(connection, "UPDATE worker SET until_s = 1 WHERE name = 'a'")
        end_late_workers(connection)
        assert fetch(connection, "SELECT until_s FROM worker") == [(0.0,)]
        assert fetch(connection, "SELECT count(*) FROM share WHERE epoch IS NOT NULL") == [(0,)]
        del late
    assert joined(database, order_of(store, min_delay="1s"), "b").is_first


def test_a_worker_of_an_earlier_round_is_refused(database: JobDatabase, store: Path | str) -> None:
    """Its filter knows the URLs of that round."""
    joined(database, order_of(store))
    check_agreement(database, order_of(store), 1)
    with pytest.raises(OtherOrder, match="another round has begun; run the command again to join it"):
        check_agreement(database, order_of(store), 2)


def test_a_worker_that_joins_in_the_moment_of_a_change_lacks_it_and_agrees(
    database: JobDatabase, store: Path | str, tmp_path
) -> None:
    """It is counted which changes of the run its order has, and it follows the others; another difference is refused."""
    order = order_of(store)
    joined(database, order)
    orders = [order]
    with at_work(store, order, tmp_path, "a"):
        for settings in (["limits.pages=5", "scope.exclude+=/a"], ["scope.exclude+=/b"]):
            orders.append(changed_order(orders[-1], settings)[0])
            with database.transaction() as connection:
                set_order(connection, orders[-1], settings)
        for has, known in enumerate(orders):
            assert not joined(database, known, "b").is_first
            assert not joined(database, known, "b", leads=False).is_first
            assert check_agreement(database, known) == has
        with pytest.raises(OtherOrder, match=r"\[limits\] pages is 5 there and 9 here"):
            joined(database, changed_order(orders[-1], ["limits.pages=9"])[0], "b")
        with pytest.raises(OtherOrder, match=r"\[politeness\] min_delay is '3s' there and '1s' here"):
            joined(database, order_of(store, min_delay="1s"), "b")


def test_a_change_after_the_first_worker_has_read_the_order_is_kept(
    database: JobDatabase, store: Path | str, tmp_path
) -> None:
    """The worker begins the run by its own order with the changes that it lacks, and follows them."""
    order = order_of(store)
    joined(database, order)
    with at_work(store, order, tmp_path, "a"):  # there is a job
        pass
    read = shared_order(database, tmp_path / "b")
    assert read is not None
    settings = ["limits.pages=5"]
    changed, changes = changed_order(order, settings)
    with database.transaction() as connection:
        set_order(connection, changed, settings, changes)
    assert joined(database, order_of(store, min_delay="1s"), "b", changes=read.changes).is_first
    assert check_agreement(database, order_of(store, min_delay="1s")) == 0
    with database.transaction() as connection:
        assert settings_of_run(connection) == [settings]
    later = shared_order(database, tmp_path / "b")
    assert later is not None
    assert joined(database, changed, "b", changes=later.changes).is_first
    with database.transaction() as connection:
        assert settings_of_run(connection) == []


def lasting(database: JobDatabase) -> list[Change]:
    return parsed_changes(database.do(partial(fact, name="changes")))


def test_a_change_lasts_until_a_run_begins_without_it(database: JobDatabase, store: Path | str) -> None:
    """Later runs begin with it, whoever leads them; a run with a third value ends it."""
    order = order_of(store)
    joined(database, order)
    settings = ["limits.pages=5", "scope.exclude+=/a"]
    changed, changes = changed_order(order, settings)
    with database.transaction() as connection:
        set_order(connection, changed, settings, changes)
    assert lasting(database) == changes
    joined(database, changed)
    assert lasting(database) == changes
    third, _ = changed_order(changed, ["limits.pages=9"])
    joined(database, third)
    assert [change.key for change in lasting(database)] == ["scope.exclude"]


def from_folder(database: JobDatabase, order: CrawlOrder, folder: str) -> Joined:
    return join(database, Wanted(order, SEEDS), Applicant("a", "token of a", is_named=False, folder=folder))


def test_a_copy_of_a_folder_does_not_join_while_its_worker_is_at_work(
    database: JobDatabase, store: Path | str, tmp_path
) -> None:
    """The original folder may join: its lock says that its process has ended. A folder that was moved waits for the lease."""
    order = order_of(store)
    from_folder(database, order, "machine:1")
    with at_work(store, order, tmp_path, "a"):
        assert from_folder(database, order, "machine:1").name == "a"
        with pytest.raises(FolderCopied, match="worker a is at work from another folder") as refused:
            from_folder(database, order, "other:1")
        assert refused.value.until_s > time.time()
        with database.transaction() as connection:
            execute(connection, "UPDATE worker SET until_s = 1")
        assert from_folder(database, order, "other:1").name == "a"


def test_a_worker_whose_folder_was_copied_does_not_come_back(database: JobDatabase, store: Path | str) -> None:
    """Else each of the two would take the other's lease away, again and again."""
    order = order_of(store)
    from_folder(database, order, "machine:1")
    from_folder(database, order, "other:1")
    copied, copy = (Applicant("a", "token of a", is_named=False, folder=f"{name}:1") for name in ("machine", "other"))
    check_agreement(database, order, 1, copy)
    with pytest.raises(FolderCopied):
        check_agreement(database, order, 1, copied)
