"""Looks at routes and at other hosts, by real sockets on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anabranch.crawler.fetch import reach
from anabranch.crawler.fetch.reach import has_route, is_anybody_there
from tests.crawler.fetch.servers import Web, answers, refused_port


@contextmanager
def full() -> Iterator[int]:
    """A port that accepts no connection and refuses none: its queue is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield port


def test_there_is_a_route_to_a_host_on_this_machine() -> None:
    """Also if there is none to anywhere else, as on a machine without a network."""
    assert has_route([("127.0.0.1", 80)])


def test_without_any_route_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has answered before."""
    monkeypatch.setattr(reach, "_is_routed", lambda _: False)
    assert not has_route([("127.0.0.1", 80)])


async def test_a_refusal_is_an_answer_and_silence_is_none(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers is enough."""
    monkeypatch.setattr(reach, "PATIENCE_S", 0.3)
    refused = ("127.0.0.1", await refused_port())
    there = ("127.0.0.1", await site.listen(answers))
    with full() as port:
        silent = ("127.0.0.1", port)
        assert await is_anybody_there([silent, refused])
        assert await is_anybody_there([there])
        assert not await is_anybody_there([silent])
        assert not await is_anybody_there([])
