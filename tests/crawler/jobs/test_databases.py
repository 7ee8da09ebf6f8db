"""What errors of a job's databases are to the system."""

import sqlite3
from pathlib import Path

import pytest

from crawler.jobs.databases import as_system_errors


def test_a_database_that_may_not_be_written_lacks_a_permission(tmp_path: Path) -> None:
    """SQLite calls it read-only; the disk that it is on is not."""
    file = tmp_path / "accounts.sqlite"
    sqlite3.connect(file).execute("CREATE TABLE t (x)").connection.close()
    reader = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    with pytest.raises(PermissionError) as failed, as_system_errors(file):
        reader.execute("INSERT INTO t VALUES (1)")
    assert failed.value.filename == str(file)
    reader.close()
