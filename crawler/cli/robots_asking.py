"""What `anabranch robots` does: one robots.txt is fetched as a crawl fetches it, and read aloud."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from anabranch.crawler.cli.saying import say
from anabranch.crawler.fetching.bodies import Scratch
from anabranch.crawler.fetching.fetcher import Fetcher
from anabranch.crawler.fetching.response import Response
from anabranch.crawler.network.descriptors import Connections
from anabranch.crawler.network.dns import Resolver
from anabranch.crawler.orders.fetch import fetch_options
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.orders.sources import load_order
from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.robots.cache import robots_url, rules_of
from anabranch.crawler.robots.explaining import explain_rules, shown
from anabranch.crawler.robots.parsing import MAX_ROBOTS_BYTES
from anabranch.crawler.robots.redirects import Followed, follow_redirects
from anabranch.crawler.urls.parsing import seed_url
from anabranch.frontier.clocks import steady_clock


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotsCommand:
    """What stands on the command line."""

    url: str
    agent: str | None  #: product token; None: the order's
    allow_private: bool


def run_robots(command: RobotsCommand) -> int:
    """Run it; every foreseeable error is one line on standard error and its exit code."""
    try:
        return _run(command)
    except FORESEEABLE as error:
        say(f"anabranch: {error}")
        return failure_code(error)
    except FetchError as error:
        say(f"anabranch: {command.url}: no robots.txt: {describe(error.status)}: {error}; a crawl fetches nothing then")
        return ExitCode.NO_SEED_ANSWERED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _run(command: RobotsCommand) -> int:
    url = seed_url(command.url)
    if url is None:
        raise UsageError(f"{command.url!r} is no http or https URL")
    order = load_order(None, {"allow_private": True} if command.allow_private else {})
    found = asyncio.run(_fetch(order, robots_url(url)))
    for line in _told(found.response, found.is_lost, url, command.agent or order.agent.token):
        print(line)  # noqa: T201 - the command's own output
    return ExitCode.DONE


async def _fetch(order: CrawlOrder, url: str) -> Followed:
    clock = steady_clock()
    dns = order.dns
    resolver = Resolver(
        dns.servers,
        dns.hosts,
        clock=clock,
        timeout_s=dns.timeout_s,
        options=dns.options(ipv4=order.fetch.ipv4, ipv6=order.fetch.ipv6),
    )
    options = fetch_options(order.fetch, order.agent.user_agent)
    # No gate would send a request again whose kept connection closes, so none is kept for the redirects.
    fetcher = Fetcher(options, resolver=resolver, scratch=Scratch(None), clock=clock, connections=Connections(idle=0))
    try:
        return await follow_redirects(fetcher.get, url, order.fetch.timeout_s)
    finally:
        await fetcher.close()
        await resolver.close()


def _told(response: Response, is_lost: bool, url: str, product: str) -> list[str]:
    status = -2 if is_lost else response.status
    body, is_cut = response.content(MAX_ROBOTS_BYTES + 1)
    rules = rules_of(status, body, product, is_cut=is_cut or bool(response.cuts))
    head = f"{shown(robots_url(url))}: {describe(response.status)}, {len(body)} bytes"
    lost = ["its redirect leads to a host that gives no answer"] if is_lost else []
    return [head, *lost, f"{product}: {shown(url)}", *explain_rules(rules, url, body).lines()]
