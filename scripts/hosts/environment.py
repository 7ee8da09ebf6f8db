"""An environment for a host and its tests, made once in a cache: the released wheel, this clone, and the requirements."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from scripts.hosts.suites import Host

CLONE = Path(__file__).parents[2]
#: The extracted parts of a source distribution: its modules are left out, so that those of the wheel are tested.
_TAKEN = ("tests", "docs", "conftest.py", "pyproject.toml", "setup.cfg", "pytest.ini", "tox.ini")


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment for a host's tests."""

    python: Path
    tests: Path  #: the folder that holds the folder `tests`
    version: str  #: of the host


class CannotMake(Exception):
    """The environment cannot be made; the message has the reason."""


def environment(host: Host, wanted: str, cache: Path, archive: Path | None = None) -> Environment:
    """The environment for this version (a pattern of pip's), made if it is missing. Raises: CannotMake."""
    asked = f"{host.name}{host.extras}=={wanted}"
    stamp = _digest(asked, *host.requirements, str(archive), (CLONE / "pyproject.toml").read_text(encoding="utf-8"))
    folder = cache / f"{host.name}-{wanted.rstrip('.*')}"
    mark, python = folder / "ready", folder / "venv" / "bin" / "python"
    if not mark.is_file() or mark.read_text(encoding="utf-8") != stamp:
        print(f"setting up {folder} (needed once) ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _call([sys.executable, "-m", "venv", folder / "venv"])
        _call([python, *_PIP, "install", "--editable", CLONE, asked, *host.requirements])
        _unpack(archive or _fetched(host, _version(python, host), folder), folder)
        mark.write_text(stamp, encoding="utf-8")
    return Environment(python, folder / "suite", _version(python, host))


_PIP = ("-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check")


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _version(python: Path, host: Host) -> str:
    return _call([python, "-c", f"from importlib.metadata import version; print(version({host.name!r}))"]).strip()


def _fetched(host: Host, version: str, folder: Path) -> Path:
    """The source distribution with the tests. pip builds its metadata, and downloads the build requirements."""
    asked = f"{host.name}=={host.tests_of or version}"
    python = folder / "venv" / "bin" / "python"
    _call([python, *_PIP, "download", "--no-binary", host.name, "--no-deps", "--dest", folder / "sdist", asked])
    return next((folder / "sdist").iterdir())


def _unpack(archive: Path, folder: Path) -> None:
    """Extract the tests from an archive, without its first folder. Raises: CannotMake."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                member.name = member.name.partition("/")[2]
                if member.name.partition("/")[0] in _TAKEN:
                    tar.extract(member, folder / "suite", filter="data")
    except (OSError, tarfile.TarError) as error:
        raise CannotMake(f"{archive}: {error}") from error
    if not (folder / "suite" / "tests").is_dir():
        raise CannotMake(f"{archive.name} has no tests")


def _call(command: list[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise CannotMake(f"{' '.join(map(str, command))} failed:\n{last}")
    return done.stdout
