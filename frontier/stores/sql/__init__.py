"""The store in SQL, for SQLite and PostgreSQL, and its tables.

`store` is the store and its thread, `work` one transaction at a time, `writing` and `lanes` the changes, `reading` the answers,
`statements` what is asked of the tables, `schema` their opening; `execution` brings statements to the driver, and `sqlite` and
`postgres` have all that differs between the two. `livecopy` copies a file in use.

`url` holds queued and leased rows only, clustered by place, so that a lane's first rows lie together: reading them is one
seek. A row moves to `done` when its URL has ended. `seen` spans both. `lane` counts the rows of `url` by lane and keeps the
lane's place in the line of its gate; `gate` keeps the place of each gate that the core does not hold in memory. `parcel` and
`page` have rows only in a share of a job that an earlier version divided among processes.

Ids are 64 bits with a sign, times epoch seconds. A partial index holds no more rows than its statements ask for.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table, text

from anabranch.frontier.stores.contract import Counters

METADATA = MetaData()

#: 64 bits. SQLite makes only a column declared INTEGER the row id itself, which saves an index.
_Int = BigInteger().with_variant(Integer, "sqlite")


def _partial_index(name: str, *columns: Column[object], where: str) -> None:
    """An index of the rows for which `where` holds. Statements must say it in these words, or it is not used."""
    Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


def _key(*names: str) -> list[Column[int]]:
    return [Column(name, _Int, primary_key=True, autoincrement=False) for name in names]


def _numbers(*names: str) -> list[Column[int]]:
    return [Column(name, _Int, nullable=False) for name in names]


def _times(*names: str) -> list[Column[float]]:
    return [Column(name, Double, nullable=False) for name in names]


#: Columns in the order of `Row`.
URL = Table(
    "url",
    METADATA,
    *_key("queue", "gate", "precedence", "ordinal"),
    Column("url", String, nullable=False),
    Column("key", LargeBinary),  # NULL = the URL in UTF-8
    Column("hops", String, nullable=False),
    *_numbers("via", "attempts"),
    Column("due_s", Double),
    Column("payload", LargeBinary),
    sqlite_with_rowid=False,
)
#: Rows that wait for a retry, soonest first: few of all queued rows.
_partial_index("url_due", URL.c.due_s, URL.c.ordinal, where="due_s IS NOT NULL")

#: Columns in the order of `EndedRecord`.
DONE = Table(
    "done",
    METADATA,
    *_key("ordinal"),
    Column("url", String, nullable=False),
    Column("key", LargeBinary),
    *_numbers("status"),
    Column("outcome", String, nullable=False),  # an `OutcomeKind` value
    *_numbers("attempts"),
    *_numbers("worker"),  # the epoch of the worker that ended it; 0 in a job of one
)

#: Failed rows, so that they are found among many that succeeded.
_partial_index("done_failed", DONE.c.ordinal, where="outcome = 'failed'")

#: What it takes to queue a failed row of `done` again; those of older formats have none, and rows that did not fail need none.
#: About 35 bytes a failure and its payload, with the index above.
FAILURE = Table(
    "failure",
    METADATA,
    *_key("ordinal"),
    Column("hops", String, nullable=False),
    *_numbers("via", "precedence"),
    *_times("ended_s"),
    Column("payload", LargeBinary),
)

#: From a key's fingerprint to the row that holds the URL now, in `url` or `done`.
SEEN = Table("seen", METADATA, *_key("fp"), *_numbers("ordinal"))

#: Columns in the order of `LaneRow`, then the standing of its queue and whether it can be served:
#: `servable` is 1 if count > waiting AND shelved = 0.
LANE = Table(
    "lane",
    METADATA,
    *_key("queue", "gate"),
    *_numbers("turn", "count", "waiting", "shelved", "servable"),
    sqlite_with_rowid=False,
)
#: A gate's line: its servable lanes by turn. The condition names no count: a count changes with every page that ends, and
#: would have the index rewritten each time.
_partial_index("lane_turn", LANE.c.gate, LANE.c.turn, where="servable = 1")

#: Columns in the order of `QueueRow`.
QUEUE = Table(
    "queue",
    METADATA,
    *_key("id"),
    Column("key", String, nullable=False),
    *_numbers("standing", "precedence", "spent"),
    Column("budget", _Int),
    *_numbers("successes", "errors"),
)
_partial_index("queue_standing", QUEUE.c.standing, QUEUE.c.id, where="standing <> 0")

#: Columns in the order of `GateRow`, then its window: whether the core holds it, and if not, its turn and time.
GATE = Table(
    "gate",
    METADATA,
    *_key("id"),
    Column("key", String, nullable=False),
    *_times("rests_until_s", "blocked_until_s", "spacing_s", "last_rest_s", "throttle_s"),
    *_numbers("troubles"),
    *_times("troubled_s"),
    Column("slots", _Int),
    *_numbers("held"),
    Column("turn", _Int),  # NULL = nothing to serve, or held
    Column("wakes_s", Double),  # closed until then; only together with a turn
    *_numbers("share"),  # 0 in a job of one share
)
_partial_index("gate_held", GATE.c.share, where="held = 1")
_partial_index("gate_turn", GATE.c.share, GATE.c.turn, where="held = 0 AND turn IS NOT NULL AND wakes_s IS NULL")
_partial_index("gate_wakes", GATE.c.share, GATE.c.wakes_s, where="held = 0 AND wakes_s IS NOT NULL")

#: Columns in the order of `Parcel`.
PARCEL = Table("parcel", METADATA, *_key("share", "number"), Column("content", LargeBinary, nullable=False))

#: Pages of other shares of the crawl on which rows were found, by the negative of those rows' `via`.
PAGE = Table("page", METADATA, *_key("ordinal"), Column("url", String, nullable=False))

#: The shares of a job of several workers, and by its epoch the worker that holds each; none in a job of one share.
SHARE = Table(
    "share",
    METADATA,
    *_key("id"),
    Column("epoch", _Int),  # NULL = free
    *_numbers("leaving"),  # 1 = its worker gives it back
    *_times("died_s"),  # until when fetches of a worker that died may have lasted; 0 = none
)

#: Each time that a worker has joined, by its epoch. Its counters are what it has added to the job's.
WORKER = Table(
    "worker",
    METADATA,
    *_key("epoch"),
    Column("name", String, nullable=False),
    Column("token", String, nullable=False),  # of its folder
    Column("session", String, nullable=False),  # of its connection, for whoever takes over
    *_times("joined_s", "until_s"),  # by the server's clock; until_s 0 = it has left, or was taken over
    Column("mark", String, nullable=False),  # its last transaction
    *_numbers("batch", *Counters._fields),
)

#: Columns in the order of `LinkRow`. Clustered by share, so that what is sent to one worker lies apart from the others'.
LINK = Table(
    "link",
    METADATA,
    *_key("share", "ordinal"),
    Column("url", String, nullable=False),
    Column("key", LargeBinary),  # NULL = the URL in UTF-8
    Column("hops", String, nullable=False),
    *_numbers("via", "precedence"),
    Column("payload", LargeBinary),
    sqlite_with_rowid=False,
)

#: Facts about the whole: format, identity, clean mark, epoch, counters, number and time of the last batch, notes.
CRAWL = Table(
    "crawl",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
    sqlite_with_rowid=False,
)
