"""Anabranch: a crawler whose Frontier spreads a portal over many work queues and stays polite.

The public names of the three rooms. A name is imported when it is first used, so `import anabranch` loads no library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.crawler.api import BodyRule as BodyRule
    from anabranch.crawler.api import Crawl as Crawl
    from anabranch.crawler.api import CrawlerError as CrawlerError
    from anabranch.crawler.api import CrawlOrder as CrawlOrder
    from anabranch.crawler.api import CrawlResult as CrawlResult
    from anabranch.crawler.api import DiskFull as DiskFull
    from anabranch.crawler.api import JobInUse as JobInUse
    from anabranch.crawler.api import Link as Link
    from anabranch.crawler.api import NoSeedAnswered as NoSeedAnswered
    from anabranch.crawler.api import NoSeeds as NoSeeds
    from anabranch.crawler.api import OrderError as OrderError
    from anabranch.crawler.api import Page as Page
    from anabranch.crawler.api import PageHead as PageHead
    from anabranch.crawler.api import PageProcessor as PageProcessor
    from anabranch.crawler.api import PageSink as PageSink
    from anabranch.crawler.api import Response as Response
    from anabranch.crawler.api import ScopeRule as ScopeRule
    from anabranch.crawler.api import ServiceAway as ServiceAway
    from anabranch.crawler.api import Step as Step
    from anabranch.crawler.api import StorageError as StorageError
    from anabranch.crawler.api import Target as Target
    from anabranch.crawler.api import UrlRule as UrlRule
    from anabranch.crawler.api import UsageError as UsageError
    from anabranch.crawler.api import Visit as Visit
    from anabranch.crawler.api import WarcRef as WarcRef
    from anabranch.crawler.api import crawl as crawl
    from anabranch.crawler.api import create as create
    from anabranch.crawler.api import run as run
    from anabranch.dedup import BadParameters as BadParameters
    from anabranch.dedup import DedupError as DedupError
    from anabranch.dedup import Dsbf as Dsbf
    from anabranch.dedup import DsbfParameters as DsbfParameters
    from anabranch.dedup import ExactIndex as ExactIndex
    from anabranch.dedup import FormatMismatch as FormatMismatch
    from anabranch.dedup import Smm as Smm
    from anabranch.dedup import UniqFilter as UniqFilter
    from anabranch.dedup import UniqParameters as UniqParameters
    from anabranch.frontier import AsyncFrontier as AsyncFrontier
    from anabranch.frontier import Budgets as Budgets
    from anabranch.frontier import Candidate as Candidate
    from anabranch.frontier import Drained as Drained
    from anabranch.frontier import Frontier as Frontier
    from anabranch.frontier import FrontierError as FrontierError
    from anabranch.frontier import FrontierOrder as FrontierOrder
    from anabranch.frontier import FrontierStore as FrontierStore
    from anabranch.frontier import HostTrouble as HostTrouble
    from anabranch.frontier import Lease as Lease
    from anabranch.frontier import LeaseLost as LeaseLost
    from anabranch.frontier import Outcome as Outcome
    from anabranch.frontier import OutcomeKind as OutcomeKind
    from anabranch.frontier import Override as Override
    from anabranch.frontier import Politeness as Politeness
    from anabranch.frontier import QueuePolicy as QueuePolicy
    from anabranch.frontier import SeenFilter as SeenFilter
    from anabranch.frontier import StoreUnavailable as StoreUnavailable
    from anabranch.frontier import Verdict as Verdict
    from anabranch.frontier import VerdictKind as VerdictKind
    from anabranch.frontier import WaitsFor as WaitsFor
    from anabranch.frontier import Wake as Wake
    from anabranch.frontier import open_frontier as open_frontier

_NAMES = {
    "crawler.api": "BodyRule Crawl CrawlOrder CrawlResult CrawlerError DiskFull JobInUse Link NoSeedAnswered NoSeeds "
    "OrderError Page PageHead PageProcessor PageSink Response ScopeRule ServiceAway Step StorageError Target UrlRule "
    "UsageError Visit WarcRef crawl create run",
    "dedup": "BadParameters DedupError Dsbf DsbfParameters ExactIndex FormatMismatch Smm UniqFilter UniqParameters",
    "frontier": "AsyncFrontier Budgets Candidate Drained Frontier FrontierError FrontierOrder FrontierStore HostTrouble Lease "
    "LeaseLost Outcome OutcomeKind Override Politeness QueuePolicy SeenFilter StoreUnavailable Verdict VerdictKind WaitsFor "
    "Wake open_frontier",
}
_ROOMS = {name: f"{__name__}.{room}" for room, names in _NAMES.items() for name in names.split()}

__all__ = list(_ROOMS)


def __getattr__(name: str) -> object:
    """The public name, imported on first use. Raises: AttributeError."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_ROOMS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
