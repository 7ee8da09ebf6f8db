"""What a Scrapy project asks of its Frontier. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scrapy.settings import BaseSettings
from scrapy.utils.job import job_dir

from frontier.errors import PolicyError

#: The setting with the Frontier's own settings, a dictionary.
FRONTIER = "FRONTIER"
#: The Frontier's folder in JOBDIR.
FOLDER = "frontier"
#: Why a spider is closed whose Frontier cannot be opened, or fails.
UNAVAILABLE = "frontier_unavailable"
#: Heritrix's longest rest, seconds.
_LONGEST_S = 30.0


def frontier_settings(settings: BaseSettings) -> dict[str, Any]:
    """`FRONTIER`, and where that is silent what the project says of delays: DOWNLOAD_DELAY is the least rest of a host,
    CONCURRENT_REQUESTS_PER_DOMAIN how many of its pages are fetched at once, and no rest grows with the fetch. Raises:
    PolicyError if `FRONTIER` is no dictionary; what stands in it is checked by who opens the Frontier.
    """
    try:
        given: dict[str, Any] = settings.getdict(FRONTIER)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{FRONTIER} {settings[FRONTIER]!r}: give a dictionary") from error
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
