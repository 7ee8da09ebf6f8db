"""The jobs that a console shows: those below a folder, or the one in a database. Names never lead out of the folder."""

from __future__ import annotations

import io
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from anabranch.crawler.console.asking import PATIENCE_S as LISTING_PATIENCE_S
from anabranch.crawler.console.asking import Asking
from anabranch.crawler.console.launching import Launcher
from anabranch.crawler.console.orders import examined_order, machine_faults, name_faults, sound_order
from anabranch.crawler.job.checking import order_warnings
from anabranch.crawler.job.folder import JobFolder, check_new_name, move_aside
from anabranch.crawler.job.seeds import COMMAND_LINE, BadSeed, Seed, SeedList, chunks_of, parse_seed, read_seeds
from anabranch.crawler.job.state import is_moved_aside, keep_tags
from anabranch.crawler.operate import (
    UNKNOWN,
    Facts,
    Job,
    Phase,
    counted,
    job_folders,
    listed,
    operated,
    operated_folder,
    retried_facts,
    row_of,
)
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.order.loading import Examined
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import (
    CrawlerError,
    JobInUse,
    NoSeeds,
    UsageError,
    storage_error,
    storage_errors,
)
from anabranch.crawler.report.metrics import ProcessSums, of_resting
from anabranch.crawler.report.rounds import ComparedRounds, compare_rounds
from anabranch.crawler.report.table import escaped
from anabranch.dedup.files.durable import replace_file
from anabranch.frontier import VerdictKind

#: The file of seeds of a job that a console begins, in the job's folder.
SEED_FILE = "seeds.txt"
#: Text files of a new job, in its folder: what its order lacks or leaves out, until somebody has read it; and lines that were
#: no seeds, each with the reason behind a `#`, so that the file can be corrected and given again.
WARNINGS_FILE, REFUSED_FILE = "warnings.txt", "refused-seeds.txt"
#: Bytes of these that are read.
_MOST_NOTE_BYTES = 64 << 20
#: Seeds of a new job, in bytes.
MOST_SEED_BYTES = 64 << 20
#: A crawl is given this long to answer: a person, or a program with other jobs, waits.
_PATIENCE_S = 15.0
#: The phase of a crawl whose process runs and has not answered yet.
_STARTING = Phase.STARTING.value
#: Seeds that are left out of a new job and named, and characters of each.
_MOST_BAD, _MOST_BAD_CHARS = 10, 100
#: Keys of [job] that a new job ignores -> why.
_IGNORED_KEYS = {
    "name": "the job has the name that is given beside the order",
    "seed_files": "it names files of the console's machine; give their lines as seeds",
}


class NewJobCheck(NamedTuple):
    """What a new job would be told."""

    faults: Sequence[str] = ()  #: it would not be created
    warnings: Sequence[str] = ()
    seeds: int = 0
    refused: Sequence[BadSeed] = ()  #: lines that are no seeds


class CreatedJob(NamedTuple):
    """A job that was created."""

    warnings: Sequence[str]  #: what its order lacks, and seeds that are left out
    seeds: int
    refused: Sequence[BadSeed]  #: lines that are no seeds


class JobExists(UsageError):
    """There is a folder of the name that a new job is given."""


class NotStarted(CrawlerError):
    """A job was created, and its crawl could not be started."""


class NoSuchJob(UsageError):
    """There is no job of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r}: there is no such job")


class ConsoleJobs:
    """The jobs of one console. Its methods block. Raises: CrawlerError, FrontierError."""

    def __init__(
        self,
        place: str,
        *,
        patience_s: float = _PATIENCE_S,
        listing_patience_s: float = LISTING_PATIENCE_S,
        run_code: bool = False,
    ) -> None:
        """`place` is a folder, or the URL of a database. Raises: UsageError.

        A crawl has `patience_s` to answer, and `listing_patience_s` if all are asked at once. With `run_code` the crawls
        that it starts run user functions that only the jobs' own orders name; its own process runs none.
        """
        self._patience_s = patience_s
        self._launcher = Launcher(run_code=run_code)
        self._sums: dict[str, ProcessSums] = {}  # of jobs of several workers, by name
        self._turns: defaultdict[str, Lock] = defaultdict(Lock)  # by the name of a job
        self._listing = Asking(self.row, listing_patience_s)
        self._measuring = Asking(self._numbers, listing_patience_s)
        self._database = operated(place) if place.startswith(DATABASES) else None
        self.folder = None if self._database else Path(place)
        if self.folder is not None and not self.folder.is_dir():
            raise UsageError(f"{place}: there is no such folder; create it, or name one that holds jobs")

    @cached_property
    def _name_in_database(self) -> str:
        """It does not change."""
        assert self._database is not None
        return str(self._database.status()["job"])

    @property
    def names(self) -> list[str]:
        """The names of the jobs, in order."""
        if self._database is not None:
            return [self._name_in_database]
        return [directory.resolve().name for directory in self._folders()]

    def rows(self) -> list[Facts]:
        """A row for each job; see `operate.listing`. One that does not answer in time is a row, too."""
        answers = self._listing.answers(self.names)
        rows = [_silent_row(name, row) if isinstance(row, Exception) else row for name, row in answers.items()]
        return [row for row in rows if row is not None]

    def row(self, name: str) -> Facts:
        """The row of a job. Raises: NoSuchJob."""
        directory = self.directory(name)
        if directory is None:
            assert self._database is not None
            return row_of(self._database.status())
        row = listed(directory)
        if row["pid"] is not None:
            self._launcher.has_opened(directory)
        elif self._launcher.is_opening(directory):
            return {**row, "phase": _STARTING, "state": _STARTING, "ended": None, "line": "starting: opens its queue"}
        return row

    def directory(self, name: str) -> Path | None:
        """The folder of a job; None for one in a database. Raises: NoSuchJob."""
        # A name is compared with those that there are, and never made a path.
        folders = chain(self._folders(), self._moved_aside(name))
        found = next((entry for entry in folders if entry.resolve().name == name), None)
        if found is None and (self._database is None or name != self._name_in_database):
            raise NoSuchJob(name)
        return found

    def log(self, name: str, file: str) -> Path:
        """A log of a job, which may not exist. Raises: NoSuchJob; UsageError if it has none here."""
        directory = self.directory(name)
        if directory is None:
            raise UsageError(f"{name}: its logs are on the machines of its workers")
        found = directory / "logs" / file
        if not found.resolve().is_relative_to(directory.resolve()):
            raise UsageError(f"{name}: {file} is a link out of the job's folder, which the console does not follow")
        return found

    def job(self, name: str) -> Job:
        """A job by its name. Raises: NoSuchJob."""
        directory = self.directory(name)
        if directory is not None:
            return operated_folder(directory, turn=self._turns[name], patience_s=self._patience_s)
        assert self._database is not None
        return self._database

    def metrics(self, name: str) -> Facts | None:
        """The job's metrics; None while it is not crawled. Counters do not fall when a worker leaves."""
        job = self.job(name)
        numbers = job.worker_metrics()
        if numbers is None:
            return job.metrics()
        if not numbers:
            self._sums.pop(name, None)
            return None
        return self._sums.setdefault(name, ProcessSums()).summed(numbers)

    def all_metrics(self) -> dict[str, Facts | None]:
        """The metrics of each job, by its name; None for a job that does not answer in time."""
        answers = self._measuring.answers(self.names)
        return {
            name: None if isinstance(numbers, Exception) else numbers
            for name, numbers in answers.items()
            if not isinstance(numbers, NoSuchJob)
        }

    def _numbers(self, name: str) -> Facts:
        """The metrics of a crawl, or of a job that nobody crawls its state."""
        numbers = self.metrics(name)
        return of_resting(self.row(name)) if numbers is None else numbers

    def create(
        self,
        name: str,
        seeds: str,
        order: str | Mapping[str, Any],
        *,
        template: Mapping[str, Any] | None = None,
        tags: Iterable[str] = (),
        starts: bool = False,
    ) -> CreatedJob:
        """Create a job from seeds, one per line, and an order (TOML, or its tables). The order's seeds are crawled, too.

        The keys of a template count where the order has none. Raises: UsageError; OrderError, all faults.
        """
        directory = self._new_directory(name)
        examined = examined_order(name, order, (directory / SEED_FILE).absolute(), template)
        made = sound_order(examined)
        content = _all_seeds(seeds, made)
        if not content.strip():
            raise UsageError("seeds: the list is empty; write one URL a line")
        if len(content) > MOST_SEED_BYTES:
            raise UsageError(f"seeds: more than {MOST_SEED_BYTES >> 20} MiB; add the others when the job runs")
        found = read_seeds(["-"], io.BytesIO(content))
        if not found.seeds:
            bad = found.bad[0]
            raise NoSeeds(f"seeds: {bad.text!r}: {bad.reason}")
        text = dump_order(made.model_copy(update={"job": made.job.model_copy(update={"seeds": ()})}))
        text.encode()  # before anything is made
        created = CreatedJob(_warnings(examined, found), len(found.seeds), found.bad)
        try:
            directory.mkdir()  # of two that make it, one is refused
        except FileExistsError as error:
            raise JobExists(f"{name}: there is a folder of this name; choose another") from error
        except OSError as error:
            raise storage_error(error, directory, "name") from error
        try:
            with JobFolder.open(directory) as job, storage_errors(directory):
                keep_tags(directory, tags)
                replace_file(directory / SEED_FILE, content)
                _keep_notes(directory, created)
                job.write_order(text)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)  # its name is free again
            raise
        if starts:
            try:
                self.start(name)
            except CrawlerError as error:
                raise NotStarted(f"the job was created, but not started: {error}") from error
        return created

    def _new_directory(self, name: str) -> Path:
        """The folder of a new job, which is not made yet. Raises: UsageError if there can be none of this name."""
        if self.folder is None:
            raise UsageError("a console of a database cannot create jobs; use `anabranch crawl --store`")
        if self.folder in self._folders():
            raise UsageError(
                f"{self.folder}: is a job itself; start a console on the folder that holds it to create others"
            )
        check_new_name(name)
        return self.folder / name

    def notes(self, name: str) -> tuple[list[str], bool]:
        """The warnings that a job got when it was created, until they are dismissed; and whether seeds of it were refused.

        Raises: NoSuchJob, StorageError.
        """
        directory = self.directory(name)
        if directory is None:
            return [], False
        return _note_lines(directory, WARNINGS_FILE), (directory / REFUSED_FILE).is_file()

    def dismiss(self, name: str) -> None:
        """Show the warnings of a new job no longer. Raises: NoSuchJob, StorageError."""
        directory = self.directory(name)
        if directory is not None:
            with storage_errors(directory / WARNINGS_FILE):
                (directory / WARNINGS_FILE).unlink(missing_ok=True)

    def refused_seeds(self, name: str) -> list[str]:
        """The lines that were no seeds when a job was created, each with the reason behind a `#`.

        Raises: NoSuchJob, StorageError.
        """
        directory = self.directory(name)
        return [] if directory is None else _note_lines(directory, REFUSED_FILE)

    def seeds(self, name: str) -> str:
        """The lines that a job was created with; empty if it was created by a command. Raises: NoSuchJob, StorageError."""
        directory = self.directory(name)
        return "" if directory is None else "\n".join(_note_lines(directory, SEED_FILE))

    def set_tags(self, name: str, tags: Iterable[str]) -> None:
        """Give a job these tags instead of its own. Raises: NoSuchJob; UsageError for a wrong tag, or a job in a database."""
        directory = self.directory(name)
        if directory is None:
            raise UsageError(f"{name}: is in a database, and tags are in a job's folder")
        keep_tags(directory, tags)

    def seed_count(self, name: str) -> int:
        """The lines of a job's seed file that have a seed. Raises: NoSuchJob; StorageError."""
        directory = self.directory(name)
        if directory is None:
            return 0
        file = directory / SEED_FILE
        with storage_errors(file):
            lines = file.read_bytes().splitlines()
        return sum(1 for line in lines if line.strip() and not line.lstrip().startswith(b"#"))

    def check(
        self, name: str, order: str | Mapping[str, Any], seeds: str = "", template: Mapping[str, Any] | None = None
    ) -> NewJobCheck:
        """The faults of an order, warnings about it, and which seeds are none. Raises: OrderError if it is no TOML."""
        assert self.folder is not None
        examined = examined_order(name, order, (self.folder / name / SEED_FILE).absolute(), template)
        faults = examined.faults or tuple(machine_faults(examined.order)) or tuple(name_faults(name, examined))
        content = _all_seeds(seeds, examined.order)
        found = read_seeds(["-"], io.BytesIO(content)) if content.strip() else SeedList(seeds=(), bad=())
        warnings = _left_out(found.bad) if faults else _warnings(examined, found)
        return NewJobCheck(faults, warnings, len(found.seeds), found.bad)

    def compare_rounds(
        self, name: str, before: int | None = None, after: int | None = None, *, change: str = "", limit: int = 1000
    ) -> ComparedRounds:
        """Compare two rounds of a job by its logs. Raises: NoSuchJob; as `compare_rounds`."""
        directory = self.directory(name)
        if directory is None:
            raise UsageError(f"{name}: its logs are on the machines of its workers")
        return compare_rounds(directory, before, after, change=change, limit=limit)

    def start(self, name: str, *, again: bool = False) -> int:
        """Start a separate process that crawls the job; its id. `again`: another round. Raises: JobInUse if one crawls it."""
        with self._turns[name]:  # who removes the job has it, too
            directory, job = self.directory(name), self.job(name)
            if directory is None:
                raise UsageError(f"{name}: its workers are started on their machines, by `anabranch crawl --store`")
            status = job.running_status()
            if status is not None:
                raise JobInUse(directory, status["pid"], "it is crawled already")
            return self._launcher.start(directory, ["--again", "--yes"] if again else [], job)

    def folders(self) -> list[Path]:
        """The folders of the jobs; none of a job in a database."""
        return self._folders()

    def start_scheduled(self, directory: Path, options: Sequence[str], lock: int) -> None:
        """Start a process that crawls the job of a folder, and holds the lock of its scheduled runs until it ends."""
        with self._turns[directory.resolve().name]:
            self._launcher.start(directory, options, operated_folder(directory, patience_s=self._patience_s), lock)

    def retry(self, name: str, arguments: Mapping[str, object]) -> Facts:
        """Queue failures of a job again, those that the arguments name: whether it runs, and the counts."""
        return retried_facts(self.job(name), arguments)

    def add(self, name: str, texts: Sequence[str], *, force: bool = False) -> Facts:
        """Add seeds to a job. Returns whether it runs, what is to be started, and the verdicts. Texts that are not URLs are
        refused.

        Raises: NoSeeds if no text is a URL.
        """
        found = [parse_seed(text, COMMAND_LINE) for text in texts]
        bad = [seed for seed in found if isinstance(seed, BadSeed)]
        if len(bad) == len(found):
            raise NoSeeds(f"{bad[0].text!r}: {bad[0].reason}; none was added")
        job, is_running, verdicts = self.job(name), False, []
        for chunk in chunks_of([seed for seed in found if isinstance(seed, Seed)]):
            is_running, added = job.add(chunk, force=force)
            verdicts += added
        refused = [{"url": seed.text, "verdict": VerdictKind.REFUSED.value, "reason": seed.reason} for seed in bad]
        return {"running": is_running, "start": "" if is_running else job.start_hint(), "seeds": verdicts + refused}

    def remove(self, name: str) -> str:
        """Move a job aside; the new name of its folder. Raises: JobInUse; as `move_aside`."""
        with self._turns[name]:
            directory = self.directory(name)
            moved = None if directory is None else move_aside(directory, time.time())
        if moved is None:
            raise UsageError(f"{name}: is in a database; drop its tables yourself")
        return moved.place.name

    def _moved_aside(self, name: str) -> Iterator[Path]:
        """The folder of a job of this name that was moved aside: it is not listed, but who names it gets it."""
        if self.folder is not None and is_moved_aside(Path(name)):
            with storage_errors(self.folder):
                found = [one for one in self.folder.iterdir() if one.name == name and not one.is_symlink()]
            yield from (one for one in found if one in job_folders(one))

    def _folders(self) -> list[Path]:
        """The folders of the jobs, without links, which may lead out of the folder, and without names that no URL can hold."""
        if self.folder is None:
            return []
        found = job_folders(self.folder)
        return [entry for entry in found if entry == self.folder or not (entry.is_symlink() or _is_odd(entry.name))]


def _all_seeds(seeds: str, order: CrawlOrder) -> bytes:
    """The lines of a new job's seed file: those that were given, and then the seeds of its order. Pure."""
    # The lines of a file are never names of files, which the seeds of an order may be.
    return "\n".join([seeds, *order.job.seeds]).encode("utf-8", "surrogatepass")


def _warnings(examined: Examined, found: SeedList) -> list[str]:
    """A line for each thing that a new job lacks or leaves out."""
    given = [key for layer in examined.layers[1:] for key in layer.tables.get("job", {})]
    ignored = [f"[job] {key} is left out: {why}" for key, why in _IGNORED_KEYS.items() if key in given]
    return [*order_warnings(examined.order), *ignored, *_left_out(found.bad)]


def _left_out(bad: Sequence[BadSeed]) -> list[str]:
    """A line for each of the first seeds that are left out. Pure."""
    lines = [f"{seed.text[:_MOST_BAD_CHARS]!r}: {seed.reason}; the job starts without it" for seed in bad[:_MOST_BAD]]
    return [*lines, f"and {len(bad) - _MOST_BAD} more lines that are no seeds"] if len(bad) > _MOST_BAD else lines


def seeds_line(seeds: int, refused: int) -> str:
    """`9,896 seeds, 104 refused`. Pure."""
    return counted(seeds, "seed") + (f", {refused:,} refused" if refused else "")


def refused_lines(bad: Iterable[BadSeed]) -> Iterator[str]:
    """A line for each text that is no seed, with the reason as a comment of a file of seeds. Pure."""
    for seed in bad:
        line = seed.source.rpartition(":")[2]
        yield f"{escaped(seed.text)} # " + (f"line {line}: " if line.isdecimal() else "") + escaped(seed.reason)


def _keep_notes(directory: Path, created: CreatedJob) -> None:
    """Raises: OSError."""
    if created.refused:
        replace_file(directory / REFUSED_FILE, _text_file(refused_lines(created.refused)))
    if created.warnings:
        head = [seeds_line(created.seeds, len(created.refused))] if created.refused else []
        replace_file(directory / WARNINGS_FILE, _text_file([*head, *map(escaped, created.warnings)]))


def _text_file(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _note_lines(directory: Path, name: str) -> list[str]:
    """The lines of a text file of a job; none without the file, or of a link out of the job. Raises: StorageError."""
    file = directory / name
    with storage_errors(file):
        if not (file.is_file() and file.resolve().is_relative_to(directory.resolve())):
            return []
        with file.open("rb") as content:
            return content.read(_MOST_NOTE_BYTES).decode("utf-8", "replace").splitlines()


def _is_odd(name: str) -> bool:
    """The name is not UTF-8."""
    return any("\ud800" <= char <= "\udfff" for char in name)


def _silent_row(name: str, error: Exception) -> Facts | None:
    """The row of a job that gave an error instead of one; None if it has gone meanwhile."""
    if isinstance(error, NoSuchJob):
        return None
    unknown = dict.fromkeys(("pid", "free_disk_bytes", "last_trouble"))
    counts: Facts = dict.fromkeys(("pages", "queued", "failed"), 0)
    words = {"job": name, "folder": "", "phase": UNKNOWN, "state": UNKNOWN, "is_finished": False, "line": str(error)}
    unknown |= dict.fromkeys(("desired_state", "ended"))
    words["tags"] = []
    return {**words, **unknown, **counts, "pages_per_s": 0.0}
