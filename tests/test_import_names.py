"""An installation can be imported as `anabranch` and by no other name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from tests.acceptance.command import REPOSITORY, environment
from tests.patience import HANG_S

#: The rooms, under whose names programs that crawl have modules of their own.
ROOMS = ("crawler", "frontier", "dedup")


def run(folder: Path, code: str, *, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """A line of Python in a folder that is not the clone, with this import path beside the installed packages."""
    given = environment()
    del given["PYTHONPATH"]
    if path is not None:
        given["PYTHONPATH"] = path
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=HANG_S)


@pytest.mark.parametrize("room", ROOMS)
def test_outside_the_clone_a_room_has_no_name_of_its_own(room: str, tmp_path: Path) -> None:
    """The editable installation of the clone offers `anabranch` alone."""
    assert run(tmp_path, f"import anabranch.{room}").stderr == ""
    assert f"No module named '{room}'" in run(tmp_path, f"import {room}").stderr


def test_a_program_keeps_its_own_modules(tmp_path: Path) -> None:
    """A project with a package `crawler`, a `frontier.py` and a `dedup.py` works beside the installed command."""
    (tmp_path / "crawler").mkdir()
    (tmp_path / "crawler" / "__init__.py").write_text("mine = 'crawler'\n")
    (tmp_path / "frontier.py").write_text("mine = 'frontier'\n")
    (tmp_path / "dedup.py").write_text("mine = 'dedup'\n")
    for path, ours in ((None, "anabranch.crawler.cli.crawl"), (".", "anabranch.frontier.frontier")):
        code = (
            f"import crawler, dedup, frontier, {ours}, anabranch\n"
            "print(crawler.mine, frontier.mine, dedup.mine, anabranch.Frontier.__module__)"
        )
        ended = run(tmp_path, code, path=path)
        assert (ended.stdout, ended.stderr) == ("crawler frontier dedup anabranch.frontier.frontier\n", "")


def test_every_public_name_is_there_and_is_listed() -> None:
    """`__all__` and `dir` name what can be imported from `anabranch`; another name is an AttributeError."""
    assert {name for name in anabranch.__all__ if getattr(anabranch, name, None) is None} == set()
    assert set(anabranch.__all__) <= set(dir(anabranch))
    with pytest.raises(AttributeError, match="no attribute 'Heritrix'"):
        anabranch.Heritrix  # noqa: B018 - the look itself is what is tested


def test_importing_anabranch_loads_no_library(tmp_path: Path) -> None:
    """Names are imported when they are used: `import anabranch` costs next to nothing."""
    heavy = ("aiohttp", "numpy", "sqlalchemy", "structlog", "pydantic", "typer", "nicegui")
    ended = run(
        tmp_path, f"import sys, anabranch; print(sorted(set({heavy}) & set(sys.modules)))", path=str(REPOSITORY)
    )
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
