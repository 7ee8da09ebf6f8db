"""Accounts of a process that is killed in the middle of its work, again and again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from crawler.reporting.account_reading import AccountsView
from crawler.reporting.accounts import Accounts
from tests.crawler.reporting.test_accounts import tallied

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("killable_accounts.py")


def test_after_kill_9_every_line_counts_once(tmp_path) -> None:
    """Wherever it was killed: in a commit, between the log and the accounts, in a line."""
    for groups in (1, 40, 3, 90, 17):
        command = [sys.executable, str(PROGRAM), str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            for _ in range(groups):
                assert process.stdout.readline()
            process.kill()
        log = (tmp_path / "crawl.log").read_bytes()
        accounts = Accounts(tmp_path, tmp_path / "crawl.log", lambda: 0.0)
        accounts.close()
        expected = tallied(log[: log.rfind(b"\n") + 1])
        with AccountsView(tmp_path) as view:
            assert dict(view.hosts()) == expected
            assert view.total().urls == log.count(b"\n")
