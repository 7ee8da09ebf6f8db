"""The seeds of a job as rows, which all its workers have with the same numbers, and how those of an older job become rows.

The fact `seeds` has the number of rows and the checksum of them all, so damage is told: the scope would end what is queued
from hosts whose seeds are gone. Rows that an older program adds after that number are read, and counted with the next seed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from zlib import crc32

from sqlalchemy import Connection, select

from anabranch.crawler.job.database import (
    FACT,
    SEED,
    JobDatabase,
    Row,
    execute,
    fact,
    fetch,
    lock_job,
    make_tables,
    put_fact,
)
from anabranch.crawler.job.seeds import OLD_COUNT, OLD_SEEDS, Seed, SeedsDamaged, has_old_seeds
from anabranch.crawler.job.state import JOB_FILE
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.urls.parsing import canonical
from anabranch.dedup.files.durable import sync_folder

_ADDED_AT_ONCE = 1000
#: The name of the fact that has the number of seeds and their checksum.
_WRITTEN = "seeds"
_NONE = (0, 0)
#: Fields of a line that the oldest versions wrote.
_OLD_FIELDS = ("url", "source", "via")


class Seeds:
    """The seeds of a job in memory, as they were at the last `refresh`; each URL once, from its first source.

    What `add_all` returns is durable; seeds added together are recorded all or none. Any thread may use it.
    Cost of `add_all`: a transaction of six statements. Raises: SeedsDamaged, StoreUnavailable.
    """

    def __init__(self, database: JobDatabase) -> None:
        self._database = database
        self._seeds: dict[str, Seed] = {}
        self._listed: list[Seed] = []
        self._last = 0  #: number of the last one
        self._changing = Lock()
        self.reload()

    def __len__(self) -> int:
        return len(self._seeds)

    def __iter__(self) -> Iterator[Seed]:
        return iter(self._listed[:])

    def __contains__(self, url: object) -> bool:
        return url in self._seeds

    def after(self, count: int) -> Sequence[Seed]:
        """The seeds after the first `count`."""
        return self._listed[count:]

    def add_all(self, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
        """Record those that are new, all or none, and return them."""
        given = [seed for seed in seeds if seed.url not in self._seeds]
        if not given:
            return ()
        added, news = self._database.do_patiently(
            lambda connection: (add_seeds(connection, given), _rows(connection, self._last))
        )
        self._note(news)
        return added

    def require(self) -> None:
        """Raises: SeedsDamaged if there is none, for a job that has begun: its scope would end all that is queued."""
        if not self._seeds:
            raise self._damaged("has no seed, though the job has begun")

    def _damaged(self, what: str) -> SeedsDamaged:
        address, remedy = self._database.address, "restore it from a copy"
        if isinstance(address, Path) and address.name == JOB_FILE:
            again = f"`anabranch add {address.parent.parent} SEED...`"
            remedy = f"{remedy}, or remove it and name every seed of the job again with {again}"
        return SeedsDamaged(f"{self._database.place}: {what}; {remedy}")

    def reload(self) -> None:
        """Read all: an older state of the table may have taken the place of the one that was read."""
        written, rows = self._database.do_patiently(lambda connection: (_written(connection), _rows(connection, 0)))
        if written != _NONE and written not in _sums(rows, _NONE):
            raise self._damaged("its seeds are not those that were written")
        with self._changing:
            self._seeds, self._listed, self._last = {}, [], 0
        self._note(rows)

    def refresh(self) -> None:
        """Read what was added since, by whomever."""
        self._note(self._database.do_patiently(lambda connection: _rows(connection, self._last)))

    def _note(self, rows: Iterable[Row]) -> None:
        with self._changing:
            for number, url, source, via in rows:
                if number > self._last:  # else another thread has read it meanwhile
                    seed = self._seeds[url] = Seed(url=url, source=source, via=via)
                    self._listed.append(seed)
                    self._last = number


@contextmanager
def opened_seeds(state: Path) -> Iterator[Seeds]:
    """The seeds of a job of one worker, which the caller holds. A disk that refuses is an error at once."""
    file = state / JOB_FILE
    with storage_errors(file):
        if not file.exists():
            file.touch(0o600)  # a seed may hold a password
    with JobDatabase(file, is_sole=True) as database:
        make_tables(database, [FACT, SEED])
        yield Seeds(database)


def known_seeds(state: Path) -> Collection[str]:
    """The URLs of the seeds of a job of one worker, which another process may hold, or an older one have made.

    Raises: SeedsDamaged, StorageError, StoreUnavailable.
    """
    with storage_errors(state):
        if has_old_seeds(state):
            return {seed.url for seed in _old_seeds(state)}
    with opened_seeds(state) as seeds:
        return {seed.url for seed in seeds}


def adopt_old_seeds(state: Path) -> None:
    """Make rows of the seeds of an older job, which the caller holds. A process that was killed meanwhile did no harm.

    Raises: SeedsDamaged, OSError, StoreUnavailable.
    """
    old = _old_seeds(state)
    if old:
        with opened_seeds(state) as seeds:
            seeds.add_all(old)
    for name in (OLD_COUNT, OLD_SEEDS):  # in this order: without its count the file is still sound
        (state / name).unlink(missing_ok=True)
        sync_folder(state)


def add_seeds(connection: Connection, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
    """Add the new ones in the running transaction, numbered without gaps; returns them."""
    lock_job(connection)
    last = _written(connection)
    last = [last, *_sums(_rows(connection, last[0]), last)][-1]  # rows of an older program
    added: list[Seed] = []
    given: dict[str, Seed] = {}
    for seed in seeds:
        given.setdefault(seed.url, seed)
    listed = list(given.values())
    for start in range(0, len(listed), _ADDED_AT_ONCE):
        chunk = listed[start : start + _ADDED_AT_ONCE]
        known = set(connection.scalars(select(SEED.c.url).where(SEED.c.url.in_([seed.url for seed in chunk]))))
        new = [seed for seed in chunk if seed.url not in known]
        rows = [(last[0] + place, seed.url, seed.source, seed.via) for place, seed in enumerate(new, start=1)]
        if rows:
            execute(
                connection,
                "INSERT INTO job_seed VALUES (:number, :url, :source, :via)",
                [dict(zip(("number", "url", "source", "via"), row, strict=True)) for row in rows],
            )
            *_, last = _sums(rows, last)
        added += new
    if added:
        put_fact(connection, _WRITTEN, f"{last[0]} {last[1]}")
    return tuple(added)


def _rows(connection: Connection, last: int) -> Sequence[Row]:
    """The rows after this number: number, url, source and via, in order."""
    return fetch(
        connection, "SELECT number, url, source, via FROM job_seed WHERE number > :last ORDER BY number", last=last
    )


def _written(connection: Connection) -> tuple[int, int]:
    """The number of the last row that was counted, and the checksum of all up to it."""
    number, crc = (fact(connection, _WRITTEN) or "0 0").split()
    return int(number), int(crc)


def _sums(rows: Iterable[Row], last: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The number of each of these rows, which follow the last one, and the checksum of all up to it."""
    _, crc = last
    for row in rows:
        crc = crc32(ascii(row).encode(), crc)
        yield row[0], crc


# Seeds of older jobs


def _old_seeds(state: Path) -> list[Seed]:
    """The seeds of a job of format 2 or 1: a JSON object a line, with a checksum of all lines up to its own.

    Another file has the number of lines and their checksum; the last lines may be missing there, and a torn one counts nowhere.
    The oldest programs wrote neither. Raises: SeedsDamaged, OSError.
    """
    path, count_path = state / OLD_SEEDS, state / OLD_COUNT
    written = count_path.read_bytes() if count_path.exists() else None
    *lines, torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
    found: dict[str, Seed] = {}
    crc, is_sound = 0, written is None and not torn
    try:
        for number, line in enumerate(lines, start=1):
            seed, crc = _old_line(line, crc)
            found.setdefault(seed.url, seed)
            is_sound = is_sound or written == b"%016d %08x\n" % (number, crc)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise SeedsDamaged(
            f"{path}: the seeds are not those that were written; restore the file from a copy, or remove it and {OLD_COUNT} "
            f"and name every seed of the job again with `anabranch add {state.parent} SEED...`"
        )
    return list(found.values())


def _old_line(line: bytes, crc: int) -> tuple[Seed, int]:
    """The seed of a line after lines with this checksum, and the checksum of them all. Raises: ValueError and the like."""
    content, mark, last = line.rpartition(b', "crc": "')
    crc = crc32(content if mark else line, crc)
    fields = json.loads(line)
    seed = Seed(url=fields["url"], source=fields["source"], via=fields["via"])
    is_whole = last == b'%08x"}' % crc if mark else len(fields) == len(_OLD_FIELDS)
    if not is_whole or canonical(seed.url) != seed.url:
        raise ValueError(line)
    return seed, crc
