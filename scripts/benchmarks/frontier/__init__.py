"""`scripts/bench frontier`: the Frontier's speed, memory and disk space, and how its policies distribute URLs.

`speed.py` times schedule + lease + finish in memory and in SQLite, `postgres.py` in PostgreSQL; `millions.py` looks at ten
million queued URLs in a million queues, which `filling.py` makes; `policies.py` compares assignment policies. `host.py` is what
drives a Frontier in virtual time, `links.py` makes the URLs.
"""

from __future__ import annotations

from scripts.benchmarks.frontier import millions, policies, postgres, speed
from scripts.benchmarks.rows import Group

__all__ = ["GROUPS"]

GROUPS: tuple[Group, ...] = (
    Group(name="memory", what="schedule + lease + finish in memory", run=speed.in_memory),
    Group(name="sqlite", what="schedule + lease + finish in a file of SQLite, durable", run=speed.in_sqlite),
    Group(name="postgres", what="PostgreSQL on this machine, in turns with SQLite", run=postgres.beside_sqlite),
    Group(name="millions", what="10 million queued URLs in a million queues (3 GB of disk)", run=millions.measured),
    Group(
        name="policies",
        what="assignment policies on 100,000 URLs of portals, and 100,000 overrides",
        run=policies.compared,
    ),
)
