"""`anabranch links` and `anabranch robots`: what a crawl would read out of one URL, and whether robots.txt allows it.

`links` prints a line for each link of a file or an answer: hop, URL, context. `robots` fetches the robots.txt of a host as a
crawl fetches it, and prints the group and the line that decide.
"""

from __future__ import annotations

import asyncio
import mimetypes
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from anabranch.crawler.cli.command import guarded, put
from anabranch.crawler.cli.console import say
from anabranch.crawler.extract.extractor import Extractor, Sandbox
from anabranch.crawler.extract.links import Found
from anabranch.crawler.fetch.connection_limits import ConnectionLimits
from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.fetch.response import Body, Response, Scratch, header_fields
from anabranch.crawler.job.seeds import is_file
from anabranch.crawler.order.fetch import fetch_options
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, UsageError, storage_errors
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.robots.retrieval import Followed, follow_redirects, robots_url, rules_of
from anabranch.crawler.robots.rules import MAX_ROBOTS_BYTES, explain_rules, shown
from anabranch.crawler.urls.parsing import seed_url
from anabranch.frontier.times import steady_clock


class NotFetched(CrawlerError):
    """A URL could not be fetched."""

    exit_code: ExitCode = ExitCode.NO_SEED_ANSWERED


async def _open_fetcher(order: CrawlOrder, parts: AsyncExitStack) -> Fetcher:
    """A fetcher as a crawl by this order has it; `parts` closes it."""
    clock = steady_clock()
    dns = order.dns
    resolver = Resolver(
        dns.servers,
        dns.hosts,
        clock=clock,
        timeout_s=dns.timeout_s,
        options=dns.options(ipv4=order.fetch.ipv4, ipv6=order.fetch.ipv6),
    )
    parts.push_async_callback(resolver.close)
    fetcher = Fetcher(
        fetch_options(order.fetch, order.agent.user_agent),
        resolver=resolver,
        scratch=Scratch(None),
        clock=clock,
        connections=ConnectionLimits(idle=0),  # no gate would retry a request whose kept connection closes
    )
    parts.push_async_callback(fetcher.close)
    return fetcher


# Links


def run_links(
    source: str, *, base: str | None, content_type: str | None, hops: str, flags: Mapping[str, object]
) -> int:
    """Print the links of a file or a URL, one a line. A foreseeable error is one line on standard error and an exit code.

    `base` is the URL that a file came from, `content_type` its type (None: by its name). `hops` is the path by which it was
    found: after `M` a list of URLs is a sitemap. `flags` are keys of the order.
    """

    def run() -> None:
        order = load_order(None, flags)
        is_local = is_file(source)
        url = seed_url(base or ("http://file.invalid/" if is_local else source))
        if url is None:
            raise UsageError(f"{'--base' if base else source}: neither a file nor an http(s) URL")
        file = Path(source) if is_local else None
        try:
            found = asyncio.run(_extract(order, url, file, content_type, hops))
        except FetchError as error:
            raise NotFetched(f"{source}: {error}") from error
        sys.stdout.writelines(f"{link.hop} {link.url} {link.context}\n" for link in found.links)
        sys.stdout.flush()
        for line in _remarks(found):
            say(line)

    return guarded(run)


async def _extract(order: CrawlOrder, url: str, file: Path | None, content_type: str | None, hops: str) -> Found:
    """The links of the file, which came from the URL, or without a file of what the URL answers."""
    async with AsyncExitStack() as parts:
        sandbox = Sandbox()
        parts.push_async_callback(sandbox.close)
        extract = Extractor(order.extract.options(robot=order.agent.token), sandbox)
        if file is not None:
            return await extract(_of_file(file, url, content_type), url, hops)
        fetcher = await _open_fetcher(order, parts)
        return await extract(await fetcher.get(url), url, hops)


def _remarks(found: Found) -> list[str]:
    remarks = [f"{len(found.links)} links"]
    if found.dropped:
        remarks.append(f"{found.dropped} more were dropped (--max-outlinks)")
    if found.nofollow:
        remarks.append("the page asks robots not to follow its links")
    if found.canonical is not None:
        remarks.append(f"the page names its own URL: {found.canonical}")
    return [*remarks, *found.notes]


def _of_file(path: Path, url: str, content_type: str | None) -> Response:
    """The file as the answer to a fetch of the URL."""
    with storage_errors(path, "file"):
        body = Body.of(path.read_bytes())
    guessed, packing = mimetypes.guess_type(path.name)
    kind = content_type or ("application/gzip" if packing else guessed or "")
    fields = ((b"Content-Type", kind.encode("utf-8", "surrogateescape")),)
    return Response(url, 200, "", "1.1", header_fields(fields), fields, bytes, body, "", 0.0, 0.0)


# robots.txt


def run_robots(url: str, *, agent: str | None, allow_private: bool) -> int:
    """Print whether robots.txt allows the URL, and the line that decides. `agent` is the product token; None: the order's.

    A foreseeable error is one line on standard error and an exit code.
    """

    def run() -> None:
        page = seed_url(url)
        if page is None:
            raise UsageError(f"{url!r} is no http or https URL")
        order = load_order(None, {"allow_private": True} if allow_private else {})
        try:
            found = asyncio.run(_fetch_robots(order, robots_url(page)))
        except FetchError as error:
            words = f"{url}: no robots.txt: {describe(error.status)}: {error}; a crawl fetches nothing then"
            raise NotFetched(words) from error
        put("\n".join(_explained(found.response, found.is_lost, page, agent or order.agent.token)))

    return guarded(run)


async def _fetch_robots(order: CrawlOrder, url: str) -> Followed:
    async with AsyncExitStack() as parts:
        fetcher = await _open_fetcher(order, parts)
        return await follow_redirects(fetcher.get, url, order.fetch.timeout_s)


def _explained(response: Response, is_lost: bool, url: str, product: str) -> list[str]:
    status = -2 if is_lost else response.status
    body, is_cut = response.content(MAX_ROBOTS_BYTES + 1)
    rules = rules_of(status, body, product, is_cut=is_cut or bool(response.cuts))
    head = f"{shown(robots_url(url))}: {describe(response.status)}, {len(body)} bytes"
    lost = ["its redirect leads to a host that gives no answer"] if is_lost else []
    return [head, *lost, f"{product}: {shown(url)}", *explain_rules(rules, url, body)]
