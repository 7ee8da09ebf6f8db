"""Accounts of a process that is killed in the middle of its work, again and again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.database import AccountsView
from tests.crawler.accounts.killable_accounts import lines_of_group
from tests.crawler.accounts.test_accounts import tallied

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("killable_accounts.py")


@pytest.mark.slow
def test_after_kill_9_each_group_counts_once_and_whole(tmp_path: Path) -> None:
    """Wherever it was killed. Of the group that was under way all lines count, or none."""
    state, log = tmp_path, tmp_path / "crawl.log"
    counted: list[bytes] = []
    for wanted in (1, 40, 3, 90, 17):
        told = _told_until_killed(tmp_path, wanted)
        counted += [line for group in range(told) for line in lines_of_group(group)]
        Accounts(state, log, lambda: 0.0).close()
        with AccountsView(state) as view:
            total, hosts = view.total().urls, dict(view.hosts())
        under_way = lines_of_group(told)
        assert total in {len(counted), len(counted) + len(under_way)}
        if total > len(counted):
            counted += under_way
        assert hosts == tallied(b"".join(counted))


def _told_until_killed(folder: Path, wanted: int) -> int:
    """Let the program work until it has told of so many groups, and kill it; of how many it told in the end."""
    command = [sys.executable, str(PROGRAM), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for _ in range(wanted):
            assert process.stdout.readline()
        process.kill()
        return wanted + len(process.stdout.readlines())
