"""`scripts/bench dedup`: the filters' speed, errors and sizes, also during splits, after crashes and with several processes.

`speed.py` times the UniqFilter and its peers (`peers.py`), `contest.py` compares their time and memory in processes of their
own, `redis.py` times the leaves in Redis; `rates.py` counts false positives; `splits.py` times single calls while leaves split;
`processes.py` runs several processes on one store; `lasting.py` queries ten million keys again and measures disk, memory and
reopening; `known.py` asks for known links as pages do, in filters of several sizes. `keys.py` makes and times the keys.
"""

from __future__ import annotations

from scripts.benchmarks.dedup import contest, known, lasting, processes, rates, redis, speed, splits
from scripts.benchmarks.rows import Group

__all__ = ["GROUPS"]

GROUPS: tuple[Group, ...] = (
    Group(name="uniq-64", what="UniqFilter, 10 million keys, batches of 64", run=speed.uniq_64),
    Group(
        name="uniq-10000", what="UniqFilter, 10 million keys, batches of 10,000, and its peers", run=speed.uniq_10000
    ),
    Group(name="contest-10000", what="UniqFilter, rbloom and a set in turns, batches of 10,000", run=contest.large),
    Group(name="contest-64", what="UniqFilter and rbloom in turns, batches of 64", run=contest.small),
    Group(name="exact", what="UniqFilter in mode exact, 10 million keys, 90 % known", run=speed.exact),
    Group(name="redis", what="leaves on three Redis servers, batches of 300", run=redis.shared),
    Group(name="rate", what="false positives at 1, 3 and 10 times the planned keys", run=rates.measured),
    Group(name="split", what="single calls of 64 keys while leaves split", run=splits.calls),
    Group(name="processes", what="one SMM, four processes at once", run=processes.race),
    Group(
        name="known",
        what="known links of pages in filters of 30,000 to 10 million keys, both kinds of leaves",
        run=known.known,
    ),
    Group(name="known-smm", what="known links in the SMM: order of addresses, smaller levels", run=known.smm),
    Group(name="known-rate", what="false positives with 10 million keys, both kinds of leaves", run=known.errors),
    Group(name="lasting", what="10 million keys asked again; disk, memory, reopening", run=lasting.kept),
)
