"""Connections that read no more than a cap of bandwidth allows: held up between two reads, while no time-out runs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf

from anabranch.crawler.fetch.bandwidth import Meter
from anabranch.crawler.fetch.connections import Connector, HttpConnection, SocksConnector


class CappedConnection(HttpConnection):
    """A connection that reads no more than its meter allows. While it waits no time-out runs."""

    _meter: Meter | None = None
    _held_at_s = inf  #: loop time since which it waits for its meter
    _is_full = False  #: what was read has to be taken first

    def use(self, meter: Meter) -> None:
        """Read the next answer by this meter."""
        self._meter = meter
        with suppress(AttributeError):  # only asyncio's own transport has it; others read at most 256 KiB at once
            self.transport.max_size = meter.portion  # type: ignore[union-attr]

    @property
    def _is_held(self) -> bool:
        return self._held_at_s < inf

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the socket."""
        meter = self._meter
        if meter is not None and data and not meter.read(len(data)) and not self._is_held:
            self._held_at_s = self._loop.time()
            self._pause_transport()
            meter.more(partial(self._read_on, meter))
        super().data_received(data)

    def become_idle(self) -> None:
        """Give up the meter, then do as `HttpConnection.become_idle`."""
        self._meter = None
        super().become_idle()
        self._let_go()

    def pause_reading(self) -> None:
        """aiohttp: the buffer of the body is full."""
        self._is_full = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp: there is room in the buffer of the body again."""
        self._is_full = False
        super().resume_reading(resume_parser)
        if self._is_held:
            self._pause_transport()

    def _read_on(self, meter: Meter) -> None:
        """The meter allows more bytes."""
        if self._meter is meter and self._is_held:
            self._deadline_s += self._loop.time() - self._held_at_s
            self._let_go()
            self._reschedule_timeout()

    def _let_go(self) -> None:
        if self._is_held:
            self._held_at_s = inf
            if not self._is_full and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def _pause_transport(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _reschedule_timeout(self) -> None:
        if self._is_held:
            self._due_s = inf
        else:
            super()._reschedule_timeout()

    def _drop_timeout(self) -> None:
        if self._is_held:
            self._due_s = inf
        else:
            super()._drop_timeout()


class CappedConnector(Connector):
    """A `Connector` of connections that may be held."""

    connection_class = CappedConnection


class CappedSocksConnector(SocksConnector):
    """A `SocksConnector` of connections that may be held."""

    connection_class = CappedConnection
