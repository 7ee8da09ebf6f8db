"""A Frontier inside a host program, in a folder of its own or in memory alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from anabranch.frontier.clocks import Clock
from anabranch.frontier.composition import has_store, open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.embedding.folder import STATE
from anabranch.frontier.embedding.hostfolder import HostFolder
from anabranch.frontier.embedding.leaseboard import LeaseBoard
from anabranch.frontier.embedding.settings import order_of, order_text


class EmbeddedJob:
    """An open Frontier, and the folder that is held for it.

    The folder is a job's: `anabranch frontier ls FOLDER` and `anabranch why FOLDER URL` look into it, while it is open here,
    too. `on_change` is called from the store's thread and may only wake the host. `max_unacknowledged` ends of leases may be
    lost with the process: as many as the host works on at once. Opening blocks. Raises: PolicyError, FormatMismatch (also for a
    folder that is another's), StoreInUse, StoreUnavailable.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: Mapping[str, object],
        *,
        on_change: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
        max_unacknowledged: int | None = None,
    ) -> None:
        order = order_of(settings)
        if max_unacknowledged is not None:
            order = replace(order, max_unacknowledged=max_unacknowledged)
        self.folder = folder
        self._text = order_text(settings)
        self._open = partial(
            open_frontier, None if folder is None else folder / STATE, order, on_change=on_change, clock=clock
        )
        self._place = None if folder is None else HostFolder(folder)
        self._board: LeaseBoard | None = None
        try:
            self.frontier: Frontier = self._opened()
        except BaseException:
            if self._place is not None:
                self._place.fail()
            raise

    def empty(self) -> None:
        """Forget all and begin anew, the folder still held (blocks). Raises: StoreUnavailable."""
        self._close()
        if self._place is not None:
            self._place.forget()
        self.frontier = self._opened()

    def remove(self) -> None:
        """Close it and remove what it wrote, and the folder if nothing else is in it (blocks). Raises: StoreUnavailable."""
        try:
            self._close()
            if self._place is not None:
                self._place.remove()
        finally:
            self._let_go()

    def close(self) -> None:
        """Write all, close the Frontier, let go of the folder (blocks). A second call is harmless."""
        try:
            self._close()
        finally:
            self._let_go()

    def _opened(self) -> Frontier:
        place = self._place
        if place is None:
            return self._open()
        with suppress(OSError):  # what a run that was killed had in flight
            place.leases.unlink()
        if not has_store(place.state):
            # A filter without rows, left by an end in the middle of `empty`, would refuse what it has seen.
            place.forget()
        frontier = self._open()
        try:
            place.describe(self._text)
            self._board = LeaseBoard(place.leases)
            frontier.show_leases(self._board)
        except BaseException:
            frontier.close()
            raise
        return frontier

    def _close(self) -> None:
        try:
            self.frontier.close()
        finally:
            if self._board is not None:
                self._board.close()

    def _let_go(self) -> None:
        if self._place is not None:
            self._place.let_go()
