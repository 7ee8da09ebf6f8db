"""The sections [robots] and [dns] of a crawl order."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.network.lookups import ResolverOptions
from anabranch.crawler.orders.hosts import DnsSection, RobotsSection
from anabranch.crawler.orders.sources import load_order
from anabranch.crawler.outcomes.errors import OrderError


def load(tmp_path: Path, text: str) -> tuple[RobotsSection, DnsSection]:
    file = tmp_path / "x.toml"
    file.write_text(text)
    order = load_order(file, {})
    return order.robots, order.dns


def test_by_default_robots_are_obeyed_as_the_rfc_says() -> None:
    """A day of cache, an hour for a host that cannot be asked, pages' own words obeyed, rel=nofollow not."""
    robots = RobotsSection()
    assert (robots.robots, robots.max_crawl_delay_s, robots.cache_s, robots.unreachable_s) == ("obey", 300, 86400, 3600)
    assert (robots.meta, robots.nofollow_links) == (True, False)


def test_by_default_both_families_are_asked_for() -> None:
    """The order's defaults are the resolver's."""
    assert DnsSection().options(ipv4=True, ipv6=True) == ResolverOptions()


def test_every_key_reaches_its_place(tmp_path: Path) -> None:
    """Durations are words."""
    robots, dns = load(
        tmp_path,
        "[robots]\ncache = '2h'\nunreachable = '5m'\nmeta = false\nnofollow_links = true\n"
        "[dns]\nmin_ttl = '5m'\nmax_ttl = '1h'\n",
    )
    assert (robots.cache_s, robots.unreachable_s, robots.meta, robots.nofollow_links) == (7200, 300, False, True)
    assert dns.options(ipv4=True, ipv6=False) == ResolverOptions(ipv4=True, ipv6=False, min_ttl_s=300, max_ttl_s=3600)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[robots]\ncache = '25h'\n", "cache"),
        ("[robots]\ncache = '0s'\n", "cache"),
        ("[robots]\nunreachable = '0s'\n", "unreachable"),
        ("[robots]\nrobots = 'maybe'\n", "robots"),
        ("[robots]\nmeta = 'maybe'\n", "meta"),
        ("[dns]\nmin_ttl = '7h'\n", "max_ttl (6h) is less than min_ttl (7h)"),
        ("[dns]\nservers = ['dns.test']\n", "dns.test"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path: Path, text: str, named: str) -> None:
    """With the section and the key, or what is wrong between two keys."""
    with pytest.raises(OrderError) as raised:
        load(tmp_path, text)
    line = str(raised.value)
    assert named in line
    assert "\n" not in line
    assert ("robots" if "robots" in text else "dns") in line
