"""The end of a run in several processes: the shares' logs become the job's, and the reports are made of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anabranch.crawler.accounts.accounts import check_sum, sum_accounts
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import StorageError, storage_errors
from anabranch.crawler.processes.folders import shares_of
from anabranch.crawler.processes.gathering import gather
from anabranch.crawler.processes.reopening import facts_of_shares
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.report.reports import check_folder, write_all
from anabranch.crawler.report.summary import RunFacts
from anabranch.crawler.run.summing import frontier_of, summed_frontier, summed_run, summed_seeds
from anabranch.frontier.division.ownership import Division


class Ending:
    """Ends the run in order. All methods block."""

    def __init__(self, order: CrawlOrder, job: JobFolder, clock: Callable[[], float]) -> None:
        self._order = order
        self._job = job
        self._clock = clock
        self._started_s = clock()
        self._shares = shares_of(job.directory)
        self.why = WhyEnded.FINISHED
        self.unreported: StorageError | None = None  #: why there are no reports

    def check(self) -> None:
        """Before the crawl: tell what would keep it from ending in order. Raises: StorageError, SumDamaged."""
        if self._order.report.reports:
            with storage_errors(self._job.reports):
                check_folder(self._job.reports)
        check_sum(self._job.state)

    def gather(self) -> None:
        """Bring the job's logs up to date. Raises: StorageError."""
        gather(self._job.directory, self._shares)

    def report(self, shares: Shares, seeds: Sequence[Seed], why: WhyEnded, died: Mapping[str, int]) -> RunFacts:
        """Gather, write the reports, and say how the run was, with what processes did that have died.

        Raises: StorageError for the logs.
        """
        self.why = why
        self.gather()
        self._sum_up()
        fared = self._seeds(shares, seeds)
        frontiers = [frontier_of(share["frontier"]) for share in shares.ended.values()]
        total = summed_frontier(frontiers)
        if why is WhyEnded.FINISHED:
            if total.retired:
                self.why = WhyEnded.RETIRED
            else:
                self._job.mark_finished()
        self._write_reports(fared)
        return RunFacts(
            job=str(self._job.directory),
            ended=self.why.value,
            elapsed_s=self._clock() - self._started_s,
            seeds=fared,
            run=summed_run(shares.ended.values(), self._started_s, died),
            frontier=total,
        )

    def _seeds(self, shares: Shares, seeds: Sequence[Seed]) -> list[SeedFact]:
        division = Division(shares=shares.count, share=0)
        given = {seed.url: division.owner_of_url(seed.url) or 0 for seed in seeds if seed.via is None}
        return summed_seeds(shares.ended, given)

    def _write_reports(self, seeds: Sequence[SeedFact]) -> None:
        if not self._order.report.reports:
            return
        try:
            with storage_errors(self._job.reports), AccountsView(self._job.state) as accounts:
                facts = facts_of_shares(self._job.directory, self.why.value, seeds, accounts)
                write_all(self._job.reports, facts)
        except StorageError as error:
            self.unreported = error

    def _sum_up(self) -> None:
        """Bring the job's accounts up to date. Raises: StorageError, AccountsDamaged."""
        states = [share / "state" for share in self._shares if (share / "state").is_dir()]
        sum_accounts(self._job.state, states, (self._started_s, max(self._clock(), self._started_s)))
