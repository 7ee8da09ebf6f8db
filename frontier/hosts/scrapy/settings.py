"""The settings of a Scrapy project that concern its Frontier."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from scrapy.settings import BaseSettings
from scrapy.utils.job import job_dir

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import SurtPrefix

#: The setting with the Frontier's own settings, a dictionary.
FRONTIER = "FRONTIER"
#: The Frontier's folder in JOBDIR.
FOLDER = "frontier"
#: The folder of Scrapy's own scheduler in JOBDIR.
_STOCK_QUEUE = "requests.queue"
#: Why a spider is closed when its Frontier cannot be opened, or fails.
UNAVAILABLE = "frontier_unavailable"
#: Scrapy's delays and connections of single hosts, and what they are in an override.
SLOTS = "DOWNLOAD_SLOTS"
_HOST = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
#: Heritrix's longest rest, seconds.
_LONGEST_S = 30.0


def frontier_settings(settings: BaseSettings) -> dict[str, Any]:
    """The settings in `FRONTIER`, completed by the project's delays. Pure.

    DOWNLOAD_DELAY is the least rest of a host, and no rest grows with the duration of the fetch. A host with a delay has one
    connection, since Scrapy's delay is between all requests of a host and a gate's is per connection; a host without one has
    CONCURRENT_REQUESTS_PER_DOMAIN. DOWNLOAD_SLOTS become overrides, before those of `FRONTIER`; a slot that is no host name
    is chosen by requests (`download_slot`) and stays with the downloader.
    Raises: PolicyError if `FRONTIER` is no dictionary; its contents are checked when the Frontier is opened.
    """
    try:
        given: dict[str, Any] = settings.getdict(FRONTIER)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{FRONTIER} {settings[FRONTIER]!r}: give a dictionary") from error
    least_s = given.get("min_delay", settings.getfloat("DOWNLOAD_DELAY"))
    connections = max(settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"), 1)
    usual = {
        "min_delay": least_s,
        "max_delay": max(least_s, _LONGEST_S) if isinstance(least_s, int | float) else _LONGEST_S,
        "delay_factor": 0.0,
        "max_connections": 1 if least_s else connections,
    }
    slots = []
    for name, slot in settings.getdict(SLOTS).items():
        if (slot.keys() & {"delay", "concurrency"}) and _HOST.fullmatch(name):
            delay_s = slot.get("delay", least_s)
            at_once = 1 if delay_s else slot.get("concurrency", connections)
            where = str(SurtPrefix(name.lower(), with_subdomains=False))
            slots.append({"surt": where, "min_delay": delay_s, "max_connections": at_once})
    theirs = given.get("override", [])
    if not slots or not isinstance(theirs, list | tuple):
        return usual | given
    # An addon may have set the overrides of the slots already.
    return usual | given | {"override": [*(slot for slot in slots if slot not in theirs), *theirs]}


def folder(settings: BaseSettings) -> Path | None:
    """The Frontier's folder; None without JOBDIR: in memory."""
    jobs = job_dir(settings)
    return None if jobs is None else Path(jobs, FOLDER)


def stock_queue(settings: BaseSettings) -> Path | None:
    """The folder of requests that Scrapy's own scheduler has left in a JOBDIR that the Frontier has not used; None without."""
    jobs = job_dir(settings)
    if jobs is None or Path(jobs, FOLDER).exists():
        return None
    queue = Path(jobs, _STOCK_QUEUE)
    return queue if queue.is_dir() and any(queue.iterdir()) else None
