"""The documentation as a site, and the pages for who carries on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site import complaints

ROOT = Path(__file__).resolve().parents[1]
PAGE = "# Home\n\n[picture](docs/a.png) [part](docs/b.md#part)\n"


def built(folder: Path, home: str, nav: str = '["README.md", "docs/b.md"]') -> subprocess.CompletedProcess[str]:
    """Build a site of two pages, by a copy of the script."""
    (folder / "scripts").mkdir()
    (folder / "docs").mkdir()
    (folder / "scripts" / "site.py").write_bytes((ROOT / "scripts" / "site.py").read_bytes())
    (folder / "zensical.toml").write_text(
        f'[project]\nsite_name = "x"\ndocs_dir = "pages"\nsite_dir = "site"\nnav = {nav}\ntheme.font = false\n'
    )
    (folder / "README.md").write_text(home)
    (folder / "docs" / "b.md").write_text("# B\n\n## Part\n")
    (folder / "docs" / "a.png").write_bytes(b"picture")
    command = [sys.executable, str(folder / "scripts" / "site.py"), str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_site_has_its_pages_and_the_files_that_they_link_to(tmp_path: Path) -> None:
    """At their paths in the repository."""
    done = built(tmp_path, PAGE)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out" / "docs" / "b" / "index.html").is_file()
    assert (tmp_path / "out" / "docs" / "a.png").read_bytes() == b"picture"


@pytest.mark.parametrize("link", ["docs/none.md", "docs/none.toml", "docs", "docs/b.md#none", "#none", "../outside.md"])
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, link: str) -> None:
    """A page, a file, a folder, an anchor, a file outside."""
    assert built(tmp_path, f"{PAGE}[broken]({link})\n").returncode == 1


@pytest.mark.parametrize("text", ["One:\n- a\n- b\n", "<div>\n\n| a |\n|---|\n| b |\n\n</div>\n", "- a\n\n  more\n"])
def test_markdown_that_readers_would_see_as_text_fails_the_build(tmp_path: Path, text: str) -> None:
    """A list without an empty line before it, a table inside HTML, an item that goes on too far to the left."""
    assert built(tmp_path, f"{PAGE}\n{text}").returncode == 1


@pytest.mark.parametrize(
    ("html", "count"),
    [
        ('<script src="https://a.test/x.js"></script>', 1),
        ("<link href=//a.test/x.css rel=stylesheet>", 1),
        ('<img alt="" src="http://a.test/x.png">', 1),
        ('<script src="assets/x.js"></script><a href="https://a.test/">a</a>', 0),
    ],
)
def test_a_page_that_loads_from_another_host_is_complained_about(tmp_path: Path, html: str, count: int) -> None:
    """Links that a reader follows may lead anywhere."""
    (tmp_path / "index.html").write_text(f"<!doctype html>\n{html}\n")
    assert len(list(complaints(tmp_path))) == count


def test_a_page_that_the_navigation_lacks_fails_the_build(tmp_path: Path) -> None:
    """Else nobody finds it."""
    done = built(tmp_path, PAGE, '["README.md"]')
    assert (done.returncode, "docs/b.md" in done.stdout) == (1, True)


def test_the_page_for_contributors_is_short() -> None:
    """Who begins reads it whole."""
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 80
