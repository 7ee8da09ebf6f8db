"""Commands run in this process: what they do to it is undone."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A command that has ended ignores them, and would have what later tests start ignore them, too."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
