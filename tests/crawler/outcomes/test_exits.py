"""The promised exit codes."""

from __future__ import annotations

from anabranch.crawler.outcomes.exits import ExitCode


def test_the_exit_codes_keep_their_numbers() -> None:
    """Scripts read them, so a number never changes its meaning."""
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "STORE_OR_JOB_IN_USE": 1,
        "USAGE": 2,
        "DISK_FULL": 3,
        "BAD_ORDER": 4,
        "NO_SEED_ANSWERED": 5,
        "DRAINED": 11,
        "FORCED": 13,
        "INTERRUPTED": 130,
        "READER_GONE": 141,
    }
