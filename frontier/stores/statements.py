"""The hot statements, as the driver takes them: their parameters are tuples in the order of the columns.

Each list of parameters comes sorted by primary key where order helps: neighbours then fall into the same page.
"""

from __future__ import annotations

#: `models.Row`, then the URL of `via`. (queue, gate, end of precedences, limit). One seek in the clustered key.
HEADS = """
SELECT url.queue, url.gate, url.precedence, url.ordinal, url.url, url.key, url.hops, url.via, url.attempts, url.due_s,
       url.payload, done.url
FROM url LEFT JOIN done ON done.ordinal = url.via
WHERE url.queue = ? AND url.gate = ? AND url.precedence < ?
ORDER BY url.precedence, url.ordinal LIMIT ?
"""

#: The same for all rows that wait for a retry.
WAITING_ROWS = """
SELECT url.queue, url.gate, url.precedence, url.ordinal, url.url, url.key, url.hops, url.via, url.attempts, url.due_s,
       url.payload, done.url
FROM url LEFT JOIN done ON done.ordinal = url.via
WHERE url.due_s IS NOT NULL
ORDER BY url.due_s
"""

INSERT_URL = "INSERT INTO url VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
DELETE_URL = "DELETE FROM url WHERE queue = ? AND gate = ? AND precedence = ? AND ordinal = ?"
INSERT_DONE = "INSERT OR REPLACE INTO done VALUES (?, ?, ?, ?, ?, ?)"
#: Counts only the rows it added: fewer than were given means duplicates.
ENTER_SEEN = "INSERT OR IGNORE INTO seen VALUES (?, ?)"
REPLACE_SEEN = "INSERT OR REPLACE INTO seen VALUES (?, ?)"
PUT_QUEUE = "INSERT OR REPLACE INTO queue VALUES (?, ?)"
PUT_GATE = "INSERT OR REPLACE INTO gate VALUES (?, ?, ?, ?, ?, ?)"
#: A lane that is announced again keeps its count.
PUT_LANE = """
INSERT INTO lane VALUES (?, ?, ?, ?, 0)
ON CONFLICT (queue, gate) DO UPDATE SET precedence = excluded.precedence, arrival = excluded.arrival
"""
COUNT_LANE = "UPDATE lane SET count = count + ? WHERE queue = ? AND gate = ?"
PUT_CRAWL = "INSERT OR REPLACE INTO crawl VALUES (?, ?)"

#: Keys in the order of their rows' places; the last column tells where to go on.
QUEUED_KEYS = """
SELECT coalesce(key, url), queue, gate, precedence, ordinal FROM url
WHERE (queue, gate, precedence, ordinal) > (?, ?, ?, ?)
ORDER BY queue, gate, precedence, ordinal LIMIT ?
"""
ENDED_KEYS = "SELECT coalesce(key, url), ordinal FROM done WHERE ordinal > ? ORDER BY ordinal LIMIT ?"

#: Every row, for checks.
KEYED_ROWS = """
SELECT coalesce(key, url), ordinal FROM url UNION ALL SELECT coalesce(key, url), ordinal FROM done
"""

#: Lanes whose count is wrong.
WRONG_LANES = """
SELECT queue, gate, count, held FROM (
    SELECT queue, gate, count,
           (SELECT count(*) FROM url WHERE url.queue = lane.queue AND url.gate = lane.gate) AS held
    FROM lane
) AS counted WHERE held <> count LIMIT 1
"""
