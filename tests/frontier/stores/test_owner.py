"""The owner's line and its file."""

import os
import socket
from pathlib import Path

import pytest

from anabranch.frontier.stores.owner import OwnerFile, owner_line


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


def test_the_line_names_process_host_and_time() -> None:
    """All that an operator needs to find the owner."""
    assert owner_line(0.0) == f"process {os.getpid()} on host {socket.gethostname()} since 1970-01-01 00:00:00 UTC"


def test_what_was_written_is_read(database: Path) -> None:
    """A later owner replaces it."""
    file = OwnerFile(database)
    assert file.read() is None
    file.write("process 1")
    file.write("process 2")
    assert OwnerFile(database).read() == "process 2"


def test_a_removed_line_is_gone(database: Path) -> None:
    """Removing it twice is harmless."""
    file = OwnerFile(database)
    file.write("process 1")
    file.remove()
    file.remove()
    assert not list(database.parent.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"process 1",
        b"anabranch owner 2\nprocess 1\n",
        b"anabranch owner 1",
        b"anabranch owner 1\n\n",
        b"\xff\xfe\n\n",
    ],
)
def test_a_file_that_is_not_ours_says_nothing(database: Path, content: bytes) -> None:
    """Another version, half a file, or something else: the refusal goes without a name."""
    database.with_name("frontier.db.owner").write_bytes(content)
    assert OwnerFile(database).read() is None


def test_a_line_that_cannot_be_removed_stays(database: Path) -> None:
    """It is harmless."""
    database.with_name("frontier.db.owner").mkdir()
    OwnerFile(database).remove()
    assert database.with_name("frontier.db.owner").is_dir()
