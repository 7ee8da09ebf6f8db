"""The peers: environments of Python, one for each, and programs in other languages. Made on demand, and kept.

The versions are fixed here and in the folders of the programs (`programs/`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: What each peer's environment holds. uvloop is there for runs with `--loop uvloop`.
REQUIREMENTS = {
    "scrapy": ("scrapy==2.19.*", "uvloop"),
    "crawlee": ("crawlee[httpx,parsel]==1.11.*", "selectolax>=1.0", "uvloop"),
}

#: The commands that make each peer that is no Python: run one after the other in the peer's folder, which has the program's
#: sources from `programs/` if there are any. And the file that they leave.
BUILDS: dict[str, tuple[tuple[Sequence[str], ...], str]] = {
    "colly": ((("go", "build", "-o", "colly", "."),), "colly"),
    "spider": ((("cargo", "build", "--quiet", "--release", "--target-dir", "built"),), "built/release/spider-links"),
    "heritrix": (
        (
            (
                *("mvn", "--quiet", "--batch-mode", "dependency:copy", "-DoutputDirectory=."),
                "-Dartifact=org.archive.heritrix:heritrix:3.13.0:tar.gz:dist",
            ),
            ("tar", "xzf", "heritrix-3.13.0-dist.tar.gz"),
        ),
        "heritrix-3.13.0",
    ),
}
_PROGRAMS = Path(__file__).parent / "programs"


class PeerMissing(Exception):
    """A peer cannot be installed; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The folder with the peers' environments and programs; it makes those that are missing."""

    folder: Path
    say: Callable[[str], None]

    def python(self, peer: str) -> Path:
        """The interpreter with the peer; makes the environment if it is missing. Raises: PeerMissing."""
        place, wanted = self.folder / peer, "\0".join([sys.version, *REQUIREMENTS[peer]])
        python = place / "bin" / "python"
        self._make(peer, wanted, lambda: [_call(one) for one in _commands(place, python, REQUIREMENTS[peer])])
        return python

    def program(self, peer: str) -> Path:
        """The program of a peer that is no Python, or its folder; builds it if it is missing. Raises: PeerMissing."""
        place, sources, (commands, made) = self.folder / peer, _PROGRAMS / peer, BUILDS[peer]
        texts = [file.read_text(encoding="utf-8") for file in sorted(sources.rglob("*")) if file.is_file()]

        def build() -> None:
            if sources.is_dir():
                shutil.copytree(sources, place)
            else:
                place.mkdir()
            for command in commands:
                _call(command, place)

        self._make(peer, "\0".join([*map(str, commands), *texts]), build)
        return place / made

    def _make(self, peer: str, wanted: str, make: Callable[[], object]) -> None:
        """Make what is in the peer's folder, unless it was made for the same wish."""
        place = self.folder / peer
        mark, digest = place / "ready", hashlib.sha256(wanted.encode()).hexdigest()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PeerMissing(f"{self.folder}: {error.strerror}") from error
        with (self.folder / f"{peer}.lock").open("w") as lock:  # another bench may be at it
            fcntl.flock(lock, fcntl.LOCK_EX)
            if mark.is_file() and mark.read_text(encoding="utf-8") == digest:
                return
            self.say(f"setting up {place} (needed once) ...")
            shutil.rmtree(place, ignore_errors=True)
            make()
            mark.write_text(digest, encoding="utf-8")


def cache_folder() -> Path:
    """The default folder of environments."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "anabranch" / "bench-peers"


def _commands(place: Path, python: Path, requirements: Sequence[str]) -> list[list[str]]:
    """With uv if installed, else with venv and pip."""
    if uv := shutil.which("uv"):
        made = [uv, "venv", "--quiet", "--python", sys.executable, str(place)]
        return [made, [uv, "pip", "install", "--quiet", "--python", str(python), *requirements]]
    pip = [str(python), "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", str(place)], [*pip, "install", *requirements]]


def _call(command: Sequence[str], folder: Path | None = None) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    except OSError as error:
        raise PeerMissing(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise PeerMissing(f"{' '.join(command[:4])} … failed: {''.join(last)}")
