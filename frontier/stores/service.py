"""The store thread, from one opening of a database to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from threading import Thread

from sqlalchemy import Connection

from anabranch.frontier.errors import FrontierError, StoreUnavailable
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.base import Opening
from anabranch.frontier.stores.database import Database
from anabranch.frontier.stores.messages import Answer
from anabranch.frontier.stores.opening import mark
from anabranch.frontier.stores.owner import owner_line
from anabranch.frontier.stores.patience import Patience
from anabranch.frontier.stores.thread import Fifo, Item, Question
from anabranch.frontier.stores.work import Session, Work, refuse


class Service:
    """One thread that serves one FIFO over one database. Used once."""

    def __init__(
        self, database: Database, seen: SeenFilter | None, retry_s: float, post: Callable[[list[Answer]], None]
    ) -> None:
        """`post` is called from the thread."""
        self._database = database
        self._seen = seen
        self._post = post
        self._patience = Patience(retry_s)
        self._fifo = Fifo()
        self._close_clean = False
        self._failure: FrontierError | None = None
        self._opened: Future[Opening] = Future()

    def open(self, read: Callable[[Connection, str], Opening]) -> Opening:
        """Start the thread, connect and open the tables by `read` (blocks). Raises: what goes wrong with that."""
        # A daemon: a forgotten `close` must not keep the process from ending.
        self._thread = Thread(target=self._run, args=(read,), name="anabranch-store", daemon=True)
        self._thread.start()
        try:
            return self._opened.result()
        except FrontierError:
            self._thread.join()
            raise

    def append(self, item: Item) -> bool:
        """Put it at the end of the FIFO; False if nobody will take it any more."""
        return self._fifo.append(item)

    def hurry(self) -> None:
        """Work off what is in the FIFO at once."""
        self._fifo.hurry()

    def close(self, *, clean: bool) -> None:
        """Work off what waits, end the thread (blocks). Raises: why it ended before, if `clean` was asked."""
        self._close_clean = clean
        self._fifo.close()
        self._patience.hurry()
        self._thread.join()
        if clean and self._failure is not None:
            raise self._failure

    # In the thread

    def _run(self, read: Callable[[Connection, str], Opening]) -> None:
        """From the opening to the end of the FIFO. An error before it is open is its answer, one after it is `_failure`."""
        failure: FrontierError = StoreUnavailable(f"{self._database.place}: the store is not open")
        try:
            with closing(Session(self._database)) as session:
                opening = read(session.connection, self._database.place)
                self._database.announce(session.connection, owner_line(time.time()))
                self._opened.set_result(opening)
                self._serve(session, opening)
        except Exception as error:  # noqa: BLE001  it is raised where somebody waits: in `open` or `close`
            self._failure = failure = self._database.translated(error)
            if not self._opened.done():
                self._opened.set_exception(failure)
        finally:
            self._fifo.close()
            for group in self._fifo.groups():
                refuse(group, failure)

    def _serve(self, session: Session, opening: Opening) -> None:
        work = Work(session, opening, self._seen, self._post, self._patience)
        for group in self._fifo.groups():
            work.do(group)
        if self._close_clean and work.failure is None:
            work.do([Question(partial(mark, clean=True))])
        self._failure = work.failure
        if work.failure is None:
            self._database.let_go(session.connection, clean=self._close_clean)
