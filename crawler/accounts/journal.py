"""`state/accounts.journal`: the record of each group of the job's journal. A group counts once its record is whole here.

Each line has its checksum (`dedup.files.durable.checked_line`). The first line is JSON: the file's `base`; its `seal`: size and
CRC-32 of `accounts.sqlite`, if the accounts were closed in order; and `files`, as of the group before. Every other line is one
group. Its fields are separated by tabs: a JSON object with the end of each file of the job behind this group (`FileMark`), by
the file's name, then the group's lines of crawl.log, which `accounts.sqlite` may not count yet. A place is `base` plus the
bytes behind the first line. Records of an earlier version lack the files.

A kill may leave a torn last line that was not yet reported as written. Any other difference is damage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode
from anabranch.dedup.files.durable import (
    AppendOnlyFile,
    FileMark,
    checked_line,
    checked_text,
    replace_file,
    size_and_crc,
)

#: The file's name in the state folder.
JOURNAL_FILE = "accounts.journal"
_CHUNK_BYTES = 1 << 20
#: The first byte of a group's files; a line of crawl.log begins with a digit.
_FILES = b"{"

#: The end of each file behind a group, by its name.
FileMarks = Mapping[str, FileMark]


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
        self._appended: FileMarks | None = None  # of the group that is not kept yet
        self.base = 0  #: the place of the first group
        self.is_sealed = False  #: the database is as an orderly end left it
        self.files: FileMarks | None = None  #: behind the last group; None: they were never recorded
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
        self.files = recorded_files(path)
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
                    parts = checked_text(line).split(b"\t")
                    yield [part + b"\n" for part in parts if part and not part.startswith(_FILES)], place
                except ValueError as error:
                    raise AccountsDamaged(self._path, "damaged") from error

    def remember(self, files: FileMarks) -> None:
        """Let these be the files behind the last group; the next head has them."""
        self.files = files

    def begin(self, base: int) -> None:
        """Begin a new file without a seal, for the groups behind `base`. After an error the old file stays open."""
        head = _head(base, None, self.files)
        replace_file(self._path, head)
        if self._file is None:
            self._file = AppendOnlyFile(self._path)
        else:
            self._file.follow()
        self.base, self._head_bytes = base, len(head)

    def append(self, lines: Sequence[bytes], files: FileMarks | None) -> None:
        """Write a group durably: its lines, and the files with it. Nothing is written for a group that changes neither."""
        assert self._file is not None
        self._appended = self.files if files is None else files
        fields = [line.rstrip(b"\n") for line in lines]
        if files is not None and files != self.files:
            fields.insert(0, json.dumps(files, separators=(",", ":")).encode())
        self._file.append(checked_line(b"\t".join(fields)) if fields else b"")

    def keep(self) -> None:
        """Let the appended group count."""
        assert self._file is not None
        self._file.keep()
        self.files = self._appended

    def take_back(self) -> None:
        """Cut the appended group. Raises: OSError; then it may count after all."""
        assert self._file is not None
        self._file.begin()

    def seal(self, base: int) -> None:
        """Begin a new file with the seal of the database, which is closed."""
        self.close()
        replace_file(self._path, _head(base, _seal_of(self._database), self.files))

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


def _head(base: int, seal: list[int] | None, files: FileMarks | None) -> bytes:
    return checked_line(json.dumps({"base": base, "seal": seal, "files": files}).encode())


def recorded_files(journal: Path) -> FileMarks | None:
    """The files behind the last group that was recorded in a journal; None if they never were.

    Cost: the journal is read, mostly less than 1 MB. Raises: AccountsDamaged, OSError.
    """
    if not journal.exists():
        return None
    head, *groups = journal.read_bytes().splitlines(keepends=True) or [b""]
    try:
        found: Any = json.loads(checked_text(head)).get("files")
        for line in reversed(groups):
            if line.endswith(b"\n") and line[9:].startswith(_FILES):
                found = json.loads(checked_text(line).partition(b"\t")[0])
                break
        return None if found is None else {str(name): FileMark(*mark) for name, mark in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise AccountsDamaged(journal, "damaged") from error
