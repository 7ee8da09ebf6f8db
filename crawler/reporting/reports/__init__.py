"""Reports of a job: pure functions from facts to rows, in Heritrix's columns where it has them.

`facts` says what they are made of, `catalogue` names them all and writes their files, `table` makes text and JSON of rows. One
module for each concept: `summary`, `seeds`, `counts` (hosts, types, codes, sources, processors), `queues`, `workers`. `ending`
is what a run says on the terminal.
"""

from anabranch.crawler.reporting.reports.ending import RunFacts, crawl_report, opening_line
from anabranch.crawler.reporting.reports.seeds import SEEDS_REPORT, SEEDS_SHOWN, SeedFact, seeds_report, seeds_shown

__all__ = [
    "SEEDS_REPORT",
    "SEEDS_SHOWN",
    "RunFacts",
    "SeedFact",
    "crawl_report",
    "opening_line",
    "seeds_report",
    "seeds_shown",
]
