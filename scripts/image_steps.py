"""Runs the steps of conf/cluster/Dockerfile without Docker: `python scripts/image_steps.py FOLDER`, an empty one.

Each stage gets an environment of the Python that runs this; /src, /wheels, /job and /archive are folders in FOLDER; of the
system's files nothing is changed, so no user is added. If root runs this, the folders get the owner that the image gives them.
In the end `FOLDER/image/bin/anabranch` is what the image runs. The clone's files are what .dockerignore leaves of it. Exit code
0, or 1 if a step fails. `mounted` and `in_image` are what a container does with a volume and a command.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
DOCKERFILE = CLONE / "conf/cluster/Dockerfile"
#: Names of the stages' environments: the last one is the image.
IMAGE = "image"
#: Paths of the image that the steps and commands name.
_PATHS = re.compile(r"(?:(?<![\w./])|(?<=file://))/(src|wheels|job|archive|order|seeds\.txt)\b")
#: Instructions that say how the image runs; the stages share their folders, so nothing is copied between them.
_OF_RUNNING = frozenset({"USER", "VOLUME", "STOPSIGNAL", "ENTRYPOINT", "CMD"})
#: The image's user, by its number.
USER = 10001
_IS_ROOT = os.geteuid() == 0
#: There is no such user here; its number is known, and root may give folders to it.
_LEFT_OUT = f'useradd() {{ :; }}; chown() {{ {f"shift; command chown {USER}" if _IS_ROOT else ": "} "$@"; }}; '


def steps(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, the rest of its line), comments left out and lines that go on put together."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction:
            yield instruction, rest.strip()


def copy_clone(folder: Path) -> None:
    """Copy the clone as the builder gets it: without what .dockerignore names, with files that git does not know."""
    patterns = [line for line in (CLONE / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]

    def ignored(at: str, names: list[str]) -> set[str]:
        place = Path(at).relative_to(CLONE)
        return {name for name in names if any(is_ignored((place / name).as_posix(), one) for one in patterns)}

    shutil.copytree(CLONE, folder, symlinks=True, ignore=ignored, dirs_exist_ok=True)


def is_ignored(path: str, pattern: str) -> bool:
    """Whether a pattern of .dockerignore names this path: from the clone, or with `**/` anywhere in it. Pure."""
    if pattern.startswith("**/"):
        return fnmatch(path.rpartition("/")[2], pattern.removeprefix("**/"))
    return path == pattern


def mounted(folder: Path, name: str) -> Path:
    """A new volume in the place of this folder of the image: its owner is that of the folder, or root if there is none."""
    place = folder / name
    if place.is_dir():
        shutil.rmtree(place)
        place.mkdir()
        if _IS_ROOT:
            os.chown(place, USER, USER)
    else:
        place.mkdir(mode=0o755)
    return place


def in_image(folder: Path, words: Sequence[str]) -> list[str]:
    """The command that a container runs for these words, as the image's user if root asks."""
    program, *arguments = [_PATHS.sub(lambda found: f"{folder}/{found[1]}", word) for word in words]
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if _IS_ROOT else []
    return [*as_user, str(folder / IMAGE / "bin" / program), *arguments]


def run(folder: Path) -> None:
    """Run all steps. Raises: CalledProcessError."""
    stages = sum(instruction == "FROM" for instruction, _ in steps(DOCKERFILE.read_text(encoding="utf-8")))
    stage, place, given = 0, folder, dict[str, str]()
    for instruction, rest in steps(DOCKERFILE.read_text(encoding="utf-8")):
        words = _PATHS.sub(lambda found: f"{folder}/{found[1]}", rest)
        if instruction == "FROM":
            stage += 1
            venv.create(folder / _stage(stage, stages), with_pip=True)
        elif instruction == "ARG":
            name, _, default = rest.partition("=")
            given[name] = default.strip('"')
        elif instruction == "WORKDIR":
            place = Path(words)
            place.mkdir(exist_ok=True)
        elif instruction == "COPY" and rest == ". .":
            copy_clone(place)
        elif instruction == "RUN":
            binaries = folder / _stage(stage, stages) / "bin"
            environment = {**os.environ, **given, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
            print(f"{_stage(stage, stages)}: {rest}", flush=True)
            subprocess.run(["sh", "-euc", _LEFT_OUT + words], cwd=place, env=environment, check=True)
        elif not (instruction == "COPY" and rest.startswith("--from=")) and instruction not in _OF_RUNNING:
            raise ValueError(f"{DOCKERFILE}: {instruction} {rest}: this script does not know such a step")


def _stage(number: int, stages: int) -> str:
    return IMAGE if number == stages else f"stage-{number}"


def main(arguments: Sequence[str]) -> int:
    """The steps in the folder that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path, help="an empty folder, made if it is missing")
    folder: Path = parser.parse_args(arguments).folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        print(f"{folder} is not empty; name another one", file=sys.stderr)
        return 2
    try:
        run(folder)
    except subprocess.CalledProcessError as error:
        print(f"a step failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
