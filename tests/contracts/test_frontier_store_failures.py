"""Rules about failures that every store of the Frontier keeps: their records, and that each is queued again once."""

from math import inf

from anabranch.frontier.records import FRONT, OutcomeKind, Row, UrlState
from anabranch.frontier.stores.contract import Counters, Ended, FailedRecord, Moved
from tests.frontier.stores.rows import (
    A_LANE,
    NOW_S,
    OTHER_LANE,
    Teller,
    done,
    duplicates,
    gate_row,
    row,
    synced,
    waiting,
)


def failed(old: Row, status: int = -2) -> Ended:
    """The end of a row that was given up."""
    return Ended(old, status, OutcomeKind.FAILED)


def test_a_failure_keeps_what_it_takes_to_queue_it_again(teller: Teller) -> None:
    """Hops, page, precedence, payload and time; other ends do not. One that came from elsewhere keeps nothing."""
    rows = [
        row(1),
        row(2, key=b"key", hops="LE", via=1, payload=b"more", precedence=FRONT),
        row(3),
        row(4, "http://a.test/loaded"),
    ]
    teller.say(rows, settled={4: (-1, OutcomeKind.FAILED)})
    wait = waiting(rows[1], 5.0)
    teller.say(moved=[Moved(rows[1], wait)])
    teller.say(ended=[done(rows[0]), failed(wait, -4), Ended(rows[2], -5000, OutcomeKind.DISREGARDED)])
    teller.store.flush()
    known = FailedRecord(2, rows[1].url, b"key", -4, "LE", 1, FRONT, NOW_S, b"more")
    loaded = FailedRecord(4, "http://a.test/loaded", None, -1, None)
    assert teller.store.retry_reads.failed_after(0, 9) == [known, loaded]
    assert teller.store.retry_reads.failed_after(2, 9) == [loaded]
    assert teller.store.retry_reads.failed_after(0, 1) == [known]
    assert teller.store.retry_reads.by_status() == {-4: 1, -1: 1}


def test_a_failure_that_is_queued_again_is_none_any_more(teller: Teller) -> None:
    """In one batch its old row goes and a new one comes; it is counted."""
    teller.say([row(1), row(2)])
    teller.say(ended=[failed(row(1)), failed(row(2))])
    teller.say([row(3, row(1).url)], retried={3: 1})
    (*_, answer) = synced(teller.answers())
    assert (answer.duplicates, answer.retried) == ([], 1)
    assert teller.store.counters() == Counters(last_ordinal=3, queued=1, failed=1, queues=1, retried=1)
    assert [record.ordinal for record in teller.store.retry_reads.failed_after(0, 9)] == [2]
    assert [record.ordinal for record in teller.store.ended_after(0, 9)] == [2]
    found = teller.store.look_up(row(1).dedup_key())
    assert found is not None
    assert (found.ordinal, found.state) == (3, UrlState.QUEUED)


def test_of_two_that_queue_a_failure_again_one_dies(teller: Teller) -> None:
    """In one batch, or one after the other; and where the URL was forced meanwhile."""
    teller.say([row(1), row(2)])
    teller.say(ended=[failed(row(1)), failed(row(2))])
    teller.say([row(3, row(1).url), row(4, row(1).url)], retried={3: 1, 4: 1})
    teller.say([row(5, row(1).url)], retried={5: 1})
    teller.say([row(6, row(2).url)], forced=[6])
    teller.say([row(7, row(2).url)], retried={7: 2})
    assert duplicates(teller.answers()) == [4, 5, 7]
    assert teller.store.counters() == Counters(last_ordinal=7, queued=2, queues=1, retried=2)


def test_a_forced_row_replaces_the_failure_of_its_url_and_no_success(teller: Teller) -> None:
    """So a URL that fails and is forced, again and again, is one failure at most."""
    teller.say([row(1), row(2)])
    teller.say(ended=[failed(row(1)), done(row(2))])
    for ordinal in (3, 5):
        rows = [row(ordinal, row(1).url), row(ordinal + 1, row(2).url)]
        teller.say(rows, forced=[ordinal, ordinal + 1])
        teller.say(ended=[failed(rows[0]), done(rows[1])])
    teller.store.flush()
    assert teller.store.counters() == Counters(last_ordinal=6, done=3, failed=1, queues=1, retried=2)


def test_what_fails_after_its_url_was_forced_stays_a_failure(teller: Teller) -> None:
    """Two rows of one URL: each ends for itself."""
    teller.say([row(1)])
    teller.say([row(2, row(1).url)], forced=[2], ended=[failed(row(1))])
    teller.say([row(3)])
    teller.say([row(4, row(3).url)], forced=[4])
    teller.say(ended=[failed(row(3))])
    teller.store.flush()
    assert teller.store.counters() == Counters(last_ordinal=4, queued=2, failed=1, queues=1, retried=1)


def test_gates_that_are_blocked_are_listed(teller: Teller) -> None:
    """Those that are blocked longer than a moment."""
    teller.say([row(1), row(2, lane=OTHER_LANE)])
    teller.say(gates=[gate_row(A_LANE[1], blocked_until_s=NOW_S + 5), gate_row(OTHER_LANE[1], blocked_until_s=inf)])
    teller.store.flush()
    assert teller.store.retry_reads.blocked(NOW_S) == {A_LANE[1], OTHER_LANE[1]}
    assert teller.store.retry_reads.blocked(NOW_S + 5) == {OTHER_LANE[1]}
