"""`scripts/release`: what it refuses, and what it makes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from anabranch.crawler.order.sections import VERSION
from scripts.wheel_smoke import README, metadata_complaint

ROOT = Path(__file__).resolve().parents[1]
IDENTITY = {f"GIT_{who}_{what}": "a@b.test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(clone: Path, *arguments: str) -> str:
    """The output of git in this clone."""
    done = subprocess.run(
        ["git", *arguments], cwd=clone, env=os.environ | IDENTITY, capture_output=True, text=True, check=True
    )
    return done.stdout


def release(clone: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Run the script there."""
    return subprocess.run(
        [clone / "scripts" / "release", version],
        env=os.environ | IDENTITY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def small_clone(folder: Path, date: str) -> Path:
    """A repository that has what the refusals look at."""
    (folder / "scripts").mkdir(parents=True)
    for name in ("release", "environment.sh"):
        (folder / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    (folder / "scripts" / "release").chmod(0o755)
    (folder / "pyproject.toml").write_text('version = "0.2.0"\n')
    (folder / "CHANGELOG.md").write_text(f"## 0.2.0 ({date})\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_release_is_refused_with_the_reason_before_anything_is_built(tmp_path: Path) -> None:
    """Not committed, another branch or version, no date, an old tag."""
    dated, undated = small_clone(tmp_path / "a", "2026-11-29"), small_clone(tmp_path / "b", "unreleased")
    said = [release(undated, "0.2.0"), release(dated, "0.3.0"), release(dated, "0.2")]
    git(dated, "tag", "v0.2.0")
    said.append(release(dated, "0.2.0"))
    (dated / "new").touch()
    said.append(release(dated, "0.2.0"))
    git(dated, "checkout", "-q", "-b", "other")
    said.append(release(dated, "0.2.0"))
    reasons = (
        "no section with a date",
        "another version",
        "three numbers",
        "v0.2.0 exists",
        "changed or new",
        "branch main",
    )
    for done, reason in zip(said, reasons, strict=True):
        assert done.returncode == 2
        assert reason in done.stderr + done.stdout
    assert not (dated / "dist").exists()


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ("", ""),
        ("Version: 0.3.0", "version 0.3.0"),
        ("Requires-Python: three", "three"),
        ("Requires-Dist: not a name", "not a name"),
        ("Description-Content-Type: text/plain", "README.md"),
    ],
)
def test_wrong_metadata_of_a_wheel_are_named(tmp_path: Path, field: str, complaint: str) -> None:
    """One field is wrong; an index would refuse the file, or show something else."""
    fields = {
        "Metadata-Version": "2.4",
        "Name": "anabranch",
        "Version": "0.2.0",
        "Description-Content-Type": "text/markdown",
    }
    if field:
        name, _, value = field.partition(": ")
        fields[name] = value
    head = "".join(f"{name}: {value}\n" for name, value in fields.items())
    wheel = tmp_path / "anabranch-0.2.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("anabranch-0.2.0.dist-info/METADATA", f"{head}\n{README.read_text('utf-8')}")
    found = metadata_complaint(wheel)
    assert complaint in found
    assert bool(complaint) == bool(found)


@pytest.mark.slow
def test_a_release_is_built_tried_listed_and_tagged(tmp_path: Path) -> None:
    """In a clone of its own: the tag is annotated, and both files are in dist/."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(ROOT), str(clone))
    git(clone, "checkout", "-q", "-B", "main")
    changes = clone / "CHANGELOG.md"
    changes.write_text(
        re.sub(rf"^## {VERSION} \(.*\)$", f"## {VERSION} (2026-11-29)", changes.read_text(), flags=re.MULTILINE)
    )
    git(clone, "commit", "-q", "--allow-empty", "-am", "dated")
    done = release(clone, VERSION)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("anabranch/py.typed") == 2, "the lists of both"
    assert done.stdout.count("its metadata are valid") == 2
    assert {file.suffix for file in (clone / "dist").iterdir()} == {".whl", ".gz"}
    assert git(clone, "cat-file", "-t", f"v{VERSION}") == "tag\n"
    assert git(clone, "status", "--porcelain") == ""
