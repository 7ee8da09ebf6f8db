"""A Frontier inside a host program, in a folder of its own or in memory alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from frontier.clocks import Clock
from frontier.composition import SEEN_FOLDER, STORE_FILE, has_store, open_frontier
from frontier.core import Frontier
from frontier.embedding.folder import (
    FORMAT_FILE,
    LEASES_FILE,
    LOCK_FILE,
    ORDER_FILE,
    STATE,
    Held,
    format_text,
    take_lock,
)
from frontier.embedding.leaseboard import LeaseBoard
from frontier.embedding.settings import order_of, order_text
from frontier.errors import StoreInUse, StoreUnavailable

#: Ending of a file that is being written.
_UNFINISHED = ".new"


class EmbeddedJob:
    """An open Frontier, and the folder that is held for it.

    The folder is a job's: `anabranch frontier ls FOLDER` and `anabranch why FOLDER URL` look into it, while it is open here,
    too. `on_change` is called from the store's thread and may only wake the host. `max_unacknowledged` ends of leases may be
    lost with the process: as many as the host works on at once. Opening blocks. Raises: PolicyError, FormatMismatch,
    StoreInUse, StoreUnavailable.
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
        self._lock: int | None = None if folder is None else _taken(folder)
        self._board: LeaseBoard | None = None
        try:
            self.frontier: Frontier = self._opened()
        except BaseException:
            self._let_go()
            raise

    def empty(self) -> None:
        """Forget all and begin anew, the folder still held (blocks). Raises: StoreUnavailable."""
        self._close()
        if self.folder is not None:
            _forget(self.folder)
        self.frontier = self._opened()

    def remove(self) -> None:
        """Close it and remove what it wrote, and the folder if nothing else is in it (blocks). Raises: StoreUnavailable."""
        try:
            self._close()
            if self.folder is not None and self._lock is not None:
                _forget(self.folder)
                _remove(self.folder)
        finally:
            self._let_go()

    def close(self) -> None:
        """Write all, close the Frontier, let go of the folder (blocks). A second call is harmless."""
        try:
            self._close()
        finally:
            self._let_go()

    def _opened(self) -> Frontier:
        if self.folder is not None:
            with suppress(OSError):  # what a run that was killed had in flight
                (self.folder / STATE / LEASES_FILE).unlink()
        if self.folder is not None and not has_store(self.folder / STATE):
            _forget(
                self.folder
            )  # a filter without rows, left by an end in the middle of `empty`, would refuse what it has seen
        frontier = self._open()
        try:
            if self.folder is not None:
                _describe(self.folder, self._text)
                self._board = LeaseBoard(self.folder / STATE / LEASES_FILE)
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
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _taken(folder: Path) -> int:
    """The folder's lock. Raises: StoreInUse, StoreUnavailable."""
    try:
        (folder / STATE).mkdir(parents=True, exist_ok=True)
        return take_lock(folder)
    except Held as held:
        who = "another process" if held.process is None else f"process {held.process}"
        raise StoreInUse(f"{folder}: {who} uses this job; end it first, or choose another folder") from held
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; choose a folder that can be written") from error


def _forget(folder: Path) -> None:
    """Remove the rows, then the filter; the lock stays. Raises: StoreUnavailable."""
    state = folder / STATE
    try:
        for file in sorted(state.glob(f"{STORE_FILE}*")):
            file.unlink()
        if (state / SEEN_FOLDER).exists():
            shutil.rmtree(state / SEEN_FOLDER)
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; it cannot be emptied") from error


def _remove(folder: Path) -> None:
    """Remove what else says that it is a job, and the folder if nothing else is in it. Raises: StoreUnavailable."""
    try:
        for file in (folder / STATE / FORMAT_FILE, folder / ORDER_FILE, folder / STATE / LOCK_FILE):
            file.unlink(missing_ok=True)
        for empty in (folder / STATE, folder):
            if not any(empty.iterdir()):
                empty.rmdir()
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; it cannot be removed") from error


def _describe(folder: Path, order: str) -> None:
    """Say that the folder is a job's, and by which order. Raises: StoreUnavailable."""
    try:
        _replace(folder / ORDER_FILE, order.encode())
        _replace(folder / STATE / FORMAT_FILE, format_text(embedded=True))
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; make room, or choose another folder") from error


def _replace(path: Path, data: bytes) -> None:
    """Rewrite a file that may be half written by a run that was killed; it holds nothing that the next run does not know."""
    if path.is_file() and path.read_bytes() == data:
        return
    unfinished = path.with_name(path.name + _UNFINISHED)
    unfinished.write_bytes(data)
    unfinished.replace(path)
