"""The asyncio face of a share: it is drained only when whoever runs the shares says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.division.exchange import Exchange
from anabranch.frontier.division.parcels import Consigned


class AsyncShare(AsyncFrontier):
    """An `AsyncFrontier` to which others may send something. `open` must answer a Frontier with a `division`."""

    def __init__(self, open: Callable[[Callable[[], None]], Frontier]) -> None:  # noqa: A002 - as the base
        super().__init__(open)
        self._is_kept_open = True
        #: Called whenever it is noticed that nothing is queued, nothing is leased and somebody waits for a lease. It may not
        #: call the Frontier.
        self.on_drained: Callable[[], None] = lambda: None

    @property
    def exchange(self) -> Exchange:
        """With the other shares."""
        exchange = self.core.exchange
        assert exchange is not None, "a Frontier without a division has nobody to exchange with"
        return exchange

    def receive(self, consigned: Sequence[Consigned]) -> bool:
        """As `Exchange.receive`; wakes waiting tasks."""
        return self._then_pump(lambda: self.exchange.receive(consigned))

    def delivered(self, share: int, number: int) -> None:
        """As `Exchange.delivered`."""
        self._then_pump(lambda: self.exchange.delivered(share, number))

    def let_end(self) -> None:
        """Nobody sends anything more: from now on it is drained when nothing is queued and nothing is leased."""
        self._is_kept_open = False
        self._pump()

    @property
    def is_drained(self) -> bool:
        """Never before `let_end`."""
        return not self._is_kept_open and self.core.is_done

    def _wait_on(self) -> None:
        if self._is_kept_open and self.core.is_done:
            self.on_drained()
        super()._wait_on()
