"""What the batches of one transaction add up to, on the tables themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.frontier.errors import InvariantBroken, StoreInUse
from anabranch.frontier.models import Row
from anabranch.frontier.stores.base import Counters
from anabranch.frontier.stores.messages import Moved, Standing
from anabranch.frontier.stores.recounting import recount
from anabranch.frontier.stores.writing import Writing
from tests.frontier.stores.crawl_file import Crawl, crawl
from tests.frontier.stores.rows import A_LANE, OTHER_LANE, done, row, waiting


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        yield made


def statements_of(store: Crawl, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that the driver is given from now on."""
    said: list[str] = []
    driver = store.connection.connection.driver_connection
    driver.set_trace_callback(said.append)
    return said


def test_what_comes_and_goes_in_one_transaction_never_touches_url(
    store: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is new and ended before anything is read goes straight to `done`."""
    said = statements_of(store, monkeypatch)
    store.write(store.batch([row(1)]), store.batch(ended=[done(row(1))]))
    assert not [text for text in said if "INTO url" in text or "FROM url" in text]
    assert store.values("SELECT ordinal FROM done") == [(1,)]
    assert store.values("SELECT count FROM lane") == [(0,)]


def test_many_rows_are_few_statements(store: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver lets go of Python's lock at each statement: 2,047 rows are fifteen inserts (256 at most)."""
    said = statements_of(store, monkeypatch)
    store.add(*[row(ordinal) for ordinal in range(1, 2048)])
    assert len([text for text in said if text.startswith("INSERT INTO url")]) == 7 + 8
    assert store.values("SELECT count(*) FROM url") == [(2047,)]


def test_a_row_that_is_not_there_cannot_end(store: Crawl) -> None:
    """The counts would be wrong from then on."""
    store.add(row(1))
    with pytest.raises(InvariantBroken, match="1 rows that end or move are not in the store"):
        store.write(store.batch(ended=[done(row(2))]))


def test_a_row_that_stands_elsewhere_cannot_end(store: Crawl) -> None:
    """Also before it was written."""
    with pytest.raises(InvariantBroken, match="row 1 ends or moves at"):
        store.write(store.batch([row(1)]), store.batch(ended=[done(row(1, precedence=5))]))


def test_a_row_that_died_cannot_end(store: Crawl) -> None:
    """It was never queued: its key stands for another row."""
    store.add(row(1, "http://a.test/"))
    with pytest.raises(InvariantBroken, match="row 2 ends or moves, and its key was known"):
        store.write(
            store.batch([row(2, "http://a.test/")], ended=()), store.batch(ended=[done(row(2, "http://a.test/"))])
        )


def test_another_epoch_stops_the_writer(store: Crawl) -> None:
    """Whoever was opened over is told so, and nothing of his is kept."""
    store.values("SELECT 1")
    with store.connection.begin():
        store.connection.exec_driver_sql("UPDATE crawl SET value = '9' WHERE name = 'epoch'")
    with pytest.raises(StoreInUse, match="another owner has taken over"):
        store.add(row(1))
    assert store.values("SELECT count(*) FROM url") == [(0,)]


def test_a_flush_without_news_writes_nothing(store: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read that needs counts flushes: most of them find nothing to do."""
    store.add(row(1))
    said = statements_of(store, monkeypatch)
    with store.connection.begin():
        Writing(store.connection, store.totals, store.opening.epoch).flush()
    assert said == ["BEGIN IMMEDIATE", "COMMIT"]


def test_totals_of_a_transaction_that_failed_are_not_taken(store: Crawl) -> None:
    """`totals` are those of the last flush of all."""
    writing = Writing(store.connection, store.totals, store.opening.epoch)
    with store.connection.begin():
        writing.add(store.batch([row(1)]))
        writing.flush_rows()
        assert writing.totals == Counters()
        writing.flush()
    assert writing.totals == Counters(last_ordinal=1, queued=1, queues=1)


def test_a_standing_counts_what_was_written_before_it(store: Crawl) -> None:
    """Rows of the same batch, and of batches of the same transaction, are in the queue that retires."""
    first, second = store.batch([row(1)]), store.batch([row(2)])
    second.standings = [(A_LANE[0], Standing.RETIRED)]
    third = store.batch([row(3)], ended=[done(row(1))])
    assert store.write(first, second, third).totals.retired == 2
    with store.connection.begin():
        recount(store.connection)


LANES = (A_LANE, OTHER_LANE, (A_LANE[0], OTHER_LANE[1]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_batches_leave_counts_that_agree_with_the_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """However batches fall into transactions: the recount finds no difference."""
    with crawl(tmp_path_factory.mktemp("crawl") / "frontier.db") as store:
        ordinal, alive = 0, dict[int, Row]()
        for _ in range(data.draw(st.integers(1, 4))):
            batches, fresh = [], dict[int, Row]()
            for _ in range(data.draw(st.integers(1, 4))):
                chosen = data.draw(st.lists(st.sampled_from(sorted(alive)), max_size=3, unique=True)) if alive else []
                old = [alive.pop(one) for one in chosen]
                ended, moved = [done(one) for one in old[1:]], [Moved(one, waiting(one, 5.0)) for one in old[:1]]
                new = []
                for url in data.draw(st.lists(st.integers(1, 9), max_size=4)):
                    ordinal += 1
                    new.append(row(ordinal, f"http://a.test/{url}", lane=data.draw(st.sampled_from(LANES))))
                batch = store.batch(new, ended=ended, moved=moved)
                batch.forced = {one.ordinal for one in new if data.draw(st.booleans())}
                batch.standings = data.draw(
                    st.lists(
                        st.tuples(st.sampled_from([one[0] for one in LANES]), st.sampled_from(Standing)), max_size=1
                    )
                )
                batch.removed = [LANES[0]]
                batches.append(batch)
                alive |= {one.new.ordinal: one.new for one in moved}
                fresh |= {one.ordinal: one for one in new}
            died = {one.ordinal for one in store.write(*batches).duplicates}
            alive |= {number: one for number, one in fresh.items() if number not in died}
            with store.connection.begin():
                assert recount(store.connection) == store.totals
