"""Completion, by a real bash: commands, options, values, and the names of jobs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.crawler.cli.parameters import complete_job
from tests.patience import HANG_S

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the jobs news, notes and "a b", in which the command is run."""
    for name in ("news", "notes", "a b"):
        state = tmp_path / "jobs" / name / "state"
        state.mkdir(parents=True)
        (state / "format.json").write_text("{}")
    (tmp_path / "jobs" / "no-job").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    """One in which bash finds the command, and no heavy library can be imported."""
    for library in ("aiohttp", "sqlalchemy", "numpy", "structlog", "selectolax"):
        (folder / "heavy").mkdir(exist_ok=True)
        (folder / "heavy" / f"{library}.py").write_text("raise SystemExit(f'{__name__} was imported')")
    command = folder / "bin" / "anabranch"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m anabranch "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": f"{folder / 'heavy'}{os.pathsep}{REPOSITORY}"}


def completed(environment: dict[str, str], *words: str) -> list[str]:
    """What bash offers when Tab is pressed behind these words of a command line."""
    line = shlex.join(("anabranch", *words))
    program = f"""
script=$(_ANABRANCH_COMPLETE=source_bash anabranch) && eval "$script" || exit 1
COMP_WORDS=({line})
COMP_CWORD={len(words)}
$(complete -p anabranch | sed 's/.*-F \\([^ ]*\\) .*/\\1/') anabranch
complete -p anabranch | grep -q -- '-o default' || exit 1
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    ran = subprocess.run(
        ["bash", "--norc", "-c", program], env=environment, check=False, capture_output=True, text=True, timeout=HANG_S
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sta",), ["status"]),
        (("frontier", "un"), ["unblock"]),
        (("crawl", "--max-h"), ["--max-hops"]),
        (("crawl", "--dep"), ["--depth"]),
        (("crawl", "--policy", "s"), ["surt"]),
        (("crawl", "--store", ""), ["memory"]),
        (("status", ""), ["news", "notes"]),
        (("frontier", "ls", "not"), ["notes"]),
        (("frontier", "ls", "notes", "--state", "re"), ["ready", "retired"]),
        (("report", "news", "frontier-"), ["frontier-summary", "frontier-nonempty"]),
    ],
    ids=" ".join,
)
def test_bash_completes(environment: dict[str, str], words: tuple[str, ...], offered: list[str]) -> None:
    """Commands, options, values and jobs, without a heavy library."""
    assert completed(environment, *words) == offered


@pytest.mark.parametrize("words", [("crawl", "-c", "bi"), ("status", "jobs/n"), ("crawl", "b")], ids=" ".join)
def test_files_are_left_to_bash(environment: dict[str, str], words: tuple[str, ...]) -> None:
    """It completes them where nothing is offered."""
    assert completed(environment, *words) == []


def test_only_names_that_are_one_word_for_a_shell_are_offered(folder: Path) -> None:
    """Others would have to be quoted for each shell; without a folder of jobs there are none."""
    (folder / "jobs" / "news").rename(folder / "jobs" / "$(news)")
    assert complete_job("") == ["notes"]
    (folder / "jobs").rename(folder / "kept")
    assert complete_job("") == []
