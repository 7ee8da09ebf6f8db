"""A disk that fails once while a store or a database of a job is opened costs nothing, and never locks the process out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import forkserver
from tests.acceptance.command import environment
from tests.faults import shim

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="needs cc")

#: Opens a new store, and tells SQLite's mode and what a second connection is told.
STORE = """
import sqlite3, sys
from pathlib import Path
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.stores.sql.store import SqlStore
file = Path(sys.argv[1])
store = SqlStore(file, retry_s=0)
try:
    store.open({}, 0.0, lambda: None)
except FrontierError as error:
    print(type(error).__name__, error)
else:
    store.note({"a": "b"})
    has_log = file.with_name(file.name + "-wal").exists()
    store.close(clean=True)
    with sqlite3.connect(file) as reader:
        print("opened", has_log, *reader.execute("SELECT value FROM crawl WHERE value = 'b'").fetchone())
"""
#: The same for the accounts and the payloads of a job.
DATABASES = """
import sys
from pathlib import Path
from anabranch.crawler.accounts.database import AccountsDatabase
from anabranch.crawler.archive.history import FetchHistory
from anabranch.crawler.outcomes.errors import StorageError
file = Path(sys.argv[1])
try:
    accounts = AccountsDatabase(file)
    FetchHistory(file.with_name("payloads")).close()
    print("opened", file.with_name(file.name + "-wal").exists(), *accounts.places())
    accounts.close()
except (OSError, StorageError) as error:
    print(type(error).__name__, error)
"""
ENOSPC, EIO, EMFILE = "28", "5", "24"


@pytest.fixture(scope="module")
def shimmed() -> Iterator[None]:
    with shim.preloaded():
        yield


def told(folder: Path, program: str, **fault: str) -> tuple[str, list[shim.Call]]:
    """Run the program on a new file; returns its output and its calls."""
    folder.mkdir()
    log = folder.with_suffix(".calls")
    variables = environment(**(shim.variables(folder, log) | fault))
    ran = forkserver.run(
        ["-c", program, str(folder / "file.db")], cwd=folder, env=variables, timeout=60, preload=shim.PRELOAD
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.stdout.strip(), shim.calls_in(log)


#: Program -> what it prints, and how many of its first calls set up its file.
OPENINGS = {"store": (STORE, "opened True b", 16), "databases": (DATABASES, "opened True None 0", 40)}


@pytest.mark.usefixtures("shimmed")
@pytest.mark.parametrize("name", OPENINGS)
def test_one_failure_while_a_database_is_set_up_passes(tmp_path: Path, name: str) -> None:
    """At each of the calls by which SQLite makes its file and changes to a log. (A mode that it only claims is noticed.)"""
    program, opened, calls = OPENINGS[name]
    found = {
        number: told(tmp_path / f"{number}", program, **shim.fault(number, (ENOSPC, EIO)[number % 2]))[0]
        for number in range(0, calls, 1 if calls < 20 else 3)
    }
    assert set(found.values()) == {opened}, found


@pytest.mark.usefixtures("shimmed")
@pytest.mark.parametrize(
    ("error", "words"),
    [(ENOSPC, "StoreFull {file}: the disk is full"), (EIO, "StoreUnavailable {file}: disk I/O error")],
)
def test_a_failure_that_lasts_is_told_as_what_it_is(tmp_path: Path, error: str, words: str) -> None:
    """Also if only syncs fail, or new files: SQLite calls both an I/O error."""
    for kinds in ("f", "o"):
        folder = tmp_path / kinds
        said, calls = told(folder, STORE, **shim.fault(0, error, calls=0), FAULT_KINDS=kinds)
        assert said.startswith(words.format(file=folder / "file.db")), (said, calls)


@pytest.mark.usefixtures("shimmed")
def test_no_descriptor_for_a_log_is_told_as_that(tmp_path: Path) -> None:
    """The line says which limit to raise."""
    said, _ = told(tmp_path / "job", STORE, **shim.fault(1, EMFILE, calls=0), FAULT_KINDS="o")
    assert said.startswith(f"StoreUnavailable {tmp_path / 'job' / 'file.db'}: too many open files; raise the limit"), (
        said
    )
