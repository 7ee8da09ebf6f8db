"""A filter that blocks, such as one in Redis, is asked and marked by the store's thread: it fails as a try of the store."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from anabranch.frontier.errors import StoreFull, StoreUnavailable
from anabranch.frontier.models import Row
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.messages import Batch

#: What the filter's disk says when it is full or read-only.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


class FilterFailed(StoreUnavailable):
    """The filter could not be asked or marked; it may be able to later."""


class FilterFull(FilterFailed, StoreFull):
    """Its disk is full or read-only."""


def known_rows(batches: Sequence[Batch], seen: SeenFilter) -> list[Row]:
    """The new rows that the filter knows, by one question for all batches; forced ones are not asked about.

    Raises: FilterFailed.
    """
    asked = [row for batch in batches for row in batch.new if row.ordinal not in batch.forced]
    if not asked:
        return []
    with _failures():
        verdicts = seen.unseen([row.dedup_key() for row in asked])
    return [row for row, is_unseen in zip(asked, verdicts, strict=True) if not is_unseen]


def mark(keys: Sequence[bytes], seen: SeenFilter) -> None:
    """Tell the filter what is committed. Raises: FilterFailed."""
    with _failures():
        seen.mark(keys)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (OSError, StoreUnavailable) as error:
        is_full = isinstance(error, OSError) and error.errno in _FULL
        kind: type[FilterFailed] = FilterFull if is_full or isinstance(error, StoreFull) else FilterFailed
        raise kind(f"the filter cannot be used: {error}") from error
