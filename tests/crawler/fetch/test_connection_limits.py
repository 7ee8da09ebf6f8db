"""How many files may be open, and how many of them connections that only wait."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest
import structlog

from anabranch.crawler.fetch.connection_limits import (
    MAX_IDLE,
    ConnectionLimits,
    connection_limits_for,
    raise_file_limit,
)


@pytest.fixture
def hard() -> Iterator[int]:
    """The hard limit; what the test did to the soft one is taken back."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_raised_as_far_as_the_system_lets_it(hard: int) -> None:
    """A shell's limit is often 1024 or 256, the hard one some hundred times that."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    wanted = min(65_536, hard) if hard != resource.RLIM_INFINITY else 65_536
    assert raise_file_limit() == wanted
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)


def test_a_limit_that_is_high_enough_stays(hard: int) -> None:
    """Raising it a second time changes nothing."""
    raise_file_limit()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_file_limit() == before[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_a_bound_of_the_systems_own_is_met_by_asking_for_less(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """MacOS names no hard limit, and refuses more than 10,240."""
    limits = [(256, resource.RLIM_INFINITY)]

    def setrlimit(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert raise_file_limit() == 10_240


@pytest.mark.parametrize(("files", "workers", "idle"), [(256, 20, 120), (65_536, 200, MAX_IDLE), (496, 200, 0)])
def test_what_the_job_and_the_workers_do_not_need_may_wait(files: int, workers: int, idle: int) -> None:
    """96 for the job's own files, two for each worker; never more than are of use."""
    assert connection_limits_for(files, workers) == ConnectionLimits(busy=0, idle=idle)


@pytest.mark.parametrize(("files", "busy"), [(256, 80), (64, 1)])
def test_too_few_files_for_the_workers_are_told_and_shared(files: int, busy: int) -> None:
    """Then no connection is kept, so many fetches run at once, and the operator reads what to do."""
    with structlog.testing.capture_logs() as logs:
        assert connection_limits_for(files, 100) == ConnectionLimits(busy=busy, idle=0)
    assert [(line["log_level"], line["open_files"], line["fetches_at_once"]) for line in logs] == [
        ("warning", files, busy)
    ]
    assert "ulimit -n" in logs[0]["event"]
