"""Commands and totals of a job of several workers, as rows."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from anabranch.crawler.accounts.accounts import Accounts, Counted
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.accounts.database import CountedRow
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.cluster.commands import Wish, answer, ask, asked_of, put_wish, take_answer, wish, withdraw
from anabranch.crawler.cluster.totals import (
    CountedTo,
    adopt_totals,
    all_totals,
    fold_totals,
    put_counted,
    put_left_over,
    put_totals,
    totals_elsewhere,
    view_of,
)
from anabranch.crawler.job.database import JobDatabase, execute, fetch, make_tables, put_fact
from anabranch.frontier.errors import StoreDamaged, StoreUnavailable
from anabranch.frontier.stores.sql.sqlite import sealed
from tests.crawler.cluster.stores import shared_store
from tests.postgres_server import own_server


@pytest.fixture(params=["file", "server"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobDatabase]:
    with shared_store(request.param, tmp_path) as store, JobDatabase(store) as opened:
        make_tables(opened)
        make_tables(opened)  # of two workers that begin at once
        opened.do(lambda connection: put_fact(connection, "id", "x"))
        yield opened


def test_a_command_is_answered_once_by_the_worker_that_it_is_for(database: JobDatabase) -> None:
    """The answer is taken with its row; one that nobody waits for is withdrawn."""
    with database.transaction() as connection:
        numbers = ask(connection, [1, 2], "why", {"url": "http://a.test/"})
        assert asked_of(connection, 1) == {numbers[1]: {"verb": "why", "arguments": {"url": "http://a.test/"}}}
        assert take_answer(connection, numbers[1]) is None
        answer(connection, numbers[1], {"facts": {"x": 1}})
        assert asked_of(connection, 1) == {}
        assert take_answer(connection, numbers[1]) == {"facts": {"x": 1}}
        assert take_answer(connection, numbers[1]) is None
        withdraw(connection, numbers[2])
        assert asked_of(connection, 2) == {}
        assert ask(connection, [1], "ls", {})[1] > numbers[2]


def test_a_wish_has_a_number(database: JobDatabase) -> None:
    """The last one counts."""
    with database.transaction() as connection:
        assert wish(connection) == (0, Wish.RUN)
        assert [put_wish(connection, one) for one in (Wish.PAUSE, Wish.STOP_NOW)] == [1, 2]
        assert wish(connection) == (2, Wish.STOP_NOW)


def test_totals_of_all_workers_are_added_up(database: JobDatabase) -> None:
    """A second in which several workers ran counts once."""
    totals = [5, 50, 1, 0, 0, 0, 5, 50, 0, 0, 0, 0, 10.0, 20.0]
    for worker, run in (("a", ([0.0], [10.0])), ("b", ([5.0], [12.0]))):
        rows = [CountedRow("host", ["h.test"], totals), CountedRow("total", [0], totals), CountedRow("run", *run)]
        rows.append(CountedRow("source", ["s", "h.test"], [5]))
        for _ in range(2):  # written again, they count once
            database.do(partial(put_totals, worker=worker, rows=rows, upto=CountedTo(1, 7)))
    with view_of(database.do(all_totals)) as view:
        ((host, found),) = view.hosts()
        assert (host, found.urls, found.pages) == ("h.test", 10, 8)
        assert view.total().bytes == 100
        assert view.duration_s() == 12.0
        assert list(view.sources()) == [("s", "h.test", 10)]
    with database.transaction() as connection:
        assert totals_elsewhere(connection, "a", "h.test").urls == 5
        assert totals_elsewhere(connection, "a", "other.test").urls == 0


def test_rows_that_have_changed_are_asked_of_the_accounts(tmp_path: Path) -> None:
    """All of them at first."""
    (tmp_path / "crawl.log").touch()
    accounts = Accounts(tmp_path, tmp_path / "crawl.log", lambda: 1.0)
    assert {row.kind for row in accounts.changed().rows} == {"run", "total"}
    assert {row.kind for row in accounts.changed().rows} == {"run", "total"}
    accounts.close()


def answered(urls: int) -> list[CountedRow]:
    """Rows of so many answers of one host."""
    totals = [urls, 10 * urls, *[0] * 10, 5.0, 5.0 + urls]
    return [
        CountedRow("host", ["h.test"], totals),
        CountedRow("total", [0], totals),
        CountedRow("status", [200], [urls]),
    ]


def urls_in(database: JobDatabase) -> int:
    with view_of(database.do(all_totals)) as view:
        assert dict(view.statuses()) == ({200: view.total().urls} if view.total().urls else {})
        return view.total().urls


def carried(database: JobDatabase, worker: str, epoch: int, place: int, urls: int) -> None:
    """A row that a transaction carried, which was tried twice."""
    for _ in range(2):
        database.do(partial(put_counted, worker=worker, epoch=epoch, counted=Counted(place, answered(urls))))


def join(database: JobDatabase, *workers: str) -> None:
    """These are at work, and no others."""
    with database.transaction() as connection:
        execute(connection, "CREATE TABLE IF NOT EXISTS worker (name VARCHAR, token VARCHAR, until_s FLOAT)")
        execute(connection, "DELETE FROM worker")
        for worker in workers:
            name, token = worker.split()
            execute(connection, "INSERT INTO worker VALUES (:name, :token, 9)", name=name, token=token)


def test_what_transactions_carried_counts_until_the_totals_have_it(database: JobDatabase) -> None:
    """Each line once, in whatever order the transactions are kept."""
    carried(database, "a 1", 1, 10, 2)
    carried(database, "a 1", 1, 30, 3)
    carried(database, "b 2", 2, 10, 1)
    assert urls_in(database) == 6
    assert database.do(partial(put_totals, worker="a 1", rows=answered(2), upto=CountedTo(1, 20)))
    assert urls_in(database) == 6
    carried(database, "a 1", 1, 15, 1)  # kept late: the totals have it
    assert urls_in(database) == 6
    assert database.do(partial(put_totals, worker="a 1", rows=answered(5), upto=CountedTo(1, 30)))
    assert not database.do(partial(put_totals, worker="a 1", rows=answered(4), upto=CountedTo(1, 25)))
    assert urls_in(database) == 6


def test_what_a_worker_left_is_folded_when_it_has_gone(database: JobDatabase) -> None:
    """Once, however often that is done; the others' rows stay as they are."""
    assert database.do(partial(put_totals, worker="a 1", rows=answered(2), upto=CountedTo(1, 20)))
    for place in (30, 40):
        carried(database, "a 1", 1, place, 3)
    carried(database, "b 2", 2, 10, 1)
    join(database, "a 1", "b 2")
    for present, elsewhere, left in ((("a 1", "b 2"), 2, 3), (("b 2",), 8, 1), (("b 2",), 8, 1)):
        join(database, *present)
        database.do(fold_totals)
        assert urls_in(database) == 9
        with database.transaction() as connection:
            assert totals_elsewhere(connection, "b 2", "h.test").urls == elsewhere
            assert fetch(connection, "SELECT count(*) FROM job_counted") == [(left,)]


@pytest.mark.parametrize("is_folded", [False, True])
def test_lines_of_a_worker_that_returns_count_once(database: JobDatabase, *, is_folded: bool) -> None:
    """Its own totals replace what it left; under its name in another folder it is another worker."""
    assert database.do(partial(put_totals, worker="a 1", rows=answered(2), upto=CountedTo(1, 20)))
    carried(database, "a 1", 1, 30, 3)
    if is_folded:
        join(database)
        database.do(fold_totals)
    carried(database, "a 1", 4, 50, 1)
    assert urls_in(database) == 6
    # Its folder knows of a line that no transaction followed.
    assert database.do(partial(put_totals, worker="a 1", rows=answered(7), upto=CountedTo(4, 50)))
    assert urls_in(database) == 7
    assert database.do(partial(put_totals, worker="a 5", rows=answered(1), upto=CountedTo(5, 10)))
    assert urls_in(database) == 8


@pytest.mark.parametrize("is_folded", [False, True])
def test_what_a_killed_worker_has_in_its_folder_counts_though_it_stays_away(
    database: JobDatabase, *, is_folded: bool
) -> None:
    """Once, however often it is started in vain, and whatever transactions carried."""
    assert database.do(partial(put_totals, worker="a 1", rows=answered(2), upto=CountedTo(1, 20)))
    carried(database, "a 1", 4, 30, 3)
    if is_folded:
        join(database)
        database.do(fold_totals)
    for _ in range(2):
        database.do(partial(put_left_over, worker="a 1", counted=Counted(40, answered(7))))
        assert urls_in(database) == 7
    database.do(partial(put_left_over, worker="b 2", counted=Counted(5, answered(1))))
    assert urls_in(database) == 8


def test_totals_of_an_earlier_version_become_those_of_the_folder(database: JobDatabase) -> None:
    """It named a worker without its folder, and had no other tables."""
    for row in answered(2):
        with database.transaction() as connection:
            execute(
                connection,
                "INSERT INTO job_total VALUES ('a', :kind, :key, :value)",
                kind=row.kind,
                key=json.dumps(row.key),
                value=json.dumps(row.value),
            )
    with database.transaction() as connection:
        execute(connection, "DROP TABLE job_counted")
        execute(connection, "DROP TABLE job_folded")
    assert urls_in(database) == 2
    make_tables(database)
    database.do(partial(adopt_totals, name="a", worker="a 1"))
    assert database.do(partial(put_totals, worker="a 1", rows=answered(3), upto=CountedTo(2, 0)))
    assert urls_in(database) == 3


def test_accounts_carry_each_line_once(tmp_path: Path) -> None:
    """Counts of a failed transaction go unchanged with the next one; counts of later lines follow after that."""
    accounts = Accounts(tmp_path, tmp_path / "crawl.log", lambda: 1.0)

    def write(*urls: str) -> None:
        lines = [crawl_log_line(CrawlLogEntry(0.0, 200, url, 1, size_bytes=1, mime="text/html")) for url in urls]
        accounts.append([JournalEntry(crawl_log=line) for line in lines])
        accounts.keep()

    write("http://before.test/")
    accounts.carry()
    assert accounts.uncarried() is None
    write("http://a.test/", "http://a.test/2")
    first = accounts.uncarried()
    assert first is not None
    assert [row.value[0] for row in first.rows if row.kind == "host"] == [2]
    write("http://b.test/")
    assert accounts.uncarried() is first
    accounts.carried()
    second = accounts.uncarried()
    assert second is not None
    assert [row.key for row in second.rows if row.kind == "host"] == [["b.test"]]
    assert first.place < second.place == accounts.changed(all_rows=True).place
    accounts.close()


@pytest.mark.slow
def test_a_lost_connection_is_made_anew() -> None:
    """And who has patience waits until the server is back."""
    with own_server() as postgres:
        url = postgres.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with JobDatabase(url) as database:
            make_tables(database)
            postgres.kill()
            with pytest.raises(StoreUnavailable) as failure:
                database.do(lambda connection: put_fact(connection, "id", "x"))
            assert database.is_passing(failure.value)
            postgres.start()
            database.do_patiently(lambda connection: put_fact(connection, "id", "x"))


def test_a_file_that_was_changed_while_nobody_had_it_is_refused(tmp_path: Path) -> None:
    """Its processes seal it when they have all gone; one that was killed leaves no seal."""
    file = tmp_path / "frontier.db"
    with sealed(file), JobDatabase(file) as database:
        make_tables(database)
    with pytest.raises(KeyboardInterrupt), sealed(file):
        raise KeyboardInterrupt
    with sealed(file), JobDatabase(file) as database:
        database.do(lambda connection: put_fact(connection, "id", "x"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreDamaged, match="it is not what was written to it; restore it from a copy"), sealed(file):
        pass
