"""The jobs that a console shows: those below a folder, or the one in a database. Names never lead out of the folder."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.crawler.console.launching import Launcher
from anabranch.crawler.job.checking import check_names
from anabranch.crawler.job.folder import JobFolder, move_aside
from anabranch.crawler.operate.contract import OperatedJob
from anabranch.crawler.operate.finding import operated, operated_folder
from anabranch.crawler.operate.listing import job_folders, listed, row_of
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.order.loading import Examined, examine
from anabranch.crawler.order.order import dump_order
from anabranch.crawler.order.sources import Layer
from anabranch.crawler.outcomes.errors import OrderError, UsageError, storage_errors
from anabranch.crawler.run.status import STOPPED
from anabranch.crawler.run.verbs import Facts
from anabranch.dedup.files.durable import replace_file

#: The file of seeds of a job that a console begins, in the job's folder.
SEED_FILE = "seeds.txt"
#: Seeds of a new job, in bytes.
MOST_SEED_BYTES = 64 << 20


class NoSuchJob(UsageError):
    """There is no job of this name."""


class ConsoleJobs:
    """The jobs of one console. Its methods block. Raises: CrawlerError, FrontierError."""

    def __init__(self, place: str) -> None:
        """`place` is a folder, or the URL of a database. Raises: UsageError."""
        self._address = place if place.startswith(DATABASES) else None
        self.folder = None if self._address else Path(place)
        self._launcher = Launcher()
        if self.folder is not None and not self.folder.is_dir():
            raise UsageError(f"{place}: there is no such folder; make it, or name one that holds jobs")
        self._database = None if self._address is None else operated(self._address)

    @property
    def names(self) -> list[str]:
        """The names of the jobs, in order."""
        if self.folder is None:
            assert self._database is not None
            return [str(self._database.status()["job"])]
        return [directory.resolve().name for directory in job_folders(self.folder)]

    def rows(self) -> list[Facts]:
        """A row for each job; see `operate.listing`."""
        if self.folder is None:
            assert self._database is not None
            return [row_of(self._database.status())]
        return [listed(directory) for directory in job_folders(self.folder)]

    def directory(self, name: str) -> Path | None:
        """The folder of a job; None for one in a database. Raises: NoSuchJob."""
        if self.folder is None:
            if name not in self.names:
                raise NoSuchJob(f"{name!r}: there is no such job")
            return None
        found = next((entry for entry in job_folders(self.folder) if entry.resolve().name == name), None)
        if found is None:
            raise NoSuchJob(f"{name!r}: there is no such job")
        return found

    def job(self, name: str) -> OperatedJob:
        """A job by its name. Raises: NoSuchJob."""
        directory = self.directory(name)
        if directory is None:
            assert self._database is not None
            return self._database
        return operated_folder(directory)

    def begin(self, name: str, seeds: str, order: str | Mapping[str, Any]) -> None:
        """Make a job of seeds, a line each, and an order (TOML, or its tables). Raises: UsageError; OrderError, all faults."""
        if self.folder is None:
            raise UsageError("a console of a database makes no jobs; `anabranch crawl --store` does")
        directory = self.folder / name
        examined = self._examined(name, order)
        if examined.faults:
            raise OrderError("; ".join(examined.faults))
        if directory.exists():
            raise UsageError(f"{name}: there is a folder of this name; choose another")
        if not seeds.strip():
            raise UsageError("seeds: there is none; give a URL a line")
        if len(seeds.encode()) > MOST_SEED_BYTES:
            raise UsageError(f"seeds: more than {MOST_SEED_BYTES >> 20} MiB; add the others when the job runs")
        check_names(examined.order, examined.layers)
        with JobFolder.open(directory) as job, storage_errors(directory):
            replace_file(directory / SEED_FILE, seeds.encode())
            job.write_order(dump_order(examined.order))

    def faults(self, name: str, order: str) -> tuple[str, ...]:
        """All faults of an order, a line each. Raises: OrderError if it is no TOML."""
        return self._examined(name, order).faults

    def _examined(self, name: str, order: str | Mapping[str, Any]) -> Examined:
        assert self.folder is not None
        directory = self.folder / name
        try:
            tables = tomllib.loads(order) if isinstance(order, str) else dict(order)
        except tomllib.TOMLDecodeError as error:
            raise OrderError(f"the order: not TOML: {' '.join(str(error).split())}") from error
        given = Layer(tables=tables, section_form="[{section}]", key_form="[{section}] {key}", origin_form="the order")
        own = {"job": {"name": name, "seeds": [], "seed_files": [str(directory.absolute() / SEED_FILE)]}}
        named = Layer(tables=own, section_form="[{section}]", key_form="{key}", origin_form="the console")
        return examine([named, given])

    def start(self, name: str, *, again: bool = False) -> int:
        """Have a process of its own crawl the job; its id. `again`: another round. Raises: UsageError if one does already."""
        directory, job = self.directory(name), self.job(name)
        if directory is None:
            raise UsageError(f"{name}: its workers are started on their machines, by `anabranch crawl --store`")
        if listed(directory)["phase"] != STOPPED:
            raise UsageError(f"{name}: is crawled already")
        return self._launcher.start(
            directory, ["--again", "--yes"] if again else [], lambda: job.running_status() is not None
        )

    def remove(self, name: str) -> str:
        """Move a job aside; the new name of its folder. Raises: JobInUse; as `move_aside`."""
        directory = self.directory(name)
        moved = None if directory is None else move_aside(directory, time.time())
        if moved is None:
            raise UsageError(f"{name}: is in a database; drop its tables yourself")
        return moved.place.name
