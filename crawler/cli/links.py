"""`anabranch links`: what would be read out of a file or an answer, a line for each link: hop, URL, context."""

from __future__ import annotations

import asyncio
import mimetypes
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.cli.guarding import guarded
from anabranch.crawler.cli.saying import say
from anabranch.crawler.extracting.dispatch import Answer, Extractor
from anabranch.crawler.extracting.links import Found
from anabranch.crawler.extracting.sandbox import Sandbox
from anabranch.crawler.fetching.bodies import Scratch
from anabranch.crawler.fetching.fetcher import Fetcher
from anabranch.crawler.fetching.response import Response
from anabranch.crawler.jobs.seeds import is_file
from anabranch.crawler.network.dns import Resolver
from anabranch.crawler.orders.fetch import fetch_options
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.orders.sources import load_order
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError, storage_errors
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.urls.parsing import seed_url
from anabranch.frontier.clocks import steady_clock


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksCommand:
    """What stands on the command line."""

    source: str  #: a file, or a URL
    base: str | None  #: the URL that a file came from
    content_type: str | None  #: what a file is; None: by its name
    hops: str  #: by which it was found: after `M` a list of URLs is a sitemap
    flags: dict[str, object]  #: keys of the order that were given


class NotFetched(CrawlerError):
    """The answer could not be had."""

    exit_code: ExitCode = ExitCode.NO_SEED_ANSWERED


def run_links(command: LinksCommand) -> int:
    """Print what is extracted; every foreseeable error is one line on standard error and its exit code."""
    return guarded(lambda: _run(command))


def _run(command: LinksCommand) -> None:
    order = load_order(None, command.flags)
    try:
        found = asyncio.run(_found(command, order, is_local=is_file(command.source)))
    except FetchError as error:
        raise NotFetched(f"{command.source}: {error}") from error
    sys.stdout.writelines(f"{link.hop} {link.url} {link.context}\n" for link in found.links)
    sys.stdout.flush()
    for line in _remarks(found):
        say(line)


def _remarks(found: Found) -> list[str]:
    """What is to be said beside the links."""
    remarks = [f"{len(found.links)} links"]
    if found.dropped:
        remarks.append(f"{found.dropped} more were dropped (--max-outlinks)")
    if found.nofollow:
        remarks.append("the page asks robots not to follow its links")
    if found.canonical is not None:
        remarks.append(f"the page names its own URL: {found.canonical}")
    return [*remarks, *found.notes]


async def _found(command: LinksCommand, order: CrawlOrder, *, is_local: bool) -> Found:
    url = seed_url(command.base or ("http://file.invalid/" if is_local else command.source))
    if url is None:
        name = "--base" if command.base else command.source
        raise UsageError(f"{name}: neither a file nor an http(s) URL")
    async with AsyncExitStack() as parts:
        sandbox = Sandbox()
        parts.push_async_callback(sandbox.close)
        extract = Extractor(order.extract.options(robot=order.agent.token), sandbox)
        answer = _of_file(Path(command.source), command.content_type) if is_local else await _fetched(order, url, parts)
        return await extract(answer, url, command.hops)


async def _fetched(order: CrawlOrder, url: str, parts: AsyncExitStack) -> Response:
    clock = steady_clock()
    resolver = Resolver(order.dns.servers, order.dns.hosts, clock=clock, timeout_s=order.dns.timeout_s)
    parts.push_async_callback(resolver.close)
    options = fetch_options(order.fetch, order.agent.user_agent)
    fetcher = Fetcher(options, resolver=resolver, scratch=Scratch(None), clock=clock)
    parts.push_async_callback(fetcher.close)
    return await fetcher.get(url)


def _of_file(path: Path, content_type: str | None) -> Answer:
    with storage_errors(path, "file"):
        body = path.read_bytes()
    guessed, packing = mimetypes.guess_type(path.name)
    return _Whole(200, {"content-type": content_type or ("application/gzip" if packing else guessed or "")}, body)


class _Whole:
    """An answer all of which is in memory."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = _Fields(headers)
        self._body = body

    def content(self, limit: int) -> tuple[bytes, bool]:
        return self._body[:limit], len(self._body) > limit


class _Fields:
    def __init__(self, fields: dict[str, str]) -> None:
        self._fields = fields

    def getall(self, key: str, default: list[str]) -> list[str]:
        return [self._fields[key.lower()]] if key.lower() in self._fields else default
