"""Opening the tables of a crawl: made once, refused if they are another's, set right after an owner that died."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from anabranch.frontier.admission import UNKNOWN_HOPS
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.policies import assignment
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.hosts import authority, unescaped_surt_host
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind, QueueKey, Turn, turn_of
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.stores.contract import Counters, GateRow, LaneId, LeftGate, Moved
from anabranch.frontier.stores.sql import schema, sqlite
from anabranch.frontier.stores.sql.execution import fetch
from anabranch.frontier.stores.sql.reading import read_retries, recount, take_gate, take_gates
from anabranch.frontier.stores.sql.schema import mark, open_tables, put_notes
from anabranch.frontier.stores.sql.sqlite import seal_of
from anabranch.frontier.stores.sql.store import SqlStore
from tests.frontier.stores.crawl_file import Crawl, crawl, gate_facts
from tests.frontier.stores.rows import A_LANE, IDENTITY, NOW_S, OTHER_LANE, gate_key, row, waiting
from tests.postgres_server import server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


def windows(store: Crawl) -> dict[int, tuple[object, ...]]:
    """(held, turn, wakes_s) by gate."""
    return {row[0]: row[1:] for row in store.values("SELECT id, held, turn, wakes_s FROM gate")}  # type: ignore[misc]


def test_a_new_file_is_empty_and_clean(path: Path) -> None:
    """The first owner has epoch 1."""
    with crawl(path) as store:
        names = {
            "first_format": schema.FORMAT,
            "identity": store.opening.identity,
            "history": store.opening.history,
        }
        assert store.opening == schema.Opening(clean=True, counters=Counters(), notes={}, epoch=1, **names)


def test_each_opening_is_unclean_until_it_is_marked_and_has_its_own_epoch(path: Path) -> None:
    """Epochs rise by one, so that an owner that was opened over can notice."""
    with crawl(path) as store:
        assert store.opening.epoch == 1
    with crawl(path) as store:
        assert (store.opening.clean, store.opening.epoch) == (False, 2)
        with store.connection.begin():
            mark(store.connection, clean=True)
    with crawl(path) as store:
        assert (store.opening.clean, store.opening.epoch) == (True, 3)


def test_counters_and_notes_are_told(path: Path) -> None:
    """Notes are kept by name; a later one takes an earlier one's place."""
    with crawl(path) as store:
        store.add(row(1), row(2))
        with store.connection.begin():
            put_notes(store.connection, {"a": "1", "b": "2"})
            put_notes(store.connection, {"a": "3", "epoch": "no fact of the store's own"})
    with crawl(path) as store:
        assert store.opening.counters == Counters(last_ordinal=2, queued=2, queues=1)
        assert store.opening.notes == {"a": "3", "b": "2", "epoch": "no fact of the store's own"}
        assert store.opening.epoch == 2


def test_each_difference_of_identity_is_named_and_nothing_is_written(path: Path) -> None:
    """Another policy would put URLs into other queues."""
    with crawl(path):
        pass
    with sqlite.connected(path, None) as connection:
        with pytest.raises(FormatMismatch) as refused:
            open_tables(connection, "the job", {"policy": "host", "more": "1"}, NOW_S)
        assert str(refused.value) == (
            "the job: more is not set in the job, 1 in the order; policy is bkdr:997 in the job, host in the order; "
            "politeness is host in the job, not set in the order"
        )
    with crawl(path) as store:
        assert store.opening.epoch == 2


def test_tables_of_another_format_are_refused(path: Path) -> None:
    """The format comes first: another one may keep all else elsewhere."""
    with crawl(path) as store, store.connection.begin():
        store.connection.exec_driver_sql("UPDATE crawl SET value = '1' WHERE name = 'format'")
    with (
        sqlite.connected(path, None) as connection,
        pytest.raises(FormatMismatch, match="the format is 1 in the job, and this program reads 3, 4, 5, 6, 7, 8;"),
    ):
        open_tables(connection, "the job", {}, NOW_S)


@pytest.mark.parametrize("clean", [True, False])
def test_gates_that_were_held_get_their_turns_again(path: Path, *, clean: bool) -> None:
    """The turn of their first lane that can be served; one without any has none."""
    third: LaneId = (A_LANE[0], 33)
    with crawl(path) as store:
        store.add(row(1), row(2, lane=OTHER_LANE), row(3, lane=third))
        store.write(store.batch(moved=[Moved(row(3, lane=third), waiting(row(3, lane=third), 5.0))]))
        with store.connection.begin():
            for lane in (A_LANE, OTHER_LANE, third):
                take_gate(store.connection, lane[1], gate_key(lane[1]), 1)
            mark(store.connection, clean=clean)
    with crawl(path) as store:
        assert windows(store) == {
            A_LANE[1]: (0, turn_of(3, 1), None), OTHER_LANE[1]: (0, turn_of(3, 2), None), 33: (0, None, None)
        }  # fmt: skip
        with store.connection.begin():
            read = take_gates(store.connection, NOW_S, 9, 9)
        assert [gate.row.id for gate in read.gates] == [A_LANE[1], OTHER_LANE[1]]


def moments(store: Crawl) -> tuple[object, ...]:
    (gate,) = (GateRow._make(row[:10]) for row in store.values("SELECT * FROM gate"))  # type: ignore[arg-type]
    ((wakes_s,),) = store.values("SELECT wakes_s FROM gate")
    with store.connection.begin():
        (retry,) = read_retries(store.connection, None, 9).rows
    return gate.rests_until_s, gate.blocked_until_s, gate.troubled_s, wakes_s, retry.due_s


@pytest.mark.parametrize(("back_s", "moved_s"), [(-100.0, 0.0), (0.0, 0.0), (0.9, 0.0), (50.0, 50.0)])
def test_when_the_clock_went_back_all_times_go_back_with_it(path: Path, back_s: float, moved_s: float) -> None:
    """Nothing is delayed for ever and nothing opens too early. Times that are not set stay so; a second is no jump."""
    with crawl(path) as store:
        store.add(row(1), row(2))
        batch = store.batch(moved=[Moved(row(1), waiting(row(1), NOW_S + 30.0))])
        batch.gates = [gate_facts(A_LANE[1], rests_until_s=NOW_S + 10, blocked_until_s=0.0, troubled_s=NOW_S - 7)]
        batch.left = [LeftGate(A_LANE[1], Turn(5), NOW_S + 20.0)]
        store.write(batch)
    expected = (NOW_S + 10 - moved_s, 0.0, NOW_S - 7 - moved_s, NOW_S + 20 - moved_s, NOW_S + 30 - moved_s)
    for _ in range(2):  # once, not at each opening
        with crawl(path, NOW_S - back_s) as store:
            assert moments(store) == expected


def test_opening_reads_facts_only(path: Path) -> None:
    """Its cost does not grow with what is queued: no statement of a second opening scans a table of rows."""
    with crawl(path) as store:
        store.add(*[row(ordinal, lane=(ordinal, ordinal)) for ordinal in range(1, 200)])
    with sqlite.connected(path, None) as connection:
        said: list[str] = []
        connection.connection.driver_connection.set_trace_callback(said.append)  # type: ignore[union-attr]
        open_tables(connection, "the job", IDENTITY, NOW_S)
        connection.connection.driver_connection.set_trace_callback(None)  # type: ignore[union-attr]
        with connection.begin():
            questions = [text for text in said if text.startswith(("SELECT", "UPDATE"))]
            steps = [row[3] for text in questions for row in fetch(connection, "EXPLAIN QUERY PLAN " + text)]
    scans = {step for step in steps if step.startswith("SCAN")}
    assert scans <= {"SCAN crawl", "SCAN gate USING INDEX gate_held", "SCAN sqlite_master", "SCAN 2 CONSTANT ROWS"}


URLS = [f"http://{host}/{n}" for host in ("a,b.test", "b.a.test", "c.test", "a,b.test:81") for n in ("1", "2", "3,4")]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | Path]:
    if request.param == "sqlite":
        yield tmp_path / "frontier.db"
    else:
        with server() as url:
            yield url


def _old_surts(urls: object) -> list[QueueKey]:
    keys = []
    for url in urls:  # type: ignore[attr-defined]
        found = authority(url)
        assert found is not None
        port = found.name[len(found.host) + 1 :]
        keys.append(QueueKey(unescaped_surt_host(found.host) + (f"#{port}" if port else "")))
    return keys


def _opened(place: str | Path, order: FrontierOrder, tmp_path: Path) -> Frontier:
    return open_frontier(tmp_path / "state", order, store=SqlStore(place))


def _of_format_3(place: str | Path, order: FrontierOrder, tmp_path: Path) -> None:
    """A store as a program of format 3 left it: one URL waits for its retry, one queue is paused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(assignment._PLAIN, "surt", _old_surts)
        with _opened(place, order, tmp_path) as frontier:
            frontier.schedule([Candidate(url) for url in URLS])
            lease = None
            while lease is None:
                frontier.flush()
                lease = frontier.lease()
            assert "," in lease.url
            frontier.finish(lease, Outcome(OutcomeKind.RETRY, after_s=1000.0), [])
            frontier.operations.pause(QueueKey("test,a,b,#81"))
            frontier.flush()
    set_format(place, "3")


#: From format 8 to 7.
_BY_ORDINAL = (
    (
        "CREATE TABLE old_link (ordinal BIGINT NOT NULL PRIMARY KEY, share BIGINT NOT NULL, url VARCHAR NOT NULL, key {bytes},"
        " hops VARCHAR NOT NULL, via BIGINT NOT NULL, precedence BIGINT NOT NULL, payload {bytes})"
    ),
    "INSERT INTO old_link SELECT ordinal, share, url, key, hops, via, precedence, payload FROM link",
    "DROP TABLE link",
    "ALTER TABLE old_link RENAME TO link",
    "CREATE INDEX link_share ON link (share, ordinal)",
)
#: From format 7 to 6.
_WITHOUT_FAILURES = (
    "DROP TABLE failure", "DROP INDEX done_failed", "ALTER TABLE worker DROP COLUMN retried",
    "DELETE FROM crawl WHERE name = 'retried'",
)  # fmt: skip
#: From format 6 to 5.
_WITHOUT_ENDER = ("ALTER TABLE done DROP COLUMN worker",)
#: From format 5 to 4.
_WITHOUT_SHARES = (
    "DROP TABLE share", "DROP TABLE worker", "DROP TABLE link",
    "DROP INDEX gate_held", "DROP INDEX gate_turn", "DROP INDEX gate_wakes", "ALTER TABLE gate DROP COLUMN share",
    "CREATE INDEX gate_held ON gate (id) WHERE held = 1",
    "CREATE INDEX gate_turn ON gate (turn) WHERE held = 0 AND turn IS NOT NULL AND wakes_s IS NULL",
    "CREATE INDEX gate_wakes ON gate (wakes_s) WHERE held = 0 AND wakes_s IS NOT NULL",
)  # fmt: skip


def set_format(place: str | Path, number: str) -> None:
    engine = create_engine(
        f"sqlite:///{place}" if isinstance(place, Path) else make_url(place).set(drivername="postgresql+psycopg")
    )
    with engine.begin() as connection:
        steps = {"7": _BY_ORDINAL, "6": _WITHOUT_FAILURES, "5": _WITHOUT_ENDER, "4": _WITHOUT_SHARES}
        for statement in [step for to, listed in steps.items() if number <= to for step in listed]:
            connection.execute(text(statement.format(bytes="BLOB" if isinstance(place, Path) else "BYTEA")))
        connection.execute(text("UPDATE crawl SET value = :number WHERE name = 'format'"), {"number": number})
    engine.dispose()
    if isinstance(place, Path):
        seal_of(place).unlink(missing_ok=True)  # the file is not what its owner left


@pytest.mark.parametrize("scope", [PolitenessScope.HOST, PolitenessScope.QUEUE])
def test_hosts_with_a_comma_leave_the_queue_that_they_shared(
    place: str | Path, scope: PolitenessScope, tmp_path: Path
) -> None:
    """Every row stays, in the queue of its own host, and what is kept beside the rows agrees."""
    order = FrontierOrder(policy="surt", scope=scope)
    _of_format_3(place, order, tmp_path)
    with _opened(place, order, tmp_path) as frontier:
        frontier.operations.check()
        views = {view.key: (view.urls, view.waiting, view.state) for view in frontier.operations.longest(10)}
    assert views == {
        "test,c,": (3, 0, QueueState.INACTIVE),
        "test,a%2Cb,": (3, 1, QueueState.INACTIVE),
        "test,a,b,": (3, 0, QueueState.INACTIVE),
        "test,a%2Cb,#81": (3, 0, QueueState.PAUSED),
    }


def test_a_store_under_another_policy_is_as_it_was(place: str | Path, tmp_path: Path) -> None:
    """Its queues have other names."""
    order = FrontierOrder(policy="host")
    with _opened(place, order, tmp_path) as frontier:
        frontier.schedule([Candidate(url) for url in URLS])
    set_format(place, "3")
    with _opened(place, order, tmp_path) as frontier:
        frontier.operations.check()
        assert frontier.counts().pending == len(URLS)


@pytest.mark.parametrize("number", ["4", "5", "6", "7"])
def test_a_store_of_an_older_format_is_gone_on_with(place: str | Path, number: str, tmp_path: Path) -> None:
    """All its gates are in the one share, and are served as before; no worker ended what had ended."""
    order = FrontierOrder(policy="host", politeness=Politeness(min_delay_s=0.0, delay_factor=0.0))
    with _opened(place, order, tmp_path) as frontier:
        frontier.schedule([Candidate(url) for url in URLS])
    set_format(place, number)
    with _opened(place, order, tmp_path) as frontier:
        frontier.operations.check()
        leased = []
        while frontier.pending:
            frontier.wait_until_durable()
            if (lease := frontier.lease()) is not None:
                leased.append(lease.url)
                frontier.finish(lease, Outcome(OutcomeKind.DONE, 200), [])
        assert sorted(leased) == sorted(URLS)


def test_failures_of_an_older_format_are_retried_with_unknown_hops(place: str | Path, tmp_path: Path) -> None:
    """They are counted as such; what fails now is kept with its hops."""
    order = FrontierOrder(policy="host", politeness=Politeness(min_delay_s=0.0, delay_factor=0.0))
    with _opened(place, order, tmp_path) as frontier:
        _fail(frontier, [Candidate(URLS[0], hops="LL")])
    set_format(place, "6")
    with _opened(place, order, tmp_path) as frontier:
        _fail(frontier, [Candidate(URLS[3], hops="LE", payload=b"seed")])
        report = frontier.operations.retry(lambda _: True)
        assert (report.queued, report.unknown_hops, report.more) == (2, 1, None)
        frontier.operations.check()
        assert frontier.counts().failed == 0
        found = {head.row.url: (head.row.hops, head.row.payload) for head in frontier._store.queued(None, 9)}
        assert found == {URLS[0]: (UNKNOWN_HOPS, None), URLS[3]: ("LE", b"seed")}


def _fail(frontier: Frontier, candidates: list[Candidate]) -> None:
    frontier.schedule(candidates)
    for _ in candidates:
        frontier.wait_until_durable()
        lease = frontier.lease()
        while lease is None:
            frontier.wait_until_durable()
            lease = frontier.lease()
        frontier.finish(lease, Outcome(OutcomeKind.FAILED, -2), [])
    frontier.flush()


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_a_migration_that_is_killed_changes_nothing(steps: int, path: Path) -> None:
    """It is one transaction: the next opening begins it again."""
    with crawl(path) as store:
        store.add(row(1), row(2))
    set_format(path, "5")
    child = os.fork()
    if not child:
        try:
            with sqlite.connected(path, None) as connection:
                trace = _killed_before(steps)
                connection.connection.driver_connection.set_trace_callback(trace)  # type: ignore[union-attr]
                open_tables(connection, "the job", IDENTITY, NOW_S)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT value FROM crawl WHERE name = 'format'").fetchall() == [("5",)]
    with crawl(path) as store:
        assert store.opening.counters == Counters(last_ordinal=2, queued=2, queues=1)
        with store.connection.begin():
            assert recount(store.connection).queued == 2


def _killed_before(steps: int) -> Callable[[str], None]:
    """Kills the process before its n-th statement that changes tables."""
    left = [steps]

    def trace(statement: str) -> None:
        left[0] -= statement.startswith(("ALTER", "CREATE", "DROP", "INSERT INTO crawl"))
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    return trace


def test_a_format_that_is_not_known_is_refused(place: str | Path, tmp_path: Path) -> None:
    """It is that of a newer program, or of one before the first that is kept."""
    order = FrontierOrder(policy="host")
    _opened(place, order, tmp_path).close()
    set_format(place, "9")
    with pytest.raises(
        FormatMismatch, match="the format is 9 in the job, and this program reads 3, 4, 5, 6, 7, 8; use the version"
    ):
        _opened(place, order, tmp_path)
