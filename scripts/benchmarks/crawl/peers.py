"""The peers' environments: made on demand, one for each peer, so that their libraries are independent."""

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


class PeerMissing(Exception):
    """A peer cannot be installed; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The folder with the peers' environments; it makes those that are missing."""

    folder: Path
    say: Callable[[str], None]

    def python(self, peer: str) -> Path:
        """The interpreter with the peer; makes the environment if it is missing. Raises: PeerMissing."""
        place = self.folder / peer
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PeerMissing(f"{self.folder}: {error.strerror}") from error
        with (self.folder / f"{peer}.lock").open("w") as lock:  # another bench may be at it
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self._made(peer, place)

    def _made(self, peer: str, place: Path) -> Path:
        python, mark = place / "bin" / "python", place / "ready"
        wanted = hashlib.sha256("\0".join([sys.version, *REQUIREMENTS[peer]]).encode()).hexdigest()
        if not mark.is_file() or mark.read_text(encoding="utf-8") != wanted:
            self.say(f"setting up {place} (needed once) ...")
            shutil.rmtree(place, ignore_errors=True)
            for command in _commands(place, python, REQUIREMENTS[peer]):
                _call(command)
            mark.write_text(wanted, encoding="utf-8")
        return python


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


def _call(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PeerMissing(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise PeerMissing(f"{' '.join(command[:4])} … failed: {''.join(last)}")
