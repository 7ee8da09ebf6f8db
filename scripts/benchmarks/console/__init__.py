"""`scripts/bench console`: pages of the queues of a large job, while its Frontier runs."""

from __future__ import annotations

from scripts.benchmarks.console import queues, watched
from scripts.benchmarks.rows import Group

__all__ = ["GROUPS"]

GROUPS: tuple[Group, ...] = (
    Group(name="queues", what="pages of a million queues, and what they cost the crawl", run=queues.measured),
    Group(name="watched", what="a crawl that two windows watch, and the memory of a console", run=watched.measured),
)
