"""Seeds, commands and totals of a job of several workers, as rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.database import CountedRow
from anabranch.crawler.cluster.commands import Wish, answer, ask, asked_of, put_wish, take_answer, wish, withdraw
from anabranch.crawler.cluster.database import JobDatabase, make_tables, put_fact
from anabranch.crawler.cluster.seedtable import SeedTable
from anabranch.crawler.cluster.totals import all_totals, put_totals, totals_elsewhere, view_of
from anabranch.crawler.job.seeds import Seed
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


def seed(name: str, via: str | None = None) -> Seed:
    return Seed(url=f"http://{name}.test/", source="command line", via=via)


def test_all_workers_have_the_same_seeds_in_the_same_order(database: JobDatabase) -> None:
    """Each URL once, from its first source."""
    one, other = SeedTable(database), SeedTable(database)
    assert one.add_all([seed("a"), seed("b"), seed("a", "x")]) == (seed("a"), seed("b"))
    assert other.add(seed("c", "http://a.test/"))
    assert not other.add(seed("b"))
    one.refresh()
    assert list(one) == list(other) == [seed("a"), seed("b"), seed("c", "http://a.test/")]
    assert one.after(2) == [seed("c", "http://a.test/")]
    assert "http://c.test/" in one
    assert len(other) == 3


def test_a_command_is_answered_once_by_the_worker_that_it_is_for(database: JobDatabase) -> None:
    """The answer is taken with its row; one that nobody waits for is withdrawn."""
    with database.transaction() as connection:
        numbers = ask(connection, [1, 2], "why", {"url": "http://a.test/"})
        assert [(one.verb, one.arguments) for one in asked_of(connection, 1)] == [("why", {"url": "http://a.test/"})]
        assert take_answer(connection, numbers[1]) is None
        answer(connection, numbers[1], {"facts": {"x": 1}})
        assert asked_of(connection, 1) == []
        assert take_answer(connection, numbers[1]) == {"facts": {"x": 1}}
        assert take_answer(connection, numbers[1]) is None
        withdraw(connection, numbers[2])
        assert asked_of(connection, 2) == []
        assert ask(connection, [1], "ls", {})[1] > numbers[2]


def test_a_wish_has_a_number(database: JobDatabase) -> None:
    """The last one counts."""
    with database.transaction() as connection:
        assert wish(connection) == (0, Wish.RUN)
        assert [put_wish(connection, one) for one in (Wish.PAUSE, Wish.STOP_NOW)] == [1, 2]
        assert wish(connection) == (2, Wish.STOP_NOW)


def test_totals_of_all_workers_are_added_up(database: JobDatabase) -> None:
    """Of times that several ran, each second counts once."""
    totals = [5, 50, 1, 0, 0, 0, 5, 50, 0, 0, 0, 0, 10.0, 20.0]
    for worker, run in (("a", ([0.0], [10.0])), ("b", ([5.0], [12.0]))):
        rows = [CountedRow("host", ["h.test"], totals), CountedRow("total", [0], totals), CountedRow("run", *run)]
        rows.append(CountedRow("source", ["s", "h.test"], [5]))
        for _ in range(2):  # written again, they count once
            database.do(lambda connection, worker=worker, rows=rows: put_totals(connection, worker, rows))
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
    assert {row.kind for row in accounts.changed()} == {"run", "total"}
    assert {row.kind for row in accounts.changed()} == {"run", "total"}
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
