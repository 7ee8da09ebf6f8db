"""The examples of docs/how-to/dedup.md, run as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command import PATIENCE_S, REPOSITORY, environment

TEXT = (REPOSITORY / "docs" / "how-to" / "dedup.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


#: A module of the user's own names itself in its first line.
MODULES = {block.partition("\n")[0].removeprefix("# "): block for block in blocks("python") if block.startswith("# ")}
PROGRAMS = [block for block in blocks("python") if not block.startswith("# ")]


def examples(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with what it shows; a line that ends in a bar goes on in the next one."""
    for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, shown = re.fullmatch(r"((?:[^\n]*\|\n)*[^\n]*\n)(.*)", example, re.DOTALL).groups()  # type: ignore[union-attr]
        yield command.strip(), shown


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with everything that the examples assume: the command, the file of Monday, the modules."""
    command = tmp_path / "bin" / "anabranch"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="{REPOSITORY}:$PYTHONPATH" exec {shlex.quote(sys.executable)} -P -m anabranch "$@"\n'
    )
    command.chmod(0o755)
    (tmp_path / "monday.txt").write_text("http://a.example/\nhttp://a.example/1\nhttp://a.example/\n")
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


#: The commands of each block; the second goes on with the filter of the first. Nobody has the capture.
_FIRST, _SECOND, *_OTHERS = (
    [pair for pair in examples(block) if "c.pcap" not in pair[0]] for block in blocks("console")
)
SHOWN = [block for block in ([*_FIRST, *_SECOND], *_OTHERS) if block]


@pytest.mark.parametrize(
    "shown", SHOWN, ids=[block[0][0].split()[0] + str(number) for number, block in enumerate(SHOWN)]
)
def test_what_the_console_shows_is_what_the_commands_say(folder: Path, shown: list[tuple[str, str]]) -> None:
    """Those of a block one after the other in one folder."""
    assert sum(map(len, SHOWN)) >= 8
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    for command, expected in shown:
        run = subprocess.run(
            ["bash", "-c", f"{command} 2>&1"],
            cwd=folder,
            env=environment(PATH=path),
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert run.stdout == expected, command


def run_program(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program in the folder."""
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_the_plug_in_is_a_filter_of_a_frontier(folder: Path) -> None:
    """It knows the URLs of the job at the next opening."""
    check = """
from pathlib import Path
from anabranch.frontier import Candidate, FrontierOrder, open_frontier
for expected in ("new", "seen"):
    with open_frontier(Path("job"), FrontierOrder(), seen="lines:LinesFilter") as frontier:
        verdicts = frontier.schedule([Candidate("http://a.test/1"), Candidate("http://a.test/2")])
        assert [verdict.kind.value for verdict in verdicts] == [expected] * 2, verdicts
print(sorted(Path("job/seen/plugin/keys.txt").read_text().split()))
"""
    run = run_program(check, folder)
    assert (run.stdout, run.stderr) == ("['http://a.test/1', 'http://a.test/2']\n", "")


def test_the_program_runs_as_it_stands(folder: Path) -> None:
    """Each URL is stored once; a second run knows them all."""
    (program,) = PROGRAMS
    for stored in ("http://a.example/\nhttp://a.example/1\n",) * 2:
        check = f"{program}\nassert is_new.tolist() == [False, {not (folder / 'seen-by-program').exists()}]\n"
        run = run_program(check, folder)
        assert (run.returncode, run.stderr) == (0, "")
        assert (folder / "store.txt").read_text() == stored
