"""Small files in a job's state folder: marks (finished, queue in memory, again), the last order, worker, round and run.

A job with its queue in memory must not be continued by another process. It has the mark `queue-in-memory` from before its first
seed is recorded until it is started afresh, begins another round, or gets a durable queue. `again` exists from the order for
another round until its Frontier exists, so that a killed process's successor begins the round again.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterable, Set
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, StoreLost, UsageError, storage_errors
from anabranch.dedup.files.durable import checked_json, checked_line, replace_file, sync_folder
from anabranch.frontier.jobfolder import ORDER_FILE

#: Exists from a crawl's regular end until the job is opened again; for a job with its queue in memory it stays.
FINISHED_MARK = "finished"
#: Totals of the job's hosts, types and statuses, by `accounts`.
ACCOUNTS = "accounts.sqlite"
#: The rows of a job of one worker that concern other processes, or outlive its own: its seeds.
JOB_FILE = "job.db"
#: Locked by whoever starts a scheduled run, and by its crawl until it ends.
SCHEDULE_LOCK = "schedule.lock"
#: The cookies of the job, or of one worker.
COOKIES = "cookies.txt"
#: The memory of payloads.
PAYLOADS = "payloads.sqlite"
#: The payloads of earlier archives.
EARLIER = "earlier.sqlite"
#: URLs that were skipped because a parameter changes nothing (`skipped`).
SKIPPED = "skipped.sqlite"
#: How far each sink has got.
SINKS = "sinks.json"
#: Exists while the job's queue is, or was, in memory.
QUEUE_IN_MEMORY_MARK = "queue-in-memory"
#: Exists while the old job is being removed.
FRESH_MARK = "fresh"
#: The number of shares of a job that an earlier version has divided.
OLD_NUMBER = "processes"
#: What `divide` makes before it takes the place of the old queue.
SCRATCH = "dividing"
#: Below the folder of a job: those of its workers.
WORKERS = "workers"


def mark_queue_in_memory(state: Path) -> None:
    """Record that the job's queue ends with the process. Raises: StorageError."""
    with storage_errors(state):
        state.mkdir(parents=True, exist_ok=True)
        replace_file(state / QUEUE_IN_MEMORY_MARK, b"")


def clear_queue_in_memory(state: Path) -> None:
    """Record that the job's queue is durable; for a job without seeds. Raises: StorageError."""
    with storage_errors(state):
        if has_queue_in_memory(state):
            (state / QUEUE_IN_MEMORY_MARK).unlink()
            sync_folder(state)


def has_queue_in_memory(state: Path) -> bool:
    """Whether the job's queue is, or was, in the memory of one process."""
    return (state / QUEUE_IN_MEMORY_MARK).exists()


def is_finished(state: Path) -> bool:
    """Whether the last run of the job left nothing to do."""
    return (state / FINISHED_MARK).exists()


#: Last line of the copy of the order: the checksum of all before it.
_CHECKSUM = "# crc32 of all lines above: {:08x}\n"
_CHECKSUM_BYTES = len(_CHECKSUM.format(0))


def kept_order(state: Path) -> str | None:
    """The order of the job's last run; None if it is unknown, or its copy is damaged. Raises: OSError."""
    try:
        content = (state / ORDER_FILE).read_bytes()
    except FileNotFoundError:
        return None
    text, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    return text.decode() if checksum == _CHECKSUM.format(crc32(text)).encode() else None


def keep_order(state: Path, text: str) -> None:
    """Keep the order of a run durably. Raises: OSError."""
    replace_file(state / ORDER_FILE, (text + _CHECKSUM.format(crc32(text.encode()))).encode())


#: The worker that crawls from this folder, in a job of several.
_WORKER_FILE = "worker.json"


class WorkerOfFolder(NamedTuple):
    """The worker that crawls from a job folder."""

    token: str  #: made with the folder, so that two folders never have the same
    name: str = ""  #: as it was called last; empty: it has not joined yet
    job: str = ""  #: the id of its job


def worker_of(state: Path) -> WorkerOfFolder | None:
    """The worker of this folder; None if it never was one of several. Raises: StorageError, StoreLost if it is damaged."""
    file = state / _WORKER_FILE
    with storage_errors(file):
        if not file.exists():
            return None
        try:
            fields = checked_json(file.read_bytes())
            return WorkerOfFolder(str(fields["token"]), str(fields["name"]), str(fields["job"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreLost(f"{file}: damaged; remove it: the worker then joins under a new name") from error


#: Each has a folder or the URL of a database: where the job is now, from the moment when it was moved elsewhere; the job that
#: this one is a copy of, until it is known that it has moved here; the folder that the job was renamed from last.
MOVED_TO, ARRIVES_FROM, CAME_FROM = "moved.json", "arrives.json", "came.json"


def noted_place(state: Path, what: str) -> str:
    """The place that one of these files has; empty without the file. Raises: StorageError, StoreLost if it is damaged."""
    file = state / what
    with storage_errors(file):
        if not file.exists():
            return ""
        try:
            return str(checked_json(file.read_bytes())["place"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreLost(f"{file}: damaged; it had the place that the job was moved to, or comes from") from error


def note_place(state: Path, what: str, place: str) -> None:
    """Write a place into one of these files, durably; empty: remove the file. Raises: StorageError."""
    with storage_errors(state / what):
        if place:
            replace_file(state / what, checked_line(json.dumps({"place": place}).encode()))
        else:
            (state / what).unlink(missing_ok=True)
            sync_folder(state)


def folder_place(state: Path) -> str:
    """The machine and the folder, which a copy of the folder does not share. Raises: StorageError.

    By the start of the machine, so a restarted one is another: a container's name differs each time that it is made anew.
    """
    with storage_errors(state):
        found = state.stat()
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not on Linux
        machine = socket.gethostname()
    return f"{machine}:{found.st_dev}:{found.st_ino}"


def note_worker(state: Path, worker: WorkerOfFolder) -> None:
    """Record it durably. Raises: StorageError."""
    with storage_errors(state / _WORKER_FILE):
        replace_file(state / _WORKER_FILE, checked_line(json.dumps(worker._asdict()).encode()))


#: The end of the name of a job that was moved aside.
_MOVED_ASIDE = re.compile(r"\.previous-\d{8}T\d{6}Z(-\d+)?$")


def is_moved_aside(directory: Path) -> bool:
    """Whether a job's name is one that `move_aside` gives. Pure."""
    return _MOVED_ASIDE.search(directory.name) is not None


#: Exists while a round is ordered and not begun; holds its number.
AGAIN_MARK = "again"
_ROUND_FILE = "round.json"

#: Prefixes of the files that stay from round to round: seeds, payloads, cookies, accounts, with SQLite's further files; where
#: sinks are; the lock of scheduled runs.
_LASTING = (JOB_FILE, SCHEDULE_LOCK, "seeds.jsonl", "payloads.sqlite", COOKIES, "accounts.", SINKS, _ROUND_FILE)


#: Marks of what was begun and not ended, and of a queue that is elsewhere.
_UNSETTLED = (QUEUE_IN_MEMORY_MARK, FRESH_MARK, AGAIN_MARK, MOVED_TO, ARRIVES_FROM, OLD_NUMBER, SCRATCH)


def is_settled(state: Path) -> bool:
    """Whether the job's queue is here, and no move, division, removal or new round was begun and has not ended."""
    return not any((state / mark).exists() for mark in _UNSETTLED)


class RoundDamaged(CrawlerError):
    """A file with the number of a job's round cannot be read: another program wrote to it, or the disk failed."""

    exit_code: ExitCode = ExitCode.BAD_ORDER


class Round(NamedTuple):
    """A job's round."""

    number: int = 1
    bytes_before: int = 0  #: what earlier rounds fetched: limits are a round's
    urls_before: int = 0  #: what earlier rounds processed, with robots.txt and look-ups, as the accounts count


def current_round(state: Path) -> Round:
    """The round of a job that has begun it. Raises: OSError, RoundDamaged."""
    file = state / _ROUND_FILE
    try:
        fields = checked_json(file.read_bytes())
        # Rounds begun by earlier versions have no URLs: they count those of earlier rounds as their own.
        urls_before = _whole(fields.get("urls_before", 0), 0)
        return Round(_whole(fields["number"], 1), _whole(fields["bytes_before"], 0), urls_before)
    except FileNotFoundError:
        return Round()
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RoundDamaged(
            f"{file}: damaged; restore it from a copy, or remove it: rounds are counted from 1 again then, "
            "and limits.bytes counts what earlier ones fetched"
        ) from error


def ordered_round(state: Path) -> int | None:
    """The number of the round that is ordered and has no Frontier yet, or None. Raises: OSError, RoundDamaged."""
    file = state / AGAIN_MARK
    try:
        return _whole(int(file.read_bytes()), 1)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RoundDamaged(
            f"{file}: damaged; write the number of the round into it that was ordered, "
            f"one more than {state / _ROUND_FILE} has (2 without that file)"
        ) from error


def _whole(value: object, least: int) -> int:
    """The number. Raises: ValueError for anything else."""
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value


def settle_round(state: Path, *, again: bool, keep: Set[str]) -> None:
    """Order another round (`again`); if one is ordered, remove all else but `keep`. Raises: OSError, RoundDamaged."""
    if ordered_round(state) is None:
        if not again:
            return
        replace_file(state / AGAIN_MARK, str(current_round(state).number + 1).encode())
    for entry in state.iterdir():
        if entry.name in keep or entry.name == AGAIN_MARK or entry.name.startswith(_LASTING):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    sync_folder(state)


def order_round(state: Path, number: int) -> None:
    """Have the next run begin this round. Raises: OSError."""
    replace_file(state / AGAIN_MARK, str(number).encode())


def round_of_run(state: Path) -> int:
    """The round that a run of this job fetches for: the ordered one, else the current one. Raises: OSError, RoundDamaged."""
    return ordered_round(state) or current_round(state).number


def begin_round(state: Path, fetched_bytes: int, processed_urls: int) -> None:
    """Make the ordered round, if any, the current one; the counts are of all earlier ones. Raises: OSError, RoundDamaged."""
    number = ordered_round(state)
    if number is not None:
        begun = Round(number, fetched_bytes, processed_urls)
        replace_file(state / _ROUND_FILE, checked_line(json.dumps(begun._asdict()).encode()))
        (state / AGAIN_MARK).unlink()
        sync_folder(state)


# Tags


#: In the folder of a job: its tags, one a line, in an editor or by the console.
TAGS_FILE = "tags.txt"
#: Tags of a job, and characters of each.
_MOST_TAGS, _MOST_TAG_CHARS = 20, 40


def tags_of(directory: Path) -> list[str]:
    """The tags of a job; none if the file is missing or cannot be read. Cost: one look at a small file."""
    try:
        with (directory / TAGS_FILE).open("rb") as file:
            lines = file.read(_MOST_TAGS * 4 * (_MOST_TAG_CHARS + 2)).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = dict.fromkeys(line.strip()[:_MOST_TAG_CHARS] for line in lines)
    return [tag for tag in found if tag and tag.isprintable()][:_MOST_TAGS]


def keep_tags(directory: Path, tags: Iterable[str]) -> None:
    """Give a job these tags instead of its own. Raises: UsageError for a wrong one, StorageError."""
    found = list(dict.fromkeys(tag.strip() for tag in tags))
    for tag in found:
        if not (tag.isprintable() and 0 < len(tag) <= _MOST_TAG_CHARS):
            raise UsageError(f"tags: {tag!r}: give each 1 to {_MOST_TAG_CHARS} characters on one line")
    if len(found) > _MOST_TAGS:
        raise UsageError(f"tags: a job has at most {_MOST_TAGS}")
    file = directory / TAGS_FILE
    with storage_errors(file):
        if found:
            replace_file(file, "".join(f"{tag}\n" for tag in found).encode("utf-8", "backslashreplace"))
        else:
            file.unlink(missing_ok=True)


# The last run


#: Has the record of the last run.
RUN_FILE = "run.json"
#: Why a run ended that could not go on, beside the names of `WhyEnded`.
FAILED = "failed"


class RunRecord(NamedTuple):
    """The last run of a job. One that was killed has not ended."""

    began_s: float  #: epoch seconds
    is_wanted: bool = True  #: nobody, and no limit, has asked it to end
    ended_s: float | None = None  #: epoch seconds
    why: str = ""  #: why it ended, a name of `WhyEnded` in lower case, or `FAILED`
    words: str = ""  #: the same, for people
    pid: int = 0  #: of the process that runs it


def run_record(state: Path) -> RunRecord | None:
    """The record of the last run; None if there was none, or the file is damaged or of another version. Raises: OSError."""
    try:
        return RunRecord(**checked_json((state / RUN_FILE).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return None


def no_longer_wanted(state: Path) -> bool:
    """Record that a job is not to run any more whose run was killed or failed; False if nobody wants it. Raises: OSError."""
    record = run_record(state)
    if record is None or not (record.is_wanted and (record.ended_s is None or record.why == FAILED)):
        return False
    keep_record(state, record._replace(is_wanted=False))
    return True


def keep_record(state: Path, record: RunRecord) -> None:
    """Keep the record of the last run durably. Raises: OSError."""
    replace_file(state / RUN_FILE, checked_line(json.dumps(record._asdict()).encode()))
