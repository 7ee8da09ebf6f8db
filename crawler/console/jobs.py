"""The jobs that a console shows: those below a folder, or the one in a database. Names never lead out of the folder."""

from __future__ import annotations

import io
import shutil
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

from anabranch.crawler.console.launching import Launcher
from anabranch.crawler.job.checking import check_names
from anabranch.crawler.job.folder import JobFolder, move_aside
from anabranch.crawler.job.seeds import COMMAND_LINE, BadSeed, Seed, chunks_of, parse_seed, read_seeds
from anabranch.crawler.operate.contract import OperatedJob
from anabranch.crawler.operate.databasejob import DatabaseJob
from anabranch.crawler.operate.finding import operated, operated_folder
from anabranch.crawler.operate.listing import job_folders, listed, row_of
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.order.loading import Examined, examine
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.sources import Layer
from anabranch.crawler.outcomes.errors import JobInUse, NoSeeds, OrderError, UsageError, storage_error, storage_errors
from anabranch.crawler.report.metrics import ProcessSums
from anabranch.crawler.run.verbs import Facts
from anabranch.dedup.files.durable import replace_file
from anabranch.frontier.jobfolder import is_job
from anabranch.frontier.policies.userfunctions import is_user_function

#: The file of seeds of a job that a console begins, in the job's folder.
SEED_FILE = "seeds.txt"
#: Seeds of a new job, in bytes.
MOST_SEED_BYTES = 64 << 20

#: Section -> keys that name code, files, variables, databases and addresses of the machine: see `_of_the_machine`.
_LOCAL: Mapping[str, Sequence[str]] = {
    "job": ("processors", "modules"),
    "scope": ("rules",),
    "frontier": ("store",),
    "fetch": ("body_rules", "proxy_password_env"),
    "dedup": ("leaves",),
    "write": ("upload",),
    "logs": ("file",),
    "report": ("metrics",),
}
#: Sections whose values may be a user function, package.module:function.
_WITH_FUNCTIONS = ("urls", "frontier", "politeness", "dedup")
_OF_A_SITE = ("password_env", "proxy_password_env")


class NoSuchJob(UsageError):
    """There is no job of this name."""


class ConsoleJobs:
    """The jobs of one console. Its methods block. Raises: CrawlerError, FrontierError."""

    def __init__(self, place: str) -> None:
        """`place` is a folder, or the URL of a database. Raises: UsageError."""
        self._launcher = Launcher()
        self._sums: dict[str, ProcessSums] = {}  # of jobs of several workers, by name
        self._turns: defaultdict[str, Lock] = defaultdict(Lock)  # by the name of a job
        self._database = operated(place) if place.startswith(DATABASES) else None
        self.folder = None if self._database else Path(place)
        if self.folder is not None and not self.folder.is_dir():
            raise UsageError(f"{place}: there is no such folder; make it, or name one that holds jobs")

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
        """A row for each job; see `operate.listing`."""
        if self._database is not None:
            return [row_of(self._database.status())]
        return list(map(listed, self._folders()))

    def row(self, name: str) -> Facts:
        """The row of a job. Raises: NoSuchJob."""
        directory = self.directory(name)
        return self.rows()[0] if directory is None else listed(directory)

    def directory(self, name: str) -> Path | None:
        """The folder of a job; None for one in a database. Raises: NoSuchJob."""
        # A name is compared with those that there are, and never made a path.
        found = next((entry for entry in self._folders() if entry.resolve().name == name), None)
        if found is None and (self._database is None or name != self._name_in_database):
            raise NoSuchJob(f"{name!r}: there is no such job")
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

    def job(self, name: str) -> OperatedJob:
        """A job by its name. Raises: NoSuchJob."""
        directory = self.directory(name)
        if directory is not None:
            return operated_folder(directory, turn=self._turns[name])
        assert self._database is not None
        return self._database

    def metrics(self, name: str) -> Facts | None:
        """The job's metrics; None while it is not crawled. Counters do not fall when a worker leaves."""
        job = self.job(name)
        if not isinstance(job, DatabaseJob):
            return job.metrics()
        numbers = job.worker_metrics()
        if not numbers:
            self._sums.pop(name, None)
            return None
        return self._sums.setdefault(name, ProcessSums()).summed(numbers)

    def begin(self, name: str, seeds: str, order: str | Mapping[str, Any]) -> None:
        """Make a job of seeds, a line each, and an order (TOML, or its tables). Raises: UsageError; OrderError, all faults."""
        if self.folder is None:
            raise UsageError("a console of a database makes no jobs; `anabranch crawl --store` does")
        if is_job(self.folder):
            raise UsageError(f"{self.folder}: is a job itself; make others by a console of the folder that holds it")
        if not seeds.strip():
            raise UsageError("seeds: the list is empty; write one URL a line")
        content = seeds.encode()
        if len(content) > MOST_SEED_BYTES:
            raise UsageError(f"seeds: more than {MOST_SEED_BYTES >> 20} MiB; add the others when the job runs")
        found = read_seeds(["-"], io.BytesIO(content))
        if not found.seeds:
            bad = found.bad[0]
            raise NoSeeds(f"seeds: {bad.text!r}: {bad.reason}")
        made = _order(name, order, (self.folder / name / SEED_FILE).absolute())
        text = dump_order(made)
        text.encode()  # before anything is made
        directory = self.folder / name
        try:
            directory.mkdir()  # of two that make it, one is refused
        except FileExistsError as error:
            raise UsageError(f"{name}: there is a folder of this name; choose another") from error
        except OSError as error:
            raise storage_error(error, directory, "name") from error
        try:
            with JobFolder.open(directory) as job, storage_errors(directory):
                replace_file(directory / SEED_FILE, content)
                job.write_order(text)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)  # its name is free again
            raise

    def faults(self, name: str, order: str) -> tuple[tuple[str, ...], str]:
        """All faults of an order, a line each; and what a crawl by it would warn of. Raises: OrderError if it is no TOML."""
        assert self.folder is not None
        examined = _examined(name, order, (self.folder / name / SEED_FILE).absolute())
        warning = examined.order.agent.warning
        return examined.faults, f"{warning}; give [agent] contact" if warning else ""

    def start(self, name: str, *, again: bool = False) -> int:
        """Have a process of its own crawl the job; its id. `again`: another round. Raises: JobInUse if one does already."""
        directory, job = self.directory(name), self.job(name)
        if directory is None:
            raise UsageError(f"{name}: its workers are started on their machines, by `anabranch crawl --store`")

        def is_up(pid: int) -> bool:
            status = job.running_status()
            return status is not None and status["pid"] == pid

        with self._turns[name]:
            status = job.running_status()
            if status is not None:
                raise JobInUse(directory, status["pid"], "it is crawled already")
            return self._launcher.start(directory, ["--again", "--yes"] if again else [], is_up)

    def add(self, name: str, texts: Sequence[str]) -> Facts:
        """Add seeds to a job: whether it runs, and a verdict each. Raises: NoSeeds if a text is no URL; then none is added."""
        found = [parse_seed(text, COMMAND_LINE) for text in texts]
        for seed in found:
            if isinstance(seed, BadSeed):
                raise NoSeeds(f"{seed.text!r}: {seed.reason}; none was added")
        job, is_running, verdicts = self.job(name), False, []
        for chunk in chunks_of([seed for seed in found if isinstance(seed, Seed)]):
            is_running, added = job.add(chunk)
            verdicts += added
        return {"running": is_running, "seeds": verdicts}

    def remove(self, name: str) -> str:
        """Move a job aside; the new name of its folder. Raises: JobInUse; as `move_aside`."""
        directory = self.directory(name)
        with self._turns[name]:
            moved = None if directory is None else move_aside(directory, time.time())
        if moved is None:
            raise UsageError(f"{name}: is in a database; drop its tables yourself")
        return moved.place.name

    def _folders(self) -> list[Path]:
        """The folders of the jobs. Links are left out: they may lead out of the folder, or name a job twice."""
        if self.folder is None:
            return []
        return [entry for entry in job_folders(self.folder) if entry == self.folder or not entry.is_symlink()]


def _examined(name: str, given: str | Mapping[str, Any], seed_file: Path) -> Examined:
    """The order of a new job, with its faults. Raises: OrderError if it is no TOML."""
    try:
        tables = tomllib.loads(given) if isinstance(given, str) else dict(given)
    except tomllib.TOMLDecodeError as error:
        raise OrderError(f"the order: not TOML: {' '.join(str(error).split())}") from error
    own = {"job": {"name": name, "seeds": [], "seed_files": [str(seed_file)]}}
    return examine([
        Layer(tables=own, section_form="[{section}]", key_form="{key}", origin_form="the console"),
        Layer(tables=tables, section_form="[{section}]", key_form="[{section}] {key}", origin_form="the order"),
    ])  # fmt: skip


def _order(name: str, given: str | Mapping[str, Any], seed_file: Path) -> CrawlOrder:
    """The same. Raises: OrderError, all faults; UsageError for what only a file on the machine may order."""
    examined = _examined(name, given, seed_file)
    if examined.faults:
        raise OrderError("; ".join(examined.faults))
    for place in _of_the_machine(examined.order):
        raise UsageError(
            f"{place} names code, a file, a variable or an address of the console's machine, which the API cannot order; "
            "begin such a job there, by `anabranch crawl`"
        )
    check_names(examined.order, examined.layers)
    return examined.order


def _of_the_machine(order: CrawlOrder) -> Iterator[str]:
    """The sections and keys by which whoever has a token would run code, read or write files, or read variables."""
    tables, ours = order.model_dump(), CrawlOrder().model_dump()
    for section, keys in _LOCAL.items():
        yield from (f"[{section}] {key}" for key in keys if tables[section][key] != ours[section][key])
    for section in _WITH_FUNCTIONS:
        yield from (
            f"[{section}] {key}" for key, value in tables[section].items() if any(map(is_user_function, _texts(value)))
        )
    yield from (f"[[site]] {key}" for site in tables["site"] for key in _OF_A_SITE if site[key])


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_texts, chain(value, value.values())))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_texts, value))
