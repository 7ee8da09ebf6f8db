"""The settings of a Scrapy project that concern its Frontier. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
#: Scrapy's own scheduler's.
_STOCK_QUEUE = "requests.queue"
#: Reason for which a spider is closed when its Frontier cannot be opened, or fails.
UNAVAILABLE = "frontier_unavailable"
#: Scrapy's delays and connections of single hosts, and what they are in an override.
SLOTS = "DOWNLOAD_SLOTS"
_HOST = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
#: Heritrix's longest rest, seconds.
_LONGEST_S = 30.0


def frontier_settings(settings: BaseSettings) -> dict[str, Any]:
    """The settings in `FRONTIER`, completed by the project's delays.

    DOWNLOAD_DELAY is the least rest of a host, and no rest grows with the duration of the fetch.
    CONCURRENT_REQUESTS_PER_DOMAIN is the number of simultaneous fetches of a host without a delay. DOWNLOAD_SLOTS become
    overrides, before those of `FRONTIER`. Raises: PolicyError if `FRONTIER` is no dictionary; its contents are checked when
    the Frontier is opened.
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
        "max_connections": _connections(least_s, connections),
    }
    return usual | given | _overrides(given, slot_overrides(settings.getdict(SLOTS), least_s, connections))


def slot_overrides(slots: Mapping[str, Mapping[str, Any]], least_s: object, connections: int) -> list[dict[str, Any]]:
    """DOWNLOAD_SLOTS as overrides; where a slot says nothing, the given values apply.

    A name that is no host name is chosen by requests (`download_slot`) and stays with the downloader.
    """
    overrides = []
    for name, slot in slots.items():
        if (slot.keys() & {"delay", "concurrency"}) and _HOST.fullmatch(name):
            delay_s = slot.get("delay", least_s)
            at_once = _connections(delay_s, slot.get("concurrency", connections))
            where = str(SurtPrefix(name.lower(), with_subdomains=False))
            overrides.append({"surt": where, "min_delay": delay_s, "max_connections": at_once})
    return overrides


def _connections(delay_s: object, connections: int) -> int:
    """One connection if there is a delay: Scrapy's delay is between all requests of a host, a gate's is per connection."""
    return 1 if delay_s else connections


def _overrides(given: Mapping[str, Any], slots: list[dict[str, Any]]) -> dict[str, Any]:
    """The overrides of the slots, unless an addon has set them before, and then those given."""
    theirs = given.get("override", [])
    if not slots or not isinstance(theirs, list | tuple):
        return {}
    return {"override": [*(slot for slot in slots if slot not in theirs), *theirs]}


def folder(settings: BaseSettings) -> Path | None:
    """The Frontier's folder; None without JOBDIR: in memory."""
    jobs = job_dir(settings)
    return None if jobs is None else Path(jobs, FOLDER)


def stock_queue(settings: BaseSettings) -> Path | None:
    """The folder in JOBDIR in which Scrapy's own scheduler has left requests, if the Frontier has not used this JOBDIR."""
    jobs = job_dir(settings)
    if jobs is None or Path(jobs, FOLDER).exists():
        return None
    queue = Path(jobs, _STOCK_QUEUE)
    return queue if queue.is_dir() and any(queue.iterdir()) else None
