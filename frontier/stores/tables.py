"""The tables of a crawl's state.

`url` holds queued and leased rows only, clustered by place, so that a lane's first rows lie together: reading them is one
seek. `done` is where a row goes when its URL has ended. `seen` spans both. `lane` counts the rows of `url` by lane.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table

METADATA = MetaData()

#: 64 bits. SQLite makes only a column declared INTEGER the row id itself, which saves an index.
_Int = BigInteger().with_variant(Integer, "sqlite")

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
    Column("due_s", Float),
    Column("payload", LargeBinary),
    sqlite_with_rowid=False,
)
#: Rows that wait for a retry: few beside all that is queued.
Index("url_due", URL.c.due_s, sqlite_where=URL.c.due_s.is_not(None), postgresql_where=URL.c.due_s.is_not(None))

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

#: Columns in the order of `base.LaneRow`.
LANE = Table(
    "lane",
    METADATA,
    Column("queue", _Int, primary_key=True, autoincrement=False),
    Column("gate", _Int, primary_key=True, autoincrement=False),
    Column("precedence", _Int, nullable=False),
    Column("arrival", _Int, nullable=False),
    Column("count", _Int, nullable=False),
    sqlite_with_rowid=False,
)
#: The order in which a gate's lanes are served.
Index("lane_turn", LANE.c.gate, LANE.c.precedence, LANE.c.arrival)

#: Columns in the order of `base.QueueRow`.
QUEUE = Table(
    "queue",
    METADATA,
    Column("id", _Int, primary_key=True, autoincrement=False),
    Column("key", String, nullable=False),
)

#: Columns in the order of `base.GateRow`.
GATE = Table(
    "gate",
    METADATA,
    Column("id", _Int, primary_key=True, autoincrement=False),
    Column("key", String, nullable=False),
    Column("rests_until_s", Float, nullable=False),
    Column("blocked_until_s", Float, nullable=False),
    Column("spacing_s", Float, nullable=False),
    Column("last_rest_s", Float, nullable=False),
)

#: Facts about the whole: format, identity, clean mark, counters, number of the last batch.
CRAWL = Table(
    "crawl",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
    sqlite_with_rowid=False,
)
