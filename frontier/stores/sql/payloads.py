"""The payloads of queued rows in a file that nobody has open: finds those of an old form, and writes them in a new one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from anabranch.frontier.stores.sql.sqlite import log_of, read_seal, seal_of, translated, write_seal

#: Rows that are read, and written in one transaction.
_CHUNK = 1000

_FIRST = "SELECT 1 FROM url WHERE substr(payload, 1, 1) = ? LIMIT 1"
_NEXT = """
SELECT queue, gate, precedence, ordinal, payload FROM url
WHERE (queue, gate, precedence, ordinal) > (?, ?, ?, ?) AND substr(payload, 1, 1) = ?
ORDER BY queue, gate, precedence, ordinal LIMIT ?"""
_WRITE = "UPDATE url SET payload = ? WHERE queue = ? AND gate = ? AND precedence = ? AND ordinal = ?"


class Rewritten(NamedTuple):
    """What became of the rows of the old form."""

    done: int
    left: int  #: for which no new form was found


def has_payload(file: Path, first: bytes) -> bool:
    """Whether a queued row has a payload that begins with this byte.

    Blocks: half a second a million rows that are in memory. Raises: StoreInUse, StoreUnavailable.
    """
    with _opened(f"{file.absolute().as_uri()}?mode=ro", file) as connection:
        return connection.execute(_FIRST, (first,)).fetchone() is not None


def rewrite(file: Path, old: bytes, make: Callable[[bytes], bytes | None]) -> Rewritten:
    """Write the payloads that begin with the byte `old` as `make` gives them; None leaves one as it is (blocks).

    It may be killed at any moment and done again. Raises: StoreInUse, StoreUnavailable, StoreFull.
    """
    done = left = 0
    after: tuple[int, ...] = (-(1 << 63),) * 4
    with _unsealed(file), _opened(file.absolute().as_uri(), file) as connection:
        while rows := connection.execute(_NEXT, (*after, old, _CHUNK)).fetchall():
            after = rows[-1][:4]
            made = [(make(payload), *place) for *place, payload in rows]
            new = [row for row in made if row[0] is not None]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_WRITE, new)
            connection.execute("COMMIT")
            done, left = done + len(new), left + len(rows) - len(new)
    return Rewritten(done, left)


@contextmanager
def _unsealed(file: Path) -> Iterator[None]:
    """Remove the seal while the file changes; afterwards it has one again."""
    seal = read_seal(file)
    if seal is None or not seal[1]:
        yield  # the opening counts the rows, or says that the file is damaged
        return
    seal_of(file).unlink()
    yield
    if not log_of(file).exists():
        with suppress(OSError):
            write_seal(file, seal[0])


@contextmanager
def _opened(address: str, file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
    except sqlite3.Error as error:
        raise translated(file, error) from error
