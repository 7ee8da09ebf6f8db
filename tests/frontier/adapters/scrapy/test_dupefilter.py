"""Scrapy's DUPEFILTER_CLASS."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scrapy")

from scrapy import Request

from anabranch.frontier.adapters.scrapy import FrontierDupeFilter
from tests.frontier.adapters.scrapy.project import crawler

URL = "http://a.test/1"


def test_a_fingerprint_is_seen_in_the_next_run_too(tmp_path: Path) -> None:
    """In JOBDIR; without it, in this run."""
    for expected, jobs in ((False, tmp_path), (True, tmp_path), (False, None)):
        made = FrontierDupeFilter.from_crawler(crawler(**({"JOBDIR": str(jobs)} if jobs else {})))
        made.open()
        assert made.request_seen(Request(URL)) is expected
        assert made.request_seen(Request(f"{URL}#x")) is True
        made.close("finished")
