"""A short campaign of `cluster`: three workers of which one is killed, one stopped, one cut off."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from scripts.postgres_server import running
from tests.stress.cluster import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_each_page_is_fetched_whichever_worker_is_lost(tmp_path: Path) -> None:
    """Few are fetched twice, and each host is left in peace."""
    data = Path(tempfile.mkdtemp(prefix="anabranch-pg-"))  # sockets need a short path
    try:
        with running(data) as server:
            outcome = run(2, server, ttl_s=3.0, faults=3, pages=1500, folder=tmp_path)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    assert [words for words in outcome.wrong() if not words.startswith("slow")] == []  # machines are shared
    assert len({fault.kind for fault in outcome.faults}) > 1
