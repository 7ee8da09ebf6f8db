"""`anabranch links` and `anabranch robots`: the links of one URL or file, and whether robots.txt allows a URL."""

from __future__ import annotations

import asyncio
import mimetypes
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from anabranch.crawler.cli.terminal import guarded, put, say
from anabranch.crawler.extract.extractor import Extractor, Sandbox
from anabranch.crawler.extract.links import Found
from anabranch.crawler.fetch.response import Body, Response, header_fields
from anabranch.crawler.job.seeds import is_file
from anabranch.crawler.operate.notices import lone_fetcher
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, UsageError, storage_errors
from anabranch.crawler.outcomes.failures import FetchError, ServiceAway
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.robots.retrieval import Followed, follow_redirects, robots_url, rules_of
from anabranch.crawler.robots.rules import MAX_ROBOTS_BYTES, explain_rules, shown
from anabranch.crawler.urls.parsing import seed_url


class NotFetched(CrawlerError):
    """A URL could not be fetched."""

    exit_code: ExitCode = ExitCode.NO_SEED_ANSWERED


# Links


def run_links(
    source: str, *, base: str | None, content_type: str | None, hops: str, flags: Mapping[str, object]
) -> int:
    """Print the links of a file or a URL, one a line. A foreseeable error becomes one line and its exit code.

    `base` is the URL of a file, `content_type` its type (None: by its name), `hops` the path to it: after `M` a list of URLs is
    a sitemap. `flags` are keys of the order.
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
        say(f"{len(found.links)} links")
        if found.dropped:
            say(f"{found.dropped} more were dropped (--max-outlinks)")
        if found.nofollow:
            say("the page asks robots not to follow its links")
        if found.canonical is not None:
            say(f"the page names its own URL: {found.canonical}")
        for note in found.notes:
            say(note)

    return guarded(run)


async def _extract(order: CrawlOrder, url: str, file: Path | None, content_type: str | None, hops: str) -> Found:
    """The links of the file, which came from the URL, or without a file of what the URL answers."""
    async with AsyncExitStack() as parts:
        sandbox = Sandbox()
        parts.push_async_callback(sandbox.close)
        extract = Extractor(order.extract.options(robot=order.agent.token), sandbox)
        if file is None:
            fetcher = await lone_fetcher(order, parts)
            return await extract(await fetcher.get(url), url, hops)
        return await extract(_of_file(file, url, content_type), url, hops)


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
    """Print whether robots.txt allows the URL, and the deciding line, for a product token (None: the order's)."""

    def run() -> None:
        page = seed_url(url)
        if page is None:
            raise UsageError(f"{url!r} is not an http or https URL")
        order = load_order(None, {"allow_private": True} if allow_private else {})
        try:
            found = asyncio.run(_fetch_robots(order, robots_url(page)))
        except FetchError as error:
            why = str(error) if isinstance(error, ServiceAway) else f"{describe(error.status)}: {error}"
            words = f"{url}: no robots.txt: {why}; a crawl then fetches nothing"
            raise NotFetched(words) from error
        response, product = found.response, agent or order.agent.token
        status = -2 if found.is_lost else response.status
        body, is_cut = response.content(MAX_ROBOTS_BYTES + 1)
        rules = rules_of(status, body, product, is_cut=is_cut or bool(response.cuts))
        put(f"{shown(robots_url(page))}: {describe(response.status)}, {len(body)} bytes")
        if found.is_lost:
            put("its redirect leads to a host that gives no answer")
        put("\n".join([f"{product}: {shown(page)}", *explain_rules(rules, page, body)]))

    return guarded(run)


async def _fetch_robots(order: CrawlOrder, url: str) -> Followed:
    async with AsyncExitStack() as parts:
        fetcher = await lone_fetcher(order, parts)
        return await follow_redirects(fetcher.get, url, order.fetch.timeout_s)
