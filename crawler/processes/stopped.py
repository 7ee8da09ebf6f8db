"""What an operator asks of a job of several processes that nobody crawls: its shares are opened, and answer together.

Each share is a job folder of its own, too: what is not done for all together can be done for one, `JOB/shares/K`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.accounts.accounts import sum_accounts
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.orderfile import order_file
from anabranch.crawler.job.seeding import keys_of
from anabranch.crawler.job.seeds import SEED_BOOK, Seed, SeedBook
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.crawler.processes.folders import SHARES, shares_of
from anabranch.crawler.processes.reopening import facts_of_shares_open, opened_shares
from anabranch.crawler.report.reports import report_kind
from anabranch.crawler.report.table import json_facts
from anabranch.crawler.run.crawl_verbs import add_to_stopped, report_limit, stopped_seed_outcomes
from anabranch.crawler.run.explain import ABOUT_URLS, open_explainer
from anabranch.crawler.run.merging import largest_part, merged_listing, owner_of_subject
from anabranch.crawler.run.summing import summed_filters
from anabranch.crawler.run.verbs import STOPPED_ONLY, Arguments, Facts, answer
from anabranch.crawler.urls.canonicalization import Canonicalizer, KeyOf
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.frontier import Frontier


@dataclass(frozen=True, slots=True)
class StoppedJob:
    """A job of several processes, held and open. All methods block."""

    directory: Path
    order: CrawlOrder
    shares: Sequence[Frontier]

    @property
    def division(self) -> Division:
        """Whose a URL is."""
        return Division(shares=len(self.shares), share=0)

    @property
    def is_done(self) -> bool:
        """Nothing is queued that may be fetched, and no share has anything for another."""
        return all(share.is_done and not _owes(share) for share in self.shares)

    def answer(self, verb: str, given: Arguments) -> Facts:
        """As `operating.verbs.answer` of one Frontier. Raises: UsageError, UnknownQueue."""
        if verb in STOPPED_ONLY:
            raise UsageError(f"{verb} is for jobs of one process; do it for each share: {self.directory / SHARES}/0 …")
        if verb == "ls":
            return merged_listing([answer(share, verb, given) for share in self.shares], given)
        if verb not in ABOUT_URLS:
            return self._of_any(verb, given)
        with open_explainer(self.directory, self.order) as explainer:
            return explainer.explained(verb, self._of_any(verb, explainer.with_key(verb, given)))

    def filter_facts(self) -> dict[str, float | str]:
        """The figures of all shares' filters as those of one."""
        return summed_filters(share.operations.statistics().seen for share in self.shares)

    def add(self, seeds: Sequence[Seed]) -> Facts:
        """Add seeds: into the book, then each into its owner's queue."""
        keys_of(seeds, self._key)  # what has none must not get into the book
        with SeedBook(self.directory / "state" / SEED_BOOK) as book:
            answers = {seed["url"]: seed for seed in self._added(book, seeds)}
        return {"seeds": [answers[seed.url] for seed in seeds]}

    def report(self, given: Arguments) -> Facts:
        """As `operating.reporting.report_of_stopped`. Raises: UsageError, StorageError."""
        kind, limit = report_kind(given.get("name")), report_limit(given)
        state, now_s = self.directory / "state", self.shares[0].now_s()
        sum_accounts(
            state, [share / "state" for share in shares_of(self.directory)], (now_s, now_s)
        )  # looking is no run of the crawl
        with SeedBook(state / SEED_BOOK) as book, storage_errors(state), AccountsView(state) as view:
            fared = (
                stopped_seed_outcomes(self.directory, list(book), self._key, self.shares)
                if "seeds" in kind.needs
                else []
            )
            facts = facts_of_shares_open(self.directory, self.shares, fared, view)
            return json_facts(kind.make(facts), limit)

    @property
    def _key(self) -> KeyOf:
        return Canonicalizer(self.order.urls.canonicalization).key

    def _added(self, book: SeedBook, seeds: Sequence[Seed]) -> Iterator[Facts]:
        book.add_all(seeds)  # in the order in which they were named, whoever owns them
        key = self._key
        for number, share in enumerate(self.shares):
            own = [seed for seed in seeds if (self.division.owner_of_url(seed.url) or 0) == number]
            if own:
                yield from add_to_stopped(share, book, own, key)["seeds"]

    def _of_any(self, verb: str, given: Arguments) -> Facts:
        owner = owner_of_subject(self.division, verb, given)
        if owner is not None:
            return answer(self.shares[owner], verb, given)
        known = [facts for share in self.shares if (facts := _if_known(share, verb, given)) is not None]
        if not known:
            return answer(self.shares[0], verb, given)  # which says that nobody knows it
        return largest_part(known)


def _owes(share: Frontier) -> bool:
    return share.exchange is not None and any(True for _ in share.exchange.under_way())


def _if_known(share: Frontier, verb: str, given: Arguments) -> Facts | None:
    try:
        return answer(share, verb, given)
    except UnknownQueue:
        return None


@contextmanager
def opened_job(directory: Path) -> Iterator[StoppedJob]:
    """The job, held, with all its shares open; closed in order at the end. One that is finished stays so.

    Raises: UsageError if it has not begun, JobInUse; as a crawl does.
    """
    with JobFolder.open(directory) as job:
        kept = order_file(directory)
        if kept is None:
            raise UsageError(f"{directory}: the job has not begun; `anabranch crawl` begins it")
        with opened_shares(directory) as shares:
            stopped = StoppedJob(directory, load_order(kept, {}), shares)
            yield stopped
            if stopped.is_done:
                job.mark_finished()
