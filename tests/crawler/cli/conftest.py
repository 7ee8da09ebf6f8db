"""Commands that run in the test's own process are built once, not for each call of `CliRunner.invoke`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import typer.testing
from typer.main import get_command

from anabranch.crawler.cli import crawl
from anabranch.crawler.job import inspection


@pytest.fixture(autouse=True, scope="session")
def _commands_built_once() -> Iterator[None]:
    """Building `anabranch` with its 300 parameters takes 50 ms; an invocation takes 1 ms."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer.testing, "_get_command", cache(get_command))
        yield


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait 50 ms, not 5 s, for a job in use: in these tests nobody gives it back."""
    for module in (crawl, inspection):
        monkeypatch.setattr(module, "LOOKING_S", 0.05)
