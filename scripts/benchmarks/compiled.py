"""Runs a benchmark command against a wheel with compiled hot modules: `scripts/bench frontier --compiled`.

The wheel is built as a release would build it, by `python -m build` with the hook of pyproject.toml, and unpacked into a
temporary folder. The command then runs once more in a process that finds that folder before the clone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from zipfile import ZipFile

import anabranch.frontier.frontier

REPOSITORY = Path(__file__).resolve().parents[2]
#: The argument that asks for it.
FLAG = "--compiled"


class NotCompiled(Exception):
    """No compiled wheel could be made; the message has the reason."""


def is_compiled() -> bool:
    """Whether the Frontier of this process is compiled."""
    return str(anabranch.frontier.frontier.__file__).endswith(tuple(EXTENSION_SUFFIXES))


def run_compiled(arguments: Sequence[str], say: Callable[[str], None]) -> int:
    """Build the wheel, run the command with the other arguments against it (blocks). Answers its exit status.

    Costs some two minutes for the build. Raises: NotCompiled.
    """
    check_compiler()
    with tempfile.TemporaryDirectory(prefix="anabranch-wheel-") as scratch:
        say("building a wheel with compiled modules (two minutes) ...")
        unpacked = _unpacked(_built(Path(scratch)), Path(scratch) / "unpacked")
        path = os.pathsep.join([str(unpacked), str(REPOSITORY)])
        # The folder in which it runs is the clone, and must not come before the wheel.
        environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        others = [argument for argument in arguments if argument != FLAG]
        child = subprocess.Popen([sys.executable, "-m", "scripts.benchmarks", *others], cwd=REPOSITORY, env=environment)
        try:
            return child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise


def check_compiler() -> None:
    """Raises: NotCompiled if there is no C compiler: the one in CC, else the one that made this Python."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(command[0]) is None:
        raise NotCompiled(f"there is no C compiler {command[0]}; install one, such as gcc, or name it in CC")


def _built(folder: Path) -> Path:
    """The wheel, made there out of an sdist: in the clone the compiler would leave modules that Python then prefers."""
    environment = os.environ | {"HATCH_BUILD_HOOKS_ENABLE": "1", "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(REPOSITORY)]
    log = folder / "build.log"
    with log.open("wb") as output:
        status = subprocess.run(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    wheels = list(folder.glob("*.whl"))
    if status or not wheels:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise NotCompiled(f"the wheel was not built: {''.join(last)}")
    return wheels[0]


def _unpacked(wheel: Path, folder: Path) -> Path:
    """The wheel's files, there."""
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    if not any((folder / "anabranch" / "frontier" / f"frontier{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        raise NotCompiled(f"{wheel.name} holds no compiled modules")
    return folder
