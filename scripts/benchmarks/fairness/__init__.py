"""`scripts/bench fairness`: the rate of ten good hosts alone, and beside bad neighbours.

`neighbours.py` crawls and makes the rows. `serving.py` has the servers: good hosts, a domain of 100,000 names whose pages link
to 2,000 of them, hosts that accept a connection and never answer, and a name server for all of them.
"""

from __future__ import annotations

from scripts.benchmarks.fairness import neighbours
from scripts.benchmarks.rows import Group

__all__ = ["GROUPS"]

GROUPS: tuple[Group, ...] = (
    Group(name="neighbours", what="10 good hosts beside a wildcard domain and 244 slow hosts", run=neighbours.measured),
)
