"""`scripts/bench crawl`: the product, a bare loop and other crawlers, all on the same site, in turns, on one core each.

`contestants.py` has the contestants and their commands, `programs/` those that are not commands of the product. `observing.py`
runs one crawl and measures it from outside, `race.py` makes rounds of crawls and rows of results, `peers.py` sets up the peers'
environments. The site is `scripts/benchmarks/site`.
"""

from __future__ import annotations

from scripts.benchmarks.crawl import knowing, long, memory, size, speed, stores, strangers, workers
from scripts.benchmarks.rows import Group

__all__ = ["GROUPS"]

GROUPS: tuple[Group, ...] = (
    Group(name="one-host", what="everyone on a site of one host", run=speed.one_host),
    Group(name="many-hosts", what="everyone on the same site with 200 hosts", run=speed.many_hosts),
    Group(name="processes", what="the product in one process and in two, on all cores", run=speed.processes),
    Group(name="server", what="the server and the bare loop", run=speed.server),
    Group(name="memory", what="crawls of 20,000 pages and of 200,000", run=memory.grown),
    Group(name="postgres", what="a page's cost in PostgreSQL and in SQLite", run=stores.compared),
    Group(name="workers", what="1 to 6 paced workers in PostgreSQL, and what they wait for", run=workers.paced),
    Group(name="size", what="30,000 pages and 300,000, beside the bare loop", run=size.size),
    Group(name="hosts", what="30,000 hosts of a page each, beside the bare loop", run=size.hosts),
    Group(name="strangers", what="Colly, spider, wget2 and Heritrix on 30,000 pages", run=strangers.strangers),
    Group(name="long", what="a million pages on 10,000 hosts, by tenths", run=long.long),
    Group(name="reopened", what="a job with half a million queued URLs is opened again", run=long.reopened),
    Group(name="grown", what="a page's cost with 10,000 URLs known and with 10 million", run=knowing.grown),
)
