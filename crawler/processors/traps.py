"""Skips URLs that differ from fetched ones only by a parameter that changes nothing (see `scope.parameters`).

    preselect: `check` before the fetch -> … extract -> `ParameterTraps` learns from the answer -> candidates

The first difference queues again what its rule had skipped, before the page with the difference ends. Never skipped: seeds and
what they redirect to, URLs from sitemaps, tries after the first, URLs that are queued again after they have ended. A
sitemap that lists a URL says that its parameters matter.

Each worker of a job has rules of its own. If a share moves to another worker, that one learns the rules of its hosts anew; what
the first one has skipped stays in its file, which queues it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from functools import partial

import structlog

from anabranch.crawler.extract.links import MANIFEST, REDIRECT
from anabranch.crawler.fetch.response import Response
from anabranch.crawler.job.seeding import schedule_all
from anabranch.crawler.job.seeds import is_queued_again, queued_again
from anabranch.crawler.job.skipped import SkippedUrl, SkippedUrls, due_again
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.scope.parameters import (
    ParameterRules,
    Template,
    carries,
    payload_without_values,
    signature,
)
from anabranch.crawler.urls.canonicalization import KeyOf
from anabranch.crawler.visit import ChainDecision, Dispose, Step, Visit
from anabranch.frontier import AsyncFrontier
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.records import Candidate, Lease, OutcomeKind

log = structlog.get_logger(__name__)

#: Payloads of more bytes are compared as they are, with the values of parameters in them. Less takes some ms of the event loop.
_MAX_BYTES = 1 << 20


class ParameterSkipped(FetchError):
    """A parameter of the URL is known to change nothing: final, unless the rule is undone."""

    status = FetchStatus.SKIPPED

    def __init__(self, template: Template) -> None:
        super().__init__(f"skipped: the parameter {template.name} changes nothing")
        self.template = template
        self.annotation = f"parameter:{template.name}"


class ParameterTraps:
    """Learns and applies the rules of one run, as its processor behind the extraction."""

    def __init__(
        self, rules: ParameterRules, kept: SkippedUrls, frontier: AsyncFrontier, key: KeyOf, seeds: Container[str]
    ) -> None:
        self._is_on = True
        self.rules = rules
        self.kept = kept
        self._frontier = frontier
        self._key = key
        self._seeds = seeds
        self._unwritten: list[tuple[Template, SkippedUrl]] = []
        self._writing = asyncio.Lock()

    def turn(self, *, is_on: bool) -> None:
        """From now on learn and skip, or do neither. It may change while the crawl runs."""
        self._is_on = is_on

    async def begin(self) -> None:
        """Take over the rules of earlier runs, and end what a kill has interrupted. Raises: StorageError, StoreUnavailable."""
        for rule in await asyncio.to_thread(self.kept.rules):
            self.rules.restore(rule.template, rule.signature)
            if rule.signature is None and rule.skipped:
                await self._queue_again(rule.template)

    async def check(self, lease: Lease) -> None:
        """Before a fetch: skip the URL if a rule says so, after it is recorded. Raises: ParameterSkipped, StorageError."""
        if not self._is_on or lease.attempts or _is_wanted(lease.hops) or lease.url in self._seeds:
            return
        if is_queued_again(lease.payload):
            return
        template = self.rules.skips(lease.url)
        if template is None:
            return
        self._unwritten.append((template, SkippedUrl(lease.url, lease.hops, lease.via, lease.payload)))
        await to_the_end(self._write())
        if self.rules.holds(template):  # it may have been undone meanwhile
            raise ParameterSkipped(template)

    async def __call__(self, visit: Visit) -> Step:
        """Learn from an answer. Raises: StorageError, StoreUnavailable."""
        response = visit.archived or visit.response
        if not self._is_on or response is None or visit.decision is not ChainDecision.NONE or visit.is_busy:
            return Step.PROCEED
        undone = self.rules.learn(visit.lease.url, partial(_signature, visit, response))
        for link in visit.links:
            if link.hop == MANIFEST:
                undone += self.rules.keep(link.url)
        for template in undone:
            await to_the_end(self._undone(template))
        return Step.PROCEED

    def queueing_after(self, dispose: Dispose) -> Dispose:
        """Wrap the disposition: queue a skipped URL again if its rule was undone while it ended."""

        async def disposed(visit: Visit) -> OutcomeKind | None:
            kind = await dispose(visit)
            error = visit.failure
            if kind is not None and isinstance(error, ParameterSkipped) and not self.rules.holds(error.template):
                lease = visit.lease
                again = Candidate(lease.url, lease.key, lease.hops, queued_again(lease.payload), force=True)
                await schedule_all(self._frontier, [again], lease)
            return kind

        return disposed

    def rule_for(self, url: str) -> Template | None:
        """The rule by which most URLs like this are skipped; None without one."""
        return self.rules.rule_for(url) if self._is_on else None

    async def undo_all(self) -> int:
        """Undo every rule that has skipped URLs, as the operator asks; how many URLs are queued again."""
        skipping = [rule.template for rule in await asyncio.to_thread(self.kept.rules) if rule.skipped]
        for template in skipping:
            self.rules.undo(template)
        return sum([await self._undone(template) for template in skipping])

    async def close(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self.kept.close)

    async def _write(self) -> None:
        """Write all that is to be skipped, together with what comes meanwhile."""
        async with self._writing:
            rows, self._unwritten = self._unwritten, []
            rows = [row for row in rows if self.rules.holds(row[0])]
            if not rows:
                return
            signatures = {template: self.rules.signature(template) for template, _ in rows}
            try:
                await asyncio.to_thread(self.kept.add, rows, signatures)
            except BaseException:
                self._unwritten = rows + self._unwritten  # those that wait must fail, too
                raise

    async def _undone(self, template: Template) -> int:
        """Queue the URLs of an undone rule again, durably; how many. After a kill `begin` goes on with it."""
        async with self._writing:
            await asyncio.to_thread(self.kept.undo, template)
        return await self._queue_again(template)

    async def _queue_again(self, template: Template) -> int:
        await self._frontier.flush()  # what is being skipped has ended for the store
        queued = 0
        pages = self.kept.pages(template)
        while page := await asyncio.to_thread(next, pages, None):
            due, settled = await asyncio.to_thread(due_again, page, self._frontier.core.operations.ended, self._key)
            await schedule_all(self._frontier, due)
            await self._frontier.flush()
            await asyncio.to_thread(self.kept.remove, settled)
            queued += len(due)
        log.info("a parameter matters: what was skipped is queued again", template=template.url, urls=queued)
        return queued


def _is_wanted(hops: str) -> bool:
    """Whether a URL is a seed, in a sitemap, or what one of these redirects to."""
    path = hops.rstrip(REDIRECT)
    return not path or path.endswith(MANIFEST)


def _signature(visit: Visit, response: Response, template: Template) -> bytes | None:
    """Return the signature of an answer; None of one that is like no other: no page (2xx), or not complete."""
    if not 200 <= response.status < 300 or response.cuts:
        return None
    payload = response.body.digest
    # A page that has the parameter in its tags has it in its links, too.
    if response.body.size <= _MAX_BYTES and carries(visit.links, template.name):
        content, is_cut = response.content(_MAX_BYTES)
        if not is_cut:
            payload = payload_without_values(content, template.name)
    return signature(payload, visit.links, template.name)
