"""Rules of the store in PostgreSQL alone; those that it shares with the others are in the contract."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from anabranch.extras import install_command
from anabranch.frontier.errors import (
    FormatMismatch,
    FrontierError,
    PolicyError,
    StoreFull,
    StoreInUse,
    StoreUnavailable,
)
from anabranch.frontier.stores.contract import Counters, HeadsRead
from anabranch.frontier.stores.sql import postgres
from anabranch.frontier.stores.sql.postgres import PostgresDatabase
from anabranch.frontier.stores.sql.schema import open_tables
from anabranch.frontier.stores.sql.sqlite import owner_line
from anabranch.frontier.stores.sql.store import SqlStore
from anabranch.frontier.stores.sql.work import Patience
from anabranch.frontier.stores.sql.writing import SoleOwner, TransactionWriter
from scripts.postgres_server import administer, fresh_database
from tests.frontier.stores.batches import GATE, IDENTITY, LANE, NOW_S, batch, opened, row, synced
from tests.patience import HANG_S
from tests.postgres_server import own_server, server

OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'anabranch' AND datname = current_database()"


@pytest.fixture(autouse=True)
def _short_waits_for_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a second owner after 0.1 s instead of the default."""
    monkeypatch.setattr(postgres, "_LOCK_S", 0.1)


@pytest.fixture
def url() -> Iterator[str]:
    with server() as fresh:
        yield fresh


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    made = opened(SqlStore(url))
    yield made
    made.close(clean=False)


# The URL


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("frontier.db", "'frontier.db' is no URL of a database"),
        ("sqlite:///frontier.db", "sqlite cannot hold a crawl"),
        ("mysql://localhost/crawl", "mysql cannot hold a crawl"),
        ("postgresql+asyncpg://localhost/crawl", r"postgresql\+asyncpg cannot hold a crawl"),
    ],
)
def test_another_kind_of_database_is_refused(address: str, words: str) -> None:
    """In one line that says what would be right, before anything is opened."""
    with pytest.raises(PolicyError, match=words):
        SqlStore(address)


def test_the_password_is_in_no_error() -> None:
    """Errors are logged, shown and mailed."""
    store = SqlStore("postgresql://crawler:secret@127.0.0.1:1/crawl", retry_s=0.0)
    with pytest.raises(StoreUnavailable, match="the server cannot be reached") as raised:
        opened(store)
    assert "secret" not in str(raised.value)
    assert str(raised.value).startswith("postgresql://crawler:***@127.0.0.1:1/crawl: ")
    assert "\n" not in str(raised.value)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes with an extra; no restart brings it, so it is the order's fault."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(PolicyError, match=re.escape(install_command("postgres"))):
        opened(SqlStore("postgresql://127.0.0.1:1/crawl"))


def test_a_database_that_does_not_exist_is_said(url: str) -> None:
    """The server's own words are there."""
    missing = make_url(url).set(database="nowhere").render_as_string(hide_password=False)
    with pytest.raises(StoreUnavailable, match='database "nowhere" does not exist'):
        opened(SqlStore(missing))


# The lock and the owner


def test_a_second_owner_is_refused_with_the_firsts_name(url: str, store: SqlStore) -> None:
    """The first one goes on."""
    with pytest.raises(StoreInUse, match=owner_line(0.0).partition(" since ")[0]):
        opened(SqlStore(url))
    store.write(batch(1, [1]))
    store.flush()
    assert store.counters().queued == 1


def test_each_schema_holds_its_own_crawl(url: str) -> None:
    """Tables lie in the first schema of the search path, and so does the lock."""
    stores = []
    for schema in ("one", "two"):
        administer(url, f"CREATE SCHEMA {schema}")
        there = make_url(url).update_query_dict({"options": f"-c search_path={schema}"})
        stores.append(opened(SqlStore(there.render_as_string(hide_password=False))))
    stores[0].write(batch(1, [1]))
    stores[0].flush()
    assert [store.counters().queued for store in stores] == [1, 0]
    for store in stores:
        store.close(clean=True)
    assert administer(url, "SELECT value FROM two.crawl WHERE name = 'queued'") == [("0",)]


def test_a_search_path_to_nowhere_is_refused(url: str) -> None:
    """No schema, no tables."""
    there = make_url(url).update_query_dict({"options": "-c search_path=nowhere"})
    with pytest.raises(StoreUnavailable, match="no schema of the search path exists"):
        opened(SqlStore(there.render_as_string(hide_password=False)))


def test_tables_of_another_program_are_left_alone(url: str) -> None:
    """They are named, and nothing is made beside them."""
    administer(url, "CREATE TABLE url (id integer)")
    administer(url, "CREATE TABLE crawl (name text, colour text)")
    with pytest.raises(FormatMismatch, match=r"tables of another program \(crawl, url\)"):
        opened(SqlStore(url))
    assert len(administer(url, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'")) == 2


def test_another_encoding_is_refused(url: str) -> None:
    """A URL must come back as it went in."""
    name = f"{make_url(url).database}_latin"
    administer(url, f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(FormatMismatch, match="encoding is LATIN1"):
            opened(SqlStore(make_url(url).set(database=name).render_as_string(hide_password=False)))
    finally:
        administer(url, f"DROP DATABASE {name} WITH (FORCE)")


def test_a_commit_waits_for_the_disk(url: str) -> None:
    """Whatever the server, the database or the user has set."""
    administer(url, f"ALTER DATABASE {make_url(url).database} SET synchronous_commit = off")
    store = opened(SqlStore(url))
    shown = store._wait_for(lambda connection: connection.exec_driver_sql("SHOW synchronous_commit").scalar_one())
    store.close(clean=True)
    assert shown == "on"


# What happens to connections


def test_a_connection_that_is_cut_is_made_again(url: str, store: SqlStore) -> None:
    """The lock is taken again with it, and nothing is lost or done twice."""
    store.write(batch(1, [1]))
    store.flush()
    ((process,),) = administer(url, OURS)
    administer(url, f"SELECT pg_terminate_backend({process}, 10000)")
    store.write(batch(2, [2], ended=[1]))
    store.ask_heads(LANE, 9, with_queue=False)
    store.flush()
    answers = store.take_answers()
    assert synced(answers)[-1] == 2
    assert [[head.row for head in answer.heads] for answer in answers if isinstance(answer, HeadsRead)] == [[row(2)]]
    assert store.counters()[:3] == (2, 1, 1)
    with pytest.raises(StoreInUse):
        opened(SqlStore(url))
    ((other,),) = administer(url, OURS)
    assert other != process


def test_who_took_over_meanwhile_stays_the_owner(url: str, store: SqlStore) -> None:
    """A connection was lost, another process has opened the store: the first one ends, and writes nothing."""
    store.write(batch(1, [1]))
    store.flush()
    administer(url, f"SELECT pg_terminate_backend(pid, 10000) FROM ({OURS}) AS ours")
    successor = opened(SqlStore(url))
    store.write(batch(2, [2]))
    with pytest.raises(StoreInUse, match="holds it"):
        store.flush()
    successor.close(clean=True)
    assert administer(url, "SELECT value FROM crawl WHERE name = 'queued'") == [("1",)]


@pytest.mark.parametrize(
    "say", [lambda store: store.write(batch(1, [1])), lambda store: store.ask_gate(LANE[1], GATE, 1)]
)
def test_who_took_over_and_went_is_noticed_too(url: str, store: SqlStore, say: Callable[[SqlStore], None]) -> None:
    """The lock is free again, but the epoch is another one: not even a gate is taken."""
    administer(url, f"SELECT pg_terminate_backend(pid, 10000) FROM ({OURS}) AS ours")
    opened(SqlStore(url)).close(clean=True)
    say(store)
    with pytest.raises(StoreInUse, match="another owner has taken over"):
        store.flush()


def test_a_take_over_waits_for_the_commit_of_the_former_owner(url: str, store: SqlStore) -> None:
    """A fence: its transaction is read whole by the next owner, or is never committed."""
    store.write(batch(1, [1]))
    store.flush()
    old, new = PostgresDatabase(url).engine(), PostgresDatabase(url).engine()
    totals = Counters(last_ordinal=1, queued=1, queues=1)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%epoch%FOR UPDATE%'"
    with old.connect() as former, new.connect() as successor, ThreadPoolExecutor(1) as other:
        with former.begin():
            writing = TransactionWriter(former, totals, SoleOwner(1))
            writing.add(batch(2, [2]))
            writing.flush()
            taking = other.submit(open_tables, successor, "here", IDENTITY, NOW_S)
            while administer(url, waiting) == [("0",)]:
                assert not taking.done(), "it has taken over before the former owner's commit"
        assert taking.result(timeout=HANG_S).counters.queued == 2
        with former.begin() as late:
            writing = TransactionWriter(former, totals, SoleOwner(1))
            writing.add(batch(3, [3]))
            with pytest.raises(StoreInUse, match="another owner has taken over"):
                writing.flush()
            late.rollback()
    for engine in (old, new):
        engine.dispose()
    assert administer(url, "SELECT count(*) FROM url") == [(2,)]


def test_both_sides_notice_a_silent_network_within_25_seconds(url: str) -> None:
    """Also a session that is busy: unanswered bytes count, not only idle time."""
    with PostgresDatabase(url).connected() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        known = driver.info.get_parameters()
        assert (known["tcp_user_timeout"], known["keepalives_idle"]) == ("25000", "10")
        options = known["options"]
        assert "tcp_user_timeout=25000" in options
        assert "tcp_keepalives_count=3" in options


def test_a_former_session_of_ours_is_ended(url: str) -> None:
    """The network was cut and the server has not noticed: the lock is asked back, and that is worth another try."""
    database = PostgresDatabase(url)
    with database.connected():
        with pytest.raises(StoreUnavailable, match="our former session") as raised, database.connected():
            pass
        assert database.is_passing(raised.value)
        assert not isinstance(raised.value, StoreInUse)
        until_gone = f"SELECT pg_terminate_backend(pid, 10000) FROM ({OURS}) AS ours"
        administer(url, until_gone)
        with database.connected() as connection:
            assert not database.is_lost(connection)


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Durable rows are still there, and batches sent meanwhile are written when the server is back."""
    waits: list[int] = []

    with own_server() as own:

        def wait(_: Patience) -> bool:
            waits.append(len(waits))
            if len(waits) == 3:
                own.start()
            return True

        monkeypatch.setattr(Patience, "wait", wait)
        with fresh_database(own.url) as url:
            store = opened(SqlStore(url))
            store.write(batch(1, range(1, 101)))
            store.flush()
            own.kill()
            store.write(batch(2, range(101, 201), ended=[1]))
            store.flush()
            assert synced(store.take_answers()) == [1, 2]
            assert store.counters()[:3] == (200, 199, 1)
            store.close(clean=True)
    assert len(waits) == 3


# Errors


def an_error(state: str | None, words: str = "as the server says it\nDETAIL: more") -> OperationalError:
    cause: Any = Exception(words)
    cause.sqlstate = state
    return OperationalError("SELECT 1", None, cause)


@pytest.mark.parametrize(
    ("state", "kind", "words", "passes"),
    [
        ("53100", StoreFull, "disk is full", True),
        ("25006", StoreFull, "read-only", True),
        ("53300", StoreUnavailable, "lacks memory or connections", True),
        ("57P01", StoreUnavailable, "ended the session", True),
        ("08006", StoreUnavailable, "was lost", True),
        ("40001", StoreUnavailable, "took the transaction back", True),
        ("28P01", StoreUnavailable, "the user or the password", False),
        ("42501", StoreUnavailable, "may not do that", False),
        ("XX001", StoreUnavailable, "damaged", False),
        ("42P01", StoreUnavailable, "Exception", False),
    ],
)
def test_an_error_of_the_server_becomes_one_of_ours(
    state: str, kind: type[FrontierError], words: str, *, passes: bool
) -> None:
    """By its code; one line that names the place and keeps the server's words, and the cause."""
    database = PostgresDatabase("postgresql://127.0.0.1/crawl")
    error = an_error(state)
    failure = database.translated(error)
    assert type(failure) is kind
    assert str(failure).startswith("postgresql://127.0.0.1/crawl: ")
    assert words in str(failure)
    assert str(failure).endswith("(as the server says it)")
    assert failure.__cause__ is error
    assert database.is_passing(error) is passes


def test_a_text_that_postgres_cannot_keep_is_a_defect(store: SqlStore) -> None:
    """NUL in a URL must be refused before it is said here; it is told at once."""
    store.write(batch(1, [row(1, "http://a.test/\0")]))
    with pytest.raises(StoreUnavailable, match="0x00"):
        store.flush()


def test_a_url_of_any_script_comes_back(store: SqlStore) -> None:
    """And so do bytes of any value."""
    strange = row(1, "http://a.test/ü-字-\U0001f577")._replace(key=bytes(range(256)), payload=b"\0" * 10)
    store.write(batch(1, [strange]))
    store.ask_heads(LANE, 1, with_queue=False)
    store.flush()
    (answer,) = [answer for answer in store.take_answers() if isinstance(answer, HeadsRead)]
    assert [head.row for head in answer.heads] == [strange]


def test_an_unclean_end_is_known(url: str) -> None:
    """A session that was cut leaves the store unclean; a clean end marks it."""
    opened(SqlStore(url)).close(clean=False)
    second = SqlStore(url)
    assert not second.open(IDENTITY, NOW_S, lambda: None).clean
    second.close(clean=True)
    third = SqlStore(url)
    assert third.open(IDENTITY, NOW_S, lambda: None).clean
    third.close(clean=True)
