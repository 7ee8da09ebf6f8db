"""Brings the folder of a job of an older format to today's, one step for each format, under the job's lock.

A step may be broken off and taken again: the folder says that it has the new format only when all are done. The tables of the
queue have a format of their own (`frontier.stores.migrating`). To change the format of a folder: raise `VERSION` in
`frontier.embedding.folder`, add a step here, and keep jobs of the format that it replaces (`tests/formats`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from anabranch.crawler.jobs.orderfile import order_file, write_order
from anabranch.crawler.outcomes.errors import OrderDamaged


def migrate(directory: Path, version: int) -> None:
    """Take the steps from this version on. Raises: StorageError."""
    for step in _STEPS[version - 1 :]:
        step(directory)


def _copy_order(directory: Path) -> None:
    """1 to 2: the state has a copy of the order. Of one that is damaged there is none: whoever goes by it is told."""
    with suppress(OrderDamaged):
        order = order_file(directory)
        if order is not None:
            write_order(directory, order.read_text("utf-8-sig"))


_STEPS: Sequence[Callable[[Path], None]] = (_copy_order,)
