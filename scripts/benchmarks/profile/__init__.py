"""`scripts/bench profile`: the CPU time of a page by stages, as a table that adds up.

`sampled.py` is the crawl, run as users run it and looked at from within; `stages.py` says which stage a stack belongs to,
`measured.py` makes the rows.
"""

from __future__ import annotations

from scripts.benchmarks.profile.measured import profiled
from scripts.benchmarks.rows import Group

__all__ = ["GROUPS"]

GROUPS: tuple[Group, ...] = (
    Group(name="durable", what="a durable crawl of one host (the default)", run=profiled("durable")),
    Group(name="warc", what="the same with WARC", run=profiled("warc", "--warc")),
    Group(name="memory", what="the same, in memory", run=profiled("memory", "--set", "frontier.store=memory")),
)
