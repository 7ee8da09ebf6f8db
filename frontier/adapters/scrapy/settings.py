"""What a Scrapy project asks of its Frontier. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scrapy.settings import BaseSettings
from scrapy.utils.job import job_dir

#: The setting with the Frontier's own settings, a dictionary.
FRONTIER = "FRONTIER"
#: The Frontier's folder in JOBDIR.
FOLDER = "frontier"
#: Heritrix's longest rest, seconds.
_LONGEST_S = 30.0


def frontier_settings(settings: BaseSettings) -> dict[str, Any]:
    """`FRONTIER`, and where that is silent what the project says of delays: DOWNLOAD_DELAY is the least rest of a host,
    CONCURRENT_REQUESTS_PER_DOMAIN how many of its pages are fetched at once, and no rest grows with the fetch.
    """
    given: dict[str, Any] = settings.getdict(FRONTIER)
    least_s = given.get("min_delay", settings.getfloat("DOWNLOAD_DELAY"))
    usual = {
        "min_delay": least_s,
        "max_delay": max(least_s, _LONGEST_S) if isinstance(least_s, int | float) else _LONGEST_S,
        "delay_factor": 0.0,
        "max_connections": max(settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"), 1),
    }
    return usual | given


def folder(settings: BaseSettings) -> Path | None:
    """Where the Frontier lives; None without JOBDIR: in memory."""
    jobs = job_dir(settings)
    return None if jobs is None else Path(jobs, FOLDER)
