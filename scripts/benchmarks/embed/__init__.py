"""`scripts/bench embed`: a Scrapy spider with Scrapy's own scheduler and with the Frontier's, on the same site; the import.

`speed.py` has the rows of the former, `spider.py` is the crawl, in a process of its own each time; the site is
`scripts/benchmarks/site`. `importing.py` has the rows of `import anabranch`.
"""

from __future__ import annotations

from scripts.benchmarks.embed import importing, speed
from scripts.benchmarks.rows import Group

__all__ = ["GROUPS"]

GROUPS: tuple[Group, ...] = (
    Group(name="one-host", what="Scrapy on one host, no delay, 64 connections", run=speed.one_host),
    Group(name="durable", what="the same with a JOBDIR", run=speed.durable),
    Group(name="many-hosts", what="Scrapy on 200 hosts, 0.2 s between the requests of a host", run=speed.many_hosts),
    Group(name="slow-hosts", what="the same, and every third host asks for 5 s", run=speed.slow_hosts),
    Group(name="import", what="import anabranch in a fresh interpreter", run=importing.imported),
)
