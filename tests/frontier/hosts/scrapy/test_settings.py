"""Settings of a Scrapy project: its delays become the Frontier's settings, and the addon adapts the project's."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scrapy")

from scrapy.exceptions import NotConfigured
from scrapy.settings import Settings

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.hosts.scrapy import FrontierAddon, FrontierScheduler, FrontierSpiderMiddleware
from anabranch.frontier.hosts.scrapy.settings import FRONTIER, folder, frontier_settings, stock_queue


def project(**values: object) -> Settings:
    return Settings(values, priority="project")


def test_where_the_frontier_is_silent_the_project_speaks() -> None:
    """Its delay and its connections, and no rest that grows with the fetch."""
    settings = frontier_settings(project(DOWNLOAD_DELAY=40, CONCURRENT_REQUESTS_PER_DOMAIN=3))
    assert settings == {"min_delay": 40.0, "max_delay": 40.0, "delay_factor": 0.0, "max_connections": 1}


def test_connections_are_the_projects_where_no_delay_is() -> None:
    """Scrapy's delay is between any two requests of a host, a gate's rest is one connection's."""
    assert frontier_settings(project(CONCURRENT_REQUESTS_PER_DOMAIN=3))["max_connections"] == 3
    assert frontier_settings(project(FRONTIER={"min_delay": 1}))["max_connections"] == 1
    assert frontier_settings(project(FRONTIER={"min_delay": 1, "max_connections": 4}))["max_connections"] == 4


def test_download_slots_are_overrides_of_their_hosts() -> None:
    """Before those of FRONTIER, so that these win; what a slot does not say is as for all."""
    slots = {
        "a.test": {"delay": 5},
        "127.0.0.1": {"delay": 0, "concurrency": 7},
        "b.test": {"concurrency": 2},
        "no host": {"delay": 1},
    }
    own = {"surt": "a.test", "min_delay": 9.0}
    said = frontier_settings(project(DOWNLOAD_DELAY=2, DOWNLOAD_SLOTS=slots, FRONTIER={"override": [own]}))
    assert said["override"] == [
        {"surt": "http://(test,a,)", "min_delay": 5, "max_connections": 1},
        {"surt": "http://(127.0.0.1)", "min_delay": 0, "max_connections": 7},
        {"surt": "http://(test,b,)", "min_delay": 2.0, "max_connections": 1},
        own,
    ]


def test_the_addon_says_slots_once_and_makes_them_steady() -> None:
    """A delay that varies would keep a request in the downloader when its gate is open."""
    settings = project(DOWNLOAD_SLOTS={"a.test": {"delay": 5}})
    FrontierAddon().update_settings(settings)
    assert len(frontier_settings(settings)["override"]) == 1
    (slot,) = settings.getdict("DOWNLOAD_SLOTS").values()
    assert slot["delay"] == 5
    assert slot.get("jitter", slot.get("randomize_delay")) in (0, False)


def test_what_the_frontier_is_told_itself_holds() -> None:
    """Also as JSON, as on a command line."""
    settings = frontier_settings(project(DOWNLOAD_DELAY=40, FRONTIER='{"min_delay": 1, "policy": "host"}'))
    assert (settings["min_delay"], settings["max_delay"], settings["policy"]) == (1, 30.0, "host")


def test_what_is_no_dictionary_is_named() -> None:
    """In one line."""
    with pytest.raises(PolicyError, match="FRONTIER 'host': give a dictionary"):
        frontier_settings(project(FRONTIER="host"))


def test_the_folder_is_in_jobdir(tmp_path: Path) -> None:
    """Without it there is none."""
    assert folder(project(JOBDIR=str(tmp_path))) == tmp_path / "frontier"
    assert folder(project()) is None


@pytest.mark.parametrize("priority", ["project", "spider", "cmdline"])
def test_the_addon_takes_the_delays_from_the_downloader(priority: str) -> None:
    """Whoever said them: what waits in the downloader would wait there in other hosts' places."""
    values = {
        "DOWNLOAD_DELAY": 2,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 5,
        "AUTOTHROTTLE_ENABLED": True,
        "FRONTIER": {"policy": "host"},
    }
    settings = Settings(values, priority=priority)
    FrontierAddon().update_settings(settings)
    assert settings.getfloat("DOWNLOAD_DELAY") == 0
    assert settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") == settings.getint("CONCURRENT_REQUESTS")
    assert not settings.getbool("AUTOTHROTTLE_ENABLED")
    said = frontier_settings(settings)
    assert (said["min_delay"], said["max_connections"], said["policy"]) == (2.0, 1, "host")
    assert settings["SCHEDULER"] is FrontierScheduler
    assert settings.getdict("SPIDER_MIDDLEWARES")[FrontierSpiderMiddleware] < 50


def test_the_addon_leaves_another_scheduler_alone() -> None:
    """And the delays of its project, too."""
    settings = project(SCHEDULER="scrapy.core.scheduler.Scheduler", DOWNLOAD_DELAY=2)
    with pytest.raises(NotConfigured, match="leave it out"):
        FrontierAddon().update_settings(settings)
    assert settings.getfloat("DOWNLOAD_DELAY") == 2
    assert not settings.getdict(FRONTIER)


def test_without_a_limit_to_all_there_is_none_to_a_host() -> None:
    """CONCURRENT_REQUESTS 0 means no limit; 0 for a domain would mean no request at all."""
    settings = project(CONCURRENT_REQUESTS=0)
    FrontierAddon().update_settings(settings)
    assert settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") > 1000


def test_what_scrapys_own_scheduler_has_left_is_found_before_the_frontier_is_there(tmp_path: Path) -> None:
    """An empty folder is nothing, and once the Frontier has its own the other is history."""
    settings = project(JOBDIR=str(tmp_path))
    (tmp_path / "requests.queue").mkdir()
    assert stock_queue(settings) is None
    (tmp_path / "requests.queue" / "active.json").write_text("[]")
    assert stock_queue(settings) == tmp_path / "requests.queue"
    (tmp_path / "frontier").mkdir()
    assert stock_queue(settings) is None
    assert stock_queue(project()) is None
