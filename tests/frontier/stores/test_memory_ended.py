"""What the store in memory keeps of rows that have ended."""

import gc

from anabranch.frontier.models import OutcomeKind, UrlRecord, UrlState
from anabranch.frontier.stores.base import EndedRecord
from anabranch.frontier.stores.memory_ended import EndedRows
from tests.frontier.stores.rows import row


def test_every_way_to_end_is_kept_with_its_attempts() -> None:
    """And its status, whatever its sign and size."""
    ended, most = EndedRows(), (1 << 63) - 1
    for ordinal, kind in enumerate(OutcomeKind, 1):
        ended.add(row(ordinal)._replace(attempts=ordinal * 10), -ordinal * most // 10, kind)
    assert [(one.outcome, one.attempts, one.status) for one in ended.after(0, 100)] == [
        (kind, ordinal * 10, -ordinal * most // 10) for ordinal, kind in enumerate(OutcomeKind, 1)
    ]


def test_a_key_is_kept_if_it_is_not_the_url() -> None:
    """Else the URL stands for it."""
    ended = EndedRows()
    ended.add(row(1), 200, OutcomeKind.DONE)
    ended.add(row(2)._replace(key=b"\xff"), 404, OutcomeKind.FAILED)
    assert list(ended.keys()) == [(1, row(1).url.encode()), (2, b"\xff")]
    assert ended.after(1, 9) == [EndedRecord(2, row(2).url, b"\xff", 404, OutcomeKind.FAILED, row(2).attempts)]


def test_a_row_that_has_not_ended_is_not_there() -> None:
    """Nor is anything known of it."""
    ended = EndedRows()
    ended.add(row(1), 200, OutcomeKind.DONE)
    assert (ended.url(1), ended.url(2)) == (row(1).url, None)
    assert (ended.record(1), ended.record(2)) == (UrlRecord(row(1).url, UrlState.ENDED, 200, "done", 0, 1), None)
    assert ended.kinds() == {OutcomeKind.DONE: 1}


def test_the_collector_has_nothing_to_look_into() -> None:
    """However many rows have ended: texts, bytes and numbers are all there is."""
    ended = EndedRows()
    for ordinal in range(1, 100):
        ended.add(row(ordinal)._replace(key=b"key"), 200, OutcomeKind.DONE)
    kept = [value for value in vars(ended).values() if isinstance(value, dict)]
    assert len(kept) == 4
    assert not any(map(gc.is_tracked, kept))
