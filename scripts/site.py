"""Builds the documentation as a site: `python scripts/site.py FOLDER`, which must not exist or be empty.

The site has README.md as its first page, the pages of docs/, SECURITY.md, CONTRIBUTING.md and CHANGELOG.md, and the other
files of the repository that these link to. Each keeps its path, so the same link leads to the same place here, in the
repository and in the site. The pages load nothing from other hosts: the library that draws diagrams is NiceGUI's copy.
Exit code 1 if a link or its anchor leads nowhere, a page is missing in `nav` of zensical.toml, or a page shows Markdown as
text: the lines before say which.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path

CLONE = Path(__file__).resolve().parent.parent
CONFIG = "zensical.toml"

#: A link or picture of Markdown to a file: its path, without the anchor. Addresses with a scheme are not files.
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)[^)]*\)")
#: A fence and what is in it, or code within a line: no links.
CODE = re.compile(r"^(```+).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)

#: A part of a list item after an empty line that Markdown on the web takes for one, and the builder does not.
TOO_LITTLE = re.compile(r"\n\n( {1,3}\S.*)")

#: Parts of a built page that are not prose.
NO_PROSE = re.compile(r"<(pre|script|style)\b.*?</\1>", re.DOTALL)
#: Markdown that the builder took for text: a list without an empty line before it, a table or fence within HTML or a list.
UNREAD = re.compile(r"^(?:[-*|] |\d+\. |```).*", re.MULTILINE)
#: What a page would load from another host as soon as it is opened.
FOREIGN = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\s(?:src|href)=[\"']?(?:\w+:)?//[^\"'\s>]+")

#: Files that are part of the site and of no page: its style, and the script that the pages with diagrams get.
EXTRAS = Path("docs", "site")
DIAGRAMS = EXTRAS / "diagrams.js"


def pages(clone: Path) -> list[Path]:
    """The Markdown files of the site, relative to the clone, sorted."""
    files = [*clone.glob("*.md"), *(clone / "docs").rglob("*.md")]
    return sorted(file.relative_to(clone) for file in files)


def prose(clone: Path, page: Path) -> str:
    """The text of a page, with `` for code."""
    return CODE.sub("``", (clone / page).read_text(encoding="utf-8"))


def linked(clone: Path, page: Path) -> Iterator[Path]:
    """The targets of this page's links, relative to the clone where it is inside."""
    for path in LINK.findall(prose(clone, page)):
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


def add_mermaid(site: Path) -> None:
    """Give the pages with diagrams the script that draws them, and the site its library; other pages load neither."""
    library = Path(distribution("nicegui").locate_file("nicegui/elements/mermaid/dist"))
    shutil.copytree(library, site / EXTRAS / "mermaid", ignore=shutil.ignore_patterns("*.map"))
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if 'class="mermaid"' in text:
            script = f'<script type="module" src="{os.path.relpath(site / DIAGRAMS, page.parent)}"></script>\n</head>'
            page.write_text(text.replace("</head>", script, 1), encoding="utf-8")


def complaints(site: Path) -> Iterator[str]:
    """What a reader of the built pages would see or load that nobody meant."""
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        for found in FOREIGN.findall(text):
            yield f"{page.relative_to(site)}: loads from another host: {found}"
        for found in UNREAD.findall(NO_PROSE.sub("", text)):
            yield f"{page.relative_to(site)}: Markdown shown as text: {found[:80]}"


def build(clone: Path, folder: Path) -> str:
    """Build the site of this clone into `folder`; returns what is wrong, or nothing."""
    nav = tomllib.loads((clone / CONFIG).read_text(encoding="utf-8"))["project"]["nav"]
    ours = pages(clone)
    if missing := sorted({page.as_posix() for page in ours} ^ set(in_nav(nav))):
        return f"nav of {CONFIG} and the pages differ: {', '.join(missing)}"
    links = {(page, target) for page in ours for target in linked(clone, page)}
    # The builder looks at links to pages only.
    broken = sorted(f"{page}: no file {at}" for page, at in links if at.is_absolute() or not (clone / at).is_file())
    broken += [
        f"{page}: indent by 4 spaces: {found}" for page in ours for found in TOO_LITTLE.findall(prose(clone, page))
    ]
    if broken:
        return "\n".join(broken)
    with tempfile.TemporaryDirectory(prefix="anabranch.") as name:
        scratch = Path(name)
        shutil.copy(clone / CONFIG, scratch)
        extras = [file.relative_to(clone) for file in (clone / EXTRAS).glob("*")]
        for file in {*ours, *extras, *(target for _, target in links)}:
            (scratch / "pages" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(clone / file, scratch / "pages" / file)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{done.stdout}{done.stderr}"
        add_mermaid(scratch / "site")
        shutil.copytree(scratch / "site", folder, dirs_exist_ok=True)
    return "\n".join(complaints(folder))


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
