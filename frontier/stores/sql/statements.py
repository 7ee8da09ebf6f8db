"""The statements: one spelling (`?`, tuples) for SQLite and PostgreSQL. `execution` brings them to the driver."""

from __future__ import annotations

from typing import NamedTuple


class ManyRows(NamedTuple):
    """A statement that takes rows: `before` (?, ?), (?, ?), … `after`."""

    before: str
    types: tuple[str, ...]  #: PostgreSQL's names of the columns' types; SQLite needs only their number
    after: str = ""
    may_repeat: bool = True  #: a row that is given twice changes nothing more
    is_plain: bool = False  #: INSERT INTO a table, all its columns and nothing more: COPY can do it


# ruff: noqa: S608  only constants of this module are put together here


def _types(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _listed(before: str, columns: int = 1) -> ManyRows:
    return ManyRows(f"{before} IN (SELECT * FROM (VALUES ", ("int8",) * columns, ") AS listed)")


# Rows of URLs

_ROW = """url.queue, url.gate, url.precedence, url.ordinal, url.url, url.key, url.hops, url.via, url.attempts, url.due_s,
       url.payload"""

#: A `Row`, then the URL of `via`. (queue, gate, end of precedences, limit). One seek in the clustered key.
HEADS = f"""
SELECT {_ROW}, done.url FROM url LEFT JOIN done ON done.ordinal = url.via
WHERE url.queue = ? AND url.gate = ? AND url.precedence < ?
ORDER BY url.precedence, url.ordinal LIMIT ?
"""

#: One of several questions for heads in one statement: half the price of one by one.
EACH_HEADS = f"SELECT * FROM ({HEADS}) AS asked"
#: The same for all rows after a place.
QUEUED = f"""
SELECT {_ROW}, done.url FROM url LEFT JOIN done ON done.ordinal = url.via
WHERE (url.queue, url.gate, url.precedence, url.ordinal) > (?, ?, ?, ?)
ORDER BY url.queue, url.gate, url.precedence, url.ordinal LIMIT ?
"""
RETRIES = f"""
SELECT {_ROW} FROM url WHERE due_s IS NOT NULL AND (due_s, ordinal) > (?, ?) ORDER BY due_s, ordinal LIMIT ?
"""
_DONE = "SELECT ordinal, url, key, status, outcome, attempts FROM done"
ENDED = f"{_DONE} WHERE ordinal > ? ORDER BY ordinal LIMIT ?"

INSERT_URL = ManyRows(
    "INSERT INTO url VALUES ",
    _types("int8 int8 int8 int8 text bytea text int8 int8 float8 bytea"),
    may_repeat=False,
    is_plain=True,
)
DELETE_URL = _listed("DELETE FROM url WHERE (queue, gate, precedence, ordinal)", 4)
INSERT_DONE = ManyRows(
    "INSERT INTO done VALUES ", _types("int8 text bytea int8 text int8 int8"), may_repeat=False, is_plain=True
)
INSERT_FAILURE = ManyRows(
    "INSERT INTO failure VALUES ", _types("int8 text int8 int8 float8 bytea"), may_repeat=False, is_plain=True
)
#: Those that have failed, whatever the rows given.
DELETE_FAILED = _listed("DELETE FROM done WHERE outcome = 'failed' AND ordinal")
DELETE_FAILURES = _listed("DELETE FROM failure WHERE ordinal")
#: `FailedRecord`s. (ordinal, limit).
FAILED_AFTER = """
SELECT done.ordinal, url, key, status, hops, via, precedence, ended_s, payload
FROM done LEFT JOIN failure ON failure.ordinal = done.ordinal
WHERE outcome = 'failed' AND done.ordinal > ? ORDER BY done.ordinal LIMIT ?
"""
FAILED_BY_STATUS = "SELECT status, count(*) FROM done WHERE outcome = 'failed' GROUP BY status"
#: Counts only the rows it added: fewer than were given means duplicates.
ENTER_SEEN = ManyRows("INSERT INTO seen VALUES ", _types("int8 int8"), " ON CONFLICT (fp) DO NOTHING")
REPLACE_SEEN = ManyRows(
    "INSERT INTO seen VALUES ", _types("int8 int8"), " ON CONFLICT (fp) DO UPDATE SET ordinal = excluded.ordinal"
)

# One URL

SEEN = _listed("SELECT fp, ordinal FROM seen WHERE fp")
DONE = _listed(f"{_DONE} WHERE ordinal")
NEXT_PRECEDENCE = "SELECT min(precedence) FROM url WHERE queue = ? AND gate = ? AND precedence > ?"
URL_AT = "SELECT * FROM url WHERE queue = ? AND gate = ? AND precedence = ? AND ordinal = ?"
URL_ANYWHERE = "SELECT * FROM url WHERE ordinal = ? LIMIT 1"
#: No index has the URL, see `reading.of_url`. The latest come first. (URL, limit).
URL_OF = "SELECT * FROM url WHERE url = ? ORDER BY ordinal DESC LIMIT ?"
DONE_OF = f"{_DONE} WHERE url = ? ORDER BY ordinal DESC LIMIT ?"
#: Keys of rows above an ordinal, with their places and in that order.
QUEUED_KEYS = """
SELECT key, url, queue, gate, precedence, ordinal FROM url
WHERE (queue, gate, precedence, ordinal) > (?, ?, ?, ?) AND ordinal > ?
ORDER BY queue, gate, precedence, ordinal LIMIT ?
"""
#: Places and URLs of rows. (pattern, place to continue from, limit).
PLACES_OF_URLS_LIKE = """
SELECT queue, gate, precedence, ordinal, url FROM url
WHERE url LIKE ? AND (queue, gate, precedence, ordinal) > (?, ?, ?, ?)
ORDER BY queue, gate, precedence, ordinal LIMIT ?
"""
#: (queue, gate, place).
MOVE_URL = "UPDATE url SET queue = ?, gate = ? WHERE queue = ? AND gate = ? AND precedence = ? AND ordinal = ?"
ENDED_KEYS = "SELECT key, url, ordinal FROM done WHERE ordinal > ? ORDER BY ordinal LIMIT ?"

# Lanes

READ_LANES = _listed("SELECT queue, gate, turn, count, waiting, shelved FROM lane WHERE (queue, gate)", 2)
PUT_LANES = ManyRows(
    "INSERT INTO lane VALUES ",
    ("int8",) * 7,
    """ ON CONFLICT (queue, gate) DO UPDATE SET turn = excluded.turn, count = excluded.count, waiting = excluded.waiting,
        shelved = excluded.shelved, servable = excluded.servable""",
)
#: For lanes that exist and keep their place in line: no index is touched.
COUNT_LANES = ManyRows(
    "INSERT INTO lane VALUES ",
    ("int8",) * 7,
    " ON CONFLICT (queue, gate) DO UPDATE SET count = excluded.count, waiting = excluded.waiting",
)
DELETE_LANES = _listed("DELETE FROM lane WHERE (queue, gate)", 2)
#: A gate's line after a turn. (gate, turn, limit).
LINE = """
SELECT queue, gate, turn, count, waiting FROM lane
WHERE gate = ? AND turn > ? AND servable = 1 ORDER BY turn LIMIT ?
"""
LANES_OF_QUEUE = """
SELECT queue, gate, turn, count, waiting FROM lane WHERE queue = ? AND gate >= ? AND count > 0 ORDER BY gate LIMIT ?
"""
ROWS_OF_QUEUE = "SELECT coalesce(sum(count), 0) FROM lane WHERE queue = ?"
#: (standing, standing, queue).
SHELVE = """
UPDATE lane SET shelved = ?, servable = CASE WHEN count > waiting AND CAST(? AS BIGINT) = 0 THEN 1 ELSE 0 END
WHERE queue = ?
"""

# Queues

_QUEUE = "queue.id, queue.key, standing, precedence, spent, budget, successes, errors"
#: A `QueueRow`, then rows, waiting rows, lanes that have rows.
_SUMS = f"""
SELECT {_QUEUE}, coalesce(sum(lane.count), 0), coalesce(sum(lane.waiting), 0), count(lane.gate)
FROM queue LEFT JOIN lane ON lane.queue = queue.id AND lane.count > 0
"""
QUEUE = f"SELECT {_QUEUE} FROM queue WHERE id = ?"
QUEUES_BY_ID = _listed(f"SELECT {_QUEUE} FROM queue WHERE id")
QUEUE_FACTS = f"{_SUMS} WHERE queue.id = ? GROUP BY queue.id"
#: Those that have rows or are not open. (first id, limit).
QUEUES = f"""{_SUMS} WHERE queue.id >= ? GROUP BY queue.id HAVING standing <> 0 OR count(lane.gate) > 0
    ORDER BY queue.id LIMIT ?"""
OPEN_QUEUES = f"""{_SUMS} WHERE queue.id >= ? AND standing = 0 GROUP BY queue.id HAVING count(lane.gate) > 0
    ORDER BY queue.id LIMIT ?"""
#: (standing, first id, limit), for queues that are not open: found by their own index.
CLOSED_QUEUES = f"""{_SUMS} WHERE standing <> 0 AND standing = ? AND queue.id >= ? GROUP BY queue.id
    ORDER BY queue.id LIMIT ?"""
LONGEST = "SELECT queue, sum(count) FROM lane WHERE count > 0 GROUP BY queue ORDER BY 2 DESC, 1 LIMIT ?"
TALLY = """
SELECT CASE WHEN standing = 1 THEN 'paused' WHEN standing = 2 THEN 'retired' WHEN ready > 0 THEN 'inactive'
            WHEN waiting > 0 THEN 'snoozed' ELSE 'empty' END, count(*)
FROM queue LEFT JOIN (SELECT queue, sum(count - waiting) AS ready, sum(waiting) AS waiting FROM lane GROUP BY queue) AS sums
     ON sums.queue = queue.id
GROUP BY 1
"""
ANY_CLOSED = "SELECT 1 FROM queue WHERE standing <> 0 LIMIT 1"
CLOSED = _listed("SELECT id, standing FROM queue WHERE standing <> 0 AND id")
#: Known ones stay as they are; counts only the rows it added.
NAME_QUEUES = ManyRows(
    "INSERT INTO queue VALUES ", _types("int8 text int8 int8 int8 int8 int8 int8"), " ON CONFLICT (id) DO NOTHING"
)
PUT_QUEUES = ManyRows(
    """UPDATE queue SET precedence = new.column2, spent = new.column3, budget = CAST(new.column4 AS BIGINT),
    successes = new.column5, errors = new.column6 FROM (VALUES """,
    ("int8",) * 6,
    ") AS new WHERE queue.id = new.column1",
)
STANDING = "SELECT standing FROM queue WHERE id = ?"
SET_STANDING = "UPDATE queue SET standing = ? WHERE id = ?"

# Gates

_GATE_TYPES = _types("int8 text float8 float8 float8 float8 float8 int8 float8 int8 int8 int8 float8 int8")
_GATE = "id, key, rests_until_s, blocked_until_s, spacing_s, last_rest_s, throttle_s, troubles, troubled_s, slots"
GATE = f"SELECT {_GATE} FROM gate WHERE id = ?"
GATES_BY_ID = _listed(f"SELECT {_GATE} FROM gate WHERE id")
NAME_GATES = ManyRows("INSERT INTO gate VALUES ", _GATE_TYPES, " ON CONFLICT (id) DO NOTHING")
#: The columns after the facts keep their values.
PUT_GATES = ManyRows(
    "INSERT INTO gate VALUES ",
    _GATE_TYPES,
    """ ON CONFLICT (id) DO UPDATE
    SET rests_until_s = excluded.rests_until_s, blocked_until_s = excluded.blocked_until_s, spacing_s = excluded.spacing_s,
        last_rest_s = excluded.last_rest_s, throttle_s = excluded.throttle_s, troubles = excluded.troubles,
        troubled_s = excluded.troubled_s, slots = excluded.slots""",
)
#: The window of a gate that is not held: the smaller turn counts, the time stays.
WAKE_GATES = ManyRows(
    "UPDATE gate SET turn = new.column2 FROM (VALUES ",
    _types("int8 int8"),
    """) AS new
    WHERE gate.id = new.column1 AND held = 0 AND (turn IS NULL OR turn > new.column2)""",
)
LEAVE_GATES = ManyRows(
    """UPDATE gate SET held = 0, turn = CAST(new.column2 AS BIGINT), wakes_s = CAST(new.column3 AS DOUBLE PRECISION)
    FROM (VALUES """,
    _types("int8 int8 float8"),
    ") AS new WHERE gate.id = new.column1",
)
#: Gates of one share that are closed no longer. (share, now, limit).
DUE_GATES = """
SELECT id FROM gate WHERE held = 0 AND wakes_s IS NOT NULL AND share = ? AND wakes_s <= ? ORDER BY wakes_s LIMIT ?
"""
#: They join the open ones; so for one share, and around the union of several.
OPEN_GATES = f"UPDATE gate SET wakes_s = NULL WHERE id IN ({DUE_GATES})"
#: Gates of one share. (share, limit).
NEXT_GATES = f"""
SELECT {_GATE}, turn FROM gate WHERE held = 0 AND turn IS NOT NULL AND wakes_s IS NULL AND share = ? ORDER BY turn LIMIT ?
"""
NEXT_WAKE = "SELECT min(wakes_s) FROM gate WHERE held = 0 AND wakes_s IS NOT NULL AND share = ?"
BLOCKED_GATES = "SELECT id FROM gate WHERE blocked_until_s > ?"
HOLD_GATES = _listed("UPDATE gate SET held = 1, turn = NULL, wakes_s = NULL WHERE id")
REST_GATES = _listed("UPDATE gate SET turn = NULL WHERE id")
_FIRST_TURN = "SELECT min(lane.turn) FROM lane WHERE lane.gate = gate.id AND servable = 1"
#: Gates of one share that an owner held when it ended.
FREE_HELD = f"UPDATE gate SET held = 0, turn = ({_FIRST_TURN}), wakes_s = NULL WHERE held = 1 AND share = ?"
#: Gates at which a queue can be served again.
WAKE_GATES_OF_QUEUE = f"""
UPDATE gate SET turn = ({_FIRST_TURN})
WHERE held = 0 AND id IN (SELECT gate FROM lane WHERE queue = ? AND servable = 1)
      AND (turn IS NULL OR turn > ({_FIRST_TURN}))
"""

# Links on their way between the shares of a job, and pages of other shares, as earlier versions kept them

#: (share, number).
#: (share, number, limit).
PARCELS = "SELECT share, number, content FROM parcel WHERE (share, number) > (?, ?) ORDER BY share, number LIMIT ?"
PAGES = _listed("SELECT ordinal, url FROM page WHERE ordinal")

# Shares and their workers. SERVER_TIME stands for the server's clock: on one machine, for the machine's

SERVER_TIME = "SELECT SERVER_TIME"
ADD_SHARES = (
    "ALTER TABLE gate ADD COLUMN share BIGINT NOT NULL DEFAULT 0",
    "DROP INDEX gate_held",
    "DROP INDEX gate_turn",
    "DROP INDEX gate_wakes",
)
ADD_ENDER = "ALTER TABLE done ADD COLUMN worker BIGINT NOT NULL DEFAULT 0"
ADD_RETRIED = "ALTER TABLE worker ADD COLUMN retried BIGINT NOT NULL DEFAULT 0"
INSERT_SHARE = ManyRows("INSERT INTO share VALUES ", _types("int8 int8 int8 float8"), may_repeat=False)
#: (epoch, name, token, session, time to live).
JOIN = """
INSERT INTO worker SELECT ?, ?, ?, ?, SERVER_TIME, SERVER_TIME + ?, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
"""
#: (time to live, epoch, end of the lease as the worker left it). The lease of all shares of a worker, and the fence of its
#: commits: it changes nothing if another worker has ended the lease, or if the row is older than the worker's last commit.
RENEW = "UPDATE worker SET until_s = SERVER_TIME + ? WHERE epoch = ? AND until_s > 0 AND until_s = ? RETURNING until_s"
LEASE = "SELECT until_s FROM worker WHERE epoch = ?"
#: Each time that a worker has joined, with the number of its last batch.
JOININGS = "SELECT epoch, joined_s, batch FROM worker ORDER BY epoch"
PUT_SESSION = "UPDATE worker SET session = ? WHERE epoch = ?"
#: (batch, last_ordinal … retried, epoch).
PUT_COUNTERS = """
UPDATE worker SET batch = ?, last_ordinal = ?, queued = ?, done = ?, failed = ?, disregarded = ?, retired = ?, paused = ?,
    waiting = ?, queues = ?, retried = ? WHERE epoch = ?
"""
PUT_MARK = "UPDATE worker SET mark = ? WHERE epoch = ?"
MARK = "SELECT mark FROM worker WHERE epoch = ?"
#: Workers that have not left, by epoch: whether their time is up.
LIVE_WORKERS = "SELECT epoch, name, token, session, until_s < SERVER_TIME FROM worker WHERE until_s > 0 ORDER BY epoch"
#: (epoch).
END_WORKER = "UPDATE worker SET until_s = 0 WHERE epoch = ? AND until_s > 0"
#: The same, only if its time is up.
BURY_WORKER = "UPDATE worker SET until_s = 0 WHERE epoch = ? AND until_s > 0 AND until_s < SERVER_TIME"
#: The same of all whose time is up, and before it of their shares.
BURY_LATE_WORKERS = "UPDATE worker SET until_s = 0 WHERE until_s > 0 AND until_s < SERVER_TIME"
FREE_LATE_SHARES = """
UPDATE share SET epoch = NULL, leaving = 0, died_s = SERVER_TIME
WHERE epoch IN (SELECT epoch FROM worker WHERE until_s > 0 AND until_s < SERVER_TIME FOR UPDATE)
"""
FREE_LIVE_SHARES = "UPDATE share SET epoch = NULL, leaving = 0, died_s = SERVER_TIME WHERE epoch IS NOT NULL"
BURY_WORKERS = "UPDATE worker SET until_s = 0 WHERE until_s > 0"
#: Of a worker that died: its fetches may have lasted until now. (epoch).
FREE_SHARES = "UPDATE share SET epoch = NULL, leaving = 0, died_s = SERVER_TIME WHERE epoch = ?"
#: Of one that leaves in order.
GIVE_UP_SHARES = "UPDATE share SET epoch = NULL, leaving = 0, died_s = 0 WHERE epoch = ?"
HELD_SHARES = "SELECT id, leaving, died_s FROM share WHERE epoch = ? ORDER BY id"
#: (limit).
UNHELD_SHARES = "SELECT id FROM share WHERE epoch IS NULL ORDER BY id LIMIT ?"
#: (epoch, share).
CLAIM_SHARE = "UPDATE share SET epoch = ?, leaving = 0 WHERE id = ? AND epoch IS NULL"
#: (share, epoch).
LEAVE_SHARE = "UPDATE share SET leaving = 1 WHERE id = ? AND epoch = ?"
#: Given back in order. (share, epoch).
RELEASE_SHARE = "UPDATE share SET epoch = NULL, leaving = 0, died_s = 0 WHERE id = ? AND epoch = ? AND leaving = 1"
#: Rows of shares by the standing of their queues: (standing, rows, waiting ones).
ROWS_OF_SHARES = ManyRows(
    """SELECT shelved, sum(count), sum(waiting) FROM lane JOIN gate ON gate.id = lane.gate
    WHERE share IN (SELECT * FROM (VALUES """,
    ("int8",),
    ") AS listed) GROUP BY shelved",
)
INSERT_LINK = ManyRows(
    "INSERT INTO link VALUES ", _types("int8 int8 text bytea text int8 int8 bytea"), may_repeat=False, is_plain=True
)
DELETE_LINKS = _listed("DELETE FROM link WHERE ordinal")
LINKS = _listed("SELECT * FROM link WHERE share")
#: All of the job in one statement, so as of one moment.
JOB_COUNTS = """
SELECT coalesce(max(last_ordinal), 0), coalesce(sum(queued), 0), coalesce(sum(done), 0), coalesce(sum(failed), 0),
       coalesce(sum(disregarded), 0), coalesce(sum(retired), 0), coalesce(sum(paused), 0), coalesce(sum(waiting), 0),
       coalesce(sum(queues), 0), coalesce(sum(retried), 0), (SELECT count(*) FROM link) FROM worker
"""
WORKER_COUNTERS = """
SELECT last_ordinal, queued, done, failed, disregarded, retired, paused, waiting, queues, retried FROM worker
WHERE epoch = ?
"""
WORKERS = """
SELECT worker.epoch, name, (SELECT count(*) FROM share WHERE share.epoch = worker.epoch), until_s - SERVER_TIME
FROM worker WHERE until_s > 0 ORDER BY worker.epoch
"""
ALL_LINKS = "SELECT * FROM link"
LINK_AT = "SELECT * FROM link WHERE ordinal = ?"
#: Waiting rows of the shares of one worker. (epoch, due, ordinal, limit).
RETRIES_OF_SHARES = f"""
SELECT {_ROW} FROM url JOIN gate ON gate.id = url.gate JOIN share ON share.id = gate.share
WHERE share.epoch = ? AND share.leaving = 0 AND due_s IS NOT NULL AND (due_s, ordinal) > (?, ?) ORDER BY due_s, ordinal LIMIT ?
"""

#: Pages that are fetched, by a worker, above an ordinal. (worker, ordinal, limit).
PAGES_OF_WORKER = f"{_DONE} WHERE worker = ? AND ordinal > ? AND outcome = 'done' ORDER BY ordinal LIMIT ?"
DELETE_DONE = _listed("DELETE FROM done WHERE ordinal")
#: (pages, epoch).
UNCOUNT_DONE = "UPDATE worker SET done = done - ? WHERE epoch = ?"
EPOCHS_OF = "SELECT epoch, until_s > SERVER_TIME FROM worker WHERE name = ? ORDER BY epoch"

# The whole

FACTS = "SELECT name, value FROM crawl"
FACT = "SELECT value FROM crawl WHERE name = ?"
PUT_FACTS = ManyRows(
    "INSERT INTO crawl VALUES ", _types("text text"), " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)

#: A clock that went back: every time by so many seconds earlier.
MOVE_GATES = """
UPDATE gate SET rests_until_s = CASE WHEN rests_until_s > 0 THEN rests_until_s - ? ELSE 0 END,
    blocked_until_s = CASE WHEN blocked_until_s > 0 THEN blocked_until_s - ? ELSE 0 END,
    troubled_s = CASE WHEN troubled_s > 0 THEN troubled_s - ? ELSE 0 END, wakes_s = wakes_s - ?
WHERE rests_until_s > 0 OR blocked_until_s > 0 OR troubled_s > 0 OR wakes_s IS NOT NULL
"""
MOVE_RETRIES = "UPDATE url SET due_s = due_s - ? WHERE due_s IS NOT NULL"

# For checks

COUNT_URLS = """
SELECT count(*), max(ordinal), coalesce(sum(CASE WHEN precedence >= ? THEN 1 ELSE 0 END), 0) FROM url
"""
COUNT_DONE = "SELECT outcome, count(*), max(ordinal) FROM done GROUP BY outcome"
COUNT_SEEN = "SELECT count(*) FROM seen"
COUNT_QUEUES = "SELECT count(*) FROM queue"
SUM_LANES = "SELECT coalesce(sum(count), 0) FROM lane"
COUNT_CLOSED = """
SELECT standing, sum(count) FROM queue JOIN lane ON lane.queue = queue.id WHERE standing <> 0 GROUP BY standing
"""
#: A lane with a wrong count. (first precedence of rows that wait).
WRONG_LANE = """
SELECT queue, gate, count, waiting, held, held_waiting FROM (
    SELECT lane.queue, lane.gate, lane.count, lane.waiting, count(url.ordinal) AS held,
           coalesce(sum(CASE WHEN url.precedence >= ? THEN 1 ELSE 0 END), 0) AS held_waiting
    FROM lane LEFT JOIN url ON url.queue = lane.queue AND url.gate = lane.gate
    GROUP BY lane.queue, lane.gate, lane.count, lane.waiting
) AS counted WHERE held <> count OR held_waiting <> waiting LIMIT 1
"""
#: A lane that is in line and should not be, or the other way round.
WRONG_LINE = """
SELECT queue, gate, servable FROM lane
WHERE servable <> CASE WHEN count > waiting AND shelved = 0 THEN 1 ELSE 0 END LIMIT 1
"""
#: A lane with another standing than its queue.
WRONG_SHELF = """
SELECT lane.queue, lane.gate, shelved, coalesce(standing, 0) FROM lane LEFT JOIN queue ON queue.id = lane.queue
WHERE shelved <> coalesce(standing, 0) LIMIT 1
"""

# For tables of all queues and gates (`browse`)

_UNSET = -(1 << 31)  # of a number that goes by the order
BROWSED_QUEUES = f"""
SELECT id, key, standing, precedence, spent, coalesce(budget, {_UNSET}), successes, errors FROM queue ORDER BY id
"""
BROWSED_GATES = f"""
SELECT id, key, blocked_until_s, rests_until_s, spacing_s, throttle_s, troubles, coalesce(slots, {_UNSET}), held FROM gate
ORDER BY id
"""
BROWSED_LANES = "SELECT queue, gate, count, waiting, servable FROM lane"
_BROWSED_LANE = """
SELECT lane.turn, lane.queue, lane.gate, queue.key, gate.key FROM lane
JOIN queue ON queue.id = lane.queue JOIN gate ON gate.id = lane.gate
"""
#: (queue, limit), (gate, limit).
LANES_TO_BROWSE_OF_QUEUE = f"{_BROWSED_LANE} WHERE lane.queue = ? AND count > 0 ORDER BY lane.turn LIMIT ?"
LANES_TO_BROWSE_OF_GATE = f"{_BROWSED_LANE} WHERE lane.gate = ? AND servable = 1 ORDER BY lane.turn LIMIT ?"
#: (queue, gate, limit).
URLS_TO_BROWSE = """
SELECT url, precedence, ordinal, attempts, due_s FROM url WHERE queue = ? AND gate = ? ORDER BY precedence, ordinal LIMIT ?
"""
