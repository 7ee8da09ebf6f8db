"""The tables of a crawl's state.

`url` holds queued and leased rows only, clustered by place, so that a lane's first rows lie together: reading them is one
seek. `done` is where a row goes when its URL has ended. `seen` spans both. `lane` counts the rows of `url` by lane and keeps
its place in the line of its gate; `gate` the place of a gate among those that the core does not hold in memory. `parcel` and
`page` have rows only in a share of a crawl that several processes run.

Ids are 64 bits with a sign, times epoch seconds. Partial indices are as large as what they are asked for.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table, text

METADATA = MetaData()

#: 64 bits. SQLite makes only a column declared INTEGER the row id itself, which saves an index.
_Int = BigInteger().with_variant(Integer, "sqlite")


def _partial_index(name: str, *columns: Column[object], where: str) -> None:
    """An index of the rows for which `where` holds. Statements must say it in these words, or it is not used."""
    Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


#: Columns in the order of `models.Row`.
URL = Table(
    "url",
    METADATA,
    Column("queue", _Int, primary_key=True, autoincrement=False),
    Column("gate", _Int, primary_key=True, autoincrement=False),
    Column("precedence", _Int, primary_key=True, autoincrement=False),
    Column("ordinal", _Int, primary_key=True, autoincrement=False),
    Column("url", String, nullable=False),
    Column("key", LargeBinary),  # NULL = the URL in UTF-8
    Column("hops", String, nullable=False),
    Column("via", _Int, nullable=False),
    Column("attempts", _Int, nullable=False),
    Column("due_s", Double),
    Column("payload", LargeBinary),
    sqlite_with_rowid=False,
)
#: Rows that wait for a retry, soonest first: few beside all that is queued.
_partial_index("url_due", URL.c.due_s, URL.c.ordinal, where="due_s IS NOT NULL")

#: Columns in the order of `base.EndedRecord`.
DONE = Table(
    "done",
    METADATA,
    Column("ordinal", _Int, primary_key=True, autoincrement=False),
    Column("url", String, nullable=False),
    Column("key", LargeBinary),
    Column("status", _Int, nullable=False),
    Column("outcome", String, nullable=False),  # an `OutcomeKind` value
    Column("attempts", _Int, nullable=False),
)

#: From the key's fingerprint to the row that holds the URL now, in `url` or `done`.
SEEN = Table(
    "seen",
    METADATA,
    Column("fp", _Int, primary_key=True, autoincrement=False),
    Column("ordinal", _Int, nullable=False),
)

#: Columns in the order of `messages.LaneRow`, then the standing of its queue, 0 = it may be served, and what follows from all.
LANE = Table(
    "lane",
    METADATA,
    Column("queue", _Int, primary_key=True, autoincrement=False),
    Column("gate", _Int, primary_key=True, autoincrement=False),
    Column("turn", _Int, nullable=False),
    Column("count", _Int, nullable=False),
    Column("waiting", _Int, nullable=False),
    Column("shelved", _Int, nullable=False),
    Column("servable", _Int, nullable=False),  # 1: count > waiting AND shelved = 0
    sqlite_with_rowid=False,
)
#: A gate's line: its servable lanes by turn. Its condition names no count: a count changes with every page that ends, and
#: would have the index rewritten each time.
_partial_index("lane_turn", LANE.c.gate, LANE.c.turn, where="servable = 1")

#: Columns in the order of `messages.QueueRow`.
QUEUE = Table(
    "queue",
    METADATA,
    Column("id", _Int, primary_key=True, autoincrement=False),
    Column("key", String, nullable=False),
    Column("standing", _Int, nullable=False),
    Column("precedence", _Int, nullable=False),
    Column("spent", _Int, nullable=False),
    Column("budget", _Int),
    Column("successes", _Int, nullable=False),
    Column("errors", _Int, nullable=False),
)
_partial_index("queue_standing", QUEUE.c.standing, QUEUE.c.id, where="standing <> 0")

#: Columns in the order of `messages.GateRow`, then its window: whether the core holds it, and if not, its turn and time.
GATE = Table(
    "gate",
    METADATA,
    Column("id", _Int, primary_key=True, autoincrement=False),
    Column("key", String, nullable=False),
    Column("rests_until_s", Double, nullable=False),
    Column("blocked_until_s", Double, nullable=False),
    Column("spacing_s", Double, nullable=False),
    Column("last_rest_s", Double, nullable=False),
    Column("throttle_s", Double, nullable=False),
    Column("troubles", _Int, nullable=False),
    Column("troubled_s", Double, nullable=False),
    Column("slots", _Int),
    Column("held", _Int, nullable=False),
    Column("turn", _Int),  # NULL = nothing to serve, or held
    Column("wakes_s", Double),  # closed until then; only together with a turn
)
_partial_index("gate_held", GATE.c.id, where="held = 1")
_partial_index("gate_turn", GATE.c.turn, where="held = 0 AND turn IS NOT NULL AND wakes_s IS NULL")
_partial_index("gate_wakes", GATE.c.wakes_s, where="held = 0 AND wakes_s IS NOT NULL")

#: Columns in the order of `messages.Parcel`.
PARCEL = Table(
    "parcel",
    METADATA,
    Column("share", _Int, primary_key=True, autoincrement=False),
    Column("number", _Int, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)

#: Pages of other shares of the crawl on which rows were found, by the negative of those rows' `via`.
PAGE = Table(
    "page",
    METADATA,
    Column("ordinal", _Int, primary_key=True, autoincrement=False),
    Column("url", String, nullable=False),
)

#: Facts about the whole: format, identity, clean mark, epoch, counters, number and time of the last batch, notes.
CRAWL = Table(
    "crawl",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
    sqlite_with_rowid=False,
)
