"""The hostile web, group by group: the crawl goes on and ends by itself, each URL gets a status, memory stays bounded,
an innocent host beside it is fetched whole, and nothing private is asked for.

What each host does stands in `tests/site/hostile/hosts.py`, one line each, with the statuses that its first URL may get.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.acceptance.hostile import Crawled, asked_for, crawl
from tests.site.hostile.asking import TRAP
from tests.site.hostile.hosts import GROUPS, INNOCENT, INNOCENT_URLS, first_url, host_of
from tests.site.hostile.server import HostileWeb
from tests.site.hostile.wire import OK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

#: Anonymous memory that a crawl of any of the groups may have.
MEMORY_BYTES = 300_000_000
INNOCENT_SEED = f"http://{INNOCENT}/"
#: What the crawl's own statuses for a private address are: Heritrix's "blocked".
BLOCKED = -5001
UNREADABLE_SEED = -7


@pytest.fixture
async def web() -> AsyncIterator[HostileWeb]:
    """The hostile web, on one port, with a fresh ledger."""
    async with HostileWeb() as server:
        yield server


def assert_well(crawled: Crawled, web: HostileWeb) -> None:
    """What holds for every crawl: it ended, within its memory; each URL asked for has a line; the innocent host is whole."""
    assert crawled.run.code in (0, 5), crawled.run.err
    assert "Traceback" not in crawled.run.err
    assert crawled.peak_bytes < MEMORY_BYTES
    assert asked_for(web.ledger) <= set(crawled.final()), "a URL was fetched and has no line"
    innocent = {url: status for url, status in crawled.final().items() if url.startswith(INNOCENT_SEED)}
    assert innocent == dict.fromkeys(INNOCENT_URLS, OK)
    assert not {url for url in web.ledger.counts() if TRAP in url}, "a trap was asked for"


async def crawl_of(web: HostileWeb, folder, names, **sections) -> Crawled:
    """A crawl of some hosts and the innocent one."""
    seeds = [INNOCENT_SEED, *(first_url(name) for name in names)]
    return await crawl(folder, seeds, web.hosts(), scope={"max_hops": 40} | sections.pop("scope", {}), **sections)


@pytest.mark.parametrize("group", [group for group in GROUPS if group not in ("endless sites", "parsers")])
async def test_each_hostile_host_gets_a_status_and_the_innocent_one_is_fetched_whole(tmp_path, web, group):
    """All the hosts of a group at once, in one crawl."""
    crawled = await crawl_of(web, tmp_path, GROUPS[group])
    assert_well(crawled, web)
    final = crawled.final()
    wrong = {
        name: final.get(first_url(name))
        for name, host in GROUPS[group].items()
        if final.get(first_url(name)) not in host.statuses
    }
    assert not wrong


@pytest.mark.parametrize("name", GROUPS["parsers"])
async def test_no_page_stalls_the_crawl(tmp_path, web, name):
    """A page made to hurt a parser is read within the limits, while the innocent host is fetched."""
    crawled = await crawl_of(
        web, tmp_path, [name], scope={"max_hops": 4}, fetch={"max_body": "16MiB", "timeout": "20s"}
    )
    assert_well(crawled, web)
    assert crawled.final()[first_url(name)] in GROUPS["parsers"][name].statuses


async def test_sites_without_end_end_by_the_limits_of_the_order(tmp_path, web):
    """Calendars, relative paths, session ids, frames, imports and refreshes: no URL is farther away than max_hops."""
    crawled = await crawl_of(web, tmp_path, GROUPS["endless sites"], scope={"max_hops": 6}, crawl={"workers": 40})
    assert_well(crawled, web)
    assert max(len(line.hops) for line in crawled.lines if line.hops != "-" and not line.hops.endswith("P")) == 6
    assert f"http://{host_of('deeper')}/x/y/x/y/x/y/" in crawled.final()
