"""Fixtures of the crawler's tests."""

import resource
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def small_files() -> Iterator[int]:
    """Files may grow to this many bytes. (More than the tests' own output has, which may be a file.)"""
    most = 4 << 20
    action = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    yield most
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, action)
