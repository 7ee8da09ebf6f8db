"""What a run that is one share of a job has beside all that a crawl has. The controller and the composition know it by this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.crawler.chain import Processor
from anabranch.crawler.jobs.seeds import Book
from anabranch.crawler.processes.metering import Meter
from anabranch.crawler.reporting.progress_log import ProgressFacts
from anabranch.crawler.reporting.statistics import CrawlStatistics
from anabranch.crawler.workers import Dispose
from anabranch.frontier.division.ownership import Division

if TYPE_CHECKING:
    from anabranch.crawler.composition import Parts

#: Tells how a run is.
Tell = Callable[[], Awaitable[ProgressFacts]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """One share of a job."""

    division: Division
    book: Book  #: the job's seeds
    meter: Meter
    opened: Callable[[Parts], None]  #: hears of the parts when all are open
    telling: Callable[[Tell], None]  #: hears who tells how the run is, and was at its end

    def owns(self, url: str) -> bool:
        """The URL's host is this share's."""
        return self.division.owner_of_url(url) == self.division.share

    def metered(
        self, chain: Sequence[Processor], dispose: Dispose, statistics: CrawlStatistics
    ) -> tuple[Sequence[Processor], Dispose]:
        """As `Meter.metered`."""
        return self.meter.metered(chain, dispose, statistics)
