"""The room as a package."""

import subprocess
import sys

from tests.acceptance.command import REPOSITORY, environment

STRANGER = "raise SystemExit('a stranger was imported')\n"


def imported_in(folder, path):
    """What `import crawler` says with this import path."""
    code = "import warnings; warnings.simplefilter('always'); import crawler"
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, env=environment(PYTHONPATH=path), capture_output=True, text=True, check=True, timeout=20
    ).stderr


def test_a_stranger_that_owns_a_rooms_name_is_named(tmp_path):
    """Another distribution's `frontier` gives a clear warning, and is not run."""
    (tmp_path / "frontier").mkdir()
    (tmp_path / "frontier" / "__init__.py").write_text(STRANGER)
    said = imported_in(tmp_path, f"{tmp_path}:{REPOSITORY}")
    assert "frontier is not anabranch's" in said
    assert "dedup is not" not in said


def test_the_rooms_of_one_home_give_no_warning(tmp_path):
    """Importing the room is silent when all is as it should be."""
    assert imported_in(tmp_path, str(REPOSITORY)) == ""
