"""Several workers on one job: each URL is fetched once, by whoever holds its share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection

from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.composition import open_frontier, share_rule_of
from anabranch.frontier.errors import FormatMismatch, Passing, PolicyError, StoreInUse, StoreSetBack, StoreUnavailable
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.inspect.explain import QueueView
from anabranch.frontier.records import (
    Candidate,
    GateKey,
    Outcome,
    OutcomeKind,
    name_id,
)
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.execution import fetch
from anabranch.frontier.stores.sql.postgres import PostgresDatabase
from anabranch.frontier.stores.sql.store import SqlStore
from anabranch.frontier.stores.sql.worker import Shared, WorkerIdentity
from scripts.postgres_server import administer, fresh_database
from tests.frontier.shares.team import (
    SHARES,
    TTL_S,
    Site,
    Worker,
    at_once,
    crawl,
    frozen,
    identity,
    is_divided,
    order,
    team,
    until,
    waiting,
)
from tests.frontier.test_composition import crash
from tests.patience import HANG_S
from tests.postgres_server import own_server, server

#: Of a worker that is to lose its lease soon.
SHORT_S = 1.0
#: Of one that may lose it at any time, for nobody else is there yet.
SHORTEST_S = 0.3


@pytest.mark.parametrize("policy", ["host", "bkdr:7", "domain"])
def test_three_workers_fetch_each_page_once(place: Path | str, policy: str) -> None:
    """Whichever worker finds a link, the one that holds its share fetches it."""
    site = Site(hosts=30, pages=120)
    with team(place, policy=policy) as workers:
        workers[0].frontier.schedule([Candidate(site.urls[0])])
        assert crawl(workers, site) == Counter(site.urls)
        assert all(worker.fetched for worker in workers) or policy == "domain"
        workers[0].frontier.flush()
        until(lambda: workers[1].store.job_counts().is_done, workers)
        assert workers[1].store.job_counts().counters.done == len(site.urls)


class GeoAway(Passing):
    """The service of a user's queue policy does not answer."""


GEO = {"is_away": False}


def by_geo(url: str) -> str:
    """A queue policy of the user that asks a service."""
    if GEO["is_away"]:
        raise GeoAway("geo: no answer")
    return url.split("/")[2]


def test_links_whose_policy_cannot_answer_now_wait_and_are_queued_when_it_can(place: Path | str) -> None:
    """It answered the worker that sent them. The receiving one says for what it waits, and ends nothing by it."""
    site = Site(hosts=30, pages=60)
    with team(place, policy=f"{__name__}:by_geo") as workers:
        GEO["is_away"] = False
        workers[0].frontier.schedule([Candidate(url) for url in site.urls])
        workers[0].frontier.flush()
        GEO["is_away"] = True
        until(lambda: all(worker.frontier.counts().trouble for worker in workers[1:]), workers)
        assert "GeoAway: geo: no answer" in workers[1].frontier.counts().trouble
        assert not workers[1].store.job_counts().is_done
        GEO["is_away"] = False
        assert crawl(workers, site) == Counter(site.urls)
        assert not any(worker.frontier.counts().trouble for worker in workers)


def test_workers_that_begin_at_once_make_one_job(place: Path | str) -> None:
    """One makes the tables; the others wait for it, or find them made."""
    with ThreadPoolExecutor(4) as pool:
        workers = list(pool.map(lambda name: Worker(place, name, order()), "abcd"))
    until(lambda: is_divided(workers), workers)
    assert sorted(worker.name for worker in workers[0].store.workers()) == list("abcd")
    for worker in workers:
        worker.close()


def test_workers_that_claim_at_the_same_time_look_at_other_shares() -> None:
    """The second one does not wait for the first one's commit."""
    with server() as place:
        Worker(place, "a", order()).close()
        database = PostgresDatabase(place, lock_s=TTL_S)
        with database.connected() as one, database.connected() as other, one.begin(), other.begin():
            first, second = (fetch(connection, statements.UNHELD_SHARES, (3,)) for connection in (one, other))
            assert (len(first), len(second), {*first} & {*second}) == (3, 3, set())


def test_a_worker_that_joins_gets_its_part_and_nothing_is_fetched_twice(place: Path | str) -> None:
    """A share goes over when the fetches of it that are under way have ended."""
    site = Site(hosts=40, pages=200)
    with team(place, "ab") as workers:
        workers[0].frontier.schedule([Candidate(url) for url in site.urls])
        until(lambda: sum(worker.frontier.pending for worker in workers) == len(site.urls), workers)
        until(lambda: sum(len(worker.held) for worker in workers) > 20, workers, lambda: [w.lease(40) for w in workers])
        third = Worker(place, "c", order())
        everyone = [*workers, third]
        until(lambda: all(len(worker.serving) <= 3 for worker in workers), everyone)
        third.lease()
        third.fetch(site)
        for worker in workers:
            worker.fetch(site)
        until(lambda: is_divided(everyone), everyone)
        assert crawl(everyone, site) == Counter(site.urls)
        assert third.fetched
        third.close()


def test_a_share_is_given_back_after_all_that_was_written_for_it(place: Path | str) -> None:
    """Once it is given back, another worker may hold it, and nothing may be written for it any more."""
    with team(place, "a") as (one,):
        one.frontier.schedule([Candidate(f"http://h{number}.test/") for number in range(60)])
        until(lambda: one.lease(1) > 0, [one])
        release, unsent = one.store.release, list[bool]()

        def noted(shares: Collection[int]) -> None:
            unsent.append(not one.frontier._parts.outbox.batch.is_empty)
            release(shares)

        one.store.release = noted  # type: ignore[method-assign]
        other = Worker(place, "b", order())
        until(lambda: len(one.serving) < SHARES, [one, other])
        one.fetch(Site(hosts=1, pages=1))
        until(lambda: is_divided([one, other]), [one, other])
        assert unsent
        assert not any(unsent)
        other.close()


def test_what_each_worker_counts_is_what_its_shares_hold(place: Path | str) -> None:
    """However many shares come or go at once, all workers together count each URL once."""
    with team(place, "a") as (one,):
        one.frontier.schedule([Candidate(f"http://h{number}.test/") for number in range(60)])
        one.frontier.flush()
        others = [Worker(place, name, order()) for name in "bc"]
        everyone = [one, *others]
        until(lambda: is_divided(everyone), everyone)  # seven shares go, or five and then more
        assert sum(worker.frontier.pending for worker in everyone) == 60
        assert all(worker.frontier.pending for worker in everyone)
        for worker in others:
            worker.close()
        until(lambda: len(one.serving) == SHARES, [one])
        assert one.frontier.pending == 60


def test_what_is_given_back_is_counted_once_whatever_else_is_in_the_transaction(place: Path | str) -> None:
    """A look beside the release finds the same shares gone."""
    one = Worker(place, "a", order(), look_s=0.0)  # with each transaction
    until(lambda: len(one.serving) == SHARES, [one])
    one.frontier.schedule([Candidate(f"http://h{number}.test/") for number in range(60)])
    one.frontier.flush()
    other = Worker(place, "b", order())
    until(lambda: is_divided([one, other]), [one, other])
    until(lambda: one.frontier.pending + other.frontier.pending == 60, [one, other])
    for worker in (one, other):
        worker.close()


def test_a_share_that_comes_back_is_as_the_other_worker_left_it(place: Path | str) -> None:
    """Nothing that was remembered of it holds: its lanes have other counts."""
    site, late = Site(hosts=40, pages=200), [f"http://h{number % 40}.test/late/{number}" for number in range(200)]
    with team(place, "ab") as workers:
        workers[0].frontier.schedule([Candidate(url) for url in site.urls])
        third = Worker(place, "c", order())
        everyone = [*workers, third]
        until(lambda: is_divided(everyone), everyone)
        workers[0].frontier.schedule([Candidate(url) for url in late])
        until(lambda: not workers[0].store.job_counts().links, everyone)
        until(lambda: third.lease(5) > 0, everyone)
        third.fetch(site)
        third.close()
        until(lambda: is_divided(workers), workers)

        def fetch() -> None:
            for worker in workers:
                worker.lease()
                worker.fetch(site)

        until(lambda: workers[0].frontier.is_done, workers, fetch)
        workers[0].frontier.operations.check()


def test_the_shares_of_a_worker_that_leaves_are_taken_over(place: Path | str) -> None:
    """In order: nothing is fetched twice, and a URL that waits for its retry comes along."""
    site = Site(hosts=20, pages=60)
    with team(place, "ab") as (one, other):
        one.frontier.schedule([Candidate(url) for url in site.urls])
        until(lambda: one.frontier.pending + other.frontier.pending == len(site.urls), [one, other])
        until(lambda: bool(one.lease(1)), [one, other])
        one.frontier.finish(one.held.pop(), Outcome(OutcomeKind.RETRY, -2, after_s=0.2))
        one.close()
        until(lambda: len(other.serving) == SHARES, [other])
        assert crawl([other], site) == Counter(site.urls)
        other.frontier.operations.check()


def test_a_worker_that_was_away_for_too_long_writes_nothing_more(place: Path | str) -> None:
    """Others have its shares, and fetch again what it had leased; its commits are refused."""
    site = Site(hosts=20, pages=60)
    lost = Worker(place, "lost", order(), ttl_s=SHORTEST_S)
    until(lambda: len(lost.serving) == SHARES, [lost])
    lost.frontier.schedule([Candidate(url) for url in site.urls])
    until(lambda: lost.lease(5) > 0, [lost])
    with frozen(lost):
        other = Worker(place, "other", order())
        until(lambda: len(other.serving) == SHARES, [other])
        assert crawl([other], site) == Counter(site.urls)
    with pytest.raises(StoreUnavailable, match="worker lost was away for longer than its lease"):
        until(lambda: False, [lost], lambda: lost.fetch(site))
    lost.store.close(clean=False)
    other.frontier.operations.check()
    other.close()


def test_a_worker_stuck_in_a_transaction_does_not_hold_up_the_others() -> None:
    """It has entered a URL that another one finds, too, and does not commit: its lease ends, and then its session."""
    site, stops, goes_on = Site(hosts=20, pages=60), Event(), Event()
    with server() as place:
        stuck = Worker(place, "stuck", order(), ttl_s=SHORT_S)
        until(lambda: len(stuck.serving) == SHARES, [stuck])
        put_totals = stuck.store._owner.put_totals

        def stop(*arguments: Any) -> None:
            put_totals(*arguments)
            stops.set()
            assert goes_on.wait(HANG_S)

        stuck.store._owner.put_totals = stop  # type: ignore[method-assign]
        other = Worker(place, "other", order(), ttl_s=SHORT_S)
        stuck.frontier.schedule([Candidate(url) for url in site.urls])
        assert stops.wait(HANG_S)
        other.frontier.schedule([Candidate(url) for url in site.urls])
        assert crawl([other], site) == Counter(site.urls)
        other.close()
        goes_on.set()
        with pytest.raises(StoreUnavailable):
            stuck.frontier.flush()
        stuck.store.close(clean=False)


@pytest.mark.slow
def test_workers_go_on_by_themselves_when_the_server_was_away() -> None:
    """For longer than their leases last: all are late then, and none takes the shares of another."""
    site = Site(hosts=20, pages=120)
    with own_server() as own, fresh_database(own.url) as place:
        workers = [Worker(place, name, order(), ttl_s=6 * SHORT_S) for name in "ab"]
        until(lambda: is_divided(workers), workers)
        workers[0].frontier.schedule([Candidate(url) for url in site.urls[:60]])
        until(lambda: sum(worker.lease(3) for worker in workers) > 0, workers)
        own.kill()
        for worker in workers:
            worker.fetch(site)
        hostings = [worker.frontier._store_link.hosting for worker in workers]
        until(lambda: not any(hosting and hosting.may_lease() for hosting in hostings), workers)
        own.start()
        assert crawl(workers, site) == Counter(site.urls)
        assert len(workers[0].store.workers()) == 2
        for worker in workers:
            worker.close()


def test_the_session_of_a_worker_is_known_after_a_new_one_that_failed_at_first() -> None:
    """Whoever takes over must be able to end it."""
    with server() as place:
        worker = Worker(place, "a", order())
        until(lambda: len(worker.serving) == SHARES, [worker])
        owner, failures = worker.store._owner, [psycopg.OperationalError("it breaks again")]
        rejoin = owner.rejoin

        def breaking(connection: Connection, *, is_new: bool) -> None:
            rejoin(connection, is_new=is_new)
            if failures:
                raise failures.pop()

        owner.rejoin = breaking  # type: ignore[method-assign]
        noted = "SELECT split_part(session, ' ', 1)::int FROM worker WHERE until_s > 0"
        ((before,),) = administer(place, noted)
        administer(place, f"SELECT pg_terminate_backend({before}, 10000)")
        worker.frontier.schedule([Candidate("http://h.test/")])
        worker.frontier.flush()
        assert not failures
        ((after,),) = administer(place, noted)
        assert (after,) in administer(place, "SELECT pid FROM pg_stat_activity WHERE application_name = 'anabranch'")
        assert after != before
        worker.close()


def test_a_worker_leases_nothing_when_its_lease_may_end_soon(place: Path | str) -> None:
    """It cannot know whether others have taken over."""
    site = Site(hosts=20, pages=60)
    worker = Worker(place, "late", order(), ttl_s=SHORTEST_S)
    until(lambda: len(worker.serving) == SHARES, [worker])
    worker.frontier.schedule([Candidate(url) for url in site.urls])
    until(lambda: worker.lease(1) > 0, [worker])
    with frozen(worker):
        hosting = worker.frontier._store_link.hosting
        assert hosting is not None
        until(lambda: not hosting.may_lease(), [worker])
        assert worker.frontier.lease() is None
    until(lambda: worker.lease(1) > 0, [worker])  # nobody else was there
    worker.fetch(site)
    worker.close()


def test_a_successor_from_the_same_folder_takes_over_at_once(place: Path | str) -> None:
    """A worker that was killed and is started again need not wait for the end of its former lease."""
    before = Worker(place, "a", order(), token="folder")
    until(lambda: len(before.serving) == SHARES, [before])
    with frozen(before):
        after = Worker(place, "a", order(), token="folder")
        until(lambda: len(after.serving) == SHARES, [after])
        assert [worker.name for worker in after.store.workers()] == ["a"]
    before.store.close(clean=False)
    after.close()


def test_two_workers_with_one_name_are_refused(place: Path | str) -> None:
    """The second one is told so, and the first goes on."""
    with team(place, "a") as (one,):
        with pytest.raises(
            StoreInUse, match="a worker named a is at work from another folder; give this one another name"
        ):
            Worker(place, "a", order(), token="elsewhere")
        one.frontier.schedule([Candidate("http://h.test/")])
        one.frontier.flush()


# A store that was set back

TABLES = ("url", "done", "seen", "lane", "queue", "gate", "parcel", "page", "share", "worker", "link", "crawl")


def save(connection: Connection) -> None:
    """Keep a copy of all rows, as a dump of a running job does."""
    for table in TABLES:
        connection.exec_driver_sql(f"CREATE TABLE saved_{table} AS SELECT * FROM {table}")


def set_back(connection: Connection) -> None:
    """Put the copy in the place of the rows, as a restore or a standby that lacks commits does."""
    for table in TABLES:
        connection.exec_driver_sql(f"DELETE FROM {table}")
        connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM saved_{table}")


def is_set_back(worker: Worker) -> bool:
    """The worker has noticed it."""
    try:
        worker.frontier.take_answers()
    except StoreSetBack:
        return True
    return False


FIRST, SECOND = Candidate("http://a.test/1"), Candidate("http://a.test/2")


def test_a_worker_notices_that_its_store_was_set_back_and_joins_with_a_fresh_filter(
    place: Path | str, tmp_path: Path
) -> None:
    """Before it writes anything more; what only its filter knew is new again."""
    worker = Worker(place, "a", order(), state=tmp_path / "a")
    until(lambda: len(worker.serving) == SHARES, [worker])
    worker.frontier.schedule([FIRST])
    worker.frontier.flush()
    at_once(place, save)
    worker.frontier.schedule([SECOND])
    worker.frontier.flush()
    at_once(place, set_back)
    for _ in waiting([worker]):
        if is_set_back(worker):
            break
    worker.frontier.close()
    again = Worker(place, "a", order(), state=tmp_path / "a")
    until(lambda: len(again.serving) == SHARES, [again])
    assert "older copy" in again.frontier.filter_renewed or "not in the store" in again.frontier.filter_renewed
    assert [verdict.kind.value for verdict in again.frontier.schedule([SECOND])] == ["new"]
    again.frontier.flush()
    assert again.store.job_counts().counters.queued == 2
    again.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_worker_that_joins_a_restored_job_gets_a_fresh_filter(
    place: Path | str, tmp_path: Path, *, clean: bool
) -> None:
    """However it had left; a worker that had left before the dump keeps its own."""
    early = Worker(place, "early", order(), state=tmp_path / "early")
    until(lambda: len(early.serving) == SHARES, [early])
    early.frontier.schedule([FIRST])
    early.frontier.flush()
    early.close()
    worker = Worker(place, "a", order(), state=tmp_path / "a")
    until(lambda: len(worker.serving) == SHARES, [worker])
    at_once(place, save)
    worker.frontier.schedule([SECOND])
    worker.frontier.flush()
    if clean:
        worker.close()
    else:
        crash(worker.frontier)
    at_once(place, set_back)
    for name, why in (("a", "older copy"), ("early", "")):
        again = Worker(place, name, order(), token=name, state=tmp_path / name)
        assert why in again.frontier.filter_renewed
        assert bool(why) == bool(again.frontier.filter_renewed)
        again.close()


def test_a_worker_that_goes_on_after_an_outage_is_not_taken_for_one_that_was_set_back() -> None:
    """Its lease is as it left it, whichever of its last commits took place."""
    ends = (
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with server() as place, team(place, "ab") as workers:
        for number in range(5):
            for worker in workers:
                worker.frontier.schedule([Candidate(f"http://{worker.name}{number}.test/")])
            administer(place, ends)
            for worker in workers:
                worker.frontier.flush()


def test_another_number_of_shares_is_refused(place: Path | str) -> None:
    """It is fixed when the job is made, and so is what decides."""
    with team(place, "a"):
        with pytest.raises(FormatMismatch, match="shares is 8 by host in the job, 9 by host in the order"):
            Worker(place, "b", order(shares=9))
        with pytest.raises(FormatMismatch, match="shares is 8 by host in the job, 8 by domain in the order"):
            Worker(place, "b", order(group="domain"))


@pytest.mark.parametrize("policy", ["host", "bkdr:7"])
def test_an_operator_changes_queues_where_their_share_is(place: Path | str, policy: str) -> None:
    """Elsewhere it is refused; a gate of another worker is left alone, and what concerns all queues needs all shares."""
    rule = share_rule_of(order())
    with team(place, "ab", policy=policy) as (one, other):
        names = [f"h{number}.test" for number in range(99)]
        ours = next(name for name in names if rule.of_host(name) in one.serving)
        theirs = next(name for name in names if rule.of_host(name) in other.serving)
        one.frontier.schedule([Candidate(f"http://{ours}/"), Candidate(f"http://{theirs}/")])
        until(lambda: other.frontier.pending == 1, [one, other])
        ((mine,), (foreign,)) = (
            [view.key for view in held.frontier.operations.longest() if is_held(held, view)] for held in (one, other)
        )
        operations = one.frontier.operations
        for change in (operations.pause, operations.resume, operations.retire):
            change(mine)
            with pytest.raises(PolicyError, match=f"^{change.__name__} {foreign}: another worker holds its share"):
                change(foreign)
        assert operations.view(mine).state is QueueState.RETIRED
        operations.resume(mine)
        with pytest.raises(PolicyError, match=r"^dump: this is one worker of several"):
            operations.dump()
        one.frontier.set_delay(GateKey(theirs), 5.0)
        one.frontier.flush()
        gate = one.store.gate(name_id(theirs))
        assert gate is None or not gate.spacing_s
        assert mine in str(one.frontier.operations.explain(f"http://{ours}/"))


def is_held(worker: Worker, view: QueueView) -> bool:
    """The queue is in a share that the worker serves."""
    return worker.frontier._parts.admission.assignment.share_of_queue(view.key) in worker.serving


def test_store_and_order_must_agree_on_shares(tmp_path: Path) -> None:
    """Before anything is opened."""
    rule = share_rule_of(order())
    shared = SqlStore(tmp_path / "a.db", shared=Shared(rule, WorkerIdentity(name="a", token="a")))
    for store, asked, words in (
        (shared, order(shares=None), "shares: none in the order, 8 by host in the store"),
        (shared, order(shares=9), "shares: 9 by host in the order, 8 by host in the store"),
        (SqlStore(tmp_path / "b.db"), order(), "shares: 8 by host in the order, none in the store"),
        (None, order(), "shares: 8 by host in the order, none in the store"),
    ):
        with pytest.raises(PolicyError, match=words):
            open_frontier(None, asked, store=store)
    with pytest.raises(PolicyError, match="shares 0: give a whole number"):
        open_frontier(None, order(shares=0))
    assert not [*tmp_path.iterdir()]


async def test_every_worker_is_drained_when_the_whole_job_is_done(place: Path | str) -> None:
    """Not before: one that has nothing to do waits for what the others may find."""
    site = Site(hosts=12, pages=80)
    fetched: Counter[str] = Counter()
    began = asyncio.Event()

    def opening(name: str) -> Callable[[Callable[[], None]], Frontier]:
        store = SqlStore(place, shared=Shared(share_rule_of(order()), identity(name)))
        return lambda on_change: open_frontier(None, order(), store=store, on_change=on_change)

    async def work(name: str) -> int:
        count = 0
        async with AsyncFrontier(opening(name)) as frontier:
            if name == "a":
                frontier.schedule([Candidate(site.urls[0])])
                await frontier.flush()
                began.set()
            await began.wait()
            async for lease in frontier:
                fetched[lease.url] += 1
                count += 1
                await asyncio.sleep(0)
                now_s = frontier.core.now_s()
                frontier.finish(lease, Outcome(OutcomeKind.DONE, 200, now_s, now_s), site.links(lease.url))
        return count

    counts = await asyncio.gather(*(work(name) for name in "abc"))
    assert fetched == Counter(site.urls)
    assert sum(counts) == len(site.urls)
