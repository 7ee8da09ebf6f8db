"""Commands run in this process: what they do to it is undone."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _sigterm_as_before() -> Iterator[None]:
    """A command that has ended ignores it, and would have what later tests start ignore it, too."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
