"""Completion, by real shells: commands, options, values, and the names of jobs."""

from __future__ import annotations

import os
import shlex
import shutil
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
    """One in which a shell finds the command, and no heavy library can be imported."""
    for library in ("aiohttp", "sqlalchemy", "numpy", "structlog", "selectolax"):
        (folder / "heavy").mkdir(exist_ok=True)
        (folder / "heavy" / f"{library}.py").write_text("raise SystemExit(f'{__name__} was imported')")
    command = folder / "bin" / "anabranch"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m anabranch "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": f"{folder / 'heavy'}{os.pathsep}{REPOSITORY}"}


#: A program for each shell: it prints what the shell offers when Tab is pressed at the end of $LINE.
PROGRAMS = {
    "bash": """
script=$(_ANABRANCH_COMPLETE=source_bash anabranch) && eval "$script" || exit 1
read -ra COMP_WORDS <<< "$LINE"
[[ $LINE != *" " ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p anabranch | sed 's/.*-F \\([^ ]*\\) .*/\\1/') anabranch
if [ ${#COMPREPLY[@]} = 0 ] && complete -p anabranch | grep -q -- '-o default'; then
    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
fi
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -U compinit && compinit -u -D && eval "$(_ANABRANCH_COMPLETE=source_zsh anabranch)"
compadd() { local -a found; builtin compadd -O found "$@"; print -l -- $found >> offered; builtin compadd "$@" }
leave() { exit }; comppostfuncs=(leave); bindkey "^I" complete-word; echo re""ady'
zpty -r shell text '*ready*'
zpty -w -n shell "$LINE"$'\\t'
while zpty -r shell text; do :; done
cat offered
""",
    "fish": """
_ANABRANCH_COMPLETE=source_fish anabranch | source
complete --do-complete $LINE | string split --fields 1 \\t; or true
""",
}
OPTIONS = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}


@pytest.fixture(params=PROGRAMS)
def shell(request: pytest.FixtureRequest) -> str:
    """Each shell with completion."""
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed; `apt-get install {name}` brings it")
    return name


def completed(shell: str, environment: dict[str, str], line: str) -> set[str]:
    """What a shell offers when Tab is pressed behind this line."""
    ran = subprocess.run(
        [shell, OPTIONS[shell], "-c", PROGRAMS[shell]],
        env={**environment, "LINE": f"anabranch {line}"},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sta", {"status"}),
        ("frontier un", {"unblock"}),
        ("crawl --max-h", {"--max-hops"}),
        ("crawl --dep", {"--depth"}),
        ("crawl --policy s", {"surt"}),
        ("crawl --store ", {"memory"}),
        ("status ", {"news", "notes"}),
        ("frontier ls not", {"notes"}),
        ("frontier ls notes --state re", {"ready", "retired"}),
        ("report news frontier-", {"frontier-summary", "frontier-nonempty"}),
    ],
)
def test_a_shell_completes(shell: str, environment: dict[str, str], line: str, offered: set[str]) -> None:
    """Commands, options, values and jobs, without a heavy library."""
    assert completed(shell, environment, line) == offered


@pytest.mark.parametrize(("line", "offered"), [("crawl -c bi", "bin"), ("status he", "heavy"), ("crawl b", "bin")])
def test_files_are_left_to_the_shell(shell: str, environment: dict[str, str], line: str, offered: str) -> None:
    """It completes them where nothing is offered."""
    assert {one.rstrip("/") for one in completed(shell, environment, line)} == {offered}


def test_only_names_that_are_one_word_for_a_shell_are_offered(folder: Path) -> None:
    """Others would have to be quoted for each shell; without a folder of jobs there are none."""
    (folder / "jobs" / "news").rename(folder / "jobs" / "$(news)")
    assert complete_job("") == ["notes"]
    (folder / "jobs").rename(folder / "kept")
    assert complete_job("") == []
