"""Runs the steps of conf/cluster/Dockerfile without Docker: `python scripts/image_steps.py FOLDER`, an empty one.

Each stage gets an environment of the Python that runs this; /src, /wheels and /job are folders in FOLDER; of the system's files
nothing is changed, so the step that adds a user is left out. In the end `FOLDER/image/bin/anabranch` is what the image runs.
The clone's files are those that git knows. Exit code 0, or 1 if a step fails.
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
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
DOCKERFILE = CLONE / "conf/cluster/Dockerfile"
#: Names of the stages' environments: the last one is the image.
IMAGE = "image"
#: Folders of the image that the steps name.
_FOLDERS = re.compile(r"(?<![\w./])/(src|wheels|job)\b")
#: Instructions that say how the image runs; the stages share their folders, so nothing is copied between them.
_OF_RUNNING = frozenset({"USER", "VOLUME", "STOPSIGNAL", "ENTRYPOINT", "CMD"})
_LEFT_OUT = "useradd() { :; }; chown() { :; }; "


def steps(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, the rest of its line), comments left out and lines that go on put together."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction:
            yield instruction, rest.strip()


def copy_clone(folder: Path) -> None:
    """Copy the files that git knows."""
    listed = subprocess.run(["git", "-C", CLONE, "ls-files", "-z"], check=True, capture_output=True).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if (CLONE / name).is_file() or (CLONE / name).is_symlink():  # else it was removed and not committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CLONE / name, folder / name, follow_symlinks=False)


def run(folder: Path) -> None:
    """Run all steps. Raises: CalledProcessError."""
    stages = sum(instruction == "FROM" for instruction, _ in steps(DOCKERFILE.read_text(encoding="utf-8")))
    stage, place = 0, folder
    for instruction, rest in steps(DOCKERFILE.read_text(encoding="utf-8")):
        words = _FOLDERS.sub(lambda found: f"{folder}/{found[1]}", rest)
        if instruction == "FROM":
            stage += 1
            venv.create(folder / _stage(stage, stages), with_pip=True)
        elif instruction == "WORKDIR":
            place = Path(words)
            place.mkdir(exist_ok=True)
        elif instruction == "COPY" and rest == ". .":
            copy_clone(place)
        elif instruction == "RUN":
            binaries = folder / _stage(stage, stages) / "bin"
            environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
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
