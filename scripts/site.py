"""Builds the documentation as a site: `python scripts/site.py FOLDER`, which must not exist or be empty.

The site has README.md as its first page, the pages of docs/, SECURITY.md, CONTRIBUTING.md and CHANGELOG.md, and the other
files of the repository that these link to. Each keeps its path, so the same link leads to the same place here, in the
repository and in the site. Exit code 1 if a link or its anchor leads nowhere, or a page is missing in `nav` of
zensical.toml: the lines before say which.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

CLONE = Path(__file__).resolve().parent.parent
CONFIG = "zensical.toml"

#: A link or picture of Markdown to a file: its path, without the anchor. Addresses with a scheme are not files.
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)[^)]*\)")
#: A fence and what is in it, or code within a line: no links.
CODE = re.compile(r"^(```+).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def pages(clone: Path) -> list[Path]:
    """The Markdown files of the site, relative to the clone, sorted."""
    files = [*clone.glob("*.md"), *(clone / "docs").rglob("*.md")]
    return sorted(file.relative_to(clone) for file in files)


def linked(clone: Path, page: Path) -> Iterator[Path]:
    """What this page links to, relative to the clone where it is inside."""
    for path in LINK.findall(CODE.sub("", (clone / page).read_text(encoding="utf-8"))):
        target = (clone / page.parent / path).resolve()
        yield target.relative_to(clone) if target.is_relative_to(clone) else target


def in_nav(nav: Sequence[object]) -> Iterator[str]:
    """The paths of a `nav`, at all its levels."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for value in entry.values():
                yield from in_nav(value if isinstance(value, list) else [value])


def build(clone: Path, folder: Path) -> str:
    """Build the site of this clone into `folder`; returns what is wrong, or nothing."""
    nav = tomllib.loads((clone / CONFIG).read_text(encoding="utf-8"))["project"]["nav"]
    ours = pages(clone)
    if missing := sorted({page.as_posix() for page in ours} ^ set(in_nav(nav))):
        return f"nav of {CONFIG} and the pages differ: {', '.join(missing)}"
    links = {(page, target) for page in ours for target in linked(clone, page)}
    # The builder looks at links to pages only.
    broken = sorted(f"{page}: no file {at}" for page, at in links if at.is_absolute() or not (clone / at).is_file())
    if broken:
        return "\n".join(broken)
    with tempfile.TemporaryDirectory(prefix="anabranch.") as name:
        scratch = Path(name)
        shutil.copy(clone / CONFIG, scratch)
        for file in {*ours, *(target for _, target in links)}:
            (scratch / "pages" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(clone / file, scratch / "pages" / file)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{done.stdout}{done.stderr}"
        shutil.copytree(scratch / "site", folder, dirs_exist_ok=True)
    return ""


def main(arguments: Sequence[str]) -> int:
    """Build the site; returns 1 on an error, 2 on wrong usage."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    folder = Path(arguments[0])
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} is not empty; name a new folder")
        return 2
    wrong = build(CLONE, folder)
    print(wrong or f"{len(list(folder.rglob('*.html')))} pages in {folder}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
