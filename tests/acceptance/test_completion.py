"""Completion, by real shells: commands, options, values, and the names of jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from anabranch.crawler.cli.parameters import complete_job
from tests.acceptance import forkserver
from tests.patience import HANG_S

REPOSITORY = Path(__file__).resolve().parents[2]


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


#: The command that a shell finds: it has the server below run the real one, in its place.
COMMAND = """#!/bin/sh
env -0 > "$ASKED"
{ read -r code; cat; exit "$code"; } < "$ANSWERED"
"""


@pytest.fixture(scope="module")
def zsh_completions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which zsh caches its findings about all commands; to find them takes 0.2 s."""
    return tmp_path_factory.mktemp("zsh") / "dump"


@pytest.fixture
def environment(folder: Path, zsh_completions: Path) -> Iterator[dict[str, str]]:
    """One in which a shell finds the command."""
    command = folder / "bin" / "anabranch"
    command.parent.mkdir()
    command.write_text(COMMAND)
    command.chmod(0o755)
    (folder / "heavy").mkdir()
    asked, answered = folder / "jobs" / "asked", folder / "jobs" / "answered"
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    with commands_answered(asked, answered, folder):
        pipes = {"ASKED": str(asked), "ANSWERED": str(answered)}
        yield {**os.environ, "PATH": path, "DUMP": str(zsh_completions), **pipes}


@contextmanager
def commands_answered(asked: Path, answered: Path, folder: Path) -> Iterator[None]:
    """Run a command for each environment that comes through the one pipe, and write its exit code and output into the other."""

    def answer() -> None:
        while variables := asked.read_bytes():
            env = dict(one.split("=", 1) for one in os.fsdecode(variables).split("\0") if one)
            ran = forkserver.run(["-m", "anabranch"], cwd=folder, env={**env, "PYTHONPATH": str(REPOSITORY)})
            answered.write_text(f"{ran.returncode}\n{ran.stdout}")

    os.mkfifo(asked)
    os.mkfifo(answered)
    answering = Thread(target=answer)
    answering.start()
    try:
        yield
    finally:
        while answering.is_alive():  # it ends when it reads nothing; it is not at the pipe if it has failed
            with suppress(OSError):
                os.close(os.open(asked, os.O_WRONLY | os.O_NONBLOCK))
            answering.join(0.01)


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
zpty -w shell 'autoload -U compinit && compinit -u -d "$DUMP" && eval "$(_ANABRANCH_COMPLETE=source_zsh anabranch)"
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
    """Return the completions that a shell offers for Tab at the end of this line."""
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


OFFERED = [
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
]


@pytest.mark.parametrize(("line", "offered"), OFFERED)
def test_a_shell_completes(shell: str, environment: dict[str, str], line: str, offered: set[str]) -> None:
    """Commands, options, values and jobs."""
    assert completed(shell, environment, line) == offered


def test_no_completion_imports_a_heavy_library(folder: Path) -> None:
    """A user who presses Tab waits for it. As in a shell, the command is told of the line by variables."""
    program = f"""
import os, sys
from anabranch.__main__ import main
os.environ.update(_ANABRANCH_COMPLETE="complete_bash")
for line in {[line for line, _ in OFFERED]!r}:
    os.environ.update(COMP_WORDS="anabranch " + line, COMP_CWORD=str(len((line + "x").split())))
    try:
        main()
    except SystemExit:
        pass
heavy = {{"aiohttp", "sqlalchemy", "numpy", "structlog", "selectolax"}} & set(sys.modules)
assert not heavy, heavy
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    offered = [one for _, more in OFFERED for one in more]
    assert sorted(word.rpartition(",")[2] for word in ran.stdout.split()) == sorted(offered)


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
