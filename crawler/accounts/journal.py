"""`state/accounts.journal`: lines of crawl.log that `accounts.sqlite` does not count yet.

Each line has its checksum (`dedup.files.durable.checked_line`). The first line is JSON: the file's `base`, and its `seal`: size
and CRC-32 of `accounts.sqlite`, if the accounts were closed in order. Every other line is one group of the job's journal: its
lines of crawl.log, separated by tabs. A place is `base` plus the bytes behind the first line.

A kill may leave a torn last line that was not yet reported as written. Any other difference is damage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode
from anabranch.dedup.files.durable import AppendOnlyFile, checked_line, checked_text, replace_file, size_and_crc

#: The file's name in the state folder.
JOURNAL_FILE = "accounts.journal"
_CHUNK_BYTES = 1 << 20


class AccountsDamaged(CrawlerError):
    """The files of the job's totals were changed by another program, or the disk failed. Nothing is counted anew."""

    exit_code: ExitCode = ExitCode.BAD_ORDER

    def __init__(self, file: Path, what: str) -> None:
        both = file.with_name("accounts.*")
        super().__init__(
            f"{file}: {what}; restore {both} from one copy, or remove them: the totals are counted anew from what "
            "logs/crawl.log has then (put what was rotated away back in front of it first)"
        )


class AccountsJournal:
    """The journal of open accounts. Raises: OSError, as for every file."""

    def __init__(self, path: Path, database: Path) -> None:
        """Read the first line, and check the seal of the database if there is one. Raises: AccountsDamaged."""
        self._path = path
        self._database = database
        self._file: AppendOnlyFile | None = None  # open from `begin` on
        self._head_bytes = 0
        self.base = 0  #: the place of the first group
        self.is_sealed = False  #: the database is as an orderly end left it
        self.exists = path.exists()
        if not self.exists:
            return
        try:
            with path.open("rb") as lines:
                head = lines.readline()
            fields = json.loads(checked_text(head))
            self.base, seal = int(fields["base"]), fields["seal"]
        except (ValueError, KeyError, TypeError, IsADirectoryError) as error:
            raise AccountsDamaged(path, "damaged") from error
        self._head_bytes = len(head)
        if seal is not None and seal != _seal_of(database):
            raise AccountsDamaged(database, "damaged: it is not what was written to it")
        self.is_sealed = seal is not None

    @property
    def place(self) -> int:
        """The place behind the last group that counts."""
        assert self._file is not None
        return self.base + self._file.kept_bytes - self._head_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the groups in the file that count."""
        return self.place - self.base

    def groups_behind(self, counted: int) -> Iterator[tuple[Sequence[bytes], int]]:
        """The groups behind a place, and the place behind each. Raises: AccountsDamaged if the file lacks the place."""
        place = counted
        with self._path.open("rb", buffering=_CHUNK_BYTES) as lines:
            if not self.base <= counted <= self.base + self._path.stat().st_size - self._head_bytes:
                raise AccountsDamaged(self._path, "damaged, or not of the same time as accounts.sqlite")
            lines.seek(counted - self.base + self._head_bytes)
            for line in lines:
                if not line.endswith(b"\n"):
                    return  # torn: it was not yet reported as written
                place += len(line)
                try:
                    yield [part + b"\n" for part in checked_text(line).split(b"\t")], place
                except ValueError as error:
                    raise AccountsDamaged(self._path, "damaged") from error

    def begin(self, base: int) -> None:
        """Begin a new file without a seal, for the groups behind `base`. After an error the old file stays open."""
        head = _head(base, None)
        replace_file(self._path, head)
        if self._file is None:
            self._file = AppendOnlyFile(self._path)
        else:
            self._file.follow()
        self.base, self._head_bytes = base, len(head)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write a group durably."""
        assert self._file is not None
        self._file.append(checked_line(b"\t".join(line.rstrip(b"\n") for line in lines)) if lines else b"")

    def keep(self) -> None:
        """Let the appended group count."""
        assert self._file is not None
        self._file.keep()

    def take_back(self) -> None:
        """Cut the appended group."""
        assert self._file is not None
        self._file.take_back()

    def seal(self, base: int) -> None:
        """Begin a new file with the seal of the database, which is closed."""
        self.close()
        replace_file(self._path, _head(base, _seal_of(self._database)))

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _seal_of(database: Path) -> list[int] | None:
    """Size and CRC-32 of a database; None if its write-ahead log is not empty. Cost: a second for some GB."""
    log = Path(f"{database}-wal")
    if log.exists() and log.stat().st_size:
        return None
    return list(size_and_crc(database)) if database.is_file() else [0, 0]


def _head(base: int, seal: list[int] | None) -> bytes:
    return checked_line(json.dumps({"base": base, "seal": seal}).encode())
